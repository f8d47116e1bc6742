// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stands in for the nv-p2p of L4T r35 and r36, over any memory of a process. For tests only.
 *
 * Its notifier is one of the kernel's own, so that callbacks come when and how they do on a Tegra:
 * when something changes where the first page is mapped, when the process's memory is torn down,
 * and from put_pages. Pages are referenced, not pinned; who frees what is as there.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include <linux/nv-p2p.h>

static bool fail_map;
module_param(fail_map, bool, 0644);
MODULE_PARM_DESC(fail_map, "a mapping fails, and is reported as success without a mapping");

static bool fail_get;
module_param(fail_get, bool, 0644);
MODULE_PARM_DESC(fail_get, "the memory is not of a kind that can be pinned");

/* Read by tests: pinned and mapped now, and callbacks since the module was loaded. */
static atomic_t tables, mappings, callbacks;

static int show(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read((atomic_t *)param->arg));
}

static const struct kernel_param_ops counter = { .get = show };
module_param_cb(tables, &counter, &tables, 0444);
module_param_cb(mappings, &counter, &mappings, 0444);
module_param_cb(callbacks, &counter, &callbacks, 0444);

static void call_back(struct nvidia_p2p_page_table *table)
{
	atomic_inc(&callbacks);
	table->free_callback(table->data);
}

static void released(struct mmu_notifier *mn, struct mm_struct *mm)
{
	call_back(container_of(mn, struct nvidia_p2p_page_table, mn));
}

static int changed(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
	struct nvidia_p2p_page_table *table = container_of(mn, struct nvidia_p2p_page_table, mn);

	/* Also one byte behind the range, as there. */
	if (table->vaddr < range->start || table->vaddr > range->end)
		return 0;
	/* Once: it is unlinked by that. */
	if (hlist_unhashed_lockless(&mn->hlist))
		return 0;
	mmu_notifier_put(mn);
	call_back(table);
	return 0;
}

/* The client frees the table. */
static void let_go(struct mmu_notifier *mn)
{
}

static const struct mmu_notifier_ops ops = {
	.release = released,
	.invalidate_range_start = changed,
	.free_notifier = let_go,
};

static void put_references(struct nvidia_p2p_page_table *table, long count)
{
	while (count > 0)
		put_page(table->pages[--count]);
	kvfree(table->pages);
}

int nvidia_p2p_get_pages(u64 address, u64 size, struct nvidia_p2p_page_table **result,
			 void (*callback)(void *data), void *data)
{
	struct nvidia_p2p_page_table *table;
	long found;
	int error;

	might_sleep();
	if (address % PAGE_SIZE || !size || size % PAGE_SIZE || !callback)
		return -EINVAL;
	if (fail_get)
		return -ENOTSUPP;
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	table->entries = size >> PAGE_SHIFT;
	table->pages = kvcalloc(table->entries, sizeof(*table->pages), GFP_KERNEL);
	if (!table->pages) {
		kfree(table);
		return -ENOMEM;
	}
	found = get_user_pages_unlocked(address, table->entries, table->pages,
					FOLL_WRITE | FOLL_FORCE);
	if (found != table->entries) {
		error = found < 0 ? found : -EFAULT;
		goto err_pages;
	}
#ifdef NVIDIA_P2P_PAGE_TABLE_VERSION
	table->version = NVIDIA_P2P_PAGE_TABLE_VERSION;
#endif
	table->page_size = PAGE_SIZE;
	table->size = size;
	table->vaddr = address;
	table->mm = current->mm;
	table->free_callback = callback;
	table->data = data;
	mutex_init(&table->lock);
	table->mn.ops = &ops;
	*result = table;
	error = mmu_notifier_register(&table->mn, table->mm);
	if (error)
		goto err_pages;
	atomic_inc(&tables);
	return 0;

err_pages:
	put_references(table, found);
	kfree(table);
	return error;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *table)
{
	might_sleep();
	mmu_notifier_unregister(&table->mn, table->mm);
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *table)
{
	mutex_lock(&table->lock);
	WARN(table->mapped, "freed while it is mapped\n");
	put_references(table, table->entries);
	table->pages = NULL;
	mutex_unlock(&table->lock);
	atomic_dec(&tables);
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_page_table);

static void unmap(struct nvidia_p2p_dma_mapping *mapping)
{
	if (mapping->sgt)
		sg_free_table(mapping->sgt);
	kfree(mapping->sgt);
	kvfree(mapping->hw_address);
	kvfree(mapping->hw_len);
	kfree(mapping);
}

static int map(struct nvidia_p2p_dma_mapping *mapping)
{
	struct nvidia_p2p_page_table *table = mapping->page_table;
	struct scatterlist *sg;
	int n, error;

	mapping->sgt = kzalloc(sizeof(*mapping->sgt), GFP_KERNEL);
	mapping->hw_address = kvcalloc(table->entries, sizeof(*mapping->hw_address), GFP_KERNEL);
	mapping->hw_len = kvcalloc(table->entries, sizeof(*mapping->hw_len), GFP_KERNEL);
	if (!mapping->sgt || !mapping->hw_address || !mapping->hw_len)
		return -ENOMEM;
	error = sg_alloc_table_from_pages(mapping->sgt, table->pages, table->entries, 0,
					  table->size, GFP_KERNEL);
	if (!error)
		error = dma_map_sgtable(mapping->dev, mapping->sgt, mapping->direction, 0);
	if (error)
		return error;
	mapping->entries = mapping->sgt->nents;
	for_each_sgtable_dma_sg(mapping->sgt, sg, n) {
		mapping->hw_address[n] = sg_dma_address(sg);
		mapping->hw_len[n] = sg_dma_len(sg);
	}
	return 0;
}

int nvidia_p2p_dma_map_pages(struct device *dev, struct nvidia_p2p_page_table *table,
			     struct nvidia_p2p_dma_mapping **result,
			     enum dma_data_direction direction)
{
	struct nvidia_p2p_dma_mapping *mapping;

	might_sleep();
	*result = NULL;
	if (fail_map)
		return 0;
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return -ENOMEM;
	mapping->dev = dev;
	mapping->page_table = table;
	mapping->direction = direction;
	if (map(mapping)) {
		unmap(mapping);
		return 0;
	}
	mutex_lock(&table->lock);
	WARN(table->mapped, "a second mapping is never undone\n");
	table->mapped = 1;
	mutex_unlock(&table->lock);
	atomic_inc(&mappings);
	*result = mapping;
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct nvidia_p2p_dma_mapping *mapping)
{
	struct nvidia_p2p_page_table *table = mapping->page_table;

	mutex_lock(&table->lock);
	WARN(!table->mapped, "unmapped twice\n");
	table->mapped = 0;
	dma_unmap_sgtable(mapping->dev, mapping->sgt, mapping->direction, 0);
	mutex_unlock(&table->lock);
	unmap(mapping);
	atomic_dec(&mappings);
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_unmap_pages);

MODULE_DESCRIPTION("Stand-in for the nv-p2p of NVIDIA's Tegra, for tests");
MODULE_LICENSE("GPL");
