// SPDX-License-Identifier: BSD-2-Clause
// How the kernel driver ends a launch queue: a part of driver/engine/launch_queue.c as a program's
// library.
#include <assert.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <linux/types.h>

typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;

#define BIT(n) (1u << (n))
#define GENMASK(high, low) ((2u << (high)) - (1u << (low)))
#define FIELD_PREP(mask, value) ((u32)(value) << __builtin_ctz(mask))
#define le32_to_cpu(value) (value)
#define cpu_to_le32(value) (value)
#define cpu_to_le64(value) (value)

// Now and then others go on between any two accesses.
static void jitter(void) {
    if (rand() % 4 == 0) sched_yield();
}
#define READ_ONCE(from) (jitter(), __atomic_load_n(&(from), __ATOMIC_RELAXED))
#define WRITE_ONCE(to, value) (jitter(), __atomic_store_n(&(to), value, __ATOMIC_RELAXED))
#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)

// In place of engine.h and core.h, which need the kernel's headers: what launch.h and
// tickets.c use of them.
#define PEERDMA_ENGINE_H
#define PEERDMA_CORE_H
enum { PEERDMA_DIRECTIONS = 2 };
struct peerdma_chain { int unused; };
#include "driver/peerdma_regs.h"
#include "driver/peerdma_uapi.h"
#include "driver/engine/launch.h"

#include "tickets.c"  // what launch_helpers.py takes from launch_queue.c

void kernel_end(void *entries, void *records, void *word, u32 depth, u32 reason, u32 status) {
    struct peerdma_launch_queue queue = {
        .depth = depth,
        .entries.cpu = entries,
        .records.cpu = records,
        .word.cpu = word,
    };
    launch_queue_end_tickets(&queue, reason, status);
}
