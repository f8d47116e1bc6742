/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Surfaces and the providers of their memory. struct peerdma_surface and what provider modules
 * call are in peerdma_provider.h.
 */
#ifndef PEERDMA_SURFACE_H
#define PEERDMA_SURFACE_H

#include "job.h"
#include "route.h"

struct sg_table;

#define PEERDMA_ACCESS_BOTH	(PEERDMA_ACCESS_READ | PEERDMA_ACCESS_WRITE)

/* Of a mapping for PEERDMA_ACCESS_*. */
static inline enum dma_data_direction peerdma_direction(u32 access)
{
	switch (access) {
	case PEERDMA_ACCESS_READ:
		return DMA_TO_DEVICE;
	case PEERDMA_ACCESS_WRITE:
		return DMA_FROM_DEVICE;
	default:
		return DMA_BIDIRECTIONAL;
	}
}

/**
 * struct peerdma_pinning - a pin request in progress
 * @surface: what was pinned; NULL if the request pins nothing
 * @handle: its handle, reserved but not yet valid
 */
struct peerdma_pinning {
	struct peerdma_surface *surface;
	u32 handle;
};

/**
 * struct peerdma_region - what is at an address, and next to it
 * @known: the other members are valid
 * @bus: its addresses are those of the board's bus; else physical
 * @direct: of a BAR: peers get there without the host
 * @owned: of a BAR: its function's driver is who gave the address, or part of it
 * @driven: of a BAR: the driver itself is
 * @target: what is there
 * @start: first address
 * @last: last address
 * @physical: of @start
 * @pdev: whose BAR it is; holds a reference
 */
struct peerdma_region {
	bool known;
	bool bus;
	bool direct;
	bool owned;
	bool driven;
	enum peerdma_target target;
	u64 start;
	u64 last;
	phys_addr_t physical;
	struct pci_dev *pdev;
};

/* region.c */
int peerdma_region_find(struct peerdma_region *region, const struct peerdma_surface *surface,
			u64 address, bool bus);
void peerdma_region_forget(struct peerdma_region *region);

/* placement.c */
bool peerdma_placement_allows(struct pci_dev *peer, struct device *dev);
int peerdma_placement_find(struct peerdma_surface *surface);
void peerdma_placement_undo(struct peerdma_surface *surface);

/* release.c */
void peerdma_release_init(struct peerdma_surface *surface);
void peerdma_release_zap(struct peerdma_dev *board, u64 offset, u64 length);
void peerdma_release_unmap(struct peerdma_surface *surface);
void peerdma_release(struct peerdma_surface *surface);
int peerdma_release_unpin(struct peerdma_file *file, u32 handle);
void peerdma_release_drop(struct peerdma_surface *surface);
void peerdma_release_revoke_all(struct peerdma_dev *board, u32 state, bool gpu);

/* surface.c */
const struct peerdma_provider *peerdma_surface_take_gpu(void);
bool peerdma_surface_list_gpu(char *text, size_t size);
int peerdma_surface_add_table(struct peerdma_surface *surface, struct sg_table *table);
int peerdma_surface_check_range(struct peerdma_file *file, u64 start, u64 length, bool process);
struct peerdma_surface *peerdma_surface_create(struct peerdma_file *file,
					       const struct peerdma_provider *provider,
					       const struct peerdma_pin_request *request);
struct peerdma_surface *peerdma_surface_find(struct peerdma_file *file, u64 handle);
int peerdma_surface_pin(struct peerdma_file *file, const struct peerdma_provider *provider,
			const struct peerdma_pin_request *request, struct peerdma_pinning *pinning);
long peerdma_surface_finish(struct peerdma_file *file, struct peerdma_pinning *pinning, long error);

/* pages.c, dmabuf.c */
extern const struct peerdma_provider peerdma_pages;
void *peerdma_pages_find(const struct peerdma_surface *surface, u64 offset);
extern const struct peerdma_provider peerdma_dmabuf;

#endif /* PEERDMA_SURFACE_H */
