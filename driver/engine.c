// SPDX-License-Identifier: GPL-2.0
/*
 * The lanes: which job runs on which, chain after chain, and how a run ends.
 *
 * A copy uses both lanes: at once where the board has a stream, else the C2H lane a chunk behind
 * the H2C lane, both in the staging area at the end of card RAM. Lanes belong to one job at a
 * time, from its start to its end.
 */
#include <linux/math64.h>

#include "core.h"

/* A chain may take timeout_ms and the time of its bytes at this rate, of the board's time. */
#define SLOWEST_BYTES_PER_MS	1000

/* How many bytes a lane may move now for the job that it belongs to. */
static u64 lane_ready(const struct peerdma_lane *lane)
{
	const struct peerdma_job *job = lane->job;
	const struct peerdma_leg *leg = &job->legs[lane->index];
	u64 staging = lane->board->staging;
	u64 left, chunk, between;

	if (job->error || !leg->used)
		return 0;
	left = job->length - leg->started;
	if (job->path != PATH_STAGED)
		return left;

	/* Halves of the staging area: one is filled while the other is emptied. */
	chunk = staging / 2;
	chunk -= leg->started & (chunk - 1);
	if (lane->index == PEERDMA_C2H)
		return min(chunk, job->legs[PEERDMA_H2C].done - leg->started);
	between = leg->started - job->legs[PEERDMA_C2H].done;
	chunk = min(chunk, left);
	return between + chunk <= staging ? chunk : 0;
}

/*
 * Gives lanes to the next job that can have all it needs. A job that cannot yet keeps later ones
 * of other files off its lanes, so that it is not starved.
 */
static bool admit(struct peerdma_dev *board)
{
	bool taken[PEERDMA_LANES];
	struct peerdma_lane *lane;
	struct peerdma_file *file;
	struct peerdma_job *job;
	bool fits;

	if (board->draining)
		return false;
	for_each_lane(lane, board)
		taken[lane->index] = lane->job;

	list_for_each_entry(file, &board->ready, on_ready) {
		job = list_first_entry(&file->queue, struct peerdma_job, link);
		fits = true;
		for_each_lane(lane, board)
			fits &= !(job->legs[lane->index].used && taken[lane->index]);
		for_each_lane(lane, board) {
			if (!job->legs[lane->index].used)
				continue;
			taken[lane->index] = true;
			if (fits)
				lane->job = job;
		}
		if (!fits)
			continue;
		list_del_init(&job->link);
		job->queued = false;
		job->begin = ktime_get();
		/* Others first, next time. */
		if (list_empty(&file->queue))
			list_del_init(&file->on_ready);
		else
			list_move_tail(&file->on_ready, &board->ready);
		return true;
	}
	return false;
}

static struct peerdma_lane *next_lane(struct peerdma_dev *board)
{
	struct peerdma_lane *lane;

	if (board->state != PEERDMA_BOARD_LIVE || board->broken)
		return NULL;
	do {
		for_each_lane(lane, board)
			if (lane->state == LANE_IDLE && lane->job && lane_ready(lane))
				return lane;
	} while (admit(board));
	return NULL;
}

/* Ends the job once no lane works for it. Called with the board's lock held. */
static void settle(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_lane *lane;
	bool all = true;

	for_each_lane(lane, board) {
		if (lane->job != job)
			continue;
		if (lane->state != LANE_IDLE)
			return;
		all &= job->legs[lane->index].done == job->length;
	}
	if (!all && !job->error) {
		queue_work(peerdma_wq, &board->pump);
		return;
	}
	for_each_lane(lane, board)
		if (lane->job == job)
			lane->job = NULL;
	peerdma_job_end(job);
	wake_up_all(&board->idle);
	if (!list_empty(&board->ready))
		queue_work(peerdma_wq, &board->pump);
}

static void start(struct peerdma_lane *lane, u64 bytes, u32 count)
{
	struct peerdma_dev *board = lane->board;

	lane->bytes = bytes;
	lane->count = count;
	lane->seen = 0;
	lane->unheard = false;
	lane->state = LANE_RUNNING;
	lane->job->legs[lane->index].started += bytes;
	lane->deadline = jiffies + peerdma_scaled(board, READ_ONCE(peerdma_timeout_ms) +
						  div_u64(bytes, SLOWEST_BYTES_PER_MS));
	peerdma_hw_start(lane, count);
	queue_delayed_work(peerdma_wq, &board->watchdog, PEERDMA_WATCH_INTERVAL);
}

/**
 * peerdma_pump() - starts whatever can be started
 * @board: the board. Process context, nothing held
 */
void peerdma_pump(struct peerdma_dev *board)
{
	struct peerdma_lane *lane;
	const struct peerdma_leg *leg;
	struct peerdma_job *job;
	u64 ready, bytes, card;
	u32 count;

	spin_lock_irq(&board->lock);
	while ((lane = next_lane(board))) {
		job = lane->job;
		leg = &job->legs[lane->index];
		ready = lane_ready(lane);
		card = leg->card;
		if (job->path == PATH_STAGED)
			card += leg->started & (board->staging - 1);
		else if (job->path == PATH_CARD && card < board->card_ram_size)
			card += leg->started;
		lane->state = LANE_BUILDING;
		spin_unlock_irq(&board->lock);

		bytes = peerdma_chain_build(lane, leg->surface, leg->offset + leg->started, card,
					    board->stream_window && card >= board->stream_window,
					    ready, &count);

		spin_lock_irq(&board->lock);
		if (job->error) {
			lane->state = LANE_IDLE;
			settle(job);
		} else {
			start(lane, bytes, count);
		}
	}
	spin_unlock_irq(&board->lock);
}

/**
 * peerdma_pump_work() - peerdma_pump() as work
 * @work: of a board
 */
void peerdma_pump_work(struct work_struct *work)
{
	peerdma_pump(container_of(work, struct peerdma_dev, pump));
}

/**
 * peerdma_lane_event() - deals with events of a channel
 * @lane: the lane. Called with the board's lock held, in any context
 * @status: what was read, and cleared; not only busy
 */
void peerdma_lane_event(struct peerdma_lane *lane, u32 status)
{
	struct peerdma_dev *board = lane->board;
	struct peerdma_job *job = lane->job;

	if (lane->state != LANE_RUNNING && lane->state != LANE_STOPPING)
		return;
	if (status == ~0u) {
		peerdma_lost(board);
		return;
	}
	lane->seen |= status & ~PEERDMA_STATUS_BUSY;
	if (lane->state == LANE_RUNNING && !peerdma_hw_done(lane, lane->seen)) {
		/* Its events need not come at once, but it ends with them. */
		if (status & PEERDMA_STATUS_BUSY && !(lane->seen & PEERDMA_STATUS_ERRORS))
			return;
		job->status = lane->seen;
		peerdma_hw_error(board, job);
		peerdma_job_fail(job, -EIO, PEERDMA_REASON_ENGINE);
		return;
	}
	if (lane->state == LANE_RUNNING) {
		job->legs[lane->index].done += lane->bytes;
		job->legs[lane->index].cycles += peerdma_hw_cycles(lane);
		peerdma_hw_stop(lane);
	} else if (status & PEERDMA_STATUS_BUSY) {
		return;
	}
	lane->state = LANE_IDLE;
	settle(job);
}

/**
 * peerdma_job_fail() - makes a job end with an error, soon
 * @job: any; nothing happens if it has ended. Called with the board's lock held, in any context
 * @error: negative errno; the first one stays
 * @reason: enum peerdma_reason
 *
 * A job that waits ends at once. One that runs is stopped, and ends when its lanes are idle.
 */
void peerdma_job_fail(struct peerdma_job *job, int error, u32 reason)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_lane *lane;

	if (job->ended)
		return;
	if (!job->error) {
		job->error = error;
		job->reason = reason;
	}
	if (job->queued) {
		list_del_init(&job->link);
		job->queued = false;
		if (list_empty(&job->file->queue))
			list_del_init(&job->file->on_ready);
	}
	for_each_lane(lane, board) {
		if (lane->job != job || lane->state != LANE_RUNNING)
			continue;
		peerdma_hw_stop(lane);
		lane->state = LANE_STOPPING;
		lane->deadline = jiffies + peerdma_scaled(board, PEERDMA_STOP_MS);
	}
	settle(job);
	if (peerdma_poll_stopping(board))
		queue_delayed_work(peerdma_wq, &board->stopper, 1);
}

/**
 * peerdma_poll_stopping() - lets go of the lanes that have stopped
 * @board: called with its lock held, in any context
 *
 * Return: whether some have not.
 */
bool peerdma_poll_stopping(struct peerdma_dev *board)
{
	struct peerdma_lane *lane;
	bool some = false;
	u32 status;

	for_each_lane(lane, board) {
		if (lane->state != LANE_STOPPING)
			continue;
		status = peerdma_hw_status(lane, true);
		if (status == ~0u) {
			peerdma_lost(board);
			return false;
		}
		if (status & PEERDMA_STATUS_BUSY) {
			some = true;
			continue;
		}
		lane->state = LANE_IDLE;
		settle(lane->job);
	}
	return some;
}

/**
 * peerdma_force_idle() - declares idle what cannot touch memory any more
 * @board: cannot master the bus. Called with its lock held
 */
void peerdma_force_idle(struct peerdma_dev *board)
{
	struct peerdma_lane *lane;

	for_each_lane(lane, board) {
		struct peerdma_job *job = lane->job;

		if (lane->state == LANE_RUNNING || lane->state == LANE_STOPPING)
			lane->state = LANE_IDLE;
		if (!job)
			continue;
		if (!job->error) {
			job->error = -EIO;
			job->reason = PEERDMA_REASON_RESET;
		}
		settle(job);
	}
}

/**
 * peerdma_lost() - the board does not answer any more
 * @board: called with its lock held, in any context
 *
 * Its jobs end in peerdma_bury(), by the recovery.
 */
void peerdma_lost(struct peerdma_dev *board)
{
	if (board->state == PEERDMA_BOARD_DEAD)
		return;
	board->state = PEERDMA_BOARD_DEAD;
	queue_work(peerdma_wq, &board->recovery);
}

/**
 * peerdma_bury() - ends all jobs of a board that is gone
 * @board: its state is dead. Called with its lock held
 *
 * One that only looks as if it were off the bus could still write to memory: its bus mastering is
 * turned off first.
 */
void peerdma_bury(struct peerdma_dev *board)
{
	struct peerdma_file *file;

	pci_clear_master(board->pdev);
	peerdma_fail_all(board, true, -ENODEV, PEERDMA_REASON_LOST);
	peerdma_force_idle(board);
	list_for_each_entry(file, &board->files, on_board)
		wake_up_all(&file->wait);
}
