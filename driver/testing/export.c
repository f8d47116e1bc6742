// SPDX-License-Identifier: GPL-2.0-only
/*
 * dma-buf exporters: the simulated GPU's memory, peer to peer and revocable, and host pages.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "../compat.h"
#include "simgpu.h"

static bool no_dmabuf;
module_param(no_dmabuf, bool, 0644);
MODULE_PARM_DESC(no_dmabuf, "the GPU's memory cannot be exported, as with older drivers of NVIDIA's");

static unsigned int unmap_ms;
module_param(unmap_ms, uint, 0644);
MODULE_PARM_DESC(unmap_ms, "what it takes to unmap the GPU's memory, in milliseconds");

/* Read by tests: how often the GPU's memory is mapped for importers now. */
static atomic_t imported;

static int show_imported(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&imported));
}

static const struct kernel_param_ops imported_ops = { .get = show_imported };
module_param_cb(imported, &imported_ops, NULL, 0444);

/**
 * struct exported - memory behind a dma-buf
 * @alloc: of the GPU; NULL for host pages
 * @pages: of the host
 * @count: pages of the GPU or of the host
 * @mappings: importers that have it mapped
 * @unmapped: woken when @mappings falls
 * @revoked: nobody may map it any more; under the reservation lock
 * @fence: of a write that is said to be under way; under the reservation lock
 */
struct exported {
	struct simgpu_alloc *alloc;
	struct page **pages;
	u32 count;
	atomic_t mappings;
	wait_queue_head_t unmapped;
	bool revoked;
	struct dma_fence *fence;
};

static int peer_attach(struct dma_buf *buffer, struct dma_buf_attachment *attachment)
{
	return attachment->peer2peer ? 0 : -EOPNOTSUPP;
}

static int peer_pin(struct dma_buf_attachment *attachment)
{
	struct exported *exported = attachment->dmabuf->priv;

	dma_resv_assert_held(attachment->dmabuf->resv);
	return exported->revoked ? -ENODEV : 0;
}

static void peer_unpin(struct dma_buf_attachment *attachment)
{
	dma_resv_assert_held(attachment->dmabuf->resv);
}

static struct sg_table *peer_map(struct dma_buf_attachment *attachment,
				 enum dma_data_direction direction)
{
	struct exported *exported = attachment->dmabuf->priv;
	struct sg_table *table;

	dma_resv_assert_held(attachment->dmabuf->resv);
	if (exported->revoked)
		return ERR_PTR(-ENODEV);
	table = simgpu_map(attachment->dev, exported->alloc, direction);
	if (IS_ERR(table))
		return table;
	atomic_inc(&exported->mappings);
	atomic_inc(&imported);
	return table;
}

static void unmapped(struct exported *exported)
{
	atomic_dec(&exported->mappings);
	wake_up_all(&exported->unmapped);
}

static void peer_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
		       enum dma_data_direction direction)
{
	struct exported *exported = attachment->dmabuf->priv;

	dma_resv_assert_held(attachment->dmabuf->resv);
	if (unmap_ms)
		msleep(unmap_ms);
	simgpu_unmap(attachment->dev, table, direction);
	unmapped(exported);
	atomic_dec(&imported);
}

static struct sg_table *host_map(struct dma_buf_attachment *attachment,
				 enum dma_data_direction direction)
{
	struct exported *exported = attachment->dmabuf->priv;
	struct sg_table *table = kzalloc(sizeof(*table), GFP_KERNEL);
	int error;

	if (!table)
		return ERR_PTR(-ENOMEM);
	error = sg_alloc_table_from_pages(table, exported->pages, exported->count, 0,
					  (u64)exported->count * PAGE_SIZE, GFP_KERNEL);
	if (!error) {
		error = dma_map_sgtable(attachment->dev, table, direction, SIMGPU_ATTRIBUTES);
		if (error)
			sg_free_table(table);
	}
	if (error) {
		kfree(table);
		return ERR_PTR(error);
	}
	atomic_inc(&exported->mappings);
	return table;
}

static void host_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
		       enum dma_data_direction direction)
{
	dma_unmap_sgtable(attachment->dev, table, direction, SIMGPU_ATTRIBUTES);
	sg_free_table(table);
	kfree(table);
	unmapped(attachment->dmabuf->priv);
}

static const char *fence_name(struct dma_fence *fence)
{
	return "simgpu";
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_name,
	.get_timeline_name = fence_name,
};

static DEFINE_SPINLOCK(fence_lock);

static int begin_write(struct dma_buf *buffer, struct exported *exported)
{
	exported->fence = kzalloc(sizeof(*exported->fence), GFP_KERNEL);
	if (!exported->fence)
		return -ENOMEM;
	dma_fence_init(exported->fence, &fence_ops, &fence_lock, dma_fence_context_alloc(1), 1);
	return compat_dma_resv_add_write(buffer->resv, exported->fence);
}

static void end_write(struct exported *exported)
{
	if (!exported->fence)
		return;
	dma_fence_signal(exported->fence);
	dma_fence_put(exported->fence);
	exported->fence = NULL;
}

static void free_exported(struct exported *exported)
{
	u32 n;

	WARN(atomic_read(&exported->mappings), "released while it is mapped\n");
	end_write(exported);
	for (n = 0; exported->pages && n < exported->count; n++)
		if (exported->pages[n])
			__free_page(exported->pages[n]);
	kvfree(exported->pages);
	if (exported->alloc)
		simgpu_put(exported->alloc);
	kfree(exported);
}

static void release(struct dma_buf *buffer)
{
	free_exported(buffer->priv);
}

static int host_mmap(struct dma_buf *buffer, struct vm_area_struct *vma)
{
	struct exported *exported = buffer->priv;
	unsigned long count = exported->count;

	return vm_map_pages(vma, exported->pages, count);
}

static const struct dma_buf_ops peer_ops = {
	.attach = peer_attach,
	.pin = peer_pin,
	.unpin = peer_unpin,
	.map_dma_buf = peer_map,
	.unmap_dma_buf = peer_unmap,
	.release = release,
};

static const struct dma_buf_ops host_ops = {
	.map_dma_buf = host_map,
	.unmap_dma_buf = host_unmap,
	.mmap = host_mmap,
	.release = release,
};

static int fill(struct exported *exported, const struct simgpu_export *export)
{
	u32 n;

	if (export->kind == SIMGPU_PEER) {
		if (no_dmabuf)
			return -EOPNOTSUPP;
		exported->alloc = simgpu_find(export->va, 1);
		if (!exported->alloc)
			return -EINVAL;
		exported->count = exported->alloc->count;
		return 0;
	}
	if (export->kind != SIMGPU_HOST || !export->size || export->size > SZ_256M)
		return -EINVAL;
	exported->count = DIV_ROUND_UP_ULL(export->size, PAGE_SIZE);
	exported->pages = kvcalloc(exported->count, sizeof(*exported->pages), GFP_KERNEL);
	if (!exported->pages)
		return -ENOMEM;
	for (n = 0; n < exported->count; n++) {
		exported->pages[n] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!exported->pages[n])
			return -ENOMEM;
	}
	return 0;
}

int simgpu_export(struct simgpu_export *export)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct exported *exported = kzalloc(sizeof(*exported), GFP_KERNEL);
	struct dma_buf *buffer;
	int error;

	if (!exported)
		return -ENOMEM;
	init_waitqueue_head(&exported->unmapped);
	error = fill(exported, export);
	if (error) {
		free_exported(exported);
		return error;
	}
	info.ops = exported->alloc ? &peer_ops : &host_ops;
	info.size = exported->alloc ? exported->alloc->size : (u64)exported->count * PAGE_SIZE;
	info.flags = O_RDWR;
	info.priv = exported;
	buffer = dma_buf_export(&info);
	if (IS_ERR(buffer)) {
		free_exported(exported);
		return PTR_ERR(buffer);
	}
	export->fd = dma_buf_fd(buffer, O_CLOEXEC);
	if (export->fd < 0) {
		dma_buf_put(buffer);
		return export->fd;
	}
	return 0;
}

int simgpu_revoke(struct simgpu_revoke *revoke)
{
	struct dma_buf *buffer = dma_buf_get(revoke->fd);
	struct exported *exported;
	int error = 0;

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	if (buffer->ops != &peer_ops) {
		dma_buf_put(buffer);
		return -EINVAL;
	}
	exported = buffer->priv;
	dma_resv_lock(buffer->resv, NULL);
	exported->revoked = true;
	compat_dma_buf_invalidate(buffer);
	dma_resv_unlock(buffer->resv);
	wait_event_timeout(exported->unmapped, !atomic_read(&exported->mappings),
			   msecs_to_jiffies(revoke->timeout_ms));
	revoke->mappings = atomic_read(&exported->mappings);
	if (revoke->flags & SIMGPU_MOVE) {
		dma_resv_lock(buffer->resv, NULL);
		error = revoke->mappings ? -EBUSY : simgpu_move(exported->alloc);
		exported->revoked = error;
		dma_resv_unlock(buffer->resv);
	}
	dma_buf_put(buffer);
	return error;
}

int simgpu_busy(const struct simgpu_busy *busy)
{
	struct dma_buf *buffer = dma_buf_get(busy->fd);
	struct exported *exported;
	int error = 0;

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	if (buffer->ops != &peer_ops && buffer->ops != &host_ops) {
		dma_buf_put(buffer);
		return -EINVAL;
	}
	exported = buffer->priv;
	dma_resv_lock(buffer->resv, NULL);
	end_write(exported);
	if (busy->busy)
		error = begin_write(buffer, exported);
	dma_resv_unlock(buffer->resv);
	dma_buf_put(buffer);
	return error;
}

COMPAT_IMPORT_DMA_BUF;
