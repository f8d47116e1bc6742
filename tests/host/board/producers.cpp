// SPDX-License-Identifier: BSD-2-Clause
// Threads that use a launch queue by device.cuh as a GPU would.
#include <sched.h>

// Now and then another thread goes on between any two accesses.
static void jitter() {
    static thread_local unsigned random = 1 + (unsigned)(unsigned long)&random;
    random ^= random << 13, random ^= random >> 17, random ^= random << 5;
    if (random % 16 == 0) sched_yield();
}
#define __atomic_load_n(from, order) (jitter(), __atomic_load_n(from, order))
#define __atomic_store_n(to, value, order) (jitter(), __atomic_store_n(to, value, order))

#include <peerdma/device.cuh>

#include <cstddef>
#include <vector>

using Time = unsigned long long;

extern "C" {

// The struct as this compiler lays it out: its size, then the offset of each member.
void layout(unsigned *to) {
    unsigned found[] = {
        sizeof(peerdma_queue),
        offsetof(peerdma_queue, entries),
        offsetof(peerdma_queue, records),
        offsetof(peerdma_queue, tail),
        offsetof(peerdma_queue, state),
        offsetof(peerdma_queue, next),
        offsetof(peerdma_queue, published),
        offsetof(peerdma_queue, done),
        offsetof(peerdma_queue, written),
        offsetof(peerdma_queue, doorbell),
        offsetof(peerdma_queue, depth),
        offsetof(peerdma_queue, generation),
        offsetof(peerdma_queue, plans),
        offsetof(peerdma_queue, slots),
    };
    for (unsigned offset : found) *to++ = offset;
}

int submit(const peerdma_queue *queue, unsigned plan, unsigned *ticket, Time limit) {
    return peerdma_submit(*queue, plan, ticket, limit);
}

int test(const peerdma_queue *queue, unsigned ticket) { return peerdma_test(*queue, ticket); }

int wait(const peerdma_queue *queue, unsigned ticket, Time limit) {
    return peerdma_wait(*queue, ticket, limit);
}

// Thread n of `threads` submits numbers n, n + threads, ... of `plans`, and waits for each ticket.
void work(const peerdma_queue *queue, unsigned count, unsigned threads, Time limit,
          const unsigned *plans, unsigned *tickets, int *results) {
    std::vector<std::thread> running;
    for (unsigned n = 0; n < threads; n++)
        running.emplace_back([=] {
            for (unsigned i = n; i < count; i += threads) {
                results[i] = peerdma_submit(*queue, plans[i], &tickets[i], limit);
                if (results[i] == PEERDMA_OK)
                    results[i] = peerdma_wait(*queue, tickets[i], limit);
            }
        });
    for (auto &thread : running) thread.join();
}

// Threads submit and wait until the queue has ended. This one is the board: it does `count` tickets,
// and calls `end`, as drivers do when the board is quiet. Fewer tickets than the queue is deep are
// drawn. Returns how often a thread was told what is not so.
unsigned ending(const peerdma_queue *queue, unsigned threads, unsigned count, Time limit,
                void (*end)()) {
    unsigned first = *queue->next, wrong = 0;
    std::vector<std::thread> running;
    for (unsigned n = 0; n < threads; n++)
        running.emplace_back([=, &wrong] {
            int result = PEERDMA_OK;
            for (unsigned ticket; result == PEERDMA_OK;) {
                bool done = false;
                result = peerdma_submit(*queue, 0, &ticket, limit);
                if (result == PEERDMA_OK) {
                    result = peerdma_wait(*queue, ticket, limit);
                    done = ticket - first < count;
                }
                bool right = done ? result == PEERDMA_OK : result == PEERDMA_ENDED || result > 0;
                if (!right) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
            }
        });
    Time since = peerdma_now();
    for (unsigned ticket = first; ticket - first < count; ticket++) {
        unsigned *tail = queue->tail;
        while ((unsigned short)(peerdma_load(tail) - 1 - ticket) >= queue->depth)
            if (peerdma_now() - since > limit) return ~0u;
        peerdma_fence();
        peerdma_store(queue->records + (ticket & (queue->depth - 1)), (unsigned long long)ticket);
    }
    peerdma_fence();
    end();
    for (auto &thread : running) thread.join();
    return wrong;
}

// A board that is stricter than ours: an entry that the tail covers and that is not there is an
// error, and if there is a doorbell, one that comes along as the next and is another. In each round each of `threads` threads submits three tickets, all at once; the next begins
// when the tail has covered them. Returns how many entries were not there, or not covered within
// `limit`; 1 more if no doorbell brought one.
unsigned race(const peerdma_queue *queue, unsigned threads, unsigned rounds, Time limit) {
    unsigned head = *queue->next, mask = queue->depth - 1, begun = 0;
    unsigned taken = 0, missing = 0, came = 0;
    const unsigned each = 3, in_round = threads * each;
    std::vector<std::thread> running;
    for (unsigned n = 0; n < threads; n++)
        running.emplace_back([=, &begun] {
            for (unsigned round = 1, ticket; round <= rounds; round++) {
                while (peerdma_load(&begun) < round) sched_yield();
                for (unsigned i = 0; i < each; i++)
                    if (peerdma_submit(*queue, i % queue->plans, &ticket, limit) != PEERDMA_OK)
                        return;
            }
        });
    Time since = peerdma_now();
    while (taken < in_round * rounds && peerdma_now() - since < limit) {
        if (taken % in_round == 0) peerdma_store(&begun, taken / in_round + 1);
        Time word = queue->doorbell ? peerdma_load(queue->doorbell) : peerdma_load(queue->tail);
        unsigned tail = (unsigned)word, brought = word >> 32;
        peerdma_fence();
        unsigned short ahead = (unsigned short)tail - (unsigned short)head;
        // One that is behind is an older tail, which says nothing.
        if (tail >> 16 != queue->generation || ahead > queue->depth) ahead = 0;
        if (queue->doorbell && ahead == 1 && brought >> 16 == head >> 16) {
            came++;
            if ((peerdma_load(queue->entries + (head & mask)) >> 32) != (brought & 63)) missing++;
        }
        for (; ahead; ahead--, head++, taken++) {
            if ((unsigned)peerdma_load(queue->entries + (head & mask)) != head) missing++;
            peerdma_store(queue->records + (head & mask), (unsigned long long)head);
        }
    }
    peerdma_store(queue->state, 1u);
    peerdma_store(&begun, ~0u);
    for (auto &thread : running) thread.join();
    return missing + in_round * rounds - taken + (queue->doorbell && !came);
}
}
