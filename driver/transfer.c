// SPDX-License-Identifier: GPL-2.0
/*
 * What a transfer may be: checked before anything is started.
 */
#include <linux/slab.h>

#include "core.h"

static bool fits(u64 offset, u64 length, u64 size)
{
	return length <= size && offset <= size - length;
}

/**
 * peerdma_check_surface() - whether a range is within pinned memory
 * @file: notes why not
 * @surface: the memory
 * @offset: first byte
 * @length: bytes
 *
 * Return: 0 or -EINVAL.
 */
int peerdma_check_surface(struct peerdma_file *file, const struct peerdma_surface *surface,
			  u64 offset, u64 length)
{
	if (fits(offset, length, surface->length))
		return 0;
	return peerdma_fail(file, -EINVAL,
			    "%llu bytes from %llu on are beyond the memory pinned, which has %llu",
			    length, offset, surface->length);
}

/**
 * peerdma_check_card() - whether a range is within what a program may use on the card
 * @file: notes why not
 * @op: PEERDMA_OP_H2C or PEERDMA_OP_C2H
 * @card: card address of the first byte
 * @length: bytes
 *
 * Return: 0 or -EINVAL.
 */
int peerdma_check_card(struct peerdma_file *file, u32 op, u64 card, u64 length)
{
	const struct peerdma_dev *board = file->board;

	if (fits(card, length, board->card_ram_size))
		return 0;
	/* Only out of the stream: what nobody takes out would end up in the next copy. */
	if (op == PEERDMA_OP_C2H && board->stream_window && card == board->stream_window)
		return 0;
	return peerdma_fail(file, -EINVAL,
			    "%llu bytes from card address %#llx on are beyond the card RAM, which has %llu",
			    length, card, board->card_ram_size);
}

static int check_side(struct peerdma_job *job, const struct peerdma_surface *surface, u64 offset,
		      u32 access)
{
	if (surface->access & access)
		return peerdma_check_surface(job->file, surface, offset, job->length);
	return peerdma_fail(job->file, -EINVAL, "the memory was not pinned for the board to %s it",
			    access == PEERDMA_ACCESS_READ ? "read" : "write");
}

static int check_copy(struct peerdma_job *job, const struct peerdma_surface *source,
		      u64 source_offset, const struct peerdma_surface *destination,
		      u64 destination_offset)
{
	u64 between = max(source_offset, destination_offset) -
		      min(source_offset, destination_offset);

	if (source == destination && between < job->length)
		return peerdma_fail(job->file, -EINVAL,
				    "source and destination overlap: %llu bytes from %llu and from %llu on of the same memory",
				    job->length, source_offset, destination_offset);
	if (job->file->board->stream_window || job->file->board->staging)
		return 0;
	return peerdma_fail(job->file, -EOPNOTSUPP, "this board has no card RAM to copy through");
}

static void set_leg(struct peerdma_leg *leg, struct peerdma_surface *surface, u64 offset, u64 card)
{
	kref_get(&surface->ref);
	leg->used = true;
	leg->surface = surface;
	leg->offset = offset;
	leg->card = card;
}

/**
 * peerdma_job_prepare() - checks and fills in what a job is to do
 * @job: new
 * @op: enum peerdma_op
 * @source: NULL for PEERDMA_OP_C2H
 * @source_offset: byte in @source, or card address
 * @destination: NULL for PEERDMA_OP_H2C
 * @destination_offset: byte in @destination, or card address
 *
 * Waits for what others still do with memory that they share by dma-buf. Process context.
 *
 * Return: 0, or an errno that was explained.
 */
int peerdma_job_prepare(struct peerdma_job *job, u32 op, struct peerdma_surface *source,
			u64 source_offset, struct peerdma_surface *destination,
			u64 destination_offset)
{
	const struct peerdma_dev *board = job->file->board;
	u64 from_card = source_offset, to_card = destination_offset;
	int error = 0;

	if (source)
		error = check_side(job, source, source_offset, PEERDMA_ACCESS_READ);
	if (!error && destination)
		error = check_side(job, destination, destination_offset, PEERDMA_ACCESS_WRITE);
	if (error)
		return error;

	if (op == PEERDMA_OP_COPY) {
		error = check_copy(job, source, source_offset, destination, destination_offset);
		job->path = board->stream_window ? PATH_STREAM : PATH_STAGED;
		/* The staging area is behind the card RAM that programs may use. */
		from_card = board->stream_window ?: board->card_ram_size;
		to_card = from_card;
	} else {
		error = peerdma_check_card(job->file, op, source ? to_card : from_card,
					   job->length);
		job->path = PATH_CARD;
	}
	if (error)
		return error;

	if (source)
		error = peerdma_dmabuf_wait(source, false);
	if (!error && destination)
		error = peerdma_dmabuf_wait(destination, true);
	if (error)
		return peerdma_fail(job->file, error, "others are still using the dma-buf");

	if (source)
		set_leg(&job->legs[PEERDMA_H2C], source, source_offset, to_card);
	if (destination)
		set_leg(&job->legs[PEERDMA_C2H], destination, destination_offset, from_card);
	return 0;
}

/**
 * peerdma_transfer() - makes a transfer and waits for it
 * @file: whose
 * @op: enum peerdma_op
 * @source: see peerdma_job_prepare(), as are the following
 * @source_offset: ...
 * @destination: ...
 * @destination_offset: ...
 * @length: bytes, not 0
 * @nanoseconds: the time it took is added
 *
 * Process context.
 *
 * Return: 0, or an errno that was explained.
 */
int peerdma_transfer(struct peerdma_file *file, u32 op, struct peerdma_surface *source,
		     u64 source_offset, struct peerdma_surface *destination, u64 destination_offset,
		     u64 length, u64 *nanoseconds)
{
	struct peerdma_job *job = peerdma_job_create(file, length);
	int error;

	if (!job)
		return -ENOMEM;
	error = peerdma_job_prepare(job, op, source, source_offset, destination,
				    destination_offset);
	if (!error)
		error = peerdma_job_run(job);
	if (!error)
		*nanoseconds += job->nanoseconds;
	peerdma_job_put(job);
	return error;
}
