// SPDX-License-Identifier: GPL-2.0-only
/*
 * peerdma_nvp2p_tegra: memory from cudaHostAlloc() on NVIDIA's Tegra, through its nv-p2p.
 *
 * The interface of L4T r35 and r36 (Xavier, Orin); later ones have none, and there the memory is
 * pinned like any other host memory.
 *
 * Its page table embeds an MMU notifier of the process. A change of the first page in the process's
 * address space causes a callback, in a context that may not wait. The pages stay referenced, so
 * that DMA in progress may finish. There are three causes, and each requires another order of calls
 * to give the table back.
 */
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include <linux/nv-p2p.h>

#include "peerdma_provider.h"

/**
 * enum tegra_cause - why the callback came
 * @CAUSE_NONE: it has not
 * @CAUSE_PUT: our own put_pages caused it, or will
 * @CAUSE_EXIT: the process's memory is being torn down
 * @CAUSE_RANGE: something changed where the memory is mapped; the notifier is already being put
 */
enum tegra_cause { CAUSE_NONE, CAUSE_PUT, CAUSE_EXIT, CAUSE_RANGE };

/**
 * struct tegra_pinned - pinned memory
 * @table: its pages
 * @mapping: the one mapping there may be
 * @cause: enum tegra_cause; the first one is kept
 */
struct tegra_pinned {
	struct nvidia_p2p_page_table *table;
	struct nvidia_p2p_dma_mapping *mapping;
	atomic_t cause;
};

/* Called with locks of the memory management held; the out-of-memory killer may be waiting. */
static void nvp2p_tegra_touched(void *data)
{
	struct peerdma_surface *surface = data;
	struct tegra_pinned *pinned = surface->private;
	struct nvidia_p2p_page_table *table = READ_ONCE(pinned->table);
	bool exits = table && !atomic_read(&table->mm->mm_users);

	if (atomic_cmpxchg(&pinned->cause, CAUSE_NONE, exits ? CAUSE_EXIT : CAUSE_RANGE) ==
	    CAUSE_NONE)
		peerdma_revoke(surface);
}

static int nvp2p_tegra_check_versions(struct peerdma_surface *surface,
				      struct nvidia_p2p_page_table *table)
{
#ifdef NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE
	if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table))
		return peerdma_fail_pin(surface, -EOPNOTSUPP,
					"nvidia-p2p has page tables of version %#x, peerdma_nvp2p_tegra was built for %#x: build it again for the driver that is loaded",
					table->version, NVIDIA_P2P_PAGE_TABLE_VERSION);
#endif
	return 0;
}

static void nvp2p_tegra_put(struct peerdma_surface *surface)
{
	struct tegra_pinned *pinned = surface->private;
	struct nvidia_p2p_page_table *table = pinned->table;

	switch (atomic_cmpxchg(&pinned->cause, CAUSE_NONE, CAUSE_PUT)) {
	case CAUSE_NONE:
		/* Makes the callback, and waits for any other that is in progress. */
		nvidia_p2p_put_pages(table);
		nvidia_p2p_free_page_table(table);
		break;
	case CAUSE_EXIT:
		nvidia_p2p_free_page_table(table);
		/* Drops the reference to the process's mm. */
		nvidia_p2p_put_pages(table);
		break;
	default:
		/* It has been put: a second put would drop a reference of somebody else. */
		nvidia_p2p_free_page_table(table);
		mmu_notifier_synchronize();
		break;
	}
	/* Last: until now the notifier in it was being unlinked. Nothing else frees it. */
	kfree(table);
}

static int nvp2p_tegra_get(struct peerdma_surface *surface,
			   const struct peerdma_pin_request *request)
{
	u64 va = round_down(request->va, PAGE_SIZE);
	u64 length = request->va - va + request->length;
	struct tegra_pinned *pinned;
	int error;

	pinned = kzalloc(sizeof(*pinned), GFP_KERNEL_ACCOUNT);
	if (!pinned)
		return -ENOMEM;
	surface->private = pinned;
	surface->skip = request->va - va;
	error = nvidia_p2p_get_pages(va, round_up(length, PAGE_SIZE), &pinned->table,
				     nvp2p_tegra_touched, surface);
	if (error)
		return peerdma_fail_pin(surface, peerdma_provider_errno(error),
					"%llu bytes at %#llx cannot be pinned (%d): on a Jetson that is memory from cudaHostAlloc(), not from cudaMalloc(); for a discrete GPU's, load peerdma_nvp2p instead of peerdma_nvp2p_tegra",
					request->length, request->va, error);
	error = nvp2p_tegra_check_versions(surface, pinned->table);
	if (error)
		nvp2p_tegra_put(surface);
	return error;
}

static int nvp2p_tegra_add_extents(struct peerdma_surface *surface,
				   const struct nvidia_p2p_page_table *table)
{
	u32 n;
	int error = peerdma_surface_begin_extents(surface, table->entries, PEERDMA_CACHE_CACHED);

	if (error)
		return error;
	for (n = 0; n < table->entries; n++)
		peerdma_surface_add_extent(surface, page_to_phys(table->pages[n]), PAGE_SIZE);
	return 0;
}

static int nvp2p_tegra_map(struct peerdma_surface *surface)
{
	struct tegra_pinned *pinned = surface->private;
	int error;

	error = nvidia_p2p_dma_map_pages(peerdma_surface_device(surface), pinned->table,
					 &pinned->mapping, DMA_BIDIRECTIONAL);
	/* A mapping that failed can be reported as success without a mapping. */
	if (error || !pinned->mapping)
		return peerdma_fail_pin(surface, error ?: -EIO,
					"the memory cannot be mapped for this board (%d)", error);
	error = peerdma_surface_add_segments(surface, pinned->mapping->entries,
					     pinned->mapping->hw_address,
					     pinned->mapping->hw_len, 0);
	if (!error)
		error = nvp2p_tegra_add_extents(surface, pinned->table);
	if (error) {
		nvidia_p2p_dma_unmap_pages(pinned->mapping);
		pinned->mapping = NULL;
	}
	return error;
}

static void nvp2p_tegra_unmap(struct peerdma_surface *surface)
{
	struct tegra_pinned *pinned = surface->private;

	nvidia_p2p_dma_unmap_pages(pinned->mapping);
	pinned->mapping = NULL;
}

static struct peerdma_provider provider = {
	.name = "nvp2p-tegra",
	.owner = THIS_MODULE,
	.features = PEERDMA_SURFACE_CPU_MAP,
	.gpu = true,
	.host = true,
	.get = nvp2p_tegra_get,
	.map = nvp2p_tegra_map,
	.unmap = nvp2p_tegra_unmap,
	.put = nvp2p_tegra_put,
};

static int __init nvp2p_tegra_init(void)
{
	return peerdma_provider_register(&provider);
}
module_init(nvp2p_tegra_init);

static void __exit nvp2p_tegra_exit(void)
{
	peerdma_provider_unregister(&provider);
}
module_exit(nvp2p_tegra_exit);

MODULE_DESCRIPTION("peerdma: memory of NVIDIA's Tegra");
MODULE_LICENSE("GPL");
