// SPDX-License-Identifier: GPL-2.0-only
/*
 * Surfaces: memory that is pinned and mapped for a board, the modules that provide it, and the
 * handles that programs know.
 *
 * live -> being unpinned by the program (draining), revoked by the provider, or lost with the
 * board: release.c.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "surface.h"

static DEFINE_MUTEX(providers_lock);
static LIST_HEAD(providers);

/**
 * peerdma_provider_register() - registers a provider that pins by CUDA pointer
 * @provider: valid until peerdma_provider_unregister()
 *
 * The provider that was registered first is used. May sleep.
 *
 * Return: 0.
 */
int peerdma_provider_register(struct peerdma_provider *provider)
{
	mutex_lock(&providers_lock);
	list_add_tail(&provider->link, &providers);
	mutex_unlock(&providers_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(peerdma_provider_register);

/**
 * peerdma_provider_unregister() - undoes peerdma_provider_register()
 * @provider: it has no pins left, since each holds its module. May sleep
 */
void peerdma_provider_unregister(struct peerdma_provider *provider)
{
	mutex_lock(&providers_lock);
	list_del(&provider->link);
	mutex_unlock(&providers_lock);
}
EXPORT_SYMBOL_GPL(peerdma_provider_unregister);

/**
 * peerdma_surface_take_gpu() - finds the provider that pins by CUDA pointer
 *
 * Return: the provider, or NULL if none is loaded; the caller drops the reference to its module.
 */
const struct peerdma_provider *peerdma_surface_take_gpu(void)
{
	struct peerdma_provider *provider, *found = NULL;

	mutex_lock(&providers_lock);
	list_for_each_entry(provider, &providers, link) {
		if (try_module_get(provider->owner)) {
			found = provider;
			break;
		}
	}
	mutex_unlock(&providers_lock);
	return found;
}

/**
 * peerdma_surface_list_gpu() - lists the providers that pin by CUDA pointer
 * @text: where their names are written, a space before each
 * @size: bytes of @text
 *
 * Return: whether there is one.
 */
bool peerdma_surface_list_gpu(char *text, size_t size)
{
	struct peerdma_provider *provider;
	size_t length = 0;
	bool gpu = false;

	mutex_lock(&providers_lock);
	list_for_each_entry(provider, &providers, link) {
		length += scnprintf(text + length, size - length, " %s", provider->name);
		gpu = true;
	}
	mutex_unlock(&providers_lock);
	return gpu;
}

/**
 * peerdma_surface_device() - for which device a provider maps
 * @surface: the surface
 *
 * Return: the device of the PCI function.
 */
struct device *peerdma_surface_device(const struct peerdma_surface *surface)
{
	return &surface->board->pdev->dev;
}
EXPORT_SYMBOL_GPL(peerdma_surface_device);

static int surface_begin_segments(struct peerdma_surface *surface, u32 room)
{
	surface->segments = kvmalloc_array(room, sizeof(*surface->segments), PEERDMA_GFP_ARRAY);
	if (!surface->segments)
		return -ENOMEM;
	surface->segment_room = room;
	surface->segment_skip = surface->skip;
	return 0;
}

/* Adds the next bus addresses. What lies before and after the surface is cut off. */
static void surface_add_segment(struct peerdma_surface *surface, dma_addr_t address, u64 length)
{
	struct peerdma_segment *last = surface->segments + surface->segment_count - 1;
	u64 skipped = min(surface->segment_skip, length);
	u64 start = 0;

	surface->segment_skip -= skipped;
	address += skipped;
	length -= skipped;
	if (surface->segment_count)
		start = last->start + last->length;
	length = min(length, surface->length - start);
	if (!length)
		return;
	if (surface->segment_count && last->address + last->length == address) {
		last->length += length;
		return;
	}
	if (WARN_ON(surface->segment_count == surface->segment_room))
		return;
	surface->segments[surface->segment_count++] = (struct peerdma_segment){
		.start = start, .length = length, .address = address,
	};
}

/**
 * peerdma_surface_add_segments() - sets the bus addresses of a surface
 * @surface: its length and skip are set
 * @count: number of @addresses
 * @addresses: in order; they begin with whole pages
 * @lengths: bytes at each of them; NULL: all have @length
 * @length: used if @lengths is NULL
 *
 * For a provider's map(). May sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_surface_add_segments(struct peerdma_surface *surface, u32 count, const u64 *addresses,
				 const u32 *lengths, u64 length)
{
	u32 n;
	int error = surface_begin_segments(surface, count);

	for (n = 0; !error && n < count; n++)
		surface_add_segment(surface, addresses[n], lengths ? lengths[n] : length);
	return error;
}
EXPORT_SYMBOL_GPL(peerdma_surface_add_segments);

/**
 * peerdma_surface_add_table() - peerdma_surface_add_segments() from a mapped table
 * @surface: its length and skip are set
 * @table: only its bus addresses are used: there may be no pages behind them
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_surface_add_table(struct peerdma_surface *surface, struct sg_table *table)
{
	int n, error = surface_begin_segments(surface, table->nents);
	struct scatterlist *sg;

	if (error)
		return error;
	for_each_sgtable_dma_sg(table, sg, n)
		surface_add_segment(surface, sg_dma_address(sg), sg_dma_len(sg));
	return 0;
}

static bool surface_complete(const struct peerdma_surface *surface)
{
	const struct peerdma_segment *last = surface->segments + surface->segment_count - 1;

	return surface->segment_count && last->start + last->length == surface->length;
}

/**
 * peerdma_surface_begin_extents() - makes room for physical addresses
 * @surface: the surface
 * @room: how often peerdma_surface_add_extent() may be called
 * @cache: how the CPU is to map them
 *
 * For the map() of a provider with PEERDMA_SURFACE_CPU_MAP. May sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_surface_begin_extents(struct peerdma_surface *surface, u32 room,
				  enum peerdma_cache cache)
{
	surface->extents = kvmalloc_array(room, sizeof(*surface->extents), PEERDMA_GFP_ARRAY);
	if (!surface->extents)
		return -ENOMEM;
	surface->extent_room = room;
	surface->extent_skip = round_down(surface->skip, PAGE_SIZE);
	surface->cache = cache;
	return 0;
}
EXPORT_SYMBOL_GPL(peerdma_surface_begin_extents);

/**
 * peerdma_surface_add_extent() - adds the next physical addresses
 * @surface: the surface
 * @address: first one, at the beginning of a page
 * @length: bytes, whole pages
 *
 * Pages that have nothing of the surface are cut off: they may belong to another allocation.
 */
void peerdma_surface_add_extent(struct peerdma_surface *surface, phys_addr_t address, u64 length)
{
	struct peerdma_extent *last = surface->extents + surface->extent_count - 1;
	u64 whole = PAGE_ALIGN(offset_in_page(surface->skip) + surface->length);
	u64 skipped = min(surface->extent_skip, length);

	surface->extent_skip -= skipped;
	address += skipped;
	length = min(length - skipped, whole - surface->extents_length);
	if (!length)
		return;
	surface->extents_length += length;
	if (surface->extent_count && last->address + last->length == address) {
		last->length += length;
		return;
	}
	if (WARN_ON(surface->extent_count == surface->extent_room))
		return;
	surface->extents[surface->extent_count++] = (struct peerdma_extent){
		.address = address, .length = length,
	};
}
EXPORT_SYMBOL_GPL(peerdma_surface_add_extent);

/* Checks what has been mapped, and finds out where it is. The mapping stays meanwhile. */
static int surface_check(struct peerdma_surface *surface)
{
	if (!surface_complete(surface))
		return peerdma_fail_pin(surface, -EIO,
					"%s mapped less than the %llu bytes asked for",
					surface->provider->name, surface->length);
	return peerdma_placement_find(surface);
}

static int surface_count(struct peerdma_surface *surface)
{
	bool host = surface->placement == PEERDMA_PLACEMENT_HOST ||
		    surface->placement == PEERDMA_PLACEMENT_MIXED;

	return host && !surface->provider->host ? peerdma_quota_add_surface(surface) : 0;
}

/* Maps what is pinned, unless the board goes away meanwhile. */
static int surface_map(struct peerdma_surface *surface)
{
	struct peerdma_dev *board = surface->board;
	int error;

	error = down_read_killable(&board->gate);
	if (error)
		return peerdma_fail_pin(surface, error, "killed while the board was being reset");
	if (board->state == PEERDMA_BOARD_DEAD) {
		error = peerdma_fail_pin(surface, -ENODEV, "the board is gone");
		goto out;
	}
	error = surface->provider->map(surface);
	if (error)
		goto out;
	/* Not around map(): a revoking provider may hold a lock that map() needs. */
	mutex_lock(&surface->teardown);
	surface->mapped = !test_bit(0, &surface->released);
	if (surface->mapped)
		error = surface_check(surface);
	mutex_unlock(&surface->teardown);
	if (!error)
		error = surface_count(surface);
	if (error) {
		/* Within the gate: it is not on the list, for whose surfaces remove() waits. */
		peerdma_release_unmap(surface);
		goto out;
	}

	spin_lock_irq(&board->lock);
	list_add_tail(&surface->on_board, &board->surfaces);
	surface->charged = surface->length;
	board->pinned_bytes += surface->charged;
	if (surface->extents) {
		surface->map_offset = board->next_map;
		board->next_map += surface->extents_length;
	}
	/* If it was revoked meanwhile, giving it back takes it off the list. */
	if (surface->state != PEERDMA_SURFACE_LIVE)
		error = -ESTALE;
	spin_unlock_irq(&board->lock);
	if (error)
		peerdma_fail_pin(surface, error, "the memory was freed while it was being pinned");
out:
	up_read(&board->gate);
	return error;
}

/**
 * peerdma_surface_check_range() - checks where a program says that memory is
 * @file: notes why not
 * @start: address in the calling process, or first byte of a dma-buf
 * @length: bytes
 * @process: it can only be what the process itself may access
 *
 * The one place for that, before anything is calculated with them: what providers and limits make
 * of them, in whole pages, does not wrap around.
 *
 * Return: 0; -EINVAL if the end is no address, -EFAULT if no process has memory there.
 */
int peerdma_surface_check_range(struct peerdma_file *file, u64 start, u64 length, bool process)
{
	u64 end;

	if (check_add_overflow(start, length, &end) || end > U64_MAX - PEERDMA_PIN_GRANULE)
		return peerdma_fail(file, -EINVAL,
				    "%llu bytes are too many: from %#llx on they wrap around",
				    length, start);
	if (process && !access_ok(u64_to_user_ptr(start), length))
		return peerdma_fail(file, -EFAULT,
				    "%llu bytes from %#llx on are no memory of a process", length,
				    start);
	return 0;
}

/**
 * peerdma_surface_create() - pins memory and maps it for the board
 * @file: notes why, if it fails
 * @provider: the kind of memory; the caller holds its module
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

	error = peerdma_surface_check_range(file, request->va ?: request->offset, request->length,
					    provider->host);
	if (error)
		return ERR_PTR(error);
	surface = kzalloc(sizeof(*surface), GFP_KERNEL_ACCOUNT);
	if (!surface)
		return ERR_PTR(-ENOMEM);
	peerdma_release_init(surface);
	surface->board = peerdma_board_get(file->board);
	surface->provider = provider;
	__module_get(provider->owner);
	surface->features = provider->features;
	surface->user = peerdma_quota_hold(file->share->user);
	surface->why = &file->why;
	surface->length = request->length;
	surface->access = request->access;
	surface->footprint = PAGE_ALIGN(offset_in_page(request->va) + request->length);

	/* Before it is pinned: that may take as long as the program makes a page fault take. */
	if (provider->host)
		error = peerdma_quota_add_surface(surface);
	if (!error)
		error = provider->get(surface, request);
	if (error)
		set_bit(0, &surface->released);	/* there is no pin to give back */
	else
		error = surface_map(surface);
	if (error)
		peerdma_release(surface);
	surface->why = NULL;
	if (!error)
		return surface;
	peerdma_surface_put(surface);
	return ERR_PTR(error);
}

/**
 * peerdma_surface_find() - looks up a handle
 * @file: whose handle
 * @handle: the handle; may be larger than any that exists
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
		peerdma_surface_get(surface);
	xa_unlock(&file->surfaces);
	return surface;
}

/**
 * peerdma_surface_pin() - pins memory for a request and reserves its handle
 * @file: whose
 * @provider: the kind of memory; the caller holds its module
 * @request: what to pin
 * @pinning: filled in for peerdma_surface_finish()
 *
 * The handle names nothing until the program has been told of it: no other thread can use it.
 *
 * Return: 0 or an errno.
 */
int peerdma_surface_pin(struct peerdma_file *file, const struct peerdma_provider *provider,
			const struct peerdma_pin_request *request, struct peerdma_pinning *pinning)
{
	struct peerdma_surface *surface;
	int error;

	if (!request->access || request->access & ~PEERDMA_ACCESS_BOTH)
		return peerdma_fail(file, -EINVAL, "access %#x is not read, write or both",
				    request->access);
	error = xa_alloc_cyclic(&file->surfaces, &pinning->handle, NULL, XA_LIMIT(1, INT_MAX),
				&file->next_handle, GFP_KERNEL);
	if (error < 0)
		return error;
	surface = peerdma_surface_create(file, provider, request);
	if (IS_ERR(surface)) {
		xa_release(&file->surfaces, pinning->handle);
		return PTR_ERR(surface);
	}
	pinning->surface = surface;
	return 0;
}

/**
 * peerdma_surface_finish() - makes a handle valid, or takes a pin back
 * @file: whose
 * @pinning: what was pinned, if anything
 * @error: of the request, after the program has been told the handle
 *
 * Return: @error.
 */
long peerdma_surface_finish(struct peerdma_file *file, struct peerdma_pinning *pinning, long error)
{
	if (!pinning->surface)
		return error;
	if (error) {
		xa_release(&file->surfaces, pinning->handle);
		peerdma_release(pinning->surface);
		peerdma_surface_put(pinning->surface);
	} else {
		/* The place is reserved: this cannot fail. */
		xa_store(&file->surfaces, pinning->handle, pinning->surface, GFP_KERNEL);
	}
	return error;
}
