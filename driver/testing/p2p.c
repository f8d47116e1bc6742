// SPDX-License-Identifier: GPL-2.0-only
/*
 * nvidia_p2p_*, as NVIDIA's header declares them, over the simulated GPU.
 *
 * Strict where NVIDIA's driver is undefined: what a client must not do gives a warning with a
 * stack, which fails a test. Lax where NVIDIA's driver is, since clients have to cope with that:
 * put_pages by another process does nothing and reports success.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/semaphore.h>
#include <linux/slab.h>

#include <nv-p2p.h>

#include "simgpu.h"

#ifdef NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
#define FORCE_BAR1	NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
#else
#define FORCE_BAR1	1	/* of drivers from 580 on */
#endif

static unsigned int page_kb = 64;
module_param(page_kb, uint, 0644);
MODULE_PARM_DESC(page_kb, "size of the pages that clients are told of: 4, 64 or 128 KiB");

static bool no_persistent;
module_param(no_persistent, bool, 0644);
MODULE_PARM_DESC(no_persistent, "the persistent calls are not supported");

static int get_error, map_error, put_error;
module_param(get_error, int, 0644);
MODULE_PARM_DESC(get_error, "what get_pages_persistent fails with, a negative errno; 0: it works");
module_param(map_error, int, 0644);
MODULE_PARM_DESC(map_error, "what dma_map_pages fails with");
module_param(put_error, int, 0644);
MODULE_PARM_DESC(put_error, "what the persistent put says, though it puts, as for a GPU that is lost");

static bool no_flags;
module_param(no_flags, bool, 0644);
MODULE_PARM_DESC(no_flags, "get_pages_persistent takes no flags, as before NVIDIA's driver 580");

static ulong map_beyond;
module_param(map_beyond, ulong, 0644);
MODULE_PARM_DESC(map_beyond, "bytes by which clients are told wrong addresses");

static unsigned int mapping_version = NVIDIA_P2P_DMA_MAPPING_VERSION;
module_param(mapping_version, uint, 0644);
MODULE_PARM_DESC(mapping_version, "version that mappings say they are of");

static unsigned int table_version = NVIDIA_P2P_PAGE_TABLE_VERSION;
module_param(table_version, uint, 0644);
MODULE_PARM_DESC(table_version, "version that page tables say they are of");

/**
 * struct pin - a pinned range
 * @table: what the client has; its address is the key
 * @link: in the list of pins
 * @alloc: holds a reference
 * @forced: for processors only
 * @tgid: process that pinned
 * @callback: NULL if persistent
 * @data: for the callback
 * @mappings: made for devices
 * @sem: of @mappings
 */
struct pin {
	struct nvidia_p2p_page_table table;
	struct list_head link;
	struct simgpu_alloc *alloc;
	bool forced;
	pid_t tgid;
	void (*callback)(void *data);
	void *data;
	struct list_head mappings;
	struct semaphore sem;
};

/**
 * struct mapping - a pin, mapped for a device
 * @mapping: what the client has
 * @beyond: by how much its addresses are wrong
 * @link: in the list of the pin's mappings
 */
struct mapping {
	struct nvidia_p2p_dma_mapping mapping;
	ulong beyond;
	struct list_head link;
};

/* Under the API lock. */
static LIST_HEAD(pins);

static u32 gpu_page_type(void)
{
	unsigned int kb = READ_ONCE(page_kb);

	return kb == 4 ? NVIDIA_P2P_PAGE_SIZE_4KB :
	       kb == 64 ? NVIDIA_P2P_PAGE_SIZE_64KB : NVIDIA_P2P_PAGE_SIZE_128KB;
}

/* Of a table or a mapping: the parameter may have been another when it was made. */
static u64 page_bytes(u32 type)
{
	return type == NVIDIA_P2P_PAGE_SIZE_4KB ? SZ_4K :
	       type == NVIDIA_P2P_PAGE_SIZE_64KB ? SZ_64K : SZ_128K;
}

static void free_mapping(struct mapping *mapping)
{
	struct nvidia_p2p_dma_mapping *map = &mapping->mapping;
	u64 size = page_bytes(map->page_size_type);
	u32 n;

	for (n = 0; n < map->entries; n++)
		dma_unmap_resource(&map->pci_dev->dev, map->dma_addresses[n] - mapping->beyond,
				   size, DMA_BIDIRECTIONAL, SIMGPU_ATTRIBUTES);
	list_del(&mapping->link);
	kfree(map->dma_addresses);
	kfree(mapping);
	atomic_dec(&simgpu_mappings);
}

static void free_pin(struct pin *pin)
{
	struct mapping *mapping, *next;

	list_for_each_entry_safe(mapping, next, &pin->mappings, link)
		free_mapping(mapping);
	kfree(pin->table.pages[0]);
	kfree(pin->table.pages);
	simgpu_put(pin->alloc);
	memset(pin, 0x5a, sizeof(*pin));
	kfree(pin);
	atomic_dec(&simgpu_pins);
}

static int create(u64 va, u64 length, void (*callback)(void *), void *data,
		  struct nvidia_p2p_page_table **table)
{
	u32 type = gpu_page_type();
	u64 size = page_bytes(type);
	u32 n, count = DIV_ROUND_UP_ULL(length, size);
	struct nvidia_p2p_page *pages;
	struct simgpu_alloc *alloc;
	struct pin *pin;

	if (va % SIMGPU_PAGE || !length || length % SIMGPU_PAGE)
		return -EINVAL;
	alloc = simgpu_find(va, length);
	if (!alloc)
		return -EINVAL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	pages = kcalloc(count, sizeof(*pages), GFP_KERNEL);
	if (pin)
		pin->table.pages = kcalloc(count, sizeof(*pin->table.pages), GFP_KERNEL);
	if (!pin || !pages || !pin->table.pages) {
		if (pin)
			kfree(pin->table.pages);
		kfree(pin);
		kfree(pages);
		simgpu_put(alloc);
		return -ENOMEM;
	}
	for (n = 0; n < count; n++) {
		u64 at = va - alloc->va + n * size;

		pages[n].physical_address = simgpu_physical(alloc, at / SIMGPU_PAGE) +
					    at % SIMGPU_PAGE;
		pin->table.pages[n] = &pages[n];
	}
	pin->table.version = table_version;
	pin->table.page_size = type;
	pin->table.entries = count;
	pin->alloc = alloc;
	pin->tgid = current->tgid;
	pin->callback = callback;
	pin->data = data;
	INIT_LIST_HEAD(&pin->mappings);
	sema_init(&pin->sem, 1);
	*table = &pin->table;
	mutex_lock(&simgpu_api_lock);
	list_add(&pin->link, &pins);
	mutex_unlock(&simgpu_api_lock);
	atomic_inc(&simgpu_pins);
	return 0;
}

int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 uint64_t length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	might_sleep();
	if (p2p_token || va_space || !free_callback || !data)
		return -EINVAL;
	return create(virtual_address, length, free_callback, data, page_table);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

int nvidia_p2p_get_pages_persistent(uint64_t virtual_address, uint64_t length,
				    struct nvidia_p2p_page_table **page_table, uint32_t flags)
{
	int error;

	might_sleep();
	if (no_persistent)
		return -ENOTSUPP;
	if (get_error)
		return get_error;
	if (flags & ~FORCE_BAR1 || (flags && no_flags))
		return -EINVAL;
	error = create(virtual_address, length, NULL, NULL, page_table);
	if (!error)
		container_of(*page_table, struct pin, table)->forced = flags & FORCE_BAR1;
	return error;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages_persistent);

static struct pin *find(struct nvidia_p2p_page_table *table)
{
	struct pin *pin;

	list_for_each_entry(pin, &pins, link)
		if (&pin->table == table)
			return pin;
	return NULL;
}

int nvidia_p2p_put_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	struct pin *pin;

	might_sleep();
	mutex_lock(&simgpu_api_lock);
	pin = find(page_table);
	if (pin && (pin->tgid != current->tgid || !pin->callback))
		pin = NULL;
	if (pin) {
		WARN(!list_empty(&pin->mappings), "put while it is mapped\n");
		list_del(&pin->link);
		free_pin(pin);
	}
	mutex_unlock(&simgpu_api_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

int nvidia_p2p_put_pages_persistent(uint64_t virtual_address,
				    struct nvidia_p2p_page_table *page_table, uint32_t flags)
{
	struct pin *pin = container_of(page_table, struct pin, table);

	might_sleep();
	mutex_lock(&simgpu_api_lock);
	if (WARN(find(page_table) != pin || pin->callback, "put twice, or not persistent\n")) {
		mutex_unlock(&simgpu_api_lock);
		return -EINVAL;
	}
	WARN(!list_empty(&pin->mappings), "put while it is mapped\n");
	list_del(&pin->link);
	free_pin(pin);
	mutex_unlock(&simgpu_api_lock);
	return put_error;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages_persistent);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	struct pin *pin = container_of(page_table, struct pin, table);
	u32 count = page_table->entries, n;
	struct mapping *mapping;
	dma_addr_t address;
	int error = -ENOMEM;

	might_sleep();
	if (WARN(page_table->page_size == NVIDIA_P2P_PAGE_SIZE_4KB,
		 "NVIDIA's driver has a BUG here\n"))
		return -EINVAL;
	/* Forced mappings are for processors only. */
	if (pin->forced)
		return -ENOTSUPP;
	if (map_error)
		return map_error;
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return error;
	mapping->mapping.dma_addresses = kcalloc(count, sizeof(u64), GFP_KERNEL);
	if (!mapping->mapping.dma_addresses)
		goto err_mapping;
	mapping->mapping.version = mapping_version;
	mapping->mapping.page_size_type = page_table->page_size;
	mapping->mapping.pci_dev = peer;
	mapping->beyond = map_beyond;
	mutex_lock(&simgpu_api_lock);
	for (n = 0; n < count; n++) {
		address = dma_map_resource(&peer->dev, page_table->pages[n]->physical_address,
					   page_bytes(page_table->page_size), DMA_BIDIRECTIONAL,
					   SIMGPU_ATTRIBUTES);
		if (dma_mapping_error(&peer->dev, address))
			break;
		mapping->mapping.dma_addresses[n] = address + mapping->beyond;
	}
	mapping->mapping.entries = n;
	down(&pin->sem);
	list_add(&mapping->link, &pin->mappings);
	atomic_inc(&simgpu_mappings);
	if (n < count)
		free_mapping(mapping);
	up(&pin->sem);
	mutex_unlock(&simgpu_api_lock);
	if (n < count)
		return -EIO;
	*dma_mapping = &mapping->mapping;
	return 0;

err_mapping:
	kfree(mapping);
	return error;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	struct pin *pin = container_of(page_table, struct pin, table);

	might_sleep();
	down(&pin->sem);
	WARN(dma_mapping->pci_dev != peer, "unmapped for another device\n");
	free_mapping(container_of(dma_mapping, struct mapping, mapping));
	up(&pin->sem);
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_page_table);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_dma_mapping);

/**
 * struct revocation - callbacks to be made
 * @work: makes them
 * @alloc: what is being freed
 */
struct revocation {
	struct work_struct work;
	struct simgpu_alloc *alloc;
};

static void revoke(struct work_struct *work)
{
	struct simgpu_alloc *alloc = container_of(work, struct revocation, work)->alloc;
	struct pin *pin, *next;

	mutex_lock(&simgpu_api_lock);
	list_for_each_entry_safe(pin, next, &pins, link) {
		if (pin->alloc != alloc || !pin->callback)
			continue;
		atomic_inc(&simgpu_callbacks);
		pin->callback(pin->data);
		list_del(&pin->link);
		free_pin(pin);
	}
	mutex_unlock(&simgpu_api_lock);
}

/* From a thread of nobody's, as NVIDIA's driver may: the one that frees waits for it. */
void simgpu_call_back(struct simgpu_alloc *alloc)
{
	struct revocation revocation = { .alloc = alloc };

	INIT_WORK_ONSTACK(&revocation.work, revoke);
	schedule_work(&revocation.work);
	flush_work(&revocation.work);
	destroy_work_on_stack(&revocation.work);
}
