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

/* Called with the board's lock held; the caller may then touch the memory again. */
static void deliver(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	struct peerdma_leg *leg;

	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++)
		if (leg->surface && !--leg->surface->inflight)
			wake_up_all(&leg->surface->idle);
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
static int check(const struct peerdma_job *job, bool notify, u32 generation)
{
	const struct peerdma_file *file = job->file;
	const struct peerdma_leg *leg;

	if (file->board->state == PEERDMA_BOARD_DEAD)
		return -ENODEV;
	if (generation && generation != file->board->generation)
		return -ESTALE;
	if (notify && file->job_count >= PEERDMA_MAX_JOBS)
		return -EAGAIN;
	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++) {
		if (!leg->surface)
			continue;
		if (leg->surface->state == PEERDMA_SURFACE_LOST)
			return -ENODEV;
		if (leg->surface->state != PEERDMA_SURFACE_LIVE)
			return -ESTALE;
		if (leg->surface->draining)
			return -EINVAL;
	}
	return 0;
}

/**
 * peerdma_job_submit() - gives a job to the engine
 * @job: complete
 * @notify: an event is to be read when it ends; else the caller waits for job->finished
 * @generation: fail unless this is the board's; 0 for any
 *
 * Process context. While the board is frozen the job waits.
 *
 * Return: 0; -ENODEV, -ESTALE, -EINVAL or -EAGAIN if the job was not taken.
 */
int peerdma_job_submit(struct peerdma_job *job, bool notify, u32 generation)
{
	struct peerdma_leg *leg = &job->legs[PEERDMA_H2C];
	struct peerdma_file *file = job->file;
	struct peerdma_dev *board = file->board;
	int error;

	spin_lock_irq(&board->lock);
	error = check(job, notify, generation);
	if (error) {
		spin_unlock_irq(&board->lock);
		return error;
	}
	for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++)
		if (leg->surface)
			leg->surface->inflight++;
	spin_unlock_irq(&board->lock);

	/* From here on the memory stays mapped. */
	leg = &job->legs[PEERDMA_H2C];
	if (leg->surface && leg->surface->needs_sync)
		leg->surface->provider->sync(leg->surface, leg->offset, job->length, false);

	spin_lock_irq(&board->lock);
	error = check(job, notify, generation);
	if (error) {
		for (leg = job->legs; leg < job->legs + PEERDMA_LANES; leg++)
			if (leg->surface && !--leg->surface->inflight)
				wake_up_all(&leg->surface->idle);
		spin_unlock_irq(&board->lock);
		return error;
	}
	kref_get(&job->ref);
	job->id = ++file->next_job;
	if (notify) {
		list_add_tail(&job->on_file, &file->jobs);
		file->job_count++;
	}
	job->queued = true;
	if (list_empty(&file->queue))
		list_add_tail(&file->on_ready, &board->ready);
	list_add_tail(&job->link, &file->queue);
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
 * Return: 0 or an errno.
 */
int peerdma_job_run(struct peerdma_job *job)
{
	struct peerdma_dev *board = job->file->board;
	int error = peerdma_job_submit(job, false, 0);

	if (error)
		return error;
	if (wait_for_completion_killable(&job->finished)) {
		spin_lock_irq(&board->lock);
		peerdma_job_fail(job, -EINTR, PEERDMA_REASON_CANCELLED);
		spin_unlock_irq(&board->lock);
		return -EINTR;
	}
	return job->error;
}

/**
 * peerdma_jobs_fail() - makes all of a file's jobs end
 * @file: the file
 * @error: negative errno
 * @reason: enum peerdma_reason
 *
 * Does not wait for them. Any context.
 */
void peerdma_jobs_fail(struct peerdma_file *file, int error, u32 reason)
{
	struct peerdma_job *job;
	unsigned long flags;

	spin_lock_irqsave(&file->board->lock, flags);
	list_for_each_entry(job, &file->jobs, on_file)
		peerdma_job_fail(job, error, reason);
	spin_unlock_irqrestore(&file->board->lock, flags);
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
