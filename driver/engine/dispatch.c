// SPDX-License-Identifier: GPL-2.0-only
/*
 * From queued jobs to running chains: which job gets which engine, and when.
 *
 * Each file has a queue of jobs. Users take turns, and a user's files take that user's: opening
 * many files gives no more of the board's time than opening one. What runs for that under the
 * board's lock takes constant time, however many users, files and jobs wait.
 *
 * A copy uses both engines: at the same time where the board has a stream; otherwise the C2H engine
 * follows one chunk behind the H2C engine, and both use the staging area at the end of card RAM.
 * A job owns its engines from its start to its end. Where CPU and board do not see each other's
 * writes, a chain's memory is handed to the board before the chain starts, and what a job has
 * written to the CPU before its engines go to the next job, which may read the same memory.
 */
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sizes.h>

#include "engine.h"

/* A job that moves may take this long and the time of its bytes at this rate: the board's time. */
#define LONGEST_MS		30000
#define SLOWEST_BYTES_PER_MS	1000
/* Of a chain at most: it is made, and its memory synchronized, while the other engine may run. */
#define CHAIN_BYTES		SZ_64M

static unsigned int timeout_ms = 3000;
module_param(timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms,
		 "how long a transfer may stand still, in milliseconds of the board's own time (default 3000)");

/* The list for those whose first job is this one. */
static unsigned int dispatch_list(const struct peerdma_job *job)
{
	return job->channel * PEERDMA_CHANNEL_SETS +
	       (job->legs[PEERDMA_H2C].used << PEERDMA_H2C |
		job->legs[PEERDMA_C2H].used << PEERDMA_C2H);
}

/* Where a file is while this is its first job. */
static struct peerdma_line *dispatch_line(const struct peerdma_job *job)
{
	return &job->file->share->lines[dispatch_list(job)];
}

static struct peerdma_file *dispatch_first_file(struct peerdma_line *line)
{
	return list_first_entry(&line->files, struct peerdma_file, on_ready);
}

/**
 * peerdma_dispatch_first() - the next job of a file
 * @file: its board's lock is held
 *
 * Return: the job, or NULL if none is queued.
 */
struct peerdma_job *peerdma_dispatch_first(struct peerdma_file *file)
{
	return list_first_entry_or_null(&file->queue, struct peerdma_job, link);
}

/**
 * peerdma_dispatch_needs() - the engines that a job needs
 * @job: prepared
 *
 * Return: a bit for each engine of the board.
 */
unsigned int peerdma_dispatch_needs(const struct peerdma_job *job)
{
	return peerdma_ready_engines(dispatch_list(job));
}

/**
 * peerdma_dispatch_turn() - whose turn it is
 * @board: called with its lock held
 * @taken: engines that are not to be had, a bit for each
 *
 * Looks at one user for each set of engines: all files of a user whose next job needs the same
 * engines are in one line.
 *
 * Return: of the files whose next job needs an engine that is not taken, the one whose turn it is;
 * NULL if there is none.
 */
struct peerdma_file *peerdma_dispatch_turn(struct peerdma_dev *board, unsigned int taken)
{
	struct peerdma_line *line, *found = NULL;
	unsigned int list;

	for (list = 0; list < ARRAY_SIZE(board->ready); list++) {
		if (!(peerdma_ready_engines(list) & ~taken))
			continue;
		line = list_first_entry_or_null(&board->ready[list], struct peerdma_line, on_ready);
		if (line && (!found || line->turn < found->turn))
			found = line;
	}
	return found ? dispatch_first_file(found) : NULL;
}

/* Puts a line behind those of all other users, unless no file is in it. */
static void dispatch_pass_turn(struct peerdma_line *line, struct peerdma_dev *board,
			       unsigned int list)
{
	list_del_init(&line->on_ready);
	if (list_empty(&line->files))
		return;
	line->turn = ++board->turns;
	list_add_tail(&line->on_ready, &board->ready[list]);
}

/* Puts a file behind all others of its user that are ready, unless nothing of it is queued. */
static void dispatch_line_up(struct peerdma_file *file)
{
	struct peerdma_job *job = peerdma_dispatch_first(file);
	struct peerdma_line *line;

	if (!job)
		return;
	line = dispatch_line(job);
	list_add_tail(&file->on_ready, &line->files);
	if (list_empty(&line->on_ready))
		dispatch_pass_turn(line, file->board, dispatch_list(job));
}

/**
 * peerdma_dispatch_add() - queues a job for engines
 * @job: it needs some. Called with the board's lock held
 */
void peerdma_dispatch_add(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	struct peerdma_use *use;

	job->run.queued = true;
	file->receiving += job->path == PATH_RECEIVE;
	for_each_use(use, job)
		list_add_tail(&use->on_surface, &use->surface->queued);
	list_add_tail(&job->link, &file->queue);
	if (peerdma_dispatch_first(file) == job)
		dispatch_line_up(file);
}

/**
 * peerdma_dispatch_remove() - takes a job out of its queue
 * @job: queued. Called with the board's lock held, in any context
 *
 * If it was the next one of its file, the user's other files come first; if it was the user's next
 * one for these engines, the other users do.
 */
void peerdma_dispatch_remove(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	struct peerdma_line *line = dispatch_line(job);
	bool next = peerdma_dispatch_first(file) == job;
	bool turn = next && dispatch_first_file(line) == file;
	struct peerdma_use *use;

	job->run.queued = false;
	file->receiving -= job->path == PATH_RECEIVE;
	for_each_use(use, job)
		list_del_init(&use->on_surface);
	list_del_init(&job->link);
	if (!next)
		return;
	list_del_init(&file->on_ready);
	if (turn)
		dispatch_pass_turn(line, file->board, dispatch_list(job));
	dispatch_line_up(file);
}

/**
 * peerdma_dispatch_moves() - notes that a job is not late
 * @job: some of its data has moved, or is about to. Called with the board's lock held
 */
void peerdma_dispatch_moves(struct peerdma_job *job)
{
	job->run.keeps = job->run.frame_ring;
	job->run.deadline = jiffies + peerdma_hw_scaled(job->file->board, READ_ONCE(timeout_ms));
}

/*
 * A copy that a launch queue starts drops what is in the stream, once it has both channels. So one
 * of ours has its C2H channel, or is in line for it, for as long as it has bytes in there.
 */
static bool dispatch_in_step(const struct peerdma_job *job)
{
	const struct peerdma_dev *board = job->file->board;

	return job->path == PATH_STREAM && board->hw_queue_count && peerdma_copies_streamed(board);
}

/* How many bytes an engine may move now for the job that it belongs to. */
static u64 dispatch_ready(const struct peerdma_engine *engine)
{
	const struct peerdma_job *job = engine->job;
	const struct peerdma_leg *leg = &job->legs[engine->index];
	u64 staging = engine->board->staging;
	u64 left, chunk, between;

	if (job->error || !leg->used)
		return 0;
	/* All of it: credits say how much of that is fetched. */
	if (job->run.frame_ring)
		return leg->length - leg->started;
	left = min_t(u64, leg->length - leg->started, CHAIN_BYTES);
	if (dispatch_in_step(job))
		return engine->index == PEERDMA_H2C ?
		       min(left, job->legs[PEERDMA_C2H].started - leg->started) :
		       job->legs[PEERDMA_H2C].done == leg->started ? left : 0;
	if (job->path != PATH_STAGED)
		return left;

	/* Halves of the staging area: one is filled while the other is emptied. */
	chunk = staging / 2;
	chunk -= leg->started & (chunk - 1);
	if (engine->index == PEERDMA_C2H)
		return min(chunk, job->legs[PEERDMA_H2C].done - leg->started);
	between = leg->started - job->legs[PEERDMA_C2H].done;
	chunk = min(chunk, left);
	return between + chunk <= staging ? chunk : 0;
}

/*
 * Gives engines to the next job that can have all those it needs. A job that has to wait keeps
 * later jobs of other files off its engines, so that it is not starved.
 */
static bool dispatch_admit(struct peerdma_dev *board)
{
	unsigned int needs, taken = 0;
	struct peerdma_engine *engine;
	struct peerdma_file *file;
	struct peerdma_job *job;

	if (board->draining)
		return false;
	for_each_engine(engine, board)
		taken |= (engine->job ? 1 : 0) << engine->number;

	while ((file = peerdma_dispatch_turn(board, taken))) {
		job = peerdma_dispatch_first(file);
		needs = peerdma_dispatch_needs(job);
		if (needs & taken) {
			taken |= needs;
			continue;
		}
		peerdma_dispatch_remove(job);
		if (peerdma_partition_bars(job)) {
			/* One at a time under the lock: its end has the others looked at. */
			job->error = -EACCES;
			job->reason = PEERDMA_REASON_PARTITION;
			board->ops->job_end(job);
			return false;
		}
		for_each_engine(engine, board)
			if (needs & BIT(engine->number))
				engine->job = job;
		job->begin = ktime_get();
		job->run.limit = jiffies +
				 peerdma_hw_scaled(board, LONGEST_MS +
							  div_u64(job->length,
								  SLOWEST_BYTES_PER_MS));
		return true;
	}
	return false;
}

/**
 * peerdma_dispatch_repeats() - whether a job's chains may be started again
 * @job: prepared
 *
 * Return: true if their bytes go to the same places once more, not through a user block.
 */
bool peerdma_dispatch_repeats(const struct peerdma_job *job)
{
	if (job->path == PATH_STREAM)
		return peerdma_copies_streamed(job->file->board);
	return job->path != PATH_RECEIVE;
}

/* Whether a job's next chain is for when there is room for completions. */
static bool dispatch_waits(const struct peerdma_job *job)
{
	const struct peerdma_dev *board = job->file->board;

	if (!board->crowded || board->full)
		return board->crowded;
	return !peerdma_dispatch_repeats(job) && !job->legs[PEERDMA_H2C].started &&
	       !job->legs[PEERDMA_C2H].started;
}

static struct peerdma_engine *dispatch_next(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;

	if (board->state != PEERDMA_BOARD_LIVE || board->broken)
		return NULL;
	do {
		for_each_engine(engine, board)
			if (engine->state == ENGINE_IDLE && engine->job && dispatch_ready(engine) &&
			    !dispatch_waits(engine->job))
				return engine;
	} while (dispatch_admit(board));
	return NULL;
}

/**
 * peerdma_dispatch_free() - gives a job's engines to the next one
 * @job: has ended. Called with the board's lock held, in any context
 */
void peerdma_dispatch_free(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_engine *engine;

	for_each_engine(engine, board)
		if (engine->job == job)
			engine->job = NULL;
	/* Who is about to wait, and is not seen here, sees that the engines are free. */
	if (peerdma_dispatch_turn(board, 0) || waitqueue_active(&board->idle))
		queue_work(peerdma_wq, &board->pump);
}

/* Has chains that were stopped for want of room start again; a copy begins anew. */
static void dispatch_rewind(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_leg *leg;

	job->run.again = false;
	if (job->error)
		return;
	for (leg = job->legs; leg < job->legs + PEERDMA_DIRECTIONS; leg++) {
		leg->done = job->path == PATH_STREAM ? 0 : leg->done;
		leg->started = leg->done;
	}
	if (job->path == PATH_STREAM)
		peerdma_hw_flush_stream(board, job->channel);
	job->run.limit += peerdma_hw_scaled(board, PEERDMA_QUARANTINE_MS);
	job->status = 0;
	job->run.kind = 0;
	job->run.address = 0;
}

/**
 * peerdma_dispatch_settle() - ends a job once none of its engines is busy any more
 * @job: moved all its bytes, or failed; otherwise it goes on. Called with the board's lock held, in
 *	any context
 */
void peerdma_dispatch_settle(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	const struct peerdma_leg *leg;
	struct peerdma_engine *engine;
	bool all = true;

	if (job->ended)
		return;
	for_each_engine(engine, board) {
		if (engine->job != job)
			continue;
		if (engine->state != ENGINE_IDLE)
			return;
		leg = &job->legs[engine->index];
		all &= leg->done == leg->length;
	}
	if (job->run.again)
		dispatch_rewind(job);
	if (!all && !job->error) {
		queue_work(peerdma_wq, &board->pump);
		return;
	}
	if (job->run.frame_ring)
		peerdma_frame_ring_off(job->run.frame_ring);
	for_each_engine(engine, board)
		if (engine->job == job && job->error)
			peerdma_hw_capture_drop(engine);
	board->ops->job_end(job);
}

static void dispatch_start(struct peerdma_engine *engine, u64 bytes, u32 count)
{
	struct peerdma_dev *board = engine->board;

	engine->bytes = bytes;
	engine->count = count;
	engine->seen = 0;
	engine->progress = 0;
	engine->unheard = false;
	engine->state = ENGINE_RUNNING;
	engine->job->legs[engine->index].started += bytes;
	peerdma_dispatch_moves(engine->job);
	if (engine->job->run.frame_ring)
		peerdma_frame_ring_begin(engine);
	peerdma_chain_doorbell(engine, count);
	if (engine->job->run.frame_ring) {
		peerdma_frame_ring_give(engine->job->run.frame_ring);
		/* It refuses those who wait for the engine. */
		mod_delayed_work(peerdma_wq, &board->watchdog, 0);
		return;
	}
	queue_delayed_work(peerdma_wq, &board->watchdog, PEERDMA_WATCH_INTERVAL);
}

/*
 * Writes the next chain of an engine that is BUILDING, at most @ready bytes, and hands its memory
 * to the board. Sets @count to the number of descriptors and returns the bytes that they move.
 */
static u64 dispatch_build(struct peerdma_engine *engine, u64 ready, u32 *count)
{
	const struct peerdma_job *job = engine->job;
	const struct peerdma_leg *leg = &job->legs[engine->index];
	u64 card = leg->card, from = leg->offset + leg->started;
	u64 bytes;

	if (job->run.frame_ring) {
		*count = peerdma_frame_ring_build(engine);
		return ready;
	}
	if (job->path == PATH_STAGED)
		card += leg->started & (engine->board->staging - 1);
	else if (job->path == PATH_CARD)
		card += leg->started;
	bytes = peerdma_chain_build(&engine->chain, leg->surface, from, card,
				    peerdma_job_streams(job), ready, count);
	if (leg->surface->needs_sync)
		leg->surface->provider->sync(leg->surface, from, bytes, false);
	return bytes;
}

/**
 * peerdma_dispatch_pump() - starts whatever can be started
 * @board: the board. Process context, nothing held
 */
void peerdma_dispatch_pump(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;
	struct peerdma_job *job;
	u64 ready, bytes;
	u32 count;

	spin_lock_irq(&board->lock);
	while ((engine = dispatch_next(board))) {
		job = engine->job;
		ready = dispatch_ready(engine);
		engine->state = ENGINE_BUILDING;
		spin_unlock_irq(&board->lock);

		bytes = dispatch_build(engine, ready, &count);

		spin_lock_irq(&board->lock);
		if (job->error || job->run.again) {
			engine->state = ENGINE_IDLE;
			peerdma_dispatch_settle(job);
		} else {
			dispatch_start(engine, bytes, count);
		}
	}
	spin_unlock_irq(&board->lock);
}

/**
 * peerdma_dispatch_pump_work() - peerdma_dispatch_pump() as a work item
 * @work: a board's
 *
 * Wakes those who wait for engines to become idle, too.
 */
void peerdma_dispatch_pump_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, pump);

	peerdma_dispatch_pump(board);
	wake_up_all(&board->idle);
}
