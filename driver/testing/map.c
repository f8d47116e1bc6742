// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated GPU's memory as tables of bus addresses: right ones, and all that are wrong.
 */
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "simgpu.h"

/* What x86 takes for interrupts. */
#define INTERRUPTS	0xfee00000

static char bad[16];
module_param_string(bad, bad, sizeof(bad), 0644);
MODULE_PARM_DESC(bad, "what is wrong with tables of the GPU's memory, by name: see map.c");

static ulong carveout;
module_param(carveout, ulong, 0644);
MODULE_PARM_DESC(carveout, "where memory begins that belongs to nobody, for bad=carveout");

enum bad {
	BAD_NOTHING,
	BAD_RAW,	/* addresses of the BAR that are not mapped for the importer */
	BAD_RAW_END,	/* so the last page's */
	BAD_RAW_FOREIGN,/* so those of a BAR of another function */
	BAD_RAW_RAM,	/* so those of memory of the host, and not the GPU's */
	BAD_SHORT,	/* the last page is missing */
	BAD_LONG,	/* more than the buffer */
	BAD_EMPTY,	/* a piece of no bytes, in place of the first page */
	BAD_ODD,	/* in the middle of pages */
	BAD_HOLE,	/* a page of the IOMMU's is missing in the middle of a piece */
	BAD_OVERLAP,	/* the second page has the addresses of the first */
	BAD_ALIAS,	/* ... is mapped to where the first is */
	BAD_NOWHERE,	/* mapped to where nothing is */
	BAD_BEYOND,	/* half of the last page is behind the end of the BAR */
	BAD_OWN,	/* a BAR of the importer */
	BAD_FOREIGN,	/* a BAR of another function */
	BAD_INTERRUPT,	/* what the processor takes for interrupts */
	BAD_WRAP,	/* from the last addresses on to the first ones */
	BAD_RAM,	/* memory of the host, and not the GPU's */
	BAD_RAM_END,	/* so the last page */
	BAD_CARVEOUT,	/* memory of nobody */
};

static const char * const names[] = {
	"", "raw", "raw-end", "raw-foreign", "raw-ram", "short", "long", "empty", "odd", "hole",
	"overlap", "alias", "nowhere", "beyond", "own", "foreign", "interrupt", "wrap", "ram",
	"ram-end", "carveout",
};

/**
 * struct mapping - memory that is mapped for an importer
 * @table: what the importer sees
 * @kind: what is wrong with it
 * @page: memory of the host, of the size of the GPU's pages
 * @physical: where the hole is, if there is one
 * @count: pages of the GPU
 * @addresses: of each, as it was mapped; 0: it was not
 */
struct mapping {
	struct sg_table table;
	enum bad kind;
	struct page *page;
	phys_addr_t physical;
	u32 count;
	dma_addr_t addresses[];
};

/* The first BAR of a page or more. */
static phys_addr_t bar_of(struct pci_dev *pdev)
{
	int n;

	for (n = 0; n < PCI_STD_NUM_BARS; n++)
		if (pci_resource_flags(pdev, n) & IORESOURCE_MEM &&
		    pci_resource_len(pdev, n) >= SIMGPU_PAGE)
			return pci_resource_start(pdev, n);
	return 0;
}

static phys_addr_t foreign(struct device *dev)
{
	struct pci_dev *pdev = NULL;
	phys_addr_t found = 0;

	for_each_pci_dev(pdev)
		if (!found && pdev != simgpu_pdev && &pdev->dev != dev)
			found = bar_of(pdev);
	return found;
}

static phys_addr_t physical(const struct mapping *mapping, struct device *dev,
			    const struct simgpu_alloc *alloc, u32 n)
{
	switch (mapping->kind) {
	case BAD_ALIAS:
		return simgpu_physical(alloc, n == 1 ? 0 : n);
	case BAD_NOWHERE:
		return simgpu_physical(alloc, n) + pci_resource_len(simgpu_pdev, 2);
	case BAD_BEYOND:
		if (n == mapping->count - 1)
			return pci_resource_end(simgpu_pdev, 2) + 1 - SIMGPU_PAGE / 2;
		break;
	case BAD_OWN:
		return bar_of(to_pci_dev(dev));
	case BAD_FOREIGN:
	case BAD_RAW_FOREIGN:
		return foreign(dev);
	case BAD_RAW_RAM:
		return page_to_phys(mapping->page);
	case BAD_CARVEOUT:
		return carveout + n * SIMGPU_PAGE;
	default:
		break;
	}
	return simgpu_physical(alloc, n);
}

static bool in_ram(const struct mapping *mapping, u32 n)
{
	return mapping->kind == BAD_RAM ||
	       (mapping->kind == BAD_RAM_END && n == mapping->count - 1);
}

static bool raw(const struct mapping *mapping, u32 n)
{
	return mapping->kind == BAD_RAW || mapping->kind == BAD_RAW_FOREIGN ||
	       mapping->kind == BAD_RAW_RAM ||
	       (mapping->kind == BAD_RAW_END && n == mapping->count - 1);
}

/* What the importer is told of a page. */
static void tell(struct mapping *mapping, struct scatterlist *sg, u32 n, dma_addr_t address)
{
	bool last = n == mapping->count - 1;
	u32 length = SIMGPU_PAGE;

	if (mapping->kind == BAD_ODD)
		address += 8;
	if (mapping->kind == BAD_OVERLAP && n == 1)
		address = sg_dma_address(mapping->table.sgl);
	if (mapping->kind == BAD_INTERRUPT)
		address = INTERRUPTS + n * SIMGPU_PAGE;
	if (mapping->kind == BAD_WRAP)
		address = n * SIMGPU_PAGE - SIMGPU_PAGE / 2;
	if ((mapping->kind == BAD_SHORT && last) || (mapping->kind == BAD_EMPTY && !n))
		length = 0;
	if (mapping->kind == BAD_LONG && last)
		length += SIMGPU_PAGE;
	/* No page: who looks for one finds it out here. */
	sg_set_page(sg, NULL, SIMGPU_PAGE, 0);
	sg_dma_address(sg) = address;
	sg_dma_len(sg) = length;
}

/* As an exporter would that maps its pages one by one, and forgets about one. */
static void make_hole(struct mapping *mapping, struct device *dev, const struct simgpu_alloc *alloc)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	mapping->physical = simgpu_physical(alloc, 0) + SIMGPU_PAGE / 2;
	iommu_unmap(domain, mapping->addresses[0] + SIMGPU_PAGE / 2, SZ_4K);
}

static void fill_hole(struct mapping *mapping, struct device *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	/* Before Linux 6.3 there is no last parameter, and the function does not see it. */
	int (*map)(struct iommu_domain *domain, unsigned long iova, phys_addr_t physical,
		   size_t size, int protection, gfp_t flags) = (void *)iommu_map;

	map(domain, mapping->addresses[0] + SIMGPU_PAGE / 2, mapping->physical, SZ_4K,
	    IOMMU_READ | IOMMU_WRITE, GFP_KERNEL);
}

struct sg_table *simgpu_map(struct device *dev, struct simgpu_alloc *alloc,
			    enum dma_data_direction direction)
{
	struct mapping *mapping = kzalloc(struct_size(mapping, addresses, alloc->count),
					  GFP_KERNEL);
	int kind = sysfs_match_string(names, bad);
	struct scatterlist *sg;
	dma_addr_t address;
	u32 n;

	if (mapping)
		mapping->page = alloc_pages(GFP_KERNEL, get_order(SIMGPU_PAGE));
	if (!mapping || !mapping->page ||
	    sg_alloc_table(&mapping->table, alloc->count, GFP_KERNEL)) {
		if (mapping && mapping->page)
			__free_pages(mapping->page, get_order(SIMGPU_PAGE));
		kfree(mapping);
		return ERR_PTR(-ENOMEM);
	}
	mapping->kind = max(kind, 0);
	mapping->count = alloc->count;
	for_each_sgtable_sg(&mapping->table, sg, n) {
		if (raw(mapping, n)) {
			tell(mapping, sg, n, physical(mapping, dev, alloc, n));
			continue;
		}
		if (in_ram(mapping, n))
			address = dma_map_page_attrs(dev, mapping->page, 0, SIMGPU_PAGE, direction,
						     SIMGPU_ATTRIBUTES);
		else
			address = dma_map_resource(dev, physical(mapping, dev, alloc, n),
						   SIMGPU_PAGE, direction, SIMGPU_ATTRIBUTES);
		if (dma_mapping_error(dev, address)) {
			simgpu_unmap(dev, &mapping->table, direction);
			return ERR_PTR(-EIO);
		}
		mapping->addresses[n] = address;
		tell(mapping, sg, n, address);
	}
	if (mapping->kind == BAD_HOLE)
		make_hole(mapping, dev, alloc);
	return &mapping->table;
}

void simgpu_unmap(struct device *dev, struct sg_table *table, enum dma_data_direction direction)
{
	struct mapping *mapping = container_of(table, struct mapping, table);
	u32 n;

	if (mapping->kind == BAD_HOLE)
		fill_hole(mapping, dev);
	for (n = 0; n < mapping->count && (raw(mapping, n) || mapping->addresses[n]); n++) {
		if (raw(mapping, n))
			continue;
		if (in_ram(mapping, n))
			dma_unmap_page_attrs(dev, mapping->addresses[n], SIMGPU_PAGE, direction,
					     SIMGPU_ATTRIBUTES);
		else
			dma_unmap_resource(dev, mapping->addresses[n], SIMGPU_PAGE, direction,
					   SIMGPU_ATTRIBUTES);
	}
	__free_pages(mapping->page, get_order(SIMGPU_PAGE));
	sg_free_table(table);
	kfree(mapping);
}
