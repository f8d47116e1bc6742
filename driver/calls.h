/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the core module offer each other; included by core.h, behind the structures.
 * Context and locking are described where the functions are.
 */
#ifndef PEERDMA_CALLS_H
#define PEERDMA_CALLS_H

/* main.c */
extern struct workqueue_struct *peerdma_wq;
extern unsigned int peerdma_timeout_ms;
struct peerdma_dev *peerdma_board_get(struct peerdma_dev *board);
void peerdma_board_put(struct peerdma_dev *board);

/* hw.c */
int peerdma_hw_identify(struct peerdma_dev *board);
int peerdma_hw_init(struct peerdma_dev *board);
void peerdma_hw_quiet(struct peerdma_dev *board);
bool peerdma_hw_soft_reset(struct peerdma_dev *board);
void peerdma_hw_start(struct peerdma_lane *lane, u32 count);
void peerdma_hw_stop(struct peerdma_lane *lane);
u32 peerdma_hw_status(struct peerdma_lane *lane, bool clear);
bool peerdma_hw_done(struct peerdma_lane *lane, u32 status);
u64 peerdma_hw_cycles(struct peerdma_lane *lane);
void peerdma_hw_error(struct peerdma_dev *board, struct peerdma_job *job);
unsigned long peerdma_scaled(struct peerdma_dev *board, u64 ms);

/* irq.c */
int peerdma_irq_setup(struct peerdma_dev *board);
void peerdma_irq_teardown(struct peerdma_dev *board);

/* chain.c */
u64 peerdma_chain_build(struct peerdma_lane *lane, struct peerdma_surface *surface, u64 offset,
			u64 card, bool card_fixed, u64 bytes, u32 *count);

/* engine.c */
void peerdma_pump(struct peerdma_dev *board);
void peerdma_pump_work(struct work_struct *work);
void peerdma_lane_event(struct peerdma_lane *lane, u32 status);
void peerdma_job_fail(struct peerdma_job *job, int error, u32 reason);
void peerdma_lost(struct peerdma_dev *board);
void peerdma_bury(struct peerdma_dev *board);
bool peerdma_poll_stopping(struct peerdma_dev *board);
void peerdma_force_idle(struct peerdma_dev *board);

/* watch.c */
void peerdma_stopper_work(struct work_struct *work);
void peerdma_watchdog_work(struct work_struct *work);

/* job.c */
struct peerdma_job *peerdma_job_create(struct peerdma_file *file, u64 length);
int peerdma_job_submit(struct peerdma_job *job, u64 *id);
bool peerdma_job_cancel(struct peerdma_file *file, u64 id);
void peerdma_job_put(struct peerdma_job *job);
void peerdma_job_end(struct peerdma_job *job);
int peerdma_job_run(struct peerdma_job *job);
void peerdma_jobs_fail(struct peerdma_file *file, int error, u32 reason);
void peerdma_fail_all(struct peerdma_dev *board, bool queued, int error, u32 reason);
void peerdma_fail_outdated(struct peerdma_dev *board);
void peerdma_fail_surface(struct peerdma_surface *surface, bool running, int error, u32 reason);

/* surface.c */
struct peerdma_surface *peerdma_surface_create(struct peerdma_file *file,
					       const struct peerdma_provider *provider,
					       const struct peerdma_pin_request *request);
struct peerdma_surface *peerdma_surface_find(struct peerdma_file *file, u64 handle);
int peerdma_surface_reserve(struct peerdma_file *file, u32 *handle);
void peerdma_surface_unlist(struct peerdma_surface *surface);
void peerdma_surface_release(struct peerdma_surface *surface);
int peerdma_surface_unpin(struct peerdma_file *file, u32 handle);
void peerdma_surface_drop(struct peerdma_surface *surface);
void peerdma_surface_put(struct peerdma_surface *surface);

/* revoke.c */
void peerdma_surfaces_take(struct peerdma_dev *board, u32 state, bool gpu);

/* provider.c */
const struct peerdma_provider *peerdma_provider_take_gpu(void);
bool peerdma_provider_names(char *text, size_t size);
bool peerdma_segments_complete(const struct peerdma_surface *surface);

/* pages.c, dmabuf.c */
extern const struct peerdma_provider peerdma_pages;
extern const struct peerdma_provider peerdma_dmabuf;
int peerdma_dmabuf_wait(struct peerdma_surface *surface, bool write);

/* recover.c */
extern const struct pci_error_handlers peerdma_error_handlers;
void peerdma_freeze(struct peerdma_dev *board, bool answers);
int peerdma_thaw(struct peerdma_dev *board);
int peerdma_reset(struct peerdma_dev *board);
void peerdma_recovery_work(struct work_struct *work);

/* power.c */
extern const struct dev_pm_ops peerdma_pm_ops;
void peerdma_shutdown(struct pci_dev *pdev);

/* mmap.c */
int peerdma_inode_get(struct peerdma_dev *board);
void peerdma_inode_put(struct peerdma_dev *board);
int peerdma_mmap(struct file *filp, struct vm_area_struct *vma);
int peerdma_map_info(struct peerdma_file *file, struct peerdma_map_info *info);
void peerdma_zap_surface(struct peerdma_surface *surface);
void peerdma_zap_mailbox(struct peerdma_dev *board);
void peerdma_extents_release(struct peerdma_surface *surface);
bool peerdma_mailbox_maps(const struct peerdma_dev *board);

/* chardev.c */
extern const struct file_operations peerdma_fops;
void peerdma_file_put(struct peerdma_file *file);

/* explain.c */
__printf(3, 4) int peerdma_fail(struct peerdma_file *file, int error, const char *format, ...);
int peerdma_job_explain(struct peerdma_job *job, int error);

/* transfer.c */
int peerdma_check_card(struct peerdma_file *file, u32 op, u64 card, u64 length);
int peerdma_check_surface(struct peerdma_file *file, const struct peerdma_surface *surface,
			  u64 offset, u64 length);
int peerdma_job_prepare(struct peerdma_job *job, u32 op, struct peerdma_surface *source,
			u64 source_offset, struct peerdma_surface *destination,
			u64 destination_offset);
int peerdma_transfer(struct peerdma_file *file, u32 op, struct peerdma_surface *source,
		     u64 source_offset, struct peerdma_surface *destination, u64 destination_offset,
		     u64 length, u64 *nanoseconds);

/**
 * struct peerdma_pinning - a pin request under way
 * @surface: what was pinned; NULL if this request pins nothing
 * @handle: its handle, which names nothing yet
 */
struct peerdma_pinning {
	struct peerdma_surface *surface;
	u32 handle;
};

/* pin.c */
int peerdma_pin_cuda(struct peerdma_file *file, struct peerdma_pin_cuda *pin_cuda,
		     struct peerdma_pinning *pinning);
int peerdma_pin_dmabuf(struct peerdma_file *file, struct peerdma_pin_dmabuf *pin_dmabuf,
		       struct peerdma_pinning *pinning);
int peerdma_pin_pages(struct peerdma_file *file, struct peerdma_pin_pages *pin_pages,
		      struct peerdma_pinning *pinning);
long peerdma_pin_finish(struct peerdma_file *file, struct peerdma_pinning *pinning, long error);

/* legacy.c */
long peerdma_legacy_ioctl(struct peerdma_file *file, unsigned int command, unsigned long argument);
#ifdef CONFIG_COMPAT
/* On 32-bit x86 the structure ends without padding, which changes its code, too. */
#define PEERDMA_IOC_PIN_CUDA_COMPAT \
	_IOC(_IOC_READ | _IOC_WRITE, PEERDMA_IOC_MAGIC, _IOC_NR(PEERDMA_IOC_PIN_CUDA), \
	     offsetofend(struct peerdma_pin_cuda, handle))
#endif

/* request.c */
long peerdma_request_ioctl(struct peerdma_file *file, unsigned int command, unsigned long argument);

/* info.c */
void peerdma_get_info(struct peerdma_file *file, struct peerdma_info *info);

#endif /* PEERDMA_CALLS_H */
