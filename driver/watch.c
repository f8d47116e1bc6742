// SPDX-License-Identifier: GPL-2.0
/*
 * What looks after lanes that do not report: late, silent or gone.
 */
#include "core.h"

/**
 * peerdma_stopper_work() - looks after lanes that are stopping
 * @work: of a board
 *
 * Hands over to the recovery when one does not stop in time.
 */
void peerdma_stopper_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, stopper.work);
	struct peerdma_lane *lane;
	bool some, late = false;

	spin_lock_irq(&board->lock);
	some = peerdma_poll_stopping(board);
	for_each_lane(lane, board)
		late |= lane->state == LANE_STOPPING && time_after(jiffies, lane->deadline);
	board->broken |= late;
	spin_unlock_irq(&board->lock);

	if (late)
		queue_work(peerdma_wq, &board->recovery);
	else if (some)
		queue_delayed_work(peerdma_wq, &board->stopper, 1);
}

/* Called with the board's lock held. */
static void watch(struct peerdma_lane *lane)
{
	struct peerdma_dev *board = lane->board;
	u32 status = peerdma_hw_status(lane, false);

	if (status == ~0u) {
		peerdma_lost(board);
		return;
	}
	if ((status | lane->seen) & ~PEERDMA_STATUS_BUSY) {
		/* The interrupt may be under way: it has one interval to arrive. */
		if (!lane->unheard) {
			lane->unheard = true;
			return;
		}
		peerdma_lane_event(lane, peerdma_hw_status(lane, true));
		board->lost_interrupts += lane->state != LANE_RUNNING;
	}
	if (lane->state == LANE_RUNNING && time_after(jiffies, lane->deadline)) {
		board->timeouts++;
		lane->job->status = status;
		dev_warn_ratelimited(&board->pdev->dev,
				     "%s: %llu bytes in %u descriptors not done in time, status %#x\n",
				     lane->name, lane->bytes, lane->count, status);
		peerdma_job_fail(lane->job, -ETIMEDOUT, PEERDMA_REASON_TIMEOUT);
	}
}

/**
 * peerdma_watchdog_work() - looks after lanes that are running
 * @work: of a board
 *
 * Finds chains whose interrupt was lost, those that are late, and a board that is gone.
 */
void peerdma_watchdog_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, watchdog.work);
	struct peerdma_lane *lane;
	bool some = false;

	spin_lock_irq(&board->lock);
	for_each_lane(lane, board)
		if (lane->state == LANE_RUNNING)
			watch(lane);
	for_each_lane(lane, board)
		some |= lane->state == LANE_RUNNING;
	spin_unlock_irq(&board->lock);

	if (some)
		queue_delayed_work(peerdma_wq, &board->watchdog, PEERDMA_WATCH_INTERVAL);
}
