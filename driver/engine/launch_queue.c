// SPDX-License-Identifier: GPL-2.0-only
/*
 * Launch queues, and the slots from which GPUs have the board start jobs. docs/queue.md has the
 * board's part of this.
 *
 * A queue is a job, and so is what is in a slot: they hold their memory, and end as others do. They
 * are told to stop, and end when the board says that it does not touch their memory any more, or
 * cannot. Before a queue ends, each ticket that has none gets a record, by the CPU.
 *
 * Tickets are in memory that a program, GPUs and the board write at any time. What is read there is
 * untrusted: it is only reported back to the program, never used by the driver.
 */
#include <linux/bitfield.h>

#include "engine.h"

/* Whether a place has an entry that has no record. Each word is read once. */
static bool launch_queue_outstanding(const struct peerdma_launch_queue *queue, u32 place,
				     u32 *ticket)
{
	const struct peerdma_launch_entry *entry = queue->entries.cpu;
	const struct peerdma_launch_record *record = queue->records.cpu;

	*ticket = le32_to_cpu(READ_ONCE(entry[place].ticket));
	return (s32)(*ticket - le32_to_cpu(READ_ONCE(record[place].ticket))) > 0;
}

/* In one piece, as the board writes it. */
static void launch_queue_record(const struct peerdma_launch_queue *queue, u32 place, u32 ticket,
				u32 status)
{
	u64 record = (u64)status << 32 | ticket;

	WRITE_ONCE(((__le64 *)queue->records.cpu)[place], cpu_to_le64(record));
}

/* Writes the state word of a queue: PEERDMA_QUEUE_*. */
static void launch_queue_tell(struct peerdma_launch_queue *queue, u32 told)
{
	queue->told = told;
	WRITE_ONCE(*(__le32 *)queue->word.cpu, cpu_to_le32(told));
}

/* Fills the memory of a queue for its start: no place has a ticket that is to come. */
static void launch_queue_fill(struct peerdma_launch_queue *queue)
{
	__le64 *entries = queue->entries.cpu;
	u32 ticket, n;

	for (n = 0; n < queue->depth; n++) {
		ticket = queue->first - queue->depth + n;
		WRITE_ONCE(entries[ticket % queue->depth], cpu_to_le64(ticket));
		launch_queue_record(queue, ticket % queue->depth, ticket, PEERDMA_LAUNCH_STATUS_OK);
	}
	WRITE_ONCE(*(__le32 *)queue->shadow.cpu, 0);
	launch_queue_tell(queue, 0);
}

/*
 * Says why a queue has ended, which the board does not touch any more, and completes tickets that
 * have no record, with a status.
 */
static void launch_queue_end_tickets(struct peerdma_launch_queue *queue, u32 reason, u32 status)
{
	u32 ticket, n;

	launch_queue_tell(queue, queue->told | FIELD_PREP(PEERDMA_QUEUE_REASON, reason));
	/* Who submits after we have looked sees that the queue has ended. */
	smp_mb();
	for (n = 0; n < queue->depth; n++)
		if (launch_queue_outstanding(queue, n, &ticket))
			launch_queue_record(queue, n, ticket, status);
}

/* Writes a done word. */
static void launch_queue_set_done(const struct peerdma_place *done)
{
	/* It follows the record. */
	smp_wmb();
	WRITE_ONCE(*(__le32 *)done->cpu, cpu_to_le32(1));
}

static bool launch_queue_runs(const struct peerdma_hw_queue *hwq)
{
	return hwq->state == ENGINE_RUNNING;
}

/* The record of a ticket that is aborted has its place as well: the mask stays. */
static void launch_queue_control(const struct peerdma_hw_queue *hwq, u32 flags)
{
	const struct peerdma_launch_queue *queue = &hwq->job->launch_queue;

	peerdma_launch_regs_write(hwq, PEERDMA_LAUNCH_QUEUE_CONTROL_REG, flags |
				  FIELD_PREP(PEERDMA_LAUNCH_QUEUE_CONTROL_MASK, queue->depth - 1) |
				  FIELD_PREP(PEERDMA_LAUNCH_QUEUE_CONTROL_GENERATION,
					     queue->generation));
}

/* From here on the job is stopped with its memory. */
static void launch_queue_list(struct peerdma_job *job)
{
	struct peerdma_use *use;

	for_each_use(use, job)
		list_add_tail(&use->on_surface, &use->surface->queued);
}

static void launch_queue_unlist(struct peerdma_job *job)
{
	struct peerdma_use *use;

	for_each_use(use, job)
		list_del_init(&use->on_surface);
}

/* Tells a queue to stop. Its memory, and that of its slots, need not do that any more. */
static void launch_queue_disarm(struct peerdma_hw_queue *hwq, enum peerdma_engine_state state,
				unsigned long deadline)
{
	struct peerdma_job *job;
	u32 n;

	launch_queue_unlist(hwq->job);
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		job = hwq->board->slots[n];
		if (job && job->slot.queue == hwq->job)
			launch_queue_unlist(job);
	}
	hwq->state = state;
	hwq->deadline = deadline;
	launch_queue_control(hwq, 0);
}

static int launch_queue_arm(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_hw_queue *hwq = peerdma_launch_regs_find_idle(board);
	struct peerdma_launch_queue *queue = &job->launch_queue;

	if (!hwq)
		return -EBUSY;
	if (!++board->hw_queue_generation)
		board->hw_queue_generation++;
	queue->generation = board->hw_queue_generation;
	launch_queue_fill(queue);
	queue->hwq = hwq;
	hwq->job = job;
	hwq->state = ENGINE_RUNNING;
	launch_queue_list(job);
	peerdma_launch_regs_point(hwq, PEERDMA_LAUNCH_QUEUE_RING_LO_REG, queue->entries.bus);
	peerdma_launch_regs_point(hwq, PEERDMA_LAUNCH_QUEUE_RECORDS_LO_REG, queue->records.bus);
	peerdma_launch_regs_point(hwq, PEERDMA_LAUNCH_QUEUE_SHADOW_LO_REG, queue->shadow.bus);
	peerdma_launch_regs_write(hwq, PEERDMA_LAUNCH_QUEUE_FIRST_REG, queue->first & U16_MAX);
	launch_queue_control(hwq, PEERDMA_LAUNCH_QUEUE_CONTROL_ARMED |
			     PEERDMA_LAUNCH_QUEUE_CONTROL_POLLS);
	queue_delayed_work(peerdma_wq, &board->watchdog, PEERDMA_WATCH_INTERVAL);
	return 0;
}

/* How many slots a job has, the first one at a multiple of that. */
static u32 launch_queue_slots(const struct peerdma_job *job)
{
	return job->slot.control & PEERDMA_LAUNCH_SLOT_CONTROL_PAIR ||
	       peerdma_job_takes_packets(job) ? 2 : 1;
}

static int launch_queue_install(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	u32 count = launch_queue_slots(job), n, engine;
	struct peerdma_slot *slot = &job->slot;
	struct peerdma_hw_queue *hwq = slot->queue->launch_queue.hwq;
	const struct peerdma_descriptor *first;

	if (slot->queue->ended || !launch_queue_runs(hwq))
		return -ENOENT;
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n += count)
		if (!board->slots[n] && !board->slots[n + count - 1])
			break;
	if (n == PEERDMA_LAUNCH_SLOTS)
		return -ENOSPC;
	slot->number = n;
	for (engine = 0; engine < PEERDMA_DIRECTIONS; engine++) {
		first = slot->chains[engine].descriptors;
		if (first)
			peerdma_launch_regs_fill(board, n++, first);
	}
	/* Of a list with a record, which has two descriptors at least. */
	if (peerdma_job_takes_packets(job))
		peerdma_launch_regs_fill(board, n, slot->chains[PEERDMA_C2H].descriptors + 1);
	for (n = 0; n < count; n++)
		board->slots[slot->number + n] = job;
	launch_queue_list(job);
	/* A frame without a record would be the beginning of the first packet. */
	if (peerdma_job_takes_packets(job) &&
	    peerdma_frame_ring_switch_records(board, job->channel, true))
		peerdma_hw_flush_stream(board, job->channel);
	slot->control |= FIELD_PREP(PEERDMA_LAUNCH_SLOT_CONTROL_QUEUE, hwq->number);
	peerdma_launch_regs_validate(board, slot->number, slot->control, slot->flush,
				     slot->done.bus);
	return 0;
}

/**
 * peerdma_launch_queue_start() - arms a queue, or puts a job into a slot
 * @job: prepared; it holds its memory from here on. Called with the board's lock held
 *
 * Return: 0; -EAGAIN if the board is frozen, -EBUSY if all queues are in use, -ENOENT if the queue
 * has ended, -ENOSPC if no slot is left.
 */
int peerdma_launch_queue_start(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	int error;

	if (board->state != PEERDMA_BOARD_LIVE || board->broken)
		return -EAGAIN;
	error = job->type == JOB_SLOT ? launch_queue_install(job) : launch_queue_arm(job);
	if (!error)
		peerdma_launch_regs_flush(board);
	return error;
}

/**
 * peerdma_launch_queue_resume() - has a queue start tickets again after one that failed
 * @hwq: armed. Called with the board's lock held
 */
void peerdma_launch_queue_resume(struct peerdma_hw_queue *hwq)
{
	peerdma_launch_regs_write(hwq, PEERDMA_LAUNCH_QUEUE_RESUME_REG, 1);
	peerdma_launch_regs_flush(hwq->board);
	launch_queue_tell(&hwq->job->launch_queue, 0);
}

/**
 * peerdma_launch_queue_look() - tells a program how its queue is
 * @hwq: armed. Called with the board's lock held
 *
 * Return: PEERDMA_LAUNCH_QUEUE_STATE_*; all ones if the board does not answer.
 */
u32 peerdma_launch_queue_look(struct peerdma_hw_queue *hwq)
{
	u32 state = peerdma_launch_regs_read(hwq, PEERDMA_LAUNCH_QUEUE_STATE_REG);
	u32 end = FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_END, state);
	u32 status = state & PEERDMA_LAUNCH_QUEUE_STATE_FAILED ?
		     FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_STATUS, state) : 0;

	if (state != ~0u)
		launch_queue_tell(&hwq->job->launch_queue,
				  FIELD_PREP(PEERDMA_QUEUE_STATUS, status) |
				  FIELD_PREP(PEERDMA_QUEUE_END, end));
	return state;
}

/**
 * peerdma_launch_queue_holding() - finds a queue with a ticket at work that has or needs engines
 * @board: called with its lock held
 * @needs: the engines, a bit for each
 *
 * Return: an armed queue, or NULL.
 */
struct peerdma_hw_queue *peerdma_launch_queue_holding(struct peerdma_dev *board, unsigned int needs)
{
	struct peerdma_hw_queue *hwq;
	struct peerdma_job *job;
	u32 state, n;
	u64 at_work;

	for_each_hw_queue(hwq, board) {
		if (!launch_queue_runs(hwq))
			continue;
		state = peerdma_launch_regs_read(hwq, PEERDMA_LAUNCH_QUEUE_STATE_REG);
		at_work = state == ~0u ? 0 : peerdma_launch_regs_at_work(hwq, state);
		for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
			job = board->slots[n];
			if (at_work & BIT_ULL(n) && job && job->slot.queue == hwq->job &&
			    peerdma_dispatch_needs(job) & needs)
				return hwq;
		}
	}
	return NULL;
}

/**
 * peerdma_launch_queue_stop() - makes a queue end, or takes a job from its slot
 * @job: has started. Called with the board's lock held, in any context
 *
 * It ends in peerdma_launch_queue_poll(). With a queue, its slots end.
 */
void peerdma_launch_queue_stop(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_job *queue = job->type == JOB_SLOT ? job->slot.queue : job;
	struct peerdma_hw_queue *hwq = queue->launch_queue.hwq;
	unsigned long deadline = jiffies + peerdma_hw_scaled(board, PEERDMA_STOP_MS);

	if (!launch_queue_runs(hwq))
		return;
	if (job == queue) {
		launch_queue_disarm(hwq, ENGINE_STOPPING, deadline);
	} else if (!job->slot.closing) {
		launch_queue_unlist(job);
		job->slot.closing = true;
		job->slot.deadline = deadline;
		peerdma_launch_regs_invalidate(board, job->slot.number);
	}
}

/* The job of a slot that is not at work. Whoever waits for its done word is not left waiting. */
static void launch_queue_end_slot(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	struct peerdma_slot *slot = &job->slot;
	u32 n;

	peerdma_launch_regs_invalidate(board, slot->number);
	if (slot->done.cpu)
		launch_queue_set_done(&slot->done);
	for (n = 0; n < launch_queue_slots(job); n++)
		board->slots[slot->number + n] = NULL;
	if (peerdma_job_takes_packets(job))
		peerdma_frame_ring_switch_records(board, job->channel, false);
	peerdma_partition_leave_stream(job);
	board->ops->job_end(job);
}

/*
 * Ends a queue that does not touch memory any more, with a record of @status for each ticket that
 * has none.
 */
static void launch_queue_end(struct peerdma_hw_queue *hwq, u32 status)
{
	struct peerdma_dev *board = hwq->board;
	struct peerdma_job *job = hwq->job, *slot;
	u32 n;

	launch_queue_end_tickets(&job->launch_queue, job->reason, status);
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		slot = board->slots[n];
		if (!slot || slot->slot.queue != job)
			continue;
		slot->error = slot->error ?: job->error;
		launch_queue_end_slot(slot);
	}
	hwq->job = NULL;
	hwq->state = ENGINE_IDLE;
	board->ops->job_end(job);
}

/* Ends slots of an armed queue that are not at work any more. */
static void launch_queue_poll_slots(struct peerdma_hw_queue *hwq, u32 state)
{
	u64 at_work = peerdma_launch_regs_at_work(hwq, state);
	struct peerdma_dev *board = hwq->board;
	struct peerdma_job *job;
	bool late = false;
	u32 n;

	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		job = board->slots[n];
		if (!job || job->slot.queue != hwq->job || !job->slot.closing)
			continue;
		if (!(at_work & BIT_ULL(job->slot.number))) {
			launch_queue_end_slot(job);
			continue;
		}
		if (!time_after(jiffies, job->slot.deadline))
			continue;
		late = true;
		hwq->job->error = job->error;
		hwq->job->reason = job->reason;
	}
	if (late)
		peerdma_launch_queue_stop(hwq->job);
}

static bool launch_queue_has_closing(const struct peerdma_hw_queue *hwq)
{
	const struct peerdma_job *job;
	u32 n;

	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++) {
		job = hwq->board->slots[n];
		if (job && job->slot.queue == hwq->job && job->slot.closing)
			return true;
	}
	return false;
}

/**
 * peerdma_launch_queue_poll() - ends queues and slots that were told to stop and have
 * @board: called with its lock held, in any context
 *
 * Return: 1 if a queue is still busy, 0 if none is, -ENODEV if the board does not answer.
 */
int peerdma_launch_queue_poll(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;
	int some = 0;
	u32 state;

	for_each_hw_queue(hwq, board) {
		if (hwq->state != ENGINE_STOPPING &&
		    !(launch_queue_runs(hwq) && launch_queue_has_closing(hwq)))
			continue;
		state = peerdma_launch_regs_read(hwq, PEERDMA_LAUNCH_QUEUE_STATE_REG);
		if (state == ~0u)
			return -ENODEV;
		if (launch_queue_runs(hwq)) {
			launch_queue_poll_slots(hwq, state);
		} else if (state & PEERDMA_LAUNCH_QUEUE_STATE_BUSY) {
			some = 1;
		} else {
			/* The board has aborted what was at work, and started nothing else. */
			launch_queue_end(hwq, PEERDMA_LAUNCH_STATUS_FLUSHED);
		}
	}
	return some;
}

/**
 * peerdma_launch_queue_closes() - whether a slot is being closed, of a queue that goes on
 * @board: called with its lock held
 *
 * Return: true if peerdma_launch_queue_poll() is to be called again.
 */
bool peerdma_launch_queue_closes(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;

	for_each_hw_queue(hwq, board)
		if (launch_queue_runs(hwq) && launch_queue_has_closing(hwq))
			return true;
	return false;
}

/**
 * peerdma_launch_queue_cut_off() - notes that the board has lost the bus
 * @board: called with its lock held, in any context
 * @deadline: when nothing can arrive any more
 */
void peerdma_launch_queue_cut_off(struct peerdma_dev *board, unsigned long deadline)
{
	struct peerdma_hw_queue *hwq;

	for_each_hw_queue(hwq, board)
		if (launch_queue_runs(hwq) || hwq->state == ENGINE_STOPPING)
			launch_queue_disarm(hwq, ENGINE_CUT_OFF, deadline);
}

/**
 * peerdma_launch_queue_force() - ends the queues of a board that has lost the bus
 * @board: nothing can arrive any more. Called with its lock held, in any context
 */
void peerdma_launch_queue_force(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;

	for_each_hw_queue(hwq, board) {
		if (hwq->state != ENGINE_CUT_OFF)
			continue;
		if (!hwq->job->error) {
			hwq->job->error = -EIO;
			hwq->job->reason = PEERDMA_REASON_RESET;
		}
		/* What was at work may have moved some of its bytes. */
		launch_queue_end(hwq, PEERDMA_LAUNCH_STATUS_ABORTED);
	}
}
