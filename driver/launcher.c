// SPDX-License-Identifier: GPL-2.0
/*
 * The registers of the launcher: the queues by which GPUs start jobs, and the slots of these jobs.
 */
#include <linux/bitfield.h>

#include "core.h"

static u32 launcher_slot(u32 slot)
{
	return PEERDMA_LAUNCH_SLOT_BASE + slot * PEERDMA_LAUNCH_SLOT_STRIDE;
}

static void launcher_write_address(struct peerdma_dev *board, u32 reg, u64 address)
{
	peerdma_write(board, reg, lower_32_bits(address));
	peerdma_write(board, reg + sizeof(u32), upper_32_bits(address));
}

/**
 * peerdma_launcher_identify() - notes the launch queues of a board
 * @board: its capabilities are known
 */
void peerdma_launcher_identify(struct peerdma_dev *board)
{
	u32 end = PEERDMA_LAUNCH_QUEUE_BASE + PEERDMA_LAUNCH_QUEUES * PEERDMA_LAUNCH_QUEUE_STRIDE;
	u32 channels, n;

	if (!(board->capabilities & PEERDMA_CAPABILITY_LAUNCH) || board->dma_length < end)
		return;
	channels = peerdma_read(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_CHANNELS_REG);
	board->launch_count = min_t(u32, PEERDMA_LAUNCH_QUEUES,
				    FIELD_GET(PEERDMA_EXTENSION_CHANNELS_LAUNCH_QUEUES, channels));
	for (n = 0; n < board->launch_count; n++) {
		board->launches[n].board = board;
		board->launches[n].number = n;
	}
}

/**
 * peerdma_launcher_read() - reads a register of a queue
 * @launch: called with the board's lock held, or before the board is used
 * @reg: PEERDMA_LAUNCH_QUEUE_*_REG
 *
 * Return: its value; all ones if the board does not answer.
 */
u32 peerdma_launcher_read(const struct peerdma_launch *launch, u32 reg)
{
	return peerdma_read(launch->board, PEERDMA_LAUNCH_QUEUE_BASE +
			    launch->number * PEERDMA_LAUNCH_QUEUE_STRIDE + reg);
}

/**
 * peerdma_launcher_write() - writes a register of a queue
 * @launch: as for peerdma_launcher_read()
 * @reg: PEERDMA_LAUNCH_QUEUE_*_REG
 * @value: the value
 */
void peerdma_launcher_write(const struct peerdma_launch *launch, u32 reg, u32 value)
{
	peerdma_write(launch->board, PEERDMA_LAUNCH_QUEUE_BASE +
		      launch->number * PEERDMA_LAUNCH_QUEUE_STRIDE + reg, value);
}

/**
 * peerdma_launcher_point() - writes two registers of a queue, with an address
 * @launch: neither armed nor busy
 * @reg: PEERDMA_LAUNCH_QUEUE_*_LO_REG
 * @address: on the bus
 */
void peerdma_launcher_point(const struct peerdma_launch *launch, u32 reg, u64 address)
{
	launcher_write_address(launch->board, PEERDMA_LAUNCH_QUEUE_BASE +
			       launch->number * PEERDMA_LAUNCH_QUEUE_STRIDE + reg, address);
}

/**
 * peerdma_launcher_find_idle() - finds a queue that can be handed out
 * @board: called with its lock held
 *
 * Return: the queue, or NULL if all are in use.
 */
struct peerdma_launch *peerdma_launcher_find_idle(struct peerdma_dev *board)
{
	struct peerdma_launch *launch;
	u32 n;

	/* In rotation, for the sake of GPUs that have the page of one mapped for too long. */
	for (n = 0; n < board->launch_count; n++) {
		launch = &board->launches[(board->launch_generation + n) % board->launch_count];
		if (launch->state == LANE_IDLE && !launch->map_offset)
			return launch;
	}
	return NULL;
}

/**
 * peerdma_launcher_quiet() - tells all queues to stop
 * @board: the board
 */
void peerdma_launcher_quiet(struct peerdma_dev *board)
{
	struct peerdma_launch *launch;

	for_each_launch(launch, board)
		peerdma_launcher_write(launch, PEERDMA_LAUNCH_QUEUE_CONTROL_REG, 0);
}

/**
 * peerdma_launcher_busy() - whether a queue may touch memory
 * @board: its queues have been told to stop
 *
 * Return: true also if the board does not answer.
 */
bool peerdma_launcher_busy(struct peerdma_dev *board)
{
	struct peerdma_launch *launch;

	for_each_launch(launch, board)
		if (peerdma_launcher_read(launch, PEERDMA_LAUNCH_QUEUE_STATE_REG) &
		    PEERDMA_LAUNCH_QUEUE_STATE_BUSY)
			return true;
	return false;
}

/**
 * peerdma_launcher_clear() - invalidates all slots, whoever has filled them
 * @board: no queue is armed
 */
void peerdma_launcher_clear(struct peerdma_dev *board)
{
	u32 slot;

	for (slot = 0; board->launch_count && slot < PEERDMA_LAUNCH_SLOTS; slot++)
		peerdma_launcher_invalidate(board, slot);
}

/**
 * peerdma_launcher_fill() - writes the first descriptor of a job into a slot
 * @board: the board
 * @slot: it is not valid
 * @first: as in memory
 */
void peerdma_launcher_fill(struct peerdma_dev *board, u32 slot,
			   const struct peerdma_descriptor *first)
{
	const __le32 *words = (const __le32 *)first;
	u32 n;

	for (n = 0; n < sizeof(*first) / sizeof(*words); n++)
		peerdma_write(board, launcher_slot(slot) + n * sizeof(*words),
			      le32_to_cpu(words[n]));
}

/**
 * peerdma_launcher_validate() - has queues start the job in a slot
 * @board: the board
 * @slot: it is filled
 * @control: PEERDMA_LAUNCH_SLOT_CONTROL_*, but for VALID
 * @flush: address of the flush read, if @control has one
 * @done: address of the done word, if @control has one
 */
void peerdma_launcher_validate(struct peerdma_dev *board, u32 slot, u32 control, u64 flush,
			       u64 done)
{
	u32 base = launcher_slot(slot);

	launcher_write_address(board, base + PEERDMA_LAUNCH_SLOT_FLUSH_LO_REG, flush);
	launcher_write_address(board, base + PEERDMA_LAUNCH_SLOT_DONE_LO_REG, done);
	/* writel() orders descriptors in memory before it. */
	peerdma_write(board, base + PEERDMA_LAUNCH_SLOT_CONTROL_REG,
		      control | PEERDMA_LAUNCH_SLOT_CONTROL_VALID);
}

/**
 * peerdma_launcher_invalidate() - keeps queues from starting the job in a slot
 * @board: the board
 * @slot: it may be at work until the state of its queue, read later, says otherwise
 */
void peerdma_launcher_invalidate(struct peerdma_dev *board, u32 slot)
{
	peerdma_write(board, launcher_slot(slot) + PEERDMA_LAUNCH_SLOT_CONTROL_REG, 0);
}

/**
 * peerdma_launcher_flush() - waits until what was written to the board has arrived there
 * @board: it has launch queues
 *
 * What GPUs write, and the board reads in memory, takes other paths, and could come before.
 */
void peerdma_launcher_flush(struct peerdma_dev *board)
{
	peerdma_launcher_read(board->launches, PEERDMA_LAUNCH_QUEUE_STATE_REG);
}
