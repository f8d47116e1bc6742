// SPDX-License-Identifier: GPL-2.0-only
/*
 * The board as programs see it: what is known of it, the registers of the user BAR that they may
 * use (the LEDs, and those of the user blocks), its cycle counter, and what an open file has of it
 * for itself.
 */
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/ktime.h>
#include <linux/pci.h>
#include <linux/sizes.h>

#include "files.h"

static void board_uapi_identity(const struct pci_dev *pdev, struct peerdma_info *info)
{
	info->vendor = pdev->vendor;
	info->device = pdev->device;
	info->subsystem_vendor = pdev->subsystem_vendor;
	info->subsystem_device = pdev->subsystem_device;
	strscpy(info->bus_id, pci_name(pdev), sizeof(info->bus_id));
}

/* From configuration space. If that does not answer any more it reads as ones. */
static void board_uapi_link(struct pci_dev *pdev, struct peerdma_info *info)
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
static u64 board_uapi_largest_aperture(void)
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

static bool board_uapi_translated(struct pci_dev *pdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	return domain && domain->type & __IOMMU_DOMAIN_PAGING;
}

static void board_uapi_counts(struct peerdma_dev *board, struct peerdma_info *info)
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
 * peerdma_board_uapi_info() - fills in the structure of PEERDMA_IOC_GET_INFO
 * @file: whose
 * @info: to be filled in
 *
 * Also works on a board that is gone.
 */
void peerdma_board_uapi_info(struct peerdma_file *file, struct peerdma_info *info)
{
	struct peerdma_dev *board = file->board;
	u32 first = READ_ONCE(file->channel) * PEERDMA_DIRECTIONS;
	struct peerdma_engine *engines = &board->engines[first];
	size_t length;

	info->uapi_version = PEERDMA_UAPI_VERSION;
	board_uapi_identity(board->pdev, info);
	board_uapi_counts(board, info);
	info->aperture_size = board_uapi_largest_aperture();
	info->features = PEERDMA_FEATURE_DMABUF;
	if (board->stream_window)
		info->features |= PEERDMA_FEATURE_STREAMS;
	if (board->version)
		info->features |= PEERDMA_FEATURE_CLOCK;
	if (board->hw_queue_count)
		info->features |= PEERDMA_FEATURE_OVERLAP;
	if (board->capabilities & PEERDMA_CAPABILITY_RECEIVE)
		info->features |= PEERDMA_FEATURE_RECEIVE;
	if (peerdma_copies_streamed(board))
		info->features |= PEERDMA_FEATURE_STREAM_COPY;
	if (peerdma_mmap_mailbox(board))
		info->features |= PEERDMA_FEATURE_MAILBOX;
	length = scnprintf(info->providers, sizeof(info->providers), "%s %s", peerdma_pages.name,
			   peerdma_dmabuf.name);
	if (peerdma_surface_list_gpu(info->providers + length, sizeof(info->providers) - length))
		info->features |= PEERDMA_FEATURE_CUDA;

	down_read(&board->gate);
	if (board->state != PEERDMA_BOARD_DEAD) {
		board_uapi_link(board->pdev, info);
		info->capabilities |= peerdma_hw_overcommit_off(board);
		info->h2c_waits_for = peerdma_hw_waits_for(&engines[PEERDMA_H2C]);
		info->c2h_waits_for = peerdma_hw_waits_for(&engines[PEERDMA_C2H]);
		if (board_uapi_translated(board->pdev))
			info->features |= PEERDMA_FEATURE_IOMMU;
	}
	up_read(&board->gate);

	spin_lock_irq(&file->why.lock);
	info->last_errno = file->why.error;
	memcpy(info->last_error, file->why.text, sizeof(info->last_error));
	spin_unlock_irq(&file->why.lock);
}

/* Called with the board's lock held: 0 if its registers can be used, or an errno. */
static int board_uapi_usable(const struct peerdma_dev *board)
{
	if (board->state == PEERDMA_BOARD_LIVE)
		return 0;
	return board->state == PEERDMA_BOARD_DEAD ? -ENODEV : -EBUSY;
}

/* Explains what board_uapi_usable() returned, and returns it. */
static int board_uapi_explain(struct peerdma_file *file, int error)
{
	if (error)
		peerdma_fail(file, error, error == -EBUSY ? "the board is being reset: try again" :
							    "the board is gone");
	return error;
}

/* Reads a register, or writes it first. */
static int board_uapi_access(struct peerdma_file *file, u32 offset, bool write, u32 *value)
{
	struct peerdma_dev *board = file->board;
	int error;

	/* The gate alone is not enough: nobody holds it between a link's error and its recovery. */
	if (down_read_killable(&board->gate))
		return -EINTR;
	spin_lock_irq(&board->lock);
	error = board_uapi_usable(board);
	if (!error && write)
		writel(*value, board->user + offset);
	else if (!error)
		*value = readl(board->user + offset);
	spin_unlock_irq(&board->lock);
	up_read(&board->gate);
	return board_uapi_explain(file, error);
}

/**
 * peerdma_board_uapi_set_leds() - PEERDMA_IOC_LED
 * @file: whose
 * @value: a bit for each LED
 *
 * Return: 0 or an errno.
 */
int peerdma_board_uapi_set_leds(struct peerdma_file *file, u32 value)
{
	return board_uapi_access(file, PEERDMA_USER_BASE + PEERDMA_USER_LED_REG, true, &value);
}

/**
 * peerdma_board_uapi_register() - PEERDMA_IOC_USER_REGISTER
 * @file: whose
 * @request: the request; its value is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_board_uapi_register(struct peerdma_file *file, struct peerdma_user_register *request)
{
	const struct peerdma_dev *board = file->board;
	u32 blocks = peerdma_channels(board);

	if (request->flags & ~PEERDMA_REGISTER_WRITE)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", request->flags);
	if (!board->stream_window)
		return peerdma_fail(file, -EOPNOTSUPP, "this board has no user block");
	if (request->block >= blocks)
		return peerdma_fail(file, -EINVAL, "there is no user block %u: the board has %u",
				    request->block, blocks);
	if (request->offset % sizeof(u32) || request->offset >= PEERDMA_USER_BLOCK_SIZE)
		return peerdma_fail(file, -EINVAL,
				    "a user block's registers are at multiples of 4 below %#x, not at %#x",
				    PEERDMA_USER_BLOCK_SIZE, request->offset);
	return board_uapi_access(file, PEERDMA_USER_BLOCK_BASE +
				 request->block * PEERDMA_USER_BLOCK_SIZE + request->offset,
			   request->flags & PEERDMA_REGISTER_WRITE, &request->value);
}

/**
 * peerdma_board_uapi_read_clock() - PEERDMA_IOC_READ_CLOCK
 * @file: whose
 * @clock: the request; the counter and its times are filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_board_uapi_read_clock(struct peerdma_file *file, struct peerdma_clock *clock)
{
	struct peerdma_dev *board = file->board;
	int error;

	if (!board->version)
		return peerdma_fail(file, -EOPNOTSUPP, "this board has no cycle counter");
	if (down_read_killable(&board->gate))
		return -EINTR;
	/* Nobody reads between the two halves; nor is there an interrupt between the times. */
	spin_lock_irq(&board->lock);
	error = board_uapi_usable(board);
	if (!error) {
		clock->before_ns = ktime_get_ns();
		clock->cycles = peerdma_hw_clock(board);
		clock->after_ns = ktime_get_ns();
	}
	spin_unlock_irq(&board->lock);
	up_read(&board->gate);
	return board_uapi_explain(file, error);
}

static int board_uapi_check_context(struct peerdma_file *file,
				    const struct peerdma_context *context)
{
	if (context->flags || context->reserved)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x, or a reserved member %u",
				    context->flags, context->reserved);
	if (context->channel >= peerdma_channels(file->board))
		return peerdma_fail(file, -EINVAL,
				    "there is no channel %u: the board has %u in both directions",
				    context->channel, peerdma_channels(file->board));
	if (context->ram_length % SZ_4K)
		return peerdma_fail(file, -EINVAL,
				    "card RAM is given in multiples of 4096 bytes, not %llu",
				    context->ram_length);
	return 0;
}

/* Called with the board's lock held. */
static int board_uapi_take_context(struct peerdma_file *file, const struct peerdma_context *context)
{
	if (file->board->state == PEERDMA_BOARD_DEAD)
		return peerdma_fail(file, -ENODEV, "the board is gone");
	if (file->has_context || atomic64_read(&file->next_job))
		return peerdma_fail(file, -EBUSY,
				    "this open file has its context, or has made transfers: open the node once more");
	if (context->ram_length && peerdma_partition_place(file, context->ram_length))
		return peerdma_fail(file, -ENOSPC,
				    "%llu bytes of card RAM are more than is free of its upper half, or too many open files have some",
				    context->ram_length);
	peerdma_stop_barred(file->board);
	file->has_context = true;
	WRITE_ONCE(file->channel, context->channel);
	return 0;
}

/**
 * peerdma_board_uapi_set_context() - PEERDMA_IOC_SET_CONTEXT
 * @file: whose
 * @context: the request; the place of its card RAM is filled in
 *
 * Return: 0 or an errno. After -EINTR the file has its context.
 */
int peerdma_board_uapi_set_context(struct peerdma_file *file, struct peerdma_context *context)
{
	struct peerdma_dev *board = file->board;
	int error = board_uapi_check_context(file, context);

	if (error)
		return error;
	spin_lock_irq(&board->lock);
	error = board_uapi_take_context(file, context);
	spin_unlock_irq(&board->lock);
	if (error)
		return error;
	context->ram_address = file->ram;
	return peerdma_partition_wait(file);
}
