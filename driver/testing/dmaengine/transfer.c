// SPDX-License-Identifier: GPL-2.0-only
/* Scatter-gather transfers, rings, and how both are terminated. */
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>

#include "client.h"

static uint timeout_ms = 60000;
module_param(timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms, "a transfer that takes longer is terminated");

/**
 * struct outcome - what the driver says of a transfer
 * @done: completed by its call back
 * @result: as the driver told
 */
struct outcome {
	struct completion done;
	enum dmaengine_tx_result result;
};

static void ended(void *data, const struct dmaengine_result *result)
{
	struct outcome *outcome = data;

	outcome->result = result->result;
	complete(&outcome->done);
}

/* The driver does not call back after an error: it is only in the status. */
static int await(struct xdma_side *side, dma_cookie_t cookie, struct outcome *outcome)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(READ_ONCE(timeout_ms));

	while (!wait_for_completion_timeout(&outcome->done, 1)) {
		if (dma_async_is_tx_complete(side->chan, cookie, NULL, NULL) == DMA_ERROR)
			return -EIO;
		if (time_after(jiffies, deadline))
			return -ETIMEDOUT;
	}
	return outcome->result == DMA_TRANS_NOERROR ? 0 : -EIO;
}

static int configure(struct xdma_side *side, u64 card)
{
	struct dma_slave_config config = {
		.direction = side->info.dir,
		.src_addr = card,
		.dst_addr = card,
	};

	return dmaengine_slave_config(side->chan, &config);
}

/* Afterwards nothing of the side accesses memory or calls back. */
static void terminate(struct xdma_client *client, struct xdma_side *side)
{
	ktime_t start = ktime_get();

	dmaengine_terminate_sync(side->chan);
	atomic64_set(&client->terminate_ns, ktime_to_ns(ktime_sub(ktime_get(), start)));
}

static int run(struct xdma_client *client, struct xdma_side *side, struct sg_table *table, u64 card)
{
	struct dma_async_tx_descriptor *descriptor;
	struct outcome outcome;
	dma_cookie_t cookie;
	int error;

	error = configure(side, card);
	if (error)
		return error;
	descriptor = dmaengine_prep_slave_sg(side->chan, table->sgl, table->nents, side->info.dir,
					     DMA_PREP_INTERRUPT | DMA_CTRL_ACK);
	if (!descriptor)
		return -ENOMEM;
	init_completion(&outcome.done);
	descriptor->callback_result = ended;
	descriptor->callback_param = &outcome;
	cookie = dmaengine_submit(descriptor);
	error = dma_submit_error(cookie);
	if (!error) {
		dma_async_issue_pending(side->chan);
		error = await(side, cookie, &outcome);
	}
	if (error)
		terminate(client, side);
	return error;
}

static int map_and_run(struct xdma_client *client, struct xdma_side *side, struct sg_table *table,
		       u64 card)
{
	bool to_card = side->info.dir == DMA_MEM_TO_DEV;
	enum dma_data_direction direction = to_card ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
	struct device *dev = &client->pdev->dev;
	int error;

	error = mutex_lock_interruptible(&side->lock);
	if (error)
		return error;
	error = side->ring ? -EBUSY : dma_map_sgtable(dev, table, direction, 0);
	if (!error) {
		error = run(client, side, table, card);
		dma_unmap_sgtable(dev, table, direction, 0);
	}
	mutex_unlock(&side->lock);
	return error;
}

/**
 * xdma_transfer() - moves memory of the calling process to the card, or the other way
 * @client: the board
 * @side: direction
 * @iter: memory
 * @card: address
 *
 * May sleep. A transfer that fails or takes too long has been terminated.
 *
 * Return: bytes, or -EIO, -ETIMEDOUT, -EBUSY or another negative error.
 */
ssize_t xdma_transfer(struct xdma_client *client, struct xdma_side *side, struct iov_iter *iter,
		      u64 card)
{
	unsigned int most = iov_iter_npages(iter, INT_MAX), n;
	size_t length = iov_iter_count(iter);
	struct sg_table table = {};
	struct scatterlist *sg;
	ssize_t taken, result;
	struct page *page;

	if (!user_backed_iter(iter) || !length)
		return -EINVAL;
	table.sgl = kvmalloc_array(most, sizeof(*table.sgl), GFP_KERNEL);
	if (!table.sgl)
		return -ENOMEM;
	sg_init_table(table.sgl, most);
	taken = extract_iter_to_sg(iter, length, &table, most, 0);
	result = taken < 0 ? taken : -EFAULT;
	table.orig_nents = table.nents;
	if (taken == length) {
		sg_mark_end(&table.sgl[table.nents - 1]);
		result = map_and_run(client, side, &table, card) ?: length;
	}
	for_each_sgtable_sg(&table, sg, n) {
		page = sg_page(sg);
		unpin_user_pages_dirty_lock(&page, 1, side->info.dir == DMA_DEV_TO_MEM);
	}
	kvfree(table.sgl);
	return result;
}

static void period_ended(void *data)
{
	struct xdma_client *client = data;

	atomic64_inc(&client->callbacks);
}

static int begin_ring(struct xdma_client *client, struct xdma_side *side,
		      const struct xdma_client_ring *ring)
{
	struct dma_async_tx_descriptor *descriptor;
	int error;

	error = configure(side, ring->card);
	if (error)
		return error;
	descriptor = dmaengine_prep_dma_cyclic(side->chan, client->memory_bus,
					       ring->periods * ring->period, ring->period,
					       side->info.dir, DMA_PREP_INTERRUPT);
	if (!descriptor)
		return -EINVAL;
	atomic64_set(&client->callbacks, 0);
	descriptor->callback = period_ended;
	descriptor->callback_param = client;
	client->ring_cookie = dmaengine_submit(descriptor);
	error = dma_submit_error(client->ring_cookie);
	if (error)
		return error;
	dma_async_issue_pending(side->chan);
	return 0;
}

/**
 * xdma_ring_start() - begins a cyclic transfer
 * @client: the board
 * @file: that the ring ends with
 * @ring: what to do
 *
 * May sleep.
 *
 * Return: 0, -EBUSY if there is a ring, -EINVAL, or another negative error.
 */
int xdma_ring_start(struct xdma_client *client, struct file *file,
		    const struct xdma_client_ring *ring)
{
	struct xdma_side *side = &client->sides[!!ring->to_card];
	int error = -EBUSY;

	if (ring->reserved || ring->to_card > 1 || !ring->periods || !ring->period ||
	    (u64)ring->periods * ring->period > XDMA_CLIENT_MEMORY)
		return -EINVAL;
	mutex_lock(&client->lock);
	mutex_lock(&side->lock);
	if (!client->ring_owner)
		error = begin_ring(client, side, ring);
	if (!error) {
		client->ring_owner = file;
		client->ring_side = side;
		side->ring = true;
	}
	mutex_unlock(&side->lock);
	mutex_unlock(&client->lock);
	return error;
}

/**
 * xdma_ring_state() - how the ring is, and how long the last termination took
 * @client: the board
 * @state: result
 *
 * May sleep.
 *
 * Return: 0, or -EIO if the ring ended with an error.
 */
int xdma_ring_state(struct xdma_client *client, struct xdma_client_state *state)
{
	struct dma_tx_state tx = {};
	int error = 0;

	mutex_lock(&client->lock);
	if (client->ring_owner && dmaengine_tx_status(client->ring_side->chan, client->ring_cookie,
						      &tx) == DMA_ERROR)
		error = -EIO;
	mutex_unlock(&client->lock);
	state->callbacks = atomic64_read(&client->callbacks);
	state->terminate_ns = atomic64_read(&client->terminate_ns);
	state->residue = tx.residue;
	return error;
}

/**
 * xdma_ring_stop() - terminates the ring
 * @client: the board
 * @file: that started it
 *
 * May sleep.
 *
 * Return: 0, or -ENOENT if the file has no ring.
 */
int xdma_ring_stop(struct xdma_client *client, struct file *file)
{
	struct xdma_side *side;
	int error = -ENOENT;

	mutex_lock(&client->lock);
	if (client->ring_owner == file) {
		side = client->ring_side;
		mutex_lock(&side->lock);
		terminate(client, side);
		side->ring = false;
		mutex_unlock(&side->lock);
		client->ring_owner = NULL;
		error = 0;
	}
	mutex_unlock(&client->lock);
	return error;
}
