// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments of our own requests: structures that begin with their size and grow.
 */
#include <linux/uaccess.h>

#include "files.h"

/**
 * peerdma_args_copy() - copies a structure from a program
 * @file: notes why not
 * @structure: to be filled in; what the program does not know of it becomes 0
 * @known: its size as it is now
 * @least: size of its first version
 * @user: where the program has it
 *
 * Return: its size in the program, or an errno.
 */
int peerdma_args_copy(struct peerdma_file *file, void *structure, size_t known, size_t least,
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
