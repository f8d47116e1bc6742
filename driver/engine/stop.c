// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs that end early, and engines that are stopped: on an error, on request, or with the board.
 */
#include "engine.h"

/* The end of PCIe's default range of completion timeouts: nothing is outstanding for longer. */
#define OUTSTANDING_MS		50
/* How many jobs peerdma_stop_kept() ends. */
#define KEPT_AT_ONCE		16

/**
 * peerdma_stop_lost() - gives up a board that does not answer any more
 * @board: called with its lock held, in any context
 *
 * The recovery work ends its jobs, with peerdma_stop_bury().
 */
void peerdma_stop_lost(struct peerdma_dev *board)
{
	if (board->state == PEERDMA_BOARD_DEAD)
		return;
	board->state = PEERDMA_BOARD_DEAD;
	queue_work(peerdma_wq, &board->recovery);
}

/* Frees engines and queues that were told to stop and have. Returns whether some are still busy. */
static bool stop_poll(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;
	bool some = false;
	int queues;
	u32 status;

	for_each_engine(engine, board) {
		if (engine->state != ENGINE_STOPPING)
			continue;
		status = peerdma_hw_status(engine, true);
		if (status == ~0u) {
			peerdma_stop_lost(board);
			return false;
		}
		if (status & PEERDMA_STATUS_BUSY) {
			some = true;
			continue;
		}
		engine->state = ENGINE_IDLE;
		peerdma_dispatch_settle(engine->job);
	}
	queues = peerdma_launch_queue_poll(board);
	if (queues < 0) {
		peerdma_stop_lost(board);
		return false;
	}
	return some || queues;
}

/**
 * peerdma_stop_job() - makes a job end soon, with an error
 * @job: any; nothing happens if it has ended. Called with the board's lock held, in any context
 * @error: negative errno; the first one is kept
 * @reason: enum peerdma_reason
 *
 * A queued job ends at once. A running one is stopped, and ends when its engines are idle, or its
 * launch queue; one in a slot when it is not at work.
 */
void peerdma_stop_job(struct peerdma_job *job, int error, u32 reason)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_engine *engine;

	if (job->ended)
		return;
	if (!job->error) {
		job->error = error;
		job->reason = reason;
	}
	if (peerdma_job_launches(job)) {
		peerdma_launch_queue_stop(job);
		if (stop_poll(board) || peerdma_launch_queue_closes(board))
			queue_delayed_work(peerdma_wq, &board->stopper, 1);
		return;
	}
	if (job->run.queued)
		peerdma_dispatch_remove(job);
	for_each_engine(engine, board) {
		if (engine->job != job || engine->state != ENGINE_RUNNING)
			continue;
		peerdma_hw_stop(engine);
		engine->state = ENGINE_STOPPING;
		engine->deadline = jiffies + peerdma_hw_scaled(board, PEERDMA_STOP_MS);
	}
	peerdma_dispatch_settle(job);
	if (stop_poll(board))
		queue_delayed_work(peerdma_wq, &board->stopper, 1);
}

/**
 * peerdma_stop_kept_from() - whether a job is not done because another keeps its engines
 * @holder: that one: it waits for the user block, or has a ring
 * @job: prepared
 *
 * What the same file is to receive after it waits for its turn, unless that never comes.
 *
 * Return: true if the job is to be refused.
 */
bool peerdma_stop_kept_from(const struct peerdma_job *holder, const struct peerdma_job *job)
{
	return peerdma_dispatch_needs(job) & peerdma_dispatch_needs(holder) &&
	       (job->path != PATH_RECEIVE || job->file != holder->file || holder->run.frame_ring);
}

/* A queued job that is not done because @holder keeps its engines; NULL if there is none. */
static struct peerdma_job *stop_next_kept(const struct peerdma_job *holder)
{
	struct peerdma_dev *board = holder->file->board;
	struct peerdma_line *line;
	struct peerdma_file *file;
	struct peerdma_job *job;
	unsigned int list;

	for (list = 0; list < ARRAY_SIZE(board->ready); list++) {
		if (!(peerdma_ready_engines(list) & peerdma_dispatch_needs(holder)))
			continue;
		/* The first one is, or the second if the first is of the same file. */
		list_for_each_entry(line, &board->ready[list], on_ready)
			list_for_each_entry(file, &line->files, on_ready) {
				job = peerdma_dispatch_first(file);
				if (peerdma_stop_kept_from(holder, job))
					return job;
			}
	}
	return NULL;
}

/**
 * peerdma_stop_kept() - ends jobs that cannot have their engines because another keeps them
 * @holder: that one. Called with the board's lock held
 *
 * Ends queues whose ticket at work waits for them, and a few jobs, so that the lock is not held for
 * as long as there are jobs.
 *
 * Return: whether there may be more.
 */
bool peerdma_stop_kept(struct peerdma_job *holder)
{
	struct peerdma_hw_queue *hwq;
	struct peerdma_job *job;
	int n;

	while ((hwq = peerdma_launch_queue_holding(holder->file->board,
						   peerdma_dispatch_needs(holder))))
		peerdma_stop_job(hwq->job, -EBUSY, PEERDMA_REASON_BUSY);
	for (n = 0; n < KEPT_AT_ONCE; n++) {
		job = stop_next_kept(holder);
		if (!job)
			return false;
		job->run.holder = get_pid(holder->file->opener);
		peerdma_stop_job(job, -EBUSY, PEERDMA_REASON_BUSY);
	}
	return true;
}

/**
 * peerdma_stop_file() - makes all of a file's jobs end
 * @file: the file
 * @error: negative errno
 * @reason: enum peerdma_reason
 *
 * Does not wait for them. Process context.
 */
void peerdma_stop_file(struct peerdma_file *file, int error, u32 reason)
{
	struct peerdma_job *job;

	spin_lock_irq(&file->board->lock);
	list_for_each_entry(job, &file->jobs, on_file)
		peerdma_stop_job(job, error, reason);
	spin_unlock_irq(&file->board->lock);
}

/**
 * peerdma_stop_all() - makes the jobs of a board end
 * @board: called with its lock held
 * @queued: also the queued ones
 * @error: negative errno
 * @reason: enum peerdma_reason
 */
void peerdma_stop_all(struct peerdma_dev *board, bool queued, int error, u32 reason)
{
	struct peerdma_hw_queue *hwq;
	struct peerdma_engine *engine;
	struct peerdma_file *file;

	for_each_hw_queue(hwq, board)
		if (hwq->job)
			peerdma_stop_job(hwq->job, error, reason);
	while (queued && (file = peerdma_dispatch_turn(board, 0)))
		peerdma_stop_job(peerdma_dispatch_first(file), error, reason);
	for_each_engine(engine, board)
		if (engine->job)
			peerdma_stop_job(engine->job, error, reason);
}

/**
 * peerdma_stop_outdated() - ends queued jobs that depend on the former contents of card RAM
 * @board: its generation has changed. Called with its lock held
 */
void peerdma_stop_outdated(struct peerdma_dev *board)
{
	struct peerdma_job *job, *next;
	struct peerdma_file *file;

	list_for_each_entry(file, &board->files, on_board)
		list_for_each_entry_safe(job, next, &file->queue, link)
			if (job->generation && job->generation != board->generation)
				peerdma_stop_job(job, -ESTALE, PEERDMA_REASON_RESET);
}

/**
 * peerdma_stop_barred() - takes jobs from slots that use card RAM of another file's own
 * @board: a file has some from now on. Called with its lock held
 */
void peerdma_stop_barred(struct peerdma_dev *board)
{
	u32 n;

	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++)
		if (board->slots[n] && peerdma_partition_bars(board->slots[n]))
			peerdma_stop_job(board->slots[n], -EACCES, PEERDMA_REASON_PARTITION);
}

/**
 * peerdma_stop_announced() - ends queued jobs that others wait for
 * @board: does not start them before something else has happened. Called with its lock held
 *
 * That others may wait with a lock which this needs: of a dma-buf that is being mapped.
 */
void peerdma_stop_announced(struct peerdma_dev *board)
{
	struct peerdma_job *job, *next;
	struct peerdma_file *file;

	list_for_each_entry(file, &board->files, on_board)
		list_for_each_entry_safe(job, next, &file->queue, link)
			if (job->fence)
				peerdma_stop_job(job, -EIO, PEERDMA_REASON_RESET);
}

/**
 * peerdma_stop_rings() - ends running rings, which do not end by themselves
 * @board: called with its lock held
 * @error: negative errno
 * @reason: enum peerdma_reason
 */
void peerdma_stop_rings(struct peerdma_dev *board, int error, u32 reason)
{
	struct peerdma_engine *engine;

	for_each_engine(engine, board)
		if (engine->job && engine->job->run.frame_ring)
			peerdma_stop_job(engine->job, error, reason);
}

static bool stop_uses(const struct peerdma_job *job, const struct peerdma_surface *surface)
{
	const struct peerdma_use *use;

	for_each_use(use, job)
		if (use->surface == surface)
			return true;
	return false;
}

/**
 * peerdma_stop_surface() - makes the jobs of a surface end
 * @surface: its board's lock is held
 * @running: also the running ones; a ring in any case, as it does not end by itself
 * @error: negative errno
 * @reason: enum peerdma_reason
 */
void peerdma_stop_surface(struct peerdma_surface *surface, bool running, int error, u32 reason)
{
	struct peerdma_dev *board = surface->board;
	struct peerdma_engine *engine;
	struct peerdma_use *use;
	struct peerdma_job *job;

	/* Stopping a job takes it off the list. One in a slot may be running: with its queue. */
	while ((use = list_first_entry_or_null(&surface->queued, struct peerdma_use, on_surface))) {
		job = use->job;
		peerdma_stop_job(running && job->type == JOB_SLOT ? job->slot.queue : job, error,
				 reason);
	}
	for_each_engine(engine, board)
		if (engine->job && (running || engine->job->run.frame_ring) &&
		    stop_uses(engine->job, surface))
			peerdma_stop_job(engine->job, error, reason);
}

/**
 * peerdma_stop_cut_off() - takes the bus from a board
 * @board: called with its lock held, in any context
 *
 * From here on peerdma_stop_step() has its engines become idle, without asking the engine.
 */
void peerdma_stop_cut_off(struct peerdma_dev *board)
{
	unsigned long deadline = jiffies + peerdma_hw_scaled(board, OUTSTANDING_MS);
	struct peerdma_engine *engine;

	pci_clear_master(board->pdev);
	peerdma_launch_queue_cut_off(board, deadline);
	for_each_engine(engine, board) {
		if (engine->state != ENGINE_RUNNING && engine->state != ENGINE_STOPPING)
			continue;
		engine->state = ENGINE_CUT_OFF;
		engine->deadline = deadline;
	}
}

/* Whether an engine or a launch queue is in a state; only if its deadline is over, with @late. */
static bool stop_any(struct peerdma_dev *board, enum peerdma_engine_state state, bool late)
{
	struct peerdma_hw_queue *hwq;
	struct peerdma_engine *engine;
	bool some = false;

	for_each_engine(engine, board)
		some |= engine->state == state && (!late || time_after(jiffies, engine->deadline));
	for_each_hw_queue(hwq, board)
		some |= hwq->state == state && (!late || time_after(jiffies, hwq->deadline));
	return some;
}

/* Whether a board that is cut off may still be sent what it had asked for. */
static bool stop_outstanding(struct peerdma_dev *board)
{
	u16 status;

	/* All have lost the bus at the same time. */
	if (stop_any(board, ENGINE_CUT_OFF, true))
		return false;
	pcie_capability_read_word(board->pdev, PCI_EXP_DEVSTA, &status);
	return status != U16_MAX && status & PCI_EXP_DEVSTA_TRPND;
}

/* Declares the engines idle of a board that cannot touch memory any more, and ends their jobs. */
static void stop_force(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;

	for_each_engine(engine, board) {
		struct peerdma_job *job = engine->job;

		if (engine->state == ENGINE_CUT_OFF)
			engine->state = ENGINE_IDLE;
		if (!job || job->ended)
			continue;
		if (!job->error) {
			job->error = -EIO;
			job->reason = PEERDMA_REASON_RESET;
		}
		peerdma_dispatch_settle(job);
	}
	peerdma_launch_queue_force(board);
}

/**
 * peerdma_stop_bury() - ends all jobs of a board that is gone
 * @board: its state is dead, and its engines do not touch memory. Called with its lock held
 */
void peerdma_stop_bury(struct peerdma_dev *board)
{
	struct peerdma_file *file;

	peerdma_stop_all(board, true, -ENODEV, PEERDMA_REASON_LOST);
	stop_force(board);
	list_for_each_entry(file, &board->files, on_board)
		peerdma_tell_file(file);
}

/**
 * peerdma_stop_step() - a step towards engines that do not touch memory; to be repeated until then
 * @board: its jobs have been told to stop. Called with its lock held
 * @late: take the bus from the board if an engine is still busy
 *
 * A board that is gone may only look as if it were off the bus: the bus is taken from it as well.
 *
 * Return: whether the bus was taken from a board that answers; it has to be reset then.
 */
bool peerdma_stop_step(struct peerdma_dev *board, bool late)
{
	bool dead = board->state == PEERDMA_BOARD_DEAD;

	if (dead) {
		peerdma_stop_cut_off(board);
	} else if (!stop_any(board, ENGINE_CUT_OFF, false)) {
		if (!stop_poll(board) || !late)
			return false;
		board->broken = true;
		peerdma_stop_cut_off(board);
	}
	if (stop_outstanding(board))
		return false;
	if (dead) {
		peerdma_stop_bury(board);
	} else {
		stop_force(board);
		peerdma_stop_announced(board);
	}
	return !dead;
}

/**
 * peerdma_stop_work() - polls engines that are stopping
 * @work: a board's
 *
 * When one does not stop in time, takes the bus from the board and starts the recovery. Jobs do not
 * wait for that: it waits for memory that is being mapped.
 */
void peerdma_stop_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, stopper.work);
	bool some = false, reset = false;

	spin_lock_irq(&board->lock);
	/* The recovery sees to one that is gone. */
	if (board->state != PEERDMA_BOARD_DEAD) {
		reset = peerdma_stop_step(board, stop_any(board, ENGINE_STOPPING, true));
		some = stop_any(board, ENGINE_STOPPING, false) ||
		       stop_any(board, ENGINE_CUT_OFF, false) || peerdma_launch_queue_closes(board);
	}
	spin_unlock_irq(&board->lock);

	if (reset)
		queue_work(peerdma_wq, &board->recovery);
	else if (some)
		queue_delayed_work(peerdma_wq, &board->stopper, 1);
}
