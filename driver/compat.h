/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interfaces that changed between Linux 5.10 and 7.3, in their newest form for all these kernels.
 *
 * conftest.sh probes what a kernel has. Where one interface works on all kernels, the driver uses
 * that one directly.
 */
#ifndef PEERDMA_COMPAT_H
#define PEERDMA_COMPAT_H

#include <linux/device.h>
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>

#include "compat_probes.h"

#ifdef COMPAT_AER_BY_DRIVER
#include <linux/aer.h>
#endif

static inline struct class *compat_class_create(const char *name)
{
#ifdef COMPAT_CLASS_CREATE_NAME
	return class_create(name);
#else
	return class_create(THIS_MODULE, name);
#endif
}

static inline void compat_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef COMPAT_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

static inline void compat_vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef COMPAT_VM_FLAGS_SET
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

/*
 * With FOLL_LONGTERM, to pin pages that are only read, so that they are those which the process
 * writes to later. Where the kernel does not see to it, they are pinned as if for writing, which
 * gives a private mapping pages of its own.
 */
#ifdef COMPAT_READ_PINS_LAST
#define COMPAT_FOLL_READ	0
#else
#define COMPAT_FOLL_READ	(FOLL_WRITE | FOLL_FORCE)
#endif

#ifdef COMPAT_DMABUF_INVALIDATE_MAPPINGS
#define COMPAT_INVALIDATE_MAPPINGS	invalidate_mappings
#define compat_dma_buf_invalidate	dma_buf_invalidate_mappings
#else
#define COMPAT_INVALIDATE_MAPPINGS	move_notify
#define compat_dma_buf_invalidate	dma_buf_move_notify
#endif

#ifdef COMPAT_IMPORT_NS_STRING
#define COMPAT_IMPORT_DMA_BUF		MODULE_IMPORT_NS("DMA_BUF")
#else
#define COMPAT_IMPORT_DMA_BUF		MODULE_IMPORT_NS(DMA_BUF)
#endif

/* Takes a reference to a file whose structure is still there; false if its last one is gone. */
static inline bool compat_get_file_active(struct file **file)
{
#ifdef COMPAT_GET_FILE_ACTIVE
	return get_file_active(file);
#else
	return get_file_rcu(*file);
#endif
}

/* Runs of contiguous pages, of at most @most bytes each. */
static inline int compat_sg_alloc_table(struct sg_table *table, struct page **pages,
					unsigned int count, unsigned int offset,
					unsigned long length, unsigned int most, gfp_t gfp)
{
#ifdef COMPAT_SG_TABLE_SEGMENT
	return sg_alloc_table_from_pages_segment(table, pages, count, offset, length, most, gfp);
#else
	return PTR_ERR_OR_ZERO(__sg_alloc_table_from_pages(table, pages, count, offset, length,
							   most, NULL, 0, gfp));
#endif
}

/* Interruptible. Returns what is left of @timeout, 0 if nothing is, or -ERESTARTSYS. */
static inline long compat_dma_resv_wait(struct dma_resv *resv, bool write, unsigned long timeout)
{
#ifdef COMPAT_DMA_RESV_USAGE
	return dma_resv_wait_timeout(resv, dma_resv_usage_rw(write), true, timeout);
#elif defined(COMPAT_DMA_RESV_ALL)
	return dma_resv_wait_timeout(resv, write, true, timeout);
#else
	return dma_resv_wait_timeout_rcu(resv, write, true, timeout);
#endif
}

/* Adds the fence of a write. Called with the reservation locked, as everything that adds one. */
static inline int compat_dma_resv_add_write(struct dma_resv *resv, struct dma_fence *fence)
{
#ifdef COMPAT_DMA_RESV_USAGE
	int error = dma_resv_reserve_fences(resv, 1);

	if (!error)
		dma_resv_add_fence(resv, fence, DMA_RESV_USAGE_WRITE);
	return error;
#else
	dma_resv_add_excl_fence(resv, fence);
	return 0;
#endif
}

/* Any context. */
static inline void compat_eventfd_signal(struct eventfd_ctx *eventfd)
{
#ifdef COMPAT_EVENTFD_SIGNAL_ONCE
	eventfd_signal(eventfd);
#else
	eventfd_signal(eventfd, 1);
#endif
}

/* Later kernels do it by themselves. */
static inline void compat_pci_enable_error_reporting(struct pci_dev *pdev)
{
#ifdef COMPAT_AER_BY_DRIVER
	pci_enable_pcie_error_reporting(pdev);
#endif
}

#endif /* PEERDMA_COMPAT_H */
