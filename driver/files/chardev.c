// SPDX-License-Identifier: GPL-2.0-only
/*
 * The node: open files and their events.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>

#include "files.h"

/**
 * peerdma_chardev_free() - frees an open file after the last reference; see struct peerdma_ops
 * @ref: of the file
 */
void peerdma_chardev_free(struct kref *ref)
{
	struct peerdma_file *file = container_of(ref, struct peerdma_file, ref);
	struct peerdma_dev *board = file->board;

	/* The list of files is walked with the lock held. */
	spin_lock_irq(&board->lock);
	list_del(&file->on_board);
	spin_unlock_irq(&board->lock);
	xa_destroy(&file->surfaces);
	peerdma_quota_leave(file->share);
	put_pid(file->opener);
	kfree(file);
	peerdma_board_put(board);
}

static int chardev_open(struct inode *inode, struct file *filp)
{
	struct peerdma_dev *board = container_of(inode->i_cdev, struct peerdma_dev, cdev);
	struct peerdma_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return -ENOMEM;
	file->share = peerdma_quota_join(board);
	if (!file->share) {
		kfree(file);
		return -ENOMEM;
	}
	/* Without an IOMMU they are physical ones. */
	file->privileged = ns_capable_noaudit(&init_user_ns, CAP_SYS_RAWIO);
	file->opener = get_task_pid(current, PIDTYPE_TGID);
	kref_init(&file->ref);
	file->board = peerdma_board_get(board);
	xa_init_flags(&file->surfaces, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	spin_lock_init(&file->why.lock);
	INIT_LIST_HEAD(&file->on_partitions);
	INIT_LIST_HEAD(&file->on_ready);
	INIT_LIST_HEAD(&file->queue);
	INIT_LIST_HEAD(&file->jobs);
	INIT_LIST_HEAD(&file->events);
	INIT_LIST_HEAD(&file->untold);
	init_waitqueue_head(&file->wait);

	spin_lock_irq(&board->lock);
	list_add_tail(&file->on_board, &board->files);
	spin_unlock_irq(&board->lock);
	filp->private_data = file;
	filp->f_mapping = board->inode->i_mapping;
	return stream_open(inode, filp);
}

static void chardev_fill_event(const struct peerdma_job *job, struct peerdma_event *event)
{
	const struct peerdma_leg *h2c = &job->legs[PEERDMA_H2C];
	const struct peerdma_leg *c2h = &job->legs[PEERDMA_C2H];

	*event = (struct peerdma_event){
		.size = sizeof(*event),
		.job = job->id,
		.user_data = job->user_data,
		.bytes = job->type == JOB_FRAMES ? job->run.frame_ring->ready :
			 c2h->used ? c2h->done : h2c->done,
		.reason = PEERDMA_REASON_FRAMES,
	};
	if (!job->delivered)
		return;
	event->result = job->error;
	event->time_ns = job->nanoseconds;
	event->cycles = max(h2c->cycles, c2h->cycles);
	event->reason = job->reason;
	event->status = job->status;
	event->address = peerdma_fail_address(job);
}

/*
 * Takes the next event: its job with a reference, or NULL if there is none. If it is not the end of
 * the job, which has a ring, the job may have others. An end stays in the file's job_count until it
 * has arrived, see peerdma_job_forget().
 */
static struct peerdma_job *chardev_take_event(struct peerdma_file *file,
					      struct peerdma_event *event)
{
	struct peerdma_job *job;

	spin_lock_irq(&file->board->lock);
	job = list_first_entry_or_null(&file->events, struct peerdma_job, link);
	if (job) {
		chardev_fill_event(job, event);
		list_del_init(&job->link);
		if (job->delivered)
			list_del_init(&job->on_file);
		else
			kref_get(&job->ref);
	}
	spin_unlock_irq(&file->board->lock);
	return job;
}

/* Puts back an event that could not be copied: the next read() gets it, or a newer one. */
static void chardev_return_event(struct peerdma_file *file, struct peerdma_job *job,
				 const struct peerdma_event *event)
{
	bool more = event->reason == PEERDMA_REASON_FRAMES;

	spin_lock_irq(&file->board->lock);
	if (!more)
		list_add(&job->on_file, &file->jobs);
	/* The end of a ring may have come, and been read, meanwhile. */
	if (!list_empty(&job->on_file) && list_empty(&job->link))
		list_add(&job->link, &file->events);
	peerdma_tell_file(file);
	spin_unlock_irq(&file->board->lock);
	if (more)
		peerdma_job_put(job);
}

/* Takes a job from a file that is closed: nobody reads of it. NULL if there is none. */
static struct peerdma_job *chardev_abandon_job(struct peerdma_file *file)
{
	struct peerdma_job *job;

	spin_lock_irq(&file->board->lock);
	job = list_first_entry_or_null(&file->jobs, struct peerdma_job, on_file);
	if (job) {
		list_del_init(&job->on_file);
		list_del_init(&job->link);	/* it is not queued: all have been told to stop */
	}
	spin_unlock_irq(&file->board->lock);
	return job;
}

static int chardev_release(struct inode *inode, struct file *filp)
{
	struct peerdma_file *file = filp->private_data;
	struct peerdma_surface *surface;
	struct peerdma_job *job;
	unsigned long handle;

	peerdma_stop_file(file, -ECANCELED, PEERDMA_REASON_CANCELLED);
	while ((job = chardev_abandon_job(file)))
		peerdma_job_put(job);
	peerdma_partition_release(file);
	xa_for_each(&file->surfaces, handle, surface) {
		xa_erase(&file->surfaces, handle);
		peerdma_release_drop(surface);
	}
	peerdma_file_put(file);
	return 0;
}

/* There will be no event any more. The jobs of a board that is gone end, if a moment later. */
static bool chardev_is_over(struct peerdma_file *file)
{
	return READ_ONCE(file->board->state) == PEERDMA_BOARD_DEAD &&
	       !READ_ONCE(file->job_count);
}

static bool chardev_readable(struct peerdma_file *file)
{
	return !list_empty_careful(&file->events) || chardev_is_over(file);
}

static ssize_t chardev_read(struct file *filp, char __user *buffer, size_t size, loff_t *offset)
{
	struct peerdma_file *file = filp->private_data;
	struct peerdma_event event;
	struct peerdma_job *job;
	unsigned int ended = 0;
	ssize_t error = 0;
	size_t done = 0;

	if (size < sizeof(event))
		return peerdma_fail(file, -EINVAL, "an event has %zu bytes, there is room for %zu",
				    sizeof(event), size);
	while (!(job = chardev_take_event(file, &event))) {
		if (chardev_is_over(file))
			return -ENODEV;
		if (filp->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(file->wait, chardev_readable(file)))
			return -ERESTARTSYS;
	}
	do {
		if (copy_to_user(buffer + done, &event, sizeof(event))) {
			chardev_return_event(file, job, &event);
			error = -EFAULT;
			break;
		}
		/* What tells of it may still hold it. */
		if (event.reason != PEERDMA_REASON_FRAMES) {
			peerdma_quota_remove_job(job);
			ended++;
		}
		peerdma_job_put(job);
		done += sizeof(event);
	} while (size - done >= sizeof(event) && (job = chardev_take_event(file, &event)));
	spin_lock_irq(&file->board->lock);
	peerdma_job_forget(file, ended);
	spin_unlock_irq(&file->board->lock);
	return done ?: error;
}

static __poll_t chardev_poll(struct file *filp, struct poll_table_struct *table)
{
	struct peerdma_file *file = filp->private_data;
	__poll_t events;

	poll_wait(filp, &file->wait, table);
	/* Not while read() would wait: who does both in turn would be kept busy. */
	if (!chardev_readable(file))
		return 0;
	events = list_empty_careful(&file->events) ? 0 : EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(file->board->state) == PEERDMA_BOARD_DEAD)
		events |= EPOLLHUP | EPOLLERR;
	return events;
}

const struct file_operations peerdma_fops = {
	.owner = THIS_MODULE,
	.open = chardev_open,
	.release = chardev_release,
	.read = chardev_read,
	.poll = chardev_poll,
	.unlocked_ioctl = peerdma_legacy_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = peerdma_legacy_compat_ioctl,
#endif
	.mmap = peerdma_mmap,
};
