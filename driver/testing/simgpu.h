/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the simulated GPU share. */
#ifndef SIMGPU_H
#define SIMGPU_H

#include <linux/atomic.h>
#include <linux/dma-mapping.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "simgpu_uapi.h"

/* The aperture is given out in pages of this size, as NVIDIA's is. */
#define SIMGPU_PAGE	SZ_64K
/* Memory may be mapped several times. No cache is behind what these tests run on. */
#define SIMGPU_ATTRIBUTES	DMA_ATTR_SKIP_CPU_SYNC

/**
 * struct simgpu_alloc - an allocation
 * @ref: the file that made it, pins and dma-bufs
 * @link: in the list of what is allocated
 * @va: its address
 * @size: bytes, whole pages
 * @tgid: process that it belongs to
 * @owner: file that made it
 * @free_at_munmap: the first mapping of all of it frees it when it goes
 * @count: pages
 * @pages: their numbers in the aperture, scattered
 */
struct simgpu_alloc {
	struct kref ref;
	struct list_head link;
	u64 va;
	u64 size;
	pid_t tgid;
	void *owner;
	bool free_at_munmap;
	u32 count;
	u32 pages[];
};

extern struct pci_dev *simgpu_pdev;
extern struct mutex simgpu_api_lock;
extern atomic_t simgpu_pages, simgpu_pins, simgpu_mappings, simgpu_callbacks;

phys_addr_t simgpu_physical(const struct simgpu_alloc *alloc, u32 page);
struct simgpu_alloc *simgpu_find(u64 va, u64 size);
void simgpu_put(struct simgpu_alloc *alloc);

struct sg_table *simgpu_map(struct device *dev, struct simgpu_alloc *alloc,
			    enum dma_data_direction direction);
void simgpu_unmap(struct device *dev, struct sg_table *table, enum dma_data_direction direction);

void simgpu_call_back(struct simgpu_alloc *alloc);

int simgpu_move(struct simgpu_alloc *alloc);

int simgpu_export(struct simgpu_export *export);
int simgpu_revoke(struct simgpu_revoke *revoke);
int simgpu_busy(const struct simgpu_busy *busy);

#endif /* SIMGPU_H */
