// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs as programs describe them: transfers that are submitted, and rings of frames.
 */
#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "files.h"

#define MOST_FRAMES		256
#define RECORD			sizeof(struct peerdma_frame_record)

/**
 * peerdma_job_uapi_find_end() - looks up one end of a job
 * @file: whose
 * @handle: as the program has it
 * @on_card: that end is on the card
 * @surface: set to its memory, with a reference, unless @on_card
 *
 * Return: 0 or -EINVAL, explained.
 */
int peerdma_job_uapi_find_end(struct peerdma_file *file, u32 handle, bool on_card,
			      struct peerdma_surface **surface)
{
	if (on_card && handle)
		return peerdma_fail(file, -EINVAL, "the card has no handle, but %u was given",
				    handle);
	if (on_card)
		return 0;
	*surface = peerdma_surface_find(file, handle);
	if (!*surface)
		return peerdma_fail(file, -EINVAL, "no memory is pinned as handle %u", handle);
	return 0;
}

static int job_uapi_set_eventfd(struct peerdma_job *job, const struct peerdma_submit *submit)
{
	struct eventfd_ctx *eventfd;

	if (!(submit->flags & PEERDMA_SUBMIT_EVENTFD))
		return 0;
	eventfd = eventfd_ctx_fdget(submit->eventfd);
	if (IS_ERR(eventfd))
		return peerdma_fail(job->file, PTR_ERR(eventfd), "descriptor %d is no eventfd",
				    submit->eventfd);
	job->eventfd = eventfd;
	return 0;
}

static int job_uapi_submit(struct peerdma_file *file, struct peerdma_submit *submit,
			   struct peerdma_surface *source, struct peerdma_surface *destination,
			   u64 __user *told)
{
	struct peerdma_job *job = peerdma_submit_create(file, JOB_TRANSFER, submit->length);
	int error;

	if (IS_ERR(job))
		return PTR_ERR(job);
	job->user_data = submit->user_data;
	job->generation = submit->generation;
	if (submit->op == PEERDMA_OP_PROCESS)
		job->legs[PEERDMA_C2H].length = submit->dst_length;
	submit->job = job->id;
	error = job_uapi_set_eventfd(job, submit);
	/* This may take as long as the program likes: others must not wait for the job yet. */
	if (!error && told && put_user(job->id, told))
		error = -EFAULT;
	if (!error)
		error = peerdma_submit_prepare(job, submit->op, source, submit->src_offset,
					       destination, submit->dst_offset);
	if (!error)
		error = peerdma_submit_job(job, true);
	if (error)
		peerdma_job_put(job);
	return error;
}

/**
 * peerdma_job_uapi_submit() - a job of PEERDMA_IOC_SUBMIT or PEERDMA_IOC_SUBMIT_BATCH
 * @file: whose
 * @submit: the job; its number is filled in
 * @told: where the program has the number before anything is done; NULL: afterwards is enough
 *
 * Return: 0 or an errno.
 */
int peerdma_job_uapi_submit(struct peerdma_file *file, struct peerdma_submit *submit,
			    u64 __user *told)
{
	struct peerdma_surface *source = NULL, *destination = NULL;
	int error;

	if (submit->flags & ~PEERDMA_SUBMIT_EVENTFD)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", submit->flags);
	if (submit->queue || (submit->eventfd && !(submit->flags & PEERDMA_SUBMIT_EVENTFD)))
		return peerdma_fail(file, -EINVAL,
				    "queue %u, eventfd %d: no queue can be named, and an eventfd only with its flag",
				    submit->queue, submit->eventfd);
	if (submit->op > PEERDMA_OP_PROCESS)
		return peerdma_fail(file, -EINVAL, "unknown operation %u", submit->op);
	if (submit->dst_length && submit->op != PEERDMA_OP_PROCESS)
		return peerdma_fail(file, -EINVAL,
				    "a destination of %llu bytes: its length is that of the source, except for PEERDMA_OP_PROCESS",
				    submit->dst_length);
	error = peerdma_job_uapi_find_end(file, submit->src_handle, submit->op == PEERDMA_OP_C2H,
					  &source);
	if (!error)
		error = peerdma_job_uapi_find_end(file, submit->dst_handle,
						  submit->op == PEERDMA_OP_H2C, &destination);
	if (!error)
		error = job_uapi_submit(file, submit, source, destination, told);
	if (source)
		peerdma_surface_put(source);
	if (destination)
		peerdma_surface_put(destination);
	return error;
}

static int job_uapi_check_ring(struct peerdma_file *file, const struct peerdma_start_ring *request)
{
	const struct peerdma_dev *board = file->board;

	if (!board->stream_window)
		return peerdma_fail(file, -EOPNOTSUPP, "this board has no user block");
	if (!request->count || request->count > MOST_FRAMES)
		return peerdma_fail(file, -EINVAL, "a ring has 1 to %u frames, not %u",
				    MOST_FRAMES, request->count);
	if (!request->records_handle && request->records_offset)
		return peerdma_fail(file, -EINVAL,
				    "a place for records, %llu, but no memory for them",
				    request->records_offset);
	if (!request->records_handle)
		return 0;
	if (!(board->capabilities & PEERDMA_CAPABILITY_FRAME_RECORDS))
		return peerdma_fail(file, -EOPNOTSUPP, "this board makes no records of frames");
	if (!(request->flags & PEERDMA_RING_FRESH))
		return peerdma_fail(file, -EINVAL,
				    "frames that are in the stream already have no records: discard them, with PEERDMA_RING_FRESH");
	if (request->records_offset % RECORD)
		return peerdma_fail(file, -EINVAL, "records are at multiples of %zu, not at %llu",
				    RECORD, request->records_offset);
	return 0;
}

/* Looks up memory for the board to write. Notes it in the job, once, which then keeps it. */
static struct peerdma_surface *job_uapi_find_frame(struct peerdma_job *job, u32 handle, u64 offset,
						   u64 length)
{
	struct peerdma_surface *surface = peerdma_surface_find(job->file, handle);
	const struct peerdma_use *use;
	bool known = false;
	int error;

	if (!surface) {
		error = peerdma_fail(job->file, -EINVAL, "no memory is pinned as handle %u",
				     handle);
		return ERR_PTR(error);
	}
	error = peerdma_submit_check_side(job->file, surface, offset, length,
					  PEERDMA_ACCESS_WRITE);
	for_each_use(use, job)
		known |= use->surface == surface;
	if (!error && !known)
		peerdma_submit_use(job, surface);
	peerdma_surface_put(surface);
	return error ? ERR_PTR(error) : surface;
}

static int job_uapi_add_frame(struct peerdma_job *job, u32 number,
			      const struct peerdma_frame *wanted)
{
	struct peerdma_frame_place *frame = &job->run.frame_ring->frames[number];
	struct peerdma_surface *surface;

	if (wanted->reserved)
		return peerdma_fail(job->file, -EINVAL, "frame %u: a reserved member is %u",
				    number, wanted->reserved);
	if (!wanted->length)
		return peerdma_fail(job->file, -EINVAL, "frame %u has no bytes", number);
	surface = job_uapi_find_frame(job, wanted->handle, wanted->offset, wanted->length);
	if (IS_ERR(surface))
		return PTR_ERR(surface);
	frame->surface = surface;
	frame->offset = wanted->offset;
	frame->length = wanted->length;
	job->run.frame_ring->needs_sync |= surface->needs_sync;
	job->length += wanted->length;
	return 0;
}

static int job_uapi_add_records(struct peerdma_job *job, const struct peerdma_start_ring *request)
{
	struct peerdma_frame_ring *ring = job->run.frame_ring;
	struct peerdma_surface *surface;

	if (!request->records_handle)
		return 0;
	surface = job_uapi_find_frame(job, request->records_handle, request->records_offset,
				      request->count * RECORD);
	if (IS_ERR(surface))
		return PTR_ERR(surface);
	ring->records = surface;
	ring->records_offset = request->records_offset;
	ring->needs_sync |= surface->needs_sync;
	return 0;
}

/* Fills in a new job as a program describes it. */
static int job_uapi_fill_ring(struct peerdma_job *job, const struct peerdma_start_ring *request,
			      const struct peerdma_frame *frames)
{
	int error = peerdma_frame_ring_create(job, request->count);
	u32 n;

	if (error)
		return error;
	for (n = 0; !error && n < request->count; n++)
		error = job_uapi_add_frame(job, n, &frames[n]);
	if (!error)
		error = job_uapi_add_records(job, request);
	if (error)
		return error;
	if (!peerdma_frame_ring_measure(job->run.frame_ring))
		return peerdma_fail(job->file, -EINVAL,
				    "the frames are in more than %u pieces: use fewer, smaller or less scattered ones",
				    PEERDMA_CHAIN_ROOM);
	job->run.frame_ring->fresh = request->flags & PEERDMA_RING_FRESH;
	job->user_data = request->user_data;
	job->path = PATH_RECEIVE;
	job->legs[PEERDMA_C2H].used = true;
	job->legs[PEERDMA_C2H].card = job->file->board->stream_window;
	job->legs[PEERDMA_C2H].length = job->length;
	return peerdma_fence_submit(job);
}

/**
 * peerdma_job_uapi_start_ring() - PEERDMA_IOC_START_RING
 * @file: whose
 * @request: the request, its flags are known ones; the job's number is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_job_uapi_start_ring(struct peerdma_file *file, struct peerdma_start_ring *request)
{
	struct peerdma_frame *frames;
	struct peerdma_job *job;
	int error = job_uapi_check_ring(file, request);

	if (error)
		return error;
	frames = kvmalloc_array(request->count, sizeof(*frames), PEERDMA_GFP_ARRAY);
	if (!frames)
		return -ENOMEM;
	if (copy_from_user(frames, u64_to_user_ptr(request->frames),
			   request->count * sizeof(*frames))) {
		kvfree(frames);
		return -EFAULT;
	}
	job = peerdma_submit_create(file, JOB_FRAMES, 0);
	if (IS_ERR(job)) {
		kvfree(frames);
		return PTR_ERR(job);
	}
	error = job_uapi_fill_ring(job, request, frames);
	kvfree(frames);
	request->job = job->id;
	if (!error)
		error = peerdma_submit_job(job, true);
	if (error)
		peerdma_job_put(job);
	return error;
}

/**
 * peerdma_job_uapi_release_frames() - PEERDMA_IOC_RELEASE_FRAMES
 * @file: whose
 * @request: the request, its flags are known ones
 *
 * Return: 0 or an errno.
 */
int peerdma_job_uapi_release_frames(struct peerdma_file *file,
				    struct peerdma_release_frames *request)
{
	struct peerdma_job *job = peerdma_job_find(file, request->job);
	int error = -ENOENT;

	if (job && job->type != JOB_FRAMES)
		error = peerdma_fail(file, -EINVAL, "job %llu has no frames", request->job);
	else if (job)
		error = peerdma_frame_ring_release(job->run.frame_ring, request->count);
	if (error == -ENOENT)
		peerdma_fail(file, error, "job %llu has ended, or never was", request->job);
	else if (error == -EINVAL && job->type == JOB_FRAMES)
		peerdma_fail(file, error,
			     "%llu frames since the start are more than have been filled",
			     request->count);
	if (job)
		peerdma_job_put(job);
	return error;
}
