// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a job: how it is created, and what happens once the engine has finished with it.
 */
#include <linux/slab.h>

#include "job.h"

static const char * const kinds[] = {
	[PEERDMA_ERROR_MAGIC] = "bad descriptor",
	[PEERDMA_ERROR_DECODE] = "no such card address",
	[PEERDMA_ERROR_UNSUPPORTED_REQUEST] = "unsupported request",
	[PEERDMA_ERROR_COMPLETER_ABORT] = "completer abort",
	[PEERDMA_ERROR_POISONED] = "poisoned data",
	[PEERDMA_ERROR_UNEXPECTED_COMPLETION] = "unexpected completion",
	[PEERDMA_ERROR_COMPLETION_TIMEOUT] = "no completion in time",
	[PEERDMA_ERROR_BUS_MASTER_OFF] = "bus mastering is off",
	[PEERDMA_ERROR_WRITE_DROPPED] = "write dropped by the PCIe block",
};

static const char * const waits[] = PEERDMA_WAITS_FOR_TEXTS;

static const char * const reasons[] = {
	[PEERDMA_REASON_ENGINE] = "check that the memory is still allocated and that the board may reach it (IOMMU, peer-to-peer)",
	[PEERDMA_REASON_TIMEOUT] = "the board was stopped; try again, with a longer timeout_ms if it is slow",
	[PEERDMA_REASON_CANCELLED] = "it was cancelled",
	[PEERDMA_REASON_UNPINNED] = "its memory was unpinned",
	[PEERDMA_REASON_REVOKED] = "its memory was freed or moved by its owner: unpin it",
	[PEERDMA_REASON_RESET] = "the board was reset or suspended: try again",
	[PEERDMA_REASON_PARTITION] = "the card RAM has become another open file's own",
	[PEERDMA_REASON_BUSY] = "another job kept the channel",
	[PEERDMA_REASON_LOST] = "the board is gone: check its power and link, then load the driver again",
};

/**
 * peerdma_job_free_chains() - frees the descriptors of a job that was in a slot, or was to be
 * @job: any. May sleep; the board is there
 *
 * Idempotent.
 */
void peerdma_job_free_chains(struct peerdma_job *job)
{
	u32 engine;

	for (engine = 0; job->slot && engine < PEERDMA_DIRECTIONS; engine++)
		peerdma_chain_free(job->file->board, &job->slot->chains[engine]);
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
	peerdma_frame_ring_free(job);
	kfree(job->launch_queue);
	kfree(job->slot);
	peerdma_quota_remove_job(job);
	peerdma_file_put(job->file);
	put_pid(job->holder);
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

/* Of a launch queue, or a slot, any number of threads may wait for the end. */
static bool job_has_waiters(const struct peerdma_job *job)
{
	return job->launch_queue || job->slot;
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
	if (!job_has_waiters(job))
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
	if (job_has_waiters(job))
		complete_all(&job->finished);
	if (job->eventfd)
		compat_eventfd_signal(job->eventfd);
	job_drop_uses(job);
	peerdma_job_put(job);
}

static bool job_wants_sync(const struct peerdma_job *job)
{
	const struct peerdma_leg *leg = &job->legs[PEERDMA_C2H];

	return leg->started && (job->frame_ring ? job->frame_ring->needs_sync :
				leg->surface->needs_sync);
}

/* Nobody is told of the end of a queue whose page can still be written to. */
static bool job_wants_zap(const struct peerdma_job *job)
{
	return job->launch_queue && job->launch_queue->hwq->map_offset;
}

/* The part of a job's end that may sleep, before its file may know of it. */
static void job_reap(struct work_struct *work)
{
	struct peerdma_job *job = container_of(work, struct peerdma_job, reap);
	struct peerdma_dev *board = job->file->board;
	struct peerdma_leg *leg = &job->legs[PEERDMA_C2H];

	/* Who tells of it may drop the last reference but this. */
	kref_get(&job->ref);
	/* What the board did not write of it is what the CPU had there at the start. */
	if (job->launch_queue)
		board->ops->zap(job->launch_queue->hwq);
	else if (job->slot)
		peerdma_job_free_chains(job);
	else if (job->frame_ring)
		peerdma_frame_ring_reclaim(job->frame_ring);
	else
		leg->surface->provider->sync(leg->surface, leg->offset, leg->started, true);
	spin_lock_irq(&board->lock);
	job_deliver(job);
	spin_unlock_irq(&board->lock);
	peerdma_job_put(job);
}

/**
 * peerdma_job_create() - makes a job without legs
 * @file: where its completion goes
 * @length: bytes, not 0
 *
 * The caller fills in path and legs, and tells with peerdma_job_use() what it touches.
 *
 * Nothing is held. May wait for those who are told of former jobs of the user.
 *
 * Return: the job, or an ERR_PTR: -ENOMEM, -EAGAIN if the user has too many, or -EINTR.
 */
struct peerdma_job *peerdma_job_create(struct peerdma_file *file, u64 length)
{
	struct peerdma_job *job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	struct peerdma_leg *leg;
	int error;

	if (!job)
		return ERR_PTR(-ENOMEM);
	job->file = file;
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
	INIT_WORK(&job->reap, job_reap);
	init_completion(&job->finished);
	return job;
}

/**
 * peerdma_job_use() - notes that a job may touch memory
 * @job: not submitted yet
 * @surface: the memory; the job gets a reference of its own
 */
void peerdma_job_use(struct peerdma_job *job, struct peerdma_surface *surface)
{
	struct peerdma_use *use = &job->uses[job->use_count++];

	use->job = job;
	use->surface = surface;
	INIT_LIST_HEAD(&use->on_surface);
	peerdma_surface_get(surface);
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
	if (!job->launch_queue && !job->slot) {
		board->jobs++;
		board->failures += !!job->error;
	}
	/* It waits for page faults, which may wait for memory, and that for other jobs. */
	if (job_wants_zap(job))
		queue_work(peerdma_surface_wq, &job->reap);
	else if (job->slot || job_wants_sync(job))
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

/* Whether a pushed descriptor was bad: it has no address, and those in memory have even ones. */
static bool job_pushed(const struct peerdma_job *job)
{
	return job->kind == PEERDMA_ERROR_MAGIC && job->address & 1;
}

/**
 * peerdma_job_address() - where the board met the error of a job, as far as its file may know
 * @job: has ended
 *
 * Return: a card address, or a bus address; 0 if there is none to be told.
 */
u64 peerdma_job_address(const struct peerdma_job *job)
{
	if (job_pushed(job))
		return 0;
	return job->kind == PEERDMA_ERROR_DECODE || job->file->privileged ? job->address : 0;
}

/**
 * peerdma_job_explain_busy() - notes why a job is not done
 * @file: the job's
 * @holder: who opened the file of the job that keeps the engines which it needs
 *
 * Return: -EBUSY.
 */
int peerdma_job_explain_busy(struct peerdma_file *file, struct pid *holder)
{
	return peerdma_fail(file, -EBUSY,
			    "a job of process %d, which waits for data of the user stream, keeps the channel from card to memory: cancel that job, or try again",
			    pid_vnr(holder));
}

/**
 * peerdma_job_explain() - notes why a job failed
 * @job: has ended with an error
 * @error: negative errno
 *
 * Return: @error.
 */
int peerdma_job_explain(struct peerdma_job *job, int error)
{
	u64 moved = job->legs[job->legs[PEERDMA_C2H].used ? PEERDMA_C2H : PEERDMA_H2C].done;
	u64 address = peerdma_job_address(job);
	char where[32] = "";

	if (job->holder)
		return peerdma_job_explain_busy(job->file, job->holder);
	if (job_pushed(job))
		strscpy(where, ", pushed by the driver", sizeof(where));
	else if (address)
		scnprintf(where, sizeof(where), " at address %#llx", address);
	if (job->kind == PEERDMA_ERROR_NO_COMPLETION_SPACE)
		return peerdma_fail(job->file, error,
				    "transfer of %llu bytes failed after %llu: no room for completions%s, status %#x: reads that were not answered keep it, for %u ms at most; try again: jobs wait for that before they move anything",
				    job->length, moved, where, job->status,
				    jiffies_to_msecs(peerdma_hw_scaled(job->file->board,
								       PEERDMA_QUARANTINE_MS)));
	if (job->kind && job->kind < ARRAY_SIZE(kinds))
		return peerdma_fail(job->file, error,
				    "transfer of %llu bytes failed after %llu: %s%s, status %#x; %s",
				    job->length, moved, kinds[job->kind], where, job->status,
				    reasons[job->reason]);
	if (job->waits_for && job->waits_for < ARRAY_SIZE(waits))
		return peerdma_fail(job->file, error,
				    "transfer of %llu bytes failed after %llu: it waited for %s, status %#x; %s",
				    job->length, moved, waits[job->waits_for], job->status,
				    reasons[job->reason]);
	return peerdma_fail(job->file, error,
			    "transfer of %llu bytes failed after %llu: status %#x; %s",
			    job->length, moved, job->status, reasons[job->reason]);
}
