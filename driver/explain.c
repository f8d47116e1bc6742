// SPDX-License-Identifier: GPL-2.0
/*
 * Errors in words, for PEERDMA_IOC_GET_INFO: what was asked, what was found, what to do.
 */
#include <linux/kernel.h>

#include "core.h"

static const char * const kinds[] = {
	[PEERDMA_ERROR_MAGIC] = "bad descriptor",
	[PEERDMA_ERROR_DECODE] = "no such card address",
	[PEERDMA_ERROR_UNSUPPORTED_REQUEST] = "unsupported request",
	[PEERDMA_ERROR_COMPLETER_ABORT] = "completer abort",
	[PEERDMA_ERROR_POISONED] = "poisoned data",
	[PEERDMA_ERROR_UNEXPECTED_COMPLETION] = "unexpected completion",
	[PEERDMA_ERROR_COMPLETION_TIMEOUT] = "no completion in time",
	[PEERDMA_ERROR_BUS_MASTER_OFF] = "bus mastering is off",
};

static const char * const reasons[] = {
	[PEERDMA_REASON_ENGINE] = "check that the memory is still allocated and that the board may reach it (IOMMU, peer-to-peer)",
	[PEERDMA_REASON_TIMEOUT] = "the board was stopped; try again, with a longer timeout_ms if it is slow",
	[PEERDMA_REASON_CANCELLED] = "it was cancelled",
	[PEERDMA_REASON_UNPINNED] = "its memory was unpinned before it started",
	[PEERDMA_REASON_REVOKED] = "its memory was freed or moved by its owner: unpin it",
	[PEERDMA_REASON_RESET] = "the board was reset or suspended: try again",
	[PEERDMA_REASON_LOST] = "the board is gone: check its power and link, then load the driver again",
};

__printf(3, 0)
static int explain(struct peerdma_why *why, int error, const char *format, va_list arguments)
{
	unsigned long flags;

	/* Also called with the board's lock held, which interrupts take. */
	spin_lock_irqsave(&why->lock, flags);
	why->error = -error;
	vscnprintf(why->text, sizeof(why->text), format, arguments);
	spin_unlock_irqrestore(&why->lock, flags);
	return error;
}

/**
 * peerdma_fail() - notes why a request of a file fails
 * @file: the file
 * @error: negative errno
 * @format: what was asked, what was found, what to do
 *
 * Return: @error.
 */
int peerdma_fail(struct peerdma_file *file, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	explain(&file->why, error, format, arguments);
	va_end(arguments);
	return error;
}

/**
 * peerdma_explain() - peerdma_fail() for providers
 * @surface: while it is being pinned
 * @error: negative errno
 * @format: what was asked, what was found, what to do
 *
 * Return: @error.
 */
int peerdma_explain(struct peerdma_surface *surface, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	explain(surface->why, error, format, arguments);
	va_end(arguments);
	return error;
}
EXPORT_SYMBOL_GPL(peerdma_explain);

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

	if (job->kind && job->kind < ARRAY_SIZE(kinds))
		return peerdma_fail(job->file, error,
				    "transfer of %llu bytes failed after %llu: %s at address %#llx, status %#x; %s",
				    job->length, moved, kinds[job->kind], job->address, job->status,
				    reasons[job->reason]);
	return peerdma_fail(job->file, error,
			    "transfer of %llu bytes failed after %llu: status %#x; %s",
			    job->length, moved, job->status, reasons[job->reason]);
}
