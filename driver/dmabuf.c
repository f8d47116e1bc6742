// SPDX-License-Identifier: GPL-2.0
/*
 * dma-bufs: memory of any device whose driver exports it.
 *
 * Attached dynamically, with peer-to-peer allowed, so that the exporter does not move it to host
 * memory for us, then pinned and mapped: the engine cannot wait for memory to come back. Mapping
 * and unmapping with the reservation lock held is right on every kernel for a dynamic importer.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "core.h"

/* For what others still do with a dma-buf, in jiffies. */
#define WAIT_TIMEOUT		(10 * HZ)

/**
 * struct imported - an imported dma-buf
 * @buffer: the dma-buf
 * @attachment: while it is mapped
 * @table: while it is mapped
 */
struct imported {
	struct dma_buf *buffer;
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
};

/* The exporter takes the memory back. Called with the reservation lock held. */
static void invalidated(struct dma_buf_attachment *attachment)
{
	peerdma_surface_revoke(attachment->importer_priv);
}

static const struct dma_buf_attach_ops attach_ops = {
	.allow_peer2peer = true,
	.COMPAT_INVALIDATE_MAPPINGS = invalidated,
};

static int dmabuf_get(struct peerdma_surface *surface, const struct peerdma_pin_request *request)
{
	struct imported *imported;
	struct dma_buf *buffer;

	buffer = dma_buf_get(request->fd);
	if (IS_ERR(buffer))
		return peerdma_explain(surface, PTR_ERR(buffer),
				       "file descriptor %d is not a dma-buf", request->fd);
	if (request->offset >= buffer->size ||
	    request->length > buffer->size - request->offset) {
		peerdma_explain(surface, -EINVAL,
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
	imported->buffer = buffer;
	surface->private = imported;
	surface->skip = request->offset;
	surface->length = request->length ?: buffer->size - request->offset;
	return 0;
}

static void dmabuf_put(struct peerdma_surface *surface)
{
	struct imported *imported = surface->private;

	dma_buf_put(imported->buffer);
}

/* Exporters say -ENODEV of their own device, and -ENOTSUPP, which is not for programs. */
static int normalized(int error)
{
	return error == -ENODEV || error == -ENOTSUPP ? -EOPNOTSUPP : error;
}

static int add_segments(struct peerdma_surface *surface, struct sg_table *table)
{
	struct scatterlist *sg;
	int error, n;

	error = peerdma_segments_begin(surface, table->nents);
	if (error)
		return error;
	/* The addresses, and nothing else: there may be no pages behind them. */
	for_each_sgtable_dma_sg(table, sg, n)
		peerdma_segments_add(surface, sg_dma_address(sg), sg_dma_len(sg));
	return 0;
}

static int dmabuf_map(struct peerdma_surface *surface)
{
	struct imported *imported = surface->private;
	struct dma_buf *buffer = imported->buffer;
	int error;

	imported->attachment = dma_buf_dynamic_attach(buffer, peerdma_surface_device(surface),
						      &attach_ops, surface);
	if (IS_ERR(imported->attachment))
		return peerdma_explain(surface, normalized(PTR_ERR(imported->attachment)),
				       "the dma-buf of %s cannot be attached to this board: it may have to be behind the same PCIe switch or an allowed host bridge",
				       buffer->exp_name);
	dma_resv_lock(buffer->resv, NULL);
	error = dma_buf_pin(imported->attachment);
	if (error)
		goto err_unlock;
	imported->table = dma_buf_map_attachment(imported->attachment, DMA_BIDIRECTIONAL);
	if (IS_ERR(imported->table)) {
		error = PTR_ERR(imported->table);
		goto err_unpin;
	}
	error = add_segments(surface, imported->table);
	if (error)
		goto err_unmap;
	dma_resv_unlock(buffer->resv);
	return 0;

err_unmap:
	dma_buf_unmap_attachment(imported->attachment, imported->table, DMA_BIDIRECTIONAL);
err_unpin:
	dma_buf_unpin(imported->attachment);
err_unlock:
	dma_resv_unlock(buffer->resv);
	dma_buf_detach(buffer, imported->attachment);
	return peerdma_explain(surface, normalized(error),
			       "the dma-buf of %s cannot be pinned and mapped for this board: is peer-to-peer possible between them, and its memory large enough a BAR?",
			       buffer->exp_name);
}

static void dmabuf_unmap(struct peerdma_surface *surface)
{
	struct imported *imported = surface->private;

	dma_resv_lock(imported->buffer->resv, NULL);
	dma_buf_unmap_attachment(imported->attachment, imported->table, DMA_BIDIRECTIONAL);
	dma_buf_unpin(imported->attachment);
	dma_resv_unlock(imported->buffer->resv);
	dma_buf_detach(imported->buffer, imported->attachment);
}

/**
 * peerdma_dmabuf_wait() - waits for what others still do with a dma-buf
 * @surface: of any provider; nothing happens unless it is a dma-buf
 * @write: it is about to be written to
 *
 * May sleep.
 *
 * Return: 0, -EINTR on a signal, -ETIMEDOUT.
 */
int peerdma_dmabuf_wait(struct peerdma_surface *surface, bool write)
{
	struct imported *imported = surface->private;
	long left;

	if (surface->provider != &peerdma_dmabuf)
		return 0;
	left = compat_dma_resv_wait(imported->buffer->resv, write, WAIT_TIMEOUT);
	if (left < 0)
		return -EINTR;
	return left ? 0 : -ETIMEDOUT;
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
