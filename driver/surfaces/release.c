// SPDX-License-Identifier: GPL-2.0-only
/*
 * How a surface ends: its mapping is removed once no job may touch it, and its pin is given back
 * once after that; when the program unpins it, closes the file, or the last job has ended.
 *
 * Memory that is taken away, by its provider, by a suspend or with the board, is revoked: its jobs
 * are stopped, and its mapping is removed, but for the program the pin remains.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "surface.h"

/* NVIDIA's callback may take a few milliseconds; all users of its GPUs wait meanwhile. */
#define CALLBACK_MS		2
#define CALLBACK_MAX_MS		50

/**
 * peerdma_release_zap() - removes a range of mmap() offsets from all processes
 * @board: the board
 * @offset: first byte
 * @length: bytes
 *
 * The state that page faults check must have changed: faults that saw the old one are waited for.
 * May sleep.
 */
void peerdma_release_zap(struct peerdma_dev *board, u64 offset, u64 length)
{
	down_write(&board->faults);
	up_write(&board->faults);
	unmap_mapping_range(board->inode->i_mapping, offset, length, 1);
}

/*
 * Removes a surface, which is in no table of handles or not live, from all processes. May sleep;
 * not in an mmu notifier.
 */
static void release_zap_surface(struct peerdma_surface *surface)
{
	if (surface->extents_length)
		peerdma_release_zap(surface->board, surface->map_offset, surface->extents_length);
}

/* Takes a surface whose mapping is gone off its board's list. May sleep. Idempotent. */
static void release_unlist(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;

	spin_lock_irq(&board->lock);
	list_del_init(&surface->on_board);
	board->pinned_bytes -= surface->charged;
	surface->charged = 0;
	spin_unlock_irq(&board->lock);
	wake_up_all(&board->idle);
}

/**
 * peerdma_release_unmap() - removes the mapping
 * @surface: no job may touch it. May sleep
 *
 * Idempotent.
 */
void peerdma_release_unmap(struct peerdma_surface *surface)
{
	release_zap_surface(surface);
	mutex_lock(&surface->teardown);
	if (surface->mapped) {
		peerdma_placement_undo(surface);
		surface->provider->unmap(surface);
	}
	surface->mapped = false;
	mutex_unlock(&surface->teardown);
	release_unlist(surface);
}

/**
 * peerdma_release() - gives mapping and pin back
 * @surface: no job touches it or will. May sleep, nothing held
 *
 * Idempotent.
 */
void peerdma_release(struct peerdma_surface *surface)
{
	peerdma_release_unmap(surface);
	if (!test_and_set_bit(0, &surface->released))
		surface->provider->put(surface);
	peerdma_quota_remove_surface(surface);
}

/* Frees what mmap() reserved. No process has the surface mapped any more. */
static void release_memtype(struct peerdma_surface *surface)
{
	u32 n;

	for (n = 0; surface->memtype && n < surface->extent_count; n++)
		arch_io_free_memtype_wc(surface->extents[n].address, surface->extents[n].length);
	surface->memtype = false;
}

/* After the last reference; the provider may still be called back with the surface. */
static void release_work(struct work_struct *work)
{
	struct peerdma_surface *surface = container_of(work, struct peerdma_surface, release);

	peerdma_release(surface);
	release_memtype(surface);
	peerdma_release_unkeep(surface);
}

static void release_free_work(struct work_struct *work)
{
	struct peerdma_surface *surface = container_of(work, struct peerdma_surface, free);
	struct module *owner = surface->provider->owner;

	kvfree(surface->segments);
	kvfree(surface->extents);
	kfree(surface->private);
	mutex_destroy(&surface->teardown);
	peerdma_quota_close(surface->user);
	peerdma_board_put(surface->board);
	kfree(surface);
	module_put(owner);
}

/* Removes the mapping of a surface that was revoked. The item holds a reference. */
static void release_revoke_work(struct work_struct *work)
{
	struct peerdma_surface *surface = container_of(work, struct peerdma_surface, revoke);

	/* Bounded: its jobs are being stopped. */
	wait_event(surface->idle, !READ_ONCE(surface->inflight));
	peerdma_release_unmap(surface);
	peerdma_surface_put(surface);
}

/**
 * peerdma_release_init() - initializes what a surface needs to end
 * @surface: new
 */
void peerdma_release_init(struct peerdma_surface *surface)
{
	kref_init(&surface->ref);
	refcount_set(&surface->keepers, 1);
	INIT_LIST_HEAD(&surface->queued);
	init_waitqueue_head(&surface->idle);
	mutex_init(&surface->teardown);
	INIT_LIST_HEAD(&surface->on_board);
	INIT_WORK(&surface->revoke, release_revoke_work);
	INIT_WORK(&surface->release, release_work);
	INIT_WORK(&surface->free, release_free_work);
}

/**
 * peerdma_release_keep() - keeps the structure of a surface, but not its memory
 * @surface: it is being pinned
 *
 * For a provider that may be called back with it: until that has happened or cannot happen any
 * more.
 */
void peerdma_release_keep(struct peerdma_surface *surface)
{
	refcount_inc(&surface->keepers);
}
EXPORT_SYMBOL_GPL(peerdma_release_keep);

/**
 * peerdma_release_unkeep() - undoes peerdma_release_keep()
 * @surface: may be freed. Any context
 */
void peerdma_release_unkeep(struct peerdma_surface *surface)
{
	/* In a work item, since the caller's module may be unloaded right after. */
	if (refcount_dec_and_test(&surface->keepers))
		queue_work(peerdma_surface_wq, &surface->free);
}
EXPORT_SYMBOL_GPL(peerdma_release_unkeep);

/* Refuses new jobs and cancels queued ones. */
static void release_drain(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;

	spin_lock_irq(&board->lock);
	surface->draining = true;
	peerdma_stop_surface(surface, false, -ECANCELED, PEERDMA_REASON_UNPINNED);
	spin_unlock_irq(&board->lock);
}

/**
 * peerdma_release_unpin() - invalidates a handle and gives its memory back
 * @file: whose handle
 * @handle: the handle
 *
 * Waits for running jobs. If the process is killed meanwhile, the last job gives the memory back.
 *
 * Return: 0, -EINVAL if there is no such handle, -EINTR.
 */
int peerdma_release_unpin(struct peerdma_file *file, u32 handle)
{
	struct peerdma_surface *surface = xa_load(&file->surfaces, handle);
	int error;

	/* Of threads that race, the one that takes it out of the table goes on. */
	if (!surface || xa_cmpxchg(&file->surfaces, handle, surface, NULL, 0) != surface)
		return -EINVAL;
	release_drain(surface);
	error = wait_event_killable(surface->idle, !READ_ONCE(surface->inflight));
	if (!error)
		peerdma_release(surface);
	peerdma_surface_put(surface);
	return error ? -EINTR : 0;
}

/**
 * peerdma_release_drop() - gives a surface back when its file is closed
 * @surface: taken out of the file's table, whose reference is dropped here
 *
 * Does not wait for jobs. May sleep.
 */
void peerdma_release_drop(struct peerdma_surface *surface)
{
	release_drain(surface);
	/* Here rather than in a work item if possible: this is the process that pinned it. */
	if (!READ_ONCE(surface->inflight))
		peerdma_release(surface);
	peerdma_surface_put(surface);
}

static bool release_flip(struct peerdma_surface *surface, u32 state)
{
	if (surface->state != PEERDMA_SURFACE_LIVE)
		return false;
	surface->state = state;
	peerdma_stop_surface(surface, true, -ESTALE, PEERDMA_REASON_REVOKED);
	return true;
}

static void release_queue_revoke(struct peerdma_surface *surface)
{
	/* Without a reference left it is being given back already, with its mapping. */
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
	first = release_flip(surface, PEERDMA_SURFACE_REVOKED);
	spin_unlock_irqrestore(&board->lock, flags);
	if (first)
		release_queue_revoke(surface);
}
EXPORT_SYMBOL_GPL(peerdma_revoke);

/* Returns when no job may touch the surface. If need be, the board loses the bus for that. */
static void release_stop_jobs(struct peerdma_surface *surface)
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
	release_flip(surface, PEERDMA_SURFACE_REVOKED);
	spin_unlock_irq(&board->lock);
	release_stop_jobs(surface);
	release_zap_surface(surface);

	/* Waits for an unmap() in progress, which itself waits for nobody. */
	mutex_lock(&surface->teardown);
	surface->mapped = false;
	forget = !test_and_set_bit(0, &surface->released);
	mutex_unlock(&surface->teardown);
	release_unlist(surface);
	return forget;
}
EXPORT_SYMBOL_GPL(peerdma_revoke_now);

static struct peerdma_surface *release_next_live(struct peerdma_dev *board, u32 state, bool gpu)
{
	struct peerdma_surface *surface;

	list_for_each_entry(surface, &board->surfaces, on_board) {
		/* Without a reference left it is already being given back. */
		if ((gpu && !surface->provider->gpu) || surface->state != PEERDMA_SURFACE_LIVE ||
		    !kref_get_unless_zero(&surface->ref))
			continue;
		release_flip(surface, state);
		return surface;
	}
	return NULL;
}

/**
 * peerdma_release_revoke_all() - revokes surfaces of a board and removes their mappings
 * @board: no job runs, and nothing is mapped meanwhile. May sleep
 * @state: enum peerdma_surface_state, their new state
 * @gpu: only memory of GPUs
 */
void peerdma_release_revoke_all(struct peerdma_dev *board, u32 state, bool gpu)
{
	struct peerdma_surface *surface;

	for (;;) {
		spin_lock_irq(&board->lock);
		surface = release_next_live(board, state, gpu);
		spin_unlock_irq(&board->lock);
		if (!surface)
			break;
		release_queue_revoke(surface);
		flush_work(&surface->revoke);
		peerdma_surface_put(surface);
	}
}
