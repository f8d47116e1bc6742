// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings into processes: pinned GPU memory, the mailbox page and those of doorbells.
 *
 * A page fault looks up the surface by offset, checks that it may be used, and inserts the page.
 * Mappings are not recorded anywhere: to remove one, the state changes first, then the range of
 * offsets is unmapped from every process. For that to reach all of them, offsets are unique on a
 * board and never reused, and all open files of all nodes of a board share one address space.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/sizes.h>

#include "files.h"

/* A file system without a mount point, for the inodes of boards. */
#define PSEUDO_MAGIC		0x50444d41
/* Offsets for mmap(): the mailbox page is at 0, surfaces and pages of doorbells follow. */
#define SURFACES_BEGIN		PAGE_SIZE
/* A page fault inserts at most this many bytes: a GPU page. */
#define FAULT_AROUND		SZ_64K

static bool doorbell_pages;
module_param(doorbell_pages, bool, 0644);
MODULE_PARM_DESC(doorbell_pages,
		 "let programs without CAP_SYS_RAWIO map the doorbells of their launch queues, too (default off)");

static struct vfsmount *mount;
static int mount_count;

static int mmap_init_context(struct fs_context *context)
{
	return init_pseudo(context, PSEUDO_MAGIC) ? 0 : -ENOMEM;
}

/* Has no owner: otherwise a bound board would keep the module from being unloaded. */
static struct file_system_type pseudo_fs = {
	.name = PEERDMA_NAME,
	.init_fs_context = mmap_init_context,
	.kill_sb = kill_anon_super,
};

/**
 * peerdma_mmap_inode_get() - creates the inode whose address space holds a board's mappings
 * @board: its next_map is set as well. May sleep
 *
 * Return: 0 or an errno.
 */
int peerdma_mmap_inode_get(struct peerdma_dev *board)
{
	struct inode *inode;
	int error = simple_pin_fs(&pseudo_fs, &mount, &mount_count);

	if (error)
		return error;
	inode = alloc_anon_inode(mount->mnt_sb);
	if (IS_ERR(inode)) {
		simple_release_fs(&mount, &mount_count);
		return PTR_ERR(inode);
	}
	board->inode = inode;
	board->next_map = SURFACES_BEGIN;
	return 0;
}

/**
 * peerdma_mmap_inode_put() - undoes peerdma_mmap_inode_get()
 * @board: no file of it is open. May sleep
 */
void peerdma_mmap_inode_put(struct peerdma_dev *board)
{
	iput(board->inode);
	simple_release_fs(&mount, &mount_count);
}

/* Whether what is at @base of the user BAR, up to 4 KiB, fills a page of this kernel. */
static bool mmap_fills_page(const struct peerdma_dev *board, u64 base)
{
	return base % PAGE_SIZE == 0 &&
	       pci_resource_len(board->pdev, PEERDMA_BAR_USER) >= base + PAGE_SIZE;
}

/**
 * peerdma_mmap_mailbox() - whether the mailbox page can be mapped
 * @board: the board
 *
 * Return: true if the board has one and it fills a page of this kernel.
 */
bool peerdma_mmap_mailbox(const struct peerdma_dev *board)
{
	return board->capabilities & PEERDMA_CAPABILITY_MAILBOX &&
	       mmap_fills_page(board, PEERDMA_MAILBOX_BASE);
}

static bool mmap_may_ring(const struct peerdma_file *file)
{
	return doorbell_pages || file->privileged;
}

static u64 mmap_doorbell_base(const struct peerdma_hw_queue *hwq)
{
	return PEERDMA_DOORBELL_BASE + hwq->number * PEERDMA_DOORBELL_STRIDE;
}

/**
 * peerdma_mmap_doorbell() - lets a file map the doorbell's page of its queue
 * @file: whose
 * @hwq: its queue, armed. Its board's lock is held
 *
 * Return: offset for mmap(); 0 if it may not, or there is no page of this kernel's size.
 */
u64 peerdma_mmap_doorbell(struct peerdma_file *file, struct peerdma_hw_queue *hwq)
{
	if (!mmap_may_ring(file) ||
	    !mmap_fills_page(file->board, mmap_doorbell_base(hwq)))
		return 0;
	hwq->map_offset = file->board->next_map;
	file->board->next_map += PAGE_SIZE;
	return hwq->map_offset;
}

/* Where in the user BAR the registers are that this file may map at an mmap() offset; 0: none. */
static u64 mmap_find_registers(struct peerdma_file *file, u64 offset)
{
	struct peerdma_hw_queue *hwq;
	u64 base = 0;

	if (offset < SURFACES_BEGIN)
		return PEERDMA_MAILBOX_BASE;
	spin_lock_irq(&file->board->lock);
	for_each_hw_queue(hwq, file->board)
		if (hwq->state == ENGINE_RUNNING && hwq->map_offset == offset &&
		    hwq->job->file == file)
			base = mmap_doorbell_base(hwq);
	spin_unlock_irq(&file->board->lock);
	return base;
}

/* Finds the surface of this file at an mmap() offset. The caller drops the reference. */
static struct peerdma_surface *mmap_find(struct peerdma_file *file, u64 offset)
{
	struct peerdma_surface *surface, *found = NULL;
	unsigned long handle;

	xa_lock(&file->surfaces);
	xa_for_each(&file->surfaces, handle, surface) {
		if (surface->extents && offset >= surface->map_offset &&
		    offset - surface->map_offset < surface->extents_length) {
			found = surface;
			peerdma_surface_get(surface);
			break;
		}
	}
	xa_unlock(&file->surfaces);
	return found;
}

/* Inserts the page at @offset of a surface, and its neighbours in the same GPU page. */
static vm_fault_t mmap_enter(struct vm_fault *fault, struct peerdma_surface *surface, u64 offset)
{
	struct vm_area_struct *vma = fault->vma;
	const struct peerdma_extent *extent = surface->extents;
	u64 before, here, start = 0;
	unsigned long at, end;
	vm_fault_t result;

	offset -= surface->map_offset;
	before = min3(offset, (u64)(fault->address - vma->vm_start),
		      (u64)(fault->address % FAULT_AROUND));
	at = fault->address - before;
	here = offset - before;
	end = at + min3((u64)FAULT_AROUND, (u64)(vma->vm_end - at),
			surface->extents_length - here);
	do {
		while (here - start >= extent->length)
			start += extent++->length;
		result = vmf_insert_pfn(vma, at, PHYS_PFN(extent->address + here - start));
		at += PAGE_SIZE;
		here += PAGE_SIZE;
	} while (result == VM_FAULT_NOPAGE && at < end);
	return result;
}

static vm_fault_t mmap_fault(struct vm_fault *fault)
{
	struct peerdma_file *file = fault->vma->vm_file->private_data;
	struct peerdma_dev *board = file->board;
	u64 offset = (u64)fault->pgoff << PAGE_SHIFT;
	struct peerdma_surface *surface = NULL;
	vm_fault_t result = VM_FAULT_SIGBUS;
	u64 base;

	down_read(&board->faults);
	base = mmap_find_registers(file, offset);
	if (!base) {
		surface = mmap_find(file, offset);
		if (surface && READ_ONCE(surface->state) == PEERDMA_SURFACE_LIVE)
			result = mmap_enter(fault, surface, offset);
	} else if (READ_ONCE(board->state) == PEERDMA_BOARD_LIVE) {
		base += pci_resource_start(board->pdev, PEERDMA_BAR_USER);
		result = vmf_insert_pfn(fault->vma, fault->address, PHYS_PFN(base));
	}
	up_read(&board->faults);
	if (surface)
		peerdma_surface_put(surface);
	return result;
}

static const struct vm_operations_struct vm_ops = {
	.fault = mmap_fault,
};

/* Without this, x86 would silently map the memory uncached instead of write-combined. */
static void mmap_reserve_memtype(struct peerdma_surface *surface)
{
	u32 n;

	mutex_lock(&surface->teardown);
	for (n = 0; !surface->memtype && n < surface->extent_count; n++) {
		if (!arch_io_reserve_memtype_wc(surface->extents[n].address,
						surface->extents[n].length))
			continue;
		while (n--)
			arch_io_free_memtype_wc(surface->extents[n].address,
						surface->extents[n].length);
		surface->cache = PEERDMA_CACHE_UNCACHED;
		goto out;
	}
	surface->memtype = true;
out:
	mutex_unlock(&surface->teardown);
}

static int mmap_registers(struct peerdma_file *file, struct vm_area_struct *vma, u64 base)
{
	if (base == PEERDMA_MAILBOX_BASE && !peerdma_mmap_mailbox(file->board))
		return peerdma_fail(file, -EOPNOTSUPP,
				    "this board has no mailbox page, or pages of this kernel are larger");
	if (vma->vm_end - vma->vm_start > PAGE_SIZE)
		return peerdma_fail(file, -EINVAL,
				    "the mailbox, or a doorbell, is one page of %lu bytes",
				    PAGE_SIZE);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	return 0;
}

static int mmap_surface(struct peerdma_file *file, struct vm_area_struct *vma, u64 offset)
{
	struct peerdma_surface *surface = mmap_find(file, offset);
	u64 length = vma->vm_end - vma->vm_start;
	int error = 0;

	if (!surface)
		return peerdma_fail(file, -EINVAL,
				    "nothing is mapped at offset %#llx: ask for offset and length with MAP_INFO",
				    offset);
	if (length > surface->extents_length - (offset - surface->map_offset)) {
		error = peerdma_fail(file, -EINVAL,
				     "%llu bytes at offset %#llx are beyond the memory pinned",
				     length, offset);
		goto out;
	}
	if (surface->cache == PEERDMA_CACHE_WRITE_COMBINED)
		mmap_reserve_memtype(surface);
	if (surface->cache == PEERDMA_CACHE_WRITE_COMBINED)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	else if (surface->cache == PEERDMA_CACHE_UNCACHED)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
out:
	peerdma_surface_put(surface);
	return error;
}

/**
 * peerdma_mmap() - maps the memory at an offset that PEERDMA_IOC_MAP_INFO returned
 * @filp: an open node
 * @vma: the mapping; mmap_lock is held
 *
 * Return: 0 or an errno.
 */
int peerdma_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct peerdma_file *file = filp->private_data;
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 base = mmap_find_registers(file, offset);
	int error;

	/* The kernel takes mappings of a file that was opened for reading only for private ones. */
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return peerdma_fail(file, -EINVAL,
				    "a mapping must be shared and not executable, of a node that was opened for reading and writing");
	error = base ? mmap_registers(file, vma, base) : mmap_surface(file, vma, offset);
	if (error)
		return error;
	compat_vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	compat_vm_flags_clear(vma, VM_MAYEXEC);
	vma->vm_ops = &vm_ops;
	return 0;
}

/**
 * peerdma_mmap_zap_doorbell() - removes the page of a queue from all processes and devices
 * @hwq: not running, and nobody can map it any more. May sleep
 *
 * From then on it can be handed out again, unless a device keeps it mapped.
 */
void peerdma_mmap_zap_doorbell(struct peerdma_hw_queue *hwq)
{
	struct peerdma_dev *board = hwq->board;

	if (hwq->map_offset)
		peerdma_release_zap(board, hwq->map_offset, PAGE_SIZE);
	peerdma_export_end_doorbell(hwq);
	spin_lock_irq(&board->lock);
	hwq->map_offset = 0;
	spin_unlock_irq(&board->lock);
}

/**
 * peerdma_mmap_zap_registers() - removes mailbox and doorbells from all processes and devices
 * @board: not live. May sleep
 */
void peerdma_mmap_zap_registers(struct peerdma_dev *board)
{
	struct peerdma_hw_queue *hwq;
	u64 offset;

	peerdma_release_zap(board, 0, PAGE_SIZE);
	for_each_hw_queue(hwq, board) {
		offset = READ_ONCE(hwq->map_offset);
		if (offset)
			peerdma_release_zap(board, offset, PAGE_SIZE);
	}
	peerdma_export_revoke(board);
}

/**
 * peerdma_mmap_export() - a page of the board's registers as a dma-buf
 * @file: who asks
 * @queue: its launch queue whose doorbell it is; NULL: the mailbox
 *
 * Process context.
 *
 * Return: a file descriptor, or an errno that was explained.
 */
int peerdma_mmap_export(struct peerdma_file *file, const struct peerdma_job *queue)
{
	struct peerdma_dev *board = file->board;
	u64 base = queue ? mmap_doorbell_base(queue->launch_queue.hwq) : PEERDMA_MAILBOX_BASE;
	int fd;

	if (queue && !mmap_may_ring(file))
		return peerdma_fail(file, -EPERM,
				    "this file gets no doorbell: it needs CAP_SYS_RAWIO, or the module's parameter doorbell_pages");
	if (queue ? !mmap_fills_page(board, base) : !peerdma_mmap_mailbox(board))
		return peerdma_fail(file, -EOPNOTSUPP,
				    "this board has no such page, or pages of this kernel are larger");
	fd = peerdma_export(board, queue, base);
	if (fd != -ENOENT)
		return fd < 0 ? peerdma_fail(file, fd, "no dma-buf can be made of the page") : fd;
	if (queue)
		return peerdma_fail(file, -ENOENT, "the launch queue has ended");
	return peerdma_fail(file, -ENODEV, "the board is suspended, being reset, or gone");
}

/**
 * peerdma_mmap_info() - PEERDMA_IOC_MAP_INFO
 * @file: whose
 * @info: the request, to be filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_mmap_info(struct peerdma_file *file, struct peerdma_map_info *info)
{
	struct peerdma_surface *surface;

	if (info->flags & ~PEERDMA_MAP_MAILBOX)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", info->flags);
	if (info->flags & PEERDMA_MAP_MAILBOX) {
		if (info->handle)
			return peerdma_fail(file, -EINVAL, "the mailbox has no handle");
		if (!peerdma_mmap_mailbox(file->board))
			return peerdma_fail(file, -EOPNOTSUPP,
					    "this board has no mailbox page, or pages of this kernel are larger");
		info->cache = PEERDMA_CACHE_UNCACHED;
		info->offset = 0;
		info->length = PAGE_SIZE;
		info->start = 0;
		return 0;
	}
	surface = peerdma_surface_find(file, info->handle);
	if (!surface)
		return peerdma_fail(file, -EINVAL, "no memory is pinned as handle %u",
				    info->handle);
	if (!surface->extents) {
		peerdma_fail(file, -EOPNOTSUPP, "memory of provider %s is not mapped here: %s",
			     surface->provider->name,
			     surface->provider == &peerdma_dmabuf ?
			     "mmap() the dma-buf" : "the process has it already");
		peerdma_surface_put(surface);
		return -EOPNOTSUPP;
	}
	info->cache = surface->cache;
	info->offset = surface->map_offset;
	info->length = surface->extents_length;
	info->start = offset_in_page(surface->skip);
	peerdma_surface_put(surface);
	return 0;
}
