// SPDX-License-Identifier: GPL-2.0
/*
 * peerdma_nvp2p: memory of NVIDIA's discrete GPUs, by CUDA pointer, through nvidia.ko's nv-p2p.
 *
 * Persistent pins first: they outlive cudaFree() and the process, and nothing is called back.
 * The older kind calls back when the memory is freed. A free that falls between the pin and the
 * call that maps it cannot be told from one before it, by any client: therefore only on request.
 *
 * A module of its own, since it links to nvidia.ko. That must be the open one: to a proprietary
 * one, a module that uses GPL-only symbols is not linked.
 */
#include <linux/log2.h>
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

/* What the calls want addresses and lengths to be multiples of, whatever the GPU's page is. */
#define GRANULE		SZ_64K

static bool callback;
module_param(callback, bool, 0444);
MODULE_PARM_DESC(callback,
		 "pin with a callback where persistent pins are not to be had (vGPU, MIG, drivers before 535); a race in that interface makes it unsafe against a program that frees while it pins");

/**
 * struct pinned - pinned GPU memory
 * @va: beginning, aligned
 * @table: its pages; NVIDIA's
 * @mapping: their bus addresses; NVIDIA's
 * @persistent: of that kind; the following is for the other
 * @tgid: only this process can give it back
 * @gone: bit 0: called back, or cannot be any more
 */
struct pinned {
	u64 va;
	struct nvidia_p2p_page_table *table;
	struct nvidia_p2p_dma_mapping *mapping;
	bool persistent;
	pid_t tgid;
	unsigned long gone;
};

/* NVIDIA says -ENOTSUPP, which is not for programs. */
static int normalized(int error)
{
	return error == -ENOTSUPP ? -EOPNOTSUPP : error;
}

/* 0 for one that we do not know. */
static u64 page_bytes(u32 type)
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

/* The memory is being freed. NVIDIA's global lock is held: a few milliseconds, and no call back. */
static void freed(void *data)
{
	struct peerdma_surface *surface = data;
	struct pinned *pinned = surface->private;

	peerdma_surface_revoke_now(surface);
	if (pinned->mapping)
		nvidia_p2p_free_dma_mapping(pinned->mapping);
	if (pinned->table)
		nvidia_p2p_free_page_table(pinned->table);
	/* NVIDIA may give the same addresses to another pin. */
	pinned->mapping = NULL;
	pinned->table = NULL;
	if (!test_and_set_bit(0, &pinned->gone))
		peerdma_surface_unkeep(surface);
}

static int get_with_callback(struct peerdma_surface *surface, struct pinned *pinned, u64 length)
{
	int error;

	pinned->tgid = current->tgid;
	peerdma_surface_keep(surface);
	error = nvidia_p2p_get_pages(0, 0, pinned->va, length, &pinned->table, freed, surface);
	if (error) {
		if (!test_and_set_bit(0, &pinned->gone))
			peerdma_surface_unkeep(surface);
	} else if (test_bit(0, &pinned->gone)) {
		error = -ESTALE;
	}
	return error;
}

static int get(struct peerdma_surface *surface, struct pinned *pinned, u64 length)
{
	int error = nvidia_p2p_get_pages_persistent(pinned->va, length, &pinned->table, 0);

	pinned->persistent = !error;
	if (error != -ENOTSUPP || !callback)
		return error;
	surface->features &= ~PEERDMA_SURFACE_SURVIVES_FREE;
	return get_with_callback(surface, pinned, length);
}

static void nvp2p_put(struct peerdma_surface *surface)
{
	struct pinned *pinned = surface->private;

	if (pinned->persistent) {
		nvidia_p2p_put_pages_persistent(pinned->va, pinned->table, 0);
		return;
	}
	/* For another process it would do nothing and report success: the callback will come. */
	if (current->tgid != pinned->tgid)
		return;
	nvidia_p2p_put_pages(0, 0, pinned->va, pinned->table);
	/* A callback has returned by now, or will never come. */
	if (!test_and_set_bit(0, &pinned->gone))
		peerdma_surface_unkeep(surface);
}

static int check_table(struct peerdma_surface *surface, const struct nvidia_p2p_page_table *table)
{
	if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table))
		return peerdma_explain(surface, -EOPNOTSUPP,
				       "NVIDIA's driver has page tables of version %u.%u, peerdma_nvp2p was built for %u.%u: build it again for the driver that is loaded",
				       NVIDIA_P2P_MAJOR_VERSION(table->version),
				       NVIDIA_P2P_MINOR_VERSION(table->version),
				       NVIDIA_P2P_MAJOR_VERSION(NVIDIA_P2P_PAGE_TABLE_VERSION),
				       NVIDIA_P2P_MINOR_VERSION(NVIDIA_P2P_PAGE_TABLE_VERSION));
	/* To map pages of a size that NVIDIA's driver does not expect stops the kernel. */
	if (!page_bytes(table->page_size))
		return peerdma_explain(surface, -EOPNOTSUPP,
				       "the GPU has pages of type %u, only 64 and 128 KiB are known (types 1 and 2)",
				       table->page_size);
	return 0;
}

static int nvp2p_get(struct peerdma_surface *surface, const struct peerdma_pin_request *request)
{
	u64 va = round_down(request->va, GRANULE);
	u64 length = request->va - va + request->length;
	struct pinned *pinned;
	int error;

	if (length > U64_MAX - GRANULE)
		return peerdma_explain(surface, -EINVAL, "%llu bytes are too many",
				       request->length);
	pinned = kzalloc(sizeof(*pinned), GFP_KERNEL_ACCOUNT);
	if (!pinned)
		return -ENOMEM;
	pinned->va = va;
	surface->private = pinned;
	surface->skip = request->va - va;
	error = normalized(get(surface, pinned, round_up(length, GRANULE)));
	switch (error) {
	case 0:
		break;
	case -EINVAL:
		return peerdma_explain(surface, error,
				       "%llu bytes at %#llx are not GPU memory that this process allocated with cudaMalloc(), or the GPU is a GeForce, which does not allow it; for cudaHostAlloc() on a Jetson, load peerdma_nvp2p_tegra instead of peerdma_nvp2p",
				       request->length, request->va);
	case -ENOMEM:
		return peerdma_explain(surface, error,
				       "the GPU's BAR1 has no room for %llu bytes: unpin other memory, or turn Resizable BAR on in the firmware's setup",
				       request->length);
	case -EOPNOTSUPP:
		return peerdma_explain(surface, error,
				       "this GPU or driver has no persistent pins (vGPU, MIG, drivers before 535): load peerdma_nvp2p with callback=1");
	default:
		return peerdma_explain(surface, error,
				       "NVIDIA's driver does not pin %llu bytes at %#llx (%d)",
				       request->length, request->va, error);
	}
	error = check_table(surface, pinned->table);
	if (error)
		nvp2p_put(surface);
	return error;
}

static int add_extents(struct peerdma_surface *surface, const struct nvidia_p2p_page_table *table)
{
	enum peerdma_cache cache = PEERDMA_CACHE_WRITE_COMBINED;
	u32 n;
	int error;

#if NVIDIA_P2P_PAGE_TABLE_VERSION >= 0x00020000
	if (table->flags & NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE)
		cache = PEERDMA_CACHE_CACHED;
#endif
	error = peerdma_extents_begin(surface, table->entries, cache);
	if (error)
		return error;
	for (n = 0; n < table->entries; n++)
		peerdma_extents_add(surface, table->pages[n]->physical_address,
				    page_bytes(table->page_size));
	return 0;
}

static int add_segments(struct peerdma_surface *surface,
			const struct nvidia_p2p_dma_mapping *mapping)
{
	u32 n;
	int error;

	if (!NVIDIA_P2P_DMA_MAPPING_VERSION_COMPATIBLE(mapping))
		return peerdma_explain(surface, -EOPNOTSUPP,
				       "NVIDIA's driver has mappings of version %u.%u, peerdma_nvp2p was built for %u.%u: build it again for the driver that is loaded",
				       NVIDIA_P2P_MAJOR_VERSION(mapping->version),
				       NVIDIA_P2P_MINOR_VERSION(mapping->version),
				       NVIDIA_P2P_MAJOR_VERSION(NVIDIA_P2P_DMA_MAPPING_VERSION),
				       NVIDIA_P2P_MINOR_VERSION(NVIDIA_P2P_DMA_MAPPING_VERSION));
	error = peerdma_segments_begin(surface, mapping->entries);
	if (error)
		return error;
	for (n = 0; n < mapping->entries; n++)
		peerdma_segments_add(surface, mapping->dma_addresses[n],
				     page_bytes(mapping->page_size_type));
	return 0;
}

static int nvp2p_map(struct peerdma_surface *surface)
{
	struct pci_dev *pdev = to_pci_dev(peerdma_surface_device(surface));
	struct pinned *pinned = surface->private;
	int error;

	if (!pinned->table)
		return peerdma_explain(surface, -ESTALE,
				       "the memory was freed while it was pinned");
	error = normalized(nvidia_p2p_dma_map_pages(pdev, pinned->table, &pinned->mapping));
	if (error)
		return peerdma_explain(surface, error,
				       "NVIDIA's driver does not map the memory for this board (%d): peer-to-peer between their slots may not be possible, or an IOMMU is in the way",
				       error);
	error = add_segments(surface, pinned->mapping);
	if (!error)
		error = add_extents(surface, pinned->table);
	if (error) {
		nvidia_p2p_dma_unmap_pages(pdev, pinned->table, pinned->mapping);
		pinned->mapping = NULL;
	}
	return error;
}

/* Takes no lock that a callback is made with. */
static void nvp2p_unmap(struct peerdma_surface *surface)
{
	struct pinned *pinned = surface->private;

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
