// SPDX-License-Identifier: GPL-2.0
/*
 * Stopping the board by harder and harder means, and bringing it back.
 *
 * 1. Jobs that wait are kept or ended. 2. Run is cleared, and the channels have a while to become
 * idle. 3. The function loses the bus. 4. The engine is reset: by the extension block, else the
 * function or the bus by the PCI core. 5. A board that does not come back is dead.
 */
#include <linux/delay.h>

#include "core.h"

#define RESET_TRIES		50
#define RESET_WAIT_MS		20

static bool lanes_used(struct peerdma_dev *board)
{
	struct peerdma_lane *lane;
	bool used = false;

	for_each_lane(lane, board)
		used |= lane->state != LANE_IDLE;
	return used;
}

/* Waits until no lane touches memory; takes the bus from the board for that if need be. */
static void quiesce(struct peerdma_dev *board)
{
	unsigned long deadline = jiffies + peerdma_scaled(board, PEERDMA_STOP_MS);
	bool used;

	do {
		spin_lock_irq(&board->lock);
		if (board->state == PEERDMA_BOARD_DEAD) {
			peerdma_bury(board);
		} else if (peerdma_poll_stopping(board) &&
			   (board->broken || time_after(jiffies, deadline))) {
			board->broken = true;
			pci_clear_master(board->pdev);
			peerdma_force_idle(board);
		}
		used = lanes_used(board);
		spin_unlock_irq(&board->lock);
		if (used)
			usleep_range(50, 100);
	} while (used);
	if (READ_ONCE(board->broken))
		pci_wait_for_pending_transaction(board->pdev);
}

/**
 * peerdma_freeze() - stops the engine; jobs that have not started wait
 * @board: its gate is held for writing. May sleep
 * @answers: its registers can be accessed; else the platform has cut it off
 */
void peerdma_freeze(struct peerdma_dev *board, bool answers)
{
	spin_lock_irq(&board->lock);
	if (board->state == PEERDMA_BOARD_LIVE)
		board->state = PEERDMA_BOARD_FROZEN;
	if (answers) {
		peerdma_fail_all(board, false, -EIO, PEERDMA_REASON_RESET);
	} else {
		/* Not all platforms cut off what the board sends. */
		pci_clear_master(board->pdev);
		peerdma_force_idle(board);
	}
	spin_unlock_irq(&board->lock);
	peerdma_zap_mailbox(board);
	quiesce(board);
}

/**
 * peerdma_thaw() - takes jobs again after peerdma_freeze() and whatever came between
 * @board: its gate is held for writing. May sleep
 *
 * Return: 0, or an errno if the board does not work; it is dead then.
 */
int peerdma_thaw(struct peerdma_dev *board)
{
	int error;

	if (board->state == PEERDMA_BOARD_DEAD)
		return -ENODEV;
	pci_set_master(board->pdev);
	error = peerdma_hw_init(board);

	spin_lock_irq(&board->lock);
	if (error) {
		peerdma_lost(board);
	} else {
		board->state = PEERDMA_BOARD_LIVE;
		board->broken = false;
		board->generation++;
		peerdma_fail_outdated(board);
	}
	spin_unlock_irq(&board->lock);
	if (error)
		dev_err(&board->pdev->dev, "the engine does not stop; the board is out of use\n");
	else
		queue_work(peerdma_wq, &board->pump);
	return error;
}

/* Through peerdma_reset_prepare() and peerdma_reset_done(). */
static void reset_function(struct peerdma_dev *board)
{
	int tries, error;

	for (tries = 0; tries < RESET_TRIES; tries++) {
		/* Not the waiting form: remove() holds the device's lock and waits for us. */
		error = pci_try_reset_function(board->pdev);
		if (error != -EAGAIN)
			break;
		msleep(RESET_WAIT_MS);
	}
	if (!error)
		return;
	spin_lock_irq(&board->lock);
	peerdma_lost(board);
	spin_unlock_irq(&board->lock);
	dev_err(&board->pdev->dev, "the engine does not stop and cannot be reset (%d); the board is out of use\n",
		error);
}

/**
 * peerdma_reset() - stops all jobs that run and resets the engine
 * @board: nothing is held. May sleep
 *
 * Return: 0; -EBUSY if the board is frozen, -ENODEV if it is gone or does not come back.
 */
int peerdma_reset(struct peerdma_dev *board)
{
	bool done = false;

	down_write(&board->gate);
	if (board->state != PEERDMA_BOARD_LIVE) {
		up_write(&board->gate);
		return board->state == PEERDMA_BOARD_DEAD ? -ENODEV : -EBUSY;
	}
	peerdma_freeze(board, true);
	if (peerdma_hw_soft_reset(board))
		done = !peerdma_thaw(board);
	up_write(&board->gate);
	if (!done && board->state == PEERDMA_BOARD_FROZEN)
		reset_function(board);
	return board->state == PEERDMA_BOARD_LIVE ? 0 : -ENODEV;
}

/**
 * peerdma_recovery_work() - resets a board that could not be stopped, or buries one that is gone
 * @work: of the board
 */
void peerdma_recovery_work(struct work_struct *work)
{
	struct peerdma_dev *board = container_of(work, struct peerdma_dev, recovery);
	bool dead, broken;

	spin_lock_irq(&board->lock);
	dead = board->state == PEERDMA_BOARD_DEAD;
	broken = board->broken;
	if (dead)
		peerdma_bury(board);
	spin_unlock_irq(&board->lock);

	if (dead) {
		peerdma_zap_mailbox(board);
	} else if (broken) {
		dev_warn(&board->pdev->dev, "a channel does not stop: resetting the board\n");
		peerdma_reset(board);
	}
}

/* AER, and resets that others ask the PCI core for -------------------------------------------- */

static pci_ers_result_t error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);
	pci_ers_result_t result;

	if (state == pci_channel_io_perm_failure) {
		spin_lock_irq(&board->lock);
		peerdma_lost(board);
		spin_unlock_irq(&board->lock);
		flush_work(&board->recovery);
		return PCI_ERS_RESULT_DISCONNECT;
	}
	down_write(&board->gate);
	peerdma_freeze(board, state == pci_channel_io_normal);
	result = state == pci_channel_io_normal && !board->broken ? PCI_ERS_RESULT_CAN_RECOVER :
								    PCI_ERS_RESULT_NEED_RESET;
	up_write(&board->gate);
	return result;
}

static pci_ers_result_t mmio_enabled(struct pci_dev *pdev)
{
	return PCI_ERS_RESULT_RECOVERED;
}

static pci_ers_result_t slot_reset(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	pci_restore_state(pdev);
	pci_save_state(pdev);
	if (pci_device_is_present(pdev))
		return PCI_ERS_RESULT_RECOVERED;
	/* Nobody resumes it: its jobs must not wait for that. */
	spin_lock_irq(&board->lock);
	peerdma_lost(board);
	spin_unlock_irq(&board->lock);
	return PCI_ERS_RESULT_DISCONNECT;
}

static void resume(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	down_write(&board->gate);
	peerdma_thaw(board);
	up_write(&board->gate);
}

static void reset_prepare(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	down_write(&board->gate);
	peerdma_freeze(board, true);
	up_write(&board->gate);
}

const struct pci_error_handlers peerdma_error_handlers = {
	.error_detected = error_detected,
	.mmio_enabled = mmio_enabled,
	.slot_reset = slot_reset,
	.resume = resume,
	.reset_prepare = reset_prepare,
	.reset_done = resume,
};
