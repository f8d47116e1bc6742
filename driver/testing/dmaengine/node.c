// SPDX-License-Identifier: GPL-2.0-only
/* The node of a board. */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "client.h"

static struct xdma_client *client_of(struct file *file)
{
	/* As misc_open() leaves it. */
	return container_of(file->private_data, struct xdma_client, misc);
}

static int node_release(struct inode *inode, struct file *file)
{
	xdma_ring_stop(client_of(file), file);
	return 0;
}

static ssize_t node_read_iter(struct kiocb *kiocb, struct iov_iter *to)
{
	struct xdma_client *client = client_of(kiocb->ki_filp);

	return xdma_transfer(client, &client->sides[0], to, kiocb->ki_pos);
}

static ssize_t node_write_iter(struct kiocb *kiocb, struct iov_iter *from)
{
	struct xdma_client *client = client_of(kiocb->ki_filp);

	return xdma_transfer(client, &client->sides[1], from, kiocb->ki_pos);
}

static int node_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct xdma_client *client = client_of(file);

	return dma_mmap_coherent(&client->pdev->dev, vma, client->memory, client->memory_bus,
				 XDMA_CLIENT_MEMORY);
}

static long node_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct xdma_client *client = client_of(file);
	void __user *user = (void __user *)argument;
	struct xdma_client_state state = {};
	struct xdma_client_ring ring;
	int error;

	switch (command) {
	case XDMA_CLIENT_START:
		if (copy_from_user(&ring, user, sizeof(ring)))
			return -EFAULT;
		return xdma_ring_start(client, file, &ring);
	case XDMA_CLIENT_STATE:
		error = xdma_ring_state(client, &state);
		if (!error && copy_to_user(user, &state, sizeof(state)))
			return -EFAULT;
		return error;
	case XDMA_CLIENT_STOP:
		return xdma_ring_stop(client, file);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.release = node_release,
	.read_iter = node_read_iter,
	.write_iter = node_write_iter,
	.mmap = node_mmap,
	.unlocked_ioctl = node_ioctl,
};

static void remove_node(void *misc)
{
	misc_deregister(misc);
}

/**
 * xdma_node_create() - makes the node of a board and the memory of its rings
 * @client: the board, with its channels
 *
 * Both go with the board.
 *
 * Return: 0 or a negative error.
 */
int xdma_node_create(struct xdma_client *client)
{
	struct device *dev = &client->pdev->dev;
	struct miscdevice *misc = &client->misc;
	int error;

	client->memory = dmam_alloc_coherent(dev, XDMA_CLIENT_MEMORY, &client->memory_bus,
					     GFP_KERNEL);
	misc->name = devm_kasprintf(dev, GFP_KERNEL, "xdma_client%d", client->index);
	if (!client->memory || !misc->name)
		return -ENOMEM;
	misc->minor = MISC_DYNAMIC_MINOR;
	misc->fops = &operations;
	misc->parent = dev;
	error = misc_register(misc);
	if (error)
		return error;
	return devm_add_action_or_reset(dev, remove_node, misc);
}
