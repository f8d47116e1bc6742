// SPDX-License-Identifier: GPL-2.0-only
/*
 * How engines report: interrupts (a message for each, one message for both, or a shared line),
 * and a watchdog for those that do not arrive.
 *
 * Room for completions. A read that is not answered keeps its room in the board for a while, since
 * completions may still come. When none is left for others, a chain that reads ends at once with
 * PEERDMA_ERROR_NO_COMPLETION_SPACE. Its job starts it again once there is room, and no other chain
 * starts before. What cannot be started again does not start while there are lost reads.
 */
#include <linux/bitfield.h>
#include <linux/interrupt.h>

#include "engine.h"

/* How often room is looked for, in the longest time for which a lost read keeps its own. */
#define LOOKS			50
/* A job waits for so many of these times, since more reads may be lost meanwhile. */
#define PATIENCE		2

static unsigned long irq_room_longest(struct peerdma_dev *board)
{
	return peerdma_hw_scaled(board, PEERDMA_QUARANTINE_MS);
}

/* If the board does not answer, there are some. */
static bool irq_has_lost_reads(struct peerdma_dev *board)
{
	return peerdma_read(board, PEERDMA_EXTENSION_BASE + PEERDMA_EXTENSION_QUARANTINED_REG);
}

static void irq_look_for_room_later(struct peerdma_dev *board)
{
	queue_delayed_work(peerdma_wq, &board->room, irq_room_longest(board) / LOOKS + 1);
}

/* Nothing is asked of the board before its first lost read. */
static void irq_note_lost_reads(struct peerdma_dev *board, bool full)
{
	if (!board->crowded)
		board->crowded = (jiffies + PATIENCE * irq_room_longest(board)) | 1;
	board->full |= full;
	irq_look_for_room_later(board);
}

/* Whether a chain failed for that. Of two that fail at the same time, one may not be explained. */
static bool irq_missed_room(struct peerdma_engine *engine)
{
	struct peerdma_dev *board = engine->board;
	bool full = true;

	switch (engine->job->run.kind) {
	case PEERDMA_ERROR_COMPLETION_TIMEOUT:
	case PEERDMA_ERROR_UNEXPECTED_COMPLETION:
		full = false;
		break;
	case PEERDMA_ERROR_NO_COMPLETION_SPACE:
		break;
	case 0:
		if (board->version && irq_has_lost_reads(board))
			break;
		return false;
	default:
		return false;
	}
	irq_note_lost_reads(board, full);
	return full;
}

static void irq_stop_for_room(struct peerdma_engine *engine)
{
	if (engine->state != ENGINE_RUNNING)
		return;
	peerdma_hw_stop(engine);
	engine->state = ENGINE_STOPPING;
	engine->deadline = jiffies + peerdma_hw_scaled(engine->board, PEERDMA_STOP_MS);
}

/*
 * Has a job wait for room for completions: its chain has failed, and what is known of that is in
 * the job, which goes on if it can; see peerdma_dispatch_settle(). The board's lock is held.
 * Returns false if the chain failed for another reason, or cannot be started again, or the job has
 * waited for as long as lost reads keep their room.
 */
static bool irq_wait_for_room(struct peerdma_engine *engine)
{
	struct peerdma_dev *board = engine->board;
	struct peerdma_job *job = engine->job;
	struct peerdma_engine *other;

	if (!irq_missed_room(engine) || job->error || !peerdma_dispatch_repeats(job))
		return false;
	if (!job->run.waited)
		job->run.patience = jiffies + PATIENCE * irq_room_longest(board);
	job->run.waited = true;
	job->run.waits_for = PEERDMA_WAITS_FOR_SPACE;
	if (time_after(jiffies, job->run.patience))
		return false;
	job->run.again = true;
	irq_stop_for_room(engine);
	/* A copy begins anew. */
	for_each_engine(other, board)
		if (other->job == job && job->path == PATH_STREAM)
			irq_stop_for_room(other);
	mod_delayed_work(peerdma_wq, &board->stopper, 0);
	return true;
}

/* As irq_event(), of a channel that runs a ring, which ends only if it is stopped, or fails. */
static void irq_ring(struct peerdma_engine *engine, u32 status)
{
	struct peerdma_job *job = engine->job;
	int error = peerdma_frame_ring_look(job->run.frame_ring, status);

	engine->unheard = false;
	if (error == -ENODEV) {
		peerdma_stop_lost(engine->board);
		return;
	}
	if (!error && status & PEERDMA_STATUS_BUSY && !(status & PEERDMA_STATUS_ERRORS))
		return;
	job->status = status;
	job->run.kind = peerdma_hw_capture_take(engine, &job->run.address);
	peerdma_stop_job(job, -EIO, PEERDMA_REASON_ENGINE);
}

/*
 * Handles events of a channel: @status was read and cleared, and has more than the busy bit. The
 * board's lock is held; any context.
 */
static void irq_event(struct peerdma_engine *engine, u32 status)
{
	struct peerdma_dev *board = engine->board;
	struct peerdma_job *job = engine->job;

	if (engine->state != ENGINE_RUNNING && engine->state != ENGINE_STOPPING)
		return;
	if (status == ~0u) {
		peerdma_stop_lost(board);
		return;
	}
	if (engine->state == ENGINE_RUNNING && job->run.frame_ring) {
		irq_ring(engine, status);
		return;
	}
	engine->seen |= status & ~PEERDMA_STATUS_BUSY;
	if (engine->state == ENGINE_RUNNING && !peerdma_hw_done(engine, engine->seen)) {
		/* The events of a chain may arrive in parts; when it is not busy they all have. */
		if (status & PEERDMA_STATUS_BUSY && !(engine->seen & PEERDMA_STATUS_ERRORS))
			return;
		job->status = engine->seen;
		job->run.kind = peerdma_hw_capture_take(engine, &job->run.address);
		if (!irq_wait_for_room(engine))
			peerdma_stop_job(job, -EIO, PEERDMA_REASON_ENGINE);
		return;
	}
	if (engine->state == ENGINE_RUNNING) {
		job->legs[engine->index].done += engine->bytes;
		job->legs[engine->index].cycles += peerdma_hw_cycles(engine);
		peerdma_hw_stop(engine);
	} else if (status & PEERDMA_STATUS_BUSY) {
		return;
	}
	engine->state = ENGINE_IDLE;
	peerdma_dispatch_settle(job);
}

static void irq_engine(struct peerdma_engine *engine)
{
	u32 status = peerdma_hw_status(engine, true);

	if (status & ~PEERDMA_STATUS_BUSY)
		irq_event(engine, status);
}

/* MSI-X, or MSI with a vector for each engine. */
static irqreturn_t irq_engine_handler(int irq, void *data)
{
	struct peerdma_engine *engine = data;
	unsigned long flags;

	spin_lock_irqsave(&engine->board->lock, flags);
	irq_engine(engine);
	spin_unlock_irqrestore(&engine->board->lock, flags);
	return IRQ_HANDLED;
}

/* One vector for all engines; on a shared line the interrupt may be another device's. */
static irqreturn_t irq_board_handler(int irq, void *data)
{
	struct peerdma_dev *board = data;
	irqreturn_t result = IRQ_NONE;
	struct peerdma_engine *engine;
	unsigned long flags;
	u32 request;

	spin_lock_irqsave(&board->lock, flags);
	request = peerdma_read(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_CHANNEL_REQUEST_REG);
	/* All ones: the board is gone and not the source; the watchdog will notice. */
	for_each_engine(engine, board) {
		if (request == ~0u || !(request & engine->irq_bit))
			continue;
		irq_engine(engine);
		result = IRQ_HANDLED;
	}
	spin_unlock_irqrestore(&board->lock, flags);
	return result;
}

/**
 * peerdma_irq_setup() - allocates vectors and installs the handlers
 * @board: its interrupts are masked. May sleep
 *
 * Return: 0 or an errno.
 */
int peerdma_irq_setup(struct peerdma_dev *board)
{
	struct pci_dev *pdev = board->pdev;
	int engines = board->engine_count;
	int vectors, n, error;

	vectors = pci_alloc_irq_vectors(pdev, 1, engines, PCI_IRQ_ALL_TYPES);
	if (vectors < 0)
		return vectors;
	board->interrupts = pdev->msix_enabled ? PEERDMA_MSIX :
			    pdev->msi_enabled ? PEERDMA_MSI : PEERDMA_INTX;
	if (vectors < engines) {
		error = request_irq(pci_irq_vector(pdev, 0), irq_board_handler, IRQF_SHARED,
				    PEERDMA_NAME, board);
		if (error)
			goto err_vectors;
		board->vectors = 1;
		return 0;
	}
	for (n = 0; n < engines; n++) {
		error = request_irq(pci_irq_vector(pdev, n), irq_engine_handler, 0, PEERDMA_NAME,
				    &board->engines[n]);
		if (error)
			goto err_irqs;
	}
	board->vectors = engines;
	return 0;

err_irqs:
	while (n--)
		free_irq(pci_irq_vector(pdev, n), &board->engines[n]);
err_vectors:
	pci_free_irq_vectors(pdev);
	return error;
}

/**
 * peerdma_irq_teardown() - undoes peerdma_irq_setup()
 * @board: its interrupts are masked or it is gone. Waits for the handlers
 */
void peerdma_irq_teardown(struct peerdma_dev *board)
{
	int engines = board->engine_count;
	int n;

	if (board->vectors < engines)
		free_irq(pci_irq_vector(board->pdev, 0), board);
	else
		for (n = 0; n < engines; n++)
			free_irq(pci_irq_vector(board->pdev, n), &board->engines[n]);
	pci_free_irq_vectors(board->pdev);
}

static void irq_watch_progress(struct peerdma_engine *engine)
{
	u64 progress = peerdma_hw_progress(engine);

	if (progress == engine->progress)
		return;
	engine->progress = progress;
	peerdma_dispatch_moves(engine->job);
}

/* The running engine that tells why a job does not move. */
static struct peerdma_engine *irq_culprit(const struct peerdma_job *job)
{
	struct peerdma_engine *engine, *found = NULL;

	for_each_engine(engine, job->file->board) {
		if (engine->job != job || engine->state != ENGINE_RUNNING)
			continue;
		switch (peerdma_hw_waits_for(engine)) {
		case PEERDMA_WAITS_FOR_USER_INPUT:
		case PEERDMA_WAITS_FOR_USER_OUTPUT:
			/* In a copy that may be because of the other one. */
			found = found ?: engine;
			break;
		default:
			return engine;
		}
	}
	return found;
}

/* Called with the board's lock held. */
static void irq_watch(struct peerdma_engine *engine)
{
	struct peerdma_dev *board = engine->board;
	u32 status = peerdma_hw_status(engine, false);
	bool ring = engine->job->run.frame_ring;

	if (status == ~0u) {
		peerdma_stop_lost(board);
		return;
	}
	if ((status | engine->seen) & ~PEERDMA_STATUS_BUSY) {
		/* The interrupt may still arrive: it gets one interval for that. */
		if (!engine->unheard) {
			engine->unheard = true;
			return;
		}
		irq_event(engine, peerdma_hw_status(engine, true));
		board->lost_interrupts += ring || engine->state != ENGINE_RUNNING;
	}
	if (engine->state == ENGINE_RUNNING)
		irq_watch_progress(engine);
}

/*
 * Ends queues whose ticket at work has what an engine waits for: the engine, or one of its pair,
 * whose run is to end before the stream is flushed. Called with the board's lock held. Returns
 * whether there were any.
 */
static bool irq_end_holders(struct peerdma_engine *engine, u32 waits_for)
{
	unsigned int engines = 0;
	struct peerdma_hw_queue *hwq;
	bool some = false;

	if (waits_for == PEERDMA_WAITS_FOR_GRANT)
		engines = BIT(engine->number);
	else if (waits_for == PEERDMA_WAITS_FOR_FLUSH)
		engines = BIT(engine->number) | BIT(engine->number ^ 1);
	while (engines && (hwq = peerdma_launch_queue_holding(engine->board, engines))) {
		peerdma_stop_job(hwq->job, -ETIMEDOUT, PEERDMA_REASON_TIMEOUT);
		some = true;
	}
	return some;
}

/*
 * Stops the job of a running engine if it is late, unless it waits for the user block: then it
 * keeps its engines, as a frame ring always does, and others are refused. Called with the board's
 * lock held. Returns whether there are more of these to be ended at once.
 */
static bool irq_judge(struct peerdma_engine *engine)
{
	struct peerdma_job *job = engine->job;
	bool stands, more = false;

	/* What has ended, or is with a board that is gone, is not late. */
	if (engine->unheard || engine->board->state == PEERDMA_BOARD_DEAD)
		return false;
	if (job->run.frame_ring) {
		if (peerdma_frame_ring_waits(job->run.frame_ring))
			peerdma_dispatch_moves(job);
		more = peerdma_stop_kept(job);
	}
	stands = time_after(jiffies, job->run.deadline);
	if (!stands && (job->run.frame_ring || time_before_eq(jiffies, job->run.limit)))
		return more;
	engine = irq_culprit(job);
	job->run.waits_for = peerdma_hw_waits_for(engine);
	if (job->path == PATH_RECEIVE &&
	    (!stands || job->run.waits_for == PEERDMA_WAITS_FOR_USER_OUTPUT)) {
		job->run.keeps = true;
		return peerdma_stop_kept(job);
	}
	/* It is not the one that is late. */
	if (irq_end_holders(engine, job->run.waits_for)) {
		peerdma_dispatch_moves(job);
		return false;
	}
	engine->board->timeouts++;
	job->status = peerdma_hw_status(engine, false);
	dev_warn_ratelimited(&engine->board->pdev->dev,
			     "%s%u: %llu bytes in %u descriptors %s, status %#x, waits for %u\n",
			     engine->name, engine->pair, engine->bytes, engine->count,
			     stands ? "do not move" : "are not done in time", job->status,
			     job->run.waits_for);
	peerdma_stop_job(job, -ETIMEDOUT, PEERDMA_REASON_TIMEOUT);
	return false;
}

/* Tells a program how its queue is, and ends one that takes no more tickets. The lock is held. */
static void irq_watch_queue(struct peerdma_hw_queue *hwq)
{
	u32 state;

	if (hwq->state != ENGINE_RUNNING)
		return;
	state = peerdma_launch_queue_look(hwq);
	if (state == ~0u) {
		peerdma_stop_lost(hwq->board);
	} else if (FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_END, state)) {
		hwq->job->status = state;
		peerdma_stop_job(hwq->job, -EIO, PEERDMA_REASON_ENGINE);
	}
}

/**
 * peerdma_irq_watchdog_work() - polls engines that are running, and launch queues
 * @work: a board's
 *
 * Finds chains whose interrupt was lost, jobs that are late, queues that have ended, and a board
 * that is gone.
 */
void peerdma_irq_watchdog_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, watchdog.work);
	bool some = false, more = false;
	struct peerdma_hw_queue *hwq;
	struct peerdma_engine *engine;

	spin_lock_irq(&board->lock);
	for_each_hw_queue(hwq, board)
		irq_watch_queue(hwq);
	for_each_engine(engine, board)
		if (engine->state == ENGINE_RUNNING)
			irq_watch(engine);
	for_each_engine(engine, board)
		if (engine->state == ENGINE_RUNNING)
			more |= irq_judge(engine);
	for_each_engine(engine, board)
		some |= engine->state == ENGINE_RUNNING;
	for_each_hw_queue(hwq, board)
		some |= hwq->state == ENGINE_RUNNING;
	spin_unlock_irq(&board->lock);

	if (some)
		queue_delayed_work(peerdma_wq, &board->watchdog,
				   more ? 0 : PEERDMA_WATCH_INTERVAL);
}

/**
 * peerdma_irq_room_work() - starts chains again when there is room
 * @work: a board's
 */
void peerdma_irq_room_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, room.work);
	bool crowded;

	spin_lock_irq(&board->lock);
	crowded = board->crowded && board->state == PEERDMA_BOARD_LIVE &&
		  time_before(jiffies, board->crowded) && irq_has_lost_reads(board);
	if (!crowded) {
		board->crowded = 0;
		board->full = false;
	}
	spin_unlock_irq(&board->lock);
	if (crowded)
		irq_look_for_room_later(board);
	else
		queue_work(peerdma_wq, &board->pump);
}
