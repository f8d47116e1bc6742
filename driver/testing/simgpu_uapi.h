/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/simgpu: what a program asks of the simulated GPU. For tests only.
 */
#ifndef SIMGPU_UAPI_H
#define SIMGPU_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* In simgpu_memory.flags: freed by the first munmap() of all of it */
#define SIMGPU_FREE_AT_MUNMAP	(1 << 0)

/**
 * struct simgpu_memory - an allocation
 * @va: its address, as a CUDA pointer would be: only this process can have it pinned
 * @size: bytes
 * @flags: SIMGPU_FREE_AT_MUNMAP
 * @reserved: 0
 *
 * It is mapped by mmap() at offset @va, and freed when the file is closed.
 */
struct simgpu_memory {
	__u64 va;
	__u64 size;
	__u32 flags;
	__u32 reserved;
};

/**
 * enum simgpu_kind - what kind of dma-buf
 * @SIMGPU_PEER: the GPU's memory, for importers that allow peer-to-peer
 * @SIMGPU_HOST: pages of host memory, from an exporter that does not move them
 */
enum simgpu_kind {
	SIMGPU_PEER = 0,
	SIMGPU_HOST = 1,
};

/**
 * struct simgpu_export - memory as a dma-buf
 * @va: allocation to export; with SIMGPU_HOST 0
 * @size: bytes, with SIMGPU_HOST
 * @kind: enum simgpu_kind
 * @fd: out: the dma-buf
 */
struct simgpu_export {
	__u64 va;
	__u64 size;
	__u32 kind;
	__s32 fd;
};

/* In simgpu_revoke.flags: moved to other pages once importers let go, and theirs again */
#define SIMGPU_MOVE		(1 << 0)

/**
 * struct simgpu_revoke - takes a dma-buf of the GPU's memory back from its importers
 * @fd: the dma-buf
 * @timeout_ms: how long importers may keep their mappings
 * @mappings: out: how many are left
 * @flags: SIMGPU_MOVE
 */
struct simgpu_revoke {
	__s32 fd;
	__u32 timeout_ms;
	__u32 mappings;
	__u32 flags;
};

/**
 * struct simgpu_busy - makes a dma-buf look as if the GPU wrote to it
 * @fd: the dma-buf
 * @busy: from now on, or not any more
 */
struct simgpu_busy {
	__s32 fd;
	__u32 busy;
};

/**
 * struct simgpu_counts - what is in use, to find what was not given back
 * @pages: of the aperture
 * @pins: by nvidia_p2p_get_pages and its persistent form
 * @mappings: by nvidia_p2p_dma_map_pages
 * @callbacks: made since the module was loaded
 */
struct simgpu_counts {
	__u32 pages;
	__u32 pins;
	__u32 mappings;
	__u32 callbacks;
};

#define SIMGPU_IOC_ALLOC	_IOWR('G', 0, struct simgpu_memory)
#define SIMGPU_IOC_FREE		_IOW('G', 1, struct simgpu_memory)
#define SIMGPU_IOC_EXPORT	_IOWR('G', 2, struct simgpu_export)
#define SIMGPU_IOC_REVOKE	_IOWR('G', 3, struct simgpu_revoke)
#define SIMGPU_IOC_COUNTS	_IOR('G', 4, struct simgpu_counts)
#define SIMGPU_IOC_BUSY		_IOW('G', 5, struct simgpu_busy)

#endif /* SIMGPU_UAPI_H */
