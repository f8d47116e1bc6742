// SPDX-License-Identifier: GPL-2.0-only
/*
 * A simulated GPU: the memory behind an ivshmem device is its aperture, and this module stands in
 * for NVIDIA's driver. For tests only: it checks what clients do, not who they are.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "simgpu.h"

#define APERTURE_BAR	2
#define FIRST_VA	0x7e0000000000ULL
/* Neighbours in an allocation are this many pages apart in the aperture. */
#define SCATTER		7

struct pci_dev *simgpu_pdev;
/* Stands for NVIDIA's: one for all GPUs, held while a client is called back. */
DEFINE_MUTEX(simgpu_api_lock);
atomic_t simgpu_pages, simgpu_pins, simgpu_mappings, simgpu_callbacks;

static DEFINE_MUTEX(lock);
static LIST_HEAD(allocations);
static unsigned long *used;
static u32 page_total, cursor;
static u64 next_va = FIRST_VA;

phys_addr_t simgpu_physical(const struct simgpu_alloc *alloc, u32 page)
{
	return pci_resource_start(simgpu_pdev, APERTURE_BAR) +
	       (u64)alloc->pages[page] * SIMGPU_PAGE;
}

/* Under the lock: scattered pages; how many there were. */
static u32 take_pages(u32 *pages, u32 count)
{
	u32 n, tries;

	for (n = 0, tries = 0; n < count && tries < 2 * page_total; tries++) {
		cursor = (cursor + SCATTER) % page_total;
		if (!test_and_set_bit(cursor, used))
			pages[n++] = cursor;
		else
			cursor++;
	}
	return n;
}

static void give_pages(const u32 *pages, u32 count)
{
	while (count--)
		clear_bit(pages[count], used);
}

static void release(struct kref *ref)
{
	struct simgpu_alloc *alloc = container_of(ref, struct simgpu_alloc, ref);

	mutex_lock(&lock);
	give_pages(alloc->pages, alloc->count);
	mutex_unlock(&lock);
	atomic_sub(alloc->count, &simgpu_pages);
	kfree(alloc);
}

void simgpu_put(struct simgpu_alloc *alloc)
{
	kref_put(&alloc->ref, release);
}

/* Allocation of the calling process that has the range; with a reference. */
struct simgpu_alloc *simgpu_find(u64 va, u64 size)
{
	struct simgpu_alloc *alloc, *found = NULL;

	mutex_lock(&lock);
	list_for_each_entry(alloc, &allocations, link) {
		if (alloc->tgid == current->tgid && va >= alloc->va &&
		    va - alloc->va < alloc->size && size <= alloc->size - (va - alloc->va)) {
			kref_get(&alloc->ref);
			found = alloc;
			break;
		}
	}
	mutex_unlock(&lock);
	return found;
}

/* To other pages, with what is in it; processes that have it mapped still see the old ones. */
int simgpu_move(struct simgpu_alloc *alloc)
{
	phys_addr_t aperture = pci_resource_start(simgpu_pdev, APERTURE_BAR);
	u32 *pages = kcalloc(alloc->count, sizeof(*pages), GFP_KERNEL);
	void *copy = kmalloc(SIMGPU_PAGE, GFP_KERNEL);
	u32 n, count;
	int error = -ENOMEM;

	if (!pages || !copy)
		goto out;
	mutex_lock(&lock);
	count = take_pages(pages, alloc->count);
	if (count < alloc->count) {
		give_pages(pages, count);
		goto out_unlock;
	}
	for (n = 0; n < count; n++) {
		void __iomem *from = ioremap(simgpu_physical(alloc, n), SIMGPU_PAGE);
		void __iomem *to = ioremap(aperture + (u64)pages[n] * SIMGPU_PAGE, SIMGPU_PAGE);

		if (from && to) {
			memcpy_fromio(copy, from, SIMGPU_PAGE);
			memcpy_toio(to, copy, SIMGPU_PAGE);
		}
		iounmap(from);
		iounmap(to);
	}
	give_pages(alloc->pages, count);
	memcpy(alloc->pages, pages, count * sizeof(*pages));
	error = 0;
out_unlock:
	mutex_unlock(&lock);
out:
	kfree(copy);
	kfree(pages);
	return error;
}

static int allocate(void *owner, struct simgpu_memory *memory)
{
	u32 count = DIV_ROUND_UP_ULL(memory->size, SIMGPU_PAGE), n;
	struct simgpu_alloc *alloc;

	if (memory->flags & ~SIMGPU_FREE_AT_MUNMAP)
		return -EINVAL;
	if (!memory->size || memory->size > (u64)page_total * SIMGPU_PAGE)
		return -EINVAL;
	alloc = kzalloc(struct_size(alloc, pages, count), GFP_KERNEL);
	if (!alloc)
		return -ENOMEM;
	kref_init(&alloc->ref);
	alloc->size = (u64)count * SIMGPU_PAGE;
	alloc->tgid = current->tgid;
	alloc->owner = owner;
	alloc->free_at_munmap = memory->flags & SIMGPU_FREE_AT_MUNMAP;

	mutex_lock(&lock);
	n = take_pages(alloc->pages, count);
	alloc->count = n;
	alloc->va = next_va;
	next_va += alloc->size + SIMGPU_PAGE;
	if (n == count)
		list_add(&alloc->link, &allocations);
	mutex_unlock(&lock);
	atomic_add(n, &simgpu_pages);
	if (n < count) {
		simgpu_put(alloc);
		return -ENOMEM;
	}
	memory->va = alloc->va;
	return 0;
}

/* Out of the list: nobody pins it any more. Those who have are called back. */
static void destroy(struct simgpu_alloc *alloc)
{
	simgpu_call_back(alloc);
	simgpu_put(alloc);
}

static int deallocate(u64 va)
{
	struct simgpu_alloc *alloc = simgpu_find(va, 1);

	if (!alloc || alloc->va != va) {
		if (alloc)
			simgpu_put(alloc);
		return -EINVAL;
	}
	mutex_lock(&lock);
	list_del(&alloc->link);
	mutex_unlock(&lock);
	destroy(alloc);
	simgpu_put(alloc);
	return 0;
}

static long simgpu_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	union {
		struct simgpu_memory memory;
		struct simgpu_export export;
		struct simgpu_revoke revoke;
		struct simgpu_counts counts;
		struct simgpu_busy busy;
	} data;
	void __user *user = (void __user *)argument;
	long error;

	if (_IOC_SIZE(command) > sizeof(data))
		return -ENOTTY;
	if (_IOC_DIR(command) & _IOC_WRITE && copy_from_user(&data, user, _IOC_SIZE(command)))
		return -EFAULT;
	switch (command) {
	case SIMGPU_IOC_ALLOC:
		error = allocate(file, &data.memory);
		break;
	case SIMGPU_IOC_FREE:
		error = deallocate(data.memory.va);
		break;
	case SIMGPU_IOC_EXPORT:
		error = simgpu_export(&data.export);
		break;
	case SIMGPU_IOC_REVOKE:
		error = simgpu_revoke(&data.revoke);
		break;
	case SIMGPU_IOC_BUSY:
		error = simgpu_busy(&data.busy);
		break;
	case SIMGPU_IOC_COUNTS:
		data.counts = (struct simgpu_counts){
			.pages = atomic_read(&simgpu_pages),
			.pins = atomic_read(&simgpu_pins),
			.mappings = atomic_read(&simgpu_mappings),
			.callbacks = atomic_read(&simgpu_callbacks),
		};
		error = 0;
		break;
	default:
		return -ENOTTY;
	}
	if (!error && _IOC_DIR(command) & _IOC_READ &&
	    copy_to_user(user, &data, _IOC_SIZE(command)))
		return -EFAULT;
	return error;
}

/* With mmap_lock held, as when a GPU's driver sees a process unmap what it allocated. */
static void unmapped(struct vm_area_struct *vma)
{
	struct simgpu_alloc *alloc = vma->vm_private_data;

	if (alloc->free_at_munmap && vma->vm_end - vma->vm_start == alloc->size)
		deallocate(alloc->va);
	simgpu_put(alloc);
}

static void mapped(struct vm_area_struct *vma)
{
	struct simgpu_alloc *alloc = vma->vm_private_data;

	kref_get(&alloc->ref);
}

static const struct vm_operations_struct vm_ops = {
	.open = mapped,
	.close = unmapped,
};

static int simgpu_mmap(struct file *file, struct vm_area_struct *vma)
{
	u64 va = (u64)vma->vm_pgoff << PAGE_SHIFT, length = vma->vm_end - vma->vm_start, done = 0;
	struct simgpu_alloc *alloc = simgpu_find(va, length);
	int error = 0;

	if (!alloc)
		return -EINVAL;
	vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	while (!error && done < length) {
		u64 at = va - alloc->va + done;
		u64 part = min(length - done, SIMGPU_PAGE - at % SIMGPU_PAGE);

		error = io_remap_pfn_range(vma, vma->vm_start + done,
					   PHYS_PFN(simgpu_physical(alloc, at / SIMGPU_PAGE) +
						    at % SIMGPU_PAGE),
					   part, vma->vm_page_prot);
		done += part;
	}
	if (error) {
		simgpu_put(alloc);
		return error;
	}
	vma->vm_private_data = alloc;
	vma->vm_ops = &vm_ops;
	return 0;
}

static int simgpu_close(struct inode *inode, struct file *file)
{
	struct simgpu_alloc *alloc, *next;
	LIST_HEAD(own);

	mutex_lock(&lock);
	list_for_each_entry_safe(alloc, next, &allocations, link)
		if (alloc->owner == file)
			list_move(&alloc->link, &own);
	mutex_unlock(&lock);
	list_for_each_entry_safe(alloc, next, &own, link)
		destroy(alloc);
	return 0;
}

static const struct file_operations simgpu_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = simgpu_ioctl,
	.mmap = simgpu_mmap,
	.release = simgpu_close,
};

static struct miscdevice node = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "simgpu",
	.fops = &simgpu_fops,
	.mode = 0666,
};

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int error;

	if (simgpu_pdev)
		return -EBUSY;
	error = pci_enable_device(pdev);
	if (error)
		return error;
	page_total = pci_resource_len(pdev, APERTURE_BAR) / SIMGPU_PAGE;
	used = bitmap_zalloc(page_total, GFP_KERNEL);
	error = used ? pci_request_regions(pdev, "simgpu") : -ENOMEM;
	if (error)
		goto err_used;
	simgpu_pdev = pdev;
	error = misc_register(&node);
	if (error)
		goto err_regions;
	return 0;

err_regions:
	simgpu_pdev = NULL;
	pci_release_regions(pdev);
err_used:
	bitmap_free(used);
	pci_disable_device(pdev);
	return error;
}

/* Files keep the module, and with it the device, from going away in the tests. */
static void remove(struct pci_dev *pdev)
{
	misc_deregister(&node);
	pci_release_regions(pdev);
	bitmap_free(used);
	pci_disable_device(pdev);
	simgpu_pdev = NULL;
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },	/* ivshmem */
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver simgpu_driver = {
	.name = "simgpu",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};
module_pci_driver(simgpu_driver);

MODULE_DESCRIPTION("A simulated GPU and stand-in for NVIDIA's driver, for tests");
MODULE_LICENSE("GPL");
