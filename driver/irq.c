// SPDX-License-Identifier: GPL-2.0
/*
 * How the engine reports: interrupts (a message for each lane, one message for both, or a shared
 * line), and a watchdog for those that do not arrive.
 */
#include <linux/bitfield.h>
#include <linux/interrupt.h>

#include "engine.h"

/* As irq_event(), of a channel that runs a ring, which ends only if it is stopped, or fails. */
static void irq_ring(struct peerdma_lane *lane, u32 status)
{
	struct peerdma_job *job = lane->job;
	int error = peerdma_ring_look(job->ring, status);

	lane->unheard = false;
	if (error == -ENODEV) {
		peerdma_stop_lost(lane->board);
		return;
	}
	if (!error && status & PEERDMA_STATUS_BUSY && !(status & PEERDMA_STATUS_ERRORS))
		return;
	job->status = status;
	job->kind = peerdma_capture_take(lane, &job->address);
	peerdma_stop_job(job, -EIO, PEERDMA_REASON_ENGINE);
}

/*
 * Handles events of a channel: @status was read and cleared, and has more than the busy bit. The
 * board's lock is held; any context.
 */
static void irq_event(struct peerdma_lane *lane, u32 status)
{
	struct peerdma_dev *board = lane->board;
	struct peerdma_job *job = lane->job;

	if (lane->state != LANE_RUNNING && lane->state != LANE_STOPPING)
		return;
	if (status == ~0u) {
		peerdma_stop_lost(board);
		return;
	}
	if (lane->state == LANE_RUNNING && job->ring) {
		irq_ring(lane, status);
		return;
	}
	lane->seen |= status & ~PEERDMA_STATUS_BUSY;
	if (lane->state == LANE_RUNNING && !peerdma_hw_done(lane, lane->seen)) {
		/* The events of a chain may arrive in parts; when it is not busy they all have. */
		if (status & PEERDMA_STATUS_BUSY && !(lane->seen & PEERDMA_STATUS_ERRORS))
			return;
		job->status = lane->seen;
		job->kind = peerdma_capture_take(lane, &job->address);
		if (!peerdma_room_wait(lane))
			peerdma_stop_job(job, -EIO, PEERDMA_REASON_ENGINE);
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
	peerdma_engine_settle(job);
}

static void irq_lane(struct peerdma_lane *lane)
{
	u32 status = peerdma_hw_status(lane, true);

	if (status & ~PEERDMA_STATUS_BUSY)
		irq_event(lane, status);
}

/* MSI-X, or MSI with a vector for each lane. */
static irqreturn_t irq_lane_handler(int irq, void *data)
{
	struct peerdma_lane *lane = data;
	unsigned long flags;

	spin_lock_irqsave(&lane->board->lock, flags);
	irq_lane(lane);
	spin_unlock_irqrestore(&lane->board->lock, flags);
	return IRQ_HANDLED;
}

/* One vector for all lanes; on a shared line the interrupt may be another device's. */
static irqreturn_t irq_board_handler(int irq, void *data)
{
	struct peerdma_dev *board = data;
	irqreturn_t result = IRQ_NONE;
	struct peerdma_lane *lane;
	unsigned long flags;
	u32 request;

	spin_lock_irqsave(&board->lock, flags);
	request = peerdma_read(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_CHANNEL_REQUEST_REG);
	/* All ones: the board is gone and not the source; the watchdog will notice. */
	for_each_lane(lane, board) {
		if (request == ~0u || !(request & lane->irq_bit))
			continue;
		irq_lane(lane);
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
	int lanes = board->lane_count;
	int vectors, n, error;

	vectors = pci_alloc_irq_vectors(pdev, 1, lanes, PCI_IRQ_ALL_TYPES);
	if (vectors < 0)
		return vectors;
	board->interrupts = pdev->msix_enabled ? PEERDMA_MSIX :
			    pdev->msi_enabled ? PEERDMA_MSI : PEERDMA_INTX;
	if (vectors < lanes) {
		error = request_irq(pci_irq_vector(pdev, 0), irq_board_handler, IRQF_SHARED,
				    PEERDMA_NAME, board);
		if (error)
			goto err_vectors;
		board->vectors = 1;
		return 0;
	}
	for (n = 0; n < lanes; n++) {
		error = request_irq(pci_irq_vector(pdev, n), irq_lane_handler, 0, PEERDMA_NAME,
				    &board->lanes[n]);
		if (error)
			goto err_irqs;
	}
	board->vectors = lanes;
	return 0;

err_irqs:
	while (n--)
		free_irq(pci_irq_vector(pdev, n), &board->lanes[n]);
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
	int lanes = board->lane_count;
	int n;

	if (board->vectors < lanes)
		free_irq(pci_irq_vector(board->pdev, 0), board);
	else
		for (n = 0; n < lanes; n++)
			free_irq(pci_irq_vector(board->pdev, n), &board->lanes[n]);
	pci_free_irq_vectors(board->pdev);
}

static void irq_watch_progress(struct peerdma_lane *lane)
{
	u64 progress = peerdma_hw_progress(lane);

	if (progress == lane->progress)
		return;
	lane->progress = progress;
	peerdma_engine_moves(lane->job);
}

/* The running lane that tells why a job does not move. */
static struct peerdma_lane *irq_culprit(const struct peerdma_job *job)
{
	struct peerdma_lane *lane, *found = NULL;

	for_each_lane(lane, job->file->board) {
		if (lane->job != job || lane->state != LANE_RUNNING)
			continue;
		switch (peerdma_hw_waits_for(lane)) {
		case PEERDMA_WAITS_FOR_USER_INPUT:
		case PEERDMA_WAITS_FOR_USER_OUTPUT:
			/* In a copy that may be because of the other one. */
			found = found ?: lane;
			break;
		default:
			return lane;
		}
	}
	return found;
}

/* Called with the board's lock held. */
static void irq_watch(struct peerdma_lane *lane)
{
	struct peerdma_dev *board = lane->board;
	u32 status = peerdma_hw_status(lane, false);
	bool ring = lane->job->ring;

	if (status == ~0u) {
		peerdma_stop_lost(board);
		return;
	}
	if ((status | lane->seen) & ~PEERDMA_STATUS_BUSY) {
		/* The interrupt may still arrive: it gets one interval for that. */
		if (!lane->unheard) {
			lane->unheard = true;
			return;
		}
		irq_event(lane, peerdma_hw_status(lane, true));
		board->lost_interrupts += ring || lane->state != LANE_RUNNING;
	}
	if (lane->state == LANE_RUNNING)
		irq_watch_progress(lane);
}

/*
 * Ends queues whose ticket at work has a lane. Called with the board's lock held. Returns whether
 * there were any.
 */
static bool irq_end_holders(struct peerdma_lane *lane)
{
	struct peerdma_launch *launch;
	bool some = false;

	while ((launch = peerdma_launch_holding(lane->board, BIT(lane->number), false))) {
		peerdma_stop_job(launch->job, -ETIMEDOUT, PEERDMA_REASON_TIMEOUT);
		some = true;
	}
	return some;
}

/*
 * Stops the job of a running lane if it is late, unless it waits for the user block: then it keeps
 * its lanes, as a ring always does, and others are refused. Called with the board's lock held.
 * Returns whether there are more of these to be ended at once.
 */
static bool irq_judge(struct peerdma_lane *lane)
{
	struct peerdma_job *job = lane->job;
	bool stands, more = false;

	/* What has ended, or is with a board that is gone, is not late. */
	if (lane->unheard || lane->board->state == PEERDMA_BOARD_DEAD)
		return false;
	if (job->ring) {
		if (peerdma_ring_waits(job->ring))
			peerdma_engine_moves(job);
		more = peerdma_stop_kept(job);
	}
	stands = time_after(jiffies, job->deadline);
	if (!stands && (job->ring || time_before_eq(jiffies, job->limit)))
		return more;
	lane = irq_culprit(job);
	job->waits_for = peerdma_hw_waits_for(lane);
	if (job->path == PATH_RECEIVE &&
	    (!stands || job->waits_for == PEERDMA_WAITS_FOR_USER_OUTPUT)) {
		job->keeps = true;
		return peerdma_stop_kept(job);
	}
	/* It is not the one that is late. */
	if (job->waits_for == PEERDMA_WAITS_FOR_GRANT && irq_end_holders(lane)) {
		peerdma_engine_moves(job);
		return false;
	}
	lane->board->timeouts++;
	job->status = peerdma_hw_status(lane, false);
	dev_warn_ratelimited(&lane->board->pdev->dev,
			     "%s%u: %llu bytes in %u descriptors %s, status %#x, waits for %u\n",
			     lane->name, lane->pair, lane->bytes, lane->count,
			     stands ? "do not move" : "are not done in time", job->status,
			     job->waits_for);
	peerdma_stop_job(job, -ETIMEDOUT, PEERDMA_REASON_TIMEOUT);
	return false;
}

/* Tells a program how its queue is, and ends one that takes no more tickets. The lock is held. */
static void irq_watch_launch(struct peerdma_launch *launch)
{
	u32 state;

	if (launch->state != LANE_RUNNING)
		return;
	state = peerdma_launch_look(launch);
	if (state == ~0u) {
		peerdma_stop_lost(launch->board);
	} else if (FIELD_GET(PEERDMA_LAUNCH_QUEUE_STATE_END, state)) {
		launch->job->status = state;
		peerdma_stop_job(launch->job, -EIO, PEERDMA_REASON_ENGINE);
	}
}

/**
 * peerdma_irq_watchdog_work() - polls lanes that are running, and launch queues
 * @work: a board's
 *
 * Finds chains whose interrupt was lost, jobs that are late, queues that have ended, and a board
 * that is gone.
 */
void peerdma_irq_watchdog_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, watchdog.work);
	bool some = false, more = false;
	struct peerdma_launch *launch;
	struct peerdma_lane *lane;

	spin_lock_irq(&board->lock);
	for_each_launch(launch, board)
		irq_watch_launch(launch);
	for_each_lane(lane, board)
		if (lane->state == LANE_RUNNING)
			irq_watch(lane);
	for_each_lane(lane, board)
		if (lane->state == LANE_RUNNING)
			more |= irq_judge(lane);
	for_each_lane(lane, board)
		some |= lane->state == LANE_RUNNING;
	for_each_launch(launch, board)
		some |= launch->state == LANE_RUNNING;
	spin_unlock_irq(&board->lock);

	if (some)
		queue_delayed_work(peerdma_wq, &board->watchdog,
				   more ? 0 : PEERDMA_WATCH_INTERVAL);
}
