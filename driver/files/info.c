// SPDX-License-Identifier: GPL-2.0
/*
 * PEERDMA_IOC_GET_INFO: what is known of driver, board and file.
 */
#include <linux/iommu.h>
#include <linux/pci.h>

#include "files.h"

static void info_identity(const struct pci_dev *pdev, struct peerdma_info *info)
{
	info->vendor = pdev->vendor;
	info->device = pdev->device;
	info->subsystem_vendor = pdev->subsystem_vendor;
	info->subsystem_device = pdev->subsystem_device;
	strscpy(info->bus_id, pci_name(pdev), sizeof(info->bus_id));
}

/* From configuration space. If that does not answer any more it reads as ones. */
static void info_link(struct pci_dev *pdev, struct peerdma_info *info)
{
	u16 status = 0;

	pcie_capability_read_word(pdev, PCI_EXP_LNKSTA, &status);
	if (status == U16_MAX)
		return;
	info->link_speed = status & PCI_EXP_LNKSTA_CLS;
	info->link_width = (status & PCI_EXP_LNKSTA_NLW) >> PCI_EXP_LNKSTA_NLW_SHIFT;
	info->max_payload = pcie_get_mps(pdev);
	info->max_read_request = pcie_get_readrq(pdev);
}

/* Lets the library warn a program that is going to pin more than any GPU exposes. */
static u64 info_largest_aperture(void)
{
	struct pci_dev *pdev = NULL;
	u64 largest = 0;
	int n;

	for_each_pci_dev(pdev) {
		if (pdev->class >> 16 != PCI_BASE_CLASS_DISPLAY)
			continue;
		for (n = 0; n < PCI_STD_NUM_BARS; n++)
			if (pci_resource_flags(pdev, n) & IORESOURCE_MEM)
				largest = max_t(u64, largest, pci_resource_len(pdev, n));
	}
	return largest;
}

static bool info_translated(struct pci_dev *pdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	return domain && domain->type & __IOMMU_DOMAIN_PAGING;
}

static void info_board(struct peerdma_dev *board, struct peerdma_info *info)
{
	spin_lock_irq(&board->lock);
	info->state = board->state;
	info->generation = board->generation;
	info->pinned_bytes = board->pinned_bytes;
	info->jobs = board->jobs;
	info->failures = board->failures;
	info->timeouts = board->timeouts;
	info->lost_interrupts = board->lost_interrupts;
	spin_unlock_irq(&board->lock);

	info->index = board->index;
	info->board_version = board->version;
	info->capabilities = board->capabilities;
	info->h2c_channels = board->h2c_channels;
	info->c2h_channels = board->c2h_channels;
	info->card_ram_size = board->card_ram_size;
	info->staging_size = board->staging * peerdma_channels(board);
	info->stream_window = board->stream_window;
	info->user_block = board->user_block;
	info->user_ratio = board->user_ratio;
	info->clock_khz = board->clock_khz;
	info->time_scale = board->time_scale;
	info->interrupts = board->interrupts;
	info->vectors = board->vectors;
}

/**
 * peerdma_info_get() - fills in the structure of PEERDMA_IOC_GET_INFO
 * @file: whose
 * @info: to be filled in
 *
 * Also works on a board that is gone.
 */
void peerdma_info_get(struct peerdma_file *file, struct peerdma_info *info)
{
	struct peerdma_dev *board = file->board;
	u32 first = READ_ONCE(file->channel) * PEERDMA_DIRECTIONS;
	struct peerdma_engine *engines = &board->engines[first];

	info->uapi_version = PEERDMA_UAPI_VERSION;
	info_identity(board->pdev, info);
	info_board(board, info);
	info->aperture_size = info_largest_aperture();
	info->features = PEERDMA_FEATURE_DMABUF;
	if (board->stream_window)
		info->features |= PEERDMA_FEATURE_STREAMS;
	if (peerdma_copies_streamed(board))
		info->features |= PEERDMA_FEATURE_STREAM_COPY;
	if (peerdma_mmap_mailbox(board))
		info->features |= PEERDMA_FEATURE_MAILBOX;
	if (peerdma_provider_names(info->providers, sizeof(info->providers)))
		info->features |= PEERDMA_FEATURE_CUDA;

	down_read(&board->gate);
	if (board->state != PEERDMA_BOARD_DEAD) {
		info_link(board->pdev, info);
		info->h2c_waits_for = peerdma_hw_waits_for(&engines[PEERDMA_H2C]);
		info->c2h_waits_for = peerdma_hw_waits_for(&engines[PEERDMA_C2H]);
		if (info_translated(board->pdev))
			info->features |= PEERDMA_FEATURE_IOMMU;
	}
	up_read(&board->gate);

	spin_lock_irq(&file->why.lock);
	info->last_errno = file->why.error;
	memcpy(info->last_error, file->why.text, sizeof(info->last_error));
	spin_unlock_irq(&file->why.lock);
}
