// SPDX-License-Identifier: GPL-2.0-only
/*
 * peerdma_nvp2p: memory of NVIDIA's discrete GPUs, by CUDA pointer, through nvidia.ko's nv-p2p.
 *
 * Persistent pins are tried first: they outlive cudaFree() and the process, and there is no
 * callback. Pins of the older kind call back when the memory is freed. No client can tell a free
 * between the pin and the call that maps it from one before the pin: therefore the older kind is
 * only used on request.
 *
 * This is a separate module because it links to nvidia.ko, which must be the open one: the kernel
 * does not link a module that uses GPL-only symbols to a proprietary one.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include <nv-p2p.h>

#include "peerdma_provider.h"

#ifndef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
#error "NVIDIA's driver is older than 525.105.17 or 535.14: it calls back while it puts; update it"
#endif

/* Addresses and lengths must be multiples of this, whatever the size of the GPU's pages. */
#define GRANULE		PEERDMA_PIN_GRANULE

static bool callback;
module_param(callback, bool, 0444);
MODULE_PARM_DESC(callback,
		 "pin with a callback where persistent pins are not to be had (vGPU, MIG, drivers before 535); a race in that interface makes it unsafe against a program that frees while it pins");

#ifndef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
/* Of drivers from 580 on. Those before take no flags. */
#define NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING	1
#endif

static bool force_bar1;
module_param(force_bar1, bool, 0644);
MODULE_PARM_DESC(force_bar1,
		 "pin behind BAR1 also where GPU and processor are coherent (Grace), whose addresses a PCIe device does not reach; needs NVIDIA's driver 580, and no translation by an IOMMU");

/**
 * struct nvp2p_pinned - pinned GPU memory
 * @va: beginning, aligned
 * @table: its pages; NVIDIA's
 * @mapping: their bus addresses; NVIDIA's
 * @forced: it is behind BAR1, where NVIDIA's driver maps it for processors only: no @mapping
 * @persistent: it is a persistent pin; the other members are for a pin with a callback
 * @tgid: the process that pinned it, the only one that can give it back
 * @gone: bit 0: the callback came, or cannot come any more
 */
struct nvp2p_pinned {
	u64 va;
	struct nvidia_p2p_page_table *table;
	struct nvidia_p2p_dma_mapping *mapping;
	bool forced;
	bool persistent;
	pid_t tgid;
	unsigned long gone;
};

/* Returns 0 for an unknown type. */
static u64 nvp2p_page_bytes(u32 type)
{
	switch (type) {
	case NVIDIA_P2P_PAGE_SIZE_64KB:
		return SZ_64K;
	case NVIDIA_P2P_PAGE_SIZE_128KB:
		return SZ_128K;
	default:
		return 0;
	}
}

/*
 * The memory is being freed. NVIDIA's global lock is held: this may take a few milliseconds at
 * most, and must not call anything that takes the lock.
 */
static void nvp2p_freed(void *data)
{
	struct peerdma_surface *surface = data;
	struct nvp2p_pinned *pinned = surface->private;

	peerdma_revoke_now(surface);
	if (pinned->mapping)
		nvidia_p2p_free_dma_mapping(pinned->mapping);
	if (pinned->table)
		nvidia_p2p_free_page_table(pinned->table);
	/* NVIDIA may give the same addresses to another pin. */
	pinned->mapping = NULL;
	pinned->table = NULL;
	if (!test_and_set_bit(0, &pinned->gone))
		peerdma_release_unkeep(surface);
}

static int nvp2p_get_with_callback(struct peerdma_surface *surface, struct nvp2p_pinned *pinned,
				   u64 length)
{
	int error;

	pinned->tgid = current->tgid;
	peerdma_release_keep(surface);
	error = nvidia_p2p_get_pages(0, 0, pinned->va, length, &pinned->table, nvp2p_freed,
				     surface);
	if (error) {
		if (!test_and_set_bit(0, &pinned->gone))
			peerdma_release_unkeep(surface);
	} else if (test_bit(0, &pinned->gone)) {
		error = -ESTALE;
	}
	return error;
}

static int nvp2p_get_any(struct peerdma_surface *surface, struct nvp2p_pinned *pinned, u64 length)
{
	int error;

	pinned->forced = READ_ONCE(force_bar1);
	error = nvidia_p2p_get_pages_persistent(pinned->va, length, &pinned->table, pinned->forced ?
						NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING : 0);
	pinned->persistent = !error;
	if (error != -ENOTSUPP || !callback || pinned->forced)
		return error;
	surface->features &= ~PEERDMA_SURFACE_SURVIVES_FREE;
	return nvp2p_get_with_callback(surface, pinned, length);
}

static void nvp2p_put(struct peerdma_surface *surface)
{
	struct nvp2p_pinned *pinned = surface->private;

	if (pinned->persistent) {
		nvidia_p2p_put_pages_persistent(pinned->va, pinned->table, 0);
		return;
	}
	/* In another process it does nothing and reports success: the callback will come later. */
	if (current->tgid != pinned->tgid)
		return;
	nvidia_p2p_put_pages(0, 0, pinned->va, pinned->table);
	/* By now the callback has returned, or will never come. */
	if (!test_and_set_bit(0, &pinned->gone))
		peerdma_release_unkeep(surface);
}

static int nvp2p_check_table(struct peerdma_surface *surface,
			     const struct nvidia_p2p_page_table *table)
{
	if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table))
		return peerdma_fail_pin(surface, -EOPNOTSUPP,
					"NVIDIA's driver has page tables of version %u.%u, peerdma_nvp2p was built for %u.%u: build it again for the driver that is loaded",
					NVIDIA_P2P_MAJOR_VERSION(table->version),
					NVIDIA_P2P_MINOR_VERSION(table->version),
					NVIDIA_P2P_MAJOR_VERSION(NVIDIA_P2P_PAGE_TABLE_VERSION),
					NVIDIA_P2P_MINOR_VERSION(NVIDIA_P2P_PAGE_TABLE_VERSION));
	/* To map pages of another size would stop the kernel in NVIDIA's driver. */
	if (!nvp2p_page_bytes(table->page_size))
		return peerdma_fail_pin(surface, -EOPNOTSUPP,
					"the GPU has pages of type %u, only 64 and 128 KiB are known (types 1 and 2)",
					table->page_size);
	return 0;
}

static int nvp2p_get(struct peerdma_surface *surface, const struct peerdma_pin_request *request)
{
	u64 va = round_down(request->va, GRANULE);
	u64 length = request->va - va + request->length;
	struct nvp2p_pinned *pinned;
	int error;

	pinned = kzalloc(sizeof(*pinned), GFP_KERNEL_ACCOUNT);
	if (!pinned)
		return -ENOMEM;
	pinned->va = va;
	surface->private = pinned;
	surface->skip = request->va - va;
	error = peerdma_provider_errno(nvp2p_get_any(surface, pinned, round_up(length, GRANULE)));
	switch (error) {
	case 0:
		break;
	case -EINVAL:
		if (pinned->forced)
			return peerdma_fail_pin(surface, error,
						"%llu bytes at %#llx are not GPU memory that this process allocated with cudaMalloc(), or NVIDIA's driver is older than 580, which force_bar1=1 of peerdma_nvp2p needs",
						request->length, request->va);
		return peerdma_fail_pin(surface, error,
					"%llu bytes at %#llx are not GPU memory that this process allocated with cudaMalloc(), or the GPU is a GeForce, which does not allow it; for cudaHostAlloc() on a Jetson, load peerdma_nvp2p_tegra instead of peerdma_nvp2p",
					request->length, request->va);
	case -ENOMEM:
		return peerdma_fail_pin(surface, error,
					"the GPU's BAR1 has no room for %llu bytes: unpin other memory, or turn Resizable BAR on in the firmware's setup",
					request->length);
	case -EOPNOTSUPP:
		return peerdma_fail_pin(surface, error,
					"this GPU or driver has no persistent pins (vGPU, MIG, drivers before 535): load peerdma_nvp2p with callback=1");
	default:
		return peerdma_fail_pin(surface, error,
					"NVIDIA's driver does not pin %llu bytes at %#llx (%d)",
					request->length, request->va, error);
	}
	error = nvp2p_check_table(surface, pinned->table);
	if (error)
		nvp2p_put(surface);
	return error;
}

static int nvp2p_add_extents(struct peerdma_surface *surface,
			     const struct nvidia_p2p_page_table *table)
{
	enum peerdma_cache cache = PEERDMA_CACHE_WRITE_COMBINED;
	u32 n;
	int error;

#if NVIDIA_P2P_PAGE_TABLE_VERSION >= 0x00020000
	if (table->flags & NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE)
		cache = PEERDMA_CACHE_CACHED;
#endif
	error = peerdma_surface_begin_extents(surface, table->entries, cache);
	if (error)
		return error;
	for (n = 0; n < table->entries; n++)
		peerdma_surface_add_extent(surface, table->pages[n]->physical_address,
					   nvp2p_page_bytes(table->page_size));
	return 0;
}

static int nvp2p_check_mapping(struct peerdma_surface *surface,
			       const struct nvidia_p2p_dma_mapping *mapping)
{
	if (NVIDIA_P2P_DMA_MAPPING_VERSION_COMPATIBLE(mapping))
		return 0;
	return peerdma_fail_pin(surface, -EOPNOTSUPP,
				"NVIDIA's driver has mappings of version %u.%u, peerdma_nvp2p was built for %u.%u: build it again for the driver that is loaded",
				NVIDIA_P2P_MAJOR_VERSION(mapping->version),
				NVIDIA_P2P_MINOR_VERSION(mapping->version),
				NVIDIA_P2P_MAJOR_VERSION(NVIDIA_P2P_DMA_MAPPING_VERSION),
				NVIDIA_P2P_MINOR_VERSION(NVIDIA_P2P_DMA_MAPPING_VERSION));
}

/* The core finds out whether a device gets there by the addresses that are meant for processors. */
static int nvp2p_map_forced(struct peerdma_surface *surface,
			    const struct nvidia_p2p_page_table *table)
{
	u64 *addresses = kvmalloc_array(table->entries, sizeof(*addresses),
					GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	int error;
	u32 n;

	if (!addresses)
		return -ENOMEM;
	for (n = 0; n < table->entries; n++)
		addresses[n] = table->pages[n]->physical_address;
	error = peerdma_surface_add_segments(surface, table->entries, addresses, NULL,
					     nvp2p_page_bytes(table->page_size));
	kvfree(addresses);
	return error ?: nvp2p_add_extents(surface, table);
}

static int nvp2p_map(struct peerdma_surface *surface)
{
	struct pci_dev *pdev = to_pci_dev(peerdma_surface_device(surface));
	struct nvp2p_pinned *pinned = surface->private;
	struct nvidia_p2p_dma_mapping *mapping;
	int error;

	if (!pinned->table)
		return peerdma_fail_pin(surface, -ESTALE,
					"the memory was freed while it was pinned");
	if (pinned->forced)
		return nvp2p_map_forced(surface, pinned->table);
	error = nvidia_p2p_dma_map_pages(pdev, pinned->table, &pinned->mapping);
	error = peerdma_provider_errno(error);
	if (error)
		return peerdma_fail_pin(surface, error,
					"NVIDIA's driver does not map the memory for this board (%d): peer-to-peer between their slots may not be possible, or an IOMMU is in the way",
					error);
	mapping = pinned->mapping;
	error = nvp2p_check_mapping(surface, mapping);
	if (!error)
		error = peerdma_surface_add_segments(surface, mapping->entries,
						     mapping->dma_addresses, NULL,
						     nvp2p_page_bytes(mapping->page_size_type));
	if (!error)
		error = nvp2p_add_extents(surface, pinned->table);
	if (error) {
		nvidia_p2p_dma_unmap_pages(pdev, pinned->table, pinned->mapping);
		pinned->mapping = NULL;
	}
	return error;
}

/* Takes no lock that is held during a callback. */
static void nvp2p_unmap(struct peerdma_surface *surface)
{
	struct nvp2p_pinned *pinned = surface->private;

	if (pinned->forced)
		return;
	nvidia_p2p_dma_unmap_pages(to_pci_dev(peerdma_surface_device(surface)), pinned->table,
				   pinned->mapping);
	pinned->mapping = NULL;
}

static struct peerdma_provider provider = {
	.name = "nvp2p",
	.owner = THIS_MODULE,
	.features = PEERDMA_SURFACE_SURVIVES_FREE | PEERDMA_SURFACE_CPU_MAP,
	.gpu = true,
	.get = nvp2p_get,
	.map = nvp2p_map,
	.unmap = nvp2p_unmap,
	.put = nvp2p_put,
};

static int __init nvp2p_init(void)
{
	return peerdma_provider_register(&provider);
}
module_init(nvp2p_init);

static void __exit nvp2p_exit(void)
{
	peerdma_provider_unregister(&provider);
}
module_exit(nvp2p_exit);

MODULE_DESCRIPTION("peerdma: memory of NVIDIA's discrete GPUs");
MODULE_LICENSE("GPL");
