// SPDX-License-Identifier: GPL-2.0
/*
 * Jobs: from a request to its completion.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "core.h"

static void job_release(struct kref *ref)
{
	struct peerdma_job *job = container_of(ref, struct peerdma_job, ref);
	struct peerdma_leg *leg;

	/* A job that was never submitted still has them. */
	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++)
		if (leg->surface)
			peerdma_surface_put(leg->surface);
	peerdma_file_put(job->file);
	kfree(job);
}

/**
 * peerdma_job_put() - lets go of a job
 * @job: may be freed. Process context
 */
void peerdma_job_put(struct peerdma_job *job)
{
	kref_put(&job->ref, job_release);
}

/* Called with the board's lock held. */
static void release_surfaces(struct peerdma_job *job)
{
	struct peerdma_leg *leg;

	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++)
		if (leg->used && !--leg->surface->inflight)
			wake_up_all(&leg->surface->idle);
}

/* Called with the board's lock held. */
static void deliver(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;

	release_surfaces(job);
	if (!list_empty(&job->on_file)) {
		list_add_tail(&job->link, &file->events);
		wake_up_all(&file->wait);
	}
	complete_all(&job->finished);
}

static bool wants_sync(const struct peerdma_job *job)
{
	const struct peerdma_surface *written = job->legs[PEERDMA_C2H].surface;

	return written && written->needs_sync;
}

/* The part of the end of a job that may sleep. */
static void reap(struct work_struct *work)
{
	struct peerdma_job *job = container_of(work, struct peerdma_job, reap);
	struct peerdma_dev *board = job->file->board;
	struct peerdma_leg *leg = &job->legs[PEERDMA_C2H];

	if (wants_sync(job)) {
		leg->surface->provider->sync(leg->surface, leg->offset, job->length, true);
		spin_lock_irq(&board->lock);
		deliver(job);
		spin_unlock_irq(&board->lock);
	}
	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++) {
		if (leg->surface)
			peerdma_surface_put(leg->surface);
		leg->surface = NULL;
	}
	peerdma_job_put(job);
}

/**
 * peerdma_job_create() - makes a job without legs
 * @file: where its completion goes
 * @length: bytes, not 0
 *
 * The caller fills in path and legs, with a reference to each surface that the job takes over.
 *
 * Return: the job, or NULL without memory.
 */
struct peerdma_job *peerdma_job_create(struct peerdma_file *file, u64 length)
{
	struct peerdma_job *job = kzalloc(sizeof(*job), GFP_KERNEL);

	if (!job)
		return NULL;
	kref_init(&job->ref);
	kref_get(&file->ref);
	job->file = file;
	job->length = length;
	INIT_LIST_HEAD(&job->link);
	INIT_LIST_HEAD(&job->on_file);
	INIT_WORK(&job->reap, reap);
	init_completion(&job->finished);
	return job;
}

/* Called with the board's lock held. */
static int check(const struct peerdma_job *job, bool notify)
{
	struct peerdma_file *file = job->file;
	const struct peerdma_leg *leg;

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
	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++) {
		if (!leg->used)
			continue;
		if (leg->surface->draining)
			return peerdma_fail(file, -EINVAL, "the memory is being unpinned");
		if (leg->surface->state != PEERDMA_SURFACE_LIVE)
			return peerdma_fail(file, -ESTALE,
					    "the memory was freed or moved by its owner: unpin it");
	}
	return 0;
}

/* Called with the board's lock held. */
static void hold_surfaces(struct peerdma_job *job)
{
	struct peerdma_leg *leg;

	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++)
		if (leg->used)
			leg->surface->inflight++;
}

/**
 * peerdma_job_submit() - gives a job to the engine
 * @job: prepared
 * @id: set to the job's number, and an event is to be read when it ends, which owns the caller's
 *	reference; NULL: the caller waits for job->finished
 *
 * Process context. While the board is frozen the job waits.
 *
 * Return: 0; or an errno that was explained if the job was not taken.
 */
int peerdma_job_submit(struct peerdma_job *job, u64 *id)
{
	struct peerdma_leg *leg = &job->legs[PEERDMA_H2C];
	struct peerdma_file *file = job->file;
	struct peerdma_dev *board = file->board;
	int error;

	spin_lock_irq(&board->lock);
	error = check(job, id);
	if (!error)
		hold_surfaces(job);
	spin_unlock_irq(&board->lock);
	if (error)
		return error;

	/* The memory stays mapped from here on. */
	if (leg->used && leg->surface->needs_sync)
		leg->surface->provider->sync(leg->surface, leg->offset, job->length, false);

	spin_lock_irq(&board->lock);
	error = check(job, id);
	if (error) {
		release_surfaces(job);
		spin_unlock_irq(&board->lock);
		return error;
	}
	kref_get(&job->ref);
	job->id = ++file->next_job;
	if (id) {
		*id = job->id;
		list_add_tail(&job->on_file, &file->jobs);
		file->job_count++;
	}
	if (job->length) {
		job->queued = true;
		if (list_empty(&file->queue))
			list_add_tail(&file->on_ready, &board->ready);
		list_add_tail(&job->link, &file->queue);
	} else {
		peerdma_job_end(job);
	}
	spin_unlock_irq(&board->lock);

	peerdma_pump(board);
	return 0;
}

/**
 * peerdma_job_end() - the job's memory is not touched any more
 * @job: it is on no lane and in no queue. Called with the board's lock held, in any context
 */
void peerdma_job_end(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;

	job->ended = true;
	if (job->begin)
		job->nanoseconds = ktime_to_ns(ktime_sub(ktime_get(), job->begin));
	board->jobs++;
	board->failures += !!job->error;
	if (!wants_sync(job))
		deliver(job);
	queue_work(peerdma_wq, &job->reap);
}

/**
 * peerdma_job_run() - submits a job and waits until it has ended
 * @job: complete. Process context
 *
 * Only a fatal signal ends the wait early; the job is then being stopped and keeps its memory
 * until it has.
 *
 * Return: 0, or an errno that was explained.
 */
int peerdma_job_run(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	int error = peerdma_job_submit(job, NULL);

	if (error)
		return error;
	if (wait_for_completion_killable(&job->finished)) {
		spin_lock_irq(&board->lock);
		peerdma_job_fail(job, -EINTR, PEERDMA_REASON_CANCELLED);
		spin_unlock_irq(&board->lock);
		return -EINTR;
	}
	return job->error ? peerdma_job_explain(job, job->error) : 0;
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
	struct peerdma_job *job;
	bool found = false;

	spin_lock_irq(&file->board->lock);
	list_for_each_entry(job, &file->jobs, on_file) {
		if (job->id != id || job->ended)
			continue;
		peerdma_job_fail(job, -ECANCELED, PEERDMA_REASON_CANCELLED);
		found = true;
		break;
	}
	spin_unlock_irq(&file->board->lock);
	return found;
}

/**
 * peerdma_jobs_fail() - makes all of a file's jobs end
 * @file: the file
 * @error: negative errno
 * @reason: enum peerdma_reason
 *
 * Does not wait for them. Process context.
 */
void peerdma_jobs_fail(struct peerdma_file *file, int error, u32 reason)
{
	struct peerdma_job *job;

	spin_lock_irq(&file->board->lock);
	list_for_each_entry(job, &file->jobs, on_file)
		peerdma_job_fail(job, error, reason);
	spin_unlock_irq(&file->board->lock);
}

/**
 * peerdma_fail_all() - makes the jobs of a board end
 * @board: called with its lock held
 * @queued: also those that have not started
 * @error: negative errno
 * @reason: enum peerdma_reason
 */
void peerdma_fail_all(struct peerdma_dev *board, bool queued, int error, u32 reason)
{
	struct peerdma_lane *lane;
	struct peerdma_file *file;

	while (queued && !list_empty(&board->ready)) {
		file = list_first_entry(&board->ready, struct peerdma_file, on_ready);
		peerdma_job_fail(list_first_entry(&file->queue, struct peerdma_job, link), error,
				 reason);
	}
	for_each_lane(lane, board)
		if (lane->job)
			peerdma_job_fail(lane->job, error, reason);
}

/**
 * peerdma_fail_outdated() - makes jobs end that wait and depend on what was in card RAM
 * @board: its generation has changed. Called with its lock held
 */
void peerdma_fail_outdated(struct peerdma_dev *board)
{
	struct peerdma_file *file, *next_file;
	struct peerdma_job *job, *next_job;

	list_for_each_entry_safe(file, next_file, &board->ready, on_ready)
		list_for_each_entry_safe(job, next_job, &file->queue, link)
			if (job->generation && job->generation != board->generation)
				peerdma_job_fail(job, -ESTALE, PEERDMA_REASON_RESET);
}

static bool uses(const struct peerdma_job *job, const struct peerdma_surface *surface)
{
	return job->legs[PEERDMA_H2C].surface == surface ||
	       job->legs[PEERDMA_C2H].surface == surface;
}

/**
 * peerdma_fail_surface() - makes the jobs of a surface end
 * @surface: its board's lock is held
 * @running: also those that have started
 * @error: negative errno
 * @reason: enum peerdma_reason
 */
void peerdma_fail_surface(struct peerdma_surface *surface, bool running, int error, u32 reason)
{
	struct peerdma_dev *board = surface->board;
	struct peerdma_file *file, *next_file;
	struct peerdma_job *job, *next_job;
	struct peerdma_lane *lane;

	list_for_each_entry_safe(file, next_file, &board->ready, on_ready)
		list_for_each_entry_safe(job, next_job, &file->queue, link)
			if (uses(job, surface))
				peerdma_job_fail(job, error, reason);
	for_each_lane(lane, board)
		if (running && lane->job && uses(lane->job, surface))
			peerdma_job_fail(lane->job, error, reason);
}
