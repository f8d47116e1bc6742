// SPDX-License-Identifier: GPL-2.0-only
/*
 * Our own requests: structures that begin with their size and grow.
 */
#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "files.h"

union request {
	u32 size;
	struct peerdma_info info;
	struct peerdma_pin_dmabuf pin_dmabuf;
	struct peerdma_pin_pages pin_pages;
	struct peerdma_submit submit;
	struct peerdma_cancel cancel;
	struct peerdma_query query;
	struct peerdma_map_info map_info;
	struct peerdma_reset reset;
	struct peerdma_user_register user_register;
	struct peerdma_clock clock;
	struct peerdma_submit_batch submit_batch;
	struct peerdma_context context;
	struct peerdma_start_ring start_ring;
	struct peerdma_release_frames release_frames;
	struct peerdma_create_queue create_queue;
	struct peerdma_destroy_queue destroy_queue;
	struct peerdma_resume_queue resume_queue;
	struct peerdma_prepare prepare;
	struct peerdma_unprepare unprepare;
	struct peerdma_query_queue query_queue;
	struct peerdma_export_dmabuf export_dmabuf;
};

/*
 * Copies a structure from a program: of @known bytes as it is now, and of @least in its first
 * version. What the program does not know of it becomes 0. Returns its size in the program, or an
 * errno that was explained.
 */
static int request_copy(struct peerdma_file *file, void *structure, size_t known, size_t least,
			const void __user *user)
{
	int error;
	u32 size;

	if (get_user(size, (const u32 __user *)user))
		return -EFAULT;
	if (size > PAGE_SIZE)
		return peerdma_fail(file, -E2BIG, "the structure has %u bytes, which none has",
				    size);
	if (size < least)
		return peerdma_fail(file, -EINVAL, "the structure has %u bytes, but at least %zu",
				    size, least);
	error = copy_struct_from_user(structure, known, user, size);
	if (error == -E2BIG)
		peerdma_fail(file, error,
			     "the structure has %u bytes of which this driver knows %zu: it is older than the program",
			     size, known);
	return error ?: size;
}

static int request_unknown_flags(struct peerdma_file *file, u32 flags)
{
	return peerdma_fail(file, -EINVAL, "unknown flags %#x", flags);
}

static int request_info(struct peerdma_file *file, union request *request,
			struct peerdma_pinning *pinning)
{
	if (request->info.flags)
		return request_unknown_flags(file, request->info.flags);
	peerdma_board_uapi_info(file, &request->info);
	return 0;
}

/* Why a pin is not what PEERDMA_PIN_REQUIRE_PEER asks for, by its placement. */
static const char * const request_not_peer[] = {
	[PEERDMA_PLACEMENT_HOST] =
		"the exporter put the dma-buf into host memory: the board does not reach the device directly, or this kernel pins no device memory",
	[PEERDMA_PLACEMENT_MIXED] = "only a part of the dma-buf is in the exporter's own device",
	[PEERDMA_PLACEMENT_OTHER] =
		"the dma-buf is neither in host memory nor in a device of the exporter's driver",
};

static int request_pin_dmabuf(struct peerdma_file *file, union request *request,
			      struct peerdma_pinning *pinning)
{
	struct peerdma_pin_dmabuf *pin = &request->pin_dmabuf;
	struct peerdma_pin_request wanted = {
		.fd = pin->fd,
		.offset = pin->offset,
		.length = pin->length,
		.access = pin->access,
	};
	int error;

	if (pin->flags & ~PEERDMA_PIN_REQUIRE_PEER)
		return request_unknown_flags(file, pin->flags);
	error = peerdma_surface_pin(file, &peerdma_dmabuf, &wanted, pinning);
	if (error)
		return error;
	pin->handle = pinning->handle;
	pin->placement = pinning->surface->placement;
	if (!(pin->flags & PEERDMA_PIN_REQUIRE_PEER) || pin->placement == PEERDMA_PLACEMENT_PEER)
		return 0;
	return peerdma_fail(file, -EOPNOTSUPP, "%s", request_not_peer[pin->placement]);
}

static int request_pin_pages(struct peerdma_file *file, union request *request,
			     struct peerdma_pinning *pinning)
{
	struct peerdma_pin_pages *pin = &request->pin_pages;
	struct peerdma_pin_request wanted = {
		.va = pin->address,
		.length = pin->length,
		.access = pin->access,
	};
	int error;

	if (pin->flags)
		return request_unknown_flags(file, pin->flags);
	if (!pin->length)
		return peerdma_fail(file, -EINVAL, "nothing to pin: the length is 0");
	error = peerdma_surface_pin(file, &peerdma_pages, &wanted, pinning);
	pin->handle = pinning->handle;
	return error;
}

static int request_submit(struct peerdma_file *file, union request *request,
			  struct peerdma_pinning *pinning)
{
	return peerdma_job_uapi_submit(file, &request->submit, NULL);
}

static int request_submit_batch(struct peerdma_file *file, union request *request,
				struct peerdma_pinning *pinning)
{
	struct peerdma_submit_batch *batch = &request->submit_batch;
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
		size = request_copy(file, &submit, sizeof(submit),
				    offsetofend(struct peerdma_submit, job), at);
		batch->error = size;
		if (size > 0)
			batch->error = peerdma_job_uapi_submit(file, &submit, at +
						offsetof(struct peerdma_submit, job));
		if (batch->error)
			break;
		at += size;
	}
	/* An error of a job is in the batch. */
	return 0;
}

static int request_cancel(struct peerdma_file *file, union request *request,
			  struct peerdma_pinning *pinning)
{
	if (request->cancel.flags)
		return request_unknown_flags(file, request->cancel.flags);
	if (peerdma_job_cancel(file, request->cancel.job))
		return 0;
	return peerdma_fail(file, -ENOENT, "job %llu has ended, or never was",
			    request->cancel.job);
}

static int request_query(struct peerdma_file *file, union request *request,
			 struct peerdma_pinning *pinning)
{
	struct peerdma_query *query = &request->query;
	struct peerdma_surface *surface;

	if (query->flags)
		return request_unknown_flags(file, query->flags);
	surface = peerdma_surface_find(file, query->handle);
	if (!surface)
		return peerdma_fail(file, -EINVAL, "no memory is pinned as handle %u",
				    query->handle);
	spin_lock_irq(&file->board->lock);
	query->state = surface->state;
	query->jobs = surface->inflight;
	spin_unlock_irq(&file->board->lock);
	query->placement = surface->placement;
	query->features = surface->features;
	query->length = surface->length;
	query->segments = surface->segment_count;
	query->aperture_size = surface->aperture_size;
	strscpy(query->provider, surface->provider->name, sizeof(query->provider));
	memcpy(query->peer, surface->peer, sizeof(query->peer));
	peerdma_surface_put(surface);
	return 0;
}

static int request_map_info(struct peerdma_file *file, union request *request,
			    struct peerdma_pinning *pinning)
{
	return peerdma_mmap_info(file, &request->map_info);
}

static int request_export_dmabuf(struct peerdma_file *file, union request *request,
				 struct peerdma_pinning *pinning)
{
	struct peerdma_export_dmabuf *export = &request->export_dmabuf;
	struct peerdma_job *queue = NULL;
	int fd;

	if (export->flags & ~PEERDMA_EXPORT_DOORBELL || export->reserved)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x, or a reserved member %u",
				    export->flags, export->reserved);
	if (export->flags & PEERDMA_EXPORT_DOORBELL) {
		queue = peerdma_launch_uapi_find(file, export->queue);
		if (IS_ERR(queue))
			return PTR_ERR(queue);
	} else if (export->queue) {
		return peerdma_fail(file, -EINVAL, "the mailbox belongs to no launch queue");
	}
	fd = peerdma_mmap_export(file, queue);
	if (queue)
		peerdma_job_put(queue);
	export->fd = fd;
	return min(fd, 0);
}

static int request_reset(struct peerdma_file *file, union request *request,
			 struct peerdma_pinning *pinning)
{
	int error;

	if (request->reset.flags)
		return request_unknown_flags(file, request->reset.flags);
	if (!capable(CAP_SYS_ADMIN))
		return peerdma_fail(file, -EPERM,
				    "resetting the board ends everybody's jobs: it needs CAP_SYS_ADMIN");
	error = file->board->ops->reset(file->board);
	if (error)
		peerdma_fail(file, error, error == -EBUSY ?
			     "the board is suspended or being reset already: try again" :
			     "the board is gone, or does not come back from the reset");
	return error;
}

static int request_user_register(struct peerdma_file *file, union request *request,
				 struct peerdma_pinning *pinning)
{
	return peerdma_board_uapi_register(file, &request->user_register);
}

static int request_read_clock(struct peerdma_file *file, union request *request,
			      struct peerdma_pinning *pinning)
{
	if (request->clock.flags)
		return request_unknown_flags(file, request->clock.flags);
	return peerdma_board_uapi_read_clock(file, &request->clock);
}

static int request_set_context(struct peerdma_file *file, union request *request,
			       struct peerdma_pinning *pinning)
{
	return peerdma_board_uapi_set_context(file, &request->context);
}

static int request_start_ring(struct peerdma_file *file, union request *request,
			      struct peerdma_pinning *pinning)
{
	if (request->start_ring.flags & ~PEERDMA_RING_FRESH)
		return request_unknown_flags(file, request->start_ring.flags);
	return peerdma_job_uapi_start_ring(file, &request->start_ring);
}

static int request_release_frames(struct peerdma_file *file, union request *request,
				  struct peerdma_pinning *pinning)
{
	if (request->release_frames.flags)
		return request_unknown_flags(file, request->release_frames.flags);
	return peerdma_job_uapi_release_frames(file, &request->release_frames);
}

static int request_create_queue(struct peerdma_file *file, union request *request,
				struct peerdma_pinning *pinning)
{
	return peerdma_launch_uapi_create(file, &request->create_queue);
}

static int request_destroy_queue(struct peerdma_file *file, union request *request,
				 struct peerdma_pinning *pinning)
{
	return peerdma_launch_uapi_destroy(file, &request->destroy_queue);
}

static int request_resume_queue(struct peerdma_file *file, union request *request,
				struct peerdma_pinning *pinning)
{
	return peerdma_launch_uapi_resume(file, &request->resume_queue);
}

static int request_prepare(struct peerdma_file *file, union request *request,
			   struct peerdma_pinning *pinning)
{
	return peerdma_prepare(file, &request->prepare);
}

static int request_unprepare(struct peerdma_file *file, union request *request,
			     struct peerdma_pinning *pinning)
{
	return peerdma_prepare_undo(file, &request->unprepare);
}

static int request_query_queue(struct peerdma_file *file, union request *request,
			       struct peerdma_pinning *pinning)
{
	return peerdma_launch_uapi_query(file, &request->query_queue);
}

/**
 * struct request_operation - a request
 * @size: size of the structure as it is now
 * @least: size of its first version
 * @run: does it, and fills in what is returned to the program
 */
struct request_operation {
	size_t size;
	size_t least;
	int (*run)(struct peerdma_file *file, union request *request,
		   struct peerdma_pinning *pinning);
};

#define OPERATION(command, function, member, last) \
	[_IOC_NR(command) - _IOC_NR(PEERDMA_IOC_GET_INFO)] = { \
		.size = sizeof_field(union request, member), \
		.least = offsetofend(union request, member.last), \
		.run = function, \
	}

static const struct request_operation operations[] = {
	OPERATION(PEERDMA_IOC_GET_INFO, request_info, info, last_error),
	OPERATION(PEERDMA_IOC_PIN_DMABUF, request_pin_dmabuf, pin_dmabuf, placement),
	OPERATION(PEERDMA_IOC_PIN_PAGES, request_pin_pages, pin_pages, handle),
	OPERATION(PEERDMA_IOC_SUBMIT, request_submit, submit, job),
	OPERATION(PEERDMA_IOC_CANCEL, request_cancel, cancel, job),
	OPERATION(PEERDMA_IOC_QUERY, request_query, query, peer),
	OPERATION(PEERDMA_IOC_MAP_INFO, request_map_info, map_info, start),
	OPERATION(PEERDMA_IOC_RESET, request_reset, reset, flags),
	OPERATION(PEERDMA_IOC_USER_REGISTER, request_user_register, user_register, value),
	OPERATION(PEERDMA_IOC_SUBMIT_BATCH, request_submit_batch, submit_batch, reserved),
	OPERATION(PEERDMA_IOC_SET_CONTEXT, request_set_context, context, ram_address),
	OPERATION(PEERDMA_IOC_START_RING, request_start_ring, start_ring, job),
	OPERATION(PEERDMA_IOC_RELEASE_FRAMES, request_release_frames, release_frames, count),
	OPERATION(PEERDMA_IOC_EXPORT_DMABUF, request_export_dmabuf, export_dmabuf, fd),
	OPERATION(PEERDMA_IOC_READ_CLOCK, request_read_clock, clock, after_ns),
	OPERATION(PEERDMA_IOC_CREATE_QUEUE, request_create_queue, create_queue, doorbell),
	OPERATION(PEERDMA_IOC_DESTROY_QUEUE, request_destroy_queue, destroy_queue, queue),
	OPERATION(PEERDMA_IOC_RESUME_QUEUE, request_resume_queue, resume_queue, queue),
	OPERATION(PEERDMA_IOC_PREPARE, request_prepare, prepare, done),
	OPERATION(PEERDMA_IOC_UNPREPARE, request_unprepare, unprepare, reserved),
	OPERATION(PEERDMA_IOC_QUERY_QUEUE, request_query_queue, query_queue, slots),
};

/**
 * peerdma_request_ioctl() - a request of our own
 * @file: whose
 * @command: PEERDMA_IOC_*
 * @argument: pointer to its structure
 *
 * Return: 0 or an errno.
 */
long peerdma_request_ioctl(struct peerdma_file *file, unsigned int command, unsigned long argument)
{
	unsigned int number = _IOC_NR(command) - _IOC_NR(PEERDMA_IOC_GET_INFO);
	void __user *user = (void __user *)argument;
	const struct request_operation *operation;
	struct peerdma_pinning pinning = {};
	union request *request;
	long error;
	int size;

	if (number >= ARRAY_SIZE(operations) || command != _IO(PEERDMA_IOC_MAGIC, _IOC_NR(command)))
		return -ENOTTY;
	operation = &operations[array_index_nospec(number, ARRAY_SIZE(operations))];
	if (!operation->run)
		return -ENOTTY;
	request = kzalloc(sizeof(*request), GFP_KERNEL);
	if (!request)
		return -ENOMEM;
	size = request_copy(file, request, operation->size, operation->least, user);
	error = size < 0 ? size : operation->run(file, request, &pinning);
	/* The size stays the program's. */
	request->size = size;
	if (!error && copy_to_user(user, request, min_t(size_t, size, operation->size)))
		error = -EFAULT;
	kfree(request);
	return peerdma_surface_finish(file, &pinning, error);
}
