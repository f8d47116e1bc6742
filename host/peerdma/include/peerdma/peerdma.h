/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peerdma for programs in C and C++: copies between memory, GPUs and an FPGA board, by the kernel
 * driver. One header over the driver's requests, for C99 and C++ with GCC or Clang; peerdma.hpp
 * has classes over it.
 *
 *	struct peerdma_board board;
 *	struct peerdma_pin from, to;
 *	char text[PEERDMA_TEXT];
 *	int error = peerdma_board_open(&board, NULL);
 *
 *	if (error)
 *		errx(1, "%s", peerdma_error_text(NULL, error, text, sizeof(text)));
 *	error = peerdma_pin_memory(&board, &from, source, length, PEERDMA_ACCESS_READ);
 *	if (!error)
 *		error = peerdma_pin_memory(&board, &to, destination, length, PEERDMA_ACCESS_WRITE);
 *	if (!error)
 *		error = peerdma_copy(&board, &to, 0, &from, 0, length, NULL);
 *	if (error)
 *		warnx("%s", peerdma_error_text(&board, error, text, sizeof(text)));
 *	peerdma_board_close(&board);
 *
 * Errors: functions return 0 or a negative errno, whose meaning is in peerdma_uapi.h.
 * peerdma_error_text() puts it into words, and peerdma_event_text() what a job ended with.
 *
 * Threads: any number of them may use a board at once, and wait for the same job. Opening, starting
 * and closing something is for one thread, while no other uses that. Whoever waits also reads the
 * events of others, and wakes who waits for them: no thread is started here.
 *
 * Ownership: the program allocates all structures, and does not move them while they are in use;
 * nothing here allocates memory. Pinned memory stays allocated until it is unpinned, or the board
 * closed, which unpins all. A job and its memory are the board's until peerdma_job_done(). On some
 * machines the board's writes take whole cache lines along: what it writes is best a page's.
 * A child of fork() must not use its parent's boards, and holds them open until it ends or execs.
 *
 * Waits: a timeout is in milliseconds; 0 looks and returns. A negative one is for as long as it
 * takes: the driver ends a job that stands still, but not one that waits for the user stream. A
 * signal does not end a wait: wait in slices, or poll() board.fd beside a signalfd.
 *
 * Versions: the header works with drivers of the same major version (PEERDMA_UAPI_VERSION), older
 * and newer ones; what an older one does not have fails with -EOPNOTSUPP, -E2BIG or -ENOTTY. Other
 * requests can be made on board.fd with the structures of peerdma_uapi.h; but do not read() it, and
 * start no jobs there.
 *
 * Before the first header that is included, define _POSIX_C_SOURCE as 200809L, or use a dialect
 * that has POSIX (-std=gnu99 and later, and C++). Link with -pthread.
 */
#ifndef PEERDMA_H
#define PEERDMA_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "peerdma_uapi.h"

#ifndef O_CLOEXEC
#error "peerdma.h needs POSIX: define _POSIX_C_SOURCE as 200809L, or compile with -std=gnu99"
#endif

/* Bytes that a text of this header takes at most */
#define PEERDMA_TEXT		512
#define PEERDMA_DEFAULT_NODE	"/dev/picoevb"

/* A board, from peerdma_board_open() to peerdma_board_close() */
struct peerdma_board {
	/* its node. For poll(): POLLIN says that peerdma_board_dispatch() has something to do */
	int fd;
	/* what was known of it when it was opened; peerdma_board_info() asks anew */
	struct peerdma_info info;
	/* only for the functions of this header */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int reading, lost;
};

/* Memory that boards can reach, from a pin function to peerdma_unpin() */
struct peerdma_pin {
	uint32_t handle; /* names it in requests; 0: nothing is pinned */
};

/* What a job does */
struct peerdma_transfer {
	enum peerdma_op op;
	/* destination; NULL for PEERDMA_OP_H2C, to card RAM, or of a queue to the stream window */
	const struct peerdma_pin *to;
	uint64_t to_offset; /* byte within the destination, or card address */
	/* source; NULL for PEERDMA_OP_C2H, from card RAM or the stream window */
	const struct peerdma_pin *from;
	uint64_t from_offset; /* byte within the source, or card address */
	uint64_t length; /* bytes of the source */
	uint64_t to_length; /* bytes of the destination for PEERDMA_OP_PROCESS, else 0 */
};

/* A transfer in progress, or one that has ended */
struct peerdma_job {
	uint64_t number; /* the driver's */
	/* how it ended, once it is done; of frames, the latest report */
	struct peerdma_event event;
	int done; /* see peerdma_job_done() */
};

/* What only this header uses ------------------------------------------------------------ */

/* A request of our own: members that are not set are 0. */
#define PEERDMA_REQUEST_(type, name)                                                               \
	struct type name;                                                                          \
	memset(&name, 0, sizeof(name));                                                            \
	name.size = sizeof(name)

static inline int peerdma_request_(int fd, unsigned long number, void *request)
{
	int result;

	do
		result = ioctl(fd, number, request);
	while (result < 0 && errno == EINTR); /* it has not been started */
	return result < 0 ? -errno : 0;
}

static inline uint64_t peerdma_clock_(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Reads events until one has come or the time is over, and hands them to their jobs. */
static inline int peerdma_read_(struct peerdma_board *board, uint64_t until)
{
	uint64_t buffer[32 * sizeof(struct peerdma_event) / sizeof(uint64_t)];
	const char *at = (const char *)buffer;
	struct pollfd node = { board->fd, POLLIN, 0 };
	int milliseconds = -1;
	ssize_t got;

	if (until != UINT64_MAX) {
		uint64_t now = peerdma_clock_();
		uint64_t left = until > now ? (until - now + 999999) / 1000000 : 0;

		milliseconds = left < INT_MAX ? (int)left : INT_MAX;
	}
	if (poll(&node, 1, milliseconds) < 0 && errno != EINTR)
		return -errno;
	/* Another thread may have had it taken back: so this does not wait. */
	got = read(board->fd, buffer, sizeof(buffer));
	if (got < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	pthread_mutex_lock(&board->lock);
	while (got >= (ssize_t)offsetof(struct peerdma_event, bytes)) {
		struct peerdma_event event;
		struct peerdma_job *job;
		uint32_t size;

		/* A newer driver's are longer, an older one's shorter. */
		memcpy(&size, at, sizeof(size));
		memset(&event, 0, sizeof(event));
		memcpy(&event, at, size < sizeof(event) ? size : sizeof(event));
		job = (struct peerdma_job *)(uintptr_t)event.user_data;
		if (job) {
			job->event = event;
			if (event.reason != PEERDMA_REASON_FRAMES)
				__atomic_store_n(&job->done, 1, __ATOMIC_RELEASE);
		}
		at += size;
		got -= size;
	}
	pthread_mutex_unlock(&board->lock);
	return 0;
}

/* Reads as the one thread that does; the lock is held, and not meanwhile. */
static inline int peerdma_lead_(struct peerdma_board *board, uint64_t until)
{
	int error;

	board->reading = 1;
	pthread_mutex_unlock(&board->lock);
	error = peerdma_read_(board, until);
	pthread_mutex_lock(&board->lock);
	board->reading = 0;
	board->lost |= error && error != -EAGAIN;
	pthread_cond_broadcast(&board->changed);
	return error;
}

/* Waits until a job is done, or has reported more than `beyond`: -EAGAIN if not in time. */
static inline int peerdma_await_(struct peerdma_board *board, struct peerdma_job *job,
				 uint64_t beyond, int timeout)
{
	uint64_t until = UINT64_MAX;
	int error = 0;

	if (timeout >= 0)
		until = peerdma_clock_() + (uint64_t)timeout * 1000000u;
	pthread_mutex_lock(&board->lock);
	while (!job->done && job->event.bytes <= beyond && !error) {
		if (board->lost) {
			error = -ENODEV;
		} else if (!board->reading) {
			error = peerdma_lead_(board, until);
			if (error == -EAGAIN && peerdma_clock_() < until)
				error = 0;
		} else if (until == UINT64_MAX) {
			pthread_cond_wait(&board->changed, &board->lock);
		} else {
			struct timespec end;

			end.tv_sec = (time_t)(until / 1000000000u);
			end.tv_nsec = (long)(until % 1000000000u);
			if (pthread_cond_timedwait(&board->changed, &board->lock, &end))
				error = -EAGAIN;
		}
	}
	if (job->done || job->event.bytes > beyond)
		error = 0;
	pthread_mutex_unlock(&board->lock);
	return error;
}

/* Boards -------------------------------------------------------------------------------- */

/*
 * Opens a board.
 * @node: path of its node; NULL: the first one's
 * Return: 0; -ENOENT: there is no such board; -EACCES: not permitted; -ENOTTY: the node is another
 *   driver's; -EPROTO: the driver is of another major version.
 */
static inline int peerdma_board_open(struct peerdma_board *board, const char *node)
{
	pthread_condattr_t kind;
	int error;

	memset(board, 0, sizeof(*board));
	board->fd = open(node ? node : PEERDMA_DEFAULT_NODE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (board->fd < 0)
		return -errno;
	board->info.size = sizeof(board->info);
	error = peerdma_request_(board->fd, PEERDMA_IOC_GET_INFO, &board->info);
	if (!error && board->info.uapi_version >> 16 != PEERDMA_UAPI_VERSION >> 16)
		error = -EPROTO;
	if (error) {
		close(board->fd);
		board->fd = -1;
		return error;
	}
	pthread_mutex_init(&board->lock, NULL);
	pthread_condattr_init(&kind);
	pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
	pthread_cond_init(&board->changed, &kind);
	pthread_condattr_destroy(&kind);
	return 0;
}

/*
 * Stops the jobs of a board, unpins its memory and closes it; close its launch queues before.
 * Nothing happens if opening it failed. peerdma_job_done() stays 0 for jobs that this stops.
 */
static inline void peerdma_board_close(struct peerdma_board *board)
{
	if (board->fd < 0)
		return;
	close(board->fd);
	board->fd = -1;
	pthread_cond_destroy(&board->changed);
	pthread_mutex_destroy(&board->lock);
}

/* What is known of driver, board and this opening of it, as of now. */
static inline int peerdma_board_info(struct peerdma_board *board, struct peerdma_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return peerdma_request_(board->fd, PEERDMA_IOC_GET_INFO, info);
}

/*
 * Learns which jobs have ended, and which frames have come, without waiting: for programs that
 * poll() board.fd themselves. Then ask peerdma_job_done(), or peerdma_frames_wait() with timeout 0.
 * Return: 0; -EAGAIN: nothing has happened, or another thread learns of it; -ENODEV: the board is
 *   gone, for which poll() has POLLHUP.
 */
static inline int peerdma_board_dispatch(struct peerdma_board *board)
{
	int error = -EAGAIN;

	pthread_mutex_lock(&board->lock);
	if (board->lost)
		error = -ENODEV;
	else if (!board->reading)
		error = peerdma_lead_(board, 0);
	pthread_mutex_unlock(&board->lock);
	return error;
}

/* Errors in words ----------------------------------------------------------------------- */

/*
 * What went wrong, and what to do: @text, of which PEERDMA_TEXT bytes are enough.
 * @board: the board, or NULL: it could not be opened
 * @error: what a function returned, a negative errno
 *
 * The words are the driver's for the latest request or job of this opening that failed with the
 * same errno: with several threads, or if this one failed in the program already, maybe another.
 */
static inline const char *peerdma_error_text(struct peerdma_board *board, int error, char *text,
					     size_t size)
{
	static const struct {
		int error;
		const char *text;
	} known[] = {
		{ ENOENT, "no such board or node: is the driver loaded (lsmod | grep peerdma)?" },
		{ EACCES, "not permitted: be in the node's group (ls -l /dev/picoevb*)" },
		{ ENOTTY, "not known to the driver: install driver and header of one release" },
		{ E2BIG, "an older driver's: install driver and header of one release" },
		{ EPROTO, "another version's driver: install driver and header of one release" },
		{ EAGAIN, "not yet: not done in time, or too many jobs were not waited for" },
		{ EBUSY, "the board or its channel is in use: try again" },
		{ EINVAL, "an argument is wrong" },
		{ EIO, "the board reported an error, or was reset" },
		{ ETIMEDOUT, "the transfer stood still, and was stopped" },
		{ ECANCELED, "the job was cancelled" },
		{ ESTALE, "the memory was freed or moved by its owner: pin it again" },
		{ ENOMEM, "out of memory, or over the limit of locked memory (ulimit -l)" },
		{ EFAULT, "not memory of this process, or not all of it: is it still allocated?" },
		{ ENOSPC, "there is no room for another one" },
		{ EOPNOTSUPP, "this board, GPU or driver does not have what was asked for" },
		{ ENODEV, "the board is gone: check it, and open it again" },
	};
	struct peerdma_info info;
	const char *found = NULL;
	size_t place;

	if (board && board->fd >= 0 && error != -EAGAIN && !peerdma_board_info(board, &info) &&
	    info.last_errno && error == -(int)info.last_errno) {
		snprintf(text, size, "%.*s", (int)sizeof(info.last_error),
			 (const char *)info.last_error);
		return text;
	}
	for (place = 0; place < sizeof(known) / sizeof(*known); place++)
		if (known[place].error == -error)
			found = known[place].text;
	snprintf(text, size, "%s (error %d)", found ? found : "see peerdma_uapi.h", -error);
	return text;
}

/* Pinned memory ------------------------------------------------------------------------- */

/*
 * Lets go of pinned memory; nothing happens if @pin is not pinned. Jobs that have not started and
 * rings of frames are cancelled; jobs that have started are waited for.
 */
static inline int peerdma_unpin(struct peerdma_board *board, struct peerdma_pin *pin)
{
	struct peerdma_unpin_cuda request = { pin->handle };
	int error;

	if (!pin->handle)
		return 0;
	error = peerdma_request_(board->fd, PEERDMA_IOC_UNPIN_CUDA, &request);
	if (!error)
		pin->handle = 0;
	return error;
}

/* Where pinned memory is, and which way the board takes to it. */
static inline int peerdma_pin_query(struct peerdma_board *board, const struct peerdma_pin *pin,
				    struct peerdma_query *query)
{
	memset(query, 0, sizeof(*query));
	query->size = sizeof(*query);
	query->handle = pin->handle;
	return peerdma_request_(board->fd, PEERDMA_IOC_QUERY, query);
}

/*
 * Pins memory of this process.
 * @memory: any alignment
 * @length: bytes, not 0
 * @access: PEERDMA_ACCESS_READ, PEERDMA_ACCESS_WRITE or both: what the board may do
 * Return: 0; -ENOMEM: over the limit of locked memory, too; -EFAULT: not all of it is there, or
 *   may be used so.
 */
static inline int peerdma_pin_memory(struct peerdma_board *board, struct peerdma_pin *pin,
				     const void *memory, size_t length, uint32_t access)
{
	PEERDMA_REQUEST_(peerdma_pin_pages, request);
	int error;

	request.address = (uintptr_t)memory;
	request.length = length;
	request.access = access;
	error = peerdma_request_(board->fd, PEERDMA_IOC_PIN_PAGES, &request);
	pin->handle = error ? 0 : request.handle;
	return error;
}

/*
 * Pins memory that another driver exports.
 * @fd: the dma-buf; may be closed afterwards
 * @offset: first byte of it
 * @length: bytes; 0: up to its end
 * @access: as in peerdma_pin_memory()
 * @flags: PEERDMA_PIN_REQUIRE_PEER: not if the board does not reach the device directly; or 0
 * Return: 0; -EOPNOTSUPP: the exporter, or the way to it, does not permit that.
 */
static inline int peerdma_pin_dma_buf(struct peerdma_board *board, struct peerdma_pin *pin, int fd,
				      uint64_t offset, uint64_t length, uint32_t access,
				      uint32_t flags)
{
	PEERDMA_REQUEST_(peerdma_pin_dmabuf, request);
	int error;

	request.flags = flags;
	request.fd = fd;
	request.offset = offset;
	request.length = length;
	request.access = access;
	error = peerdma_request_(board->fd, PEERDMA_IOC_PIN_DMABUF, &request);
	pin->handle = error ? 0 : request.handle;
	return error;
}

/*
 * Pins GPU memory by its CUDA address. It needs the driver's module for this kind of GPU. See
 * peerdma_pin_device(), too.
 * @address: of this process's CUDA, any alignment
 * @length: bytes, not 0
 * Return: 0; -EOPNOTSUPP: no such module is loaded.
 */
static inline int peerdma_pin_address(struct peerdma_board *board, struct peerdma_pin *pin,
				      uint64_t address, uint64_t length)
{
	struct peerdma_pin_cuda request = { address, length, 0 };
	int error;

	error = peerdma_request_(board->fd, PEERDMA_IOC_PIN_CUDA, &request);
	pin->handle = error ? 0 : request.handle;
	return error;
}

/* Jobs ---------------------------------------------------------------------------------- */

/*
 * Starts a transfer, and returns. The job belongs to the board until it is done.
 * Return: 0; -EAGAIN: too many jobs have not been waited for; -EBUSY: try again. With an error
 *   there is no job.
 */
static inline int peerdma_job_start(struct peerdma_board *board, struct peerdma_job *job,
				    const struct peerdma_transfer *transfer)
{
	PEERDMA_REQUEST_(peerdma_submit, request);
	int error;

	memset(job, 0, sizeof(*job));
	request.op = transfer->op;
	request.src_handle = transfer->from ? transfer->from->handle : 0;
	request.src_offset = transfer->from_offset;
	request.dst_handle = transfer->to ? transfer->to->handle : 0;
	request.dst_offset = transfer->to_offset;
	request.length = transfer->length;
	request.dst_length = transfer->to_length;
	request.user_data = (uintptr_t)job;
	error = peerdma_request_(board->fd, PEERDMA_IOC_SUBMIT, &request);
	if (!error)
		job->number = request.job;
	return error;
}

/*
 * Whether a job has ended, as far as this process has learned.
 * Return: 1 if @job->event says how, and its memory is the program's again; else 0.
 */
static inline int peerdma_job_done(const struct peerdma_job *job)
{
	return __atomic_load_n(&job->done, __ATOMIC_ACQUIRE);
}

/*
 * Waits for the end of a job.
 * @timeout: milliseconds; negative: as long as it takes
 * Return: how it ended: 0, or a negative errno, for which both text functions have words; -EAGAIN:
 *   it has not ended in time, and goes on; -ENODEV: the board is gone, and does not use its
 *   memory.
 */
static inline int peerdma_job_wait(struct peerdma_board *board, struct peerdma_job *job,
				   int timeout)
{
	int error = 0;

	if (!peerdma_job_done(job))
		error = peerdma_await_(board, job, UINT64_MAX, timeout);
	return error ? error : job->event.result;
}

/*
 * Asks for the end of a job, and returns.
 * @job: the job; wait for it afterwards. It may still succeed
 * Return: 0, also if it has ended.
 */
static inline int peerdma_job_cancel(struct peerdma_board *board, struct peerdma_job *job)
{
	PEERDMA_REQUEST_(peerdma_cancel, request);
	int error;

	request.job = job->number;
	error = peerdma_request_(board->fd, PEERDMA_IOC_CANCEL, &request);
	return error == -ENOENT ? 0 : error;
}

/* How a job ended, by its event, in words: @text, of which PEERDMA_TEXT bytes are enough. */
static inline const char *peerdma_event_text(const struct peerdma_event *event, char *text,
					     size_t size)
{
	static const char *const reasons[] = {
		"it succeeded",
		"the board reported an error",
		"it stood still, or took far too long, and was stopped",
		"it was cancelled",
		"its memory was unpinned",
		"its memory was freed or moved by its owner",
		"the board was reset or suspended",
		"the board is gone",
		"a job that waits for data of the user stream, or a ring of frames, keeps the channel",
		"its card RAM, or the user stream, has become another program's own",
		"it goes on, and has filled frames",
	};
	const char *reason = "for a reason that only a newer header knows";

	if (event->reason < sizeof(reasons) / sizeof(*reasons))
		reason = reasons[event->reason];
	snprintf(text, size, event->status ? "%s (status 0x%x, at 0x%llx)" : "%s", reason,
		 (unsigned int)event->status, (unsigned long long)event->address);
	return text;
}

/*
 * Makes a transfer, and waits for that.
 * @event: how it went: bytes, time and cycles; or NULL
 * Return: 0; -EIO: the board reported an error; -ETIMEDOUT: it stood still; or another errno.
 */
static inline int peerdma_run(struct peerdma_board *board, const struct peerdma_transfer *transfer,
			      struct peerdma_event *event)
{
	struct peerdma_job job;
	int error = peerdma_job_start(board, &job, transfer);

	if (error)
		return error;
	error = peerdma_job_wait(board, &job, -1);
	/* Whatever has gone wrong with waiting, the job is on this stack. */
	while (!peerdma_job_done(&job) && error != -ENODEV) {
		peerdma_job_cancel(board, &job);
		error = peerdma_job_wait(board, &job, 1000);
	}
	if (event)
		*event = job.event;
	return error;
}

/* Copies memory to memory through the board; see peerdma_run(). The ranges must not overlap. */
static inline int peerdma_copy(struct peerdma_board *board, const struct peerdma_pin *to,
			       uint64_t to_offset, const struct peerdma_pin *from,
			       uint64_t from_offset, uint64_t length, struct peerdma_event *event)
{
	struct peerdma_transfer transfer = {
		PEERDMA_OP_COPY, to, to_offset, from, from_offset, length, 0
	};

	return peerdma_run(board, &transfer, event);
}

/* Copies memory to card RAM; see peerdma_run(). */
static inline int peerdma_write(struct peerdma_board *board, uint64_t card_address,
				const struct peerdma_pin *from, uint64_t from_offset,
				uint64_t length, struct peerdma_event *event)
{
	struct peerdma_transfer transfer = {
		PEERDMA_OP_H2C, NULL, card_address, from, from_offset, length, 0
	};

	return peerdma_run(board, &transfer, event);
}

/* Copies card RAM to memory; see peerdma_run(). */
static inline int peerdma_read(struct peerdma_board *board, const struct peerdma_pin *to,
			       uint64_t to_offset, uint64_t card_address, uint64_t length,
			       struct peerdma_event *event)
{
	struct peerdma_transfer transfer = {
		PEERDMA_OP_C2H, to, to_offset, NULL, card_address, length, 0
	};

	return peerdma_run(board, &transfer, event);
}

/* Frames -------------------------------------------------------------------------------- */

/* Frames of the user stream, from start to stop */
struct peerdma_frames {
	struct peerdma_job job; /* fills them, in their order, round and round */
	uint64_t released; /* how many were given back since the start; read only */
};

/*
 * Has the board fill places in memory with what comes from the user stream, whose source the
 * program starts. What was in the stream before is discarded.
 * @frames: what the functions below take
 * @places: pinned for writing: handle of the pin, first byte in it, length, 0; not used after this.
 *   Frame n goes to place n % @count, and has to be as long: if one is not, those behind it are off
 * @count: 1 to 256; all together at most 2048 pieces on the bus: a page each without an IOMMU
 * @records: memory for a record of 32 bytes for each place, see docs/gateware.md; NULL: no records
 *
 * While no place is free the board waits, and nothing is overwritten; whether the source then waits
 * or drops frames is up to it, and a record counts them.
 * Return: 0; -EOPNOTSUPP: there is no user stream, or none with records; -EBUSY: another ring or
 *   job has the channel; -EINVAL: a place is wrong.
 */
static inline int peerdma_frames_start(struct peerdma_board *board, struct peerdma_frames *frames,
				       const struct peerdma_frame *places, uint32_t count,
				       const struct peerdma_pin *records)
{
	PEERDMA_REQUEST_(peerdma_start_ring, request);
	int error;

	memset(frames, 0, sizeof(*frames));
	request.flags = PEERDMA_RING_FRESH;
	request.frames = (uintptr_t)places;
	request.count = count;
	request.records_handle = records ? records->handle : 0;
	request.user_data = (uintptr_t)&frames->job;
	error = peerdma_request_(board->fd, PEERDMA_IOC_START_RING, &request);
	if (!error)
		frames->job.number = request.job;
	return error;
}

/*
 * Waits until more than @seen frames have been filled since the start.
 * @filled: how many have been; those from frames->released to @filled - 1 are the program's
 * Return: 0; -EAGAIN: not in time; else how the ring ended, if it has no more than @seen:
 *   peerdma_event_text(&frames->job.event, ...) has the reason.
 */
static inline int peerdma_frames_wait(struct peerdma_board *board, struct peerdma_frames *frames,
				      uint64_t seen, int timeout, uint64_t *filled)
{
	int error = peerdma_await_(board, &frames->job, seen, timeout);

	pthread_mutex_lock(&board->lock);
	*filled = frames->job.event.bytes;
	if (!error && *filled <= seen)
		error = frames->job.event.result ? frames->job.event.result : -ECANCELED;
	pthread_mutex_unlock(&board->lock);
	return error;
}

/*
 * Gives @count more frames back, the oldest first: the board may write over them at once.
 * Return: 0, also if the ring has ended; -EINVAL: so many were not filled.
 */
static inline int peerdma_frames_release(struct peerdma_board *board, struct peerdma_frames *frames,
					 uint64_t count)
{
	PEERDMA_REQUEST_(peerdma_release_frames, request);
	int error;

	pthread_mutex_lock(&board->lock);
	request.job = frames->job.number;
	request.count = frames->released + count;
	error = peerdma_request_(board->fd, PEERDMA_IOC_RELEASE_FRAMES, &request);
	if (error == -ENOENT || error == -ENODEV)
		error = 0;
	if (!error)
		frames->released += count;
	pthread_mutex_unlock(&board->lock);
	return error;
}

/*
 * Ends the ring. The board writes to none of its places any more; frames that were filled stay.
 * Return: 0 if it went on, or was cancelled; else how it had ended. Ended it has in any case.
 */
static inline int peerdma_frames_stop(struct peerdma_board *board, struct peerdma_frames *frames)
{
	int error;

	if (!frames->job.number)
		return 0;
	peerdma_job_cancel(board, &frames->job);
	error = peerdma_job_wait(board, &frames->job, -1);
	return error == -ECANCELED ? 0 : error;
}

/* Launch queues ------------------------------------------------------------------------- */

/* What is where in the memory of a queue: words of different writers are apart. */
enum peerdma_launch_place {
	PEERDMA_LAUNCH_ENTRIES = 0,
	PEERDMA_LAUNCH_RECORDS = 2048,
	PEERDMA_LAUNCH_TAIL = 4096,
	PEERDMA_LAUNCH_STATE = 4160,
	PEERDMA_LAUNCH_NEXT = 4224,
	PEERDMA_LAUNCH_PUBLISHED = 4228,
	PEERDMA_LAUNCH_DONE = 4352, /* 4 bytes for each plan */
	PEERDMA_LAUNCH_WRITTEN = 5120,
	PEERDMA_LAUNCH_BYTES = 8192,
};

#define PEERDMA_LAUNCH_PLANS	64

/* A queue by which a GPU starts jobs that were prepared */
struct peerdma_launch {
	struct peerdma_job job; /* ends with the queue */
	unsigned char *memory; /* its memory, as this process sees it */
	/* page of its doorbell; NULL: there is none, and the board polls the tail */
	void *doorbell;
	uint32_t depth; /* places of its rings */
	uint32_t generation; /* of its doorbells */
	uint32_t plans; /* how many were prepared */
	uint8_t slots[PEERDMA_LAUNCH_PLANS]; /* where, by plan */
};

/*
 * Opens a launch queue that holds @depth tickets, a power of two from 8 to 256.
 * @memory: PEERDMA_LAUNCH_BYTES at a multiple of 4096 that the GPU sees, too: page-locked and
 *   mapped memory of the host
 * @pin: the same, pinned for reading and writing by peerdma_pin_memory()
 * Return: 0; -EOPNOTSUPP: the board has none; -EBUSY: all are in use.
 */
static inline int peerdma_launch_open(struct peerdma_board *board, struct peerdma_launch *launch,
				      void *memory, const struct peerdma_pin *pin, uint32_t depth)
{
	PEERDMA_REQUEST_(peerdma_create_queue, request);
	uint32_t place, before, *word = (uint32_t *)memory;
	int error;

	memset(launch, 0, sizeof(*launch));
	request.depth = depth;
	request.handle = pin->handle;
	request.entries = PEERDMA_LAUNCH_ENTRIES;
	request.records = PEERDMA_LAUNCH_RECORDS;
	request.shadow = PEERDMA_LAUNCH_TAIL;
	request.word = PEERDMA_LAUNCH_STATE;
	request.user_data = (uintptr_t)&launch->job;
	error = peerdma_request_(board->fd, PEERDMA_IOC_CREATE_QUEUE, &request);
	if (error)
		return error;
	launch->job.number = request.queue;
	launch->memory = (unsigned char *)memory;
	launch->depth = depth;
	launch->generation = request.generation;
	if (request.doorbell) {
		launch->doorbell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, board->fd,
					(off_t)request.doorbell);
		if (launch->doorbell == MAP_FAILED)
			launch->doorbell = NULL;
	}
	/* What submitters keep; in each place, the last ticket before the first one */
	before = request.first - 1;
	for (place = 0; place < depth; place++)
		word[PEERDMA_LAUNCH_WRITTEN / 4 + place] = before - ((before - place) & (depth - 1));
	for (place = 0; place < PEERDMA_LAUNCH_PLANS; place++)
		word[PEERDMA_LAUNCH_DONE / 4 + place] = 0;
	word[PEERDMA_LAUNCH_NEXT / 4] = request.first;
	word[PEERDMA_LAUNCH_PUBLISHED / 4] = request.first;
	return 0;
}

/*
 * Gives a queue a transfer, of at most 16 MiB, that kernels start by its number.
 * Return: the number, from 0 on; or a negative errno: -ENOSPC: there is no room for another one.
 */
static inline int peerdma_launch_prepare(struct peerdma_board *board, struct peerdma_launch *launch,
					 const struct peerdma_transfer *transfer)
{
	PEERDMA_REQUEST_(peerdma_prepare, request);
	int error;

	if (launch->plans == PEERDMA_LAUNCH_PLANS)
		return -ENOSPC;
	request.flags = PEERDMA_PREPARE_DONE;
	request.queue = launch->job.number;
	request.op = transfer->op;
	request.src_handle = transfer->from ? transfer->from->handle : 0;
	request.src_offset = transfer->from_offset;
	request.dst_handle = transfer->to ? transfer->to->handle : 0;
	request.dst_offset = transfer->to_offset;
	request.length = transfer->length;
	request.done = PEERDMA_LAUNCH_DONE + 4u * launch->plans;
	error = peerdma_request_(board->fd, PEERDMA_IOC_PREPARE, &request);
	if (error)
		return error;
	launch->slots[launch->plans] = (uint8_t)request.slot;
	return (int)launch->plans++;
}

/*
 * Has tickets start again after one that failed.
 * Return: 0; -ENOENT: it has ended.
 */
static inline int peerdma_launch_resume(struct peerdma_board *board, struct peerdma_launch *launch)
{
	PEERDMA_REQUEST_(peerdma_resume_queue, request);

	request.queue = launch->job.number;
	return peerdma_request_(board->fd, PEERDMA_IOC_RESUME_QUEUE, &request);
}

/*
 * Ends a queue; the board does not use its memory any more.
 * @launch: the queue; nothing happens if it is not open
 * Return: 0, also if it had ended.
 */
static inline int peerdma_launch_close(struct peerdma_board *board, struct peerdma_launch *launch)
{
	PEERDMA_REQUEST_(peerdma_destroy_queue, request);
	int error;

	if (!launch->job.number)
		return 0;
	request.queue = launch->job.number;
	error = peerdma_request_(board->fd, PEERDMA_IOC_DESTROY_QUEUE, &request);
	/* Its end has been read by a thread that is about to note it. */
	if (error == -ENOENT)
		peerdma_job_wait(board, &launch->job, 1000);
	else if (error)
		return error;
	if (launch->doorbell)
		munmap(launch->doorbell, 4096);
	memset(launch, 0, sizeof(*launch));
	return 0;
}

/* GPUs ---------------------------------------------------------------------------------- */

#if defined(CUDA_VERSION) && CUDA_VERSION >= 11070 /* cuda.h was included: link with -lcuda */
/*
 * Pins memory of a GPU: as a dma-buf where CUDA exports it, else by address. CUDA's own copies to
 * and from this memory are ordered with those of boards (SYNC_MEMOPS).
 * @address: in an allocation of this process, any alignment
 * @length: bytes, not 0
 * @access: as in peerdma_pin_memory()
 * @flags: as in peerdma_pin_dma_buf()
 * Return: 0, or a negative errno, of the last way that was tried.
 */
static inline int peerdma_pin_device(struct peerdma_board *board, struct peerdma_pin *pin,
				     CUdeviceptr address, size_t length, uint32_t access,
				     uint32_t flags)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = address % page;
	size_t whole = (skip + length + page - 1) / page * page;
	unsigned long long kind = 0;
	int fd, on = 1, shared = 0, error = -EOPNOTSUPP;
	CUdevice device;

	pin->handle = 0;
	if (cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address) ||
	    cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ||
	    cuDeviceGetAttribute(
		    &shared, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, device))
		return -EFAULT;
#if CUDA_VERSION >= 12080
	/* Such a GPU is coherent with the processor, and boards reach only what is in its BAR. */
	if (shared)
		kind = CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
#endif
	if ((kind || !shared) &&
	    cuMemGetHandleForAddressRange(&fd, address - skip, whole,
					  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, kind) == 0) {
		error = peerdma_pin_dma_buf(board, pin, fd, skip, length, access, flags);
		close(fd);
	}
	if (error && !(flags & PEERDMA_PIN_REQUIRE_PEER))
		error = peerdma_pin_address(board, pin, address, length);
	return error;
}
#endif /* CUDA_VERSION */

#endif /* PEERDMA_H */
