// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is at an address: memory of the host, a BAR and whose, something else, or nothing.
 */
#include <linux/dma-buf.h>
#include <linux/dma-direct.h>
#include <linux/ioport.h>
#include <linux/mem_encrypt.h>
#include <linux/module.h>
#include <linux/sizes.h>

#include "surface.h"

/* Physical memory is looked through in blocks of this size: what is found is kept for the next. */
#define BLOCK		SZ_1G
/* What x86 takes for interrupts, wherever it comes from. */
#define INTERRUPTS	0xfee00000ULL

/**
 * struct region_search - looks for the resource that has an address
 * @region: becomes what is in it
 * @address: physical
 * @busy: it is in use as such; else it must not be, as registers are
 * @found: there is one
 */
struct region_search {
	struct peerdma_region *region;
	phys_addr_t address;
	unsigned long busy;
	bool found;
};

/* Leaves of a region what is at these physical addresses. */
static void region_cut(struct peerdma_region *region, phys_addr_t first, phys_addr_t last)
{
	if (last - region->physical < region->last - region->start)
		region->last = region->start + (last - region->physical);
	if (first > region->physical) {
		region->start += first - region->physical;
		region->physical = first;
	}
}

/* For the resources from a block's beginning on, in order. */
static int region_match(struct resource *resource, void *data)
{
	struct region_search *search = data;

	if (resource->end < search->address)
		return 0;
	search->found = resource->start <= search->address &&
			(resource->flags & IORESOURCE_BUSY) == search->busy;
	if (search->found)
		region_cut(search->region, resource->start, resource->end);
	return 1;
}

/* Whether a resource of these flags has the address; then the region is cut to it. */
static bool region_walk(struct peerdma_region *region, u64 address, unsigned long flags)
{
	struct region_search search = {
		.region = region,
		.address = region->physical + (address - region->start),
		.busy = flags & IORESOURCE_BUSY,
	};

	walk_iomem_res_desc(IORES_DESC_NONE, flags, round_down(search.address, BLOCK),
			    (resource_size_t)-1, &search, region_match);
	return search.found;
}

/*
 * What a device asks for as physical addresses, by the windows of the host bridge, which are not
 * the same on all machines. The region becomes the window.
 */
static bool region_in_window(struct peerdma_region *region, struct peerdma_dev *board, u64 address)
{
	const struct bus_dma_region *map = board->pdev->dev.dma_range_map;
	/* With memory encryption, a bit of the address says that the memory is encrypted. */
	u64 encrypted = region->bus ? address - __sme_clr(address) : 0;

	region->start = encrypted;
	region->last = encrypted ? 2 * encrypted - 1 : U64_MAX;
	region->physical = 0;
	if (!region->bus || !map)
		return true;
	for (; map->size; map++) {
		if (address < map->dma_start || address - map->dma_start >= map->size)
			continue;
		region->start = map->dma_start;
		region->last = map->dma_start + map->size - 1;
		region->physical = map->cpu_start;
		return true;
	}
	return false;
}

static bool region_decodes(struct pci_dev *pdev)
{
	u16 command;

	/* Of virtual functions the physical one says it. */
	return pdev->is_virtfn ||
	       (!pci_read_config_word(pdev, PCI_COMMAND, &command) &&
		command != (u16)~0 && command & PCI_COMMAND_MEMORY);
}

/* Whether a module is a part of a driver by its name: nvidia_drm of nvidia. */
static bool region_part_of(struct module *part, struct module *driver)
{
	const char *name = module_name(driver);
	size_t length = strlen(name);

	return !strncmp(module_name(part), name, length) && module_name(part)[length] == '_';
}

/*
 * Who exports a function's memory is its driver, or a module that belongs to it: the DRM part of a
 * GPU's driver, what VFIO drivers share.
 */
static int region_find_owner(struct peerdma_region *region, const struct dma_buf *buffer)
{
	struct module *module = NULL;

	region->owned = true;
	region->driven = false;
	if (!buffer)
		return 0;
	/* Not waited for: who resets a bus has all its devices, and waits for the board's gate. */
	if (!device_trylock(&region->pdev->dev))
		return -EBUSY;
	if (region->pdev->dev.driver)
		module = region->pdev->dev.driver->owner;
	region->owned = region->pdev->dev.driver && module == buffer->owner;
	region->driven = region->owned && module;
	if (module && buffer->owner)
		region->owned |= region_part_of(buffer->owner, module);
	device_unlock(&region->pdev->dev);
	return 0;
}

static bool region_redirects(struct pci_dev *pdev)
{
	int acs = pci_find_ext_capability(pdev, PCI_EXT_CAP_ID_ACS);
	u16 control = 0;

	if (acs)
		pci_read_config_word(pdev, acs + PCI_ACS_CTRL, &control);
	return control & (PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC);
}

static void region_find_path(struct peerdma_way *path, struct pci_dev *pdev)
{
	path->count = 0;
	for (; pdev; pdev = pci_upstream_bridge(pdev)) {
		if (path->count == PEERDMA_MOST_HOPS) {
			path->count = 0;
			return;
		}
		path->hops[path->count++] = (struct peerdma_hop){
			(unsigned long)pdev, region_redirects(pdev),
		};
	}
}

static int region_judge_bar(struct peerdma_region *region, struct peerdma_dev *board,
			    const struct dma_buf *buffer)
{
	struct peerdma_way from, to;

	/* A device does not answer itself. */
	if (pci_physfn(region->pdev) == pci_physfn(board->pdev) || !region_decodes(region->pdev))
		region->target = PEERDMA_TARGET_NOTHING;
	region_find_path(&from, board->pdev);
	region_find_path(&to, region->pdev);
	region->direct = peerdma_direct(&from, &to);
	return region_find_owner(region, buffer);
}

/* Finds the BAR that has the address; returns where the next one above it begins. */
static u64 region_find_bar(struct peerdma_region *region, struct peerdma_dev *board, u64 address)
{
	struct pci_dev *pdev = NULL;
	struct pci_bus_region bar;
	struct resource *resource;
	u64 next = U64_MAX;
	int n;

	for_each_pci_dev(pdev) {
		for (n = 0; n < PCI_STD_NUM_BARS; n++) {
			resource = &pdev->resource[n];
			if (resource_type(resource) != IORESOURCE_MEM || !resource_size(resource) ||
			    resource->flags & IORESOURCE_UNSET)
				continue;
			bar.start = resource->start;
			bar.end = resource->end;
			/* Below another host bridge it is reached as the processor sees it. */
			if (region->bus &&
			    pci_domain_nr(pdev->bus) == pci_domain_nr(board->pdev->bus))
				pcibios_resource_to_bus(pdev->bus, &bar, resource);
			if (bar.start > address)
				next = min_t(u64, next, bar.start);
			if (bar.start > address || bar.end < address || region->pdev)
				continue;
			region->target = PEERDMA_TARGET_BAR;
			region->start = bar.start;
			region->last = bar.end;
			region->physical = resource->start;
			region->pdev = pci_dev_get(pdev);
		}
	}
	return next;
}

/* Whether a host bridge forwards it to its bus: if it is in no BAR, nobody answers there. */
static bool region_on_bus(phys_addr_t address)
{
	struct pci_bus *bus = NULL;
	struct resource *window;
	int n;

	while ((bus = pci_find_next_bus(bus)))
		pci_bus_for_each_resource(bus, window, n)
			if (window && window != &iomem_resource &&
			    resource_type(window) == IORESOURCE_MEM && window->start <= address &&
			    address <= window->end)
				return true;
	return false;
}

/* Memory that is neither the host's nor in a BAR. */
static bool region_find_rest(struct peerdma_region *region, u64 address, u64 next_bar)
{
	phys_addr_t physical = region->physical + (address - region->start);

	if (region_on_bus(physical) ||
	    (IS_ENABLED(CONFIG_X86) && round_down(physical, SZ_1M) == INTERRUPTS))
		return false;
	if (!region_walk(region, address, IORESOURCE_MEM))
		return false;
	region->physical += address - region->start;
	region->start = address;
	region->last = min(region->last, next_bar - 1);
	return true;
}

/**
 * peerdma_region_find() - finds out what is at an address
 * @region: what was found last, or zeroed; holds a reference until peerdma_region_forget()
 * @surface: for whose board, and who gave the address
 * @address: the address
 * @bus: it is one that the board puts on its bus; else a physical one, behind an IOMMU
 *
 * May sleep.
 *
 * Return: 0, or -EBUSY if the driver of what is there is being bound or unbound.
 */
int peerdma_region_find(struct peerdma_region *region, const struct peerdma_surface *surface,
			u64 address, bool bus)
{
	struct peerdma_dev *board = surface->board;
	bool in_window;
	u64 next_bar;

	if (region->known && region->bus == bus && address >= region->start &&
	    address <= region->last)
		return 0;
	peerdma_region_forget(region);
	region->bus = bus;
	region->known = true;
	in_window = region_in_window(region, board, address);
	if (in_window && region_walk(region, address, IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY)) {
		region->target = PEERDMA_TARGET_RAM;
		return 0;
	}
	next_bar = region_find_bar(region, board, address);
	if (region->pdev)
		return region_judge_bar(region, board, surface->buffer);
	if (in_window && region_find_rest(region, address, next_bar)) {
		region->target = PEERDMA_TARGET_REST;
		return 0;
	}
	region->start = address;
	region->last = address;
	return 0;
}

/**
 * peerdma_region_forget() - drops what was found
 * @region: known or not; zeroed
 */
void peerdma_region_forget(struct peerdma_region *region)
{
	pci_dev_put(region->pdev);
	memset(region, 0, sizeof(*region));
}
