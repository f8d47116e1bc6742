// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is taken away: by its provider, by a suspend, or with the board.
 */
#include <linux/delay.h>

#include "core.h"

/* NVIDIA's callback may take a few milliseconds; all users of its GPUs wait meanwhile. */
#define CALLBACK_MS		2
#define CALLBACK_MAX_MS		50

static bool flip(struct peerdma_surface *surface, u32 state)
{
	if (surface->state != PEERDMA_SURFACE_LIVE)
		return false;
	surface->state = state;
	peerdma_fail_surface(surface, true, -ESTALE, PEERDMA_REASON_REVOKED);
	return true;
}

static void queue_revoke(struct peerdma_surface *surface)
{
	/* Without a reference left it is being given back already, mapping and all. */
	if (kref_get_unless_zero(&surface->ref) && !queue_work(peerdma_wq, &surface->revoke))
		peerdma_surface_put(surface);
}

/**
 * peerdma_surface_revoke() - the memory must not be used any longer; it stays pinned for now
 * @surface: may be in any state
 *
 * Any context. Stops its jobs; a work then takes the mapping away, in bounded time. What the
 * provider pinned remains until the program unpins it.
 */
void peerdma_surface_revoke(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&board->lock, flags);
	first = flip(surface, PEERDMA_SURFACE_REVOKED);
	spin_unlock_irqrestore(&board->lock, flags);
	if (first)
		queue_revoke(surface);
}
EXPORT_SYMBOL_GPL(peerdma_surface_revoke);

/* Until no job may touch the surface; for that the board loses the bus if need be. */
static void stop_jobs(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	unsigned long deadline =
		jiffies + min(peerdma_scaled(board, CALLBACK_MS),
			      msecs_to_jiffies(CALLBACK_MAX_MS));

	while (READ_ONCE(surface->inflight)) {
		spin_lock_irq(&board->lock);
		if (board->state == PEERDMA_BOARD_DEAD) {
			peerdma_bury(board);
		} else if (peerdma_poll_stopping(board) && time_after(jiffies, deadline)) {
			board->broken = true;
			pci_clear_master(board->pdev);
			peerdma_force_idle(board);
			queue_work(peerdma_wq, &board->recovery);
		}
		spin_unlock_irq(&board->lock);
		usleep_range(20, 50);
	}
}

/**
 * peerdma_surface_revoke_now() - the memory is taken away when this returns
 * @surface: the caller has a reference
 *
 * For a provider that is called back with a lock that stalls others: takes a few milliseconds at
 * most. On return no DMA is under way, no process has it mapped, and the core has forgotten the
 * mapping: @unmap will not be called.
 *
 * Return: whether the pin is the caller's to forget; false: @put is being called or was.
 */
bool peerdma_surface_revoke_now(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	bool forget;

	spin_lock_irq(&board->lock);
	flip(surface, PEERDMA_SURFACE_REVOKED);
	spin_unlock_irq(&board->lock);
	stop_jobs(surface);
	peerdma_zap_surface(surface);

	/* Waits for an unmapping under way, which waits for nobody. */
	mutex_lock(&surface->teardown);
	surface->mapped = false;
	forget = !test_and_set_bit(0, &surface->released);
	mutex_unlock(&surface->teardown);
	peerdma_surface_unlist(surface);
	return forget;
}
EXPORT_SYMBOL_GPL(peerdma_surface_revoke_now);

static struct peerdma_surface *next_to(struct peerdma_dev *board, u32 state, bool gpu)
{
	struct peerdma_surface *surface;

	list_for_each_entry(surface, &board->surfaces, on_board) {
		/* One that is being freed has lost its last reference. */
		if ((gpu && !surface->provider->gpu) || surface->state != PEERDMA_SURFACE_LIVE ||
		    !kref_get_unless_zero(&surface->ref))
			continue;
		flip(surface, state);
		return surface;
	}
	return NULL;
}

/**
 * peerdma_surfaces_take() - revokes surfaces of a board and takes their mappings away
 * @board: no job runs, and no more are mapped meanwhile. May sleep
 * @state: what they become
 * @gpu: only memory of GPUs
 */
void peerdma_surfaces_take(struct peerdma_dev *board, u32 state, bool gpu)
{
	struct peerdma_surface *surface;

	for (;;) {
		spin_lock_irq(&board->lock);
		surface = next_to(board, state, gpu);
		spin_unlock_irq(&board->lock);
		if (!surface)
			break;
		queue_revoke(surface);
		flush_work(&surface->revoke);
		peerdma_surface_put(surface);
	}
}
