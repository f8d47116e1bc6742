// SPDX-License-Identifier: GPL-2.0
/*
 * Registers of the user BAR that programs may use: the LEDs, and those of the user blocks.
 */
#include <linux/io.h>

#include "files.h"

/* Reads a register, or writes it first. */
static int user_access(struct peerdma_file *file, u32 offset, bool write, u32 *value)
{
	struct peerdma_dev *board = file->board;
	int error = 0;

	/* The gate alone is not enough: nobody holds it between a link's error and its recovery. */
	if (down_read_killable(&board->gate))
		return -EINTR;
	spin_lock_irq(&board->lock);
	if (board->state != PEERDMA_BOARD_LIVE)
		error = board->state == PEERDMA_BOARD_DEAD ? -ENODEV : -EBUSY;
	else if (write)
		writel(*value, board->user + offset);
	else
		*value = readl(board->user + offset);
	spin_unlock_irq(&board->lock);
	up_read(&board->gate);
	if (error)
		peerdma_fail(file, error, error == -EBUSY ? "the board is being reset: try again" :
							    "the board is gone");
	return error;
}

/**
 * peerdma_user_set_leds() - PEERDMA_IOC_LED
 * @file: whose
 * @value: a bit for each LED
 *
 * Return: 0 or an errno.
 */
int peerdma_user_set_leds(struct peerdma_file *file, u32 value)
{
	return user_access(file, PEERDMA_USER_BASE + PEERDMA_USER_LED_REG, true, &value);
}

/**
 * peerdma_user_register() - PEERDMA_IOC_USER_REGISTER
 * @file: whose
 * @request: the request; its value is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_user_register(struct peerdma_file *file, struct peerdma_user_register *request)
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
	return user_access(file, PEERDMA_USER_BLOCK_BASE +
				 request->block * PEERDMA_USER_BLOCK_SIZE + request->offset,
			   request->flags & PEERDMA_REGISTER_WRITE, &request->value);
}
