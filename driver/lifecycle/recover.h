/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Life cycle: how a board stops and comes back.
 */
#ifndef PEERDMA_RECOVER_H
#define PEERDMA_RECOVER_H

#include "files.h"

/* recover.c */
extern const struct pci_error_handlers peerdma_error_handlers;
extern const struct dev_pm_ops peerdma_pm_ops;
void peerdma_recover_freeze(struct peerdma_dev *board, bool answers);
int peerdma_recover_reset(struct peerdma_dev *board);
void peerdma_recover_work(struct work_struct *work);
void peerdma_recover_shutdown(struct pci_dev *pdev);

#endif /* PEERDMA_RECOVER_H */
