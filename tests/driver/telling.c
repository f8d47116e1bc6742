// SPDX-License-Identifier: BSD-2-Clause
// Programs are told by many threads at once: driver/engine/tell.c as a program. Files and users come and go
// while their jobs end and their watchers come and go; each job is told once, nothing is freed early.
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HZ 250
#define TASK_NORMAL 3
#define EINTR 4
#define READ_ONCE(from) __atomic_load_n(&(from), __ATOMIC_RELAXED)
#define WRITE_ONCE(to, value) __atomic_store_n(&(to), value, __ATOMIC_RELAXED)
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#define check(condition) ((condition) ? (void)0 : failed(#condition))

static void failed(const char *condition) {
    fprintf(stderr, "not so: %s\n", condition);
    abort();
}

typedef int64_t ktime_t;
static ktime_t ktime_get(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
static int64_t ktime_us_delta(ktime_t later, ktime_t begin) { return (later - begin) / 1000; }
#define jiffies ((unsigned long)(ktime_get() / (1000000000 / HZ)))
#define time_before(a, b) ((long)((a) - (b)) < 0)

struct list_head { struct list_head *next, *prev; };
#define LIST_HEAD(name) struct list_head name = {&name, &name}
static void INIT_LIST_HEAD(struct list_head *head) { head->next = head->prev = head; }
static void list_add_tail(struct list_head *entry, struct list_head *head) {
    entry->prev = head->prev, entry->next = head;
    head->prev->next = entry, head->prev = entry;
}
static void list_del(struct list_head *entry) {
    entry->next->prev = entry->prev, entry->prev->next = entry->next;
    entry->next = entry->prev = NULL;
}
static bool list_empty(const struct list_head *head) { return head->next == head; }
static void list_splice_init(struct list_head *list, struct list_head *head) {
    if (list_empty(list)) return;
    list->next->prev = head, list->prev->next = head->next;
    head->next->prev = list->prev, head->next = list->next;
    INIT_LIST_HEAD(list);
}
#define list_entry container_of
#define list_next_entry(at, member) list_entry((at)->member.next, typeof(*(at)), member)
#define list_for_each_entry_safe(at, following, head, member) \
    for (at = list_entry((head)->next, typeof(*at), member), following = list_next_entry(at, member); \
         &at->member != (head); at = following, following = list_next_entry(following, member))

struct llist_node { struct llist_node *next; };
struct llist_head { struct llist_node *first; };
static void init_llist_head(struct llist_head *head) { head->first = NULL; }
static bool llist_add(struct llist_node *node, struct llist_head *head) {
    struct llist_node *first = __atomic_load_n(&head->first, __ATOMIC_SEQ_CST);
    do node->next = first;
    while (!__atomic_compare_exchange_n(&head->first, &first, node, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
    return !first;
}
static struct llist_node *llist_del_all(struct llist_head *head) {
    return __atomic_exchange_n(&head->first, NULL, __ATOMIC_SEQ_CST);
}
static struct llist_node *llist_reverse_order(struct llist_node *node) {
    struct llist_node *turned = NULL, *next;
    for (; node; turned = node, node = next) next = node->next, node->next = turned;
    return turned;
}
#define llist_entry container_of
#define llist_next(node, type, member) \
    ((node) ? llist_entry((node), type, member) : NULL)
#define llist_for_each_entry_safe(at, following, node, member) \
    for (at = llist_next((node), typeof(*at), member); \
         at && (following = llist_next(at->member.next, typeof(*at), member), true); at = following)

typedef struct { int value; } atomic_t;
static int atomic_read(atomic_t *at) { return __atomic_load_n(&at->value, __ATOMIC_SEQ_CST); }
static void atomic_inc(atomic_t *at) { __atomic_add_fetch(&at->value, 1, __ATOMIC_SEQ_CST); }
static void atomic_dec(atomic_t *at) { check(__atomic_sub_fetch(&at->value, 1, __ATOMIC_SEQ_CST) >= 0); }

struct kref { atomic_t count; };
static void kref_get(struct kref *ref) { check(atomic_read(&ref->count) > 0), atomic_inc(&ref->count); }
static bool kref_get_unless_zero(struct kref *ref) { return atomic_read(&ref->count) && (kref_get(ref), true); }

typedef pthread_mutex_t spinlock_t;
#define spin_lock_irq pthread_mutex_lock
#define spin_unlock_irq pthread_mutex_unlock
#define cond_resched sched_yield

struct wait_queue_entry {
    int (*func)(struct wait_queue_entry *, unsigned int, int, void *);
    struct list_head entry;
};
struct wait_queue_head { spinlock_t lock; struct list_head head; };
static void init_waitqueue_head(struct wait_queue_head *queue) {
    pthread_mutex_init(&queue->lock, NULL);
    INIT_LIST_HEAD(&queue->head);
}
#define wq_has_sleeper(queue) ((void)(queue), false)
#define wake_up_all(queue) ((void)(queue))
#define wait_event_killable(queue, condition) ({ while (!(condition)) usleep(100); 0; })

struct work_struct { void (*function)(struct work_struct *); int pending; struct work_struct *next; };
#define INIT_WORK(work, to_call) ((work)->function = (to_call), (work)->pending = 0)
struct workqueue_struct { pthread_mutex_t lock; pthread_cond_t more; struct work_struct *first; };
static void queue_work(struct workqueue_struct *queue, struct work_struct *work) {
    // With two workqueues an item that is queued twice would be lost.
    check(!__atomic_exchange_n(&work->pending, 1, __ATOMIC_SEQ_CST));
    pthread_mutex_lock(&queue->lock);
    work->next = queue->first, queue->first = work;
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->lock);
}
static void *worker(void *argument) {
    struct workqueue_struct *queue = argument;
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        while (!queue->first) pthread_cond_wait(&queue->more, &queue->lock);
        struct work_struct *work = queue->first;
        queue->first = work->next;
        pthread_mutex_unlock(&queue->lock);
        __atomic_store_n(&work->pending, 0, __ATOMIC_SEQ_CST);
        work->function(work);
    }
    return NULL;
}

// In place of engine.h: what tell.c uses of it.
struct peerdma_job;
struct peerdma_ops { void (*job_told)(struct peerdma_job *); };
struct peerdma_dev { spinlock_t lock; const struct peerdma_ops *ops; };
struct peerdma_user {
    struct llist_head untold_files;
    struct work_struct tell;
    unsigned long slow_until;
    atomic_t untold;
    struct wait_queue_head calm;
    atomic_t holders;
};
struct peerdma_share { struct peerdma_user *user; };
struct peerdma_file {
    struct kref ref;
    struct peerdma_dev *board;
    struct peerdma_share *share, own_share;
    bool news;
    struct list_head untold;
    bool telling;
    struct llist_node on_user;
    struct wait_queue_head wait;
};
struct peerdma_job { struct peerdma_file *file; struct list_head untold; int takes; };
static void peerdma_file_put(struct peerdma_file *file);

#include "driver/engine/tell.c"

static struct peerdma_dev board = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_t made, told;

static void user_put(struct peerdma_user *user) {
    if (__atomic_sub_fetch(&user->holders.value, 1, __ATOMIC_SEQ_CST)) return;
    check(!atomic_read(&user->untold) && !user->untold_files.first);
    free(user);
}

static void peerdma_file_put(struct peerdma_file *file) {
    int left = __atomic_sub_fetch(&file->ref.count.value, 1, __ATOMIC_SEQ_CST);
    check(left >= 0);
    if (left) return;
    check(!file->telling && list_empty(&file->untold));
    struct wait_queue_entry *at, *next;
    list_for_each_entry_safe(at, next, &file->wait.head, entry) free(at);
    user_put(file->share->user);
    free(file);
}

static int watch(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key) {
    return (void)entry, (void)mode, (void)flags, (void)key, 1;
}

static void job_told(struct peerdma_job *job) {
    if (job->takes) usleep(job->takes);
    struct peerdma_file *file = job->file;
    free(job);
    atomic_inc(&told);
    peerdma_file_put(file);
}

static void change_watchers(struct peerdma_file *file, bool more) {
    struct wait_queue_entry *at, *next;
    pthread_mutex_lock(&file->wait.lock);
    list_for_each_entry_safe(at, next, &file->wait.head, entry) {
        if (more || at->func != watch) continue;
        list_del(&at->entry);
        free(at);
        break;
    }
    if (more) {
        at = calloc(1, sizeof(*at));
        at->func = watch;
        list_add_tail(&at->entry, file->wait.head.next);
    }
    pthread_mutex_unlock(&file->wait.lock);
}

static void end_job(struct peerdma_file *file, int takes, bool event) {
    struct peerdma_job *job = calloc(1, sizeof(*job));
    peerdma_tell_pace(file->share->user);
    job->file = file, job->takes = takes;
    kref_get(&file->ref);
    atomic_inc(&made);
    pthread_mutex_lock(&board.lock);
    if (event) peerdma_tell_file(file);
    peerdma_tell_job(job);
    pthread_mutex_unlock(&board.lock);
}

static void use(unsigned int *seed) {
    struct peerdma_user *user = calloc(1, sizeof(*user));
    struct peerdma_file *files[4];
    peerdma_tell_init(user);
    for (int n = 0; n < 4; n++) {
        files[n] = calloc(1, sizeof(**files));
        files[n]->board = &board, files[n]->own_share.user = user;
        files[n]->share = &files[n]->own_share;
        atomic_inc(&user->holders), atomic_inc(&files[n]->ref.count);
        INIT_LIST_HEAD(&files[n]->untold);
        init_waitqueue_head(&files[n]->wait);
        for (int m = rand_r(seed) % 200; m > 0; m--) change_watchers(files[n], true);
    }
    for (int n = 0; n < 300; n++) {
        struct peerdma_file *file = files[rand_r(seed) % 4];
        if (rand_r(seed) % 4 == 0) change_watchers(file, rand_r(seed) % 2);
        end_job(file, rand_r(seed) % 20 ? 0 : 600, rand_r(seed) % 2);
    }
    for (int n = 0; n < 4; n++) peerdma_file_put(files[n]);
}

static void *uses(void *argument) {
    unsigned int seed = (uintptr_t)argument;
    for (int n = 0; n < 60; n++) use(&seed);
    return NULL;
}

static struct workqueue_struct *start_queue(void) {
    struct workqueue_struct *queue = calloc(1, sizeof(*queue));
    pthread_t thread;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->more, NULL);
    for (int n = 0; n < 3; n++) pthread_create(&thread, NULL, worker, queue);
    return queue;
}

int main(int count, char **words) {
    static const struct peerdma_ops ops = {job_told};
    pthread_t threads[4];
    (void)peerdma_surface_wq;
    board.ops = &ops;
    peerdma_wq = start_queue(), peerdma_slow_wq = start_queue();
    for (uintptr_t n = 0; n < 4; n++)
        pthread_create(&threads[n], NULL, uses, (void *)(n + (count > 1 ? strtoul(words[1], NULL, 0) : 0)));
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
    /* Until nothing has happened for 5 s. */
    for (int n = 0, last = 0; n < 500 && atomic_read(&told) != atomic_read(&made); n++) {
        if (atomic_read(&told) != last) last = atomic_read(&told), n = 0;
        usleep(10000);
    }
    printf("%d of %d jobs told\n", atomic_read(&told), atomic_read(&made));
    return atomic_read(&told) != atomic_read(&made);
}
