// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where memory is, and whether the board gets there: providers are not taken at their word.
 *
 * Every address that was mapped is looked at, in steps of the smallest page that the board's IOMMU
 * has. Only what leads to memory all over is used.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "surface.h"

/* Mapping may be undone and made again for the same memory. */
#define ATTRIBUTES	DMA_ATTR_SKIP_CPU_SYNC
#define FIRST_ROOM	64
/* Steps between looks whether others want the processor. */
#define STEPS		1024

static bool trust_host_bridge;
module_param(trust_host_bridge, bool, 0644);
MODULE_PARM_DESC(trust_host_bridge,
		 "map a GPU's memory that its driver left unmapped, and export pages of the board, also where the kernel does not know that the host bridge forwards peer-to-peer");

/**
 * struct placement_survey - what was found at the addresses of a surface
 * @surface: the surface
 * @domain: of an IOMMU that translates for the board; NULL: none does
 * @step: its smallest page
 * @region: where the last address leads to
 * @bytes: by enum peerdma_reach
 * @looked: bytes of the surface, from the beginning on
 * @bar: where the first BAR begins that an address leads to; 0: none does
 * @bars: there is more than one
 * @driven: the exporter of the dma-buf is the driver of all of them
 * @runs: the memory that is not the host's
 * @count: number of @runs in use
 * @room: number of @runs allocated
 */
struct placement_survey {
	struct peerdma_surface *surface;
	struct iommu_domain *domain;
	u64 step;
	struct peerdma_region region;
	u64 bytes[PEERDMA_REACH_COUNT];
	u64 looked;
	phys_addr_t bar;
	bool bars;
	bool driven;
	struct peerdma_extent *runs;
	u32 count;
	u32 room;
};

static void placement_begin(struct placement_survey *survey, struct peerdma_surface *surface)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&surface->board->pdev->dev);

	*survey = (struct placement_survey){ .surface = surface, .driven = true };
	/* Kernels before 5.15 look for an address in the tables that an identity domain has not. */
	if (!domain || domain->type == IOMMU_DOMAIN_IDENTITY)
		return;
	survey->domain = domain;
	survey->step = domain->pgsize_bitmap ? 1ULL << __ffs(domain->pgsize_bitmap) : SZ_4K;
}

static void placement_end(struct placement_survey *survey)
{
	peerdma_region_forget(&survey->region);
	kvfree(survey->runs);
}

/* Records memory that is not the host's, in the order of the surface. */
static int placement_note_run(struct placement_survey *survey, phys_addr_t address, u64 length)
{
	struct peerdma_extent *last = survey->runs + survey->count - 1, *more;
	u32 room;

	if (survey->count && last->address + last->length == address) {
		last->length += length;
		return 0;
	}
	if (survey->count == survey->room) {
		room = survey->room ? 2 * survey->room : FIRST_ROOM;
		more = kvmalloc_array(room, sizeof(*more), PEERDMA_GFP_ARRAY);
		if (!more)
			return -ENOMEM;
		if (survey->count)
			memcpy(more, survey->runs, survey->count * sizeof(*more));
		kvfree(survey->runs);
		survey->runs = more;
		survey->room = room;
	}
	survey->runs[survey->count++] = (struct peerdma_extent){
		.address = address, .length = length,
	};
	return 0;
}

static void placement_note_bar(struct placement_survey *survey)
{
	struct peerdma_surface *surface = survey->surface;
	struct peerdma_region *region = &survey->region;

	survey->driven &= region->driven;
	survey->bars = survey->bar;
	if (survey->bars)
		return;
	survey->bar = region->physical;
	strscpy(surface->peer, pci_name(region->pdev), sizeof(surface->peer));
	surface->aperture_size = region->last - region->start + 1;
}

/* Looks at addresses that are contiguous up to the IOMMU, and behind it. */
static int placement_look(struct placement_survey *survey, u64 address, u64 length,
			  bool untranslated)
{
	struct peerdma_region *region = &survey->region;
	enum peerdma_reach reach;
	int error;
	u64 part;

	for (; length; length -= part, address += part) {
		error = peerdma_region_find(region, survey->surface, address,
					    !survey->domain || untranslated);
		if (error)
			return peerdma_fail_pin(survey->surface, error,
						"the driver of the device with the memory is being bound, unbound or reset: try again");
		part = min(length, region->last - address + 1);
		reach = peerdma_reach(region->target, untranslated, region->direct, region->owned);
		if (region->target == PEERDMA_TARGET_BAR && region->physical != survey->bar)
			placement_note_bar(survey);
		survey->bytes[reach] += part;
		if (reach == PEERDMA_REACH_NOWHERE)
			return 0;
		survey->looked += part;
		if (reach == PEERDMA_REACH_HOST)
			continue;
		error = placement_note_run(survey, region->physical + (address - region->start),
					   part);
		if (error)
			return error;
	}
	return 0;
}

/* Steps that lead to addresses in a row are looked at together: a step costs its translation. */
static int placement_look_at_segment(struct placement_survey *survey,
				     const struct peerdma_segment *segment)
{
	u64 start = 0, length = 0, done = 0, address, part;
	bool untranslated = false;
	phys_addr_t physical;
	int error, n = 0;

	if (!survey->domain)
		return placement_look(survey, segment->address, segment->length, false);
	for (; done < segment->length; done += part) {
		address = segment->address + done;
		part = min(segment->length - done, survey->step - (address & (survey->step - 1)));
		physical = iommu_iova_to_phys(survey->domain, address);
		if (!(++n % STEPS))
			cond_resched();
		if (length && untranslated == !physical &&
		    start + length == (physical ?: address)) {
			length += part;
			continue;
		}
		error = placement_look(survey, start, length, untranslated);
		if (error || survey->bytes[PEERDMA_REACH_NOWHERE])
			return error;
		untranslated = !physical;
		start = physical ?: address;
		length = part;
	}
	return placement_look(survey, start, length, untranslated);
}

static int placement_compare(const void *a, const void *b)
{
	const struct peerdma_extent *one = a, *other = b;

	return one->address < other->address ? -1 : one->address > other->address;
}

/* One place for two bytes of a device: what is written to one of them is lost. */
static bool placement_overlaps(struct placement_survey *survey)
{
	struct peerdma_extent *runs = survey->runs;
	bool sorted = false;
	u32 n;

again:
	for (n = 1; n < survey->count; n++)
		if (runs[n].address < runs[n - 1].address + runs[n - 1].length)
			break;
	if (n >= survey->count || sorted)
		return n < survey->count;
	sort(runs, survey->count, sizeof(*runs), placement_compare, NULL);
	sorted = true;
	goto again;
}

static int placement_survey(struct placement_survey *survey)
{
	struct peerdma_surface *surface = survey->surface;
	int error = 0;
	u32 n;

	for (n = 0; n < surface->segment_count; n++) {
		error = placement_look_at_segment(survey, &surface->segments[n]);
		if (error || survey->bytes[PEERDMA_REACH_NOWHERE])
			return error;
		if (!(n % STEPS))
			cond_resched();
	}
	return 0;
}

static const char *placement_exporter(const struct peerdma_surface *surface)
{
	return surface->buffer ? surface->buffer->exp_name : surface->provider->name;
}

/**
 * peerdma_placement_allows() - whether the kernel lets a device access another one's BAR
 * @peer: whose BAR
 * @dev: who accesses it
 *
 * Return: whether it does, or the administrator says that it works.
 */
bool peerdma_placement_allows(struct pci_dev *peer, struct device *dev)
{
	return trust_host_bridge || pci_p2pdma_distance(peer, dev, false) >= 0;
}

/* Why addresses of a BAR that the IOMMU does not translate cannot be mapped here; NULL: they can */
static const char *placement_why_not(const struct placement_survey *survey)
{
	const struct peerdma_surface *surface = survey->surface;
	const struct peerdma_region *region = &survey->region;

	if (survey->bytes[PEERDMA_REACH_RAW] != surface->length)
		return "only a part is such";
	if (survey->bars)
		return "they are of several BARs";
	if (!surface->buffer)
		return "only dma-bufs can be mapped otherwise";
	if (!survey->driven)
		return "its driver is not who exports it";
	/* The kernel knows pages there, which dma_map_resource() does not take. */
	if (pfn_valid(PHYS_PFN(region->physical)))
		return "the BAR has pages of its own";
	if (!peerdma_placement_allows(region->pdev, &surface->board->pdev->dev))
		return "this kernel allows no peer-to-peer between them";
	return NULL;
}

/* Maps addresses of a BAR that its driver gave as they are. */
static int placement_map_raw(struct placement_survey *survey)
{
	struct device *dev = &survey->surface->board->pdev->dev;
	const struct peerdma_region *region = &survey->region;
	struct peerdma_surface *surface = survey->surface;
	enum dma_data_direction direction = peerdma_direction(surface->access);
	const char *why_not = placement_why_not(survey);
	struct peerdma_segment *segment;
	dma_addr_t address;

	if (why_not)
		return peerdma_fail_pin(surface, -EOPNOTSUPP,
					"%s gave addresses of the BAR of %s that the IOMMU does not translate for this board, and %s: start the kernel with iommu=pt, or pin in another way",
					placement_exporter(surface), surface->peer, why_not);
	while (surface->remapped < surface->segment_count) {
		segment = &surface->segments[surface->remapped];
		address = dma_map_resource(dev, region->physical +
					   (segment->address - region->start),
					   segment->length, direction, ATTRIBUTES);
		if (dma_mapping_error(dev, address))
			return peerdma_fail_pin(surface, -EOPNOTSUPP,
						"%s left the BAR of %s unmapped for this board, and the kernel does not map it either",
						placement_exporter(surface), surface->peer);
		segment->address = address;
		surface->remapped++;
	}
	return 0;
}

static int placement_decide(struct placement_survey *survey)
{
	struct peerdma_surface *surface = survey->surface;
	bool host = survey->bytes[PEERDMA_REACH_HOST];
	bool peer = survey->bytes[PEERDMA_REACH_PEER];
	bool other = survey->bytes[PEERDMA_REACH_OTHER];

	if (survey->bytes[PEERDMA_REACH_NOWHERE])
		return peerdma_fail_pin(surface, -EOPNOTSUPP,
					"%s gave addresses that lead to no memory%s, from byte %llu of %llu on: what is written there would be lost",
					placement_exporter(surface),
					survey->domain ? " behind the IOMMU" : "", survey->looked,
					surface->length);
	if (placement_overlaps(survey))
		return peerdma_fail_pin(surface, -EOPNOTSUPP,
					"%s gave the board the same memory twice: what is written to one of the two would be lost",
					placement_exporter(surface));
	if (host + peer + other > 1)
		surface->placement = PEERDMA_PLACEMENT_MIXED;
	else if (peer)
		surface->placement = PEERDMA_PLACEMENT_PEER;
	else if (other)
		surface->placement = PEERDMA_PLACEMENT_OTHER;
	return 0;
}

/**
 * peerdma_placement_find() - finds out where the memory of a surface is
 * @surface: mapped
 *
 * From the addresses that the board uses: right whatever the provider assumes. May sleep; no lock
 * but the board's gate is held.
 *
 * Return: 0, or an errno if the board does not reach all of it; said why.
 */
int peerdma_placement_find(struct peerdma_surface *surface)
{
	struct placement_survey survey;
	int error;

	surface->placement = PEERDMA_PLACEMENT_HOST;
	if (surface->provider->host)
		return 0;
	placement_begin(&survey, surface);
	error = placement_survey(&survey);
	if (!error && survey.bytes[PEERDMA_REACH_RAW] && !survey.bytes[PEERDMA_REACH_NOWHERE]) {
		error = placement_map_raw(&survey);
		placement_end(&survey);
		placement_begin(&survey, surface);
		if (!error)
			error = placement_survey(&survey);
	}
	if (!error)
		error = placement_decide(&survey);
	placement_end(&survey);
	return error;
}

/**
 * peerdma_placement_undo() - takes back what peerdma_placement_find() mapped
 * @surface: no job touches it, and the provider's mapping is still there. May sleep
 *
 * Idempotent.
 */
void peerdma_placement_undo(struct peerdma_surface *surface)
{
	enum dma_data_direction direction = peerdma_direction(surface->access);
	struct device *dev = &surface->board->pdev->dev;
	const struct peerdma_segment *segment;

	while (surface->remapped) {
		segment = &surface->segments[--surface->remapped];
		dma_unmap_resource(dev, segment->address, segment->length, direction, ATTRIBUTES);
	}
}
