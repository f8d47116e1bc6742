/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Jobs: from a request that has been checked to its completion.
 */
#ifndef PEERDMA_JOB_H
#define PEERDMA_JOB_H

#include "engine.h"

/* Jobs of a file that are queued, running or have an event that has not been read. */
#define PEERDMA_MAX_JOBS	256

static inline void peerdma_surface_get(struct peerdma_surface *surface)
{
	kref_get(&surface->ref);
}

static inline void peerdma_surface_last(struct kref *ref)
{
	struct peerdma_surface *surface = container_of(ref, struct peerdma_surface, ref);

	queue_work(peerdma_surface_wq, &surface->release);
}

/* Any context: after the last reference, a work item gives the memory back. */
static inline void peerdma_surface_put(struct peerdma_surface *surface)
{
	kref_put(&surface->ref, peerdma_surface_last);
}

/*
 * A job touches it no more. Called with the board's lock held: at most two threads of ours wait,
 * one that unpins it and one that revokes it.
 */
static inline void peerdma_surface_leave(struct peerdma_surface *surface)
{
	if (!--surface->inflight)
		wake_up_all(&surface->idle);
}

/* fail.c */
__printf(3, 4) int peerdma_fail(struct peerdma_file *file, int error, const char *format, ...);
u64 peerdma_fail_address(const struct peerdma_job *job);
int peerdma_fail_busy(struct peerdma_file *file, struct pid *holder);
int peerdma_fail_job(struct peerdma_job *job, int error);

/* quota.c */
struct peerdma_share *peerdma_quota_join(struct peerdma_dev *board);
void peerdma_quota_leave(struct peerdma_share *share);
struct peerdma_user *peerdma_quota_hold(struct peerdma_user *user);
void peerdma_quota_close(struct peerdma_user *user);
int peerdma_quota_add_job(struct peerdma_job *job);
void peerdma_quota_remove_job(struct peerdma_job *job);
int peerdma_quota_add_surface(struct peerdma_surface *surface);
void peerdma_quota_remove_surface(struct peerdma_surface *surface);

/* fence.c */
int peerdma_fence_submit(struct peerdma_job *job);
void peerdma_fence_signal(struct peerdma_job *job, int error);

/* job.c */
void peerdma_job_put(struct peerdma_job *job);
void peerdma_job_forget(struct peerdma_file *file, unsigned int count);
struct peerdma_job *peerdma_job_find(struct peerdma_file *file, u64 id);
void peerdma_job_end(struct peerdma_job *job);
void peerdma_job_reap(struct work_struct *work);
void peerdma_job_told(struct peerdma_job *job);
void peerdma_job_free_chains(struct peerdma_job *job);
bool peerdma_job_cancel(struct peerdma_file *file, u64 id);

/* submit.c */
struct peerdma_job *peerdma_submit_create(struct peerdma_file *file, enum peerdma_job_type type,
					  u64 length);
void peerdma_submit_use(struct peerdma_job *job, struct peerdma_surface *surface);
int peerdma_submit_check_card(struct peerdma_file *file, u32 op, u64 card, u64 length);
int peerdma_submit_check_surface(struct peerdma_file *file, const struct peerdma_surface *surface,
				 u64 offset, u64 length);
int peerdma_submit_check_side(struct peerdma_file *file, const struct peerdma_surface *surface,
			      u64 offset, u64 length, u32 access);
int peerdma_submit_prepare(struct peerdma_job *job, u32 op, struct peerdma_surface *source,
			   u64 source_offset, struct peerdma_surface *destination,
			   u64 destination_offset);
int peerdma_submit_check_live(struct peerdma_file *file, const struct peerdma_surface *surface);
int peerdma_submit_job(struct peerdma_job *job, bool notify);
int peerdma_submit_transfer(struct peerdma_file *file, u32 op, struct peerdma_surface *source,
			    u64 source_offset, struct peerdma_surface *destination,
			    u64 destination_offset, u64 length, u64 *nanoseconds);

#endif /* PEERDMA_JOB_H */
