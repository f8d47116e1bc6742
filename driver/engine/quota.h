/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is known of a user, over all open files and boards.
 */
#ifndef PEERDMA_QUOTA_H
#define PEERDMA_QUOTA_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core.h"

/**
 * struct peerdma_user - what a user has taken, and what the user's programs are to be told
 * @link: entry in the list of users
 * @holders: open files and surfaces that count for the user; it is freed after the last of them
 * @uid: the user
 * @shares: what it has of the time of boards
 * @jobs: number of jobs
 * @pinned: bytes of host memory
 * @untold_files: open files that have something to tell, each of which holds a reference to itself
 * @tell: tells it
 * @slow_until: in jiffies; until then that is not urgent, as it took long before
 * @untold: number of jobs that have ended and are not told yet
 * @calm: woken when there are fewer of these
 *
 * Members up to @pinned are protected by the lock of quota.c.
 */
struct peerdma_user {
	struct list_head link;
	unsigned int holders;
	kuid_t uid;
	struct list_head shares;
	u64 jobs;
	u64 pinned;
	struct llist_head untold_files;
	struct work_struct tell;
	unsigned long slow_until;
	atomic_t untold;
	wait_queue_head_t calm;
};

/**
 * struct peerdma_line - files of a user whose next jobs need the same engines of a board
 * @on_ready: entry in the board's list for these engines while @files is not empty
 * @turn: its place among all lines of the board: the lowest is next
 * @files: the files, in their order
 *
 * All members are protected by the board's lock.
 */
struct peerdma_line {
	struct list_head on_ready;
	u64 turn;
	struct list_head files;
};

/**
 * struct peerdma_share - what a user has of the time of a board
 * @user: the user
 * @board: the board; the open files hold references
 * @link: entry in the user's list
 * @holders: open files of the user; it is freed after the last of them
 * @lines: by the engines that the first jobs of files need, as the lists @ready of the board
 *
 * @link and @holders are protected by the lock of quota.c.
 */
struct peerdma_share {
	struct peerdma_user *user;
	struct peerdma_dev *board;
	struct list_head link;
	unsigned int holders;
	struct peerdma_line lines[PEERDMA_ENGINE_SETS];
};

#endif /* PEERDMA_QUOTA_H */
