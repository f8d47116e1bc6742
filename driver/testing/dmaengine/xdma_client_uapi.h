/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/xdma_client0: what a program asks of the kernel's own driver for XDMA. For tests only.
 *
 * preadv() moves from the card to memory, pwritev() from memory to the card. Each is one
 * scatter-gather transfer; the file's offset is the card address. They end with EIO if the driver
 * reports an error, and with ETIMEDOUT, terminated, if it reports nothing for so long as the
 * module's parameter timeout_ms says.
 *
 * mmap() at offset 0 gives the memory for rings, XDMA_CLIENT_MEMORY bytes.
 */
#ifndef XDMA_CLIENT_UAPI_H
#define XDMA_CLIENT_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Bytes */
#define XDMA_CLIENT_MEMORY	(1 << 17)

/**
 * struct xdma_client_ring - a cyclic transfer
 * @card: address that each period starts at
 * @periods: periods in the memory, from its start
 * @period: bytes of each
 * @to_card: 1 from memory to the card, 0 the other way
 * @reserved: 0
 */
struct xdma_client_ring {
	__u64 card;
	__u32 periods;
	__u32 period;
	__u32 to_card;
	__u32 reserved;
};

/**
 * struct xdma_client_state - how the ring is, and how the last termination was
 * @callbacks: calls back of the ring up to now
 * @terminate_ns: nanoseconds that the last termination took, of a ring or a transfer
 * @residue: bytes of the ring from the period in progress to its end
 * @reserved: 0
 */
struct xdma_client_state {
	__u64 callbacks;
	__u64 terminate_ns;
	__u32 residue;
	__u32 reserved;
};

/* EBUSY: there is a ring. It ends with XDMA_CLIENT_STOP or when the file is closed. */
#define XDMA_CLIENT_START	_IOW('X', 0, struct xdma_client_ring)
/* EIO: the ring ended with an error */
#define XDMA_CLIENT_STATE	_IOR('X', 1, struct xdma_client_state)
/* ENOENT: there is no ring */
#define XDMA_CLIENT_STOP	_IO('X', 2)

#endif
