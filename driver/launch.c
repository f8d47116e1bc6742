// SPDX-License-Identifier: GPL-2.0
/*
 * Launch queues, and the slots from which GPUs have the board start jobs. docs/queue.md has the
 * board's part of this.
 *
 * A queue is a job, and so is what is in a slot: they hold their memory, and end as others do. They
 * are told to stop, and end when the board says that it does not touch their memory any more, or
 * cannot. Before a queue ends, each ticket that has none gets a record, by the CPU: tickets.c.
 */
#include <linux/bitfield.h>

#include "engine.h"

/* While a queue reads its shadow tail, it is busy without a ticket, too. */
#define ARMED			PEERDMA_LAUNCH_QUEUE_CONTROL_ARMED
#define POLLING			(ARMED | PEERDMA_LAUNCH_QUEUE_CONTROL_POLLS)

static bool launch_runs(const struct peerdma_launch *launch)
{
	return launch->state == LANE_RUNNING;
}

/* The record of a ticket that is aborted has its place as well: the mask stays. */
static void launch_control(const struct peerdma_launch *launch, u32 flags)
{
	const struct peerdma_rings *rings = launch->job->rings;

	peerdma_launcher_write(launch, PEERDMA_LAUNCH_QUEUE_CONTROL_REG, flags |
			       FIELD_PREP(PEERDMA_LAUNCH_QUEUE_CONTROL_MASK, rings->depth - 1) |
			       FIELD_PREP(PEERDMA_LAUNCH_QUEUE_CONTROL_GENERATION,
					  rings->generation));
}

/* From here on the job is stopped with its memory. */
static void launch_list(struct peerdma_job *job)
{
	struct peerdma_use *use;

	for_each_use(use, job)
		list_add_tail(&use->on_surface, &use->surface->queued);
}

static void launch_unlist(struct peerdma_job *job)
{
	struct peerdma_use *use;

	for_each_use(use, job)
		list_del_init(&use->on_surface);
}

/* Tells a queue to stop. Its memory, and that of its slots, need not do that any more. */
static void launch_disarm(struct peerdma_launch *launch, enum peerdma_lane_state state,
			  unsigned long deadline)
{
	struct peerdma_job *job;
	u32 n;

	launch_unlist(launch->job);
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		job = launch->board->slots[n];
		if (job && job->slot->queue == launch->job)
			launch_unlist(job);
	}
	launch->state = state;
	launch->deadline = deadline;
	launch_control(launch, 0);
}

static int launch_arm(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_launch *launch = peerdma_launcher_find_idle(board);
	struct peerdma_rings *rings = job->rings;

	if (!launch)
		return -EBUSY;
	if (!++board->launch_generation)
		board->launch_generation++;
	rings->generation = board->launch_generation;
	peerdma_tickets_fill(rings);
	rings->launch = launch;
	launch->job = job;
	launch->state = LANE_RUNNING;
	launch_list(job);
	peerdma_launcher_point(launch, PEERDMA_LAUNCH_QUEUE_RING_LO_REG, rings->entries.bus);
	peerdma_launcher_point(launch, PEERDMA_LAUNCH_QUEUE_RECORDS_LO_REG, rings->records.bus);
	peerdma_launcher_point(launch, PEERDMA_LAUNCH_QUEUE_SHADOW_LO_REG, rings->shadow.bus);
	peerdma_launcher_write(launch, PEERDMA_LAUNCH_QUEUE_FIRST_REG, rings->first & U16_MAX);
	launch_control(launch, POLLING);
	queue_delayed_work(peerdma_wq, &board->watchdog, PEERDMA_WATCH_INTERVAL);
	return 0;
}

static int launch_install(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_slot *slot = job->slot;
	bool pair = slot->control & PEERDMA_LAUNCH_SLOT_CONTROL_PAIR;
	struct peerdma_launch *launch = slot->queue->rings->launch;
	u32 step = pair ? 2 : 1, n, lane;

	if (slot->queue->ended || !launch_runs(launch))
		return -ENOENT;
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n += step)
		if (!board->slots[n] && !board->slots[n + step - 1])
			break;
	if (n == PEERDMA_LAUNCH_SLOTS)
		return -ENOSPC;
	slot->number = n;
	for (lane = 0; lane < PEERDMA_LANES; lane++) {
		if (!slot->chains[lane].ring)
			continue;
		board->slots[n] = job;
		peerdma_launcher_fill(board, n++, slot->chains[lane].ring);
	}
	launch_list(job);
	slot->control |= FIELD_PREP(PEERDMA_LAUNCH_SLOT_CONTROL_QUEUE, launch->number);
	peerdma_launcher_validate(board, slot->number, slot->control, slot->flush, slot->done.bus);
	return 0;
}

/**
 * peerdma_launch_start() - arms a queue, or puts a job into a slot
 * @job: prepared; it holds its memory from here on. Called with the board's lock held
 *
 * Return: 0; -EAGAIN if the board is frozen, -EBUSY if all queues are in use, -ENOENT if the queue
 * has ended, -ENOSPC if no slot is left.
 */
int peerdma_launch_start(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	int error;

	if (board->state != PEERDMA_BOARD_LIVE || board->broken)
		return -EAGAIN;
	error = job->slot ? launch_install(job) : launch_arm(job);
	if (!error)
		peerdma_launcher_flush(board);
	return error;
}

/**
 * peerdma_launch_resume() - has a queue start tickets again after one that failed
 * @launch: armed. Called with the board's lock held
 */
void peerdma_launch_resume(struct peerdma_launch *launch)
{
	peerdma_launcher_write(launch, PEERDMA_LAUNCH_QUEUE_RESUME_REG, 1);
	peerdma_launcher_flush(launch->board);
	peerdma_tickets_tell(launch->job->rings, 0);
}

/**
 * peerdma_launch_look() - tells a program how its queue is
 * @launch: armed. Called with the board's lock held
 *
 * Return: PEERDMA_LAUNCH_QUEUE_STATE_*; all ones if the board does not answer.
 */
u32 peerdma_launch_look(struct peerdma_launch *launch)
{
	u32 state = peerdma_launcher_read(launch, PEERDMA_LAUNCH_QUEUE_STATE_REG);
	u32 status = state & PEERDMA_LAUNCH_QUEUE_STATE_FAILED ?
		     FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_STATUS, state) : 0;

	if (state != ~0u)
		peerdma_tickets_tell(launch->job->rings,
				     FIELD_PREP(PEERDMA_QUEUE_STATUS, status) |
				     FIELD_PREP(PEERDMA_QUEUE_END,
						FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_END, state)));
	return state;
}

/**
 * peerdma_launch_holding() - finds a queue whose ticket at work has lanes, or waits for them
 * @board: called with its lock held
 * @lanes: a bit for each
 * @waits: only one that has a ticket without a record. An idle queue looks busy while it polls,
 *	with the slot of its last ticket
 *
 * Return: an armed queue, or NULL.
 */
struct peerdma_launch *peerdma_launch_holding(struct peerdma_dev *board, unsigned int lanes,
					      bool waits)
{
	struct peerdma_launch *launch;
	struct peerdma_job *job;
	u32 state;

	for_each_launch(launch, board) {
		if (!launch_runs(launch))
			continue;
		state = peerdma_launcher_read(launch, PEERDMA_LAUNCH_QUEUE_STATE_REG);
		job = board->slots[FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_SLOT, state)];
		if (state & PEERDMA_LAUNCH_QUEUE_STATE_BUSY && job &&
		    job->slot->queue == launch->job && peerdma_queue_needs(job) & lanes &&
		    (!waits || peerdma_tickets_wait(launch->job->rings)))
			return launch;
	}
	return NULL;
}

/**
 * peerdma_launch_stop() - makes a queue end, or takes a job from its slot
 * @job: has started. Called with the board's lock held, in any context
 *
 * It ends in peerdma_launch_poll(). With a queue, its slots end.
 */
void peerdma_launch_stop(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_launch *launch = (job->slot ? job->slot->queue : job)->rings->launch;
	unsigned long deadline = jiffies + peerdma_hw_scaled(board, PEERDMA_STOP_MS);

	if (!launch_runs(launch))
		return;
	if (!job->slot) {
		launch_disarm(launch, LANE_STOPPING, deadline);
	} else if (!job->slot->closing) {
		launch_unlist(job);
		job->slot->closing = true;
		job->slot->deadline = deadline;
		peerdma_launcher_invalidate(board, job->slot->number);
		launch_control(launch, ARMED);
	}
}

/* The job of a slot that is not at work. Whoever waits for its done word is not left waiting. */
static void launch_end_slot(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_slot *slot = job->slot;

	peerdma_launcher_invalidate(board, slot->number);
	if (slot->done.cpu)
		peerdma_tickets_done(&slot->done);
	board->slots[slot->number] = NULL;
	if (slot->control & PEERDMA_LAUNCH_SLOT_CONTROL_PAIR)
		board->slots[slot->number + 1] = NULL;
	board->ops->job_end(job);
}

/*
 * Ends a queue that does not touch memory any more, with a record of @status for each ticket that
 * has none.
 */
static void launch_end(struct peerdma_launch *launch, u32 status)
{
	struct peerdma_dev *board = launch->board;
	struct peerdma_job *job = launch->job, *slot;
	u32 n;

	peerdma_tickets_end(job->rings, job->reason, status);
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		slot = board->slots[n];
		if (!slot || slot->slot->queue != job)
			continue;
		slot->error = slot->error ?: job->error;
		launch_end_slot(slot);
	}
	launch->job = NULL;
	launch->state = LANE_IDLE;
	board->ops->job_end(job);
}

/* Ends slots of an armed queue that are not at work any more. Returns whether some still are. */
static bool launch_poll_slots(struct peerdma_launch *launch, u32 state)
{
	u32 at_work = FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_SLOT, state);
	struct peerdma_dev *board = launch->board;
	bool some = false, late = false;
	struct peerdma_job *job;
	u32 n;

	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		job = board->slots[n];
		if (!job || job->slot->queue != launch->job || !job->slot->closing)
			continue;
		if (!(state & PEERDMA_LAUNCH_QUEUE_STATE_BUSY) || at_work != job->slot->number) {
			launch_end_slot(job);
			continue;
		}
		some = true;
		if (!time_after(jiffies, job->slot->deadline))
			continue;
		late = true;
		launch->job->error = job->error;
		launch->job->reason = job->reason;
	}
	if (late)
		peerdma_launch_stop(launch->job);
	return some;
}

static bool launch_has_closing(const struct peerdma_launch *launch)
{
	const struct peerdma_job *job;
	u32 n;

	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		job = launch->board->slots[n];
		if (job && job->slot->queue == launch->job && job->slot->closing)
			return true;
	}
	return false;
}

/**
 * peerdma_launch_poll() - ends queues and slots that were told to stop and have
 * @board: called with its lock held, in any context
 *
 * Return: 1 if a queue is still busy, 0 if none is, -ENODEV if the board does not answer.
 */
int peerdma_launch_poll(struct peerdma_dev *board)
{
	struct peerdma_launch *launch;
	int some = 0;
	u32 state;

	for_each_launch(launch, board) {
		if (launch->state != LANE_STOPPING &&
		    !(launch_runs(launch) && launch_has_closing(launch)))
			continue;
		state = peerdma_launcher_read(launch, PEERDMA_LAUNCH_QUEUE_STATE_REG);
		if (state == ~0u)
			return -ENODEV;
		if (launch_runs(launch)) {
			if (!launch_poll_slots(launch, state))
				launch_control(launch, POLLING);
		} else if (state & PEERDMA_LAUNCH_QUEUE_STATE_BUSY) {
			some = 1;
		} else {
			/* The board has aborted what was at work, and started nothing else. */
			launch_end(launch, PEERDMA_LAUNCH_STATUS_FLUSHED);
		}
	}
	return some;
}

/**
 * peerdma_launch_closes() - whether a slot is being closed, of a queue that goes on
 * @board: called with its lock held
 *
 * Return: true if peerdma_launch_poll() is to be called again.
 */
bool peerdma_launch_closes(struct peerdma_dev *board)
{
	struct peerdma_launch *launch;

	for_each_launch(launch, board)
		if (launch_runs(launch) && launch_has_closing(launch))
			return true;
	return false;
}

/**
 * peerdma_launch_cut_off() - notes that the board has lost the bus
 * @board: called with its lock held, in any context
 * @deadline: when nothing can arrive any more
 */
void peerdma_launch_cut_off(struct peerdma_dev *board, unsigned long deadline)
{
	struct peerdma_launch *launch;

	for_each_launch(launch, board)
		if (launch_runs(launch) || launch->state == LANE_STOPPING)
			launch_disarm(launch, LANE_CUT_OFF, deadline);
}

/**
 * peerdma_launch_force() - ends the queues of a board that has lost the bus
 * @board: nothing can arrive any more. Called with its lock held, in any context
 */
void peerdma_launch_force(struct peerdma_dev *board)
{
	struct peerdma_launch *launch;

	for_each_launch(launch, board) {
		if (launch->state != LANE_CUT_OFF)
			continue;
		if (!launch->job->error) {
			launch->job->error = -EIO;
			launch->job->reason = PEERDMA_REASON_RESET;
		}
		/* What was at work may have moved some of its bytes. */
		launch_end(launch, PEERDMA_LAUNCH_STATUS_ABORTED);
	}
}
