/* SPDX-License-Identifier: GPL-2.0-only */
/* What peerdma_nvp2p_tegra uses of NVIDIA's header in L4T r36 (nvidia-oot), in our own words. */
#ifndef TEST_NV_P2P_H
#define TEST_NV_P2P_H

#include <linux/dma-mapping.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>

#define NVIDIA_P2P_PAGE_TABLE_VERSION	0x00010000
#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(p) \
	((p)->version >> 16 == NVIDIA_P2P_PAGE_TABLE_VERSION >> 16)

struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;
	u64 size;
	u32 entries;
	struct page **pages;
	u64 vaddr;
	u32 mapped;
	struct mm_struct *mm;
	struct mmu_notifier mn;
	struct mutex lock;
	void (*free_callback)(void *data);
	void *data;
};

struct nvidia_p2p_dma_mapping {
	u32 version;
	dma_addr_t *hw_address;
	u32 *hw_len;
	u32 entries;
	struct sg_table *sgt;
	struct device *dev;
	struct nvidia_p2p_page_table *page_table;
	enum dma_data_direction direction;
};

int nvidia_p2p_get_pages(u64 address, u64 size, struct nvidia_p2p_page_table **table,
			 void (*callback)(void *data), void *data);
int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *table);
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *table);
int nvidia_p2p_dma_map_pages(struct device *dev, struct nvidia_p2p_page_table *table,
			     struct nvidia_p2p_dma_mapping **mapping,
			     enum dma_data_direction direction);
int nvidia_p2p_dma_unmap_pages(struct nvidia_p2p_dma_mapping *mapping);

#endif
