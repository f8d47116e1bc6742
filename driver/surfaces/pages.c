// SPDX-License-Identifier: GPL-2.0-only
/*
 * Provider: host memory of a process, pinned.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "surface.h"

/*
 * Who moves data synchronizes it, with pages_sync(); mapping and unmapping do not. So the
 * same pages can be pinned several times, which programs may do.
 */
#define ATTRIBUTES	DMA_ATTR_SKIP_CPU_SYNC

/* The largest array that the kernel allocates is INT_MAX bytes, and there is a segment for each. */
#define MAX_PAGES		(INT_MAX / sizeof(struct peerdma_segment))

/**
 * struct pages_pinned - pinned host memory
 * @pages: the pages
 * @count: number of @pages
 * @table: runs of contiguous pages, none longer than what can be mapped at once; offset and length
 *	are the surface's. While it is mapped, with bus addresses
 * @direction: of the mapping
 * @mm: the process to which the locked memory is charged
 */
struct pages_pinned {
	struct page **pages;
	unsigned long count;
	struct sg_table table;
	enum dma_data_direction direction;
	struct mm_struct *mm;
};

static const char * const pages_kinds[] = {
	[false] = "readable memory of this process",
	[true] = "writable memory of this process; a shared mapping of a file on a disk is none, read into other memory and write() it",
};

/*
 * All pins are long-term ones, also those of a transfer that is waited for: it may wait behind the
 * jobs of others, and in page faults that a program handles, for as long as they like. So memory is
 * moved away from where it has to stay movable before it is pinned, and the kernel refuses to have
 * pages of a file on a disk written to.
 */
static int pages_pin(struct peerdma_surface *surface, struct pages_pinned *pinned,
		     unsigned long start)
{
	bool write = surface->access & PEERDMA_ACCESS_WRITE;
	unsigned int flags = FOLL_LONGTERM | (write ? FOLL_WRITE : COMPAT_FOLL_READ);
	unsigned long done = 0, left, at;
	int n;

	while (done < pinned->count) {
		at = start + done * PAGE_SIZE;
		left = min_t(unsigned long, pinned->count - done, INT_MAX);
		n = pin_user_pages_fast(at, left, flags, pinned->pages + done);
		/* A shared mapping that may not be written to: there are no private pages in it. */
		if (n <= 0 && !write && COMPAT_FOLL_READ)
			n = pin_user_pages_fast(at, 1, FOLL_LONGTERM, pinned->pages + done);
		if (n <= 0) {
			unpin_user_pages(pinned->pages, done);
			return peerdma_fail_pin(surface, n ?: -EFAULT,
						"%llu bytes from %#lx on are not all %s",
						surface->length, start, pages_kinds[write]);
		}
		done += n;
	}
	return 0;
}

static void pages_unpin(const struct peerdma_surface *surface, struct pages_pinned *pinned)
{
	unpin_user_pages_dirty_lock(pinned->pages, pinned->count,
				    surface->access & PEERDMA_ACCESS_WRITE);
	sg_free_table(&pinned->table);
}

static void pages_uncharge(struct pages_pinned *pinned)
{
	account_locked_vm(pinned->mm, pinned->count, false);
	mmdrop(pinned->mm);
}

static int pages_charge(struct peerdma_surface *surface, struct pages_pinned *pinned)
{
	int error = account_locked_vm(current->mm, pinned->count, true);

	if (error)
		return peerdma_fail_pin(surface, error,
					"%llu bytes are more than may still be locked: raise the limit (ulimit -l)",
					surface->length);
	pinned->mm = current->mm;
	mmgrab(pinned->mm);
	return 0;
}

static int pages_get(struct peerdma_surface *surface, const struct peerdma_pin_request *request)
{
	struct device *dev = peerdma_surface_device(surface);
	unsigned long offset = offset_in_page(request->va);
	unsigned long start = request->va - offset;
	struct pages_pinned *pinned;
	u64 count;
	int error;

	count = DIV_ROUND_UP_ULL(offset + request->length, PAGE_SIZE);
	if (count > MAX_PAGES)
		return peerdma_fail_pin(surface, -EINVAL,
					"%llu bytes are too many at once: pin them in parts of at most %llu",
					request->length, (u64)(MAX_PAGES - 1) * PAGE_SIZE);
	pinned = kzalloc(sizeof(*pinned), GFP_KERNEL_ACCOUNT);
	if (!pinned)
		return -ENOMEM;
	pinned->count = count;
	error = pages_charge(surface, pinned);
	if (error)
		goto err_pinned;
	pinned->pages = kvmalloc_array(count, sizeof(*pinned->pages), PEERDMA_GFP_ARRAY);
	if (!pinned->pages) {
		error = -ENOMEM;
		goto err_charge;
	}
	error = pages_pin(surface, pinned, start);
	if (error)
		goto err_pages;
	error = compat_sg_alloc_table(&pinned->table, pinned->pages, count, offset,
				      request->length,
				      min_t(size_t, dma_max_mapping_size(dev),
					    dma_get_max_seg_size(dev)),
				      PEERDMA_GFP_ARRAY);
	if (error)
		goto err_pin;
	surface->private = pinned;
	return 0;

err_pin:
	unpin_user_pages(pinned->pages, count);
err_pages:
	kvfree(pinned->pages);
err_charge:
	pages_uncharge(pinned);
err_pinned:
	kfree(pinned);
	return error;
}

static void pages_put(struct peerdma_surface *surface)
{
	struct pages_pinned *pinned = surface->private;

	pages_unpin(surface, pinned);
	pages_uncharge(pinned);
	kvfree(pinned->pages);
}

/* Whether the CPU and the board see what the other has written only after a sync. */
static bool pages_need_sync(struct device *dev, struct sg_table *table)
{
	struct scatterlist *sg;
	int n;

	/*
	 * Kernels before 6.10 ask for a sync of all that an IOMMU translates. But what it has
	 * joined does not bounce, and then caches are the only reason for one.
	 */
	if (table->nents < table->orig_nents && dev_is_dma_coherent(dev))
		return false;
	for_each_sgtable_dma_sg(table, sg, n)
		if (dma_need_sync(dev, sg_dma_address(sg)))
			return true;
	return false;
}

static void pages_unmap_runs(struct device *dev, struct pages_pinned *pinned, int count)
{
	struct scatterlist *sg;
	int n;

	for_each_sg(pinned->table.sgl, sg, count, n)
		dma_unmap_page_attrs(dev, sg_dma_address(sg), sg_dma_len(sg), pinned->direction,
				     ATTRIBUTES);
}

/*
 * Only a mapping by dma_map_page() may be synchronized in part, and a job moves a part: while it
 * runs, other jobs and the CPU may be writing to the rest.
 */
static int pages_map_runs(struct device *dev, struct pages_pinned *pinned)
{
	struct scatterlist *sg;
	int n;

	for_each_sgtable_sg(&pinned->table, sg, n) {
		dma_addr_t address = dma_map_page_attrs(dev, sg_page(sg), sg->offset, sg->length,
							pinned->direction, ATTRIBUTES);

		if (dma_mapping_error(dev, address)) {
			pages_unmap_runs(dev, pinned, n);
			return -EIO;
		}
		sg_dma_address(sg) = address;
		sg_dma_len(sg) = sg->length;
	}
	pinned->table.nents = pinned->table.orig_nents;
	return 0;
}

static void pages_unmap(struct peerdma_surface *surface)
{
	struct device *dev = peerdma_surface_device(surface);
	struct pages_pinned *pinned = surface->private;

	if (surface->needs_sync)
		pages_unmap_runs(dev, pinned, pinned->table.nents);
	else
		dma_unmap_sgtable(dev, &pinned->table, pinned->direction, ATTRIBUTES);
}

static int pages_map(struct peerdma_surface *surface)
{
	struct device *dev = peerdma_surface_device(surface);
	struct pages_pinned *pinned = surface->private;
	int error;

	pinned->direction = peerdma_direction(surface->access);
	error = dma_map_sgtable(dev, &pinned->table, pinned->direction, ATTRIBUTES);
	if (!error && pages_need_sync(dev, &pinned->table)) {
		dma_unmap_sgtable(dev, &pinned->table, pinned->direction, ATTRIBUTES);
		surface->needs_sync = true;
		/*
		 * What the board does not write has to come back as it was, so it is synchronized
		 * for the device, too; with DMA_FROM_DEVICE a bounce buffer would not be filled.
		 */
		if (pinned->direction == DMA_FROM_DEVICE)
			pinned->direction = DMA_BIDIRECTIONAL;
		error = pages_map_runs(dev, pinned);
	}
	if (error)
		return peerdma_fail_pin(surface, error, "%llu bytes cannot be mapped for the board",
					surface->length);
	error = peerdma_surface_add_table(surface, &pinned->table);
	if (error)
		pages_unmap(surface);
	return error;
}

static void pages_sync(struct peerdma_surface *surface, u64 start, u64 length, bool for_cpu)
{
	struct device *dev = peerdma_surface_device(surface);
	struct pages_pinned *pinned = surface->private;
	u64 end = start + length, here = 0;
	struct scatterlist *sg;
	int n;

	for_each_sgtable_dma_sg(&pinned->table, sg, n) {
		u64 from = max(start, here), to = min(end, here + sg_dma_len(sg));

		if (from < to && for_cpu)
			dma_sync_single_range_for_cpu(dev, sg_dma_address(sg), from - here,
						      to - from, pinned->direction);
		else if (from < to)
			dma_sync_single_range_for_device(dev, sg_dma_address(sg), from - here,
							 to - from, pinned->direction);
		here += sg_dma_len(sg);
	}
}

/**
 * peerdma_pages_find() - where the CPU sees a byte of pinned host memory
 * @surface: any
 * @offset: the byte; from there on up to the end of its page
 *
 * Return: its address, as long as it is pinned; NULL if the kernel has none, or it is other memory.
 */
void *peerdma_pages_find(const struct peerdma_surface *surface, u64 offset)
{
	const struct pages_pinned *pinned = surface->private;
	void *page;

	if (surface->provider != &peerdma_pages)
		return NULL;
	offset += pinned->table.sgl->offset;
	page = page_address(pinned->pages[offset >> PAGE_SHIFT]);
	return page ? page + offset_in_page(offset) : NULL;
}

const struct peerdma_provider peerdma_pages = {
	.name = "pages",
	.owner = THIS_MODULE,
	.features = PEERDMA_SURFACE_SURVIVES_FREE,
	.host = true,
	.get = pages_get,
	.map = pages_map,
	.unmap = pages_unmap,
	.put = pages_put,
	.sync = pages_sync,
};
