// SPDX-License-Identifier: GPL-2.0
/*
 * PEERDMA_IOC_SET_CONTEXT: what an open file has for itself.
 */
#include <linux/sizes.h>

#include "files.h"

static int context_check(struct peerdma_file *file, const struct peerdma_context *context)
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
static int context_take(struct peerdma_file *file, const struct peerdma_context *context)
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
 * peerdma_context_set() - PEERDMA_IOC_SET_CONTEXT
 * @file: whose
 * @context: the request; the place of its card RAM is filled in
 *
 * Return: 0 or an errno. After -EINTR the file has its context.
 */
int peerdma_context_set(struct peerdma_file *file, struct peerdma_context *context)
{
	struct peerdma_dev *board = file->board;
	int error = context_check(file, context);

	if (error)
		return error;
	spin_lock_irq(&board->lock);
	error = context_take(file, context);
	spin_unlock_irq(&board->lock);
	if (error)
		return error;
	context->ram_address = file->ram;
	return peerdma_partition_wait(file);
}
