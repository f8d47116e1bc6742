/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What launch queues, and the jobs that they start, are beside jobs.
 */
#ifndef PEERDMA_LAUNCH_H
#define PEERDMA_LAUNCH_H

#include "core.h"

/**
 * struct peerdma_place - memory of a launch queue
 * @cpu: where the CPU sees it; others write there at any time. NULL: there is none
 * @bus: where the board sees it
 */
struct peerdma_place {
	void *cpu;
	u64 bus;
};

/**
 * struct peerdma_launch_queue - what makes a job a launch queue, which ends when the job does
 * @hwq: the board's queue that it has while it runs
 * @depth: places of both rings
 * @first: first ticket
 * @generation: of its doorbells
 * @entries: ring of what GPUs submit
 * @records: ring of what the board says of that
 * @shadow: shadow tail
 * @word: state word
 * @told: what is in @word, PEERDMA_QUEUE_*
 */
struct peerdma_launch_queue {
	struct peerdma_hw_queue *hwq;
	u32 depth;
	u32 first;
	u32 generation;
	struct peerdma_place entries;
	struct peerdma_place records;
	struct peerdma_place shadow;
	struct peerdma_place word;
	u32 told;
};

/**
 * struct peerdma_slot - what makes a job one that a launch queue starts, any number of times
 * @queue: the queue, which outlives it
 * @number: the first of its slots
 * @control: PEERDMA_LAUNCH_SLOT_CONTROL_*
 * @flush: address of the flush read
 * @done: done word
 * @record: memory for the record of a packet, one of the job's uses; NULL: it takes none
 * @record_offset: first byte in @record
 * @chains: for each of its engines; the first descriptor is in the slot as well, and the second one
 *	of a packet in the slot after it
 * @closing: it is invalid, and ends when it is not at work any more
 * @deadline: in jiffies; when its queue is stopped for that
 */
struct peerdma_slot {
	struct peerdma_job *queue;
	u32 number;
	u32 control;
	u64 flush;
	struct peerdma_place done;
	struct peerdma_surface *record;
	u64 record_offset;
	struct peerdma_chain chains[PEERDMA_DIRECTIONS];
	bool closing;
	unsigned long deadline;
};

#endif /* PEERDMA_LAUNCH_H */
