// SPDX-License-Identifier: GPL-2.0-only
/*
 * Launch queues as programs describe them: PEERDMA_IOC_CREATE_QUEUE and what follows it.
 */
#include <linux/log2.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "files.h"

#define LEAST_DEPTH		8
#define MOST_DEPTH		256

/* Keeps memory pinned, as a job does: for a bounded time, as others wait for its release. */
static int launch_uapi_hold(struct peerdma_file *file, struct peerdma_surface *surface)
{
	int error;

	spin_lock_irq(&file->board->lock);
	if (file->board->state == PEERDMA_BOARD_DEAD)
		error = peerdma_fail(file, -ENODEV, "the board is gone");
	else
		error = peerdma_submit_check_live(file, surface);
	surface->inflight += !error;
	spin_unlock_irq(&file->board->lock);
	return error;
}

static void launch_uapi_release(struct peerdma_surface *surface)
{
	spin_lock_irq(&surface->board->lock);
	peerdma_surface_leave(surface);
	spin_unlock_irq(&surface->board->lock);
}

/*
 * Finds memory of a queue, which is held, for the CPU and the board. It has a length that is a
 * power of two, and is at a multiple of that.
 */
static int launch_uapi_place(struct peerdma_file *file, const struct peerdma_surface *surface,
			     u64 offset, u32 length, struct peerdma_place *place)
{
	int error = peerdma_submit_check_surface(file, surface, offset, length);

	if (error)
		return error;
	place->cpu = peerdma_pages_find(surface, offset);
	if (!place->cpu)
		return peerdma_fail(file, -EOPNOTSUPP,
				    "a launch queue has memory of a process, by PEERDMA_IOC_PIN_PAGES");
	if (!peerdma_chain_address(surface, offset, length, &place->bus) ||
	    !IS_ALIGNED(place->bus, length))
		return peerdma_fail(file, -EINVAL,
				    "%u bytes of a launch queue, byte %llu of its memory, are not at a multiple of their length",
				    length, offset);
	return 0;
}

static int launch_uapi_check(struct peerdma_file *file, const struct peerdma_create_queue *request)
{
	if (!file->board->hw_queue_count)
		return peerdma_fail(file, -EOPNOTSUPP,
				    "this board has no launch queues: its core was built without");
	if (request->flags || request->reserved)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x, or a reserved member %llu",
				    request->flags, request->reserved);
	if (request->depth < LEAST_DEPTH || request->depth > MOST_DEPTH ||
	    !is_power_of_2(request->depth))
		return peerdma_fail(file, -EINVAL,
				    "the rings of a launch queue have %u to %u places, a power of two, not %u",
				    LEAST_DEPTH, MOST_DEPTH, request->depth);
	return 0;
}

/* The memory is held. */
static int launch_uapi_set_places(struct peerdma_file *file, struct peerdma_launch_queue *queue,
				  const struct peerdma_create_queue *request,
				  const struct peerdma_surface *surface)
{
	u32 entries = queue->depth * sizeof(struct peerdma_launch_entry);
	u32 records = queue->depth * sizeof(struct peerdma_launch_record);
	int error;

	if (surface->access != PEERDMA_ACCESS_BOTH)
		return peerdma_fail(file, -EINVAL,
				    "the memory of a launch queue is pinned for the board to read and to write it");
	if (surface->needs_sync)
		return peerdma_fail(file, -EOPNOTSUPP,
				    "on this machine, board and CPU do not see each other's writes to host memory at once: there are no launch queues");
	error = launch_uapi_place(file, surface, request->entries, entries, &queue->entries);
	if (!error)
		error = launch_uapi_place(file, surface, request->records, records,
					  &queue->records);
	if (!error)
		error = launch_uapi_place(file, surface, request->shadow, sizeof(u32),
					  &queue->shadow);
	if (!error)
		error = launch_uapi_place(file, surface, request->word, sizeof(u32), &queue->word);
	return error;
}

static int launch_uapi_fill_job(struct peerdma_job *job, const struct peerdma_create_queue *request,
				struct peerdma_surface *surface)
{
	job->user_data = request->user_data;
	job->launch_queue.depth = request->depth;
	job->launch_queue.first = get_random_u32();
	peerdma_submit_use(job, surface);
	return launch_uapi_set_places(job->file, &job->launch_queue, request, surface);
}

/* Called with the board's lock held. */
static bool launch_uapi_runs(const struct peerdma_job *job)
{
	return !job->ended && job->launch_queue.hwq->state == ENGINE_RUNNING;
}

/* The offset for mmap() of the doorbell's page; 0: none. */
static u64 launch_uapi_map(struct peerdma_job *job)
{
	u64 offset = 0;

	spin_lock_irq(&job->file->board->lock);
	if (launch_uapi_runs(job))
		offset = peerdma_mmap_doorbell(job->file, job->launch_queue.hwq);
	spin_unlock_irq(&job->file->board->lock);
	return offset;
}

static int launch_uapi_start(struct peerdma_job *job, struct peerdma_create_queue *request,
			     struct peerdma_surface *surface)
{
	int error = launch_uapi_fill_job(job, request, surface);

	/* It may end, and its event be read, at any time. */
	kref_get(&job->ref);
	if (!error)
		error = peerdma_submit_job(job, true);
	if (!error) {
		request->queue = job->id;
		request->generation = job->launch_queue.generation;
		request->first = job->launch_queue.first;
		request->doorbell = launch_uapi_map(job);
	} else {
		peerdma_job_put(job);
	}
	return error;
}

/**
 * peerdma_launch_uapi_create() - PEERDMA_IOC_CREATE_QUEUE
 * @file: whose
 * @request: the request; what the program gets is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_launch_uapi_create(struct peerdma_file *file, struct peerdma_create_queue *request)
{
	struct peerdma_surface *surface;
	struct peerdma_job *job;
	int error = launch_uapi_check(file, request);

	request->doorbell = 0;
	if (!error)
		error = peerdma_job_uapi_find_end(file, request->handle, false, &surface);
	if (error)
		return error;
	/* This may wait: the memory is not held before. */
	job = peerdma_submit_create(file, JOB_LAUNCH_QUEUE, 0);
	error = PTR_ERR_OR_ZERO(job);
	if (!error)
		error = launch_uapi_hold(file, surface);
	if (!error) {
		error = launch_uapi_start(job, request, surface);
		launch_uapi_release(surface);
	}
	if (!IS_ERR(job))
		peerdma_job_put(job);
	peerdma_surface_put(surface);
	return error;
}

/**
 * peerdma_launch_uapi_find() - looks up a launch queue
 * @file: whose
 * @id: its number
 *
 * Process context.
 *
 * Return: its job with a reference, which may have ended, or an ERR_PTR, explained.
 */
struct peerdma_job *peerdma_launch_uapi_find(struct peerdma_file *file, u64 id)
{
	struct peerdma_job *job, *found = NULL;

	spin_lock_irq(&file->board->lock);
	list_for_each_entry(job, &file->jobs, on_file) {
		if (job->id != id || job->type != JOB_LAUNCH_QUEUE)
			continue;
		kref_get(&job->ref);
		found = job;
		break;
	}
	spin_unlock_irq(&file->board->lock);
	if (found)
		return found;
	return ERR_PTR(peerdma_fail(file, -ENOENT,
				    "there is no launch queue %llu, or its event has been read",
				    id));
}

/**
 * peerdma_launch_uapi_find_done() - finds a done word in the memory of a launch queue
 * @job: the queue; it may have ended
 * @offset: byte in its memory
 * @done: filled in
 *
 * Process context.
 *
 * Return: 0, or an errno that was explained.
 */
int peerdma_launch_uapi_find_done(struct peerdma_job *job, u64 offset, struct peerdma_place *done)
{
	struct peerdma_surface *surface = NULL;
	int error;

	spin_lock_irq(&job->file->board->lock);
	if (!job->ended) {
		surface = job->uses->surface;
		peerdma_surface_get(surface);
	}
	spin_unlock_irq(&job->file->board->lock);
	if (!surface)
		return peerdma_fail(job->file, -ENOENT, "the launch queue has ended");
	error = launch_uapi_hold(job->file, surface);
	if (!error) {
		error = launch_uapi_place(job->file, surface, offset, sizeof(u32), done);
		launch_uapi_release(surface);
	}
	peerdma_surface_put(surface);
	return error;
}

/* Takes the event of a queue that has ended, unless a read() has. */
static void launch_uapi_forget(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	bool there;

	spin_lock_irq(&file->board->lock);
	there = !list_empty(&job->on_file);
	if (there) {
		list_del_init(&job->on_file);
		list_del_init(&job->link);
		peerdma_job_forget(file, 1);
	}
	spin_unlock_irq(&file->board->lock);
	if (!there)
		return;
	peerdma_quota_remove_job(job);
	peerdma_job_put(job);
}

/**
 * peerdma_launch_uapi_destroy() - PEERDMA_IOC_DESTROY_QUEUE
 * @file: whose
 * @request: the request
 *
 * Return: 0 or an errno.
 */
int peerdma_launch_uapi_destroy(struct peerdma_file *file, struct peerdma_destroy_queue *request)
{
	struct peerdma_job *job;
	int error;

	if (request->flags)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", request->flags);
	job = peerdma_launch_uapi_find(file, request->queue);
	if (IS_ERR(job))
		return PTR_ERR(job);
	spin_lock_irq(&file->board->lock);
	peerdma_stop_job(job, -ECANCELED, PEERDMA_REASON_CANCELLED);
	spin_unlock_irq(&file->board->lock);
	error = wait_for_completion_killable(&job->finished) ? -EINTR : 0;
	if (!error)
		launch_uapi_forget(job);
	peerdma_job_put(job);
	return error;
}

/**
 * peerdma_launch_uapi_resume() - PEERDMA_IOC_RESUME_QUEUE
 * @file: whose
 * @request: the request
 *
 * Return: 0 or an errno.
 */
int peerdma_launch_uapi_resume(struct peerdma_file *file, struct peerdma_resume_queue *request)
{
	struct peerdma_job *job;
	bool runs;

	if (request->flags)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", request->flags);
	job = peerdma_launch_uapi_find(file, request->queue);
	if (IS_ERR(job))
		return PTR_ERR(job);
	spin_lock_irq(&file->board->lock);
	runs = launch_uapi_runs(job);
	if (runs)
		peerdma_launch_queue_resume(job->launch_queue.hwq);
	spin_unlock_irq(&file->board->lock);
	peerdma_job_put(job);
	return runs ? 0 : peerdma_fail(file, -ENOENT, "the launch queue has ended");
}

/**
 * peerdma_launch_uapi_query() - PEERDMA_IOC_QUERY_QUEUE
 * @file: whose
 * @request: the request; what is known is filled in
 *
 * Return: 0 or an errno.
 */
int peerdma_launch_uapi_query(struct peerdma_file *file, struct peerdma_query_queue *request)
{
	struct peerdma_dev *board = file->board;
	struct peerdma_job *job;
	u32 n;

	if (request->flags)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", request->flags);
	job = peerdma_launch_uapi_find(file, request->queue);
	if (IS_ERR(job))
		return PTR_ERR(job);
	request->slots = 0;
	spin_lock_irq(&board->lock);
	if (launch_uapi_runs(job))
		peerdma_launch_queue_look(job->launch_queue.hwq);
	request->state = job->launch_queue.told;
	request->ignored = 0;
	if (board->state != PEERDMA_BOARD_DEAD)
		request->ignored = peerdma_launch_regs_read(board->hw_queues,
							    PEERDMA_LAUNCH_QUEUE_IGNORED_REG);
	for (n = 0; n < PEERDMA_LAUNCH_SLOTS; n++)
		if (board->slots[n] && board->slots[n]->slot.queue == job)
			request->slots |= BIT_ULL(n);
	spin_unlock_irq(&board->lock);
	peerdma_job_put(job);
	return 0;
}
