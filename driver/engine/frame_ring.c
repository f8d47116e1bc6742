// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rings: a chain that goes round, which the board follows only as far as it has credits.
 *
 * A credit is a descriptor that the board may fetch. It is given those of the frames that the
 * program does not use: all of them at the start, later those that the program has given back. So
 * the board never writes to a frame in use, whatever the program does.
 *
 * Where CPU and board do not see each other's writes, a frame is handed to the board before its
 * credits are given, and to the CPU before the program is told of it.
 */
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "engine.h"

/* What the register of a channel's credits holds. */
#define MOST_CREDITS		0x3ff
/* C2H channels are in the upper half of registers for all channels. */
#define C2H_BIT(engine)		BIT(16 + (engine)->pair)

static void frame_ring_publish_work(struct work_struct *work);

/**
 * peerdma_frame_ring_create() - makes a job's ring
 * @job: new; takes over the ring
 * @frames: how many frames
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_frame_ring_create(struct peerdma_job *job, u32 frames)
{
	struct peerdma_frame_ring *ring;

	ring = kvzalloc(struct_size(ring, frames, frames), PEERDMA_GFP_ARRAY);
	if (!ring)
		return -ENOMEM;
	/* One for the records. */
	ring->uses = kvcalloc(frames + 1, sizeof(*ring->uses), PEERDMA_GFP_ARRAY);
	if (!ring->uses) {
		kvfree(ring);
		return -ENOMEM;
	}
	ring->job = job;
	ring->frame_count = frames;
	mutex_init(&ring->giving);
	INIT_WORK(&ring->publish, frame_ring_publish_work);
	job->run.frame_ring = ring;
	job->uses = ring->uses;
	return 0;
}

/**
 * peerdma_frame_ring_free() - frees a job's ring
 * @job: has none, or has ended. Process context
 */
void peerdma_frame_ring_free(struct peerdma_job *job)
{
	if (!job->run.frame_ring)
		return;
	mutex_destroy(&job->run.frame_ring->giving);
	kvfree(job->run.frame_ring->uses);
	kvfree(job->run.frame_ring);
}

/**
 * peerdma_frame_ring_measure() - counts descriptors
 * @ring: its frames are set, but for their ends
 *
 * Return: whether they fit into a chain.
 */
bool peerdma_frame_ring_measure(struct peerdma_frame_ring *ring)
{
	struct peerdma_frame_place *frame;
	u32 n, count = 0;

	for (n = 0; n < ring->frame_count && count <= PEERDMA_CHAIN_ROOM; n++) {
		frame = &ring->frames[n];
		count += peerdma_chain_length(frame->surface, frame->offset, frame->length);
		if (ring->records)
			count += peerdma_chain_length(ring->records, ring->records_offset +
						      n * sizeof(struct peerdma_frame_record),
						      sizeof(struct peerdma_frame_record));
		frame->end = count;
	}
	return count <= PEERDMA_CHAIN_ROOM;
}

/* Descriptors from the start up to the end of so many frames. */
static u64 frame_ring_end(const struct peerdma_frame_ring *ring, u64 frames)
{
	u32 rest;
	u64 rounds = div_u64_rem(frames, ring->frame_count, &rest);

	return rounds * ring->frames[ring->frame_count - 1].end +
	       (rest ? ring->frames[rest - 1].end : 0);
}

static void frame_ring_sync_part(struct peerdma_surface *surface, u64 offset, u64 length,
				 bool for_cpu)
{
	if (surface->needs_sync)
		surface->provider->sync(surface, offset, length, for_cpu);
}

/* Hands the frames from @from up to @to, and their records, to the CPU or the board. */
static void frame_ring_sync(struct peerdma_frame_ring *ring, u64 from, u64 to, bool for_cpu)
{
	const struct peerdma_frame_place *frame;
	u32 n;

	for (; ring->needs_sync && from < to; from++) {
		div_u64_rem(from, ring->frame_count, &n);
		frame = &ring->frames[n];
		frame_ring_sync_part(frame->surface, frame->offset, frame->length, for_cpu);
		if (ring->records)
			frame_ring_sync_part(ring->records, ring->records_offset +
					     n * sizeof(struct peerdma_frame_record),
					     sizeof(struct peerdma_frame_record), for_cpu);
	}
}

/**
 * peerdma_frame_ring_build() - writes a ring's chain, and hands its memory to the board
 * @engine: it is BUILDING for a job with a ring. May sleep
 *
 * Return: the number of descriptors.
 */
u32 peerdma_frame_ring_build(struct peerdma_engine *engine)
{
	struct peerdma_frame_ring *ring = engine->job->run.frame_ring;

	frame_ring_sync(ring, 0, ring->frame_count, false);
	return peerdma_chain_build_ring(engine, ring);
}

/**
 * peerdma_frame_ring_give() - gives the board credits for all frames that it may fill, if they fit
 * @ring: it has begun. Called with the board's lock held, in any context
 */
void peerdma_frame_ring_give(struct peerdma_frame_ring *ring)
{
	struct peerdma_engine *engine = ring->engine;
	u32 reg = engine->sgdma + PEERDMA_SGDMA_DESCRIPTOR_CREDITS_REG;
	u64 owed = frame_ring_end(ring, ring->released + ring->frame_count) - ring->credited;
	u32 room;

	if (!owed || engine->state != ENGINE_RUNNING)
		return;
	room = MOST_CREDITS - (peerdma_read(engine->board, reg) & MOST_CREDITS);
	owed = min_t(u64, owed, room);
	ring->credited += owed;
	if (owed)
		peerdma_write(engine->board, reg, owed);
}

/**
 * peerdma_frame_ring_switch_records() - has frames followed by records, for one job more or less
 * @board: makes records. Called with its lock held, in any context
 * @channel: whose frames
 * @on: one more
 *
 * Return: whether they were not, or are not any more: frames of both kinds may be in the stream.
 */
bool peerdma_frame_ring_switch_records(struct peerdma_dev *board, u32 channel, bool on)
{
	u32 *jobs = &board->frame_records[channel], channels = 0, n;

	*jobs += on ? 1 : -1;
	for (n = 0; n < PEERDMA_MAX_CHANNELS; n++)
		channels |= board->frame_records[n] ? BIT(n) : 0;
	peerdma_write(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_FRAME_RECORDS_REG,
		      channels);
	return *jobs == on;
}

static void frame_ring_gate(struct peerdma_engine *engine, u32 reg)
{
	peerdma_write(engine->board, PEERDMA_SGDMA_COMMON_BASE + reg, C2H_BIT(engine));
}

/**
 * peerdma_frame_ring_begin() - prepares a channel for a ring
 * @engine: RUNNING, but its channel has not been started. Called with the board's lock held
 */
void peerdma_frame_ring_begin(struct peerdma_engine *engine)
{
	struct peerdma_frame_ring *ring = engine->job->run.frame_ring;

	ring->engine = engine;
	if (ring->records)
		peerdma_frame_ring_switch_records(engine->board, engine->pair, true);
	if (ring->fresh)
		peerdma_hw_flush_stream(engine->board, engine->pair);
	frame_ring_gate(engine, PEERDMA_SGDMA_COMMON_CREDIT_ENABLE_W1S_REG);
}

/* The program may read of it. Called with the board's lock held, in any context. */
static void frame_ring_tell(struct peerdma_frame_ring *ring, u64 ready)
{
	struct peerdma_job *job = ring->job;

	/* The work before told of these, too, if they were filled before it looked. */
	if (ready == ring->ready)
		return;
	ring->ready = ready;
	/* The end of a job has an event of its own, and nobody reads that of a closed file. */
	if (job->ended || list_empty(&job->on_file) || !list_empty(&job->link))
		return;
	list_add_tail(&job->link, &job->file->events);
	peerdma_tell_file(job->file);
}

static void frame_ring_publish_work(struct work_struct *work)
{
	struct peerdma_frame_ring *ring = container_of(work, struct peerdma_frame_ring, publish);
	struct peerdma_dev *board = ring->job->file->board;
	u64 filled;

	spin_lock_irq(&board->lock);
	filled = ring->filled;
	spin_unlock_irq(&board->lock);
	/* Nobody else changes this. */
	frame_ring_sync(ring, ring->ready, filled, true);
	spin_lock_irq(&board->lock);
	frame_ring_tell(ring, filled);
	spin_unlock_irq(&board->lock);
}

/**
 * peerdma_frame_ring_look() - finds out how far the board has come, and gives it credits
 * @ring: it runs. Called with the board's lock held, in any context
 * @status: events of its engine that have been cleared
 *
 * Return: 0; -EIO if the board counts what it was not allowed to do, -ENODEV if it is gone.
 */
int peerdma_frame_ring_look(struct peerdma_frame_ring *ring, u32 status)
{
	struct peerdma_engine *engine = ring->engine;
	u32 count = peerdma_channel_read(engine, PEERDMA_CHANNEL_COMPLETED_COUNT_REG);
	u64 filled = ring->filled;

	/* After the count: errors of what it covers are known by then. */
	status |= peerdma_hw_status(engine, false);
	if (status == ~0u)
		return -ENODEV;
	/* A descriptor that failed is counted, too. */
	if (status & PEERDMA_STATUS_ERRORS && count != ring->seen)
		count--;
	if ((u32)(count - ring->seen) > ring->credited - ring->completed)
		return -EIO;
	ring->completed += (u32)(count - ring->seen);
	ring->seen = count;

	while (frame_ring_end(ring, filled + 1) <= ring->completed)
		filled++;
	if (filled != ring->filled) {
		ring->filled = filled;
		if (ring->needs_sync)
			queue_work(peerdma_wq, &ring->publish);
		else
			frame_ring_tell(ring, filled);
	}
	peerdma_frame_ring_give(ring);
	return 0;
}

/**
 * peerdma_frame_ring_waits() - whether a ring stands still for a reason that is not the board's
 * @ring: it runs. Called with the board's lock held
 *
 * Return: true if it waits for frames to be given back, for data of the user block, or for the
 * other channel of the pair, which has to end its chain before the stream is flushed.
 */
bool peerdma_frame_ring_waits(struct peerdma_frame_ring *ring)
{
	u32 waits_for = peerdma_hw_waits_for(ring->engine);

	return ring->completed == ring->credited || waits_for == PEERDMA_WAITS_FOR_USER_OUTPUT ||
	       waits_for == PEERDMA_WAITS_FOR_FLUSH;
}

/**
 * peerdma_frame_ring_release() - gives frames back to the board
 * @ring: the caller has a reference to its job. May sleep
 * @count: so many frames from the start on may be written over
 *
 * Return: 0; -EINVAL if the program has not been told that so many are filled, -ENOENT if the job
 * has ended, -EINTR.
 */
int peerdma_frame_ring_release(struct peerdma_frame_ring *ring, u64 count)
{
	struct peerdma_dev *board = ring->job->file->board;
	u64 released;
	int error;

	if (mutex_lock_killable(&ring->giving))
		return -EINTR;
	spin_lock_irq(&board->lock);
	released = ring->released;
	error = ring->job->error ? -ENOENT : count > ring->ready ? -EINVAL : 0;
	spin_unlock_irq(&board->lock);
	if (error || count <= released)
		goto out;

	/* If the job ends now, it keeps its memory until the mutex is free. */
	frame_ring_sync(ring, released, count, false);
	spin_lock_irq(&board->lock);
	if (!ring->job->error) {
		ring->released = count;
		peerdma_frame_ring_give(ring);
	}
	spin_unlock_irq(&board->lock);
out:
	mutex_unlock(&ring->giving);
	return error;
}

/**
 * peerdma_frame_ring_off() - undoes peerdma_frame_ring_begin() where the engine has stopped
 * @ring: nothing moves. Called with the board's lock held, in any context
 */
void peerdma_frame_ring_off(struct peerdma_frame_ring *ring)
{
	if (!ring->engine)
		return;
	frame_ring_gate(ring->engine, PEERDMA_SGDMA_COMMON_CREDIT_ENABLE_W1C_REG);
	if (!ring->records)
		return;
	/* Frames with records may be left in the stream, if it was stopped very early. */
	peerdma_frame_ring_switch_records(ring->engine->board, ring->engine->pair, false);
	peerdma_hw_flush_stream(ring->engine->board, ring->engine->pair);
}

/**
 * peerdma_frame_ring_reclaim() - hands all memory of a ring to the CPU
 * @ring: its job has ended. May sleep
 */
void peerdma_frame_ring_reclaim(struct peerdma_frame_ring *ring)
{
	cancel_work_sync(&ring->publish);
	/* Not with a release in progress, which hands memory to the board. */
	mutex_lock(&ring->giving);
	if (ring->engine)
		frame_ring_sync(ring, ring->ready, ring->released + ring->frame_count, true);
	mutex_unlock(&ring->giving);
}
