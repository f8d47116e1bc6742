// SPDX-License-Identifier: GPL-2.0
/*
 * Provider: host memory of a process, pinned.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "surface.h"

/*
 * Each job synchronizes what it moves, with pages_sync(); mapping and unmapping do not. So the same
 * pages can be pinned several times, which programs may do.
 */
#define ATTRIBUTES	DMA_ATTR_SKIP_CPU_SYNC

/* The largest array that the kernel allocates is INT_MAX bytes, and there is a segment for each. */
#define MAX_PAGES		(INT_MAX / sizeof(struct peerdma_segment))

/**
 * struct pages_pinned - pinned host memory
 * @pages: the pages
 * @count: number of @pages
 * @table: for mapping; offset and length are the surface's
 * @direction: of all transfers
 * @mm: the process to which the locked memory is charged
 */
struct pages_pinned {
	struct page **pages;
	unsigned long count;
	struct sg_table table;
	enum dma_data_direction direction;
	struct mm_struct *mm;
};

static enum dma_data_direction pages_direction(u32 access)
{
	switch (access) {
	case PEERDMA_ACCESS_READ:
		return DMA_TO_DEVICE;
	case PEERDMA_ACCESS_WRITE:
		return DMA_FROM_DEVICE;
	default:
		return DMA_BIDIRECTIONAL;
	}
}

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
						surface->length, start, write ?
						"writable memory of this process; a shared mapping of a file on a disk is none, read into other memory and write() it" :
						"readable memory of this process");
		}
		done += n;
	}
	return 0;
}

static void pages_unpin(struct pages_pinned *pinned)
{
	unpin_user_pages_dirty_lock(pinned->pages, pinned->count,
				    pinned->direction != DMA_TO_DEVICE);
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
	unsigned long offset = offset_in_page(request->va);
	unsigned long start = request->va - offset;
	struct pages_pinned *pinned;
	u64 count;
	int error;

	if (!request->length || request->va != (unsigned long)request->va)
		return peerdma_fail_pin(surface, -EFAULT,
					"%llu bytes from %#llx are no memory of a process",
					request->length, request->va);
	count = DIV_ROUND_UP_ULL(offset + request->length, PAGE_SIZE);
	if (count > MAX_PAGES)
		return peerdma_fail_pin(surface, -EINVAL,
					"%llu bytes are too many at once: pin them in parts of at most %llu",
					request->length, (u64)(MAX_PAGES - 1) * PAGE_SIZE);
	pinned = kzalloc(sizeof(*pinned), GFP_KERNEL_ACCOUNT);
	if (!pinned)
		return -ENOMEM;
	pinned->count = count;
	pinned->direction = pages_direction(request->access);
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
	error = sg_alloc_table_from_pages(&pinned->table, pinned->pages, count, offset,
					  request->length, PEERDMA_GFP_ARRAY);
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

	pages_unpin(pinned);
	pages_uncharge(pinned);
	kvfree(pinned->pages);
}

static int pages_map(struct peerdma_surface *surface)
{
	struct device *dev = peerdma_surface_device(surface);
	struct pages_pinned *pinned = surface->private;
	struct scatterlist *sg;
	int error, n;

	error = dma_map_sgtable(dev, &pinned->table, pinned->direction, ATTRIBUTES);
	if (error)
		return peerdma_fail_pin(surface, error, "%llu bytes cannot be mapped for the board",
					surface->length);
	error = peerdma_surface_add_table(surface, &pinned->table);
	if (error) {
		dma_unmap_sgtable(dev, &pinned->table, pinned->direction, ATTRIBUTES);
		return error;
	}
	for_each_sgtable_dma_sg(&pinned->table, sg, n)
		surface->needs_sync |= dma_need_sync(dev, sg_dma_address(sg));
	return 0;
}

static void pages_unmap(struct peerdma_surface *surface)
{
	struct pages_pinned *pinned = surface->private;

	dma_unmap_sgtable(peerdma_surface_device(surface), &pinned->table, pinned->direction,
			  ATTRIBUTES);
}

/* Only the given range: another job may be writing to the rest of the surface. */
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
