// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts: a message for each lane, one message for both, or a shared line.
 */
#include <linux/interrupt.h>

#include "core.h"

static void lane_interrupt(struct peerdma_lane *lane)
{
	u32 status = peerdma_hw_status(lane, true);

	if (status & ~PEERDMA_STATUS_BUSY)
		peerdma_lane_event(lane, status);
}

/* MSI-X, or MSI with a vector for each lane. */
static irqreturn_t lane_handler(int irq, void *data)
{
	struct peerdma_lane *lane = data;
	unsigned long flags;

	spin_lock_irqsave(&lane->board->lock, flags);
	lane_interrupt(lane);
	spin_unlock_irqrestore(&lane->board->lock, flags);
	return IRQ_HANDLED;
}

/* One vector for all; on a shared line it may be another device's. */
static irqreturn_t board_handler(int irq, void *data)
{
	struct peerdma_dev *board = data;
	irqreturn_t result = IRQ_NONE;
	struct peerdma_lane *lane;
	unsigned long flags;
	u32 request;

	spin_lock_irqsave(&board->lock, flags);
	request = peerdma_read(board, PEERDMA_IRQ_BASE + PEERDMA_IRQ_CHANNEL_REQUEST_REG);
	/* All ones: the board is gone and does not hold the line; the watchdog will see it. */
	for_each_lane(lane, board) {
		if (request == ~0u || !(request & lane->irq_bit))
			continue;
		lane_interrupt(lane);
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
	int vectors, n, error;

	vectors = pci_alloc_irq_vectors(pdev, 1, PEERDMA_LANES, PCI_IRQ_ALL_TYPES);
	if (vectors < 0)
		return vectors;
	board->interrupts = pdev->msix_enabled ? PEERDMA_MSIX :
			    pdev->msi_enabled ? PEERDMA_MSI : PEERDMA_INTX;
	if (vectors < PEERDMA_LANES) {
		error = request_irq(pci_irq_vector(pdev, 0), board_handler, IRQF_SHARED,
				    PEERDMA_NAME, board);
		if (error)
			goto err_vectors;
		board->vectors = 1;
		return 0;
	}
	for (n = 0; n < PEERDMA_LANES; n++) {
		error = request_irq(pci_irq_vector(pdev, n), lane_handler, 0, PEERDMA_NAME,
				    &board->lanes[n]);
		if (error)
			goto err_irqs;
	}
	board->vectors = PEERDMA_LANES;
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
	int n;

	if (board->vectors < PEERDMA_LANES)
		free_irq(pci_irq_vector(board->pdev, 0), board);
	else
		for (n = 0; n < PEERDMA_LANES; n++)
			free_irq(pci_irq_vector(board->pdev, n), &board->lanes[n]);
	pci_free_irq_vectors(board->pdev);
}
