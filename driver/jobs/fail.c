// SPDX-License-Identifier: GPL-2.0-only
/*
 * Errors in words, for PEERDMA_IOC_GET_INFO: what was asked, what was found, what to do.
 */
#include <linux/kernel.h>

#include "job.h"

static const char * const fail_kinds[] = {
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

static const char * const fail_waits[] = PEERDMA_WAITS_FOR_TEXTS;

static const char * const fail_reasons[] = {
	[PEERDMA_REASON_ENGINE] = "check that the memory is still allocated and that the board may reach it (IOMMU, peer-to-peer)",
	[PEERDMA_REASON_TIMEOUT] = "the board was stopped; try again, with a longer timeout_ms if it is slow",
	[PEERDMA_REASON_CANCELLED] = "it was cancelled",
	[PEERDMA_REASON_UNPINNED] = "its memory was unpinned",
	[PEERDMA_REASON_REVOKED] = "its memory was freed or moved by its owner: unpin it",
	[PEERDMA_REASON_RESET] = "the board was reset or suspended: try again",
	[PEERDMA_REASON_PARTITION] = "its card RAM, or the user stream, has become another open file's own",
	[PEERDMA_REASON_BUSY] = "another job kept the channel",
	[PEERDMA_REASON_LOST] = "the board is gone: check its power and link, then load the driver again",
};

__printf(3, 0)
static int fail_note(struct peerdma_why *why, int error, const char *format, va_list arguments)
{
	unsigned long flags;

	/* Callers may hold the board's lock, which interrupt handlers take. */
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
	fail_note(&file->why, error, format, arguments);
	va_end(arguments);
	return error;
}

/**
 * peerdma_fail_pin() - peerdma_fail() for providers
 * @surface: it is being pinned
 * @error: negative errno
 * @format: what was asked, what was found, what to do
 *
 * Return: @error.
 */
int peerdma_fail_pin(struct peerdma_surface *surface, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fail_note(surface->why, error, format, arguments);
	va_end(arguments);
	return error;
}
EXPORT_SYMBOL_GPL(peerdma_fail_pin);

/* Whether a pushed descriptor was bad: it has no address, and those in memory have even ones. */
static bool fail_pushed(const struct peerdma_run *run)
{
	return run->kind == PEERDMA_ERROR_MAGIC && run->address & 1;
}

/**
 * peerdma_fail_address() - where the board met the error of a job, as far as its file may know
 * @job: has ended
 *
 * Return: a card address, or a bus address; 0 if there is none to be told.
 */
u64 peerdma_fail_address(const struct peerdma_job *job)
{
	const struct peerdma_run *run = &job->run;

	if (peerdma_job_launches(job) || fail_pushed(run))
		return 0;
	return run->kind == PEERDMA_ERROR_DECODE || job->file->privileged ? run->address : 0;
}

/**
 * peerdma_fail_busy() - notes why a job is not done
 * @file: the job's
 * @holder: who opened the file of the job that keeps the engines which it needs
 *
 * Return: -EBUSY.
 */
int peerdma_fail_busy(struct peerdma_file *file, struct pid *holder)
{
	return peerdma_fail(file, -EBUSY,
			    "a job of process %d, which waits for data of the user stream, keeps the channel from card to memory: cancel that job, or try again",
			    pid_vnr(holder));
}

/**
 * peerdma_fail_job() - notes why a transfer failed
 * @job: has ended with an error
 * @error: negative errno
 *
 * Return: @error.
 */
int peerdma_fail_job(struct peerdma_job *job, int error)
{
	u64 moved = job->legs[job->legs[PEERDMA_C2H].used ? PEERDMA_C2H : PEERDMA_H2C].done;
	u64 address = peerdma_fail_address(job);
	const struct peerdma_run *run = &job->run;
	char where[32] = "";

	if (run->holder)
		return peerdma_fail_busy(job->file, run->holder);
	if (fail_pushed(run))
		strscpy(where, ", pushed by the driver", sizeof(where));
	else if (address)
		scnprintf(where, sizeof(where), " at address %#llx", address);
	if (run->kind == PEERDMA_ERROR_NO_COMPLETION_SPACE)
		return peerdma_fail(job->file, error,
				    "transfer of %llu bytes failed after %llu: no room for completions%s, status %#x: reads that were not answered keep it, for %u ms at most; try again: jobs wait for that before they move anything",
				    job->length, moved, where, job->status,
				    jiffies_to_msecs(peerdma_hw_scaled(job->file->board,
								       PEERDMA_QUARANTINE_MS)));
	if (run->kind && run->kind < ARRAY_SIZE(fail_kinds))
		return peerdma_fail(job->file, error,
				    "transfer of %llu bytes failed after %llu: %s%s, status %#x; %s",
				    job->length, moved, fail_kinds[run->kind], where, job->status,
				    fail_reasons[job->reason]);
	if (run->waits_for && run->waits_for < ARRAY_SIZE(fail_waits))
		return peerdma_fail(job->file, error,
				    "transfer of %llu bytes failed after %llu: it waited for %s, status %#x; %s",
				    job->length, moved, fail_waits[run->waits_for], job->status,
				    fail_reasons[job->reason]);
	return peerdma_fail(job->file, error,
			    "transfer of %llu bytes failed after %llu: status %#x; %s",
			    job->length, moved, job->status, fail_reasons[job->reason]);
}
