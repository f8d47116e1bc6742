// SPDX-License-Identifier: GPL-2.0-only
/*
 * The end of a job: what happens once the engine has finished with it.
 */
#include <linux/slab.h>

#include "job.h"

/**
 * peerdma_job_free_chains() - frees the descriptors of a job that was in a slot, or was to be
 * @job: any. May sleep; the board is there
 *
 * Idempotent.
 */
void peerdma_job_free_chains(struct peerdma_job *job)
{
	u32 engine;

	for (engine = 0; job->type == JOB_SLOT && engine < PEERDMA_DIRECTIONS; engine++)
		peerdma_chain_free(job->file->board, &job->slot.chains[engine]);
}

/* Idempotent. */
static void job_drop_uses(struct peerdma_job *job)
{
	struct peerdma_use *use;

	for_each_use(use, job)
		peerdma_surface_put(use->surface);
	job->use_count = 0;
}

static void job_release(struct kref *ref)
{
	struct peerdma_job *job = container_of(ref, struct peerdma_job, ref);

	/* A job that was never submitted still holds its surfaces, and others may wait for it. */
	peerdma_fence_signal(job, -ECANCELED);
	job_drop_uses(job);
	if (job->type == JOB_FRAMES)
		peerdma_frame_ring_free(job);
	if (!peerdma_job_launches(job))
		put_pid(job->run.holder);
	peerdma_quota_remove_job(job);
	peerdma_file_put(job->file);
	if (job->eventfd)
		eventfd_ctx_put(job->eventfd);
	kfree(job);
}

/**
 * peerdma_job_put() - drops a reference
 * @job: may be freed. Process context
 */
void peerdma_job_put(struct peerdma_job *job)
{
	kref_put(&job->ref, job_release);
}

/* The job's data is where the CPU sees it. Called with the board's lock held, in any context. */
static void job_deliver(struct peerdma_job *job)
{
	struct peerdma_use *use;

	peerdma_dispatch_free(job);
	for_each_use(use, job)
		peerdma_surface_leave(use->surface);
	job->delivered = true;
	if (!list_empty(&job->on_file)) {
		/* What a ring had to say before is said with its end. */
		if (list_empty(&job->link))
			list_add_tail(&job->link, &job->file->events);
		peerdma_tell_file(job->file);
	}
	if (!peerdma_job_launches(job))
		complete(&job->finished);
	peerdma_tell_job(job);
}

/**
 * peerdma_job_told() - tells those who wait for a job; see struct peerdma_ops
 * @job: has been delivered; may be freed
 */
void peerdma_job_told(struct peerdma_job *job)
{
	peerdma_fence_signal(job, job->error);
	/* Of a launch queue, or a slot, any number of threads may wait for the end. */
	if (peerdma_job_launches(job))
		complete_all(&job->finished);
	if (job->eventfd)
		compat_eventfd_signal(job->eventfd);
	job_drop_uses(job);
	peerdma_job_put(job);
}

static bool job_wants_sync(const struct peerdma_job *job)
{
	const struct peerdma_leg *leg = &job->legs[PEERDMA_C2H];

	return leg->started && (job->type == JOB_FRAMES ? job->run.frame_ring->needs_sync :
				leg->surface->needs_sync);
}

/* Nobody is told of the end of a queue whose page can still be written to. */
static bool job_wants_zap(const struct peerdma_job *job)
{
	return job->type == JOB_LAUNCH_QUEUE &&
	       (job->launch_queue.hwq->map_offset || job->launch_queue.hwq->exported);
}

/**
 * peerdma_job_reap() - the part of a job's end that may sleep, before its file may know of it
 * @work: the job's
 */
void peerdma_job_reap(struct work_struct *work)
{
	struct peerdma_job *job = container_of(work, struct peerdma_job, reap);
	struct peerdma_dev *board = job->file->board;
	struct peerdma_leg *leg = &job->legs[PEERDMA_C2H];

	/* Who tells of it may drop the last reference but this. */
	kref_get(&job->ref);
	switch (job->type) {
	case JOB_TRANSFER:
		/* What the board did not write of it is what the CPU had there at the start. */
		leg->surface->provider->sync(leg->surface, leg->offset, leg->started, true);
		break;
	case JOB_FRAMES:
		peerdma_frame_ring_reclaim(job->run.frame_ring);
		break;
	case JOB_LAUNCH_QUEUE:
		board->ops->zap(job->launch_queue.hwq);
		break;
	case JOB_SLOT:
		peerdma_job_free_chains(job);
		break;
	}
	spin_lock_irq(&board->lock);
	job_deliver(job);
	spin_unlock_irq(&board->lock);
	peerdma_job_put(job);
}

/**
 * peerdma_job_forget() - the events of jobs have been read, or will not be
 * @file: whose; called with its board's lock held
 * @count: number of jobs
 */
void peerdma_job_forget(struct peerdma_file *file, unsigned int count)
{
	file->job_count -= count;
	/* Who waits for one more waits in vain. */
	if (!file->job_count && file->board->state == PEERDMA_BOARD_DEAD)
		peerdma_tell_file(file);
}

/**
 * peerdma_job_find() - looks up a job that has not ended
 * @file: whose
 * @id: its number
 *
 * Process context.
 *
 * Return: the job with a reference, or NULL.
 */
struct peerdma_job *peerdma_job_find(struct peerdma_file *file, u64 id)
{
	struct peerdma_job *job, *found = NULL;

	spin_lock_irq(&file->board->lock);
	list_for_each_entry(job, &file->jobs, on_file) {
		if (job->id != id || job->ended)
			continue;
		kref_get(&job->ref);
		found = job;
		break;
	}
	spin_unlock_irq(&file->board->lock);
	return found;
}

/**
 * peerdma_job_end() - ends a job that the engine has finished with; see struct peerdma_ops
 * @job: it is in no queue. Called with the board's lock held, in any context
 */
void peerdma_job_end(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;

	job->ended = true;
	if (job->begin)
		job->nanoseconds = ktime_to_ns(ktime_sub(ktime_get(), job->begin));
	if (!peerdma_job_launches(job)) {
		board->jobs++;
		board->failures += !!job->error;
	}
	/* It waits for page faults, which may wait for memory, and that for other jobs. */
	if (job_wants_zap(job))
		queue_work(peerdma_surface_wq, &job->reap);
	else if (job->type == JOB_SLOT || job_wants_sync(job))
		queue_work(peerdma_wq, &job->reap);
	else
		job_deliver(job);
}

/**
 * peerdma_job_cancel() - makes a job of a file end
 * @file: the file
 * @id: its number
 *
 * Does not wait for it. Process context.
 *
 * Return: whether there is such a job that has not ended.
 */
bool peerdma_job_cancel(struct peerdma_file *file, u64 id)
{
	struct peerdma_job *job = peerdma_job_find(file, id);

	if (!job)
		return false;
	spin_lock_irq(&file->board->lock);
	peerdma_stop_job(job, -ECANCELED, PEERDMA_REASON_CANCELLED);
	spin_unlock_irq(&file->board->lock);
	peerdma_job_put(job);
	return true;
}
