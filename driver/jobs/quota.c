// SPDX-License-Identifier: GPL-2.0-only
/*
 * What one user may take: jobs, and host memory that is pinned, over all open files and boards; and
 * of each board, one share of its time.
 *
 * An open file counts for the user who opened it, whoever uses it. A user namespace counts for the
 * user who made it, since there may be many users in it. Whoever has CAP_SYS_RESOURCE may go over
 * a limit; what is over it counts all the same.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "job.h"

static unsigned int jobs_per_user = 16384;
module_param(jobs_per_user, uint, 0644);
MODULE_PARM_DESC(jobs_per_user,
		 "jobs of a user that wait, run or have an event that has not been read (default 16384)");

static unsigned int pinned_mb_per_user;
module_param(pinned_mb_per_user, uint, 0644);
MODULE_PARM_DESC(pinned_mb_per_user,
		 "host memory that a user may have pinned, in MiB (default 0: half of the machine's)");

/* Innermost. Protects the list, what its members have taken, and their lists of shares. */
static DEFINE_SPINLOCK(quota_lock);
static LIST_HEAD(users);

static kuid_t quota_uid(void)
{
	struct user_namespace *ns;
	kuid_t uid = current_uid();

	for (ns = current_user_ns(); ns != &init_user_ns; ns = ns->parent)
		uid = ns->owner;
	return uid;
}

/* The account of the calling user, for peerdma_quota_close(); NULL if there is no memory. */
static struct peerdma_user *quota_open(void)
{
	struct peerdma_user *new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	struct peerdma_user *user;
	kuid_t uid = quota_uid();

	if (!new)
		return NULL;
	peerdma_tell_init(new);
	spin_lock(&quota_lock);
	list_for_each_entry(user, &users, link)
		if (uid_eq(user->uid, uid))
			goto found;
	user = new;
	new = NULL;
	user->uid = uid;
	INIT_LIST_HEAD(&user->shares);
	list_add(&user->link, &users);
found:
	user->holders++;
	spin_unlock(&quota_lock);
	kfree(new);
	return user;
}

/**
 * peerdma_quota_hold() - keeps an account for a surface
 * @user: the account
 *
 * Return: @user, for peerdma_quota_close().
 */
struct peerdma_user *peerdma_quota_hold(struct peerdma_user *user)
{
	spin_lock(&quota_lock);
	user->holders++;
	spin_unlock(&quota_lock);
	return user;
}

/**
 * peerdma_quota_close() - undoes peerdma_quota_hold()
 * @user: may be freed. Process context
 */
void peerdma_quota_close(struct peerdma_user *user)
{
	bool last;

	spin_lock(&quota_lock);
	last = !--user->holders;
	if (last)
		list_del(&user->link);
	spin_unlock(&quota_lock);
	if (last)
		kfree(user);
}

static void quota_init_lines(struct peerdma_share *share)
{
	struct peerdma_line *line;

	for (line = share->lines; line < share->lines + ARRAY_SIZE(share->lines); line++) {
		INIT_LIST_HEAD(&line->on_ready);
		INIT_LIST_HEAD(&line->files);
	}
}

/**
 * peerdma_quota_join() - finds what the calling user has of the time of a board
 * @board: it is being opened
 *
 * May sleep.
 *
 * Return: the share, for peerdma_quota_leave(); NULL if there is no memory.
 */
struct peerdma_share *peerdma_quota_join(struct peerdma_dev *board)
{
	struct peerdma_share *new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	struct peerdma_share *share;
	struct peerdma_user *user;

	user = new ? quota_open() : NULL;
	if (!user) {
		kfree(new);
		return NULL;
	}
	spin_lock(&quota_lock);
	list_for_each_entry(share, &user->shares, link)
		if (share->board == board)
			goto found;
	share = new;
	new = NULL;
	share->user = user;
	share->board = board;
	quota_init_lines(share);
	list_add(&share->link, &user->shares);
found:
	share->holders++;
	spin_unlock(&quota_lock);
	kfree(new);
	return share;
}

/**
 * peerdma_quota_leave() - undoes peerdma_quota_join()
 * @share: may be freed. Process context
 */
void peerdma_quota_leave(struct peerdma_share *share)
{
	struct peerdma_user *user = share->user;
	bool last;

	spin_lock(&quota_lock);
	last = !--share->holders;
	if (last)
		list_del(&share->link);
	spin_unlock(&quota_lock);
	if (last)
		kfree(share);
	peerdma_quota_close(user);
}

static bool quota_try(u64 *taken, u64 more, u64 limit)
{
	bool fits;

	spin_lock(&quota_lock);
	fits = more <= limit && *taken <= limit - more;
	if (fits)
		*taken += more;
	spin_unlock(&quota_lock);
	return fits;
}

/* The capability is looked at last: it is noted that a process made use of it. */
static bool quota_take(u64 *taken, u64 more, u64 limit)
{
	return quota_try(taken, more, limit) ||
	       (capable(CAP_SYS_RESOURCE) && quota_try(taken, more, U64_MAX));
}

/**
 * peerdma_quota_add_job() - counts a job for the user of its file
 * @job: its file is set. Process context
 *
 * Waits while too many of that user's have ended that are not told yet.
 *
 * Return: 0, -EAGAIN or -EINTR.
 */
int peerdma_quota_add_job(struct peerdma_job *job)
{
	struct peerdma_file *file = job->file;
	unsigned int limit = READ_ONCE(jobs_per_user);

	if (peerdma_tell_pace(file->share->user))
		return peerdma_fail(file, -EINTR,
				    "killed while others were told that jobs of this user had ended");
	job->counted = quota_take(&file->share->user->jobs, 1, limit);
	if (job->counted)
		return 0;
	return peerdma_fail(file, -EAGAIN,
			    "this user has %u jobs outstanding on all open files, as many as may be: read() their events, or have jobs_per_user of the module peerdma raised",
			    limit);
}

/**
 * peerdma_quota_remove_job() - undoes peerdma_quota_add_job()
 * @job: its program knows that it has ended, or will not ask. Process context
 *
 * Idempotent.
 */
void peerdma_quota_remove_job(struct peerdma_job *job)
{
	spin_lock(&quota_lock);
	job->file->share->user->jobs -= job->counted;
	job->counted = false;
	spin_unlock(&quota_lock);
}

/**
 * peerdma_quota_add_surface() - counts host memory that is pinned
 * @surface: its footprint is set; it is being pinned. Process context
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_quota_add_surface(struct peerdma_surface *surface)
{
	u64 limit = (u64)READ_ONCE(pinned_mb_per_user) << 20;

	if (!limit)
		limit = (u64)(totalram_pages() / 2) << PAGE_SHIFT;
	if (!quota_take(&surface->user->pinned, surface->footprint, limit))
		return peerdma_fail_pin(surface, -ENOMEM,
					"with %llu bytes more, this user would have pinned more than %llu MiB of host memory: unpin other memory, or have pinned_mb_per_user of the module peerdma raised",
					surface->footprint, limit >> 20);
	surface->counted = surface->footprint;
	return 0;
}

/**
 * peerdma_quota_remove_surface() - undoes peerdma_quota_add_surface()
 * @surface: its pin has been given back. Process context
 *
 * Idempotent.
 */
void peerdma_quota_remove_surface(struct peerdma_surface *surface)
{
	spin_lock(&quota_lock);
	surface->user->pinned -= surface->counted;
	surface->counted = 0;
	spin_unlock(&quota_lock);
}
