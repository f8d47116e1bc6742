// SPDX-License-Identifier: GPL-2.0
/*
 * What the board captured of an error. A channel has a capture of its own, which is of its last run.
 *
 * Older boards have one for all channels, in the extension block, with the same registers: it holds
 * the first error that any of them met since it was cleared. It is left alone where it is another
 * lane's, whose interrupt may still come.
 */
#include <linux/bitfield.h>

#include "core.h"

static u32 capture_read(const struct peerdma_lane *lane, u32 reg)
{
	return peerdma_read(lane->board, lane->capture + reg);
}

static bool capture_is_shared(const struct peerdma_lane *lane)
{
	return !(lane->board->capabilities & PEERDMA_CAPABILITY_CAPTURE);
}

/**
 * peerdma_capture_place() - notes where the error capture of a lane is
 * @lane: its pair and index are known
 */
void peerdma_capture_place(struct peerdma_lane *lane)
{
	u32 base = lane->index == PEERDMA_H2C ? PEERDMA_H2C_CAPTURE_BASE : PEERDMA_C2H_CAPTURE_BASE;

	if (!lane->board->version)
		lane->capture = 0;
	else if (capture_is_shared(lane))
		lane->capture = PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_ERROR_INFO_REG -
				PEERDMA_CAPTURE_ERROR_INFO_REG;
	else
		lane->capture = base + lane->pair * PEERDMA_CAPTURE_STRIDE;
}

/**
 * peerdma_capture_take() - reads what was captured of an error
 * @lane: where there was one. Called with the board's lock held
 * @address: set to where the error was met, if it was captured
 *
 * On an older board, of two lanes that fail at the same time only one is explained.
 *
 * Return: enum peerdma_error_kind; 0 if nothing was captured, or without an extension block.
 */
u32 peerdma_capture_take(struct peerdma_lane *lane, u64 *address)
{
	u32 info, kind;

	if (!lane->capture)
		return 0;
	info = capture_read(lane, PEERDMA_CAPTURE_ERROR_INFO_REG);
	kind = FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_KIND, info);
	if (!kind || FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_CHANNEL, info) != lane->pair ||
	    FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_C2H, info) != (lane->index == PEERDMA_C2H))
		return 0;
	*address = (u64)capture_read(lane, PEERDMA_CAPTURE_ERROR_ADDRESS_HI_REG) << 32 |
		   capture_read(lane, PEERDMA_CAPTURE_ERROR_ADDRESS_LO_REG);
	if (capture_is_shared(lane))
		peerdma_write(lane->board, PEERDMA_EXTENSION_BASE +
			      PEERDMA_EXTENSION_ERROR_CLEAR_REG, 1);
	return kind;
}

/**
 * peerdma_capture_drop() - forgets what a run has met that was stopped
 * @lane: it is idle. Called with the board's lock held
 *
 * A run that fails may meet more errors behind the one that ends it. Older boards would explain the
 * next run's error by them.
 */
void peerdma_capture_drop(struct peerdma_lane *lane)
{
	u64 address;

	if (capture_is_shared(lane))
		peerdma_capture_take(lane, &address);
}
