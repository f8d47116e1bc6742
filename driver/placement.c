// SPDX-License-Identifier: GPL-2.0
/*
 * Where memory is: in the host, or behind the BAR of another device.
 */
#include <linux/iommu.h>
#include <linux/mm.h>

#include "surface.h"

static phys_addr_t placement_physical(struct peerdma_surface *surface, dma_addr_t address)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&surface->board->pdev->dev);

	/* Kernels before 5.15 look for an address in the tables that an identity domain has not. */
	if (!domain || domain->type == IOMMU_DOMAIN_IDENTITY)
		return address;
	return iommu_iova_to_phys(domain, address);
}

/* Records whose BAR an address is in. */
static void placement_note_peer(struct peerdma_surface *surface, phys_addr_t address)
{
	struct pci_dev *pdev = NULL;
	struct resource *bar;
	int n;

	for_each_pci_dev(pdev) {
		for (n = 0; n < PCI_STD_NUM_BARS; n++) {
			bar = &pdev->resource[n];
			if (resource_type(bar) != IORESOURCE_MEM || address < bar->start ||
			    address > bar->end)
				continue;
			strscpy(surface->peer, pci_name(pdev), sizeof(surface->peer));
			surface->aperture_size = resource_size(bar);
			pci_dev_put(pdev);
			return;
		}
	}
}

/**
 * peerdma_placement_find() - finds out where the memory of a surface is
 * @surface: mapped
 *
 * From the addresses that the board uses: right whatever the provider assumes.
 */
void peerdma_placement_find(struct peerdma_surface *surface)
{
	bool host = false, peer = false;
	phys_addr_t address;
	u32 n;

	surface->placement = PEERDMA_PLACEMENT_HOST;
	if (surface->provider->host)
		return;
	for (n = 0; n < surface->segment_count; n++) {
		address = placement_physical(surface, surface->segments[n].address);
		if (page_is_ram(PHYS_PFN(address))) {
			host = true;
			continue;
		}
		if (!peer)
			placement_note_peer(surface, address);
		peer = true;
	}
	if (peer)
		surface->placement = host ? PEERDMA_PLACEMENT_MIXED : PEERDMA_PLACEMENT_PEER;
}
