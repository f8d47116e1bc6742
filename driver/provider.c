// SPDX-License-Identifier: GPL-2.0
/*
 * Providers of memory, and what they tell the core of the memory they pinned.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "core.h"

static DEFINE_MUTEX(providers_lock);
static LIST_HEAD(providers);

/**
 * peerdma_provider_register() - offers memory by CUDA pointer
 * @provider: stays until peerdma_provider_unregister()
 *
 * The provider that was registered first is asked. May sleep.
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
 * @provider: nothing that it pinned is left: that holds its module. May sleep
 */
void peerdma_provider_unregister(struct peerdma_provider *provider)
{
	mutex_lock(&providers_lock);
	list_del(&provider->link);
	mutex_unlock(&providers_lock);
}
EXPORT_SYMBOL_GPL(peerdma_provider_unregister);

/**
 * peerdma_provider_take_gpu() - finds who pins by CUDA pointer
 *
 * Without a provider for a GPU it is page-locked host memory that is meant, as on a Jetson.
 *
 * Return: the provider, its module held.
 */
const struct peerdma_provider *peerdma_provider_take_gpu(void)
{
	const struct peerdma_provider *found = &peerdma_pages;
	struct peerdma_provider *provider;

	mutex_lock(&providers_lock);
	list_for_each_entry(provider, &providers, link) {
		if (try_module_get(provider->owner)) {
			found = provider;
			break;
		}
	}
	if (found == &peerdma_pages)
		__module_get(THIS_MODULE);
	mutex_unlock(&providers_lock);
	return found;
}

/**
 * peerdma_provider_names() - lists the providers
 * @text: their names, separated by spaces
 * @size: bytes of @text
 *
 * Return: whether there is one for a GPU.
 */
bool peerdma_provider_names(char *text, size_t size)
{
	struct peerdma_provider *provider;
	bool gpu = false;
	size_t length;

	length = scnprintf(text, size, "%s %s", peerdma_pages.name, peerdma_dmabuf.name);
	mutex_lock(&providers_lock);
	list_for_each_entry(provider, &providers, link) {
		length += scnprintf(text + length, size - length, " %s", provider->name);
		gpu = true;
	}
	mutex_unlock(&providers_lock);
	return gpu;
}

/**
 * peerdma_surface_device() - for whom a provider maps
 * @surface: the surface
 *
 * Return: the PCI function's device.
 */
struct device *peerdma_surface_device(const struct peerdma_surface *surface)
{
	return &surface->board->pdev->dev;
}
EXPORT_SYMBOL_GPL(peerdma_surface_device);

/**
 * peerdma_segments_begin() - makes room for bus addresses
 * @surface: its length and skip are set
 * @room: most calls of peerdma_segments_add() that follow
 *
 * May sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_segments_begin(struct peerdma_surface *surface, u32 room)
{
	surface->segments = kvmalloc_array(room, sizeof(*surface->segments), PEERDMA_GFP_ARRAY);
	if (!surface->segments)
		return -ENOMEM;
	surface->segment_room = room;
	surface->segment_skip = surface->skip;
	return 0;
}
EXPORT_SYMBOL_GPL(peerdma_segments_begin);

/**
 * peerdma_segments_add() - the next bus addresses of a surface
 * @surface: the surface
 * @address: first one
 * @length: bytes
 *
 * Begins with whole pages: what lies before and after the surface is cut off here.
 */
void peerdma_segments_add(struct peerdma_surface *surface, dma_addr_t address, u64 length)
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
EXPORT_SYMBOL_GPL(peerdma_segments_add);

/**
 * peerdma_segments_complete() - whether there are bus addresses for all of a surface
 * @surface: after its map()
 *
 * Return: true if so.
 */
bool peerdma_segments_complete(const struct peerdma_surface *surface)
{
	const struct peerdma_segment *last = surface->segments + surface->segment_count - 1;

	return surface->segment_count && last->start + last->length == surface->length;
}

/**
 * peerdma_extents_begin() - makes room for addresses of the CPU
 * @surface: the surface
 * @room: most calls of peerdma_extents_add() that follow
 * @cache: how they are to be mapped
 *
 * May sleep. For a provider with PEERDMA_SURFACE_CPU_MAP, in its map().
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_extents_begin(struct peerdma_surface *surface, u32 room, enum peerdma_cache cache)
{
	surface->extents = kvmalloc_array(room, sizeof(*surface->extents), PEERDMA_GFP_ARRAY);
	if (!surface->extents)
		return -ENOMEM;
	surface->extent_room = room;
	surface->extent_skip = round_down(surface->skip, PAGE_SIZE);
	surface->cache = cache;
	return 0;
}
EXPORT_SYMBOL_GPL(peerdma_extents_begin);

/**
 * peerdma_extents_add() - the next addresses of the CPU
 * @surface: the surface
 * @address: first one, at the beginning of a page
 * @length: bytes, whole pages
 *
 * What lies in other pages than the surface's is cut off here: it may be another allocation.
 */
void peerdma_extents_add(struct peerdma_surface *surface, phys_addr_t address, u64 length)
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
EXPORT_SYMBOL_GPL(peerdma_extents_add);
