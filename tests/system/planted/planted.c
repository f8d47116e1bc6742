// SPDX-License-Identifier: BSD-2-Clause
/*
 * A bug of each kind that a debug kernel looks for, to see that it is found: insmod with bug=NAME.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static char *bug = "none";
module_param(bug, charp, 0);
static uint vendor, device;
module_param(vendor, uint, 0);
module_param(device, uint, 0);

static DEFINE_SPINLOCK(first);
static DEFINE_SPINLOCK(second);
static volatile uint shift = 40;

static void use_after_free(void)
{
	char *memory = kmalloc(64, GFP_KERNEL);

	kfree(memory);
	if (memory)
		pr_info("planted: %d\n", READ_ONCE(memory[3]));
}

/* The second order has never met the first one: there is no deadlock, only the possibility. */
static void two_orders(void)
{
	spin_lock(&first);
	spin_lock(&second);
	spin_unlock(&second);
	spin_unlock(&first);
	spin_lock(&second);
	spin_lock(&first);
	spin_unlock(&first);
	spin_unlock(&second);
}

static void sleep_with_lock(void)
{
	spin_lock(&first);
	msleep(1);
	spin_unlock(&first);
}

static void leak(void)
{
	uint n;

	for (n = 0; n < 10; n++)
		pr_info("planted: lost %d\n", !kmalloc(64, GFP_KERNEL));
}

static void wrong_unmap(void)
{
	struct pci_dev *pdev = pci_get_device(vendor, device, NULL);
	void *memory = kmalloc(256, GFP_KERNEL);
	dma_addr_t address;

	if (pdev && memory) {
		address = dma_map_single(&pdev->dev, memory, 256, DMA_TO_DEVICE);
		if (!dma_mapping_error(&pdev->dev, address))
			dma_unmap_single(&pdev->dev, address, 128, DMA_TO_DEVICE);
	}
	kfree(memory);
	pci_dev_put(pdev);
}

static void wide_shift(void)
{
	pr_info("planted: %d\n", 1 << shift);
}

static int __init planted_init(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} bugs[] = {
		{ "use-after-free", use_after_free },
		{ "two-orders", two_orders },
		{ "sleep-with-lock", sleep_with_lock },
		{ "leak", leak },
		{ "wrong-unmap", wrong_unmap },
		{ "wide-shift", wide_shift },
	};
	uint n;

	for (n = 0; n < ARRAY_SIZE(bugs); n++) {
		if (!strcmp(bug, bugs[n].name)) {
			bugs[n].run();
			return 0;
		}
	}
	return -EINVAL;
}
module_init(planted_init);

static void __exit planted_exit(void)
{
}
module_exit(planted_exit);

MODULE_DESCRIPTION("Bugs, to see that they are found");
MODULE_LICENSE("Dual BSD/GPL");
