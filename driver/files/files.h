/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Files: what programs do with an open node.
 */
#ifndef PEERDMA_FILES_H
#define PEERDMA_FILES_H

#include "surface.h"

/* How many the board has in both directions. */
static inline u32 peerdma_channels(const struct peerdma_dev *board)
{
	return board->engine_count / PEERDMA_DIRECTIONS;
}

/* export.c */
int peerdma_export(struct peerdma_dev *board, const struct peerdma_job *queue, u64 base);
void peerdma_export_end_doorbell(struct peerdma_hw_queue *hwq);
void peerdma_export_revoke(struct peerdma_dev *board);

/* mmap.c */
int peerdma_mmap_inode_get(struct peerdma_dev *board);
void peerdma_mmap_inode_put(struct peerdma_dev *board);
bool peerdma_mmap_mailbox(const struct peerdma_dev *board);
u64 peerdma_mmap_doorbell(struct peerdma_file *file, struct peerdma_hw_queue *hwq);
void peerdma_mmap_zap_doorbell(struct peerdma_hw_queue *hwq);
void peerdma_mmap_zap_registers(struct peerdma_dev *board);
int peerdma_mmap_export(struct peerdma_file *file, const struct peerdma_job *queue);
int peerdma_mmap_info(struct peerdma_file *file, struct peerdma_map_info *info);
int peerdma_mmap(struct file *filp, struct vm_area_struct *vma);

/* board_uapi.c */
void peerdma_board_uapi_info(struct peerdma_file *file, struct peerdma_info *info);
int peerdma_board_uapi_set_leds(struct peerdma_file *file, u32 value);
int peerdma_board_uapi_register(struct peerdma_file *file, struct peerdma_user_register *request);
int peerdma_board_uapi_read_clock(struct peerdma_file *file, struct peerdma_clock *clock);
int peerdma_board_uapi_set_context(struct peerdma_file *file, struct peerdma_context *context);

/* job_uapi.c */
int peerdma_job_uapi_find_end(struct peerdma_file *file, u32 handle, bool on_card,
			      struct peerdma_surface **surface);
int peerdma_job_uapi_submit(struct peerdma_file *file, struct peerdma_submit *submit,
			    u64 __user *told);
int peerdma_job_uapi_start_ring(struct peerdma_file *file, struct peerdma_start_ring *request);
int peerdma_job_uapi_release_frames(struct peerdma_file *file,
				    struct peerdma_release_frames *request);

/* launch_uapi.c */
struct peerdma_job *peerdma_launch_uapi_find(struct peerdma_file *file, u64 id);
int peerdma_launch_uapi_create(struct peerdma_file *file, struct peerdma_create_queue *request);
int peerdma_launch_uapi_destroy(struct peerdma_file *file, struct peerdma_destroy_queue *request);
int peerdma_launch_uapi_resume(struct peerdma_file *file, struct peerdma_resume_queue *request);
int peerdma_launch_uapi_query(struct peerdma_file *file, struct peerdma_query_queue *request);
int peerdma_launch_uapi_find_done(struct peerdma_job *job, u64 offset, struct peerdma_place *done);

/* prepare.c */
int peerdma_prepare(struct peerdma_file *file, struct peerdma_prepare *request);
int peerdma_prepare_undo(struct peerdma_file *file, struct peerdma_unprepare *request);

/* request.c */
long peerdma_request_ioctl(struct peerdma_file *file, unsigned int command, unsigned long argument);

/* legacy.c */
long peerdma_legacy_ioctl(struct file *filp, unsigned int command, unsigned long argument);
long peerdma_legacy_compat_ioctl(struct file *filp, unsigned int command, unsigned long argument);

/* chardev.c */
extern const struct file_operations peerdma_fops;
void peerdma_chardev_free(struct kref *ref);

#endif /* PEERDMA_FILES_H */
