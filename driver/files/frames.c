// SPDX-License-Identifier: GPL-2.0
/*
 * PEERDMA_IOC_START_RING and PEERDMA_IOC_RELEASE_FRAMES: rings of frames as programs describe them.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "files.h"

#define MOST_FRAMES		256
#define RECORD			sizeof(struct peerdma_frame_record)

static int frames_check(struct peerdma_file *file, const struct peerdma_start_ring *request)
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
static struct peerdma_surface *frames_find(struct peerdma_job *job, u32 handle, u64 offset,
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
		peerdma_job_use(job, surface);
	peerdma_surface_put(surface);
	return error ? ERR_PTR(error) : surface;
}

static int frames_add(struct peerdma_job *job, u32 number, const struct peerdma_frame *wanted)
{
	struct peerdma_frame_place *frame = &job->frame_ring->frames[number];
	struct peerdma_surface *surface;

	if (wanted->reserved)
		return peerdma_fail(job->file, -EINVAL, "frame %u: a reserved member is %u",
				    number, wanted->reserved);
	if (!wanted->length)
		return peerdma_fail(job->file, -EINVAL, "frame %u has no bytes", number);
	surface = frames_find(job, wanted->handle, wanted->offset, wanted->length);
	if (IS_ERR(surface))
		return PTR_ERR(surface);
	frame->surface = surface;
	frame->offset = wanted->offset;
	frame->length = wanted->length;
	job->frame_ring->needs_sync |= surface->needs_sync;
	job->length += wanted->length;
	return 0;
}

static int frames_add_records(struct peerdma_job *job, const struct peerdma_start_ring *request)
{
	struct peerdma_frame_ring *ring = job->frame_ring;
	struct peerdma_surface *surface;

	if (!request->records_handle)
		return 0;
	surface = frames_find(job, request->records_handle, request->records_offset,
			      request->count * RECORD);
	if (IS_ERR(surface))
		return PTR_ERR(surface);
	ring->records = surface;
	ring->records_offset = request->records_offset;
	ring->needs_sync |= surface->needs_sync;
	return 0;
}

/* Fills in a new job as a program describes it. */
static int frames_fill(struct peerdma_job *job, const struct peerdma_start_ring *request,
		       const struct peerdma_frame *frames)
{
	int error = peerdma_frame_ring_create(job, request->count);
	u32 n;

	if (error)
		return error;
	for (n = 0; !error && n < request->count; n++)
		error = frames_add(job, n, &frames[n]);
	if (!error)
		error = frames_add_records(job, request);
	if (error)
		return error;
	if (!peerdma_frame_ring_measure(job->frame_ring))
		return peerdma_fail(job->file, -EINVAL,
				    "the frames are in more than %u pieces: use fewer, smaller or less scattered ones",
				    PEERDMA_CHAIN_ROOM);
	job->frame_ring->fresh = request->flags & PEERDMA_RING_FRESH;
	job->user_data = request->user_data;
	job->path = PATH_RECEIVE;
	job->legs[PEERDMA_C2H].used = true;
	job->legs[PEERDMA_C2H].card = job->file->board->stream_window;
	job->legs[PEERDMA_C2H].length = job->length;
	return peerdma_fence_submit(job);
}

/**
 * peerdma_frames_start() - PEERDMA_IOC_START_RING
 * @file: whose
 * @request: the request, its flags are known ones; the job's number is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_frames_start(struct peerdma_file *file, struct peerdma_start_ring *request)
{
	struct peerdma_frame *frames;
	struct peerdma_job *job;
	int error = frames_check(file, request);

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
	job = peerdma_job_create(file, 0);
	if (IS_ERR(job)) {
		kvfree(frames);
		return PTR_ERR(job);
	}
	error = frames_fill(job, request, frames);
	kvfree(frames);
	request->job = job->id;
	if (!error)
		error = peerdma_submit_job(job, true);
	if (error)
		peerdma_job_put(job);
	return error;
}

/**
 * peerdma_frames_release() - PEERDMA_IOC_RELEASE_FRAMES
 * @file: whose
 * @request: the request, its flags are known ones
 *
 * Return: 0 or an errno.
 */
int peerdma_frames_release(struct peerdma_file *file, struct peerdma_release_frames *request)
{
	struct peerdma_job *job = peerdma_job_find(file, request->job);
	int error = -ENOENT;

	if (job && !job->frame_ring)
		error = peerdma_fail(file, -EINVAL, "job %llu has no frames", request->job);
	else if (job)
		error = peerdma_frame_ring_release(job->frame_ring, request->count);
	if (error == -ENOENT)
		peerdma_fail(file, error, "job %llu has ended, or never was", request->job);
	else if (error == -EINVAL && job->frame_ring)
		peerdma_fail(file, error,
			     "%llu frames since the start are more than have been filled",
			     request->count);
	if (job)
		peerdma_job_put(job);
	return error;
}
