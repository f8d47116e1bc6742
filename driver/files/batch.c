// SPDX-License-Identifier: GPL-2.0
/*
 * PEERDMA_IOC_SUBMIT and PEERDMA_IOC_SUBMIT_BATCH: jobs as programs describe them.
 */
#include <linux/eventfd.h>
#include <linux/uaccess.h>

#include "files.h"

/**
 * peerdma_batch_find_end() - looks up one end of a job
 * @file: whose
 * @handle: as the program has it
 * @on_card: that end is on the card
 * @surface: set to its memory, with a reference, unless @on_card
 *
 * Return: 0 or -EINVAL, explained.
 */
int peerdma_batch_find_end(struct peerdma_file *file, u32 handle, bool on_card,
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

static int batch_set_eventfd(struct peerdma_job *job, const struct peerdma_submit *submit)
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

static int batch_submit_job(struct peerdma_file *file, struct peerdma_submit *submit,
			    struct peerdma_surface *source, struct peerdma_surface *destination,
			    u64 __user *told)
{
	struct peerdma_job *job = peerdma_job_create(file, submit->length);
	int error;

	if (IS_ERR(job))
		return PTR_ERR(job);
	job->user_data = submit->user_data;
	job->generation = submit->generation;
	if (submit->op == PEERDMA_OP_PROCESS)
		job->legs[PEERDMA_C2H].length = submit->dst_length;
	submit->job = job->id;
	error = batch_set_eventfd(job, submit);
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

/* With @told, the program has the job's number there before anything is done. */
static int batch_submit(struct peerdma_file *file, struct peerdma_submit *submit,
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
	error = peerdma_batch_find_end(file, submit->src_handle, submit->op == PEERDMA_OP_C2H,
				       &source);
	if (!error)
		error = peerdma_batch_find_end(file, submit->dst_handle,
					       submit->op == PEERDMA_OP_H2C, &destination);
	if (!error)
		error = batch_submit_job(file, submit, source, destination, told);
	if (source)
		peerdma_surface_put(source);
	if (destination)
		peerdma_surface_put(destination);
	return error;
}

/**
 * peerdma_batch_one() - PEERDMA_IOC_SUBMIT
 * @file: whose
 * @submit: the request; the job's number is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_batch_one(struct peerdma_file *file, struct peerdma_submit *submit)
{
	return batch_submit(file, submit, NULL);
}

/**
 * peerdma_batch() - PEERDMA_IOC_SUBMIT_BATCH
 * @file: whose
 * @batch: the request; what came of it is filled in
 *
 * Return: 0 or an errno; an error of a job is in @batch.
 */
int peerdma_batch(struct peerdma_file *file, struct peerdma_submit_batch *batch)
{
	void __user *at = u64_to_user_ptr(batch->submits);
	struct peerdma_submit submit;
	int size;

	if (batch->flags || batch->reserved)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x, or a reserved member %u",
				    batch->flags, batch->reserved);
	if (batch->count > PEERDMA_MAX_JOBS)
		return peerdma_fail(file, -EINVAL, "a batch has at most %u jobs, not %u",
				    PEERDMA_MAX_JOBS, batch->count);
	batch->error = 0;
	for (batch->taken = 0; batch->taken < batch->count; batch->taken++) {
		size = peerdma_args_copy(file, &submit, sizeof(submit),
					 offsetofend(struct peerdma_submit, job), at);
		batch->error = size;
		if (size > 0)
			batch->error = batch_submit(file, &submit,
						    at + offsetof(struct peerdma_submit, job));
		if (batch->error)
			break;
		at += size;
	}
	return 0;
}
