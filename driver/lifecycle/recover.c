// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stopping a board by increasingly forceful means and bringing it back: after a hang, around a
 * reset, an error of the link or a suspend, and before another kernel starts.
 *
 * 1. Queued jobs are kept or ended. 2. Run is cleared, and the channels get time to become idle.
 * 3. The function loses the bus. 4. The DMA engine is reset: through the extension block, otherwise
 * the PCI core resets the function or the bus. 5. A board that does not come back is dead.
 */
#include <linux/delay.h>
#include <linux/pm.h>

#include "recover.h"

#define RESET_TRIES		50
#define RESET_WAIT_MS		20

/* Before a suspend, running jobs get this much of the board's time to finish. */
#define DRAIN_MS		2000

static bool recover_engine_used(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;
	struct peerdma_engine *engine;
	bool used = false;

	for_each_engine(engine, board)
		used |= engine->state != ENGINE_IDLE;
	for_each_hw_queue(hwq, board)
		used |= hwq->state != ENGINE_IDLE;
	return used;
}

/* Waits until no engine or queue touches memory. If need be, the board loses the bus for that. */
static void recover_quiesce(struct peerdma_dev *board)
{
	unsigned long deadline = jiffies + peerdma_hw_scaled(board, PEERDMA_STOP_MS);
	bool used;

	do {
		spin_lock_irq(&board->lock);
		peerdma_stop_step(board, board->broken || time_after(jiffies, deadline));
		used = recover_engine_used(board);
		spin_unlock_irq(&board->lock);
		if (used)
			usleep_range(50, 100);
	} while (used);
}

/**
 * peerdma_recover_freeze() - stops the DMA engine; queued jobs are kept
 * @board: its gate is held for writing. May sleep
 * @answers: its registers can be accessed; false: the platform has cut it off
 */
void peerdma_recover_freeze(struct peerdma_dev *board, bool answers)
{
	spin_lock_irq(&board->lock);
	if (board->state == PEERDMA_BOARD_LIVE)
		board->state = PEERDMA_BOARD_FROZEN;
	/* Not all platforms also cut off the board's own requests. */
	if (!answers)
		peerdma_stop_cut_off(board);
	peerdma_stop_all(board, false, -EIO, PEERDMA_REASON_RESET);
	spin_unlock_irq(&board->lock);
	peerdma_mmap_zap_registers(board);
	recover_quiesce(board);
}

/*
 * Accepts jobs again after peerdma_recover_freeze() and whatever came between. The gate is held for
 * writing; may sleep. Returns an errno if the board does not work; it is dead then.
 */
static int recover_thaw(struct peerdma_dev *board)
{
	int error;

	if (board->state == PEERDMA_BOARD_DEAD)
		return -ENODEV;
	error = peerdma_hw_calm(board);
	if (!error) {
		pci_set_master(board->pdev);
		peerdma_hw_init(board);
	}

	spin_lock_irq(&board->lock);
	if (error) {
		peerdma_stop_lost(board);
	} else {
		board->state = PEERDMA_BOARD_LIVE;
		board->broken = false;
		board->crowded = 0;
		board->full = false;
		board->generation++;
		peerdma_stop_outdated(board);
	}
	spin_unlock_irq(&board->lock);
	if (error)
		dev_err(&board->pdev->dev, "the DMA engine does not stop; the board is out of use\n");
	else
		queue_work(peerdma_wq, &board->pump);
	return error;
}

/* The PCI core calls recover_reset_prepare() and recover_resumed(). */
static void recover_reset_function(struct peerdma_dev *board)
{
	int tries, error;

	for (tries = 0; tries < RESET_TRIES; tries++) {
		/* Not the form that waits: remove() holds the device's lock and waits for us. */
		error = pci_try_reset_function(board->pdev);
		if (error != -EAGAIN)
			break;
		msleep(RESET_WAIT_MS);
	}
	if (!error)
		return;
	spin_lock_irq(&board->lock);
	peerdma_stop_lost(board);
	spin_unlock_irq(&board->lock);
	dev_err(&board->pdev->dev, "the DMA engine does not stop and cannot be reset (%d); the board is out of use\n",
		error);
}

/* As peerdma_recover_reset(); with @if_broken not of a board that another reset brought back. */
static int recover_reset(struct peerdma_dev *board, bool if_broken)
{
	bool done = false;

	down_write(&board->gate);
	if (board->state != PEERDMA_BOARD_LIVE) {
		up_write(&board->gate);
		return board->state == PEERDMA_BOARD_DEAD ? -ENODEV : -EBUSY;
	}
	if (if_broken && !board->broken) {
		up_write(&board->gate);
		return 0;
	}
	peerdma_recover_freeze(board, true);
	if (peerdma_hw_soft_reset(board))
		done = !recover_thaw(board);
	up_write(&board->gate);
	if (done)
		return 0;
	if (board->state == PEERDMA_BOARD_FROZEN)
		recover_reset_function(board);
	/* It may be frozen for the next reset by now. */
	return board->state == PEERDMA_BOARD_DEAD ? -ENODEV : 0;
}

/**
 * peerdma_recover_reset() - stops all running jobs and resets the DMA engine
 * @board: nothing is held. May sleep
 *
 * Return: 0; -EBUSY if the board is frozen, -ENODEV if it is gone or does not come back.
 */
int peerdma_recover_reset(struct peerdma_dev *board)
{
	return recover_reset(board, false);
}

/**
 * peerdma_recover_work() - resets a board that could not be stopped, or buries one that is gone
 * @work: a board's
 */
void peerdma_recover_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, recovery);
	bool dead, broken;

	spin_lock_irq(&board->lock);
	dead = board->state == PEERDMA_BOARD_DEAD;
	broken = board->broken;
	spin_unlock_irq(&board->lock);

	if (dead) {
		recover_quiesce(board);
		peerdma_mmap_zap_registers(board);
	} else if (broken) {
		dev_warn(&board->pdev->dev, "a channel does not stop: resetting the board\n");
		recover_reset(board, true);
	}
}

/* AER, and resets that others request from the PCI core -------------------------------------- */

static pci_ers_result_t recover_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);
	pci_ers_result_t result;

	if (state == pci_channel_io_perm_failure) {
		spin_lock_irq(&board->lock);
		peerdma_stop_lost(board);
		spin_unlock_irq(&board->lock);
		flush_work(&board->recovery);
		return PCI_ERS_RESULT_DISCONNECT;
	}
	down_write(&board->gate);
	peerdma_recover_freeze(board, state == pci_channel_io_normal);
	result = state == pci_channel_io_normal && !board->broken ? PCI_ERS_RESULT_CAN_RECOVER :
								    PCI_ERS_RESULT_NEED_RESET;
	up_write(&board->gate);
	return result;
}

static pci_ers_result_t recover_mmio_enabled(struct pci_dev *pdev)
{
	return PCI_ERS_RESULT_RECOVERED;
}

static pci_ers_result_t recover_slot_reset(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	pci_restore_state(pdev);
	pci_save_state(pdev);
	if (pci_device_is_present(pdev))
		return PCI_ERS_RESULT_RECOVERED;
	/* There will be no resume: the jobs must not wait for it. */
	spin_lock_irq(&board->lock);
	peerdma_stop_lost(board);
	spin_unlock_irq(&board->lock);
	return PCI_ERS_RESULT_DISCONNECT;
}

static void recover_resumed(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	down_write(&board->gate);
	recover_thaw(board);
	up_write(&board->gate);
}

static void recover_reset_prepare(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	down_write(&board->gate);
	peerdma_recover_freeze(board, true);
	up_write(&board->gate);
}

const struct pci_error_handlers peerdma_error_handlers = {
	.error_detected = recover_error_detected,
	.mmio_enabled = recover_mmio_enabled,
	.slot_reset = recover_slot_reset,
	.resume = recover_resumed,
	.reset_prepare = recover_reset_prepare,
	.reset_done = recover_resumed,
};

/* System suspend and resume, and shutdown ---------------------------------------------------- */

static bool recover_owned(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;
	bool some = false;

	spin_lock_irq(&board->lock);
	for_each_engine(engine, board)
		some |= !!engine->job;
	spin_unlock_irq(&board->lock);
	return some;
}

static void recover_set_draining(struct peerdma_dev *board, bool draining)
{
	spin_lock_irq(&board->lock);
	board->draining = draining;
	spin_unlock_irq(&board->lock);
}

/* It is not documented that GPU memory stays in place over a suspend: programs pin it again. */
static int __maybe_unused recover_suspend(struct device *dev)
{
	struct peerdma_dev *board = dev_get_drvdata(dev);

	down_write(&board->gate);
	recover_set_draining(board, true);
	spin_lock_irq(&board->lock);
	peerdma_stop_rings(board, -EIO, PEERDMA_REASON_RESET);
	spin_unlock_irq(&board->lock);
	wait_event_timeout(board->idle, !recover_owned(board), peerdma_hw_scaled(board, DRAIN_MS));
	peerdma_recover_freeze(board, true);
	recover_set_draining(board, false);
	/* Drivers of other devices wait for them, which are suspended after this one. */
	spin_lock_irq(&board->lock);
	peerdma_stop_announced(board);
	spin_unlock_irq(&board->lock);
	peerdma_release_revoke_all(board, PEERDMA_SURFACE_REVOKED, true);
	spin_lock_irq(&board->lock);
	peerdma_hw_quiet(board);
	spin_unlock_irq(&board->lock);
	up_write(&board->gate);
	return 0;
}

static int __maybe_unused recover_resume(struct device *dev)
{
	struct peerdma_dev *board = dev_get_drvdata(dev);

	down_write(&board->gate);
	if (!pci_device_is_present(board->pdev)) {
		spin_lock_irq(&board->lock);
		peerdma_stop_lost(board);
		spin_unlock_irq(&board->lock);
	}
	recover_thaw(board);
	up_write(&board->gate);
	/* A board that does not come back must not keep the system from resuming. */
	return 0;
}

const struct dev_pm_ops peerdma_pm_ops = {
	SET_SYSTEM_SLEEP_PM_OPS(recover_suspend, recover_resume)
};

/**
 * peerdma_recover_shutdown() - keeps the board from writing to the memory of the next kernel
 * @pdev: the PCI function
 */
void peerdma_recover_shutdown(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	down_write(&board->gate);
	peerdma_recover_freeze(board, true);
	pci_clear_master(pdev);
	up_write(&board->gate);
}
