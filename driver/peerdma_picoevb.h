/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * The requests of NVIDIA's driver for the PicoEVB board, as the peerdma driver takes them: part of
 * its interface, see peerdma_uapi.h. Memory given by pointer counts as locked memory (ulimit -l)
 * while it is pinned for a transfer: part of it at a time.
 */
#ifndef PEERDMA_PICOEVB_H
#define PEERDMA_PICOEVB_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct peerdma_pin_cuda - pins GPU memory, or page-locked host memory where no GPU provider is
 * @va: in: CUDA pointer of this process; any alignment
 * @size: in: bytes
 * @handle: out: names the memory in other requests of this file descriptor
 *
 * 24 bytes, on 32-bit x86 20.
 */
struct peerdma_pin_cuda {
	__u64 va;
	__u64 size;
	__u32 handle;
};

/**
 * struct peerdma_unpin_cuda - lets go of memory pinned by any of the pin requests
 * @handle: in: what pinning it returned
 *
 * Jobs that have not started are cancelled; those that have are waited for.
 */
struct peerdma_unpin_cuda {
	__u32 handle;
};

/**
 * struct peerdma_h2c2h_dma - copies memory to memory through the board
 * @src: in: handle if PEERDMA_H2C2H_SRC_IS_HANDLE, else pointer
 * @dst: in: handle if PEERDMA_H2C2H_DST_IS_HANDLE, else pointer
 * @len: in: bytes
 * @flags: in: PEERDMA_H2C2H_*
 * @dma_time_ns: out: how long it took
 */
struct peerdma_h2c2h_dma {
	__u64 src;
	__u64 dst;
	__u64 len;
	__u64 flags;
	__u64 dma_time_ns;
};

#define PEERDMA_H2C2H_SRC_IS_HANDLE	(1 << 0)
#define PEERDMA_H2C2H_DST_IS_HANDLE	(1 << 1)

/**
 * struct peerdma_card_info - what the card has
 * @fpga_ram_size: out: bytes of card RAM that everybody may use, from card address 0; what open
 *	files have for themselves is behind. On plain XDMA, where none has any, all of it, as
 *	NVIDIA's driver has it, and copies overwrite the last part of it
 */
struct peerdma_card_info {
	__u64 fpga_ram_size;
};

/**
 * struct peerdma_h2c_dma - copies memory to card RAM
 * @src: in: handle if PEERDMA_H2C_SRC_IS_HANDLE, else pointer
 * @dst: in: card address
 * @len: in: bytes
 * @flags: in: PEERDMA_H2C_*
 * @dma_time_ns: out: how long it took
 */
struct peerdma_h2c_dma {
	__u64 src;
	__u64 dst;
	__u64 len;
	__u64 flags;
	__u64 dma_time_ns;
};

#define PEERDMA_H2C_SRC_IS_HANDLE	(1 << 0)

/**
 * struct peerdma_c2h_dma - copies card RAM to memory
 * @dst: in: handle if PEERDMA_C2H_DST_IS_HANDLE, else pointer
 * @src: in: card address
 * @len: in: bytes
 * @flags: in: PEERDMA_C2H_*
 * @dma_time_ns: out: how long it took
 */
struct peerdma_c2h_dma {
	__u64 dst;
	__u64 src;
	__u64 len;
	__u64 flags;
	__u64 dma_time_ns;
};

#define PEERDMA_C2H_DST_IS_HANDLE	(1 << 0)

#define PEERDMA_IOC_MAGIC		'P'

/* The argument is the value itself, a bit for each LED, not a pointer to it. */
#define PEERDMA_IOC_LED			_IOW(PEERDMA_IOC_MAGIC, 0, __u32)
#define PEERDMA_IOC_PIN_CUDA		_IOWR(PEERDMA_IOC_MAGIC, 1, struct peerdma_pin_cuda)
#define PEERDMA_IOC_UNPIN_CUDA		_IOW(PEERDMA_IOC_MAGIC, 2, struct peerdma_unpin_cuda)
#define PEERDMA_IOC_H2C2H_DMA		_IOWR(PEERDMA_IOC_MAGIC, 3, struct peerdma_h2c2h_dma)
#define PEERDMA_IOC_CARD_INFO		_IOR(PEERDMA_IOC_MAGIC, 4, struct peerdma_card_info)
#define PEERDMA_IOC_H2C_DMA		_IOWR(PEERDMA_IOC_MAGIC, 5, struct peerdma_h2c_dma)
#define PEERDMA_IOC_C2H_DMA		_IOWR(PEERDMA_IOC_MAGIC, 6, struct peerdma_c2h_dma)

#endif /* PEERDMA_PICOEVB_H */
