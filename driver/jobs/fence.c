// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fences: a job waits for what others have announced in the dma-bufs that it uses, and announces
 * there when it will have ended itself.
 *
 * Published by the request that submits the job, under the locks of all reservations that it
 * concerns, once nothing is left to wait for: what is announced later waits for this job. From then
 * on the job ends in bounded time, allocates nothing, and takes no lock that others hold while they
 * wait for fences.
 */
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "job.h"

/* Limit of the wait for what others do with a dma-buf, in jiffies. */
#define WAIT_TIMEOUT		(10 * HZ)

/**
 * struct fence_use - dma-bufs of a job, for as long as it is being submitted
 * @buffers: of each leg; NULL: none. Each is held; the second is NULL if both have one reservation
 * @write: they are written to
 * @context: for the locks of two reservations
 */
struct fence_use {
	struct dma_buf *buffers[PEERDMA_DIRECTIONS];
	bool write[PEERDMA_DIRECTIONS];
	struct ww_acquire_ctx context;
};

/* The dma-buf of a surface with a reference; NULL if it is none, or is being given back. */
static struct dma_buf *fence_get_buffer(struct peerdma_surface *surface)
{
	struct dma_buf *buffer = NULL;

	mutex_lock(&surface->teardown);
	if (surface->mapped && surface->buffer) {
		buffer = surface->buffer;
		get_dma_buf(buffer);
	}
	mutex_unlock(&surface->teardown);
	return buffer;
}

/* Of a job that only receives, each of its uses is looked at by itself: it is written. */
static void fence_begin_use(struct fence_use *use, const struct peerdma_use *memory)
{
	use->write[PEERDMA_C2H] = true;
	use->buffers[PEERDMA_C2H] = fence_get_buffer(memory->surface);
}

static void fence_begin(struct fence_use *use, const struct peerdma_job *job)
{
	unsigned int n;

	for (n = 0; n < PEERDMA_DIRECTIONS; n++) {
		use->write[n] = n == PEERDMA_C2H;
		if (job->legs[n].used)
			use->buffers[n] = fence_get_buffer(job->legs[n].surface);
	}
	if (use->buffers[0] && use->buffers[1] &&
	    use->buffers[0]->resv == use->buffers[1]->resv) {
		use->write[0] = true;
		dma_buf_put(use->buffers[1]);
		use->buffers[1] = NULL;
	}
}

static void fence_end(struct fence_use *use)
{
	unsigned int n;

	for (n = 0; n < PEERDMA_DIRECTIONS; n++)
		if (use->buffers[n])
			dma_buf_put(use->buffers[n]);
}

#ifdef COMPAT_DMA_RESV_USAGE

/**
 * struct peerdma_fence - when a job will have ended
 * @base: the fence
 * @lock: of @base
 * @file: owner of the job, compared by address only; may already be freed
 * @free: frees it
 */
struct peerdma_fence {
	struct dma_fence base;
	spinlock_t lock;
	const struct peerdma_file *file;
	struct work_struct free;
};

static const char *fence_name(struct dma_fence *base)
{
	return PEERDMA_NAME;
}

static void fence_free_work(struct work_struct *work)
{
	struct peerdma_fence *fence = container_of(work, struct peerdma_fence, free);

	dma_fence_free(&fence->base);
	module_put(THIS_MODULE);
}

/* In a work item: a module that is not held any more is unloaded after its work has ended. */
static void fence_release(struct dma_fence *base)
{
	struct peerdma_fence *fence = container_of(base, struct peerdma_fence, base);

	INIT_WORK(&fence->free, fence_free_work);
	queue_work(peerdma_wq, &fence->free);
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_name,
	.get_timeline_name = fence_name,
	.release = fence_release,
};

/* Each is a timeline of its own: queued jobs that are cancelled end before those that run. */
static struct dma_fence *fence_create(const struct peerdma_file *file)
{
	struct peerdma_fence *fence = kzalloc(sizeof(*fence), GFP_KERNEL_ACCOUNT);

	if (!fence)
		return NULL;
	spin_lock_init(&fence->lock);
	fence->file = file;
	__module_get(THIS_MODULE);
	dma_fence_init(&fence->base, &fence_ops, &fence->lock, dma_fence_context_alloc(1), 1);
	return &fence->base;
}

/* Jobs of the same file are in the order in which the program wants them. */
static bool fence_is_own(const struct dma_fence *fence, const struct peerdma_file *file)
{
	return fence->ops == &fence_ops &&
	       container_of(fence, struct peerdma_fence, base)->file == file;
}

static int fence_lock(struct fence_use *use)
{
	struct dma_resv *first = use->buffers[0] ? use->buffers[0]->resv : NULL;
	struct dma_resv *second = use->buffers[1] ? use->buffers[1]->resv : NULL;
	int error;

	if (!first || !second)
		return dma_resv_lock_interruptible(first ?: second, NULL);
	ww_acquire_init(&use->context, &reservation_ww_class);
	error = dma_resv_lock_interruptible(first, &use->context);
	if (error)
		goto err_context;
	while ((error = dma_resv_lock_interruptible(second, &use->context)) == -EDEADLK) {
		dma_resv_unlock(first);
		dma_resv_lock_slow(second, &use->context);
		swap(first, second);
	}
	if (!error)
		return 0;
	dma_resv_unlock(first);
err_context:
	ww_acquire_fini(&use->context);
	return error;
}

static void fence_unlock(struct fence_use *use)
{
	if (use->buffers[0])
		dma_resv_unlock(use->buffers[0]->resv);
	if (use->buffers[1])
		dma_resv_unlock(use->buffers[1]->resv);
	if (use->buffers[0] && use->buffers[1])
		ww_acquire_fini(&use->context);
}

/* What a job has to wait for, with a reference; NULL if nothing is left. Locked. */
static struct dma_fence *fence_find(const struct fence_use *use, const struct peerdma_file *file)
{
	struct dma_resv_iter cursor;
	struct dma_fence *fence;
	unsigned int n;

	for (n = 0; n < PEERDMA_DIRECTIONS; n++) {
		if (!use->buffers[n])
			continue;
		dma_resv_for_each_fence(&cursor, use->buffers[n]->resv,
					dma_resv_usage_rw(use->write[n]), fence)
			if (!dma_fence_is_signaled(fence) && !fence_is_own(fence, file))
				return dma_fence_get(fence);
	}
	return NULL;
}

/* Locked. */
static int fence_publish(const struct fence_use *use, struct dma_fence *fence)
{
	unsigned int n;
	int error = 0;

	for (n = 0; !error && n < PEERDMA_DIRECTIONS; n++)
		if (use->buffers[n])
			error = dma_resv_reserve_fences(use->buffers[n]->resv, 1);
	for (n = 0; !error && n < PEERDMA_DIRECTIONS; n++)
		if (use->buffers[n])
			dma_resv_add_fence(use->buffers[n]->resv, fence,
					   use->write[n] ? DMA_RESV_USAGE_WRITE :
							   DMA_RESV_USAGE_READ);
	return error;
}

/* Waits for at most @left, and publishes @fence if there is one. */
static int fence_run(struct fence_use *use, const struct peerdma_file *file,
		     struct dma_fence *fence, long *left)
{
	struct dma_fence *other;
	int error;

	for (;;) {
		error = fence_lock(use);
		if (error)
			return -EINTR;
		other = fence_find(use, file);
		if (!other && fence)
			error = fence_publish(use, fence);
		fence_unlock(use);
		if (!other)
			return error;
		*left = dma_fence_wait_timeout(other, true, *left);
		dma_fence_put(other);
		if (*left <= 0)
			return *left ? -EINTR : -ETIMEDOUT;
	}
}

static int fence_submit(struct fence_use *use, struct peerdma_job *job, long *left)
{
	int error;

	/* It may wait for ever, which a fence must not. Its memory stays pinned. */
	if (job->path != PATH_RECEIVE && job->type != JOB_SLOT) {
		job->fence = fence_create(job->file);
		if (!job->fence)
			return -ENOMEM;
	}
	error = fence_run(use, job->file, job->fence, left);
	if (error)
		peerdma_fence_signal(job, error);
	return error;
}

#else

/* Reservations cannot be looked into: jobs wait for all that is announced, and announce nothing. */
static int fence_submit(struct fence_use *use, struct peerdma_job *job, long *left)
{
	unsigned int n;

	for (n = 0; n < PEERDMA_DIRECTIONS; n++) {
		if (!use->buffers[n])
			continue;
		*left = compat_dma_resv_wait(use->buffers[n]->resv, use->write[n], *left);
		if (*left <= 0)
			return *left ? -EINTR : -ETIMEDOUT;
	}
	return 0;
}

#endif

/* With @memory only for that. */
static int fence_submit_use(struct peerdma_job *job, const struct peerdma_use *memory, long *left)
{
	struct fence_use use = {};
	int error = 0;

	if (memory)
		fence_begin_use(&use, memory);
	else
		fence_begin(&use, job);
	if (use.buffers[0] || use.buffers[1])
		error = fence_submit(&use, job, left);
	fence_end(&use);
	return error;
}

/**
 * peerdma_fence_submit() - waits for others who use a job's dma-bufs, and announces the job
 * @job: prepared. peerdma_fence_signal() is to be called when it has ended. May sleep, nothing
 *	held
 *
 * Return: 0, or -ENOMEM; -EINTR or -ETIMEDOUT, explained.
 */
int peerdma_fence_submit(struct peerdma_job *job)
{
	const struct peerdma_use *memory;
	long left = WAIT_TIMEOUT;
	int error = 0;

	if (job->path != PATH_RECEIVE)
		error = fence_submit_use(job, NULL, &left);
	else
		for_each_use(memory, job)
			error = error ?: fence_submit_use(job, memory, &left);
	if (error && error != -ENOMEM)
		peerdma_fail(job->file, error, "others are still using the dma-buf");
	return error;
}

/**
 * peerdma_fence_signal() - tells others that a job has ended
 * @job: with or without a fence; it touches its memory no more
 * @error: 0 or a negative errno
 *
 * Without locks, since those who are told may take locks that they hold when they call us.
 * Idempotent.
 */
void peerdma_fence_signal(struct peerdma_job *job, int error)
{
	if (!job->fence)
		return;
	if (error)
		dma_fence_set_error(job->fence, error);
	dma_fence_signal(job->fence);
	dma_fence_put(job->fence);
	job->fence = NULL;
}
