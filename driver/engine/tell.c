// SPDX-License-Identifier: GPL-2.0-only
/*
 * Telling programs that a job has ended, that there is an event to be read, or that the board is
 * gone.
 *
 * How long that takes is up to the program that is told, as whoever watches a file or an eventfd,
 * by epoll for example, is called back. So it is done in work items, with no lock of ours held, and
 * in one for each user, which does not keep others waiting. An item that takes longer than it
 * should goes on with the priority of an ordinary program.
 */
#include <linux/eventfd.h>
#include <linux/sched.h>

#include "engine.h"

/*
 * What starts and ends jobs, apart from what gives memory back: that may wait for a lock whose
 * holder waits for a job; and from what is told to programs that take long.
 */
struct workqueue_struct *peerdma_wq;
struct workqueue_struct *peerdma_surface_wq;
struct workqueue_struct *peerdma_slow_wq;

/* How long an item may take before it goes on in peerdma_slow_wq, and how long it stays there. */
#define LONGEST_US		500
#define SLOW			HZ
/* How many watchers are called back at once, with interrupts off. */
#define AT_ONCE			32
/* So many jobs of a user may have ended that are not told yet. */
#define MOST_UNTOLD		1024

/* The board's lock is held. Does nothing if the file has been closed, and its last job has gone. */
static void tell_queue(struct peerdma_file *file, struct workqueue_struct *wq)
{
	struct peerdma_user *user = file->share->user;

	if (file->telling || !kref_get_unless_zero(&file->ref))
		return;
	file->telling = true;
	/* With the first file. What is added before the item takes them all is taken with it. */
	if (llist_add(&file->on_user, &user->untold_files))
		queue_work(wq, &user->tell);
}

static void tell_soon(struct peerdma_file *file)
{
	bool slow = time_before(jiffies, READ_ONCE(file->share->user->slow_until));

	tell_queue(file, slow ? peerdma_slow_wq : peerdma_wq);
}

/**
 * peerdma_tell_file() - has those woken who wait for events of a file
 * @file: called with its board's lock held, in any context
 */
void peerdma_tell_file(struct peerdma_file *file)
{
	file->news = true;
	tell_soon(file);
}

/**
 * peerdma_tell_job() - has those told who wait for a job
 * @job: it has ended. Called with the board's lock held, in any context
 *
 * In the end peerdma_ops.job_told() drops the reference that the engines had.
 */
void peerdma_tell_job(struct peerdma_job *job)
{
	atomic_inc(&job->file->share->user->untold);
	list_add_tail(&job->untold, &job->file->untold);
	tell_soon(job->file);
}

static int tell_nobody(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	return 0;
}

/*
 * As wake_up_all(), which has interrupts off for as long as there are watchers: calls some of them,
 * and lets go of the lock with a bookmark for those that come next.
 */
static void tell_watchers(struct wait_queue_head *queue)
{
	struct wait_queue_entry *entry, *next, bookmark = { .func = tell_nobody };
	unsigned int count = 0;

	spin_lock_irq(&queue->lock);
	list_for_each_entry_safe(entry, next, &queue->head, entry) {
		if (count++ == AT_ONCE) {
			list_add_tail(&bookmark.entry, &entry->entry);
			spin_unlock_irq(&queue->lock);
			cond_resched();
			spin_lock_irq(&queue->lock);
			next = list_next_entry(&bookmark, entry);
			list_del(&bookmark.entry);
			count = 0;
			continue;
		}
		entry->func(entry, TASK_NORMAL, 0, NULL);
	}
	spin_unlock_irq(&queue->lock);
}

static bool tell_late(ktime_t begin)
{
	return ktime_us_delta(ktime_get(), begin) > LONGEST_US;
}

/*
 * Takes a file from those that have something to tell, with its jobs, and returns whether there is
 * news. It is put back, with what is left, by tell_again(): unless somebody else has done so.
 */
static bool tell_take(struct peerdma_file *file, struct list_head *jobs)
{
	bool news;

	spin_lock_irq(&file->board->lock);
	file->telling = false;
	news = file->news;
	file->news = false;
	list_splice_init(&file->untold, jobs);
	spin_unlock_irq(&file->board->lock);
	return news;
}

/* What is left is done with the priority of a program. */
static void tell_again(struct peerdma_file *file, bool news, struct list_head *jobs)
{
	spin_lock_irq(&file->board->lock);
	file->news |= news;
	list_splice_init(jobs, &file->untold);
	tell_queue(file, peerdma_slow_wq);
	spin_unlock_irq(&file->board->lock);
}

/* Tells those who wait for a file, and for its jobs: for at least one of them. */
static void tell_one(struct peerdma_file *file, bool news, struct list_head *jobs, ktime_t begin)
{
	struct peerdma_job *job, *next;

	if (news)
		tell_watchers(&file->wait);
	list_for_each_entry_safe(job, next, jobs, untold) {
		list_del(&job->untold);
		file->board->ops->job_told(job);
		atomic_dec(&file->share->user->untold);
		if (tell_late(begin))
			break;
	}
}

static void tell_work(struct work_struct *work)
{
	struct peerdma_user *user = container_of(work, struct peerdma_user, tell);
	struct llist_node *files = llist_reverse_order(llist_del_all(&user->untold_files));
	struct peerdma_file *first = llist_entry(files, struct peerdma_file, on_user);
	struct peerdma_file *file, *next, *rest = NULL;
	ktime_t begin = ktime_get();
	LIST_HEAD(left);
	LIST_HEAD(jobs);
	bool news;

	/* It holds the user. */
	kref_get(&first->ref);
	llist_for_each_entry_safe(file, next, files, on_user) {
		news = tell_take(file, &jobs);
		if (tell_late(begin))
			tell_again(file, news, &jobs);
		else
			tell_one(file, news, &jobs, begin);
		if (list_empty(&jobs)) {
			peerdma_file_put(file);
			continue;
		}
		/* It was late: this comes behind what others are to be told. */
		rest = file;
		list_splice_init(&jobs, &left);
	}
	if (rest) {
		tell_again(rest, false, &left);
		peerdma_file_put(rest);
	}
	if (tell_late(begin))
		WRITE_ONCE(user->slow_until, jiffies + SLOW);
	if (wq_has_sleeper(&user->calm))
		wake_up_all(&user->calm);
	peerdma_file_put(first);
}

/**
 * peerdma_tell_pace() - waits while too much of a user's has ended that is not told yet
 * @user: who wants to have another job. May sleep, nothing held
 *
 * That is for as long as those who watch the user's files and eventfds take.
 *
 * Return: 0 or -EINTR.
 */
int peerdma_tell_pace(struct peerdma_user *user)
{
	return wait_event_killable(user->calm, atomic_read(&user->untold) < MOST_UNTOLD) ?
	       -EINTR : 0;
}

/**
 * peerdma_tell_init() - prepares the telling of a user's programs
 * @user: new
 */
void peerdma_tell_init(struct peerdma_user *user)
{
	init_llist_head(&user->untold_files);
	INIT_WORK(&user->tell, tell_work);
	init_waitqueue_head(&user->calm);
	user->slow_until = jiffies;
}
