/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core module's rules, the board, and its registers: what every file of the module sees.
 *
 * Layers. Each is a folder; the Makefile lists them and their files, lowest first. A file calls
 * only files that stand before it there. Where a layer has to tell one above it something, it goes
 * through a function pointer: struct peerdma_ops, struct peerdma_provider, or a work item. Each
 * layer has a header (core.h, engine.h, job.h, surface.h, files.h, recover.h) that includes the one
 * below, and a file includes that of its own layer.
 *
 * Names. A function of foo.c is foo_bar() if it is static, and peerdma_foo() or peerdma_foo_bar()
 * otherwise; those that provider modules call are as peerdma_provider.h has them. Inline functions
 * of headers are peerdma_bar(), those of compat.h compat_bar().
 *
 * Locks, outer to inner. Providers may call us while holding locks of their own (NVIDIA's global
 * lock, dma_resv, mmap_lock): those are outside all of these.
 *
 *  0. ring->giving      mutex. Giving frames back, and the end of the ring's job.
 *  1. board->gate       rwsem. Read: mapping memory for the device. Write: reset, remove, suspend;
 *                       never from a provider's callback.
 *  2. surface->teardown mutex. Removing a mapping, and looking at one. A provider that waits for a
 *                       callback of its own is not called with it held.
 *  3. board->faults     rwsem. Read: page faults. Write: taken and released after a state change,
 *                       to wait for the faults that saw the old state.
 *  4. board->lock       spinlock, interrupts off. Registers, engines, queues, states. Innermost
 *                       but for wait queues of a few threads of ours. Programs are told without it.
 *
 * None of 0 and 2 to 4 is held while pinning and unpinning, attaching and mapping dma-bufs, copying
 * from and to user space, in free_irq(), or while waiting for a work item.
 *
 * The job owns the memory: a surface is unmapped only when no job may touch it, and a job ends
 * only when its engines are proven idle, or the board has lost the bus and its reads have been
 * answered. The board gets the bus only while all engines are proven idle.
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
/* For arrays whose size a program chooses: a failed allocation is not worth a kernel warning. */
#define PEERDMA_GFP_ARRAY	(GFP_KERNEL_ACCOUNT | __GFP_NOWARN)
#define PEERDMA_CHAIN_ROOM	2048	/* descriptors of a chain */
/* A channel that is told to stop takes at most this much of the board's time. */
#define PEERDMA_STOP_MS		100

struct peerdma_exported;
struct peerdma_job;

/* A channel has an engine for each direction. */
enum { PEERDMA_H2C, PEERDMA_C2H, PEERDMA_DIRECTIONS };

#define PEERDMA_MAX_CHANNELS	4
/* Sets of engines: of one channel, and of all, each with engines of one channel alone. */
#define PEERDMA_CHANNEL_SETS	(1 << PEERDMA_DIRECTIONS)
#define PEERDMA_ENGINE_SETS	(PEERDMA_MAX_CHANNELS * PEERDMA_CHANNEL_SETS)

/**
 * enum peerdma_engine_state - what an engine is doing
 * @ENGINE_IDLE: nothing; the engine does not touch memory
 * @ENGINE_BUILDING: descriptors are being written; the engine does not touch memory
 * @ENGINE_RUNNING: the engine is running
 * @ENGINE_STOPPING: the engine has been told to stop
 * @ENGINE_CUT_OFF: the board has lost the bus; what it had asked for may still arrive
 */
enum peerdma_engine_state {
	ENGINE_IDLE,
	ENGINE_BUILDING,
	ENGINE_RUNNING,
	ENGINE_STOPPING,
	ENGINE_CUT_OFF,
};

/**
 * struct peerdma_chain - memory for descriptors of one direction
 * @descriptors: the memory; NULL if there is none
 * @address: its bus address
 * @room: how many fit
 * @c2h: the direction
 */
struct peerdma_chain {
	struct peerdma_descriptor *descriptors;
	dma_addr_t address;
	u32 room;
	bool c2h;
};

/**
 * struct peerdma_engine - one direction of a DMA channel
 * @board: the board it is part of
 * @number: its place among all engines of the board
 * @pair: number of its channel
 * @index: PEERDMA_H2C or PEERDMA_C2H
 * @name: "H2C" or "C2H", for messages
 * @channel: offset of its channel block
 * @sgdma: offset of its SGDMA block
 * @push: offset of its window for descriptors, 0 if the board has none
 * @capture: offset of its error capture, or of the one of all engines, 0 if the board has none
 * @irq_bit: its bit in the IRQ block
 * @chain: for one chain of it
 * @state: what it is doing
 * @job: its owner, from the start of the job until its data is where the CPU sees it
 * @bytes: length of the running chain
 * @count: number of descriptors of the running chain
 * @seen: status events of the running chain so far
 * @progress: of the running chain, as the watchdog saw it last; see peerdma_hw_progress()
 * @deadline: in jiffies; STOPPING: when to use more force; CUT_OFF: when nothing can arrive
 * @unheard: the watchdog has seen the chain end, but no interrupt has come yet
 *
 * Members from @state on are protected by the board's lock; @chain belongs to whoever set BUILDING.
 */
struct peerdma_engine {
	struct peerdma_dev *board;
	u32 number;
	u32 pair;
	u32 index;
	const char *name;
	u32 channel;
	u32 sgdma;
	u32 push;
	u32 capture;
	u32 irq_bit;
	struct peerdma_chain chain;
	enum peerdma_engine_state state;
	struct peerdma_job *job;
	u64 bytes;
	u32 count;
	u32 seen;
	u64 progress;
	unsigned long deadline;
	bool unheard;
};

/**
 * struct peerdma_hw_queue - a launch queue of the board
 * @board: the board it is part of
 * @number: its place among them
 * @state: IDLE: not handed out; RUNNING: armed; STOPPING: disarmed; CUT_OFF
 * @job: its owner, from when it is armed until it touches no memory; NULL if IDLE
 * @deadline: as that of an engine
 * @map_offset: offset for mmap() of its doorbell's page, while processes may have that mapped: it
 *	is not handed out before they have not; else 0
 * @exported: its doorbell's page as a dma-buf; NULL if there is none
 * @imports: how often devices have that page mapped: it is not handed out before they have not
 *
 * Members from @state on are protected by the board's lock.
 */
struct peerdma_hw_queue {
	struct peerdma_dev *board;
	u32 number;
	enum peerdma_engine_state state;
	struct peerdma_job *job;
	unsigned long deadline;
	u64 map_offset;
	struct peerdma_exported *exported;
	u32 imports;
};

/**
 * struct peerdma_ops - what lower layers call in those above them
 * @job_end: engine to jobs: the engines have finished with a job, nothing touches its memory any
 *	more. It is in no queue, and keeps its engines until peerdma_dispatch_free(). The board's
 *	lock is held; any context
 * @job_told: engine to jobs: tells those who wait for a job. Process context, nothing held
 * @file_free: jobs to files: the last reference to an open file is gone. Process context
 * @reset: files to life cycle: stops all running jobs and resets the board. May sleep, nothing
 *	held. Returns 0, -EBUSY if the board is frozen, -ENODEV if it is gone or does not come back
 * @zap: jobs to files: removes the doorbell's page of a queue that does not run any more from all
 *	processes and devices. May sleep, nothing held
 */
struct peerdma_ops {
	void (*job_end)(struct peerdma_job *job);
	void (*job_told)(struct peerdma_job *job);
	void (*file_free)(struct kref *ref);
	int (*reset)(struct peerdma_dev *board);
	void (*zap)(struct peerdma_hw_queue *hwq);
};

/**
 * struct peerdma_dev - a board
 * @node: device of the character node; its reference count is the board's
 * @cdev: the character node
 * @pdev: the PCI function; holds a reference. Bound until the driver's remove() returns
 * @ops: calls to upper layers
 * @index: number of the board
 * @user: mapped user BAR
 * @dma: mapped DMA BAR
 * @dma_length: length of the DMA BAR in bytes
 * @card_ram_size: bytes of card RAM that programs may use
 * @staging: bytes at the end of card RAM that copies of one channel go through; 0 if they use the
 *	stream. Those of all channels follow @card_ram_size, or are the last of it on plain XDMA
 * @staging_base: card address of the first of them
 * @h2c_channels: number of H2C channels found
 * @c2h_channels: number of C2H channels found
 * @version: version of the extension block; 0 if there is none
 * @capabilities: PEERDMA_CAPABILITY_*
 * @stream_window: card address of the stream, 0 if there is none
 * @user_block: name of the user blocks, as their register has it; 0 if there are none
 * @user_ratio: bytes that they take and put out, as their register has it
 * @time_scale: how much slower than real time the board runs
 * @clock_khz: clock of the DMA engine
 * @vectors: number of interrupt vectors allocated
 * @interrupts: their kind
 * @gate: lock 1
 * @faults: lock 3
 * @lock: lock 4
 * @state: life cycle; changes only under @lock
 * @generation: counts resets and resumes
 * @engines: H2C and C2H of channel 0, of channel 1, and so on
 * @engine_count: how many there are: of channels that the board has in both directions
 * @hw_queues: launch queues
 * @hw_queue_count: how many it has
 * @hw_queue_generation: of the one that was handed out last
 * @slots: jobs that launch queues may start, by their slots, of which some have two
 * @draining: running jobs may end, but no new ones start
 * @frame_records: for each channel, by how many jobs its frames are to have records
 * @broken: an engine could not be stopped: nothing starts until the board has been reset
 * @crowded: in jiffies: until then lost reads may keep room for completions; or 0. See irq.c
 * @full: they keep all of it
 * @files: open files of the node
 * @partitions: those that have card RAM of their own, from high addresses to low ones
 * @partition_count: length of @partitions
 * @ready: lines of users who have queued jobs, in their order, by the channel that the first job of
 *	each file in them uses, and within that by the engines which it needs: a bit for each
 * @turns: the last turn that was given to one of them
 * @surfaces: all surfaces mapped for this board
 * @idle: woken when an engine becomes idle, when a surface is unmapped, and when a device unmaps a
 *	page of the board
 * @pump: starts what can be started
 * @stopper: polls engines that are stopping
 * @room: looks whether there is room for completions
 * @watchdog: polls engines that are running
 * @recovery: resets the board, or ends the jobs of one that is gone
 * @inode: its address space holds the mappings of all open files of the board
 * @next_map: next free mmap() offset
 * @exported: the mailbox page as a dma-buf; NULL if there is none
 * @imports: how often devices have pages of the board mapped
 * @pinned_bytes: bytes that are pinned for the board
 * @jobs: jobs that have ended
 * @failures: jobs that have ended with an error
 * @timeouts: jobs that did not move, or not fast enough
 * @lost_interrupts: chains whose end only the watchdog saw
 *
 * Members from @state to @surfaces, and the counters from @next_map on, are protected by @lock.
 */
struct peerdma_dev {
	struct device node;
	struct cdev cdev;
	struct pci_dev *pdev;
	const struct peerdma_ops *ops;
	int index;
	void __iomem *user;
	void __iomem *dma;
	resource_size_t dma_length;
	u64 card_ram_size;
	u64 staging;
	u64 staging_base;
	u32 h2c_channels;
	u32 c2h_channels;
	u32 version;
	u32 capabilities;
	u64 stream_window;
	u32 user_block;
	u32 user_ratio;
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
	u32 frame_records[PEERDMA_MAX_CHANNELS];
	bool broken;
	unsigned long crowded;
	bool full;
	struct peerdma_engine engines[PEERDMA_DIRECTIONS * PEERDMA_MAX_CHANNELS];
	u32 engine_count;
	struct peerdma_hw_queue hw_queues[PEERDMA_LAUNCH_QUEUES];
	u32 hw_queue_count;
	u16 hw_queue_generation;
	struct peerdma_job *slots[PEERDMA_LAUNCH_SLOTS];
	struct list_head files;
	struct list_head partitions;
	unsigned int partition_count;
	struct list_head ready[PEERDMA_ENGINE_SETS];
	u64 turns;
	struct list_head surfaces;
	wait_queue_head_t idle;
	struct work_struct pump;
	struct delayed_work stopper;
	struct delayed_work room;
	struct delayed_work watchdog;
	struct work_struct recovery;
	struct inode *inode;
	u64 next_map;
	struct peerdma_exported *exported;
	u32 imports;

	u64 pinned_bytes;
	u64 jobs;
	u64 failures;
	u64 timeouts;
	u64 lost_interrupts;
};

#define for_each_engine(engine, board) \
	for ((engine) = (board)->engines; (engine) < (board)->engines + (board)->engine_count; \
	     (engine)++)

#define for_each_hw_queue(hwq, board) \
	for ((hwq) = (board)->hw_queues; (hwq) < (board)->hw_queues + (board)->hw_queue_count; \
	     (hwq)++)

static inline struct peerdma_dev *peerdma_board_get(struct peerdma_dev *board)
{
	get_device(&board->node);
	return board;
}

/* May sleep. */
static inline void peerdma_board_put(struct peerdma_dev *board)
{
	put_device(&board->node);
}

/* Another user block may change the bytes. */
static inline bool peerdma_copies_streamed(const struct peerdma_dev *board)
{
	return board->stream_window && board->user_block == PEERDMA_PASS_THROUGH;
}

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

static inline u32 peerdma_channel_read(struct peerdma_engine *engine, u32 reg)
{
	return peerdma_read(engine->board, engine->channel + reg);
}

static inline void peerdma_channel_write(struct peerdma_engine *engine, u32 reg, u32 value)
{
	peerdma_write(engine->board, engine->channel + reg, value);
}

/* launch_regs.c */
void peerdma_launch_regs_identify(struct peerdma_dev *board);
struct peerdma_hw_queue *peerdma_launch_regs_find_idle(struct peerdma_dev *board);
void peerdma_launch_regs_quiet(struct peerdma_dev *board);
bool peerdma_launch_regs_busy(struct peerdma_dev *board);
void peerdma_launch_regs_clear(struct peerdma_dev *board);
u32 peerdma_launch_regs_read(const struct peerdma_hw_queue *hwq, u32 reg);
u64 peerdma_launch_regs_at_work(const struct peerdma_hw_queue *hwq, u32 state);
void peerdma_launch_regs_write(const struct peerdma_hw_queue *hwq, u32 reg, u32 value);
void peerdma_launch_regs_point(const struct peerdma_hw_queue *hwq, u32 reg, u64 address);
void peerdma_launch_regs_fill(struct peerdma_dev *board, u32 slot,
			      const struct peerdma_descriptor *descriptor);
void peerdma_launch_regs_validate(struct peerdma_dev *board, u32 slot, u32 control, u64 flush,
				  u64 done);
void peerdma_launch_regs_invalidate(struct peerdma_dev *board, u32 slot);
void peerdma_launch_regs_flush(struct peerdma_dev *board);

/* hw.c */
int peerdma_hw_identify(struct peerdma_dev *board);
void peerdma_hw_init(struct peerdma_dev *board);
void peerdma_hw_quiet(struct peerdma_dev *board);
int peerdma_hw_calm(struct peerdma_dev *board);
bool peerdma_hw_soft_reset(struct peerdma_dev *board);
void peerdma_hw_stop(struct peerdma_engine *engine);
u32 peerdma_hw_status(struct peerdma_engine *engine, bool clear);
bool peerdma_hw_done(struct peerdma_engine *engine, u32 status);
u64 peerdma_hw_cycles(struct peerdma_engine *engine);
u64 peerdma_hw_progress(struct peerdma_engine *engine);
u32 peerdma_hw_overcommit_off(struct peerdma_dev *board);
u32 peerdma_hw_waits_for(struct peerdma_engine *engine);
void peerdma_hw_flush_stream(struct peerdma_dev *board, u32 channel);
u64 peerdma_hw_clock(struct peerdma_dev *board);
u32 peerdma_hw_capture_take(struct peerdma_engine *engine, u64 *address);
void peerdma_hw_capture_drop(struct peerdma_engine *engine);
unsigned long peerdma_hw_scaled(struct peerdma_dev *board, u64 ms);

#endif /* PEERDMA_CORE_H */
