/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the client share. */
#ifndef XDMA_CLIENT_H
#define XDMA_CLIENT_H

#include <linux/atomic.h>
#include <linux/dmaengine.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/platform_data/amd_xdma.h>
#include <linux/uio.h>

#include "xdma_client_uapi.h"

/**
 * struct xdma_side - a direction
 * @info: what the driver finds its channel by
 * @chan: its channel
 * @lock: held by a transfer, and while a ring begins or ends
 * @ring: whether it has the ring; under @lock
 */
struct xdma_side {
	struct xdma_chan_info info;
	struct dma_chan *chan;
	struct mutex lock;
	bool ring;
};

/**
 * struct xdma_client - a board and its node
 * @pdev: the board
 * @sides: from the card, and to it
 * @memory: of rings
 * @memory_bus: its bus address
 * @lock: of the ring; taken before those of sides
 * @ring_owner: file that the ring ends with; NULL if there is no ring
 * @ring_side: that it is on
 * @ring_cookie: the driver's name for it
 * @callbacks: calls back since it began
 * @terminate_ns: nanoseconds that the last termination took
 * @index: in the name of the node
 * @misc: the node
 */
struct xdma_client {
	struct pci_dev *pdev;
	struct xdma_side sides[2];
	void *memory;
	dma_addr_t memory_bus;
	struct mutex lock;
	struct file *ring_owner;
	struct xdma_side *ring_side;
	dma_cookie_t ring_cookie;
	atomic64_t callbacks;
	atomic64_t terminate_ns;
	int index;
	struct miscdevice misc;
};

int xdma_node_create(struct xdma_client *client);

ssize_t xdma_transfer(struct xdma_client *client, struct xdma_side *side, struct iov_iter *iter,
		      u64 card);

int xdma_ring_start(struct xdma_client *client, struct file *file,
		    const struct xdma_client_ring *ring);
int xdma_ring_state(struct xdma_client *client, struct xdma_client_state *state);
int xdma_ring_stop(struct xdma_client *client, struct file *file);

#endif
