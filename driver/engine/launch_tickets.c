// SPDX-License-Identifier: GPL-2.0
/*
 * Tickets of launch queues, in memory that a program, GPUs and the board write at any time.
 *
 * Shared memory is untrusted: its values are only reported back to the program, never used by the
 * driver.
 */
#include <linux/bitfield.h>

#include "engine.h"

/* Whether a place has an entry that has no record. Each word is read once. */
static bool launch_tickets_outstanding(const struct peerdma_launch_queue *queue, u32 place,
				       u32 *ticket)
{
	const struct peerdma_launch_entry *entry = queue->entries.cpu;
	const struct peerdma_launch_record *record = queue->records.cpu;

	*ticket = le32_to_cpu(READ_ONCE(entry[place].ticket));
	return (s32)(*ticket - le32_to_cpu(READ_ONCE(record[place].ticket))) > 0;
}

/* In one piece, as the board writes it. */
static void launch_tickets_record(const struct peerdma_launch_queue *queue, u32 place, u32 ticket,
				  u32 status)
{
	u64 record = (u64)status << 32 | ticket;

	WRITE_ONCE(((__le64 *)queue->records.cpu)[place], cpu_to_le64(record));
}

/**
 * peerdma_launch_tickets_tell() - writes the state word of a queue
 * @queue: the queue
 * @told: PEERDMA_QUEUE_*
 */
void peerdma_launch_tickets_tell(struct peerdma_launch_queue *queue, u32 told)
{
	queue->told = told;
	WRITE_ONCE(*(__le32 *)queue->word.cpu, cpu_to_le32(told));
}

/**
 * peerdma_launch_tickets_fill() - fills the memory of a queue for its start
 * @queue: its places are set
 *
 * No place has a ticket that is to come.
 */
void peerdma_launch_tickets_fill(struct peerdma_launch_queue *queue)
{
	__le64 *entries = queue->entries.cpu;
	u32 ticket, n;

	for (n = 0; n < queue->depth; n++) {
		ticket = queue->first - queue->depth + n;
		WRITE_ONCE(entries[ticket % queue->depth], cpu_to_le64(ticket));
		launch_tickets_record(queue, ticket % queue->depth, ticket,
				      PEERDMA_LAUNCH_STATUS_OK);
	}
	WRITE_ONCE(*(__le32 *)queue->shadow.cpu, 0);
	peerdma_launch_tickets_tell(queue, 0);
}

/**
 * peerdma_launch_tickets_wait() - whether a ticket has an entry, but no record
 * @queue: armed
 *
 * Return: true if there is one.
 */
bool peerdma_launch_tickets_wait(const struct peerdma_launch_queue *queue)
{
	u32 ticket, n;

	for (n = 0; n < queue->depth; n++)
		if (launch_tickets_outstanding(queue, n, &ticket))
			return true;
	return false;
}

/**
 * peerdma_launch_tickets_end() - says that a queue has ended, and completes its tickets
 * @queue: the queue, which the board does not touch any more
 * @reason: enum peerdma_reason
 * @status: enum peerdma_launch_status, of tickets that have no record
 */
void peerdma_launch_tickets_end(struct peerdma_launch_queue *queue, u32 reason, u32 status)
{
	u32 ticket, n;

	peerdma_launch_tickets_tell(queue, queue->told | FIELD_PREP(PEERDMA_QUEUE_REASON, reason));
	/* Who submits after we have looked sees that the queue has ended. */
	smp_mb();
	for (n = 0; n < queue->depth; n++)
		if (launch_tickets_outstanding(queue, n, &ticket))
			launch_tickets_record(queue, n, ticket, status);
}

/**
 * peerdma_launch_tickets_done() - writes a done word
 * @done: its place
 */
void peerdma_launch_tickets_done(const struct peerdma_place *done)
{
	/* It follows the record. */
	smp_wmb();
	WRITE_ONCE(*(__le32 *)done->cpu, cpu_to_le32(1));
}
