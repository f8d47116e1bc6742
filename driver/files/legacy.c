// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where requests enter, and those of NVIDIA's PicoEVB driver: pin GPU memory, and transfers that
 * are waited for.
 */
#include <linux/compat.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/uaccess.h>

#include "files.h"

/*
 * Memory given by pointer is pinned in windows, one after the other: a transfer may be larger than
 * what may be locked, and nothing is locked for longer than its transfer takes. A window has at
 * most this many bytes, and this part of the limit, so that threads can make transfers side by
 * side.
 */
#define WINDOW		SZ_8M
#define WINDOW_PART	8

#ifdef CONFIG_COMPAT
/* On 32-bit x86 the structure ends without padding, and that gives the request another code. */
#define PIN_CUDA_COMPAT \
	_IOC(_IOC_READ | _IOC_WRITE, PEERDMA_IOC_MAGIC, _IOC_NR(PEERDMA_IOC_PIN_CUDA), \
	     offsetofend(struct peerdma_pin_cuda, handle))
#endif

/**
 * struct end - one end of a transfer
 * @surface: memory pinned by the program; NULL if @address is a pointer or a card address
 * @address: pointer, card address, or byte in @surface
 * @memory: not on the card
 */
struct end {
	struct peerdma_surface *surface;
	u64 address;
	bool memory;
};

static int legacy_end_open(struct peerdma_file *file, struct end *end, u64 value, bool is_handle)
{
	end->memory = true;
	if (!is_handle) {
		end->address = value;
		return 0;
	}
	end->surface = peerdma_surface_find(file, value);
	if (!end->surface)
		return peerdma_fail(file, -EINVAL, "no memory is pinned as handle %llu", value);
	return 0;
}

static void legacy_end_close(struct end *end)
{
	if (end->surface)
		peerdma_surface_put(end->surface);
}

/* Of all but the last one of a transfer. */
static u64 legacy_window_size(void)
{
	u64 part = rounddown(rlimit(RLIMIT_MEMLOCK) / WINDOW_PART, PAGE_SIZE);

	return clamp_t(u64, part, PAGE_SIZE, WINDOW);
}

/* The memory of a window, which is pinned for it unless the program has pinned it. */
static struct peerdma_surface *legacy_window_open(struct peerdma_file *file, const struct end *end,
						  u64 done, u64 length, u32 access)
{
	struct peerdma_pin_request request = {
		.va = end->address + done,
		.length = length,
		.access = access,
	};

	if (end->surface || !end->memory)
		return end->surface;
	return peerdma_surface_create(file, &peerdma_pages, &request);
}

/* Where a window begins: at 0 of a surface pinned for it. A stream has only one address. */
static u64 legacy_window_place(const struct peerdma_file *file, const struct end *end,
			       const struct peerdma_surface *surface, u64 done)
{
	u64 stream = file->board->stream_window;

	if (surface != end->surface)
		return 0;
	if (!end->memory && stream && end->address == stream)
		return stream;
	return end->address + done;
}

/* If the process was killed, the job gives the memory back when it has ended. */
static void legacy_window_close(const struct end *end, struct peerdma_surface *surface, int error)
{
	if (IS_ERR_OR_NULL(surface) || end->surface)
		return;
	if (error != -EINTR)
		peerdma_release(surface);
	peerdma_surface_put(surface);
}

static int legacy_window(struct peerdma_file *file, u32 op, const struct end *source,
			 const struct end *destination, u64 done, u64 length, u64 *nanoseconds)
{
	struct peerdma_surface *from, *to = NULL;
	int error;

	from = legacy_window_open(file, source, done, length, PEERDMA_ACCESS_READ);
	if (IS_ERR(from))
		return PTR_ERR(from);
	to = legacy_window_open(file, destination, done, length, PEERDMA_ACCESS_WRITE);
	if (IS_ERR(to))
		error = PTR_ERR(to);
	else
		error = peerdma_submit_transfer(file, op, from,
						legacy_window_place(file, source, from, done), to,
						legacy_window_place(file, destination, to, done),
						length, nanoseconds);
	legacy_window_close(destination, to, error);
	legacy_window_close(source, from, error);
	return error;
}

/* Only pointers are compared here; for handles the transfer checks. */
static bool legacy_overlap(const struct end *source, const struct end *destination, u64 length)
{
	u64 between = max(source->address, destination->address) -
		      min(source->address, destination->address);

	return source->memory && destination->memory && !source->surface &&
	       !destination->surface && between < length;
}

/* Checks all of an end before any of it is moved. */
static int legacy_check_end(struct peerdma_file *file, u32 op, const struct end *end, u64 length)
{
	if (end->surface)
		return peerdma_submit_check_surface(file, end->surface, 0, length);
	if (!end->memory)
		return peerdma_submit_check_card(file, op, end->address, length);
	return length ? peerdma_surface_check_range(file, end->address, length, true) : 0;
}

static int legacy_transfer(struct peerdma_file *file, u32 op, const struct end *source,
			   const struct end *destination, u64 length, u64 *nanoseconds)
{
	bool pointers = (source->memory && !source->surface) ||
			(destination->memory && !destination->surface);
	u64 window = pointers ? legacy_window_size() : length;
	u64 done, part;
	int error;

	*nanoseconds = 0;
	error = legacy_check_end(file, op, source, length);
	if (!error)
		error = legacy_check_end(file, op, destination, length);
	if (!error && legacy_overlap(source, destination, length))
		error = peerdma_fail(file, -EINVAL,
				     "source and destination overlap: %llu bytes from %#llx and from %#llx on",
				     length, source->address, destination->address);
	for (done = 0; !error && done < length; done += part) {
		part = min(length - done, window);
		error = legacy_window(file, op, source, destination, done, part, nanoseconds);
	}
	return error;
}

static int legacy_check_flags(struct peerdma_file *file, u64 flags, u64 known)
{
	if (flags & ~known)
		return peerdma_fail(file, -EINVAL, "unknown flags %#llx", flags & ~known);
	return 0;
}

static int legacy_h2c2h(struct peerdma_file *file, struct peerdma_h2c2h_dma *dma)
{
	struct end source = {}, destination = {};
	int error;

	error = legacy_check_flags(file, dma->flags, PEERDMA_H2C2H_SRC_IS_HANDLE |
					      PEERDMA_H2C2H_DST_IS_HANDLE);
	if (error)
		return error;
	error = legacy_end_open(file, &source, dma->src, dma->flags & PEERDMA_H2C2H_SRC_IS_HANDLE);
	if (!error)
		error = legacy_end_open(file, &destination, dma->dst,
					dma->flags & PEERDMA_H2C2H_DST_IS_HANDLE);
	if (!error)
		error = legacy_transfer(file, PEERDMA_OP_COPY, &source, &destination, dma->len,
					&dma->dma_time_ns);
	legacy_end_close(&destination);
	legacy_end_close(&source);
	return error;
}

static int legacy_h2c(struct peerdma_file *file, struct peerdma_h2c_dma *dma)
{
	struct end source = {}, card = { .address = dma->dst };
	int error;

	error = legacy_check_flags(file, dma->flags, PEERDMA_H2C_SRC_IS_HANDLE);
	if (error)
		return error;
	error = legacy_end_open(file, &source, dma->src, dma->flags & PEERDMA_H2C_SRC_IS_HANDLE);
	if (!error)
		error = legacy_transfer(file, PEERDMA_OP_H2C, &source, &card, dma->len,
					&dma->dma_time_ns);
	legacy_end_close(&source);
	return error;
}

static int legacy_c2h(struct peerdma_file *file, struct peerdma_c2h_dma *dma)
{
	struct end destination = {}, card = { .address = dma->src };
	int error;

	error = legacy_check_flags(file, dma->flags, PEERDMA_C2H_DST_IS_HANDLE);
	if (error)
		return error;
	error = legacy_end_open(file, &destination, dma->dst,
				dma->flags & PEERDMA_C2H_DST_IS_HANDLE);
	if (!error)
		error = legacy_transfer(file, PEERDMA_OP_C2H, &card, &destination, dma->len,
					&dma->dma_time_ns);
	legacy_end_close(&destination);
	return error;
}

static int legacy_pin(struct peerdma_file *file, struct peerdma_pin_cuda *pin_cuda,
		      struct peerdma_pinning *pinning)
{
	struct peerdma_pin_request request = {
		.va = pin_cuda->va,
		.length = pin_cuda->size,
		.access = PEERDMA_ACCESS_BOTH,
	};
	const struct peerdma_provider *gpu;
	int error;

	if (!pin_cuda->size)
		return peerdma_fail(file, -EINVAL, "nothing to pin: the size is 0");
	/* Without a provider the pointer must be to page-locked host memory, as on a Jetson. */
	gpu = peerdma_surface_take_gpu();
	error = peerdma_surface_pin(file, gpu ?: &peerdma_pages, &request, pinning);
	if (error == -EFAULT && !gpu)
		peerdma_fail(file, error,
			     "%llu bytes at %#llx are not host memory, and no provider for a GPU's is loaded: load peerdma_nvp2p (needs NVIDIA's open kernel modules), or export a dma-buf",
			     pin_cuda->size, pin_cuda->va);
	if (gpu)
		module_put(gpu->owner);
	pin_cuda->handle = pinning->handle;
	return error;
}

static int legacy_unpin(struct peerdma_file *file, u32 handle)
{
	int error = peerdma_release_unpin(file, handle);

	if (error == -EINVAL)
		peerdma_fail(file, error, "no memory is pinned as handle %u", handle);
	return error;
}

static long legacy_dispatch(struct peerdma_file *file, unsigned int command, size_t size,
			    void __user *user)
{
	union {
		struct peerdma_pin_cuda pin;
		struct peerdma_unpin_cuda unpin;
		struct peerdma_h2c2h_dma h2c2h;
		struct peerdma_card_info info;
		struct peerdma_h2c_dma h2c;
		struct peerdma_c2h_dma c2h;
	} data = {};
	struct peerdma_pinning pinning = {};
	long error;

	/* An unknown request may claim any size. */
	if (size > sizeof(data))
		return -ENOTTY;
	if (_IOC_DIR(command) & _IOC_WRITE && copy_from_user(&data, user, size))
		return -EFAULT;
	switch (command) {
	case PEERDMA_IOC_PIN_CUDA:
		error = legacy_pin(file, &data.pin, &pinning);
		break;
	case PEERDMA_IOC_UNPIN_CUDA:
		error = legacy_unpin(file, data.unpin.handle);
		break;
	case PEERDMA_IOC_H2C2H_DMA:
		error = legacy_h2c2h(file, &data.h2c2h);
		break;
	case PEERDMA_IOC_CARD_INFO:
		data.info.fpga_ram_size = peerdma_partition_shared(file->board);
		error = 0;
		break;
	case PEERDMA_IOC_H2C_DMA:
		error = legacy_h2c(file, &data.h2c);
		break;
	case PEERDMA_IOC_C2H_DMA:
		error = legacy_c2h(file, &data.c2h);
		break;
	default:
		return -ENOTTY;
	}
	if (!error && _IOC_DIR(command) & _IOC_READ && copy_to_user(user, &data, size))
		error = -EFAULT;
	return peerdma_surface_finish(file, &pinning, error);
}

/* Requests that a file may make which was opened for reading only: they change nothing. */
static bool legacy_observes(unsigned int command)
{
	switch (command) {
	case PEERDMA_IOC_CARD_INFO:
	case PEERDMA_IOC_GET_INFO:
	case PEERDMA_IOC_QUERY:
	case PEERDMA_IOC_MAP_INFO:
		return true;
	default:
		return false;
	}
}

/**
 * peerdma_legacy_ioctl() - where all requests enter
 * @filp: an open node
 * @command: PEERDMA_IOC_*
 * @argument: its argument
 *
 * Return: 0 or an errno.
 */
long peerdma_legacy_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	struct peerdma_file *file = filp->private_data;
	size_t size = _IOC_SIZE(command);

	if (_IOC_TYPE(command) != PEERDMA_IOC_MAGIC)
		return -ENOTTY;
	if (!(filp->f_mode & FMODE_WRITE) && !legacy_observes(command))
		return peerdma_fail(file, -EACCES,
				    "the node was opened for reading only, which is for looking at what there is: open it for reading and writing");
	if (_IOC_NR(command) >= _IOC_NR(PEERDMA_IOC_GET_INFO))
		return peerdma_request_ioctl(file, command, argument);
	if (command == PEERDMA_IOC_LED)
		return peerdma_board_uapi_set_leds(file, argument);
#ifdef CONFIG_COMPAT
	if (command == PIN_CUDA_COMPAT)
		command = PEERDMA_IOC_PIN_CUDA;
#endif
	return legacy_dispatch(file, command, size, (void __user *)argument);
}

#ifdef CONFIG_COMPAT
/**
 * peerdma_legacy_compat_ioctl() - the same for 32-bit programs
 * @filp: an open node
 * @command: PEERDMA_IOC_*
 * @argument: its argument
 *
 * Layouts are the same but for one, which has a code of its own. The LEDs' argument is a value.
 *
 * Return: 0 or an errno.
 */
long peerdma_legacy_compat_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	if (command != PEERDMA_IOC_LED)
		argument = (unsigned long)compat_ptr(argument);
	return peerdma_legacy_ioctl(filp, command, argument);
}
#endif
