// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registers: an XDMA-compatible DMA engine (PG195), and the extension block where there is one.
 */
#include <linux/bitfield.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/sizes.h>

#include "core.h"

/* Without the core's version, which is in the lowest byte. */
#define IDENTIFIER_MASK		0xffffff00
#define ALL_ONES		0xffffffff

#define STATUS_DONE		(PEERDMA_STATUS_DESCRIPTOR_STOPPED | \
				 PEERDMA_STATUS_DESCRIPTOR_COMPLETED)

#define VECTORS_PER_REG		4
/* Of a channel, in the register for all of them. */
#define WAITS_FOR_BITS		4
#define MAX_TIME_SCALE		1000000
#define MAX_MS			(24 * 3600 * MSEC_PER_SEC)

/**
 * peerdma_hw_scaled() - converts a time limit for the board's time scale
 * @board: the board
 * @ms: milliseconds that real hardware may take
 *
 * Return: jiffies that this board may take.
 */
unsigned long peerdma_hw_scaled(struct peerdma_dev *board, u64 ms)
{
	return msecs_to_jiffies(min_t(u64, ms * board->time_scale, MAX_MS));
}

static u32 hw_count_channels(struct peerdma_dev *board, u32 base, u32 identifier)
{
	u32 n;

	for (n = 0; n < PEERDMA_MAX_CHANNELS; n++) {
		u32 found = peerdma_read(board, base + n * PEERDMA_CHANNEL_STRIDE +
					 PEERDMA_CHANNEL_IDENTIFIER_REG);

		if ((found & IDENTIFIER_MASK) != ((identifier | n << 8) & IDENTIFIER_MASK))
			break;
	}
	return n;
}

static u32 hw_extension(struct peerdma_dev *board, u32 reg)
{
	return peerdma_read(board, PEERDMA_EXTENSION_BASE + reg);
}

/*
 * Errors: each engine has a capture of its own, that of its last run. Older boards have one for all
 * channels, in the extension block, with the same registers: it holds the first error that any of
 * them met since it was cleared. It is left alone where it is another engine's, whose interrupt may
 * still come.
 */
static u32 hw_capture_read(const struct peerdma_engine *engine, u32 reg)
{
	return peerdma_read(engine->board, engine->capture + reg);
}

static bool hw_capture_is_shared(const struct peerdma_engine *engine)
{
	return !(engine->board->capabilities & PEERDMA_CAPABILITY_CAPTURE);
}

/* Its pair and index are known. */
static void hw_place_capture(struct peerdma_engine *engine)
{
	bool c2h = engine->index == PEERDMA_C2H;
	u32 base = c2h ? PEERDMA_C2H_CAPTURE_BASE : PEERDMA_H2C_CAPTURE_BASE;

	if (!engine->board->version)
		engine->capture = 0;
	else if (hw_capture_is_shared(engine))
		engine->capture = PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_ERROR_INFO_REG -
				PEERDMA_CAPTURE_ERROR_INFO_REG;
	else
		engine->capture = base + engine->pair * PEERDMA_CAPTURE_STRIDE;
}

/**
 * peerdma_hw_capture_take() - reads what was captured of an error
 * @engine: where there was one. Called with the board's lock held
 * @address: set to where the error was met, if it was captured
 *
 * On an older board, of two engines that fail at the same time only one is explained.
 *
 * Return: enum peerdma_error_kind; 0 if nothing was captured, or without an extension block.
 */
u32 peerdma_hw_capture_take(struct peerdma_engine *engine, u64 *address)
{
	u32 info, kind;

	if (!engine->capture)
		return 0;
	info = hw_capture_read(engine, PEERDMA_CAPTURE_ERROR_INFO_REG);
	kind = FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_KIND, info);
	if (!kind || FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_CHANNEL, info) != engine->pair ||
	    FIELD_GET(PEERDMA_CAPTURE_ERROR_INFO_C2H, info) != engine->index)
		return 0;
	*address = (u64)hw_capture_read(engine, PEERDMA_CAPTURE_ERROR_ADDRESS_HI_REG) << 32 |
		   hw_capture_read(engine, PEERDMA_CAPTURE_ERROR_ADDRESS_LO_REG);
	if (hw_capture_is_shared(engine))
		peerdma_write(engine->board, PEERDMA_EXTENSION_BASE +
			      PEERDMA_EXTENSION_ERROR_CLEAR_REG, 1);
	return kind;
}

/**
 * peerdma_hw_capture_drop() - forgets what a run has met that was stopped
 * @engine: it is idle. Called with the board's lock held
 *
 * A run that fails may meet more errors behind the one that ends it. Older boards would explain the
 * next run's error by them.
 */
void peerdma_hw_capture_drop(struct peerdma_engine *engine)
{
	u64 address;

	if (hw_capture_is_shared(engine))
		peerdma_hw_capture_take(engine, &address);
}

static int hw_identify_extension(struct peerdma_dev *board)
{
	struct device *dev = &board->pdev->dev;
	u32 version, major;

	if (board->dma_length < PEERDMA_EXTENSION_BASE + PEERDMA_CHANNEL_STRIDE ||
	    hw_extension(board, PEERDMA_EXTENSION_MAGIC_REG) != PEERDMA_EXTENSION_MAGIC_RESET)
		return 0;

	version = hw_extension(board, PEERDMA_EXTENSION_VERSION_REG);
	major = FIELD_GET(PEERDMA_EXTENSION_VERSION_MAJOR, version);
	if (major != FIELD_GET(PEERDMA_EXTENSION_VERSION_MAJOR, PEERDMA_EXTENSION_VERSION_RESET))
		return dev_err_probe(dev, -EPROTO,
				     "the board's register map is version %u.%lu, this driver knows %lu.x: update the older of the two\n",
				     major, FIELD_GET(PEERDMA_EXTENSION_VERSION_MINOR, version),
				     FIELD_GET(PEERDMA_EXTENSION_VERSION_MAJOR,
					       PEERDMA_EXTENSION_VERSION_RESET));

	board->version = version;
	board->capabilities = hw_extension(board, PEERDMA_EXTENSION_CAPABILITIES_REG);
	board->card_ram_size = hw_extension(board, PEERDMA_EXTENSION_CARD_RAM_SIZE_REG);
	board->clock_khz = hw_extension(board, PEERDMA_EXTENSION_CLOCK_KHZ_REG);
	board->time_scale = clamp_t(u32, hw_extension(board, PEERDMA_EXTENSION_TIME_SCALE_REG),
				    1, MAX_TIME_SCALE);
	if (board->capabilities & PEERDMA_CAPABILITY_STREAM) {
		board->stream_window =
			(u64)hw_extension(board, PEERDMA_EXTENSION_STREAM_WINDOW_HI_REG) << 32 |
			hw_extension(board, PEERDMA_EXTENSION_STREAM_WINDOW_LO_REG);
		board->user_block = hw_extension(board, PEERDMA_EXTENSION_USER_BLOCK_REG);
		board->user_ratio = hw_extension(board, PEERDMA_EXTENSION_USER_RATIO_REG);
	}
	return 0;
}

/* Notes where the registers of an engine are. */
static void hw_place_engine(struct peerdma_dev *board, u32 number)
{
	struct peerdma_engine *engine = &board->engines[number];
	u32 pair = number / PEERDMA_DIRECTIONS;

	engine->board = board;
	engine->number = number;
	engine->pair = pair;
	engine->index = number % PEERDMA_DIRECTIONS;
	engine->chain.c2h = engine->index == PEERDMA_C2H;
	if (engine->index == PEERDMA_H2C) {
		engine->name = "H2C";
		engine->channel = PEERDMA_H2C_CHANNEL_BASE;
		engine->sgdma = PEERDMA_H2C_SGDMA_BASE;
		engine->push = PEERDMA_H2C_PUSH_BASE;
		engine->irq_bit = BIT(pair);
	} else {
		engine->name = "C2H";
		engine->channel = PEERDMA_C2H_CHANNEL_BASE;
		engine->sgdma = PEERDMA_C2H_SGDMA_BASE;
		engine->push = PEERDMA_C2H_PUSH_BASE;
		engine->irq_bit = BIT(board->h2c_channels + pair);
	}
	engine->channel += pair * PEERDMA_CHANNEL_STRIDE;
	engine->sgdma += pair * PEERDMA_SGDMA_STRIDE;
	engine->push += pair * PEERDMA_PUSH_STRIDE;
	if (!(board->capabilities & PEERDMA_CAPABILITY_PUSH))
		engine->push = 0;
	hw_place_capture(engine);
}

/**
 * peerdma_hw_identify() - reads what the board is
 * @board: its BARs are mapped; card_ram_size is what a plain XDMA board of this ID has
 *
 * Return: 0, or an errno that has been explained in the log.
 */
int peerdma_hw_identify(struct peerdma_dev *board)
{
	struct device *dev = &board->pdev->dev;
	u32 first = peerdma_read(board, PEERDMA_H2C_CHANNEL_BASE + PEERDMA_CHANNEL_IDENTIFIER_REG);
	u32 channels, n;
	int error;

	if (first == ALL_ONES)
		return dev_err_probe(dev, -ENODEV,
				     "the board answers all reads with ones: it is not powered, its link is down or its design is not loaded\n");

	board->h2c_channels = hw_count_channels(board, PEERDMA_H2C_CHANNEL_BASE,
						PEERDMA_H2C_CHANNEL_IDENTIFIER);
	board->c2h_channels = hw_count_channels(board, PEERDMA_C2H_CHANNEL_BASE,
						PEERDMA_C2H_CHANNEL_IDENTIFIER);
	if (!board->h2c_channels || !board->c2h_channels)
		return dev_err_probe(dev, -ENODEV,
				     "found %u H2C and %u C2H memory-mapped channels in BAR %d (first identifier %#x), one each is needed: check that the board's design is loaded\n",
				     board->h2c_channels, board->c2h_channels, PEERDMA_BAR_DMA,
				     first);

	channels = min(board->h2c_channels, board->c2h_channels);
	error = hw_identify_extension(board);
	if (error)
		return error;
	if (!peerdma_copies_streamed(board) && board->card_ram_size >= PAGE_SIZE) {
		u64 most = min_t(u64, board->card_ram_size / 4, SZ_1M);

		/* Powers of two, so that offsets into them can be masked. */
		board->staging = rounddown_pow_of_two(div_u64(most, channels));
		board->staging_base = board->card_ram_size - board->staging * channels;
		/*
		 * Copies leave alone what programs have in card RAM. Not on plain XDMA: NVIDIA's
		 * driver gives all of it to programs, whose copies overwrite it.
		 */
		if (board->version)
			board->card_ram_size = board->staging_base;
	}
	peerdma_launch_regs_identify(board);
	board->engine_count = channels * PEERDMA_DIRECTIONS;
	for (n = 0; n < board->engine_count; n++)
		hw_place_engine(board, n);
	return 0;
}

/**
 * peerdma_hw_quiet() - tells the DMA engine to stop and not to interrupt
 * @board: the board
 */
void peerdma_hw_quiet(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;

	for_each_engine(engine, board) {
		peerdma_channel_write(engine, PEERDMA_CHANNEL_CONTROL_REG, 0);
		peerdma_channel_write(engine, PEERDMA_CHANNEL_INTERRUPT_ENABLE_REG, 0);
	}
	peerdma_launch_regs_quiet(board);
	peerdma_write(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_CHANNEL_ENABLE_W1C_REG, ALL_ONES);
	peerdma_write(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_USER_ENABLE_W1C_REG, ALL_ONES);
}

static bool hw_all_idle(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;
	u32 status;

	for_each_engine(engine, board) {
		status = peerdma_channel_read(engine, PEERDMA_CHANNEL_STATUS_REG);
		if (status == ALL_ONES || status & PEERDMA_STATUS_BUSY)
			return false;
	}
	return !peerdma_launch_regs_busy(board);
}

/* May sleep. */
static bool hw_becomes_idle(struct peerdma_dev *board)
{
	unsigned long deadline = jiffies + peerdma_hw_scaled(board, PEERDMA_STOP_MS);

	while (!hw_all_idle(board)) {
		if (time_after(jiffies, deadline))
			return false;
		usleep_range(100, 200);
	}
	return true;
}

/**
 * peerdma_hw_soft_reset() - resets the DMA engine through the extension block
 * @board: no engine is in use. May sleep
 *
 * Return: whether the board has one and the DMA engine is idle now.
 */
bool peerdma_hw_soft_reset(struct peerdma_dev *board)
{
	if (!board->version)
		return false;
	peerdma_write(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_SOFT_RESET_REG, 1);
	return hw_becomes_idle(board);
}

/**
 * peerdma_hw_calm() - brings the DMA engine from any state to one in which it touches no memory
 * @board: no engine is in use. May sleep
 *
 * Return: 0, or -EIO if a channel does not stop.
 */
int peerdma_hw_calm(struct peerdma_dev *board)
{
	peerdma_hw_quiet(board);
	return hw_becomes_idle(board) || peerdma_hw_soft_reset(board) ? 0 : -EIO;
}

/**
 * peerdma_hw_init() - prepares an idle DMA engine for chains
 * @board: after peerdma_hw_calm(); interrupt vectors are allocated
 */
void peerdma_hw_init(struct peerdma_dev *board)
{
	u32 vectors[2 * PEERDMA_MAX_CHANNELS / VECTORS_PER_REG] = { 0 };
	struct peerdma_engine *engine;
	u32 bit;

	peerdma_launch_regs_clear(board);
	/* Of a former owner's. */
	peerdma_write(board, PEERDMA_SGDMA_COMMON_BASE +
		      PEERDMA_SGDMA_COMMON_CREDIT_ENABLE_W1C_REG, ALL_ONES);
	if (board->capabilities & PEERDMA_CAPABILITY_FRAME_RECORDS)
		peerdma_write(board, PEERDMA_EXTENSION_BASE +
			      PEERDMA_EXTENSION_FRAME_RECORDS_REG, 0);

	for_each_engine(engine, board) {
		peerdma_channel_read(engine, PEERDMA_CHANNEL_STATUS_RC_REG);
		peerdma_channel_write(engine, PEERDMA_CHANNEL_INTERRUPT_ENABLE_REG,
				      STATUS_DONE | PEERDMA_STATUS_ERRORS);
		bit = ilog2(engine->irq_bit);
		if (engine->number < board->vectors)
			vectors[bit / VECTORS_PER_REG] |=
				engine->number << bit % VECTORS_PER_REG * BITS_PER_BYTE;
	}
	peerdma_write(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_CHANNEL_VECTOR0_REG, vectors[0]);
	peerdma_write(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_CHANNEL_VECTOR1_REG, vectors[1]);
	for_each_engine(engine, board)
		peerdma_write(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_CHANNEL_ENABLE_W1S_REG,
			      engine->irq_bit);
	if (board->version)
		peerdma_write(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_ERROR_CLEAR_REG, 1);
}

/**
 * peerdma_hw_stop() - clears Run
 * @engine: it may still be busy afterwards. Called with the board's lock held
 */
void peerdma_hw_stop(struct peerdma_engine *engine)
{
	peerdma_channel_write(engine, PEERDMA_CHANNEL_CONTROL_REG, 0);
}

/**
 * peerdma_hw_status() - reads an engine's status
 * @engine: called with the board's lock held
 * @clear: also clear its events
 *
 * Return: PEERDMA_STATUS_*; all ones if the board does not answer.
 */
u32 peerdma_hw_status(struct peerdma_engine *engine, bool clear)
{
	return peerdma_channel_read(engine, clear ? PEERDMA_CHANNEL_STATUS_RC_REG :
					  PEERDMA_CHANNEL_STATUS_REG);
}

/**
 * peerdma_hw_done() - checks that a chain ended as it should
 * @engine: called with the board's lock held
 * @status: of the engine
 *
 * Return: true if all its descriptors were completed without error.
 */
bool peerdma_hw_done(struct peerdma_engine *engine, u32 status)
{
	return (status & (STATUS_DONE | PEERDMA_STATUS_ERRORS)) == STATUS_DONE &&
	       peerdma_channel_read(engine, PEERDMA_CHANNEL_COMPLETED_COUNT_REG) == engine->count;
}

/**
 * peerdma_hw_cycles() - reads how long the last chain took
 * @engine: called with the board's lock held
 *
 * Return: clock cycles that the channel was busy.
 */
u64 peerdma_hw_cycles(struct peerdma_engine *engine)
{
	u32 low = peerdma_channel_read(engine, PEERDMA_CHANNEL_PERF_CYCLES_LO_REG);
	u32 high = peerdma_channel_read(engine, PEERDMA_CHANNEL_PERF_CYCLES_HI_REG);

	return (u64)FIELD_GET(PEERDMA_CHANNEL_PERF_CYCLES_HI_HIGH, high) << 32 | low;
}

/**
 * peerdma_hw_progress() - reads how far a chain has come
 * @engine: called with the board's lock held
 *
 * On any XDMA core. The DMA engine clears both counters when a chain starts.
 *
 * Return: a value that changes whenever data moves: descriptors completed, and beats of data.
 */
u64 peerdma_hw_progress(struct peerdma_engine *engine)
{
	u32 count = peerdma_channel_read(engine, PEERDMA_CHANNEL_COMPLETED_COUNT_REG);

	return (u64)count << 32 | peerdma_channel_read(engine, PEERDMA_CHANNEL_PERF_DATA_LO_REG);
}

/**
 * peerdma_hw_flush_stream() - discards what is in a user stream
 * @board: has one
 * @channel: its number
 *
 * Once both engines of the channel are idle; until then neither starts.
 */
void peerdma_hw_flush_stream(struct peerdma_dev *board, u32 channel)
{
	peerdma_write(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_STREAM_FLUSH_REG,
		      BIT(channel));
}

/**
 * peerdma_hw_overcommit_off() - reads whether the board has stopped to overcommit
 * @board: not gone
 *
 * Return: PEERDMA_CAPABILITY_OVERCOMMIT_OFF, the one capability that changes, or 0.
 */
u32 peerdma_hw_overcommit_off(struct peerdma_dev *board)
{
	if (!(board->capabilities & PEERDMA_CAPABILITY_OVERCOMMIT))
		return 0;
	return hw_extension(board, PEERDMA_EXTENSION_CAPABILITIES_REG) &
	       PEERDMA_CAPABILITY_OVERCOMMIT_OFF;
}

/**
 * peerdma_hw_waits_for() - reads why an engine does not move
 * @engine: of a board that is not gone
 *
 * Return: enum peerdma_waits_for; NOTHING also if the board cannot tell.
 */
u32 peerdma_hw_waits_for(struct peerdma_engine *engine)
{
	struct peerdma_dev *board = engine->board;
	u32 waits_for;

	if (!board->version)
		return PEERDMA_WAITS_FOR_NOTHING;
	waits_for = hw_extension(board, PEERDMA_EXTENSION_WAITS_FOR_REG) >>
		    engine->pair * WAITS_FOR_BITS;
	return engine->index == PEERDMA_H2C ?
	       FIELD_GET(PEERDMA_EXTENSION_WAITS_FOR_H2C0, waits_for) :
	       FIELD_GET(PEERDMA_EXTENSION_WAITS_FOR_C2H0, waits_for);
}

/**
 * peerdma_hw_clock() - reads the board's cycle counter
 * @board: with an extension block; called with its lock held
 *
 * Return: clock cycles since the board was reset.
 */
u64 peerdma_hw_clock(struct peerdma_dev *board)
{
	/* This latches the upper half for the next read. */
	u32 low = hw_extension(board, PEERDMA_EXTENSION_CYCLES_LO_REG);

	return (u64)hw_extension(board, PEERDMA_EXTENSION_CYCLES_HI_REG) << 32 | low;
}
