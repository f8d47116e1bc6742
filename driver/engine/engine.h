/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine: what runs on the engines, how it is started and how it stops. It knows jobs and their
 * queues as data.
 */
#ifndef PEERDMA_ENGINE_H
#define PEERDMA_ENGINE_H

#include <linux/pid.h>

#include "core.h"
#include "launch.h"
#include "quota.h"

struct dma_fence;
struct eventfd_ctx;

/* How often running engines are looked at, in jiffies. */
#define PEERDMA_WATCH_INTERVAL	(HZ / 4)

/**
 * struct peerdma_why - the last error of a file in words
 * @lock: protects the other members
 * @error: errno, 0 if there was none
 * @text: what was asked, what was found, what to do
 */
struct peerdma_why {
	spinlock_t lock;
	int error;
	char text[sizeof_field(struct peerdma_info, last_error)];
};

/**
 * struct peerdma_file - an open file of the node: its handles, its jobs and their completions
 * @ref: the open file and each job hold one
 * @board: holds a reference
 * @share: whose turns its jobs take; for that user its jobs and surfaces count
 * @privileged: it was opened with CAP_SYS_RAWIO: may know bus addresses, and map doorbells
 * @opener: process that opened it
 * @surfaces: by handle
 * @next_handle: where the search for a free handle starts: a stale handle is not reused soon
 * @next_job: number of the last job
 * @channel: number of the channels that its jobs use
 * @why: last error
 * @on_board: entry in the board's list of files
 * @has_context: its context has been set
 * @on_partitions: entry in the board's list of partitions if it has card RAM of its own
 * @ram: card address of that
 * @ram_length: its length in bytes
 * @on_ready: entry in one of the lines of its user while @queue is not empty
 * @queue: jobs that wait for engines
 * @jobs: all jobs that were submitted and whose event has not been read
 * @job_count: number of jobs whose event has not arrived: those of @jobs, and what a read() has
 * @receiving: jobs in @queue that receive from the user stream
 * @events: jobs that have ended and whose event has not been read
 * @news: something was added to @events, or the board is gone, since @wait was woken
 * @untold: jobs that have ended and are not told yet
 * @telling: it is among the user's files that have something to tell
 * @on_user: entry there
 * @wait: woken when there are @news; see tell.c
 *
 * Members from @on_board on are protected by the board's lock.
 */
struct peerdma_file {
	struct kref ref;
	struct peerdma_dev *board;
	struct peerdma_share *share;
	bool privileged;
	struct pid *opener;
	struct xarray surfaces;
	u32 next_handle;
	atomic64_t next_job;
	u32 channel;
	struct peerdma_why why;
	struct list_head on_board;
	bool has_context;
	struct list_head on_partitions;
	u64 ram;
	u64 ram_length;
	struct list_head on_ready;
	struct list_head queue;
	struct list_head jobs;
	unsigned int job_count;
	unsigned int receiving;
	struct list_head events;
	bool news;
	struct list_head untold;
	bool telling;
	struct llist_node on_user;
	wait_queue_head_t wait;
};

/**
 * struct peerdma_use - memory that a job may touch
 * @job: the job
 * @surface: the memory; holds a reference until the job has ended
 * @on_surface: entry in the list of @surface while the job is queued
 */
struct peerdma_use {
	struct peerdma_job *job;
	struct peerdma_surface *surface;
	struct list_head on_surface;
};

/**
 * struct peerdma_leg - a job's part on one engine
 * @used: the job uses the engine
 * @surface: memory on this side, one of the job's uses; NULL if the job has a ring
 * @offset: first byte in @surface
 * @card: card address of the first byte
 * @length: bytes
 * @started: bytes given to the engine, and synchronized for it
 * @done: bytes that the engine has moved
 * @cycles: clock cycles that the channel was busy
 */
struct peerdma_leg {
	bool used;
	struct peerdma_surface *surface;
	u64 offset;
	u64 card;
	u64 length;
	u64 started;
	u64 done;
	u64 cycles;
};

/**
 * enum peerdma_path - what the card side of a job is
 * @PATH_CARD: card RAM
 * @PATH_RECEIVE: what the user block makes, whenever it does
 * @PATH_SEND: what the user block takes, whenever it does; for jobs in slots
 * @PATH_STREAM: a copy through the stream, on both engines at the same time
 * @PATH_STAGED: a copy through the staging area, with C2H one chunk behind H2C
 */
enum peerdma_path {
	PATH_CARD,
	PATH_RECEIVE,
	PATH_SEND,
	PATH_STREAM,
	PATH_STAGED,
};

/**
 * struct peerdma_frame_place - where frames of a ring go
 * @surface: one of the job's uses
 * @offset: first byte in @surface
 * @length: bytes, not 0
 * @end: descriptors of the ring up to its end, that of its record included
 */
struct peerdma_frame_place {
	struct peerdma_surface *surface;
	u64 offset;
	u64 length;
	u32 end;
};

/**
 * struct peerdma_frame_ring - memory that a job fills with frames of the user stream, in turn
 * @job: the job, which owns it
 * @uses: the job's
 * @records: memory for a record of each frame, one of the job's uses; NULL: none are made
 * @records_offset: first byte of these in @records
 * @fresh: discard what is in the stream before the first frame
 * @needs_sync: some of the memory does
 * @giving: held while frames are given back; outside of all other locks
 * @publish: hands frames that are filled to the CPU, if @needs_sync
 * @engine: where it runs; NULL before it has started
 * @seen: descriptors completed, as the board last counted them
 * @completed: ... in all; not more than @credited
 * @credited: descriptors that the board was allowed to fetch
 * @filled: frames that the board has filled
 * @ready: ... of these, that the CPU sees, and the program may be told of
 * @released: ... of these, that the program has given back
 * @frame_count: length of @frames
 * @frames: memory of the first frame, of the second, and so on
 *
 * Members from @engine to @released are protected by the board's lock.
 */
struct peerdma_frame_ring {
	struct peerdma_job *job;
	struct peerdma_use *uses;
	struct peerdma_surface *records;
	u64 records_offset;
	bool fresh;
	bool needs_sync;
	struct mutex giving;
	struct work_struct publish;
	struct peerdma_engine *engine;
	u32 seen;
	u64 completed;
	u64 credited;
	u64 filled;
	u64 ready;
	u64 released;
	u32 frame_count;
	struct peerdma_frame_place frames[];
};

/**
 * enum peerdma_job_type - what a job is
 * @JOB_TRANSFER: bytes that engines move
 * @JOB_FRAMES: memory that an engine fills with frames, until it is stopped
 * @JOB_LAUNCH_QUEUE: a launch queue
 * @JOB_SLOT: a transfer that a launch queue starts, until it is taken from that
 */
enum peerdma_job_type {
	JOB_TRANSFER,
	JOB_FRAMES,
	JOB_LAUNCH_QUEUE,
	JOB_SLOT,
};

/**
 * struct peerdma_run - what a job has that runs on engines of its own
 * @frame_ring: what it fills with frames, which it owns; NULL of a transfer
 * @queued: it is in its file's queue
 * @kind: enum peerdma_error_kind, if the board has an extension block
 * @address: where the board met the error
 * @waits_for: enum peerdma_waits_for, of the channel that was late
 * @deadline: in jiffies; when it is late unless some of its data has moved before
 * @limit: in jiffies; when it is late although it moves
 * @again: there was no room for completions: engines stop, and their chains start again later
 * @waited: it has been so
 * @patience: in jiffies; until then it may be so again
 * @keeps: it is late, but may be: it waits for the user block; or it has a ring. Jobs that need its
 *	engines are refused
 * @holder: who opened the file of the job that kept the engines which this one needed, or NULL
 */
struct peerdma_run {
	struct peerdma_frame_ring *frame_ring;
	bool queued;
	u32 kind;
	u64 address;
	u32 waits_for;
	unsigned long deadline;
	unsigned long limit;
	bool again;
	bool waited;
	unsigned long patience;
	bool keeps;
	struct pid *holder;
};

/**
 * struct peerdma_job - what is done for an open file, and holds memory until it has ended
 * @ref: the engines hold one until all have been told of the end, whoever waits or reads the event
 *	holds another
 * @file: where completions go; holds a reference
 * @type: says which of @run, @launch_queue and @slot it has
 * @link: entry in the file's queue, later in its events; while a ring runs, there is an event of it
 * @on_file: entry in the file's list of jobs; empty if the submitter waits for the job
 * @untold: entry in the file's list of these, once it has been delivered
 * @reap: what may sleep and has to be done before the job is delivered
 * @id: number of the job in its file
 * @user_data: the program's, returned with the event
 * @eventfd: to be signalled at the end; NULL: none
 * @generation: board generation that the job depends on; 0: any
 * @uses: memory that it may touch
 * @use_count: length of @uses
 * @own_uses: @uses of a job without a ring
 * @channel: number of its channels
 * @path: what the card side is
 * @length: bytes, from memory if there is some on both sides; of a ring, of one round
 * @legs: its part on each engine
 * @ended: the engine has finished with it: @error and the legs are final
 * @delivered: its data is where the CPU sees it: what is in the file's events is its end
 * @error: 0 or a negative errno; the first one is kept
 * @reason: enum peerdma_reason
 * @status: status of the channel that failed, or state of the launch queue
 * @counted: it counts for the user of @file
 * @fence: signalled when it has ended, or NULL
 * @begin: time of the start
 * @nanoseconds: from start to end
 * @finished: completed when the job has been delivered: for one who waits; later for all who wait
 *	for the end of a launch queue or a slot
 * @run: of JOB_TRANSFER and JOB_FRAMES
 * @launch_queue: of JOB_LAUNCH_QUEUE
 * @slot: of JOB_SLOT
 *
 * What it moves is in @channel to @legs: of a launch queue, nothing.
 */
struct peerdma_job {
	struct kref ref;
	struct peerdma_file *file;
	enum peerdma_job_type type;
	struct list_head link;
	struct list_head on_file;
	struct list_head untold;
	struct work_struct reap;
	u64 id;
	u64 user_data;
	struct eventfd_ctx *eventfd;
	u32 generation;
	struct peerdma_use *uses;
	u32 use_count;
	struct peerdma_use own_uses[PEERDMA_DIRECTIONS];
	u32 channel;
	enum peerdma_path path;
	u64 length;
	struct peerdma_leg legs[PEERDMA_DIRECTIONS];
	bool ended;
	bool delivered;
	int error;
	u32 reason;
	u32 status;
	bool counted;
	struct dma_fence *fence;
	ktime_t begin;
	u64 nanoseconds;
	struct completion finished;
	union {
		struct peerdma_run run;
		struct peerdma_launch_queue launch_queue;
		struct peerdma_slot slot;
	};
};

/* Whether a job is with launch queues: it has no engines of its own. */
static inline bool peerdma_job_launches(const struct peerdma_job *job)
{
	return job->type == JOB_LAUNCH_QUEUE || job->type == JOB_SLOT;
}

/* Whether a job moves bytes of the user stream of its channel. */
static inline bool peerdma_job_streams(const struct peerdma_job *job)
{
	return job->path == PATH_RECEIVE || job->path == PATH_SEND || job->path == PATH_STREAM;
}

/*
 * Whether a job makes the user stream its file's own: a GPU starts it at any time, also between
 * what others send and what they receive.
 */
static inline bool peerdma_job_owns_stream(const struct peerdma_job *job)
{
	return job->type == JOB_SLOT && (job->path == PATH_RECEIVE || job->path == PATH_SEND);
}

/* Whether a job takes packets of the user stream: frames, each with its record. */
static inline bool peerdma_job_takes_packets(const struct peerdma_job *job)
{
	return job->type == JOB_SLOT && job->slot.control & PEERDMA_LAUNCH_SLOT_CONTROL_RECEIVE;
}

#define for_each_use(use, job) \
	for ((use) = (job)->uses; (use) < (job)->uses + (job)->use_count; (use)++)

/* The engines that the first jobs of the files in a list of ready ones need, a bit for each. */
static inline unsigned int peerdma_ready_engines(unsigned int list)
{
	return (list % PEERDMA_CHANNEL_SETS) << (list / PEERDMA_CHANNEL_SETS * PEERDMA_DIRECTIONS);
}

/* Process context. */
static inline void peerdma_file_put(struct peerdma_file *file)
{
	kref_put(&file->ref, file->board->ops->file_free);
}

/* partition.c */
bool peerdma_partition_taken(const struct peerdma_file *file, u64 card, u64 length);
bool peerdma_partition_stream_taken(const struct peerdma_job *job);
bool peerdma_partition_bars(const struct peerdma_job *job);
void peerdma_partition_leave_stream(const struct peerdma_job *job);
u64 peerdma_partition_shared(struct peerdma_dev *board);
int peerdma_partition_place(struct peerdma_file *file, u64 length);
int peerdma_partition_wait(struct peerdma_file *file);
void peerdma_partition_release(struct peerdma_file *file);

/* tell.c */
extern struct workqueue_struct *peerdma_wq;
extern struct workqueue_struct *peerdma_surface_wq;
extern struct workqueue_struct *peerdma_slow_wq;
void peerdma_tell_init(struct peerdma_user *user);
void peerdma_tell_file(struct peerdma_file *file);
void peerdma_tell_job(struct peerdma_job *job);
int peerdma_tell_pace(struct peerdma_user *user);

/* chain.c */
int peerdma_chain_alloc(struct peerdma_dev *board, struct peerdma_chain *chain, u32 room);
void peerdma_chain_free(struct peerdma_dev *board, struct peerdma_chain *chain);
u32 peerdma_chain_length(const struct peerdma_surface *surface, u64 offset, u64 length);
u64 peerdma_chain_build(const struct peerdma_chain *chain, const struct peerdma_surface *surface,
			u64 offset, u64 card, bool card_fixed, u64 bytes, u32 *count);
bool peerdma_chain_address(const struct peerdma_surface *surface, u64 offset, u64 length, u64 *bus);
void peerdma_chain_build_packet(const struct peerdma_chain *chain, const struct peerdma_leg *leg,
				const struct peerdma_surface *record, u64 record_offset);
u32 peerdma_chain_build_ring(struct peerdma_engine *engine, const struct peerdma_frame_ring *ring);
void peerdma_chain_doorbell(struct peerdma_engine *engine, u32 count);

/* frame_ring.c */
int peerdma_frame_ring_create(struct peerdma_job *job, u32 frames);
void peerdma_frame_ring_free(struct peerdma_job *job);
bool peerdma_frame_ring_measure(struct peerdma_frame_ring *ring);
bool peerdma_frame_ring_switch_records(struct peerdma_dev *board, u32 channel, bool on);
u32 peerdma_frame_ring_build(struct peerdma_engine *engine);
void peerdma_frame_ring_begin(struct peerdma_engine *engine);
void peerdma_frame_ring_give(struct peerdma_frame_ring *ring);
int peerdma_frame_ring_look(struct peerdma_frame_ring *ring, u32 status);
bool peerdma_frame_ring_waits(struct peerdma_frame_ring *ring);
int peerdma_frame_ring_release(struct peerdma_frame_ring *ring, u64 count);
void peerdma_frame_ring_off(struct peerdma_frame_ring *ring);
void peerdma_frame_ring_reclaim(struct peerdma_frame_ring *ring);

/* dispatch.c */
struct peerdma_job *peerdma_dispatch_first(struct peerdma_file *file);
unsigned int peerdma_dispatch_needs(const struct peerdma_job *job);
struct peerdma_file *peerdma_dispatch_turn(struct peerdma_dev *board, unsigned int taken);
void peerdma_dispatch_add(struct peerdma_job *job);
void peerdma_dispatch_remove(struct peerdma_job *job);
void peerdma_dispatch_moves(struct peerdma_job *job);
void peerdma_dispatch_free(struct peerdma_job *job);
bool peerdma_dispatch_repeats(const struct peerdma_job *job);
void peerdma_dispatch_settle(struct peerdma_job *job);
void peerdma_dispatch_pump(struct peerdma_dev *board);
void peerdma_dispatch_pump_work(struct work_struct *work);

/* launch_queue.c */
int peerdma_launch_queue_start(struct peerdma_job *job);
void peerdma_launch_queue_resume(struct peerdma_hw_queue *hwq);
u32 peerdma_launch_queue_look(struct peerdma_hw_queue *hwq);
struct peerdma_hw_queue *peerdma_launch_queue_holding(struct peerdma_dev *board,
						      unsigned int needs);
void peerdma_launch_queue_stop(struct peerdma_job *job);
int peerdma_launch_queue_poll(struct peerdma_dev *board);
bool peerdma_launch_queue_closes(struct peerdma_dev *board);
void peerdma_launch_queue_cut_off(struct peerdma_dev *board, unsigned long deadline);
void peerdma_launch_queue_force(struct peerdma_dev *board);

/* stop.c */
void peerdma_stop_job(struct peerdma_job *job, int error, u32 reason);
bool peerdma_stop_kept_from(const struct peerdma_job *holder, const struct peerdma_job *job);
bool peerdma_stop_kept(struct peerdma_job *holder);
void peerdma_stop_file(struct peerdma_file *file, int error, u32 reason);
void peerdma_stop_all(struct peerdma_dev *board, bool queued, int error, u32 reason);
void peerdma_stop_outdated(struct peerdma_dev *board);
void peerdma_stop_barred(struct peerdma_dev *board);
void peerdma_stop_announced(struct peerdma_dev *board);
void peerdma_stop_rings(struct peerdma_dev *board, int error, u32 reason);
void peerdma_stop_surface(struct peerdma_surface *surface, bool running, int error, u32 reason);
void peerdma_stop_cut_off(struct peerdma_dev *board);
void peerdma_stop_lost(struct peerdma_dev *board);
void peerdma_stop_bury(struct peerdma_dev *board);
bool peerdma_stop_step(struct peerdma_dev *board, bool late);
void peerdma_stop_work(struct work_struct *work);

/* irq.c */
int peerdma_irq_setup(struct peerdma_dev *board);
void peerdma_irq_teardown(struct peerdma_dev *board);
void peerdma_irq_watchdog_work(struct work_struct *work);
void peerdma_irq_room_work(struct work_struct *work);

#endif /* PEERDMA_ENGINE_H */
