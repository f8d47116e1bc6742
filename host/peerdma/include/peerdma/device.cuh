// SPDX-License-Identifier: BSD-2-Clause
// Launch queues from a kernel: start plans that the host has prepared, and see them end.
//
//     __global__ void kernel(peerdma_queue queue, ...) {
//         ...                                      // make the source
//         __syncthreads();
//         if (threadIdx.x == 0) {
//             unsigned ticket;
//             int result = peerdma_submit(queue, 0, &ticket, 1000000000ull);
//             if (result == PEERDMA_OK) result = peerdma_wait(queue, ticket, 1000000000ull);
//             ...                                  // PEERDMA_OK: the destination is complete
//         }
//     }
//
// For NVRTC and nvcc; and for compilers of C++, with threads in place of a GPU's. Each function can
// be called by any number of threads at once, of one GPU: its atomic operations on memory of the
// host are not atomic for others. Times are in nanoseconds. No wait is without a bound.
//
// docs/queue.md says what is in the memory, docs/launch.md how to use this, and docs/cuda.md what
// CUDA guarantees to a kernel that runs while a board writes.
#ifndef PEERDMA_DEVICE_CUH
#define PEERDMA_DEVICE_CUH

#ifdef __CUDACC__
#define PEERDMA_FUNCTION static __device__ __forceinline__
#else
#include <chrono>
#include <thread>
#define PEERDMA_FUNCTION static inline
#endif

// What the functions return; a status above 0 is that of the ticket's record (LaunchStatus).
enum {
    PEERDMA_OK = 0,
    PEERDMA_PENDING = -1,  // the ticket is not done
    PEERDMA_TIMEOUT = -2,  // submit: there was no room, and nothing was submitted
    PEERDMA_ENDED = -3,    // the queue has ended, and the ticket was not done by then
    PEERDMA_NO_PLAN = -4,  // the queue has no plan of this number
    PEERDMA_LONG = 19,     // no failure: a frame was longer than its array (its record: `bytes`)
};

// What queue.device is: pointers into the memory that the queue shares with the board.
struct peerdma_queue {
    unsigned long long *entries;  // by ticket modulo depth: ticket, and slot in the upper half
    unsigned long long *records;  // by ticket modulo depth: ticket, and status in the upper half
    unsigned *tail;               // what the board polls: tail, and generation in the upper half
    unsigned *state;              // the lowest byte is not 0: the queue has ended
    unsigned *next;               // the next ticket to be drawn
    unsigned *published;          // the first ticket that the tail does not cover
    unsigned *done;               // by plan: 0 when it is submitted, 1 when it is done
    unsigned *written;            // by ticket modulo depth: the ticket whose entry is there
    unsigned long long *doorbell; // null, or registers of the board: the tail, and its last entry
    unsigned depth;               // a power of two
    unsigned generation;
    unsigned plans;
    unsigned char slots[64];  // by plan
};

// One load, store or atomic operation each, in no order but by peerdma_fence.
#ifdef __CUDACC__
template <class T> PEERDMA_FUNCTION T peerdma_load(const T *from) {
    return *(const volatile T *)from;
}
template <class T> PEERDMA_FUNCTION void peerdma_store(T *to, T value) {
    *(volatile T *)to = value;
}
PEERDMA_FUNCTION bool peerdma_exchange(unsigned *at, unsigned from, unsigned to) {
    return atomicCAS(at, from, to) == from;
}
PEERDMA_FUNCTION void peerdma_fence() { __threadfence_system(); }
PEERDMA_FUNCTION unsigned long long peerdma_now() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
PEERDMA_FUNCTION void peerdma_pause() {
#if __CUDA_ARCH__ >= 700
    __nanosleep(100);
#endif
}
#else
template <class T> PEERDMA_FUNCTION T peerdma_load(const T *from) {
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}
template <class T> PEERDMA_FUNCTION void peerdma_store(T *to, T value) {
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
PEERDMA_FUNCTION bool peerdma_exchange(unsigned *at, unsigned from, unsigned to) {
    return __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
PEERDMA_FUNCTION void peerdma_fence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#ifdef __aarch64__
    asm volatile("dmb sy" ::: "memory");  // C++ orders for the processors only, not for the board
#endif
}
PEERDMA_FUNCTION unsigned long long peerdma_now() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}
PEERDMA_FUNCTION void peerdma_pause() {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}
#endif

// Whether the queue has ended: each ticket that the board has done has its record by then. Drivers
// write a record for each other one that they find, which is not PEERDMA_OK, a moment later.
PEERDMA_FUNCTION bool peerdma_ended(const peerdma_queue &queue) {
    return peerdma_load(queue.state) & 0xFF;
}

// PEERDMA_PENDING, or how a ticket ended. Its record is kept until the ticket `depth` later is
// done; then this returns that one's status. Tickets are done in their order, and after one that
// failed (PEERDMA_LONG is no failure) no other is PEERDMA_OK until the host resumes the queue. A
// ticket that was submitted while the queue ended may stay PEERDMA_PENDING: peerdma_wait sees that,
// or look at peerdma_ended.
PEERDMA_FUNCTION int peerdma_test(const peerdma_queue &queue, unsigned ticket) {
    unsigned long long record = peerdma_load(queue.records + (ticket & (queue.depth - 1)));
    if ((int)((unsigned)record - ticket) < 0) return PEERDMA_PENDING;
    peerdma_fence();  // what the board wrote before the record is read after it
    return (int)(record >> 32);
}

// Waits for the end of a ticket for so long: as peerdma_test, PEERDMA_PENDING if it was not done
// in time, or PEERDMA_ENDED; a record of FLUSHED or ABORTED may follow that.
PEERDMA_FUNCTION int peerdma_wait(const peerdma_queue &queue, unsigned ticket,
                                  unsigned long long nanoseconds) {
    unsigned long long since = peerdma_now();
    for (;;) {
        // Before the record: the board's last records are there before the state says so.
        bool ended = peerdma_ended(queue);
        if (ended) peerdma_fence();
        int result = peerdma_test(queue, ticket);
        if (result != PEERDMA_PENDING) return result;
        if (ended) return PEERDMA_ENDED;
        if (peerdma_now() - since >= nanoseconds) return PEERDMA_PENDING;
        peerdma_pause();
    }
}

// Moves the tail on over all entries that are there, in their order; this thread's is the one of
// `ticket`.
//
// No entry is lost, though nobody waits for anybody. A thread stops at the first ticket whose entry
// it does not see, and leaves what comes after it to another one: to the thread that drew that
// ticket, or, if a later round has the place already, to the one that filled it. Either of them
// looks here later than this thread, as each has a fence between its store of `written` and its
// loads: so it sees the entry of this thread. The last one to look has nobody to leave anything to.
PEERDMA_FUNCTION void peerdma_publish(const peerdma_queue &queue, unsigned ticket, unsigned slot) {
    unsigned head, end;
    do {
        head = end = peerdma_load(queue.published);
        while (end - head < queue.depth &&
               peerdma_load(queue.written + (end & (queue.depth - 1))) == end)
            end++;
        if (end == head) return;
        peerdma_fence();  // entries of other threads, too, before they are announced
    } while (!peerdma_exchange(queue.published, head, end));
    // Threads may store the tail in another order than they moved `published` on, and the board
    // takes no notice of one that is older. Who stored last sees a newer number and stores that.
    do {
        end = peerdma_load(queue.published);
        peerdma_fence();
        unsigned tail = queue.generation << 16 | (end & 0xFFFF), last = end - 1;
        peerdma_store(queue.tail, tail);
        if (queue.doorbell) {
            // A board that lacks the last entry only takes it from here, and reads no ring. If a
            // later round has its place already, it is done, and the board looks at the tail alone.
            unsigned long long entry = (unsigned long long)slot << 32;
            if (last != ticket) entry = peerdma_load(queue.entries + (last & (queue.depth - 1)));
            entry = (entry >> 32 & 63) | (last & 0xFFFF0000);
            peerdma_store(queue.doorbell, entry << 32 | tail);
        }
        peerdma_fence();
    } while (peerdma_load(queue.published) != end);
}

// Submits plan number `plan`, and sets `ticket`, or returns what is below 0. Waits for so long
// until there is room: a ticket is not drawn before the one is done that had its place.
//
// What this thread wrote, or saw that others wrote, as by __syncthreads(), the board then reads.
PEERDMA_FUNCTION int peerdma_submit(const peerdma_queue &queue, unsigned plan, unsigned *ticket,
                                    unsigned long long nanoseconds) {
    if (plan >= queue.plans) return PEERDMA_NO_PLAN;
    unsigned long long since = peerdma_now();
    unsigned drawn;
    for (;;) {
        if (peerdma_ended(queue)) return PEERDMA_ENDED;
        drawn = peerdma_load(queue.next);
        bool room = peerdma_test(queue, drawn - queue.depth) != PEERDMA_PENDING;
        if (room && peerdma_exchange(queue.next, drawn, drawn + 1)) break;
        if (peerdma_now() - since >= nanoseconds) return PEERDMA_TIMEOUT;
        if (!room) peerdma_pause();
    }
    unsigned place = drawn & (queue.depth - 1), slot = queue.slots[plan];
    peerdma_store(queue.done + plan, 0u);
    peerdma_store(queue.entries + place, (unsigned long long)slot << 32 | drawn);
    peerdma_fence();  // the entry, and what the board is to read, before they are announced
    peerdma_store(queue.written + place, drawn);
    peerdma_fence();
    peerdma_publish(queue, drawn, slot);
    *ticket = drawn;
    return PEERDMA_OK;
}

#endif
