// SPDX-License-Identifier: GPL-2.0
/*
 * Surfaces: pinned memory, from a program's handle to the last job that uses it.
 *
 * live -> unpinned by the program (draining), or revoked by the provider, or lost with the board;
 * the mapping is taken away when no job may touch it, the pin is given back once after that.
 */
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "core.h"

static phys_addr_t bus_to_physical(struct peerdma_surface *surface, dma_addr_t address)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&surface->board->pdev->dev);

	return domain ? iommu_iova_to_phys(domain, address) : (phys_addr_t)address;
}

/* Whose BAR an address is in. */
static void note_peer(struct peerdma_surface *surface, phys_addr_t address)
{
	struct pci_dev *pdev = NULL;
	struct resource *bar;
	int n;

	for_each_pci_dev(pdev) {
		for (n = 0; n < PCI_STD_NUM_BARS; n++) {
			bar = &pdev->resource[n];
			if (resource_type(bar) != IORESOURCE_MEM || address < bar->start ||
			    address > bar->end)
				continue;
			strscpy(surface->peer, pci_name(pdev), sizeof(surface->peer));
			surface->aperture_size = resource_size(bar);
			pci_dev_put(pdev);
			return;
		}
	}
}

/* From the addresses that the board uses, so that it is true whatever the provider believes. */
static void find_placement(struct peerdma_surface *surface)
{
	bool host = false, peer = false;
	phys_addr_t address;
	u32 n;

	surface->placement = PEERDMA_PLACEMENT_HOST;
	if (surface->provider == &peerdma_pages)
		return;
	for (n = 0; n < surface->segment_count; n++) {
		address = bus_to_physical(surface, surface->segments[n].address);
		if (page_is_ram(PHYS_PFN(address))) {
			host = true;
			continue;
		}
		if (!peer)
			note_peer(surface, address);
		peer = true;
	}
	if (peer)
		surface->placement = host ? PEERDMA_PLACEMENT_MIXED : PEERDMA_PLACEMENT_PEER;
}

/**
 * peerdma_surface_unlist() - the board has no mapping of a surface any more
 * @surface: the surface. May sleep
 *
 * Doing it again does nothing.
 */
void peerdma_surface_unlist(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;

	spin_lock_irq(&board->lock);
	list_del_init(&surface->on_board);
	board->pinned_bytes -= surface->charged;
	surface->charged = 0;
	spin_unlock_irq(&board->lock);
	wake_up_all(&board->idle);
}

/* Idempotent. No job may touch the surface. May sleep. */
static void unmap(struct peerdma_surface *surface)
{
	peerdma_zap_surface(surface);
	mutex_lock(&surface->teardown);
	if (surface->mapped)
		surface->provider->unmap(surface);
	surface->mapped = false;
	mutex_unlock(&surface->teardown);
	peerdma_surface_unlist(surface);
}

/**
 * peerdma_surface_release() - gives mapping and pin back
 * @surface: no job may touch it or will. May sleep, nothing held
 *
 * Doing it again does nothing.
 */
void peerdma_surface_release(struct peerdma_surface *surface)
{
	unmap(surface);
	if (!test_and_set_bit(0, &surface->released))
		surface->provider->put(surface);
}

/* Nobody uses it any more; its provider may still be called back with it. */
static void release_work(struct work_struct *work)
{
	struct peerdma_surface *surface = container_of(work, struct peerdma_surface, release);

	peerdma_surface_release(surface);
	peerdma_extents_release(surface);
	peerdma_surface_unkeep(surface);
}

static void free_work(struct work_struct *work)
{
	struct peerdma_surface *surface = container_of(work, struct peerdma_surface, free);
	struct module *owner = surface->provider->owner;

	kvfree(surface->segments);
	kvfree(surface->extents);
	kfree(surface->private);
	mutex_destroy(&surface->teardown);
	peerdma_board_put(surface->board);
	kfree(surface);
	module_put(owner);
}

/**
 * peerdma_surface_keep() - keeps the structure, but nothing that it stands for
 * @surface: being pinned
 *
 * For a provider that may be called back with it: until it has been, or cannot be any more.
 */
void peerdma_surface_keep(struct peerdma_surface *surface)
{
	refcount_inc(&surface->keepers);
}
EXPORT_SYMBOL_GPL(peerdma_surface_keep);

/**
 * peerdma_surface_unkeep() - undoes peerdma_surface_keep()
 * @surface: may be freed. Any context
 */
void peerdma_surface_unkeep(struct peerdma_surface *surface)
{
	/* In a work, since the provider's module may go with it. */
	if (refcount_dec_and_test(&surface->keepers))
		queue_work(peerdma_wq, &surface->free);
}
EXPORT_SYMBOL_GPL(peerdma_surface_unkeep);

static void surface_last(struct kref *ref)
{
	struct peerdma_surface *surface = container_of(ref, struct peerdma_surface, ref);

	queue_work(peerdma_wq, &surface->release);
}

/**
 * peerdma_surface_put() - drops a reference
 * @surface: after the last one, a work gives it back. Any context
 */
void peerdma_surface_put(struct peerdma_surface *surface)
{
	kref_put(&surface->ref, surface_last);
}

static void revoke_work(struct work_struct *work)
{
	struct peerdma_surface *surface = container_of(work, struct peerdma_surface, revoke);

	/* Bounded: its jobs are being stopped. */
	wait_event(surface->idle, !READ_ONCE(surface->inflight));
	unmap(surface);
	peerdma_surface_put(surface);
}

/* Maps what is pinned, unless the board goes away meanwhile. */
static int map(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	int error;

	error = down_read_killable(&board->gate);
	if (error)
		return peerdma_explain(surface, error, "killed while the board was being reset");
	if (board->state == PEERDMA_BOARD_DEAD) {
		error = peerdma_explain(surface, -ENODEV, "the board is gone");
		goto out;
	}
	error = surface->provider->map(surface);
	if (error)
		goto out;
	/* Not around map(): who revokes may hold a lock that it needs. */
	mutex_lock(&surface->teardown);
	surface->mapped = !test_bit(0, &surface->released);
	mutex_unlock(&surface->teardown);
	if (!peerdma_segments_complete(surface)) {
		error = peerdma_explain(surface, -EIO,
					"%s mapped less than the %llu bytes asked for",
					surface->provider->name, surface->length);
		goto out;
	}
	find_placement(surface);

	spin_lock_irq(&board->lock);
	list_add_tail(&surface->on_board, &board->surfaces);
	surface->charged = surface->length;
	board->pinned_bytes += surface->charged;
	if (surface->extents) {
		surface->map_offset = board->next_map;
		board->next_map += surface->extents_length;
	}
	/* Revoked meanwhile: what gives it back takes it off the list. */
	if (surface->state != PEERDMA_SURFACE_LIVE)
		error = -ESTALE;
	spin_unlock_irq(&board->lock);
	if (error)
		peerdma_explain(surface, error, "the memory was freed while it was being pinned");
out:
	up_read(&board->gate);
	return error;
}

/**
 * peerdma_surface_create() - pins memory and maps it for the board
 * @file: notes why, if it fails
 * @provider: the kind; its module may go away unless something else holds it
 * @request: what to pin
 *
 * May sleep; nothing held.
 *
 * Return: the surface, with one reference, or an ERR_PTR.
 */
struct peerdma_surface *peerdma_surface_create(struct peerdma_file *file,
					       const struct peerdma_provider *provider,
					       const struct peerdma_pin_request *request)
{
	struct peerdma_surface *surface;
	int error;

	if (request->length && request->va + request->length < request->va) {
		error = peerdma_fail(file, -EINVAL, "%#llx bytes from %#llx wrap around",
				     request->length, request->va);
		return ERR_PTR(error);
	}
	surface = kzalloc(sizeof(*surface), GFP_KERNEL_ACCOUNT);
	if (!surface)
		return ERR_PTR(-ENOMEM);
	kref_init(&surface->ref);
	surface->board = peerdma_board_get(file->board);
	surface->provider = provider;
	__module_get(provider->owner);
	surface->features = provider->features;
	surface->why = &file->why;
	surface->length = request->length;
	surface->access = request->access;
	init_waitqueue_head(&surface->idle);
	mutex_init(&surface->teardown);
	INIT_LIST_HEAD(&surface->on_board);
	INIT_WORK(&surface->revoke, revoke_work);
	refcount_set(&surface->keepers, 1);
	INIT_WORK(&surface->release, release_work);
	INIT_WORK(&surface->free, free_work);

	error = provider->get(surface, request);
	if (error) {
		/* Nothing to give back. */
		set_bit(0, &surface->released);
		goto err;
	}
	error = map(surface);
	if (error) {
		peerdma_surface_release(surface);
		goto err;
	}
	surface->why = NULL;
	return surface;
err:
	surface->why = NULL;
	peerdma_surface_put(surface);
	return ERR_PTR(error);
}

/**
 * peerdma_surface_find() - looks up a handle
 * @file: whose handle
 * @handle: the handle, perhaps beyond what handles can be
 *
 * Return: the surface with a reference, or NULL.
 */
struct peerdma_surface *peerdma_surface_find(struct peerdma_file *file, u64 handle)
{
	struct peerdma_surface *surface;

	if (handle > U32_MAX)
		return NULL;
	xa_lock(&file->surfaces);
	surface = xa_load(&file->surfaces, handle);
	if (surface)
		kref_get(&surface->ref);
	xa_unlock(&file->surfaces);
	return surface;
}

/**
 * peerdma_surface_reserve() - takes a handle that names nothing yet
 * @file: whose handle
 * @handle: set to it
 *
 * So that the handle can be told to the program before another thread can use it.
 *
 * Return: 0 or an errno.
 */
int peerdma_surface_reserve(struct peerdma_file *file, u32 *handle)
{
	int error = xa_alloc_cyclic(&file->surfaces, handle, NULL,
				    XA_LIMIT(1, PEERDMA_MAX_HANDLE), &file->next_handle,
				    GFP_KERNEL);

	return min(error, 0);
}

/* No more jobs for it; those that wait are cancelled. */
static void drain(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;

	spin_lock_irq(&board->lock);
	surface->draining = true;
	peerdma_fail_surface(surface, false, -ECANCELED, PEERDMA_REASON_UNPINNED);
	spin_unlock_irq(&board->lock);
}

/**
 * peerdma_surface_unpin() - takes a handle away and gives the memory back
 * @file: whose handle
 * @handle: the handle
 *
 * Waits for the jobs that run. If the process is killed meanwhile, the last job gives the memory
 * back.
 *
 * Return: 0, -EINVAL if there is no such handle, -EINTR.
 */
int peerdma_surface_unpin(struct peerdma_file *file, u32 handle)
{
	struct peerdma_surface *surface = xa_load(&file->surfaces, handle);
	int error;

	/* Of those who try, the one who takes it out of the table goes on. */
	if (!surface || xa_cmpxchg(&file->surfaces, handle, surface, NULL, 0) != surface)
		return -EINVAL;
	drain(surface);
	error = wait_event_killable(surface->idle, !READ_ONCE(surface->inflight));
	if (!error)
		peerdma_surface_release(surface);
	peerdma_surface_put(surface);
	return error ? -EINTR : 0;
}

/**
 * peerdma_surface_drop() - lets go of a surface when its file is closed
 * @surface: out of the file's table; the table's reference is dropped
 *
 * Does not wait for jobs. May sleep.
 */
void peerdma_surface_drop(struct peerdma_surface *surface)
{
	drain(surface);
	/* Here rather than in a work if possible: this is the process that pinned it. */
	if (!READ_ONCE(surface->inflight))
		peerdma_surface_release(surface);
	peerdma_surface_put(surface);
}
