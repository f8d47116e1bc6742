// SPDX-License-Identifier: GPL-2.0
/*
 * Errors in words, for PEERDMA_IOC_GET_INFO: what was asked, what was found, what to do.
 */
#include <linux/kernel.h>

#include "job.h"

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
