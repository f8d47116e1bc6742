// SPDX-License-Identifier: GPL-2.0-only
/*
 * peerdma: DMA between an FPGA and memory of GPUs, of processes, or of whatever exports dma-bufs.
 *
 * The module, and a board from probe to remove.
 */
#include <linux/dma-mapping.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "recover.h"

#define MAX_BOARDS	64

static dev_t numbers;
static struct class *class;
static DEFINE_IDA(indices);

static void main_release(struct device *node)
{
	struct peerdma_dev *board = container_of(node, struct peerdma_dev, node);

	if (board->inode)
		peerdma_mmap_inode_put(board);
	pci_dev_put(board->pdev);
	kfree(board);
}

/* Its number is free for the next board even while a file of this one is still open. */
static void main_forget(struct peerdma_dev *board)
{
	ida_free(&indices, board->index);
	peerdma_board_put(board);
}

static const struct peerdma_ops ops = {
	.job_end = peerdma_job_end,
	.job_told = peerdma_job_told,
	.file_free = peerdma_chardev_free,
	.reset = peerdma_recover_reset,
	.zap = peerdma_mmap_zap_doorbell,
};

static struct peerdma_dev *main_create(struct pci_dev *pdev)
{
	struct peerdma_dev *board = kzalloc(sizeof(*board), GFP_KERNEL);
	unsigned int n;
	int error;

	if (!board)
		return ERR_PTR(-ENOMEM);
	board->index = ida_alloc_max(&indices, MAX_BOARDS - 1, GFP_KERNEL);
	if (board->index < 0) {
		error = board->index;
		kfree(board);
		return ERR_PTR(error);
	}
	board->pdev = pci_dev_get(pdev);
	board->ops = &ops;
	init_rwsem(&board->gate);
	init_rwsem(&board->faults);
	spin_lock_init(&board->lock);
	INIT_LIST_HEAD(&board->files);
	INIT_LIST_HEAD(&board->partitions);
	for (n = 0; n < ARRAY_SIZE(board->ready); n++)
		INIT_LIST_HEAD(&board->ready[n]);
	INIT_LIST_HEAD(&board->surfaces);
	init_waitqueue_head(&board->idle);
	INIT_WORK(&board->pump, peerdma_dispatch_pump_work);
	INIT_WORK(&board->recovery, peerdma_recover_work);
	INIT_DELAYED_WORK(&board->stopper, peerdma_stop_work);
	INIT_DELAYED_WORK(&board->room, peerdma_irq_room_work);
	INIT_DELAYED_WORK(&board->watchdog, peerdma_irq_watchdog_work);
	board->time_scale = 1;
	board->generation = 1;

	device_initialize(&board->node);
	board->node.class = class;
	board->node.parent = &pdev->dev;
	board->node.devt = MKDEV(MAJOR(numbers), board->index);
	board->node.release = main_release;
	/* From here on, dropping the last reference frees it. */
	if (board->index)
		error = dev_set_name(&board->node, PEERDMA_NODE "%d", board->index);
	else
		error = dev_set_name(&board->node, PEERDMA_NODE);
	if (!error)
		error = peerdma_mmap_inode_get(board);
	if (error) {
		main_forget(board);
		return ERR_PTR(error);
	}
	return board;
}

static int main_map_bars(struct peerdma_dev *board)
{
	struct pci_dev *pdev = board->pdev;
	int error;

	board->dma_length = pci_resource_len(pdev, PEERDMA_BAR_DMA);
	if (pci_resource_len(pdev, PEERDMA_BAR_USER) < SZ_4K ||
	    board->dma_length < PEERDMA_MSIX_TABLE_OFFSET)
		return dev_err_probe(&pdev->dev, -ENODEV,
				     "BAR %d has %llu and BAR %d %llu bytes, which is too small: check that the board's design is loaded\n",
				     PEERDMA_BAR_USER,
				     (u64)pci_resource_len(pdev, PEERDMA_BAR_USER),
				     PEERDMA_BAR_DMA, (u64)board->dma_length);
	error = pci_request_regions(pdev, PEERDMA_NAME);
	if (error)
		return dev_err_probe(&pdev->dev, error, "another driver has the board's BARs\n");
	board->user = pci_iomap(pdev, PEERDMA_BAR_USER, 0);
	board->dma = pci_iomap(pdev, PEERDMA_BAR_DMA, 0);
	if (board->user && board->dma)
		return 0;
	if (board->user)
		pci_iounmap(pdev, board->user);
	pci_release_regions(pdev);
	return -ENOMEM;
}

static void main_unmap_bars(struct peerdma_dev *board)
{
	pci_iounmap(board->pdev, board->dma);
	pci_iounmap(board->pdev, board->user);
	pci_release_regions(board->pdev);
}

static void main_free_rings(struct peerdma_dev *board)
{
	struct peerdma_engine *engine;

	for_each_engine(engine, board)
		peerdma_chain_free(board, &engine->chain);
}

static int main_create_rings(struct peerdma_dev *board)
{
	struct device *dev = &board->pdev->dev;
	struct peerdma_engine *engine;

	if (dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64)) &&
	    dma_set_mask_and_coherent(dev, DMA_BIT_MASK(32)))
		return dev_err_probe(dev, -EIO, "the board cannot address this system's memory\n");
	dma_set_max_seg_size(dev, UINT_MAX);
	for_each_engine(engine, board) {
		if (peerdma_chain_alloc(board, &engine->chain, PEERDMA_CHAIN_ROOM)) {
			main_free_rings(board);
			return -ENOMEM;
		}
	}
	return 0;
}

/*
 * Brings the DMA engine to rest, whatever a former owner has left it doing. That may be another
 * kernel, whose memory is somebody else's by now: so the board does not get the bus to finish.
 */
static int main_calm(struct peerdma_dev *board)
{
	struct pci_dev *pdev = board->pdev;
	int error = peerdma_hw_calm(board);

	if (!error)
		return 0;
	dev_warn(&pdev->dev, "a channel is busy and does not stop: resetting the board\n");
	pci_save_state(pdev);
	error = __pci_reset_function_locked(pdev);
	pci_restore_state(pdev);
	return error ?: peerdma_hw_calm(board);
}

static void main_announce(struct peerdma_dev *board)
{
	static const char * const interrupts[] = {
		[PEERDMA_INTX] = "INTx", [PEERDMA_MSI] = "MSI", [PEERDMA_MSIX] = "MSI-X",
	};

	dev_info(&board->pdev->dev, "/dev/%s: %s%u H2C and %u C2H channels, %llu KiB card RAM, %s, copies %s, time scale %u\n",
		 dev_name(&board->node), board->version ? "" : "plain XDMA, ",
		 board->h2c_channels, board->c2h_channels, board->card_ram_size / 1024,
		 interrupts[board->interrupts],
		 peerdma_copies_streamed(board) ? "in one pass" : "through card RAM",
		 board->time_scale);
}

static int main_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct peerdma_dev *board = main_create(pdev);
	int error;

	if (IS_ERR(board))
		return PTR_ERR(board);
	board->card_ram_size = id->driver_data ?: PEERDMA_CARD_RAM_SIZE;
	error = pci_enable_device_mem(pdev);
	if (error)
		goto err_board;
	pci_clear_master(pdev);
	error = main_map_bars(board);
	if (error)
		goto err_disable;
	error = peerdma_hw_identify(board);
	if (error)
		goto err_bars;
	error = main_create_rings(board);
	if (error)
		goto err_bars;
	error = main_calm(board);
	if (error) {
		dev_err_probe(&pdev->dev, error,
			      "a channel is busy and does not stop: switch the board off and on\n");
		goto err_rings;
	}
	pci_set_master(pdev);
	compat_pci_enable_error_reporting(pdev);
	error = peerdma_irq_setup(board);
	if (error) {
		dev_err_probe(&pdev->dev, error, "no interrupt for the board\n");
		goto err_master;
	}
	peerdma_hw_init(board);
	pci_save_state(pdev);
	pci_set_drvdata(pdev, board);

	cdev_init(&board->cdev, &peerdma_fops);
	board->cdev.owner = THIS_MODULE;
	error = cdev_device_add(&board->cdev, &board->node);
	if (error)
		goto err_irq;
	main_announce(board);
	return 0;

err_irq:
	peerdma_hw_quiet(board);
	peerdma_irq_teardown(board);
err_master:
	pci_clear_master(pdev);
err_rings:
	main_free_rings(board);
err_bars:
	main_unmap_bars(board);
err_disable:
	pci_disable_device(pdev);
err_board:
	main_forget(board);
	return error;
}

static bool main_has_surfaces(struct peerdma_dev *board)
{
	bool some;

	spin_lock_irq(&board->lock);
	some = !list_empty(&board->surfaces);
	spin_unlock_irq(&board->lock);
	return some;
}

static void main_remove(struct pci_dev *pdev)
{
	struct peerdma_dev *board = pci_get_drvdata(pdev);

	cdev_device_del(&board->cdev, &board->node);

	down_write(&board->gate);
	spin_lock_irq(&board->lock);
	peerdma_stop_all(board, true, -ENODEV, PEERDMA_REASON_LOST);
	spin_unlock_irq(&board->lock);
	peerdma_recover_freeze(board, true);
	peerdma_hw_quiet(board);
	pci_clear_master(pdev);
	spin_lock_irq(&board->lock);
	board->state = PEERDMA_BOARD_DEAD;
	peerdma_stop_bury(board);
	spin_unlock_irq(&board->lock);
	up_write(&board->gate);

	/* Nothing more is mapped for it: after this, no provider has a mapping for the device. */
	peerdma_release_revoke_all(board, PEERDMA_SURFACE_LOST, false);
	wait_event(board->idle, !main_has_surfaces(board));
	/* Jobs of slots give back what was allocated for the device. */
	flush_workqueue(peerdma_wq);

	peerdma_irq_teardown(board);
	cancel_delayed_work_sync(&board->watchdog);
	cancel_delayed_work_sync(&board->stopper);
	cancel_delayed_work_sync(&board->room);
	cancel_work_sync(&board->pump);
	cancel_work_sync(&board->recovery);
	main_free_rings(board);
	main_unmap_bars(board);
	pci_disable_device(pdev);
	main_forget(board);
}

/* driver_data: bytes of card RAM of a board whose registers do not say. */
static const struct pci_device_id ids[] = {
	/* Ours: behind the block of the 7 series, of UltraScale, and of UltraScale+. */
	{ PCI_DEVICE_SUB(0x10ee, 0x7021, 0x10ee, 0x5045) },
	{ PCI_DEVICE_SUB(0x10ee, 0x8038, 0x10ee, 0x5045) },
	{ PCI_DEVICE_SUB(0x10ee, 0x9038, 0x10ee, 0x5045) },
	/* NVIDIA's designs for the PicoEVB and the HTG-K800. */
	{ PCI_DEVICE_SUB(0x10de, 0x0001, 0x10de, 0x0001), .driver_data = SZ_64K },
	{ PCI_DEVICE_SUB(0x10de, 0x0001, 0x10de, 0x0002), .driver_data = SZ_2G },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver driver = {
	.name = PEERDMA_NAME,
	.id_table = ids,
	.probe = main_probe,
	.remove = main_remove,
	.shutdown = peerdma_recover_shutdown,
	.err_handler = &peerdma_error_handlers,
	.driver.pm = &peerdma_pm_ops,
};

static int __init main_init(void)
{
	int error;

	/* Whoever needs memory may have to wait for a job first. */
	peerdma_wq = alloc_workqueue(PEERDMA_NAME, WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!peerdma_wq)
		return -ENOMEM;
	peerdma_slow_wq = alloc_workqueue(PEERDMA_NAME "-slow", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!peerdma_slow_wq) {
		error = -ENOMEM;
		goto err_wq;
	}
	peerdma_surface_wq = alloc_workqueue(PEERDMA_NAME "-surfaces", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!peerdma_surface_wq) {
		error = -ENOMEM;
		goto err_slow_wq;
	}
	class = compat_class_create(PEERDMA_NAME);
	if (IS_ERR(class)) {
		error = PTR_ERR(class);
		goto err_surface_wq;
	}
	error = alloc_chrdev_region(&numbers, 0, MAX_BOARDS, PEERDMA_NAME);
	if (error)
		goto err_class;
	error = pci_register_driver(&driver);
	if (error)
		goto err_numbers;
	return 0;

err_numbers:
	unregister_chrdev_region(numbers, MAX_BOARDS);
err_class:
	class_destroy(class);
err_surface_wq:
	destroy_workqueue(peerdma_surface_wq);
err_slow_wq:
	destroy_workqueue(peerdma_slow_wq);
err_wq:
	destroy_workqueue(peerdma_wq);
	return error;
}
module_init(main_init);

static void __exit main_exit(void)
{
	pci_unregister_driver(&driver);
	/*
	 * Work items that still end jobs, tell of that, or release surfaces hold references to
	 * boards. What is left to do for a job goes this way.
	 */
	flush_workqueue(peerdma_surface_wq);
	destroy_workqueue(peerdma_wq);
	destroy_workqueue(peerdma_slow_wq);
	destroy_workqueue(peerdma_surface_wq);
	unregister_chrdev_region(numbers, MAX_BOARDS);
	class_destroy(class);
	ida_destroy(&indices);
}
module_exit(main_exit);

MODULE_DESCRIPTION("DMA between an FPGA and the memory of GPUs and processes");
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("post: peerdma_nvp2p peerdma_nvp2p_tegra");
