// SPDX-License-Identifier: BSD-2-Clause
// A launch queue in CUDA's streams and graphs; comes after device.cuh. For compilers of C++ as well.
#ifdef __CUDACC__
#define PEERDMA_KERNEL extern "C" __global__
#else
#define PEERDMA_KERNEL extern "C"
#endif

// Submits a plan when the stream comes to it, by one thread; waits for its end, too, if `waits`.
// Both for `limit` nanoseconds at most.
//
// The stream waits for the plan's done word next, unless this waited. That becomes 1 by the board,
// or by the driver when the queue ends, or, if neither knows of the ticket, here. So whoever ends a
// queue writes the state word first and then all done words: one that this cleared after that, it
// sets again, as it sees the state word.
PEERDMA_KERNEL void peerdma_stream_queue(peerdma_queue queue, unsigned plan, unsigned waits,
                                 unsigned long long limit, unsigned *missed) {
    unsigned ticket;
    int result = peerdma_submit(queue, plan, &ticket, limit);
    if (result == PEERDMA_NO_PLAN) return;
    if (result == PEERDMA_OK && waits) result = peerdma_wait(queue, ticket, limit);
    peerdma_fence();
    if (result < 0 || peerdma_ended(queue)) peerdma_store(queue.done + plan, 1u);
    if (result < 0) {
        // Apart: why the queue has ended is known, and no room is an error of its own.
        unsigned *count = missed + (result == PEERDMA_ENDED), old;
        do old = peerdma_load(count);
        while (!peerdma_exchange(count, old, old + 1));
    }
}
