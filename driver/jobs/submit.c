// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs on their way to the engine: made, checked, and handed over.
 */
#include <linux/bitfield.h>
#include <linux/math64.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "job.h"

/**
 * peerdma_submit_create() - makes a job without legs
 * @file: where its completion goes
 * @type: what it is
 * @length: bytes; 0: not known yet, or it moves none
 *
 * The caller fills in path and legs, and what only jobs of its type have, and tells with
 * peerdma_submit_use() what it touches.
 *
 * Nothing is held. May wait for those who are told of former jobs of the user.
 *
 * Return: the job, or an ERR_PTR: -ENOMEM, -EAGAIN if the user has too many, or -EINTR.
 */
struct peerdma_job *peerdma_submit_create(struct peerdma_file *file, enum peerdma_job_type type,
					  u64 length)
{
	struct peerdma_job *job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	struct peerdma_leg *leg;
	int error;

	if (!job)
		return ERR_PTR(-ENOMEM);
	job->file = file;
	job->type = type;
	error = peerdma_quota_add_job(job);
	if (error) {
		kfree(job);
		return ERR_PTR(error);
	}
	kref_init(&job->ref);
	kref_get(&file->ref);
	job->id = atomic64_inc_return(&file->next_job);
	job->channel = READ_ONCE(file->channel);
	job->length = length;
	for (leg = job->legs; leg < job->legs + PEERDMA_DIRECTIONS; leg++)
		leg->length = length;
	job->uses = job->own_uses;
	INIT_LIST_HEAD(&job->link);
	INIT_LIST_HEAD(&job->on_file);
	INIT_WORK(&job->reap, peerdma_job_reap);
	init_completion(&job->finished);
	return job;
}

/**
 * peerdma_submit_use() - notes that a job may touch memory
 * @job: not submitted yet
 * @surface: the memory; the job gets a reference of its own
 */
void peerdma_submit_use(struct peerdma_job *job, struct peerdma_surface *surface)
{
	struct peerdma_use *use = &job->uses[job->use_count++];

	use->job = job;
	use->surface = surface;
	INIT_LIST_HEAD(&use->on_surface);
	peerdma_surface_get(surface);
}

static bool submit_fits(u64 offset, u64 length, u64 size)
{
	return length <= size && offset <= size - length;
}

/**
 * peerdma_submit_check_surface() - checks that a range is within pinned memory
 * @file: notes why not
 * @surface: the memory
 * @offset: first byte
 * @length: bytes
 *
 * Return: 0 or -EINVAL.
 */
int peerdma_submit_check_surface(struct peerdma_file *file, const struct peerdma_surface *surface,
				 u64 offset, u64 length)
{
	if (submit_fits(offset, length, surface->length))
		return 0;
	return peerdma_fail(file, -EINVAL,
			    "%llu bytes from %llu on are beyond the memory pinned, which has %llu",
			    length, offset, surface->length);
}

/**
 * peerdma_submit_check_card() - checks that a program may use a range of card addresses
 * @file: notes why not
 * @op: PEERDMA_OP_H2C or PEERDMA_OP_C2H
 * @card: card address of the first byte
 * @length: bytes
 *
 * Process context.
 *
 * Return: 0, -EINVAL, or -EACCES if some of it is another file's own.
 */
int peerdma_submit_check_card(struct peerdma_file *file, u32 op, u64 card, u64 length)
{
	struct peerdma_dev *board = file->board;
	bool others;

	/* Not to the stream: what nobody reads from it would end up in the next job. */
	if (op == PEERDMA_OP_C2H && board->stream_window && card == board->stream_window)
		return 0;
	if (!submit_fits(card, length, board->card_ram_size))
		return peerdma_fail(file, -EINVAL,
				    "%llu bytes from card address %#llx on are beyond the card RAM, which has %llu",
				    length, card, board->card_ram_size);
	spin_lock_irq(&board->lock);
	others = peerdma_partition_taken(file, card, length);
	spin_unlock_irq(&board->lock);
	if (others)
		return peerdma_fail(file, -EACCES,
				    "of %llu bytes from card address %#llx on, some are in card RAM that another open file has for itself",
				    length, card);
	return 0;
}

/**
 * peerdma_submit_check_side() - checks that the board may use a range of pinned memory
 * @file: notes why not
 * @surface: the memory
 * @offset: first byte
 * @length: bytes
 * @access: PEERDMA_ACCESS_READ or PEERDMA_ACCESS_WRITE
 *
 * Return: 0 or -EINVAL.
 */
int peerdma_submit_check_side(struct peerdma_file *file, const struct peerdma_surface *surface,
			      u64 offset, u64 length, u32 access)
{
	if (surface->access & access)
		return peerdma_submit_check_surface(file, surface, offset, length);
	if (access == PEERDMA_ACCESS_READ)
		return peerdma_fail(file, -EINVAL,
				    "the memory was not pinned for the board to read it");
	return peerdma_fail(file, -EINVAL, "the memory was not pinned for the board to write it");
}

/* The ranges have been checked. */
static int submit_check_overlap(struct peerdma_job *job, const struct peerdma_surface *source,
				u64 source_offset, const struct peerdma_surface *destination,
				u64 destination_offset)
{
	u64 from = job->legs[PEERDMA_H2C].length, to = job->legs[PEERDMA_C2H].length;

	if (source != destination || !from || !to || source_offset >= destination_offset + to ||
	    destination_offset >= source_offset + from)
		return 0;
	return peerdma_fail(job->file, -EINVAL,
			    "source and destination overlap: %llu bytes from %llu and %llu from %llu on of the same memory",
			    from, source_offset, to, destination_offset);
}

static int submit_check_copy(struct peerdma_job *job)
{
	if (peerdma_copies_streamed(job->file->board) || job->file->board->staging)
		return 0;
	return peerdma_fail(job->file, -EOPNOTSUPP, "this board has no card RAM to copy through");
}

/* The lengths are of memory that is pinned: products of them with a byte do not overflow. */
static int submit_check_process(struct peerdma_job *job)
{
	const struct peerdma_dev *board = job->file->board;
	u32 takes = FIELD_GET(PEERDMA_EXTENSION_USER_RATIO_BYTES_IN, board->user_ratio);
	u32 makes = FIELD_GET(PEERDMA_EXTENSION_USER_RATIO_BYTES_OUT, board->user_ratio);
	u64 from = job->legs[PEERDMA_H2C].length, to = job->legs[PEERDMA_C2H].length;

	if (!board->stream_window || !takes || !makes)
		return peerdma_fail(job->file, -EOPNOTSUPP,
				    "this board has no user block that makes bytes of others");
	if (!do_div(from, takes) && from * makes == to)
		return 0;
	return peerdma_fail(job->file, -EINVAL,
			    "%llu bytes do not become %llu: the user block makes %u bytes of each %u",
			    job->length, to, makes, takes);
}

static void submit_set_leg(struct peerdma_job *job, unsigned int engine,
			   struct peerdma_surface *surface, u64 offset, u64 card)
{
	struct peerdma_leg *leg = &job->legs[engine];

	peerdma_submit_use(job, surface);
	leg->used = true;
	leg->surface = surface;
	leg->offset = offset;
	leg->card = card;
}

/**
 * peerdma_submit_prepare() - checks what a job is to do and fills it in
 * @job: new; the lengths of its legs are set
 * @op: enum peerdma_op
 * @source: NULL for PEERDMA_OP_C2H
 * @source_offset: byte in @source, or card address
 * @destination: NULL for PEERDMA_OP_H2C
 * @destination_offset: byte in @destination, or card address
 *
 * Waits for what others still do with dma-bufs, and announces the job in them. Process context.
 *
 * Return: 0, or an errno that was explained.
 */
int peerdma_submit_prepare(struct peerdma_job *job, u32 op, struct peerdma_surface *source,
			   u64 source_offset, struct peerdma_surface *destination,
			   u64 destination_offset)
{
	const struct peerdma_dev *board = job->file->board;
	u64 from_card = source_offset, to_card = destination_offset;
	bool streamed;
	int error = 0;

	if (source)
		error = peerdma_submit_check_side(job->file, source, source_offset,
						  job->legs[PEERDMA_H2C].length,
						  PEERDMA_ACCESS_READ);
	if (!error && destination)
		error = peerdma_submit_check_side(job->file, destination, destination_offset,
						  job->legs[PEERDMA_C2H].length,
						  PEERDMA_ACCESS_WRITE);
	if (!error)
		error = submit_check_overlap(job, source, source_offset, destination,
					     destination_offset);
	if (error)
		return error;

	if (source && destination) {
		error = op == PEERDMA_OP_COPY ? submit_check_copy(job) : submit_check_process(job);
		streamed = op == PEERDMA_OP_PROCESS || peerdma_copies_streamed(board);
		job->path = streamed ? PATH_STREAM : PATH_STAGED;
		from_card = streamed ? board->stream_window :
				       board->staging_base + job->channel * board->staging;
		to_card = from_card;
	} else {
		streamed = board->stream_window &&
			   (source ? to_card : from_card) == board->stream_window;
		job->path = !streamed ? PATH_CARD : source ? PATH_SEND : PATH_RECEIVE;
		if (!peerdma_job_owns_stream(job))
			error = peerdma_submit_check_card(job->file, op,
							  source ? to_card : from_card,
							  job->length);
	}
	if (error)
		return error;

	if (source)
		submit_set_leg(job, PEERDMA_H2C, source, source_offset, to_card);
	if (destination)
		submit_set_leg(job, PEERDMA_C2H, destination, destination_offset, from_card);
	return peerdma_fence_submit(job);
}

/**
 * peerdma_submit_check_live() - checks that memory is not being let go
 * @file: notes why not
 * @surface: the memory. Its board's lock is held
 *
 * Return: 0, -EINVAL or -ESTALE.
 */
int peerdma_submit_check_live(struct peerdma_file *file, const struct peerdma_surface *surface)
{
	if (surface->draining)
		return peerdma_fail(file, -EINVAL, "the memory is being unpinned");
	if (surface->state != PEERDMA_SURFACE_LIVE)
		return peerdma_fail(file, -ESTALE,
				    "the memory was freed or moved by its owner: unpin it");
	return 0;
}

/* Called with the board's lock held. */
static int submit_check(const struct peerdma_job *job, bool notify)
{
	struct peerdma_file *file = job->file;
	const struct peerdma_engine *engine;
	const struct peerdma_use *use;

	if (file->board->state == PEERDMA_BOARD_DEAD)
		return peerdma_fail(file, -ENODEV, "the board is gone");
	if (job->generation && job->generation != file->board->generation)
		return peerdma_fail(file, -ESTALE,
				    "generation %u was asked for, the board is at %u: what was in card RAM is lost",
				    job->generation, file->board->generation);
	if (notify && file->job_count >= PEERDMA_MAX_JOBS)
		return peerdma_fail(file, -EAGAIN,
				    "%u jobs are outstanding, as many as may be: read() their events",
				    file->job_count);
	for_each_engine(engine, file->board)
		if (job->length && engine->job && engine->job->run.keeps &&
		    peerdma_stop_kept_from(engine->job, job))
			return peerdma_fail_busy(file, engine->job->file->opener);
	if (peerdma_partition_stream_taken(job))
		return peerdma_fail(file, -EACCES,
				    "another open file has the user stream of channel %u for itself, by jobs of a launch queue",
				    job->channel);
	/* Others wait for the job. */
	if (job->fence && file->board->broken)
		return peerdma_fail(file, -EBUSY, "the board is being reset: try again");
	if (job->fence && file->receiving)
		return peerdma_fail(file, -EBUSY,
				    "a job for a dma-buf must not wait behind jobs of the same open file that receive from the user stream: submit it before them, or open the node once more");
	for_each_use(use, job) {
		int error = peerdma_submit_check_live(file, use->surface);

		if (error)
			return error;
	}
	return 0;
}

/* Called with the board's lock held. */
static void submit_hold(struct peerdma_job *job)
{
	struct peerdma_use *use;

	for_each_use(use, job)
		use->surface->inflight++;
}

/*
 * Whether a job of another file that runs uses the same user stream; or of any, where that may have
 * to be flushed, for which others would wait until its end.
 */
static bool submit_meets_stream(const struct peerdma_job *job)
{
	const struct peerdma_engine *engine;
	const struct peerdma_job *other;

	for_each_engine(engine, job->file->board) {
		other = engine->job;
		if (other && other->channel == job->channel && peerdma_job_streams(other) &&
		    (other->file != job->file || peerdma_job_takes_packets(job)))
			return true;
	}
	return false;
}

/* Called with the board's lock held. */
static int submit_launch(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	int error;

	if (peerdma_partition_bars(job))
		return peerdma_fail(file, -EACCES,
				    "the card RAM has become another open file's own");
	if (peerdma_job_owns_stream(job) && submit_meets_stream(job))
		return peerdma_fail(file, -EBUSY,
				    "another job uses the user stream of channel %u: try again",
				    job->channel);
	error = peerdma_launch_queue_start(job);
	switch (error) {
	case -EAGAIN:
		return peerdma_fail(file, -EBUSY,
				    "the board is suspended or being reset: try again");
	case -EBUSY:
		return peerdma_fail(file, error, "all %u launch queues of the board are in use",
				    file->board->hw_queue_count);
	case -ENOENT:
		return peerdma_fail(file, error, "the launch queue has ended");
	case -ENOSPC:
		return peerdma_fail(file, error,
				    "no slot is left of the board's %u, of which a copy or a packet takes two: take other jobs from theirs",
				    PEERDMA_LAUNCH_SLOTS);
	default:
		return error;
	}
}

/**
 * peerdma_submit_job() - queues a job for the engine, or has launch queues start it
 * @job: prepared
 * @notify: when the job ends there is an event to be read, which takes over the caller's
 *	reference; otherwise the caller waits for job->finished
 *
 * Process context. While the board is frozen the job waits.
 *
 * Return: 0; or an errno that was explained if the job was not accepted.
 */
int peerdma_submit_job(struct peerdma_job *job, bool notify)
{
	struct peerdma_file *file = job->file;
	struct peerdma_dev *board = file->board;
	int error;

	spin_lock_irq(&board->lock);
	error = submit_check(job, notify);
	if (!error && peerdma_job_launches(job))
		error = submit_launch(job);
	if (error) {
		spin_unlock_irq(&board->lock);
		return error;
	}
	/* The memory stays mapped from here on. */
	submit_hold(job);
	kref_get(&job->ref);
	if (notify) {
		list_add_tail(&job->on_file, &file->jobs);
		file->job_count++;
	}
	if (!peerdma_job_launches(job)) {
		if (job->length)
			peerdma_dispatch_add(job);
		else
			peerdma_job_end(job);
	}
	spin_unlock_irq(&board->lock);

	peerdma_dispatch_pump(board);
	return 0;
}

/*
 * Submits a job and waits until it has ended. Only a fatal signal ends the wait early; the job is
 * then being stopped, and keeps its memory until it has ended.
 */
static int submit_run(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	int error = peerdma_submit_job(job, false);

	if (error)
		return error;
	if (wait_for_completion_killable(&job->finished)) {
		spin_lock_irq(&board->lock);
		peerdma_stop_job(job, -EINTR, PEERDMA_REASON_CANCELLED);
		spin_unlock_irq(&board->lock);
		return -EINTR;
	}
	peerdma_quota_remove_job(job);	/* what tells of it may still hold it */
	return job->error ? peerdma_fail_job(job, job->error) : 0;
}

/**
 * peerdma_submit_transfer() - makes a transfer and waits for it
 * @file: whose
 * @op: enum peerdma_op
 * @source: NULL for PEERDMA_OP_C2H
 * @source_offset: byte in @source, or card address
 * @destination: NULL for PEERDMA_OP_H2C
 * @destination_offset: byte in @destination, or card address
 * @length: bytes, not 0
 * @nanoseconds: the time that it took is added
 *
 * Process context.
 *
 * Return: 0, or an errno that was explained.
 */
int peerdma_submit_transfer(struct peerdma_file *file, u32 op, struct peerdma_surface *source,
			    u64 source_offset, struct peerdma_surface *destination,
			    u64 destination_offset, u64 length, u64 *nanoseconds)
{
	struct peerdma_job *job = peerdma_submit_create(file, JOB_TRANSFER, length);
	int error;

	if (IS_ERR(job))
		return PTR_ERR(job);
	error = peerdma_submit_prepare(job, op, source, source_offset, destination,
				       destination_offset);
	if (!error)
		error = submit_run(job);
	if (!error)
		*nanoseconds += job->nanoseconds;
	peerdma_job_put(job);
	return error;
}
