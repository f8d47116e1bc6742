// SPDX-License-Identifier: GPL-2.0-only
/*
 * A parent for the kernel's own driver for XDMA (drivers/dma/xilinx/xdma.c), which binds to a
 * platform device, and a client of its channels. For tests only.
 */
#include <linux/dma-mapping.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/platform_device.h>

#include "../../peerdma_regs.h"
#include "client.h"

/* As many channels each way as the driver looks for. */
#define CHANNELS	4
/* A channel each way and the user's interrupts: what is left of them if there are more channels. */
#define VECTORS		(2 + 16)

static DEFINE_IDA(indices);

static void free_index(void *data)
{
	struct xdma_client *client = data;

	ida_free(&indices, client->index);
}

static void remove_platform(void *platform)
{
	platform_device_unregister(platform);
}

static void release_channel(void *channel)
{
	dma_release_channel(channel);
}

/* The device that the driver binds to: registers, vectors, and who may have which channel. */
static int add_platform(struct xdma_client *client)
{
	struct pci_dev *pdev = client->pdev;
	struct device *dev = &pdev->dev;
	struct resource resources[] = {
		DEFINE_RES_MEM(pci_resource_start(pdev, PEERDMA_BAR_DMA),
			       pci_resource_len(pdev, PEERDMA_BAR_DMA)),
		DEFINE_RES_IRQ(pci_irq_vector(pdev, 0)),
	};
	struct xdma_platdata data = { .max_dma_channels = CHANNELS };
	struct platform_device_info info = {
		.parent = dev,
		.name = "xdma",
		.id = PLATFORM_DEVID_AUTO,
		.res = resources,
		.num_res = ARRAY_SIZE(resources),
		.data = &data,
		.size_data = sizeof(data),
		.dma_mask = DMA_BIT_MASK(64),
	};
	struct platform_device *platform;
	struct dma_slave_map *map;
	int n;

	/* The driver takes the vectors for a range of interrupts. */
	resources[1].end = pci_irq_vector(pdev, VECTORS - 1);
	if (resource_size(&resources[1]) != VECTORS)
		return dev_err_probe(dev, -ENODEV, "the vectors' interrupts are not in sequence\n");
	resources[0].parent = &pdev->resource[PEERDMA_BAR_DMA];
	map = devm_kcalloc(dev, ARRAY_SIZE(client->sides), sizeof(*map), GFP_KERNEL);
	if (!map)
		return -ENOMEM;
	for (n = 0; n < ARRAY_SIZE(client->sides); n++) {
		map[n].devname = dev_name(dev);
		map[n].slave = n ? "to-card" : "from-card";
		map[n].param = XDMA_FILTER_PARAM(&client->sides[n].info);
	}
	data.device_map = map;
	data.device_map_cnt = ARRAY_SIZE(client->sides);
	platform = platform_device_register_full(&info);
	if (IS_ERR(platform))
		return PTR_ERR(platform);
	return devm_add_action_or_reset(dev, remove_platform, platform);
}

static int request_channels(struct xdma_client *client)
{
	struct device *dev = &client->pdev->dev;
	struct dma_chan *channel;
	int n, error;

	for (n = 0; n < ARRAY_SIZE(client->sides); n++) {
		channel = dma_request_chan(dev, n ? "to-card" : "from-card");
		if (IS_ERR(channel))
			return dev_err_probe(dev, PTR_ERR(channel), "no channel: is xdma loaded?\n");
		client->sides[n].chan = channel;
		error = devm_add_action_or_reset(dev, release_channel, channel);
		if (error)
			return error;
	}
	return 0;
}

static struct xdma_client *create(struct pci_dev *pdev)
{
	struct xdma_client *client = devm_kzalloc(&pdev->dev, sizeof(*client), GFP_KERNEL);
	int n, error;

	if (!client)
		return ERR_PTR(-ENOMEM);
	client->pdev = pdev;
	mutex_init(&client->lock);
	for (n = 0; n < ARRAY_SIZE(client->sides); n++) {
		mutex_init(&client->sides[n].lock);
		client->sides[n].info.dir = n ? DMA_MEM_TO_DEV : DMA_DEV_TO_MEM;
	}
	client->index = ida_alloc(&indices, GFP_KERNEL);
	if (client->index < 0)
		return ERR_PTR(client->index);
	error = devm_add_action_or_reset(&pdev->dev, free_index, client);
	return error ? ERR_PTR(error) : client;
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct xdma_client *client = create(pdev);
	int error;

	if (IS_ERR(client))
		return PTR_ERR(client);
	error = pcim_enable_device(pdev);
	if (error)
		return error;
	error = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (error)
		return error;
	pci_set_master(pdev);
	error = pci_alloc_irq_vectors(pdev, VECTORS, VECTORS, PCI_IRQ_MSIX);
	if (error < 0)
		return dev_err_probe(&pdev->dev, error, "no %d vectors of MSI-X\n", VECTORS);
	error = add_platform(client);
	if (!error)
		error = request_channels(client);
	if (!error)
		error = xdma_node_create(client);
	return error;
}

static const struct pci_device_id ids[] = {
	/* Behind the block of the 7 series, of UltraScale, and of UltraScale+. */
	{ PCI_DEVICE(0x10ee, 0x7021) },
	{ PCI_DEVICE(0x10ee, 0x8038) },
	{ PCI_DEVICE(0x10ee, 0x9038) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver parent = {
	.name = "xdma_client",
	.id_table = ids,
	.probe = probe,
	/* The module stays while a node is open, and so does what it uses. */
	.driver.suppress_bind_attrs = true,
};
module_pci_driver(parent);

MODULE_DESCRIPTION("Parent and client of the kernel's own driver for XDMA, for tests");
MODULE_LICENSE("GPL");
