/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between the core module and the providers of memory for the board to read and write.
 *
 * A provider pins memory of one kind and maps it for a device. The core owns everything else:
 * handles, states, jobs, and when each step is undone. The core needs no symbol of any GPU's
 * driver; a provider module links to one.
 */
#ifndef PEERDMA_PROVIDER_H
#define PEERDMA_PROVIDER_H

#include <linux/dma-direction.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "peerdma_uapi.h"

struct device;
struct dma_buf;
struct module;
struct peerdma_dev;
struct peerdma_surface;
struct peerdma_user;
struct peerdma_why;

/* What is pinned ends so far before the last address: whole pages of any provider do not wrap. */
#define PEERDMA_PIN_GRANULE	SZ_64K

/**
 * struct peerdma_pin_request - what a program asks to have pinned, checked for what would wrap
 * @va: address in the calling process; not for dma-bufs
 * @length: bytes; for dma-bufs 0 means up to the end
 * @access: PEERDMA_ACCESS_*
 * @fd: the dma-buf
 * @offset: first byte in the dma-buf
 */
struct peerdma_pin_request {
	u64 va;
	u64 length;
	u32 access;
	int fd;
	u64 offset;
};

/**
 * struct peerdma_segment - contiguous bus addresses
 * @start: offset in the surface, in bytes
 * @length: bytes
 * @address: bus address
 */
struct peerdma_segment {
	u64 start;
	u64 length;
	dma_addr_t address;
};

/**
 * struct peerdma_extent - contiguous physical addresses, whole pages
 * @address: physical address
 * @length: bytes
 */
struct peerdma_extent {
	phys_addr_t address;
	u64 length;
};

/**
 * struct peerdma_provider - a kind of memory
 * @name: shown to users; at most 15 characters
 * @owner: module that has the functions
 * @features: PEERDMA_SURFACE_*
 * @gpu: pins by CUDA pointer; what it pins may not survive a suspend
 * @host: pins host memory only
 * @get: pins; the caller's process owns the memory. Sets surface->private and, if known now,
 *	surface->length. May sleep; nothing held
 * @map: makes what @get pinned reachable for the device: calls peerdma_surface_add_segments().
 *	May sleep; the board's gate is held for reading
 * @unmap: undoes @map. The board does not touch the memory any more. May sleep; the surface's
 *	teardown mutex is held, so it must not wait for anybody who may call
 *	peerdma_revoke_now()
 * @put: undoes @get. May sleep; any process, nothing held
 * @sync: hands a range to the device or back to the CPU; called if surface->needs_sync. May sleep
 * @link: used by the core
 *
 * An operation that fails says why with peerdma_fail_pin().
 */
struct peerdma_provider {
	const char *name;
	struct module *owner;
	u32 features;
	bool gpu;
	bool host;
	int (*get)(struct peerdma_surface *surface, const struct peerdma_pin_request *request);
	int (*map)(struct peerdma_surface *surface);
	void (*unmap)(struct peerdma_surface *surface);
	void (*put)(struct peerdma_surface *surface);
	void (*sync)(struct peerdma_surface *surface, u64 start, u64 length, bool for_cpu);
	struct list_head link;
};

/**
 * struct peerdma_surface - memory pinned for one board
 * @ref: held by jobs, the file's table and pending work items
 * @board: for which it is mapped; holds a reference
 * @provider: kind of memory; holds its module
 * @private: of the provider, from kmalloc(); the core frees it with the surface
 * @buffer: the dma-buf in which those who use the memory announce it; NULL if there is none. Valid
 *	while @mapped
 * @features: PEERDMA_SURFACE_*; the provider's, unless its get() changes them
 * @user: for whom it counts
 * @footprint: bytes of host memory that the pin takes, if that is where it is; get() may change it
 * @counted: bytes that count for @user
 * @why: where peerdma_fail_pin() writes while it is being pinned
 * @length: bytes
 * @skip: bytes of the first mapped page that are not part of the surface
 * @access: PEERDMA_ACCESS_*
 * @state: enum peerdma_surface_state; under the board's lock
 * @draining: being unpinned: refuses new jobs; under the board's lock
 * @inflight: jobs that may touch it; under the board's lock
 * @queued: those of them that wait for engines, by their legs; under the board's lock
 * @idle: woken when @inflight falls to 0
 * @teardown: held while the mapping is removed
 * @mapped: @segments are valid; under @teardown
 * @released: bit 0: the pin has been given back, or is being given back
 * @needs_sync: CPU and board see what the other has written only after the provider's sync()
 * @placement: enum peerdma_placement
 * @peer: PCI address of the device that the memory is in
 * @aperture_size: bytes of that device's BAR
 * @segments: bus addresses
 * @segment_count: number of @segments in use
 * @segment_room: number of @segments allocated
 * @segment_skip: bytes of @skip still to be cut off
 * @remapped: number of @segments that the core mapped, as the provider had not
 * @extents: physical addresses; NULL if the CPU cannot map it
 * @extent_count: number of @extents in use
 * @extent_room: number of @extents allocated
 * @extent_skip: bytes of whole pages of @skip still to be cut off
 * @extents_length: bytes of all @extents together
 * @cache: enum peerdma_cache of a CPU mapping
 * @memtype: the @extents are reserved as write-combined
 * @map_offset: offset for mmap(), unique for the board
 * @charged: bytes counted in the board's pinned_bytes
 * @on_board: entry in the board's list of surfaces
 * @revoke: removes the mapping after a revocation
 * @release: gives mapping and pin back after the last reference
 * @keepers: references to the structure alone: @ref holds one, a provider that may be called
 *	back another
 * @free: frees the structure after the last of @keepers
 */
struct peerdma_surface {
	struct kref ref;
	struct peerdma_dev *board;
	const struct peerdma_provider *provider;
	void *private;
	struct dma_buf *buffer;
	u32 features;
	struct peerdma_user *user;
	u64 footprint;
	u64 counted;
	struct peerdma_why *why;
	u64 length;
	u64 skip;
	u32 access;
	u32 state;
	bool draining;
	unsigned int inflight;
	struct list_head queued;
	wait_queue_head_t idle;
	struct mutex teardown;
	bool mapped;
	unsigned long released;
	bool needs_sync;
	u32 placement;
	char peer[16];
	u64 aperture_size;
	struct peerdma_segment *segments;
	u32 segment_count;
	u32 segment_room;
	u64 segment_skip;
	u32 remapped;
	struct peerdma_extent *extents;
	u32 extent_count;
	u32 extent_room;
	u64 extent_skip;
	u64 extents_length;
	u32 cache;
	bool memtype;
	u64 map_offset;
	u64 charged;
	struct list_head on_board;
	struct work_struct revoke;
	struct work_struct release;
	refcount_t keepers;
	struct work_struct free;
};

int peerdma_provider_register(struct peerdma_provider *provider);
void peerdma_provider_unregister(struct peerdma_provider *provider);

struct device *peerdma_surface_device(const struct peerdma_surface *surface);
int peerdma_surface_add_segments(struct peerdma_surface *surface, u32 count, const u64 *addresses,
				 const u32 *lengths, u64 length);
int peerdma_surface_begin_extents(struct peerdma_surface *surface, u32 room,
				  enum peerdma_cache cache);
void peerdma_surface_add_extent(struct peerdma_surface *surface, phys_addr_t address, u64 length);
void peerdma_revoke(struct peerdma_surface *surface);
bool peerdma_revoke_now(struct peerdma_surface *surface);
void peerdma_release_keep(struct peerdma_surface *surface);
void peerdma_release_unkeep(struct peerdma_surface *surface);

__printf(3, 4) int peerdma_fail_pin(struct peerdma_surface *surface, int error,
				    const char *format, ...);

/* Exporters and NVIDIA say -ENOTSUPP, which must not reach programs. */
static inline int peerdma_provider_errno(int error)
{
	return error == -ENOTSUPP ? -EOPNOTSUPP : error;
}

#endif /* PEERDMA_PROVIDER_H */
