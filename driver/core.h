/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the core module share.
 *
 * Locks, outer to inner. Providers may call us with locks of their own held (NVIDIA's global
 * lock, dma_resv, mmap_lock): those are outside of all of these.
 *
 *  1. board->gate       rwsem. Read: mapping memory for the device. Write: reset, remove, suspend;
 *                       never from a provider's callback.
 *  2. surface->teardown mutex. Taking a mapping away. No provider is called with it that waits
 *                       for a callback of its own.
 *  3. board->faults     rwsem. Read: page faults. Write, for an instant: after a state changed,
 *                       so that no fault that saw the old one is still under way.
 *  4. board->lock       spinlock, interrupts off. Registers, lanes, queues, states. A leaf, but
 *                       for wait queues' own locks.
 *
 * With none of 2 to 4 held: pinning and unpinning, attaching and mapping dma-bufs, user copies,
 * free_irq() and everything that waits for work.
 *
 * The job owns the memory: a surface is unmapped only when no job may touch it, and a job ends
 * only when its lanes are proven idle or the board cannot master the bus.
 */
#ifndef PEERDMA_CORE_H
#define PEERDMA_CORE_H

#include <linux/cdev.h>
#include <linux/completion.h>
#include <linux/device.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat.h"
#include "peerdma_provider.h"
#include "peerdma_regs.h"
#include "peerdma_uapi.h"

#define PEERDMA_NAME		"peerdma"
#define PEERDMA_NODE		"picoevb"
/* For arrays as large as a program asks for: to have no room for them is nothing to log. */
#define PEERDMA_GFP_ARRAY	(GFP_KERNEL_ACCOUNT | __GFP_NOWARN)

/* Descriptors of a chain, and how many contiguous ones the adjacency fields can announce. */
#define PEERDMA_RING		2048
#define PEERDMA_BLOCK		64
/* Jobs of a file that are queued, running or not read yet. */
#define PEERDMA_MAX_JOBS	256
#define PEERDMA_MAX_HANDLE	INT_MAX
/* A channel that is told to stop takes this much of the board's time at most. */
#define PEERDMA_STOP_MS		100
/* How often running lanes are looked at, in jiffies. */
#define PEERDMA_WATCH_INTERVAL	(HZ / 4)

enum { PEERDMA_H2C, PEERDMA_C2H, PEERDMA_LANES };

/**
 * enum peerdma_lane_state - what a lane is doing
 * @LANE_IDLE: nothing; the engine does not touch memory
 * @LANE_BUILDING: descriptors are being written; the engine does not touch memory
 * @LANE_RUNNING: the engine is running
 * @LANE_STOPPING: the engine has been told to stop
 */
enum peerdma_lane_state {
	LANE_IDLE,
	LANE_BUILDING,
	LANE_RUNNING,
	LANE_STOPPING,
};

/**
 * struct peerdma_lane - one DMA channel
 * @board: its board
 * @index: PEERDMA_H2C or PEERDMA_C2H
 * @name: for people
 * @channel: offset of its channel block
 * @sgdma: offset of its SGDMA block
 * @irq_bit: its bit in the IRQ block
 * @ring: descriptors
 * @ring_address: their bus address
 * @state: enum peerdma_lane_state
 * @job: owner, from start to end of the job
 * @bytes: of the chain that runs
 * @count: its descriptors
 * @seen: events of the chain that runs
 * @deadline: of RUNNING: when the chain is late; of STOPPING: when harder means are due
 * @unheard: the watchdog has seen the chain end, but no interrupt
 *
 * Members from @state on are under the board's lock; @ring belongs to who made it BUILDING.
 */
struct peerdma_lane {
	struct peerdma_dev *board;
	u32 index;
	const char *name;
	u32 channel;
	u32 sgdma;
	u32 irq_bit;
	struct peerdma_descriptor *ring;
	dma_addr_t ring_address;
	enum peerdma_lane_state state;
	struct peerdma_job *job;
	u64 bytes;
	u32 count;
	u32 seen;
	unsigned long deadline;
	bool unheard;
};

/**
 * struct peerdma_dev - a board
 * @node: the device of the node; its reference count is ours
 * @cdev: the node
 * @pdev: the PCI function; holds a reference. Bound until peerdma_remove() returns
 * @index: number of the board
 * @user: mapped user BAR
 * @dma: mapped DMA BAR
 * @dma_length: its bytes
 * @card_ram_size: of the card, as found
 * @staging: bytes at its end that copies go through; 0 with a stream
 * @h2c_channels: found
 * @c2h_channels: found
 * @version: of the extension block; 0 if there is none
 * @capabilities: PEERDMA_CAPABILITY_*
 * @stream_window: card address of the stream, 0 if there is none
 * @time_scale: how much slower than real time the board runs
 * @clock_khz: of the engine
 * @vectors: allocated
 * @interrupts: of what kind they are
 * @gate: see above
 * @faults: see above
 * @lock: see above
 * @state: enum peerdma_board_state
 * @generation: counts resets and resumes
 * @lanes: the channels
 * @draining: jobs that run may end, but no new ones start
 * @broken: a lane could not be stopped: nothing starts until the recovery has reset the board
 * @files: open files of the node
 * @ready: those with queued jobs, the next one first
 * @surfaces: all mapped for this board
 * @idle: woken when a lane becomes idle
 * @pump: starts what can be started
 * @stopper: looks after lanes that are stopping
 * @watchdog: looks after lanes that are running
 * @recovery: resets the board
 * @inode: all mappings of all nodes of the board are of this one
 * @next_map: next free mmap() offset
 * @pinned_bytes: see struct peerdma_info, as are the following
 * @jobs: ...
 * @failures: ...
 * @timeouts: ...
 * @lost_interrupts: ...
 *
 * Members from @state to @surfaces, and the counters, are under @lock.
 */
struct peerdma_dev {
	struct device node;
	struct cdev cdev;
	struct pci_dev *pdev;
	int index;
	void __iomem *user;
	void __iomem *dma;
	resource_size_t dma_length;
	u64 card_ram_size;
	u64 staging;
	u32 h2c_channels;
	u32 c2h_channels;
	u32 version;
	u32 capabilities;
	u64 stream_window;
	u32 time_scale;
	u32 clock_khz;
	int vectors;
	enum peerdma_interrupts interrupts;

	struct rw_semaphore gate;
	struct rw_semaphore faults;
	spinlock_t lock;
	enum peerdma_board_state state;
	u32 generation;
	bool draining;
	bool broken;
	struct peerdma_lane lanes[PEERDMA_LANES];
	struct list_head files;
	struct list_head ready;
	struct list_head surfaces;
	wait_queue_head_t idle;
	struct work_struct pump;
	struct delayed_work stopper;
	struct delayed_work watchdog;
	struct work_struct recovery;
	struct inode *inode;
	u64 next_map;

	u64 pinned_bytes;
	u64 jobs;
	u64 failures;
	u64 timeouts;
	u64 lost_interrupts;
};

/**
 * struct peerdma_why - the last error of a file in words
 * @lock: of the others
 * @error: errno, 0 if there was none
 * @text: what was asked, what was found, what to do
 */
struct peerdma_why {
	spinlock_t lock;
	int error;
	char text[sizeof_field(struct peerdma_info, last_error)];
};

/**
 * struct peerdma_file - an open file of the node, and where its jobs' completions go
 * @ref: the open file and each job hold it
 * @board: holds a reference
 * @surfaces: by handle
 * @next_handle: for a cyclic allocation, so that a stale handle is not soon another's
 * @why: last error
 * @on_board: in the board's list of files
 * @on_ready: in the board's ready list while @queue is not empty
 * @queue: jobs that wait
 * @jobs: all that were submitted and not read
 * @job_count: of @jobs
 * @next_job: number of the next one
 * @events: jobs that ended and were not read
 * @wait: woken for @events
 *
 * Members from @on_board on are under the board's lock.
 */
struct peerdma_file {
	struct kref ref;
	struct peerdma_dev *board;
	struct xarray surfaces;
	u32 next_handle;
	struct peerdma_why why;
	struct list_head on_board;
	struct list_head on_ready;
	struct list_head queue;
	struct list_head jobs;
	unsigned int job_count;
	u64 next_job;
	struct list_head events;
	wait_queue_head_t wait;
};

/**
 * struct peerdma_leg - a job's part on one lane
 * @used: the job uses the lane
 * @surface: memory on this side; holds a reference until the job has ended
 * @offset: of the first byte in @surface
 * @card: card address of the first byte
 * @started: bytes given to the engine
 * @done: bytes that the engine has moved
 * @cycles: that the channel was busy
 */
struct peerdma_leg {
	bool used;
	struct peerdma_surface *surface;
	u64 offset;
	u64 card;
	u64 started;
	u64 done;
	u64 cycles;
};

/**
 * enum peerdma_path - what the card side of a job is
 * @PATH_CARD: card RAM, or the stream window for C2H
 * @PATH_STREAM: a copy through the stream: both lanes at once
 * @PATH_STAGED: a copy through the staging area, C2H a chunk behind H2C
 */
enum peerdma_path {
	PATH_CARD,
	PATH_STREAM,
	PATH_STAGED,
};

/**
 * struct peerdma_job - one transfer
 * @ref: the lanes hold one until the end, who waits or reads the event another
 * @file: where completions go; holds a reference
 * @link: in the file's queue, later in its events
 * @on_file: in the file's list of jobs; empty for a job that somebody waits for
 * @reap: ends the job where it can sleep
 * @id: see struct peerdma_submit
 * @user_data: see struct peerdma_submit
 * @path: enum peerdma_path
 * @generation: the board's that it depends on; 0 for any
 * @length: bytes
 * @legs: per lane
 * @queued: waits in its file's queue
 * @ended: nothing touches its memory any more
 * @error: 0 or a negative errno; the first one stays
 * @reason: enum peerdma_reason
 * @status: of the channel that failed
 * @kind: enum peerdma_error_kind, where the board says
 * @address: where the board met the error
 * @begin: time of the start
 * @nanoseconds: from start to end
 * @finished: the job has ended
 */
struct peerdma_job {
	struct kref ref;
	struct peerdma_file *file;
	struct list_head link;
	struct list_head on_file;
	struct work_struct reap;
	u64 id;
	u64 user_data;
	enum peerdma_path path;
	u32 generation;
	u64 length;
	struct peerdma_leg legs[PEERDMA_LANES];
	bool queued;
	bool ended;
	int error;
	u32 reason;
	u32 status;
	u32 kind;
	u64 address;
	ktime_t begin;
	u64 nanoseconds;
	struct completion finished;
};

#include "calls.h"

#define for_each_lane(lane, board) \
	for ((lane) = (board)->lanes; (lane) < (board)->lanes + PEERDMA_LANES; (lane)++)

/* A board that is gone is not touched: its registers may not be mapped any more. */
static inline u32 peerdma_read(struct peerdma_dev *board, u32 offset)
{
	if (unlikely(board->state == PEERDMA_BOARD_DEAD))
		return ~0u;
	return readl(board->dma + offset);
}

static inline void peerdma_write(struct peerdma_dev *board, u32 offset, u32 value)
{
	if (likely(board->state != PEERDMA_BOARD_DEAD))
		writel(value, board->dma + offset);
}

#endif /* PEERDMA_CORE_H */
