// SPDX-License-Identifier: GPL-2.0-only
/*
 * Provider: dma-bufs, memory of any device whose driver exports it.
 *
 * Attached dynamically and with peer-to-peer allowed, so that the exporter does not move the
 * buffer to host memory for us; then pinned and mapped, because the board cannot wait for memory
 * to come back. Mapping and unmapping under the reservation lock is correct for a dynamic
 * importer on every kernel.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>

#include "surface.h"

/**
 * struct dmabuf_imported - an imported dma-buf
 * @attachment: valid while it is mapped
 * @table: valid while it is mapped
 */
struct dmabuf_imported {
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
};

/* The exporter takes the memory back. Called with the reservation lock held. */
static void dmabuf_invalidated(struct dma_buf_attachment *attachment)
{
	peerdma_revoke(attachment->importer_priv);
}

static const struct dma_buf_attach_ops attach_ops = {
	.allow_peer2peer = true,
	.COMPAT_INVALIDATE_MAPPINGS = dmabuf_invalidated,
};

static int dmabuf_get(struct peerdma_surface *surface, const struct peerdma_pin_request *request)
{
	struct dmabuf_imported *imported;
	struct dma_buf *buffer;

	buffer = dma_buf_get(request->fd);
	if (IS_ERR(buffer))
		return peerdma_fail_pin(surface, PTR_ERR(buffer),
					"file descriptor %d is not a dma-buf", request->fd);
	if (request->offset >= buffer->size ||
	    request->length > buffer->size - request->offset) {
		peerdma_fail_pin(surface, -EINVAL,
				 "%llu bytes from %llu on are beyond the dma-buf, which has %zu",
				 request->length, request->offset, buffer->size);
		dma_buf_put(buffer);
		return -EINVAL;
	}
	imported = kzalloc(sizeof(*imported), GFP_KERNEL_ACCOUNT);
	if (!imported) {
		dma_buf_put(buffer);
		return -ENOMEM;
	}
	surface->buffer = buffer;
	surface->private = imported;
	surface->skip = request->offset;
	surface->length = request->length ?: buffer->size - request->offset;
	/* It is pinned as a whole. */
	surface->footprint = buffer->size;
	return 0;
}

static void dmabuf_put(struct peerdma_surface *surface)
{
	dma_buf_put(surface->buffer);
}

/* Exporters say -ENODEV of their own device; to a program it would mean that the board is gone. */
static int dmabuf_errno(int error)
{
	return error == -ENODEV ? -EOPNOTSUPP : peerdma_provider_errno(error);
}

/*
 * Offsets count from the table's beginning: it has to be of the whole buffer, in whole pages.
 * Says why not.
 */
static int dmabuf_check_table(struct peerdma_surface *surface, struct sg_table *table)
{
	struct dma_buf *buffer = surface->buffer;
	struct scatterlist *sg;
	u64 total = 0;
	int n;

	for_each_sgtable_dma_sg(table, sg, n) {
		if (offset_in_page(total) || offset_in_page(sg_dma_address(sg)))
			return peerdma_fail_pin(surface, -EOPNOTSUPP,
						"%s gave addresses of its dma-buf that are not those of whole pages",
						buffer->exp_name);
		total += sg_dma_len(sg);
	}
	if (total < buffer->size || total > PAGE_ALIGN(buffer->size))
		return peerdma_fail_pin(surface, -EOPNOTSUPP,
					"%s mapped %llu bytes of its dma-buf, which has %zu",
					buffer->exp_name, total, buffer->size);
	return 0;
}

static int dmabuf_map(struct peerdma_surface *surface)
{
	enum dma_data_direction direction = peerdma_direction(surface->access);
	struct dmabuf_imported *imported = surface->private;
	struct dma_buf *buffer = surface->buffer;
	bool said = false;
	int error;

	imported->attachment = dma_buf_dynamic_attach(buffer, peerdma_surface_device(surface),
						      &attach_ops, surface);
	if (IS_ERR(imported->attachment))
		return peerdma_fail_pin(surface, dmabuf_errno(PTR_ERR(imported->attachment)),
					"the dma-buf of %s cannot be attached to this board: it may have to be behind the same PCIe switch or an allowed host bridge",
					buffer->exp_name);
	dma_resv_lock(buffer->resv, NULL);
	error = dma_buf_pin(imported->attachment);
	if (error)
		goto err_unlock;
	imported->table = dma_buf_map_attachment(imported->attachment, direction);
	if (IS_ERR(imported->table)) {
		error = PTR_ERR(imported->table);
		goto err_unpin;
	}
	error = dmabuf_check_table(surface, imported->table);
	said = error;
	if (!error)
		error = peerdma_surface_add_table(surface, imported->table);
	if (error)
		goto err_unmap;
	dma_resv_unlock(buffer->resv);
	return 0;

err_unmap:
	dma_buf_unmap_attachment(imported->attachment, imported->table, direction);
err_unpin:
	dma_buf_unpin(imported->attachment);
err_unlock:
	dma_resv_unlock(buffer->resv);
	dma_buf_detach(buffer, imported->attachment);
	if (said)
		return error;
	return peerdma_fail_pin(surface, dmabuf_errno(error),
				"the dma-buf of %s cannot be pinned and mapped for this board: is peer-to-peer possible between them, and its memory large enough a BAR?",
				buffer->exp_name);
}

static void dmabuf_unmap(struct peerdma_surface *surface)
{
	struct dmabuf_imported *imported = surface->private;

	dma_resv_lock(surface->buffer->resv, NULL);
	dma_buf_unmap_attachment(imported->attachment, imported->table,
				 peerdma_direction(surface->access));
	dma_buf_unpin(imported->attachment);
	dma_resv_unlock(surface->buffer->resv);
	dma_buf_detach(surface->buffer, imported->attachment);
}

const struct peerdma_provider peerdma_dmabuf = {
	.name = "dmabuf",
	.owner = THIS_MODULE,
	.features = PEERDMA_SURFACE_SURVIVES_FREE,
	.get = dmabuf_get,
	.map = dmabuf_map,
	.unmap = dmabuf_unmap,
	.put = dmabuf_put,
};

COMPAT_IMPORT_DMA_BUF;
