/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * Interface of the peerdma driver: /dev/picoevb, and /dev/picoevb1, picoevb2, ... for more boards.
 *
 * Two generations of requests share one node.
 *
 * Numbers 0 to 6 are those of NVIDIA's driver for the PicoEVB board, with its codes, layouts and
 * meaning, so that programs written for it run as they are: peerdma_picoevb.h.
 *
 * Numbers from 0x20 on are our own. Their structures grow: @size comes first and holds the size
 * that the program was compiled with. The driver reads members that the program does not know as
 * 0 and does not write them. A program newer than the driver gets -E2BIG if it sets a member that
 * the driver does not know. Flags that are not defined must be 0.
 *
 * What an errno means, for every request:
 *
 *  ENOTTY      the driver does not know this request
 *  E2BIG       the program is newer than the driver and asks for what that does not have
 *  EINVAL      a flag, range, alignment or handle is wrong, or a range wraps around, also in whole
 *              pages; source and destination overlap
 *  EFAULT      a pointer is not readable or writable memory of this process, up to its end
 *  ENOMEM      out of memory, over the limit of locked memory (ulimit -l), or over that of host
 *              memory pinned by a user
 *  EAGAIN      too many jobs outstanding, of the file descriptor or of the user: read() their
 *              completions first; or read() without waiting when nothing has completed
 *  EINTR       the process was killed while it waited, and the transfer was stopped; or a signal
 *              came while a transfer waited for others who use its dma-buf, and it was not started
 *  ENOENT      no job of this number is outstanding; no such launch queue or slot, or it has ended
 *  EBADF       no such file is open, of a dma-buf to be pinned or an eventfd to be signalled
 *  EACCES      the node was opened for reading only, which is enough for CARD_INFO, GET_INFO, QUERY
 *              and MAP_INFO; or the card RAM, or the user stream, is another open file's own
 *  ENOSPC      there is not so much card RAM to be had, or too many open files have some; no slot
 *              for jobs of launch queues is left
 *  EOPNOTSUPP  this board, GPU or provider module does not have what was asked for
 *  EBUSY       the board is suspended or being reset, or a job that waits for data of the user
 *              stream, or a ring, keeps a channel, or one for a dma-buf would wait behind such a
 *              job, or all launch queues are in use: try again; or the open file has its context
 *  EIO         the board reported an error, or was reset during the transfer
 *  ETIMEDOUT   the transfer stood still, or took far too long, and was stopped; or others did not
 *              finish with its dma-buf, and it was not started
 *  ECANCELED   the job was cancelled, or its memory was unpinned before it started
 *  ESTALE      the memory was freed or moved by its owner; or the generation is an old one
 *  ENODEV      the board is gone
 *  EPERM       not permitted: resetting the board needs CAP_SYS_ADMIN
 *
 * PEERDMA_IOC_GET_INFO has the last error of a file descriptor in words.
 *
 * A transfer of length 0 succeeds and moves nothing. Handles are never 0.
 */
#ifndef PEERDMA_UAPI_H
#define PEERDMA_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "peerdma_picoevb.h"

/* Version of this interface: major in [31:16], minor in [15:0]; a minor only adds. */
#define PEERDMA_UAPI_VERSION		0x00010000

#define PEERDMA_IOC_GET_INFO		_IO(PEERDMA_IOC_MAGIC, 0x20)
#define PEERDMA_IOC_PIN_DMABUF		_IO(PEERDMA_IOC_MAGIC, 0x21)
#define PEERDMA_IOC_PIN_PAGES		_IO(PEERDMA_IOC_MAGIC, 0x22)
#define PEERDMA_IOC_SUBMIT		_IO(PEERDMA_IOC_MAGIC, 0x23)
#define PEERDMA_IOC_CANCEL		_IO(PEERDMA_IOC_MAGIC, 0x24)
#define PEERDMA_IOC_QUERY		_IO(PEERDMA_IOC_MAGIC, 0x25)
#define PEERDMA_IOC_MAP_INFO		_IO(PEERDMA_IOC_MAGIC, 0x26)
#define PEERDMA_IOC_RESET		_IO(PEERDMA_IOC_MAGIC, 0x27)
#define PEERDMA_IOC_USER_REGISTER	_IO(PEERDMA_IOC_MAGIC, 0x28)
#define PEERDMA_IOC_SUBMIT_BATCH	_IO(PEERDMA_IOC_MAGIC, 0x29)
#define PEERDMA_IOC_SET_CONTEXT		_IO(PEERDMA_IOC_MAGIC, 0x2a)
#define PEERDMA_IOC_START_RING		_IO(PEERDMA_IOC_MAGIC, 0x2b)
#define PEERDMA_IOC_RELEASE_FRAMES	_IO(PEERDMA_IOC_MAGIC, 0x2c)
#define PEERDMA_IOC_EXPORT_DMABUF	_IO(PEERDMA_IOC_MAGIC, 0x2d)
#define PEERDMA_IOC_READ_CLOCK		_IO(PEERDMA_IOC_MAGIC, 0x2e)
#define PEERDMA_IOC_CREATE_QUEUE	_IO(PEERDMA_IOC_MAGIC, 0x30)
#define PEERDMA_IOC_DESTROY_QUEUE	_IO(PEERDMA_IOC_MAGIC, 0x31)
#define PEERDMA_IOC_RESUME_QUEUE	_IO(PEERDMA_IOC_MAGIC, 0x32)
#define PEERDMA_IOC_PREPARE		_IO(PEERDMA_IOC_MAGIC, 0x33)
#define PEERDMA_IOC_UNPREPARE		_IO(PEERDMA_IOC_MAGIC, 0x34)
#define PEERDMA_IOC_QUERY_QUEUE		_IO(PEERDMA_IOC_MAGIC, 0x35)

/**
 * enum peerdma_interrupts - how the board interrupts
 * @PEERDMA_INTX: a shared line
 * @PEERDMA_MSI: one or more messages
 * @PEERDMA_MSIX: a message for each channel
 */
enum peerdma_interrupts {
	PEERDMA_INTX = 0,
	PEERDMA_MSI = 1,
	PEERDMA_MSIX = 2,
};

/**
 * enum peerdma_board_state - whether the board takes jobs
 * @PEERDMA_BOARD_LIVE: yes
 * @PEERDMA_BOARD_FROZEN: not now: it is suspended or being reset
 * @PEERDMA_BOARD_DEAD: never again: it is gone or could not be reset
 */
enum peerdma_board_state {
	PEERDMA_BOARD_LIVE = 0,
	PEERDMA_BOARD_FROZEN = 1,
	PEERDMA_BOARD_DEAD = 2,
};

/* In peerdma_info.features: a copy is one full-duplex pass through the board's stream */
#define PEERDMA_FEATURE_STREAM_COPY	(1 << 0)
/* ... the mailbox page can be mapped */
#define PEERDMA_FEATURE_MAILBOX		(1 << 1)
/* ... an IOMMU translates the board's addresses */
#define PEERDMA_FEATURE_IOMMU		(1 << 2)
/* ... dma-bufs can be pinned */
#define PEERDMA_FEATURE_DMABUF		(1 << 3)
/* ... a provider of GPU memory by CUDA pointer is loaded */
#define PEERDMA_FEATURE_CUDA		(1 << 4)
/* ... there are user blocks, and the driver knows PEERDMA_OP_PROCESS and PEERDMA_IOC_START_RING */
#define PEERDMA_FEATURE_STREAMS		(1 << 5)
/* ... the board has a cycle counter, and the driver knows PEERDMA_IOC_READ_CLOCK */
#define PEERDMA_FEATURE_CLOCK		(1 << 6)
/* ... its launch queues take packets, and the driver knows PEERDMA_PREPARE_RECEIVE */
#define PEERDMA_FEATURE_RECEIVE		(1 << 7)
/* ... it has launch queues, and the driver knows PEERDMA_PREPARE_OVERLAP */
#define PEERDMA_FEATURE_OVERLAP		(1 << 8)

/**
 * struct peerdma_info - PEERDMA_IOC_GET_INFO: what is known of driver, board and file descriptor
 * @size: in: sizeof(struct peerdma_info)
 * @flags: in: 0
 * @uapi_version: PEERDMA_UAPI_VERSION of the driver
 * @board_version: version of the board's register map, major in [31:16]; 0 for plain XDMA
 * @capabilities: of the board's extension block; 0 for plain XDMA
 * @features: PEERDMA_FEATURE_*
 * @index: number of the board
 * @state: enum peerdma_board_state
 * @vendor: PCI vendor
 * @device: PCI device
 * @subsystem_vendor: PCI subsystem vendor
 * @subsystem_device: PCI subsystem
 * @interrupts: enum peerdma_interrupts
 * @vectors: interrupt vectors in use
 * @h2c_channels: channels from memory to card
 * @c2h_channels: channels from card to memory
 * @link_speed: PCIe generation of the link; this and the next three are 0 on a board that is gone
 * @link_width: its lanes
 * @max_payload: bytes
 * @max_read_request: bytes
 * @card_ram_size: bytes that transfers may use
 * @staging_size: bytes of card RAM that copies go through; 0 if they need none. They are behind
 *	@card_ram_size, but on plain XDMA (@board_version 0) the last of it: there copies overwrite
 *	what programs have in them
 * @stream_window: card address of the user stream; 0 if there is none
 * @clock_khz: frequency of the board's engine; 0 if it does not say
 * @time_scale: how much slower than real time the board runs; 1 is hardware
 * @generation: counts resets and resumes: card RAM does not outlive them
 * @last_errno: errno of @last_error, 0 if there was none
 * @aperture_size: largest BAR of the GPUs in this machine: what is pinned of one has to fit into
 *	it; 0 if there is none
 * @pinned_bytes: memory pinned for this board, by all processes
 * @jobs: transfers that ended
 * @failures: ... of these, with an error
 * @timeouts: transfers that stood still, or took far too long
 * @lost_interrupts: transfers that ended without the interrupt that says so
 * @bus_id: PCI address, "0000:01:00.0"
 * @providers: sources of memory that are loaded, by name, separated by spaces
 * @last_error: what the last failing request of this file descriptor asked for, what was found
 *	and what to do
 * @h2c_waits_for: enum peerdma_waits_for of the board's register map: why this file descriptor's
 *	channel from memory to card does not move; 0: it moves, has no transfer, or the board does
 *	not tell
 * @c2h_waits_for: ... why that from card to memory does not
 * @user_block: name of the user blocks: four characters, the first one in [7:0]; 0: there are none
 * @user_ratio: bytes that they take in [7:0], and put out for these in [15:8]
 */
struct peerdma_info {
	__u32 size;
	__u32 flags;
	__u32 uapi_version;
	__u32 board_version;
	__u32 capabilities;
	__u32 features;
	__u32 index;
	__u32 state;
	__u16 vendor;
	__u16 device;
	__u16 subsystem_vendor;
	__u16 subsystem_device;
	__u32 interrupts;
	__u32 vectors;
	__u32 h2c_channels;
	__u32 c2h_channels;
	__u32 link_speed;
	__u32 link_width;
	__u32 max_payload;
	__u32 max_read_request;
	__aligned_u64 card_ram_size;
	__aligned_u64 staging_size;
	__aligned_u64 stream_window;
	__u32 clock_khz;
	__u32 time_scale;
	__u32 generation;
	__u32 last_errno;
	__aligned_u64 aperture_size;
	__aligned_u64 pinned_bytes;
	__aligned_u64 jobs;
	__aligned_u64 failures;
	__aligned_u64 timeouts;
	__aligned_u64 lost_interrupts;
	__u8 bus_id[16];
	__u8 providers[64];
	__u8 last_error[256];
	__u32 h2c_waits_for;
	__u32 c2h_waits_for;
	__u32 user_block;
	__u32 user_ratio;
};

/* What the board may do with pinned memory */
#define PEERDMA_ACCESS_READ		(1 << 0)
#define PEERDMA_ACCESS_WRITE		(1 << 1)

/* Fail with -EOPNOTSUPP rather than pin where the board does not reach the GPU directly */
#define PEERDMA_PIN_REQUIRE_PEER	(1 << 0)

/**
 * enum peerdma_placement - where pinned memory is
 * @PEERDMA_PLACEMENT_HOST: in host memory
 * @PEERDMA_PLACEMENT_PEER: in another device, whose driver gave it: transfers go there directly
 * @PEERDMA_PLACEMENT_MIXED: in several of these
 * @PEERDMA_PLACEMENT_OTHER: in neither, as a carve-out of a Jetson or what firmware took for a GPU;
 *	or in a device that is not whose driver gave it
 */
enum peerdma_placement {
	PEERDMA_PLACEMENT_HOST = 0,
	PEERDMA_PLACEMENT_PEER = 1,
	PEERDMA_PLACEMENT_MIXED = 2,
	PEERDMA_PLACEMENT_OTHER = 3,
};

/**
 * struct peerdma_pin_dmabuf - PEERDMA_IOC_PIN_DMABUF: pins a dma-buf
 * @size: in: sizeof(struct peerdma_pin_dmabuf)
 * @flags: in: PEERDMA_PIN_*
 * @fd: in: file descriptor of the dma-buf; may be closed afterwards
 * @access: in: PEERDMA_ACCESS_*
 * @offset: in: first byte
 * @length: in: bytes; 0: up to the end
 * @handle: out: see struct peerdma_pin_cuda
 * @placement: out: enum peerdma_placement
 */
struct peerdma_pin_dmabuf {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 access;
	__aligned_u64 offset;
	__aligned_u64 length;
	__u32 handle;
	__u32 placement;
};

/**
 * struct peerdma_pin_pages - PEERDMA_IOC_PIN_PAGES: pins host memory of this process
 * @size: in: sizeof(struct peerdma_pin_pages)
 * @flags: in: 0
 * @address: in: pointer; any alignment
 * @length: in: bytes
 * @access: in: PEERDMA_ACCESS_*
 * @handle: out: see struct peerdma_pin_cuda
 *
 * Counts as locked memory (ulimit -l).
 */
struct peerdma_pin_pages {
	__u32 size;
	__u32 flags;
	__aligned_u64 address;
	__aligned_u64 length;
	__u32 access;
	__u32 handle;
};

/**
 * enum peerdma_op - what a job does
 * @PEERDMA_OP_H2C: copies memory to the card
 * @PEERDMA_OP_C2H: copies from the card to memory
 * @PEERDMA_OP_COPY: copies memory to memory through the board
 * @PEERDMA_OP_PROCESS: sends memory through the user block, and receives what that makes of it
 */
enum peerdma_op {
	PEERDMA_OP_H2C = 0,
	PEERDMA_OP_C2H = 1,
	PEERDMA_OP_COPY = 2,
	PEERDMA_OP_PROCESS = 3,
};

/* Signal an eventfd when the job has ended, however, after its event can be read */
#define PEERDMA_SUBMIT_EVENTFD		(1 << 0)

/**
 * struct peerdma_submit - PEERDMA_IOC_SUBMIT: queues a job and returns
 * @size: in: sizeof(struct peerdma_submit)
 * @flags: in: PEERDMA_SUBMIT_*
 * @op: in: enum peerdma_op
 * @generation: in: fail with -ESTALE unless this is the board's; 0: do not check
 * @src_handle: in: source; 0 for PEERDMA_OP_C2H
 * @dst_handle: in: destination; 0 for PEERDMA_OP_H2C
 * @src_offset: in: byte within the source, or card address
 * @dst_offset: in: byte within the destination, or card address
 * @length: in: bytes
 * @user_data: in: comes back in the event
 * @job: out: number of the job, never 0
 * @eventfd: in: with PEERDMA_SUBMIT_EVENTFD, file descriptor of an eventfd, which may be closed
 *	afterwards; else 0
 * @queue: in: 0, kept for launch queues
 * @dst_length: in: for PEERDMA_OP_PROCESS, bytes of the destination: as many as the user block
 *	makes of @length, by @user_ratio of struct peerdma_info; else 0
 *
 * For dma-bufs, waits up to 10 s for what others have announced there. From then on the job is
 * announced itself, until it ends, unless it receives from the stream window.
 *
 * The job ends with one struct peerdma_event. Until then its memory is the board's: what a program
 * writes to it meanwhile is lost on some machines. PEERDMA_OP_C2H may take a card address in the
 * stream window: it then receives what the board's user logic produces.
 */
struct peerdma_submit {
	__u32 size;
	__u32 flags;
	__u32 op;
	__u32 generation;
	__u32 src_handle;
	__u32 dst_handle;
	__aligned_u64 src_offset;
	__aligned_u64 dst_offset;
	__aligned_u64 length;
	__aligned_u64 user_data;
	__aligned_u64 job;
	__s32 eventfd;
	__u32 queue;
	__aligned_u64 dst_length;
};

/**
 * struct peerdma_submit_batch - PEERDMA_IOC_SUBMIT_BATCH: queues jobs, one after the other
 * @size: in: sizeof(struct peerdma_submit_batch)
 * @flags: in: 0
 * @submits: in: pointer to the first struct peerdma_submit; each is followed by the next one, @size
 *	bytes of its own further on
 * @count: in: how many there are, at most 256
 * @taken: out: how many jobs were queued, from the first one on
 * @error: out: why the next one was not, a negative errno; 0 if all were queued
 * @reserved: in: 0
 *
 * The same as PEERDMA_IOC_SUBMIT for each of them, up to the first one that fails. That one and
 * those behind it are as if they had not been there, and what @job of theirs is then means nothing.
 * The jobs before it go on.
 */
struct peerdma_submit_batch {
	__u32 size;
	__u32 flags;
	__aligned_u64 submits;
	__u32 count;
	__u32 taken;
	__s32 error;
	__u32 reserved;
};

/**
 * enum peerdma_reason - why a job did not succeed
 * @PEERDMA_REASON_NONE: it did
 * @PEERDMA_REASON_ENGINE: the board reported an error
 * @PEERDMA_REASON_TIMEOUT: it stood still, or took far too long
 * @PEERDMA_REASON_CANCELLED: it was cancelled, or the process was killed
 * @PEERDMA_REASON_UNPINNED: its memory was unpinned before it started, or while a ring ran
 * @PEERDMA_REASON_REVOKED: its memory was freed or moved by its owner
 * @PEERDMA_REASON_RESET: the board was reset or suspended
 * @PEERDMA_REASON_LOST: the board is gone
 * @PEERDMA_REASON_BUSY: a job that waits for data of the user stream, or a ring, keeps a channel
 * @PEERDMA_REASON_PARTITION: its card RAM, or the user stream, has become another open file's own
 * @PEERDMA_REASON_FRAMES: the job goes on: it has a ring, and frames of it have been filled
 */
enum peerdma_reason {
	PEERDMA_REASON_NONE = 0,
	PEERDMA_REASON_ENGINE = 1,
	PEERDMA_REASON_TIMEOUT = 2,
	PEERDMA_REASON_CANCELLED = 3,
	PEERDMA_REASON_UNPINNED = 4,
	PEERDMA_REASON_REVOKED = 5,
	PEERDMA_REASON_RESET = 6,
	PEERDMA_REASON_LOST = 7,
	PEERDMA_REASON_BUSY = 8,
	PEERDMA_REASON_PARTITION = 9,
	PEERDMA_REASON_FRAMES = 10,
};

/**
 * struct peerdma_event - what read() returns for each job that ended, in that order; and for rings
 * @size: bytes of this record: the next one, if any, follows it
 * @result: 0, or a negative errno
 * @job: number of the job
 * @user_data: of its struct peerdma_submit
 * @bytes: how many reached the destination; all of them if @result is 0. Of a ring: how many frames
 *	have been filled since its start
 * @time_ns: how long it took, without waiting for other jobs
 * @cycles: clock cycles that the board's channels were busy
 * @reason: enum peerdma_reason
 * @status: status register of the channel that failed, else 0
 * @address: where the board met the error, if it says and that has an address; 0 for a bus address
 *	if who opened the node has no CAP_SYS_RAWIO
 *
 * poll() reports POLLIN when there is one. When the board is gone read() still waits for the events
 * of all jobs, and is ENODEV when there are no more; POLLHUP comes as soon as it does not wait.
 */
struct peerdma_event {
	__u32 size;
	__s32 result;
	__aligned_u64 job;
	__aligned_u64 user_data;
	__aligned_u64 bytes;
	__aligned_u64 time_ns;
	__aligned_u64 cycles;
	__u32 reason;
	__u32 status;
	__aligned_u64 address;
};

/**
 * struct peerdma_cancel - PEERDMA_IOC_CANCEL: stops a job
 * @size: in: sizeof(struct peerdma_cancel)
 * @flags: in: 0
 * @job: in: number of a job of this file descriptor
 *
 * Returns at once. The job's event says how it ended: it may still have succeeded.
 */
struct peerdma_cancel {
	__u32 size;
	__u32 flags;
	__aligned_u64 job;
};

/**
 * enum peerdma_surface_state - what can be done with pinned memory
 * @PEERDMA_SURFACE_LIVE: everything
 * @PEERDMA_SURFACE_REVOKED: its owner freed or moved it: unpin it
 * @PEERDMA_SURFACE_LOST: the board is gone: unpin it
 */
enum peerdma_surface_state {
	PEERDMA_SURFACE_LIVE = 0,
	PEERDMA_SURFACE_REVOKED = 1,
	PEERDMA_SURFACE_LOST = 2,
};

/* In peerdma_query.features: stays pinned when its owner frees it or exits */
#define PEERDMA_SURFACE_SURVIVES_FREE	(1 << 0)
/* ... can be mapped into a process through PEERDMA_IOC_MAP_INFO */
#define PEERDMA_SURFACE_CPU_MAP		(1 << 1)

/**
 * struct peerdma_query - PEERDMA_IOC_QUERY: what is known of pinned memory
 * @size: in: sizeof(struct peerdma_query)
 * @flags: in: 0
 * @handle: in: names the memory
 * @state: out: enum peerdma_surface_state
 * @placement: out: enum peerdma_placement
 * @features: out: PEERDMA_SURFACE_*
 * @length: out: bytes
 * @segments: out: contiguous pieces on the bus
 * @jobs: out: jobs that use it now
 * @aperture_size: out: bytes of the BAR that it is in; 0 if it is in host memory
 * @provider: out: where it comes from, by name
 * @peer: out: PCI address of the device that it is in, "0000:02:00.0"; empty if it is in host
 *	memory
 */
struct peerdma_query {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 state;
	__u32 placement;
	__u32 features;
	__aligned_u64 length;
	__u32 segments;
	__u32 jobs;
	__aligned_u64 aperture_size;
	__u8 provider[16];
	__u8 peer[16];
};

/* Of the board's mailbox page, not of pinned memory */
#define PEERDMA_MAP_MAILBOX		(1 << 0)

/**
 * enum peerdma_cache - how the CPU sees a mapping
 * @PEERDMA_CACHE_UNCACHED: not cached
 * @PEERDMA_CACHE_WRITE_COMBINED: not cached, writes are gathered
 * @PEERDMA_CACHE_CACHED: cached and coherent
 */
enum peerdma_cache {
	PEERDMA_CACHE_UNCACHED = 0,
	PEERDMA_CACHE_WRITE_COMBINED = 1,
	PEERDMA_CACHE_CACHED = 2,
};

/**
 * struct peerdma_map_info - PEERDMA_IOC_MAP_INFO: how to mmap() what only devices have
 * @size: in: sizeof(struct peerdma_map_info)
 * @flags: in: PEERDMA_MAP_*
 * @handle: in: names the memory; 0 with PEERDMA_MAP_MAILBOX
 * @cache: out: enum peerdma_cache
 * @offset: out: offset for mmap() of this file descriptor
 * @length: out: bytes from there on, whole pages
 * @start: out: where in these the memory begins
 *
 * The mapping must be shared and not executable; it is not inherited by fork(). Access after the
 * memory was unpinned or revoked, or while the board is suspended or gone, raises SIGBUS.
 */
struct peerdma_map_info {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 cache;
	__aligned_u64 offset;
	__aligned_u64 length;
	__aligned_u64 start;
};

/* The page of a launch queue's doorbell, not the mailbox page */
#define PEERDMA_EXPORT_DOORBELL		(1 << 0)

/**
 * struct peerdma_export_dmabuf - PEERDMA_IOC_EXPORT_DMABUF: a page of the board as a dma-buf
 * @size: in: sizeof(struct peerdma_export_dmabuf)
 * @flags: in: PEERDMA_EXPORT_*
 * @queue: in: with PEERDMA_EXPORT_DOORBELL, number of the launch queue; else 0
 * @fd: out: file descriptor of the dma-buf, one page long, closed on exec
 * @reserved: in: 0
 *
 * For drivers of GPUs and other devices that import dma-bufs: theirs has to take memory of peers
 * that has no pages, and to unmap it when it is told to (a dynamic importer with allow_peer2peer).
 * The dma-buf of a doorbell ends with its queue, both end with the board; importers are told then,
 * and around a reset or a suspend, after which they may map the mailbox page again. A doorbell
 * goes to files that could mmap() it. This process cannot map the dma-buf: see MAP_INFO.
 */
struct peerdma_export_dmabuf {
	__u32 size;
	__u32 flags;
	__aligned_u64 queue;
	__s32 fd;
	__u32 reserved;
};

/**
 * struct peerdma_reset - PEERDMA_IOC_RESET: stops all jobs of the board and resets its engine
 * @size: in: sizeof(struct peerdma_reset)
 * @flags: in: 0
 *
 * Pinned memory stays pinned; the generation changes. Needs CAP_SYS_ADMIN.
 */
struct peerdma_reset {
	__u32 size;
	__u32 flags;
};

/* Write the register; otherwise it is read */
#define PEERDMA_REGISTER_WRITE		(1 << 0)

/**
 * struct peerdma_user_register - PEERDMA_IOC_USER_REGISTER: a register of a user block
 * @size: in: sizeof(struct peerdma_user_register)
 * @flags: in: PEERDMA_REGISTER_*
 * @block: in: number of the user block: that of its channels
 * @offset: in: byte in its registers, a multiple of 4 below 0x100
 * @value: in: what to write; out: what was read
 *
 * Where a block has no register, 0 is read and writes are lost. All open files share the blocks.
 */
struct peerdma_user_register {
	__u32 size;
	__u32 flags;
	__u32 block;
	__u32 offset;
	__u32 value;
};

/**
 * struct peerdma_clock - PEERDMA_IOC_READ_CLOCK: the board's cycle counter, and when it was read
 * @size: in: sizeof(struct peerdma_clock)
 * @flags: in: 0
 * @before_ns: out: CLOCK_MONOTONIC before that
 * @cycles: out: the counter, as in records of frames; @clock_khz of struct peerdma_info is its rate
 * @after_ns: out: CLOCK_MONOTONIC afterwards
 */
struct peerdma_clock {
	__u32 size;
	__u32 flags;
	__aligned_u64 before_ns;
	__aligned_u64 cycles;
	__aligned_u64 after_ns;
};

/**
 * struct peerdma_context - PEERDMA_IOC_SET_CONTEXT: what an open file has for itself
 * @size: in: sizeof(struct peerdma_context)
 * @flags: in: 0
 * @channel: in: number of the channels from and to memory that its jobs use, less than both counts
 *	of struct peerdma_info; without this request 0
 * @reserved: in: 0, kept for launch queues
 * @ram_length: in: bytes of card RAM, a multiple of 4096; 0: none
 * @ram_address: out: card address of the first one
 *
 * Once for each open file, before its first transfer. From then on until the file is closed, jobs
 * of other files into its card RAM are refused with -EACCES, and those that are queued end with
 * that; the request waits for those that run. What others have left in it is still there. At least
 * the lower half of card RAM remains everybody's, and CARD_INFO says how much does.
 */
struct peerdma_context {
	__u32 size;
	__u32 flags;
	__u32 channel;
	__u32 reserved;
	__aligned_u64 ram_length;
	__aligned_u64 ram_address;
};

/**
 * struct peerdma_frame - memory of a ring: where one frame goes
 * @handle: pinned memory that the board may write
 * @reserved: 0
 * @offset: first byte in it
 * @length: bytes of the frame, not 0: as long as the source makes them
 */
struct peerdma_frame {
	__u32 handle;
	__u32 reserved;
	__aligned_u64 offset;
	__aligned_u64 length;
};

/* First discard what is in the user stream: the first frame is a whole one, and has number 0 */
#define PEERDMA_RING_FRESH		(1 << 0)

/**
 * struct peerdma_start_ring - PEERDMA_IOC_START_RING: a job that fills frames from the user stream
 * @size: in: sizeof(struct peerdma_start_ring)
 * @flags: in: PEERDMA_RING_*
 * @frames: in: pointer to the first struct peerdma_frame; the others follow it
 * @count: in: how many there are, 1 to 256
 * @records_handle: in: pinned memory for records that the board makes of frames, behind one another
 *	in the order of @frames; 0: none. Needs PEERDMA_RING_FRESH and a board that makes records
 * @records_offset: in: first byte in it, a multiple of 32; 0 without records
 * @user_data: in: comes back in events
 * @job: out: number of the job, never 0
 *
 * The board fills the frames in their order, and then, round and round, those that were given back
 * with PEERDMA_IOC_RELEASE_FRAMES. At the first one that was not it waits; what its source does
 * then is up to the source. There is an event when frames have been filled, with
 * PEERDMA_REASON_FRAMES, result 0 and how many since the start; of those that are not read at once,
 * one with the newest count.
 *
 * It goes on until it is cancelled, the file is closed, some of its memory is unpinned or taken
 * away, the board is reset or suspended, or something fails, and then ends with an event as all
 * jobs do. While it runs, other jobs of the channel from card to memory fail with -EBUSY. Records
 * are on from its start to its end. All descriptors together, one for each piece of a frame that is
 * contiguous on the bus and one for each record, are at most 2048.
 */
struct peerdma_start_ring {
	__u32 size;
	__u32 flags;
	__aligned_u64 frames;
	__u32 count;
	__u32 records_handle;
	__aligned_u64 records_offset;
	__aligned_u64 user_data;
	__aligned_u64 job;
};

/**
 * struct peerdma_release_frames - PEERDMA_IOC_RELEASE_FRAMES: gives frames of a ring back
 * @size: in: sizeof(struct peerdma_release_frames)
 * @flags: in: 0
 * @job: in: number of the job
 * @count: in: so many frames since its start may be written over; at most as many as an event has
 *	told to be filled. If it is not more than before, nothing happens
 */
struct peerdma_release_frames {
	__u32 size;
	__u32 flags;
	__aligned_u64 job;
	__aligned_u64 count;
};

/* In the state word of a launch queue: why it has ended, enum peerdma_reason; 0: it has not */
#define PEERDMA_QUEUE_REASON		0xff
/* ... status of the first ticket that failed since RESUME */
#define PEERDMA_QUEUE_STATUS		0xff00
/* ... why the board takes no more tickets, enum peerdma_launch_end of its register map, or 0 */
#define PEERDMA_QUEUE_END		0xff0000

/**
 * struct peerdma_create_queue - PEERDMA_IOC_CREATE_QUEUE: a queue by which a GPU starts jobs itself
 * @size: in: sizeof(struct peerdma_create_queue)
 * @flags: in: 0
 * @depth: in: places of both rings, a power of two from 8 to 256
 * @handle: in: memory of this process, pinned with PEERDMA_IOC_PIN_PAGES for the board to read and
 *	write. What follows is in it
 * @entries: in: first byte of the ring of entries, 8 bytes each, at a multiple of its length
 * @records: in: first byte of the ring of records, 8 bytes each, at a multiple of its length
 * @shadow: in: byte of the shadow tail, 4 bytes, at a multiple of 4
 * @word: in: byte of the state word, 4 bytes, at a multiple of 4, PEERDMA_QUEUE_*
 * @user_data: in: comes back in the event
 * @queue: out: number of the queue, a job, never 0
 * @generation: out: in [15:0], that of its doorbells
 * @first: out: first ticket
 * @reserved: in: 0
 * @doorbell: out: offset for mmap() of the doorbell's page, 4096 bytes; 0: this open file gets
 *	none, or pages of this kernel are larger
 *
 * docs/queue.md says what is in the rings, and what a GPU does. The request fills them, and clears
 * both words. The queue is a job: it goes on until it is destroyed or cancelled, the file is
 * closed, its memory is unpinned, memory of a job in its slots is taken away, the board is reset or
 * suspended, or its tail or entries are wrong, and then ends with an event as all jobs do. At its
 * end the state word says why, then each entry without a record gets one (FLUSHED: not started;
 * ABORTED: started, or not), and then all done words are 1. Who submits a ticket looks at the state
 * word after that, with a fence between: if the queue has ended, nobody else completes the ticket.
 *
 * The state word follows the board four times a second. An ended queue does not come back: create
 * another one.
 *
 * A doorbell is stored to the first 4 bytes of the page, or the shadow tail, or both. Files that
 * were opened with CAP_SYS_RAWIO get a page, and others if the module's parameter doorbell_pages is
 * on. When the queue ends, the page is removed from all processes before its event can be read:
 * access raises SIGBUS from then on.
 */
struct peerdma_create_queue {
	__u32 size;
	__u32 flags;
	__u32 depth;
	__u32 handle;
	__aligned_u64 entries;
	__aligned_u64 records;
	__aligned_u64 shadow;
	__aligned_u64 word;
	__aligned_u64 user_data;
	__aligned_u64 queue;
	__u32 generation;
	__u32 first;
	__aligned_u64 reserved;
	__aligned_u64 doorbell;
};

/**
 * struct peerdma_destroy_queue - PEERDMA_IOC_DESTROY_QUEUE: ends a launch queue, and waits for that
 * @size: in: sizeof(struct peerdma_destroy_queue)
 * @flags: in: 0
 * @queue: in: its number; it may have ended before, as long as its event has not been read
 *
 * There is no event any more.
 */
struct peerdma_destroy_queue {
	__u32 size;
	__u32 flags;
	__aligned_u64 queue;
};

/**
 * struct peerdma_resume_queue - PEERDMA_IOC_RESUME_QUEUE: starts tickets again after a failed one
 * @size: in: sizeof(struct peerdma_resume_queue)
 * @flags: in: 0
 * @queue: in: its number
 */
struct peerdma_resume_queue {
	__u32 size;
	__u32 flags;
	__aligned_u64 queue;
};

/* The board writes 1 to a done word, behind the record */
#define PEERDMA_PREPARE_DONE		(1 << 0)
/* A ticket takes the next packet of the user stream: a frame, and the record of that */
#define PEERDMA_PREPARE_RECEIVE		(1 << 1)
/* A copy may begin before the one ahead of it has ended, if both have this flag */
#define PEERDMA_PREPARE_OVERLAP		(1 << 2)

/**
 * struct peerdma_prepare - PEERDMA_IOC_PREPARE: a job that a GPU starts, by the number of its slot
 * @size: in: sizeof(struct peerdma_prepare)
 * @flags: in: PEERDMA_PREPARE_*
 * @queue: in: number of the launch queue
 * @op: in: enum peerdma_op, but not PEERDMA_OP_PROCESS
 * @src_handle: in: source; 0 for PEERDMA_OP_C2H
 * @dst_handle: in: destination; 0 for PEERDMA_OP_H2C
 * @slot: out: its slot, for entries
 * @src_offset: in: byte within the source, or card address, or the stream window
 * @dst_offset: in: byte within the destination, or card address, or the stream window
 * @length: in: bytes, at most 16 MiB
 * @done: in: with PEERDMA_PREPARE_DONE, byte of the done word in the memory of the queue, at a
 *	multiple of 4; else 0
 * @record_handle: in: with PEERDMA_PREPARE_RECEIVE, pinned memory for the frame's record; else 0
 * @reserved: in: 0
 * @record_offset: in: first byte in it, at a multiple of 32; 0 without a record
 *
 * Waits for what others have announced in dma-bufs, but announces nothing: a GPU starts the job
 * whenever it likes. A destination in a GPU is read as well, before the record is written. Copies
 * are for boards whose copies go through the user stream; the stream window is for all others that
 * have one. To there goes what the user block is to take, from there comes what it has made: a
 * ticket takes as long as that does. As long as a file has such jobs in slots, the user stream of
 * their channel is its own, and PEERDMA_OP_PROCESS and what receives from it are refused to others.
 *
 * PEERDMA_PREPARE_RECEIVE is for PEERDMA_OP_C2H from the stream window: a ticket takes one packet,
 * and waits for it without its channel. Of the @length bytes, a shorter frame leaves the rest as it
 * is; of a longer one they have the first bytes, and the ticket status LONG, which is no failure.
 * The record has a place of its own. If both are in devices, they are in the same one.
 * Frames of the channel have records while it has such jobs. When the first one comes, what is in
 * the user stream is discarded: the first frame is a whole one, and has number 0.
 *
 * PEERDMA_PREPARE_OVERLAP is for PEERDMA_OP_COPY. The caller says that no job of the queue with this
 * flag reads what another one with it writes: that may be read before it is written. A job without
 * it begins when all ahead have ended, and the next one when it has.
 *
 * The slot is taken from the queue when some of its memory is unpinned, or its card RAM becomes
 * another open file's own: from then on its tickets end with status SLOT. Its done word is 1 then.
 */
struct peerdma_prepare {
	__u32 size;
	__u32 flags;
	__aligned_u64 queue;
	__u32 op;
	__u32 src_handle;
	__u32 dst_handle;
	__u32 slot;
	__aligned_u64 src_offset;
	__aligned_u64 dst_offset;
	__aligned_u64 length;
	__aligned_u64 done;
	__u32 record_handle;
	__u32 reserved;
	__aligned_u64 record_offset;
};

/**
 * struct peerdma_unprepare - PEERDMA_IOC_UNPREPARE: takes a job from its slot
 * @size: in: sizeof(struct peerdma_unprepare)
 * @flags: in: 0
 * @queue: in: number of the launch queue
 * @slot: in: the slot
 * @reserved: in: 0
 *
 * Waits for a ticket that is at work with it, for a while: then the queue ends.
 */
struct peerdma_unprepare {
	__u32 size;
	__u32 flags;
	__aligned_u64 queue;
	__u32 slot;
	__u32 reserved;
};

/**
 * struct peerdma_query_queue - PEERDMA_IOC_QUERY_QUEUE: what is known of a launch queue
 * @size: in: sizeof(struct peerdma_query_queue)
 * @flags: in: 0
 * @queue: in: its number; it may have ended, as long as its event has not been read
 * @state: out: what the state word says, as of now
 * @ignored: out: doorbells that were ignored, of all queues of the board; up to 255
 * @slots: out: its slots, a bit for each; a copy has two, and so has what takes packets
 */
struct peerdma_query_queue {
	__u32 size;
	__u32 flags;
	__aligned_u64 queue;
	__u32 state;
	__u32 ignored;
	__aligned_u64 slots;
};

#endif /* PEERDMA_UAPI_H */
