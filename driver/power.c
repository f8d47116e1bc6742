// SPDX-License-Identifier: GPL-2.0
/*
 * System suspend and resume, and shutdown.
 */
#include <linux/pm.h>

#include "core.h"

/* Jobs that run may finish in this much of the board's time before they are stopped. */
#define DRAIN_MS		2000

static bool owned(struct peerdma_dev *board)
{
	struct peerdma_lane *lane;
	bool some = false;

	spin_lock_irq(&board->lock);
	for_each_lane(lane, board)
		some |= !!lane->job;
	spin_unlock_irq(&board->lock);
	return some;
}

static void set_draining(struct peerdma_dev *board, bool draining)
{
	spin_lock_irq(&board->lock);
	board->draining = draining;
	spin_unlock_irq(&board->lock);
}

/* Whether GPU memory stays where it is over a suspend is not documented: programs pin it anew. */
static int __maybe_unused suspend(struct device *dev)
{
	struct peerdma_dev *board = dev_get_drvdata(dev);

	down_write(&board->gate);
	set_draining(board, true);
	wait_event_timeout(board->idle, !owned(board), peerdma_scaled(board, DRAIN_MS));
	peerdma_freeze(board, true);
	set_draining(board, false);
	peerdma_surfaces_take(board, PEERDMA_SURFACE_REVOKED, true);
	spin_lock_irq(&board->lock);
	peerdma_hw_quiet(board);
	spin_unlock_irq(&board->lock);
	up_write(&board->gate);
	return 0;
}

static int __maybe_unused resume(struct device *dev)
{
	struct peerdma_dev *board = dev_get_drvdata(dev);

	down_write(&board->gate);
	if (!pci_device_is_present(board->pdev)) {
		spin_lock_irq(&board->lock);
		peerdma_lost(board);
		spin_unlock_irq(&board->lock);
	}
	peerdma_thaw(board);
	up_write(&board->gate);
	/* A board that did not come back must not keep the system from resuming. */
	return 0;
}

const struct dev_pm_ops peerdma_pm_ops = {
	SET_SYSTEM_SLEEP_PM_OPS(suspend, resume)
};

/**
 * peerdma_shutdown() - keeps the board from writing to the memory of the next kernel
 * @pdev: the function
 */
void peerdma_shutdown(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	down_write(&board->gate);
	peerdma_freeze(board, true);
	pci_clear_master(pdev);
	up_write(&board->gate);
}
