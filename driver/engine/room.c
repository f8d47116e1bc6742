// SPDX-License-Identifier: GPL-2.0
/*
 * Room for completions. A read that is not answered keeps its room in the board for a while, since
 * completions may still come. When none is left for others, a chain that reads ends at once with
 * PEERDMA_ERROR_NO_COMPLETION_SPACE. Its job starts it again once there is room, and no other chain
 * starts before. What cannot be started again does not start while there are lost reads.
 */
#include "engine.h"

/* How often that is looked for, in the longest time for which a read keeps its room. */
#define LOOKS			50
/* A job waits for so many of these, since more reads may be lost meanwhile. */
#define PATIENCE		2

static unsigned long room_longest(struct peerdma_dev *board)
{
	return peerdma_hw_scaled(board, PEERDMA_QUARANTINE_MS);
}

/* If the board does not answer, there are some. */
static bool room_has_lost_reads(struct peerdma_dev *board)
{
	return peerdma_read(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_QUARANTINED_REG);
}

static void room_look_later(struct peerdma_dev *board)
{
	queue_delayed_work(peerdma_wq, &board->room, room_longest(board) / LOOKS + 1);
}

/* Nothing is asked of the board before its first lost read. */
static void room_note(struct peerdma_dev *board, bool full)
{
	if (!board->crowded)
		board->crowded = (jiffies + PATIENCE * room_longest(board)) | 1;
	board->full |= full;
	room_look_later(board);
}

/* Whether a chain failed for that. Of two that fail at the same time, one may not be explained. */
static bool room_missed(struct peerdma_engine *engine)
{
	struct peerdma_dev *board = engine->board;
	bool full = true;

	switch (engine->job->kind) {
	case PEERDMA_ERROR_COMPLETION_TIMEOUT:
	case PEERDMA_ERROR_UNEXPECTED_COMPLETION:
		full = false;
		break;
	case PEERDMA_ERROR_NO_COMPLETION_SPACE:
		break;
	case 0:
		if (board->version && room_has_lost_reads(board))
			break;
		return false;
	default:
		return false;
	}
	room_note(board, full);
	return full;
}

static void room_stop(struct peerdma_engine *engine)
{
	if (engine->state != ENGINE_RUNNING)
		return;
	peerdma_hw_stop(engine);
	engine->state = ENGINE_STOPPING;
	engine->deadline = jiffies + peerdma_hw_scaled(engine->board, PEERDMA_STOP_MS);
}

/**
 * peerdma_room_wait() - has a job wait for room for completions
 * @engine: its chain has failed, and what is known of that is in its job. The board's lock is held
 *
 * The job goes on if it can, see peerdma_dispatch_settle().
 *
 * Return: false if the chain failed for another reason, or cannot be started again, or the job has
 * waited for as long as lost reads keep their room.
 */
bool peerdma_room_wait(struct peerdma_engine *engine)
{
	struct peerdma_dev *board = engine->board;
	struct peerdma_job *job = engine->job;
	struct peerdma_engine *other;

	if (!room_missed(engine) || job->error || !peerdma_dispatch_repeats(job))
		return false;
	if (!job->waited)
		job->patience = jiffies + PATIENCE * room_longest(board);
	job->waited = true;
	job->waits_for = PEERDMA_WAITS_FOR_SPACE;
	if (time_after(jiffies, job->patience))
		return false;
	job->again = true;
	room_stop(engine);
	/* A copy begins anew. */
	for_each_engine(other, board)
		if (other->job == job && job->path == PATH_STREAM)
			room_stop(other);
	mod_delayed_work(peerdma_wq, &board->stopper, 0);
	return true;
}

/**
 * peerdma_room_work() - starts chains again when there is room
 * @work: a board's
 */
void peerdma_room_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, room.work);
	bool crowded;

	spin_lock_irq(&board->lock);
	crowded = board->crowded && board->state == PEERDMA_BOARD_LIVE &&
		  time_before(jiffies, board->crowded) && room_has_lost_reads(board);
	if (!crowded) {
		board->crowded = 0;
		board->full = false;
	}
	spin_unlock_irq(&board->lock);
	if (crowded)
		room_look_later(board);
	else
		queue_work(peerdma_wq, &board->pump);
}
