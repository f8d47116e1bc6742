// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is taken away: by its provider, by a suspend, or with the board.
 */
#include <linux/delay.h>

#include "surface.h"

/* NVIDIA's callback may take a few milliseconds; all users of its GPUs wait meanwhile. */
#define CALLBACK_MS		2
#define CALLBACK_MAX_MS		50

static bool revoke_flip(struct peerdma_surface *surface, u32 state)
{
	if (surface->state != PEERDMA_SURFACE_LIVE)
		return false;
	surface->state = state;
	peerdma_stop_surface(surface, true, -ESTALE, PEERDMA_REASON_REVOKED);
	return true;
}

static void revoke_queue(struct peerdma_surface *surface)
{
	/* Without a reference left, release.c is already giving it back, its mapping included. */
	if (kref_get_unless_zero(&surface->ref) &&
	    !queue_work(peerdma_surface_wq, &surface->revoke))
		peerdma_surface_put(surface);
}

/**
 * peerdma_revoke() - ends the use of memory that stays pinned for now
 * @surface: in any state
 *
 * Any context. Stops its jobs; a work item then removes the mapping, in bounded time. The pin
 * remains until the program unpins it.
 */
void peerdma_revoke(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&board->lock, flags);
	first = revoke_flip(surface, PEERDMA_SURFACE_REVOKED);
	spin_unlock_irqrestore(&board->lock, flags);
	if (first)
		revoke_queue(surface);
}
EXPORT_SYMBOL_GPL(peerdma_revoke);

/* Returns when no job may touch the surface. If need be, the board loses the bus for that. */
static void revoke_stop_jobs(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	unsigned long deadline =
		jiffies + min(peerdma_hw_scaled(board, CALLBACK_MS),
			      msecs_to_jiffies(CALLBACK_MAX_MS));

	while (READ_ONCE(surface->inflight)) {
		spin_lock_irq(&board->lock);
		if (peerdma_stop_step(board, time_after(jiffies, deadline)))
			queue_work(peerdma_wq, &board->recovery);
		spin_unlock_irq(&board->lock);
		usleep_range(20, 50);
	}
}

/**
 * peerdma_revoke_now() - ends the use of memory that goes away when this returns
 * @surface: the caller has a reference
 *
 * For a provider whose callback holds a lock that stalls others: takes a few milliseconds, and up
 * to 50 more if the board does not stop: what it had asked for has to arrive first.
 * On return no DMA is in progress, no process has the memory mapped, and the core has dropped the
 * mapping: unmap() will not be called.
 *
 * Return: whether the pin is dropped as well; false: put() is being called or has been.
 */
bool peerdma_revoke_now(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	bool forget;

	spin_lock_irq(&board->lock);
	revoke_flip(surface, PEERDMA_SURFACE_REVOKED);
	spin_unlock_irq(&board->lock);
	revoke_stop_jobs(surface);
	peerdma_release_zap_surface(surface);

	/* Waits for an unmap() in progress, which itself waits for nobody. */
	mutex_lock(&surface->teardown);
	surface->mapped = false;
	forget = !test_and_set_bit(0, &surface->released);
	mutex_unlock(&surface->teardown);
	peerdma_release_unlist(surface);
	return forget;
}
EXPORT_SYMBOL_GPL(peerdma_revoke_now);

/**
 * peerdma_revoke_work() - removes the mapping of a surface that was revoked
 * @work: a surface's, which holds a reference
 */
void peerdma_revoke_work(struct work_struct *work)
{
	struct peerdma_surface *surface = container_of(work, struct peerdma_surface, revoke);

	/* Bounded: its jobs are being stopped. */
	wait_event(surface->idle, !READ_ONCE(surface->inflight));
	peerdma_release_unmap(surface);
	peerdma_surface_put(surface);
}

static struct peerdma_surface *revoke_next(struct peerdma_dev *board, u32 state, bool gpu)
{
	struct peerdma_surface *surface;

	list_for_each_entry(surface, &board->surfaces, on_board) {
		/* Without a reference left it is already being given back. */
		if ((gpu && !surface->provider->gpu) || surface->state != PEERDMA_SURFACE_LIVE ||
		    !kref_get_unless_zero(&surface->ref))
			continue;
		revoke_flip(surface, state);
		return surface;
	}
	return NULL;
}

/**
 * peerdma_revoke_all() - revokes surfaces of a board and removes their mappings
 * @board: no job runs, and nothing is mapped meanwhile. May sleep
 * @state: enum peerdma_surface_state, their new state
 * @gpu: only memory of GPUs
 */
void peerdma_revoke_all(struct peerdma_dev *board, u32 state, bool gpu)
{
	struct peerdma_surface *surface;

	for (;;) {
		spin_lock_irq(&board->lock);
		surface = revoke_next(board, state, gpu);
		spin_unlock_irq(&board->lock);
		if (!surface)
			break;
		revoke_queue(surface);
		flush_work(&surface->revoke);
		peerdma_surface_put(surface);
	}
}
