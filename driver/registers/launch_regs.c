// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registers of launch queues, by which GPUs start jobs, and of the slots of these jobs.
 */
#include <linux/bitfield.h>

#include "core.h"

static u32 launch_regs_slot(u32 slot)
{
	return PEERDMA_LAUNCH_SLOT_BASE + slot * PEERDMA_LAUNCH_SLOT_STRIDE;
}

static void launch_regs_write_address(struct peerdma_dev *board, u32 reg, u64 address)
{
	peerdma_write(board, reg, lower_32_bits(address));
	peerdma_write(board, reg + sizeof(u32), upper_32_bits(address));
}

/**
 * peerdma_launch_regs_identify() - notes the launch queues of a board
 * @board: its capabilities are known
 */
void peerdma_launch_regs_identify(struct peerdma_dev *board)
{
	u32 end = PEERDMA_LAUNCH_TICKET_BASE +
		  PEERDMA_LAUNCH_QUEUES * PEERDMA_LAUNCH_PLACES * PEERDMA_LAUNCH_TICKET_STRIDE;
	u32 channels, count, n;

	if (!(board->capabilities & PEERDMA_CAPABILITY_LAUNCH) || board->dma_length < end)
		return;
	channels = peerdma_read(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_CHANNELS_REG);
	count = FIELD_GET(PEERDMA_EXTENSION_CHANNELS_LAUNCH_QUEUES, channels);
	board->hw_queue_count = min_t(u32, PEERDMA_LAUNCH_QUEUES, count);
	for (n = 0; n < board->hw_queue_count; n++) {
		board->hw_queues[n].board = board;
		board->hw_queues[n].number = n;
	}
}

/**
 * peerdma_launch_regs_read() - reads a register of a queue
 * @hwq: called with the board's lock held, or before the board is used
 * @reg: PEERDMA_LAUNCH_QUEUE_*_REG
 *
 * Return: its value; all ones if the board does not answer.
 */
u32 peerdma_launch_regs_read(const struct peerdma_hw_queue *hwq, u32 reg)
{
	return peerdma_read(hwq->board, PEERDMA_LAUNCH_QUEUE_BASE +
			    hwq->number * PEERDMA_LAUNCH_QUEUE_STRIDE + reg);
}

/**
 * peerdma_launch_regs_at_work() - finds the slots of a queue's tickets that are at work
 * @hwq: as for peerdma_launch_regs_read()
 * @state: what its state register has shown
 *
 * A ticket keeps its place for as long as it is at work: what has ended since is at most shown in
 * excess, and so is what has begun.
 *
 * Return: a bit for each slot; all of them if the board does not answer.
 */
u64 peerdma_launch_regs_at_work(const struct peerdma_hw_queue *hwq, u32 state)
{
	u32 first = FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_PLACE, state) -
		    FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_RECORDED, state);
	u32 count = FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_ENDING, state) +
		    FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_RUNNING, state) +
		    FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_STARTING, state);
	u32 place, slot, n;
	u64 slots = 0;

	for (n = 0; n < count; n++) {
		place = hwq->number * PEERDMA_LAUNCH_PLACES + (first + n) % PEERDMA_LAUNCH_PLACES;
		slot = peerdma_read(hwq->board, PEERDMA_LAUNCH_TICKET_BASE +
				    place * PEERDMA_LAUNCH_TICKET_STRIDE +
				    PEERDMA_LAUNCH_TICKET_SLOT_REG);
		if (slot >= PEERDMA_LAUNCH_SLOTS)
			return U64_MAX;
		slots |= BIT_ULL(slot);
	}
	return slots;
}

/**
 * peerdma_launch_regs_write() - writes a register of a queue
 * @hwq: as for peerdma_launch_regs_read()
 * @reg: PEERDMA_LAUNCH_QUEUE_*_REG
 * @value: the value
 */
void peerdma_launch_regs_write(const struct peerdma_hw_queue *hwq, u32 reg, u32 value)
{
	peerdma_write(hwq->board, PEERDMA_LAUNCH_QUEUE_BASE +
		      hwq->number * PEERDMA_LAUNCH_QUEUE_STRIDE + reg, value);
}

/**
 * peerdma_launch_regs_point() - writes two registers of a queue, with an address
 * @hwq: neither armed nor busy
 * @reg: PEERDMA_LAUNCH_QUEUE_*_LO_REG
 * @address: on the bus
 */
void peerdma_launch_regs_point(const struct peerdma_hw_queue *hwq, u32 reg, u64 address)
{
	launch_regs_write_address(hwq->board, PEERDMA_LAUNCH_QUEUE_BASE +
				  hwq->number * PEERDMA_LAUNCH_QUEUE_STRIDE + reg, address);
}

/**
 * peerdma_launch_regs_find_idle() - finds a queue that can be handed out
 * @board: called with its lock held
 *
 * Return: the queue, or NULL if all are in use.
 */
struct peerdma_hw_queue *peerdma_launch_regs_find_idle(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;
	u32 n;

	/* In rotation, for the sake of GPUs that have the page of one mapped for too long. */
	for (n = 0; n < board->hw_queue_count; n++) {
		hwq = &board->hw_queues[(board->hw_queue_generation + n) % board->hw_queue_count];
		if (hwq->state == ENGINE_IDLE && !hwq->map_offset && !hwq->exported &&
		    !hwq->imports)
			return hwq;
	}
	return NULL;
}

/**
 * peerdma_launch_regs_quiet() - tells all queues to stop
 * @board: the board
 */
void peerdma_launch_regs_quiet(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;

	for_each_hw_queue(hwq, board)
		peerdma_launch_regs_write(hwq, PEERDMA_LAUNCH_QUEUE_CONTROL_REG, 0);
}

/**
 * peerdma_launch_regs_busy() - whether a queue may touch memory
 * @board: its queues have been told to stop
 *
 * Return: true also if the board does not answer.
 */
bool peerdma_launch_regs_busy(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;

	for_each_hw_queue(hwq, board)
		if (peerdma_launch_regs_read(hwq, PEERDMA_LAUNCH_QUEUE_STATE_REG) &
		    PEERDMA_LAUNCH_QUEUE_STATE_BUSY)
			return true;
	return false;
}

/**
 * peerdma_launch_regs_clear() - invalidates all slots, whoever has filled them
 * @board: no queue is armed
 */
void peerdma_launch_regs_clear(struct peerdma_dev *board)
{
	u32 slot;

	for (slot = 0; board->hw_queue_count && slot < PEERDMA_LAUNCH_SLOTS; slot++)
		peerdma_launch_regs_invalidate(board, slot);
}

/**
 * peerdma_launch_regs_fill() - writes a descriptor of a job into a slot
 * @board: the board
 * @slot: it is not valid
 * @descriptor: as in memory
 */
void peerdma_launch_regs_fill(struct peerdma_dev *board, u32 slot,
			      const struct peerdma_descriptor *descriptor)
{
	const __le32 *words = (const __le32 *)descriptor;
	u32 n;

	for (n = 0; n < sizeof(*descriptor) / sizeof(*words); n++)
		peerdma_write(board, launch_regs_slot(slot) + n * sizeof(*words),
			      le32_to_cpu(words[n]));
}

/**
 * peerdma_launch_regs_validate() - has queues start the job in a slot
 * @board: the board
 * @slot: it is filled
 * @control: PEERDMA_LAUNCH_SLOT_CONTROL_*, but for VALID
 * @flush: address of the flush read, if @control has one
 * @done: address of the done word, if @control has one
 */
void peerdma_launch_regs_validate(struct peerdma_dev *board, u32 slot, u32 control, u64 flush,
				  u64 done)
{
	u32 base = launch_regs_slot(slot);

	launch_regs_write_address(board, base + PEERDMA_LAUNCH_SLOT_FLUSH_LO_REG, flush);
	launch_regs_write_address(board, base + PEERDMA_LAUNCH_SLOT_DONE_LO_REG, done);
	/* writel() orders descriptors in memory before it. */
	peerdma_write(board, base + PEERDMA_LAUNCH_SLOT_CONTROL_REG,
		      control | PEERDMA_LAUNCH_SLOT_CONTROL_VALID);
}

/**
 * peerdma_launch_regs_invalidate() - keeps queues from starting the job in a slot
 * @board: the board
 * @slot: it may be at work until the state of its queue, read later, says otherwise
 */
void peerdma_launch_regs_invalidate(struct peerdma_dev *board, u32 slot)
{
	peerdma_write(board, launch_regs_slot(slot) + PEERDMA_LAUNCH_SLOT_CONTROL_REG, 0);
}

/**
 * peerdma_launch_regs_flush() - waits until what was written to the board has arrived there
 * @board: it has launch queues
 *
 * What GPUs write, and the board reads in memory, takes other paths, and could come before.
 */
void peerdma_launch_regs_flush(struct peerdma_dev *board)
{
	peerdma_launch_regs_read(board->hw_queues, PEERDMA_LAUNCH_QUEUE_STATE_REG);
}
