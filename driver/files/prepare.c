// SPDX-License-Identifier: GPL-2.0-only
/*
 * PEERDMA_IOC_PREPARE and PEERDMA_IOC_UNPREPARE: jobs for GPUs to start.
 */
#include <linux/bitfield.h>
#include <linux/nospec.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "files.h"

/* What one start may move: jobs of others for the same channel wait so long. */
#define MOST_BYTES		SZ_16M
#define RECORD			sizeof(struct peerdma_frame_record)
#define KNOWN_FLAGS		(PEERDMA_PREPARE_DONE | PEERDMA_PREPARE_RECEIVE | \
				 PEERDMA_PREPARE_OVERLAP)

/**
 * struct prepare_memory - what a job is for, with references
 * @source: NULL: the card
 * @destination: NULL: the card
 * @record: of a packet; NULL: there is none
 */
struct prepare_memory {
	struct peerdma_surface *source;
	struct peerdma_surface *destination;
	struct peerdma_surface *record;
};

static int prepare_check_packet(struct peerdma_file *file, const struct peerdma_prepare *request)
{
	const struct peerdma_dev *board = file->board;

	if (!(request->flags & PEERDMA_PREPARE_RECEIVE)) {
		if (!request->record_handle && !request->record_offset)
			return 0;
		return peerdma_fail(file, -EINVAL,
				    "a record, handle %u at byte %llu, but no flag that a packet is received",
				    request->record_handle, request->record_offset);
	}
	if (!(board->capabilities & PEERDMA_CAPABILITY_RECEIVE))
		return peerdma_fail(file, -EOPNOTSUPP,
				    "launch queues of this board take no packets: it has none, or no frames with records, or older gateware");
	if (request->op != PEERDMA_OP_C2H || request->src_offset != board->stream_window)
		return peerdma_fail(file, -EINVAL,
				    "a packet comes from the stream window, %#llx, by PEERDMA_OP_C2H: not from %#llx by operation %u",
				    board->stream_window, request->src_offset, request->op);
	return 0;
}

static int prepare_check(struct peerdma_file *file, const struct peerdma_prepare *request)
{
	if (request->flags & ~KNOWN_FLAGS || request->reserved)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x, or a reserved member %u",
				    request->flags, request->reserved);
	if (request->done && !(request->flags & PEERDMA_PREPARE_DONE))
		return peerdma_fail(file, -EINVAL,
				    "a done word at byte %llu, but no flag that there is one",
				    request->done);
	if (request->op > PEERDMA_OP_COPY)
		return peerdma_fail(file, -EINVAL,
				    "a launch queue copies to the card, from it, or memory to memory: operation %u is none of these",
				    request->op);
	if (request->flags & PEERDMA_PREPARE_OVERLAP && request->op != PEERDMA_OP_COPY)
		return peerdma_fail(file, -EINVAL,
				    "the flag that jobs may overlap is for copies: operation %u is none",
				    request->op);
	if (!request->length || request->length > MOST_BYTES)
		return peerdma_fail(file, -EINVAL,
				    "a job of a launch queue moves 1 to %u bytes, not %llu",
				    MOST_BYTES, request->length);
	return prepare_check_packet(file, request);
}

/* What the board writes to a GPU is there, when a read of it has come back; see docs/queue.md. */
static int prepare_set_flush_at(struct peerdma_job *job, const struct peerdma_surface *surface,
				u64 offset)
{
	struct peerdma_slot *slot = &job->slot;

	if (surface->placement == PEERDMA_PLACEMENT_HOST)
		return 0;
	if (surface->placement == PEERDMA_PLACEMENT_MIXED)
		return peerdma_fail(job->file, -EOPNOTSUPP,
				    "the destination is partly in host memory and partly in a device");
	if (!(surface->access & PEERDMA_ACCESS_READ))
		return peerdma_fail(job->file, -EINVAL,
				    "the board reads what it has written to a device, before it says that it is done: pin the destination for both");
	slot->control |= PEERDMA_LAUNCH_SLOT_CONTROL_FLUSH;
	peerdma_chain_address(surface, offset, 1, &slot->flush);
	slot->flush = round_down(slot->flush, sizeof(u32));
	return 0;
}

/* One read pushes all writes to the same function. */
static bool prepare_shares_device(const struct peerdma_surface *one,
				  const struct peerdma_surface *other)
{
	return one == other || (one->placement == PEERDMA_PLACEMENT_PEER &&
				other->placement == PEERDMA_PLACEMENT_PEER &&
				!strcmp(one->peer, other->peer));
}

static int prepare_set_flush(struct peerdma_job *job)
{
	const struct peerdma_leg *leg = &job->legs[PEERDMA_C2H];
	const struct peerdma_slot *slot = &job->slot;
	int error;

	if (!leg->used)
		return 0;
	error = prepare_set_flush_at(job, leg->surface, leg->offset + leg->length - 1);
	if (error || !slot->record)
		return error;
	if (slot->control & PEERDMA_LAUNCH_SLOT_CONTROL_FLUSH &&
	    slot->record->placement != PEERDMA_PLACEMENT_HOST &&
	    !prepare_shares_device(leg->surface, slot->record))
		return peerdma_fail(job->file, -EOPNOTSUPP,
				    "a frame and its record are in different devices: the board reads back one of them only");
	return prepare_set_flush_at(job, slot->record, slot->record_offset);
}

/* Before the job is prepared, which waits for what others do with its memory. */
static int prepare_set_record(struct peerdma_job *job, const struct peerdma_prepare *request,
			      struct peerdma_surface *record)
{
	u64 bus;
	int error;

	if (!record)
		return 0;
	error = peerdma_submit_check_side(job->file, record, request->record_offset, RECORD,
					  PEERDMA_ACCESS_WRITE);
	if (error)
		return error;
	if (!peerdma_chain_address(record, request->record_offset, RECORD, &bus) ||
	    !IS_ALIGNED(bus, RECORD))
		return peerdma_fail(job->file, -EINVAL,
				    "the record of a packet, byte %llu of its memory, is not at a multiple of %zu",
				    request->record_offset, RECORD);
	peerdma_submit_use(job, record);
	job->slot.record = record;
	job->slot.record_offset = request->record_offset;
	return 0;
}

/* Of one direction: copies need what is in the stream to be theirs. */
static int prepare_check_stream(const struct peerdma_job *job)
{
	const struct peerdma_dev *board = job->file->board;
	bool sends = job->path == PATH_SEND;

	if (peerdma_copies_streamed(board))
		return peerdma_fail(job->file, -EOPNOTSUPP,
				    "copies of this board go through its user stream: a launch queue only copies through it");
	if (board->user_ratio & (sends ? PEERDMA_EXTENSION_USER_RATIO_BYTES_IN :
					 PEERDMA_EXTENSION_USER_RATIO_BYTES_OUT))
		return 0;
	return peerdma_fail(job->file, -EOPNOTSUPP, "the user block of this board %s no bytes",
			    sends ? "takes" : "makes");
}

static int prepare_set_control(struct peerdma_job *job, const struct peerdma_prepare *request)
{
	const struct peerdma_use *use;
	int error;

	error = peerdma_job_owns_stream(job) ? prepare_check_stream(job) : 0;
	if (error)
		return error;
	if (job->path == PATH_STAGED)
		return peerdma_fail(job->file, -EOPNOTSUPP,
				    "copies of this board go through card RAM, in steps: a launch queue has none");
	for_each_use(use, job)
		if (use->surface->needs_sync)
			return peerdma_fail(job->file, -EOPNOTSUPP,
					    "board and CPU do not see each other's writes to this memory at once");
	job->slot.control = FIELD_PREP(PEERDMA_LAUNCH_SLOT_CONTROL_CHANNEL, job->channel);
	if (request->op == PEERDMA_OP_C2H)
		job->slot.control |= PEERDMA_LAUNCH_SLOT_CONTROL_C2H;
	if (request->op == PEERDMA_OP_COPY)
		job->slot.control |= PEERDMA_LAUNCH_SLOT_CONTROL_PAIR;
	/*
	 * Not for packets, nor card RAM, where reads of an earlier job may come last. Nor for copies
	 * that may read what an earlier one writes.
	 */
	if (job->slot.record)
		job->slot.control |= PEERDMA_LAUNCH_SLOT_CONTROL_RECEIVE;
	else if (request->op == PEERDMA_OP_C2H || job->path == PATH_SEND ||
		 request->flags & PEERDMA_PREPARE_OVERLAP)
		job->slot.control |= PEERDMA_LAUNCH_SLOT_CONTROL_OVERLAP;
	error = prepare_set_flush(job);
	if (error || !(request->flags & PEERDMA_PREPARE_DONE))
		return error;
	job->slot.control |= PEERDMA_LAUNCH_SLOT_CONTROL_DONE;
	return peerdma_launch_uapi_find_done(job->slot.queue, request->done, &job->slot.done);
}

static int prepare_build(struct peerdma_job *job, u32 engine)
{
	const struct peerdma_leg *leg = &job->legs[engine];
	const struct peerdma_slot *slot = &job->slot;
	struct peerdma_chain *chain = &job->slot.chains[engine];
	u32 count;

	if (!leg->used)
		return 0;
	count = peerdma_chain_length(leg->surface, leg->offset, leg->length);
	count += !!slot->record;
	if (count > PEERDMA_CHAIN_ROOM)
		return peerdma_fail(job->file, -EINVAL,
				    "the memory is in more than %u pieces: use less, or memory that is less scattered",
				    PEERDMA_CHAIN_ROOM);
	chain->c2h = engine == PEERDMA_C2H;
	if (peerdma_chain_alloc(job->file->board, chain, count))
		return -ENOMEM;
	if (slot->record)
		peerdma_chain_build_packet(chain, leg, slot->record, slot->record_offset);
	else
		peerdma_chain_build(chain, leg->surface, leg->offset, leg->card,
				    peerdma_job_streams(job), leg->length, &count);
	return 0;
}

/* The board may be unbound from the driver at any time, but for here. */
static int prepare_submit(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	int error;

	if (down_read_killable(&board->gate))
		return peerdma_fail(job->file, -EINTR, "killed while the board was being reset");
	if (board->state == PEERDMA_BOARD_DEAD)
		error = peerdma_fail(job->file, -ENODEV, "the board is gone");
	else
		error = prepare_build(job, PEERDMA_H2C) ?: prepare_build(job, PEERDMA_C2H);
	if (!error)
		error = peerdma_submit_job(job, false);
	if (error)
		peerdma_job_free_chains(job);
	up_read(&board->gate);
	return error;
}

static int prepare_job(struct peerdma_job *job, struct peerdma_job *queue,
		       struct peerdma_prepare *request, const struct prepare_memory *memory)
{
	int error;

	job->slot.queue = queue;
	error = prepare_set_record(job, request, memory->record);
	if (!error)
		error = peerdma_submit_prepare(job, request->op, memory->source,
					       request->src_offset, memory->destination,
					       request->dst_offset);
	if (!error)
		error = prepare_set_control(job, request);
	if (!error)
		error = prepare_submit(job);
	request->slot = job->slot.number;
	return error;
}

static int prepare_run(struct peerdma_file *file, struct peerdma_prepare *request,
		       const struct prepare_memory *memory)
{
	struct peerdma_job *queue = peerdma_launch_uapi_find(file, request->queue);
	struct peerdma_job *job;
	int error;

	if (IS_ERR(queue))
		return PTR_ERR(queue);
	job = peerdma_submit_create(file, JOB_SLOT, request->length);
	error = PTR_ERR_OR_ZERO(job);
	if (!error) {
		error = prepare_job(job, queue, request, memory);
		peerdma_job_put(job);
	}
	peerdma_job_put(queue);
	return error;
}

/**
 * peerdma_prepare() - PEERDMA_IOC_PREPARE
 * @file: whose
 * @request: the request; the slot is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_prepare(struct peerdma_file *file, struct peerdma_prepare *request)
{
	bool receives = request->flags & PEERDMA_PREPARE_RECEIVE;
	struct prepare_memory memory = {};
	int error = prepare_check(file, request);

	if (!error)
		error = peerdma_job_uapi_find_end(file, request->src_handle,
						  request->op == PEERDMA_OP_C2H, &memory.source);
	if (!error)
		error = peerdma_job_uapi_find_end(file, request->dst_handle,
						  request->op == PEERDMA_OP_H2C,
						  &memory.destination);
	if (!error)
		error = peerdma_job_uapi_find_end(file, request->record_handle, !receives,
						  &memory.record);
	if (!error)
		error = prepare_run(file, request, &memory);
	if (memory.source)
		peerdma_surface_put(memory.source);
	if (memory.destination)
		peerdma_surface_put(memory.destination);
	if (memory.record)
		peerdma_surface_put(memory.record);
	return error;
}

/* The job in a slot of a queue, with a reference; NULL if there is none. */
static struct peerdma_job *prepare_find(const struct peerdma_job *queue, u32 slot)
{
	struct peerdma_dev *board = queue->file->board;
	struct peerdma_job *job = NULL;

	spin_lock_irq(&board->lock);
	if (slot < PEERDMA_LAUNCH_SLOTS)
		job = board->slots[array_index_nospec(slot, PEERDMA_LAUNCH_SLOTS)];
	if (job && (job->slot.queue != queue || job->slot.number != slot))
		job = NULL;
	if (job)
		kref_get(&job->ref);
	spin_unlock_irq(&board->lock);
	return job;
}

/**
 * peerdma_prepare_undo() - PEERDMA_IOC_UNPREPARE
 * @file: whose
 * @request: the request
 *
 * Return: 0 or an errno.
 */
int peerdma_prepare_undo(struct peerdma_file *file, struct peerdma_unprepare *request)
{
	struct peerdma_job *queue, *job;
	int error;

	if (request->flags || request->reserved)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x, or a reserved member %u",
				    request->flags, request->reserved);
	queue = peerdma_launch_uapi_find(file, request->queue);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	job = prepare_find(queue, request->slot);
	peerdma_job_put(queue);
	if (!job)
		return peerdma_fail(file, -ENOENT, "slot %u of this queue has no job",
				    request->slot);
	spin_lock_irq(&file->board->lock);
	peerdma_stop_job(job, -ECANCELED, PEERDMA_REASON_CANCELLED);
	spin_unlock_irq(&file->board->lock);
	error = wait_for_completion_killable(&job->finished) ? -EINTR : 0;
	if (!error)
		peerdma_quota_remove_job(job);
	peerdma_job_put(job);
	return error;
}
