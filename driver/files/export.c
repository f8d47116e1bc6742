// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exporter: the mailbox page and those of doorbells as dma-bufs, for GPUs and other devices.
 *
 * There is at most one dma-buf of a page at a time; who asks again gets it again. It ends with what
 * it shows: a doorbell's with its queue, all with the board. Importers are told then, and map it no
 * more. A queue whose page somebody still has mapped is not handed out again. Around a reset or a
 * suspend importers are told as well, and may map the mailbox page again afterwards.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>

#include "files.h"

/* There are no pages behind it. */
#define ATTRIBUTES	DMA_ATTR_SKIP_CPU_SYNC
/* Importers that were told get this long to unmap it; after that they are on their own. */
#define PATIENCE_MS	1000

/**
 * struct peerdma_exported - a page of the board's registers behind a dma-buf
 * @ref: one is the dma-buf's
 * @board: holds a reference
 * @hwq: the queue whose doorbell it is; NULL: it is the mailbox
 * @physical: its address
 * @resv: reservation object of the dma-buf
 * @buffer: the dma-buf; NULL when it is released; under @resv
 * @over: it cannot be mapped any more; under @resv
 */
struct peerdma_exported {
	struct kref ref;
	struct peerdma_dev *board;
	struct peerdma_hw_queue *hwq;
	phys_addr_t physical;
	struct dma_resv resv;
	struct dma_buf *buffer;
	bool over;
};

/* So that two who ask at once get the same. */
static DEFINE_MUTEX(creating);

static void export_free(struct kref *ref)
{
	struct peerdma_exported *exported = container_of(ref, struct peerdma_exported, ref);

	dma_resv_fini(&exported->resv);
	peerdma_board_put(exported->board);
	kfree(exported);
}

static void export_put(struct peerdma_exported *exported)
{
	kref_put(&exported->ref, export_free);
}

/* Where the board notes what it exports of this page, under its lock. */
static struct peerdma_exported **export_place(struct peerdma_dev *board,
					      struct peerdma_hw_queue *hwq)
{
	return hwq ? &hwq->exported : &board->exported;
}

static struct peerdma_hw_queue *export_hwq(const struct peerdma_job *queue)
{
	return queue ? queue->launch_queue.hwq : NULL;
}

/* Whether it can be handed out for @queue, or NULL. Called with the board's lock held. */
static bool export_is_live(const struct peerdma_exported *exported,
			   const struct peerdma_job *queue)
{
	const struct peerdma_hw_queue *hwq = exported->hwq;

	return exported->board->state == PEERDMA_BOARD_LIVE &&
	       (!hwq || (hwq->state == ENGINE_RUNNING && hwq->job == queue));
}

/* Counts an importer in, or not if there is nothing to map any more. */
static bool export_begin(struct peerdma_exported *exported)
{
	struct peerdma_dev *board = exported->board;
	struct peerdma_hw_queue *hwq = exported->hwq;
	bool live;

	spin_lock_irq(&board->lock);
	/* Until it is over, the queue that runs is its own. */
	live = !exported->over && board->state == PEERDMA_BOARD_LIVE &&
	       (!hwq || hwq->state == ENGINE_RUNNING);
	board->imports += live;
	if (hwq)
		hwq->imports += live;
	spin_unlock_irq(&board->lock);
	return live;
}

static void export_end(struct peerdma_exported *exported)
{
	struct peerdma_dev *board = exported->board;

	spin_lock_irq(&board->lock);
	board->imports--;
	if (exported->hwq)
		exported->hwq->imports--;
	spin_unlock_irq(&board->lock);
	wake_up_all(&board->idle);
}

/* Only for who can do without pages and can be told, and where the kernel allows it. */
static int export_attach(struct dma_buf *buffer, struct dma_buf_attachment *attachment)
{
	struct peerdma_exported *exported = buffer->priv;
	struct pci_dev *pdev = exported->board->pdev;

	if (!attachment->peer2peer || !dev_is_pci(attachment->dev) ||
	    attachment->dev == &pdev->dev)
		return -EOPNOTSUPP;
	return peerdma_placement_allows(pdev, attachment->dev) ? 0 : -EOPNOTSUPP;
}

/* It never moves. Who pins it is told of its end all the same. */
static int export_pin(struct dma_buf_attachment *attachment)
{
	return 0;
}

static void export_unpin(struct dma_buf_attachment *attachment)
{
}

static struct sg_table *export_map(struct dma_buf_attachment *attachment,
				   enum dma_data_direction direction)
{
	struct peerdma_exported *exported = attachment->dmabuf->priv;
	struct sg_table *table;
	dma_addr_t address;

	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	if (sg_alloc_table(table, 1, GFP_KERNEL)) {
		kfree(table);
		return ERR_PTR(-ENOMEM);
	}
	if (!export_begin(exported)) {
		address = DMA_MAPPING_ERROR;
	} else {
		address = dma_map_resource(attachment->dev, exported->physical, PAGE_SIZE,
					   direction, ATTRIBUTES);
		if (dma_mapping_error(attachment->dev, address))
			export_end(exported);
	}
	if (dma_mapping_error(attachment->dev, address)) {
		sg_free_table(table);
		kfree(table);
		return ERR_PTR(-ENODEV);
	}
	/* The length is that of a page; there is none. */
	sg_set_page(table->sgl, NULL, PAGE_SIZE, 0);
	sg_dma_address(table->sgl) = address;
	sg_dma_len(table->sgl) = PAGE_SIZE;
	return table;
}

static void export_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			 enum dma_data_direction direction)
{
	dma_unmap_resource(attachment->dev, sg_dma_address(table->sgl), PAGE_SIZE, direction,
			   ATTRIBUTES);
	sg_free_table(table);
	kfree(table);
	export_end(attachment->dmabuf->priv);
}

/* The last file descriptor was closed, and no importer is left. */
static void export_release(struct dma_buf *buffer)
{
	struct peerdma_exported *exported = buffer->priv;
	struct peerdma_dev *board = exported->board;
	struct peerdma_exported **place = export_place(board, exported->hwq);

	dma_resv_lock(&exported->resv, NULL);
	exported->buffer = NULL;
	dma_resv_unlock(&exported->resv);
	spin_lock_irq(&board->lock);
	if (*place == exported)
		*place = NULL;
	spin_unlock_irq(&board->lock);
	export_put(exported);
}

static const struct dma_buf_ops ops = {
	.attach = export_attach,
	.pin = export_pin,
	.unpin = export_unpin,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_release,
};

/* The dma-buf that there is of a page, with a reference, or NULL. */
static struct dma_buf *export_find(struct peerdma_dev *board, const struct peerdma_job *queue)
{
	struct dma_buf *buffer = NULL;
	struct peerdma_exported *exported;

	spin_lock_irq(&board->lock);
	exported = *export_place(board, export_hwq(queue));
	if (exported && export_is_live(exported, queue))
		kref_get(&exported->ref);
	else
		exported = NULL;
	spin_unlock_irq(&board->lock);
	if (!exported)
		return NULL;
	dma_resv_lock(&exported->resv, NULL);
	/* Its last reference may be gone already. */
	if (exported->buffer && compat_get_file_active(&exported->buffer->file))
		buffer = exported->buffer;
	dma_resv_unlock(&exported->resv);
	export_put(exported);
	return buffer;
}

static struct dma_buf *export_create(struct peerdma_dev *board, const struct peerdma_job *queue,
				     u64 base)
{
	struct peerdma_exported *exported = kzalloc(sizeof(*exported), GFP_KERNEL_ACCOUNT);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *buffer;
	bool live;

	if (!exported)
		return ERR_PTR(-ENOMEM);
	kref_init(&exported->ref);
	exported->board = peerdma_board_get(board);
	exported->hwq = export_hwq(queue);
	exported->physical = pci_resource_start(board->pdev, PEERDMA_BAR_USER) + base;
	dma_resv_init(&exported->resv);
	info.ops = &ops;
	info.size = PAGE_SIZE;
	info.flags = O_RDWR | O_CLOEXEC;
	info.resv = &exported->resv;
	info.priv = exported;
	buffer = dma_buf_export(&info);
	if (IS_ERR(buffer)) {
		export_put(exported);
		return buffer;
	}
	exported->buffer = buffer;
	spin_lock_irq(&board->lock);
	live = export_is_live(exported, queue);
	if (live)
		*export_place(board, exported->hwq) = exported;
	spin_unlock_irq(&board->lock);
	if (live)
		return buffer;
	dma_buf_put(buffer);
	return ERR_PTR(-ENOENT);
}

/**
 * peerdma_export() - makes a file descriptor of a dma-buf of a page of registers
 * @board: the board
 * @queue: the launch queue whose doorbell it is; NULL: the mailbox
 * @base: where in the user BAR the page is
 *
 * Process context, nothing held.
 *
 * Return: the descriptor, or an errno: -ENOENT if the queue has ended, or the board is not live.
 */
int peerdma_export(struct peerdma_dev *board, const struct peerdma_job *queue, u64 base)
{
	struct dma_buf *buffer;
	int fd;

	mutex_lock(&creating);
	buffer = export_find(board, queue) ?: export_create(board, queue, base);
	mutex_unlock(&creating);
	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	fd = dma_buf_fd(buffer, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(buffer);
	return fd;
}

/* Tells the importers of a page that it is going away, for good or for now. */
static void export_tell(struct peerdma_dev *board, struct peerdma_hw_queue *hwq, bool over)
{
	struct peerdma_exported **place = export_place(board, hwq);
	struct peerdma_exported *exported;

	spin_lock_irq(&board->lock);
	exported = *place;
	if (exported)
		kref_get(&exported->ref);
	if (over)
		*place = NULL;
	spin_unlock_irq(&board->lock);
	if (!exported)
		return;
	dma_resv_lock(&exported->resv, NULL);
	exported->over |= over;
	if (exported->buffer)
		compat_dma_buf_invalidate(exported->buffer);
	dma_resv_unlock(&exported->resv);
	export_put(exported);
}

/* Waits until importers that were told have unmapped it. */
static void export_wait(struct peerdma_dev *board, const u32 *imports)
{
	if (!wait_event_timeout(board->idle, !READ_ONCE(*imports), msecs_to_jiffies(PATIENCE_MS)))
		dev_warn(&board->pdev->dev, "a device that was told to unmap a page of registers has not done so\n");
}

/**
 * peerdma_export_end_doorbell() - ends the dma-buf of a doorbell's page
 * @hwq: not running. May sleep, for a while: somebody may have it mapped for longer
 */
void peerdma_export_end_doorbell(struct peerdma_hw_queue *hwq)
{
	export_tell(hwq->board, hwq, true);
	export_wait(hwq->board, &hwq->imports);
}

/**
 * peerdma_export_revoke() - has all importers unmap the board's pages
 * @board: not live. May sleep, for a while
 */
void peerdma_export_revoke(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;

	export_tell(board, NULL, false);
	for_each_hw_queue(hwq, board)
		export_tell(board, hwq, false);
	export_wait(board, &board->imports);
}
