// SPDX-License-Identifier: GPL-2.0
/*
 * The requests of NVIDIA's PicoEVB driver: pin GPU memory, and transfers that are waited for.
 */
#include <linux/sizes.h>
#include <linux/uaccess.h>

#include "core.h"

/*
 * Memory given by pointer is pinned in pieces of this size, one after the other: a transfer may
 * be larger than what may be locked, and it is not locked for longer than it takes.
 */
#define WINDOW		SZ_8M

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

static int end_open(struct peerdma_file *file, struct end *end, u64 value, bool is_handle)
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

static void end_close(struct end *end)
{
	if (end->surface)
		peerdma_surface_put(end->surface);
}

/* Memory of a window: pinned for it, unless the program did. */
static struct peerdma_surface *window_open(struct peerdma_file *file, const struct end *end,
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

/* A surface of our own begins with the window, and a stream is at one address. */
static u64 window_place(const struct peerdma_file *file, const struct end *end,
			const struct peerdma_surface *surface, u64 done)
{
	u64 stream = file->board->stream_window;

	if (surface != end->surface)
		return 0;
	if (!end->memory && stream && end->address == stream)
		return stream;
	return end->address + done;
}

/* A window that was killed is given back by its job. */
static void window_close(const struct end *end, struct peerdma_surface *surface, int error)
{
	if (IS_ERR_OR_NULL(surface) || end->surface)
		return;
	if (error != -EINTR)
		peerdma_surface_release(surface);
	peerdma_surface_put(surface);
}

static int window(struct peerdma_file *file, u32 op, const struct end *source,
		  const struct end *destination, u64 done, u64 length, u64 *nanoseconds)
{
	struct peerdma_surface *from, *to = NULL;
	int error;

	from = window_open(file, source, done, length, PEERDMA_ACCESS_READ);
	if (IS_ERR(from))
		return PTR_ERR(from);
	to = window_open(file, destination, done, length, PEERDMA_ACCESS_WRITE);
	if (IS_ERR(to))
		error = PTR_ERR(to);
	else
		error = peerdma_transfer(file, op, from, window_place(file, source, from, done),
					 to, window_place(file, destination, to, done), length,
					 nanoseconds);
	window_close(destination, to, error);
	window_close(source, from, error);
	return error;
}

/* Of pointers; of handles it is checked with the transfer. */
static bool overlap(const struct end *source, const struct end *destination, u64 length)
{
	u64 between = max(source->address, destination->address) -
		      min(source->address, destination->address);

	return source->memory && destination->memory && !source->surface &&
	       !destination->surface && between < length;
}

/* All of it, before any of it is moved. */
static int check_end(struct peerdma_file *file, u32 op, const struct end *end, u64 length)
{
	if (end->surface)
		return peerdma_check_surface(file, end->surface, 0, length);
	if (!end->memory)
		return peerdma_check_card(file, op, end->address, length);
	if (end->address + length < length)
		return peerdma_fail(file, -EINVAL, "%llu bytes from %#llx on wrap around", length,
				    end->address);
	return 0;
}

static int transfer(struct peerdma_file *file, u32 op, const struct end *source,
		    const struct end *destination, u64 length, u64 *nanoseconds)
{
	bool pointers = (source->memory && !source->surface) ||
			(destination->memory && !destination->surface);
	u64 done, part;
	int error;

	*nanoseconds = 0;
	error = check_end(file, op, source, length);
	if (!error)
		error = check_end(file, op, destination, length);
	if (!error && overlap(source, destination, length))
		error = peerdma_fail(file, -EINVAL,
				     "source and destination overlap: %llu bytes from %#llx and from %#llx on",
				     length, source->address, destination->address);
	for (done = 0; !error && done < length; done += part) {
		part = pointers ? min_t(u64, length - done, WINDOW) : length;
		error = window(file, op, source, destination, done, part, nanoseconds);
	}
	return error;
}

static int check_flags(struct peerdma_file *file, u64 flags, u64 known)
{
	if (flags & ~known)
		return peerdma_fail(file, -EINVAL, "unknown flags %#llx", flags & ~known);
	return 0;
}

static int h2c2h(struct peerdma_file *file, struct peerdma_h2c2h_dma *dma)
{
	struct end source = {}, destination = {};
	int error;

	error = check_flags(file, dma->flags, PEERDMA_H2C2H_SRC_IS_HANDLE |
					      PEERDMA_H2C2H_DST_IS_HANDLE);
	if (error)
		return error;
	error = end_open(file, &source, dma->src, dma->flags & PEERDMA_H2C2H_SRC_IS_HANDLE);
	if (!error)
		error = end_open(file, &destination, dma->dst,
				 dma->flags & PEERDMA_H2C2H_DST_IS_HANDLE);
	if (!error)
		error = transfer(file, PEERDMA_OP_COPY, &source, &destination, dma->len,
				 &dma->dma_time_ns);
	end_close(&destination);
	end_close(&source);
	return error;
}

static int h2c(struct peerdma_file *file, struct peerdma_h2c_dma *dma)
{
	struct end source = {}, card = { .address = dma->dst };
	int error;

	error = check_flags(file, dma->flags, PEERDMA_H2C_SRC_IS_HANDLE);
	if (error)
		return error;
	error = end_open(file, &source, dma->src, dma->flags & PEERDMA_H2C_SRC_IS_HANDLE);
	if (!error)
		error = transfer(file, PEERDMA_OP_H2C, &source, &card, dma->len,
				 &dma->dma_time_ns);
	end_close(&source);
	return error;
}

static int c2h(struct peerdma_file *file, struct peerdma_c2h_dma *dma)
{
	struct end destination = {}, card = { .address = dma->src };
	int error;

	error = check_flags(file, dma->flags, PEERDMA_C2H_DST_IS_HANDLE);
	if (error)
		return error;
	error = end_open(file, &destination, dma->dst, dma->flags & PEERDMA_C2H_DST_IS_HANDLE);
	if (!error)
		error = transfer(file, PEERDMA_OP_C2H, &card, &destination, dma->len,
				 &dma->dma_time_ns);
	end_close(&destination);
	return error;
}

static int set_leds(struct peerdma_file *file, u32 value)
{
	struct peerdma_dev *board = file->board;
	int error = 0;

	/* The gate alone is not enough: between error and recovery of a link nobody holds it. */
	if (down_read_killable(&board->gate))
		return -EINTR;
	spin_lock_irq(&board->lock);
	if (board->state == PEERDMA_BOARD_LIVE)
		writel(value, board->user + PEERDMA_USER_BASE + PEERDMA_USER_LED_REG);
	else
		error = board->state == PEERDMA_BOARD_DEAD ? -ENODEV : -EBUSY;
	spin_unlock_irq(&board->lock);
	up_read(&board->gate);
	if (error)
		peerdma_fail(file, error, error == -EBUSY ? "the board is being reset: try again" :
							    "the board is gone");
	return error;
}

static int unpin(struct peerdma_file *file, u32 handle)
{
	int error = peerdma_surface_unpin(file, handle);

	if (error == -EINVAL)
		peerdma_fail(file, error, "no memory is pinned as handle %u", handle);
	return error;
}

static long dispatch(struct peerdma_file *file, unsigned int command, size_t size,
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

	/* Of a request that is not one of these, it is what the caller made up. */
	if (size > sizeof(data))
		return -ENOTTY;
	if (_IOC_DIR(command) & _IOC_WRITE && copy_from_user(&data, user, size))
		return -EFAULT;
	switch (command) {
	case PEERDMA_IOC_PIN_CUDA:
		error = peerdma_pin_cuda(file, &data.pin, &pinning);
		break;
	case PEERDMA_IOC_UNPIN_CUDA:
		error = unpin(file, data.unpin.handle);
		break;
	case PEERDMA_IOC_H2C2H_DMA:
		error = h2c2h(file, &data.h2c2h);
		break;
	case PEERDMA_IOC_CARD_INFO:
		data.info.fpga_ram_size = file->board->card_ram_size;
		error = 0;
		break;
	case PEERDMA_IOC_H2C_DMA:
		error = h2c(file, &data.h2c);
		break;
	case PEERDMA_IOC_C2H_DMA:
		error = c2h(file, &data.c2h);
		break;
	default:
		return -ENOTTY;
	}
	if (!error && _IOC_DIR(command) & _IOC_READ && copy_to_user(user, &data, size))
		error = -EFAULT;
	return peerdma_pin_finish(file, &pinning, error);
}

/**
 * peerdma_legacy_ioctl() - a request of NVIDIA's driver
 * @file: whose
 * @command: PEERDMA_IOC_*
 * @argument: its argument
 *
 * Return: 0 or an errno.
 */
long peerdma_legacy_ioctl(struct peerdma_file *file, unsigned int command, unsigned long argument)
{
	if (command == PEERDMA_IOC_LED)
		return set_leds(file, argument);
#ifdef CONFIG_COMPAT
	if (command == PEERDMA_IOC_PIN_CUDA_COMPAT)
		return dispatch(file, PEERDMA_IOC_PIN_CUDA, _IOC_SIZE(command),
				(void __user *)argument);
#endif
	return dispatch(file, command, _IOC_SIZE(command), (void __user *)argument);
}
