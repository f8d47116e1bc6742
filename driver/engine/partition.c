// SPDX-License-Identifier: GPL-2.0-only
/*
 * Partitions of card RAM: an open file may have a range for itself. The rest is everybody's. So are
 * user streams, but for those that a file uses from slots.
 *
 * Partitions are at the end of card RAM, since programs that know nothing of them begin at its
 * start, and there are few, so that to look at all of them is little work.
 */
#include <linux/sizes.h>

#include "engine.h"

#define MOST		64

static bool partition_meets(const struct peerdma_file *owner, u64 card, u64 length)
{
	return length && card < owner->ram + owner->ram_length && owner->ram < card + length;
}

/**
 * peerdma_partition_taken() - whether card RAM is another file's own
 * @file: who wants to use it. Its board's lock is held
 * @card: address of the first byte
 * @length: bytes, all within card RAM
 *
 * Return: true if some of it is.
 */
bool peerdma_partition_taken(const struct peerdma_file *file, u64 card, u64 length)
{
	const struct peerdma_file *owner;

	list_for_each_entry(owner, &file->board->partitions, on_partitions)
		if (owner != file && partition_meets(owner, card, length))
			return true;
	return false;
}

/**
 * peerdma_partition_stream_taken() - whether a job would use a user stream of another file's own
 * @job: prepared. Called with the board's lock held
 *
 * Return: true if it would.
 */
bool peerdma_partition_stream_taken(const struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	const struct peerdma_job *other;
	u32 n;

	if (!peerdma_job_streams(job) || !board->hw_queue_count || peerdma_copies_streamed(board))
		return false;
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		other = board->slots[n];
		if (other && other->file != job->file && other->channel == job->channel &&
		    peerdma_job_owns_stream(other))
			return true;
	}
	return false;
}

/**
 * peerdma_partition_bars() - whether a job would use what is another file's own
 * @job: prepared. Called with the board's lock held
 *
 * Return: true if it must not start.
 */
bool peerdma_partition_bars(const struct peerdma_job *job)
{
	const struct peerdma_leg *leg = &job->legs[job->legs[PEERDMA_H2C].used ? PEERDMA_H2C :
										 PEERDMA_C2H];

	if (job->path == PATH_CARD)
		return peerdma_partition_taken(job->file, leg->card, job->length);
	return peerdma_partition_stream_taken(job);
}

/**
 * peerdma_partition_shared() - how much card RAM is everybody's
 * @board: the board
 *
 * Return: bytes from the start of card RAM on.
 */
u64 peerdma_partition_shared(struct peerdma_dev *board)
{
	struct peerdma_file *lowest;
	u64 length = board->card_ram_size;

	spin_lock_irq(&board->lock);
	if (!list_empty(&board->partitions)) {
		lowest = list_last_entry(&board->partitions, struct peerdma_file, on_partitions);
		length = lowest->ram;
	}
	spin_unlock_irq(&board->lock);
	return length;
}

/**
 * peerdma_partition_place() - gives a file card RAM of its own
 * @file: has none. Its board's lock is held
 * @length: bytes, not 0, a multiple of 4 KiB
 *
 * From here on no job of another file starts there, but for those in slots, which
 * peerdma_stop_barred() stops; see peerdma_partition_wait().
 *
 * Return: 0, or -ENOSPC if there is not so much to be had.
 */
int peerdma_partition_place(struct peerdma_file *file, u64 length)
{
	struct peerdma_dev *board = file->board;
	u64 end = round_down(board->staging ? board->staging_base : board->card_ram_size, SZ_4K);
	struct list_head *above = &board->partitions;
	struct peerdma_file *other;

	if (board->partition_count == MOST)
		return -ENOSPC;
	/* They go from high addresses to low ones: the first gap that is large enough. */
	list_for_each_entry(other, &board->partitions, on_partitions) {
		if (end - other->ram - other->ram_length >= length)
			break;
		end = other->ram;
		above = &other->on_partitions;
	}
	if (length > end || end - length < board->card_ram_size / 2)
		return -ENOSPC;
	file->ram = end - length;
	file->ram_length = length;
	list_add(&file->on_partitions, above);
	board->partition_count++;
	return 0;
}

/**
 * peerdma_partition_leave_stream() - notes that a job is in its slot no more
 * @job: it was. Called with the board's lock held, in any context
 *
 * A file that had a user stream for itself leaves nothing in there, unless it goes on with it.
 */
void peerdma_partition_leave_stream(const struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	const struct peerdma_engine *engine;
	const struct peerdma_job *other;
	u32 n;

	if (!peerdma_job_owns_stream(job))
		return;
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		other = board->slots[n];
		if (other && other->channel == job->channel && peerdma_job_owns_stream(other))
			return;
	}
	for_each_engine(engine, board)
		if (engine->job && engine->pair == job->channel && peerdma_job_streams(engine->job))
			return;
	peerdma_hw_flush_stream(board, job->channel);
}

/* Whether a job of another file that had started before still uses it, or may from a slot. */
static bool partition_in_use(struct peerdma_file *file)
{
	const struct peerdma_job *job;
	struct peerdma_engine *engine;
	bool used = false;
	u32 n;

	spin_lock_irq(&file->board->lock);
	for_each_engine(engine, file->board) {
		job = engine->job;
		used |= job && job->file != file && job->path == PATH_CARD &&
			partition_meets(file, job->legs[engine->index].card, job->length);
	}
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++)
		used |= file->board->slots[n] && peerdma_partition_bars(file->board->slots[n]);
	spin_unlock_irq(&file->board->lock);
	return used;
}

/**
 * peerdma_partition_wait() - waits for jobs that had started before a file got its card RAM
 * @file: has some, or none. Nothing is held; may sleep, for as long as a job may run
 *
 * Return: 0 or -EINTR.
 */
int peerdma_partition_wait(struct peerdma_file *file)
{
	return wait_event_killable(file->board->idle, !partition_in_use(file)) ? -EINTR : 0;
}

/**
 * peerdma_partition_release() - gives a file's card RAM back, if it has some
 * @file: its jobs may still run: whoever is given the same card RAM waits for them. Process context
 */
void peerdma_partition_release(struct peerdma_file *file)
{
	struct peerdma_dev *board = file->board;

	spin_lock_irq(&board->lock);
	board->partition_count -= !list_empty(&file->on_partitions);
	list_del_init(&file->on_partitions);
	spin_unlock_irq(&board->lock);
}
