// SPDX-License-Identifier: GPL-2.0
/*
 * What the board captured of an error. Each engine has a capture of its own, that of its last run.
 *
 * Older boards have one for all channels, in the extension block, with the same registers: it holds
 * the first error that any of them met since it was cleared. It is left alone where it is another
 * engine's, whose interrupt may still come.
 */
#include <linux/bitfield.h>

#include "core.h"

static u32 capture_read(const struct peerdma_engine *engine, u32 reg)
{
	return peerdma_read(engine->board, engine->capture + reg);
}

static bool capture_is_shared(const struct peerdma_engine *engine)
{
	return !(engine->board->capabilities & PEERDMA_CAPABILITY_CAPTURE);
}

/**
 * peerdma_capture_place() - notes where the error capture of an engine is
 * @engine: its pair and index are known
 */
void peerdma_capture_place(struct peerdma_engine *engine)
{
	bool c2h = engine->index == PEERDMA_C2H;
	u32 base = c2h ? PEERDMA_C2H_CAPTURE_BASE : PEERDMA_H2C_CAPTURE_BASE;

	if (!engine->board->version)
		engine->capture = 0;
	else if (capture_is_shared(engine))
		engine->capture = PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_ERROR_INFO_REG -
				PEERDMA_CAPTURE_ERROR_INFO_REG;
	else
		engine->capture = base + engine->pair * PEERDMA_CAPTURE_STRIDE;
}

/**
 * peerdma_capture_take() - reads what was captured of an error
 * @engine: where there was one. Called with the board's lock held
 * @address: set to where the error was met, if it was captured
 *
 * On an older board, of two engines that fail at the same time only one is explained.
 *
 * Return: enum peerdma_error_kind; 0 if nothing was captured, or without an extension block.
 */
u32 peerdma_capture_take(struct peerdma_engine *engine, u64 *address)
{
	u32 info, kind;

	if (!engine->capture)
		return 0;
	info = capture_read(engine, PEERDMA_CAPTURE_ERROR_INFO_REG);
	kind = FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_KIND, info);
	if (!kind || FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_CHANNEL, info) != engine->pair ||
	    FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_C2H, info) != (engine->index == PEERDMA_C2H))
		return 0;
	*address = (u64)capture_read(engine, PEERDMA_CAPTURE_ERROR_ADDRESS_HI_REG) << 32 |
		   capture_read(engine, PEERDMA_CAPTURE_ERROR_ADDRESS_LO_REG);
	if (capture_is_shared(engine))
		peerdma_write(engine->board, PEERDMA_EXTENSION_BASE +
			      PEERDMA_EXTENSION_ERROR_CLEAR_REG, 1);
	return kind;
}

/**
 * peerdma_capture_drop() - forgets what a run has met that was stopped
 * @engine: it is idle. Called with the board's lock held
 *
 * A run that fails may meet more errors behind the one that ends it. Older boards would explain the
 * next run's error by them.
 */
void peerdma_capture_drop(struct peerdma_engine *engine)
{
	u64 address;

	if (capture_is_shared(engine))
		peerdma_capture_take(engine, &address);
}
