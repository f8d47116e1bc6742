// SPDX-License-Identifier: GPL-2.0
/*
 * Descriptor chains, as PG195 lays them out in host memory: many pieces for one interrupt.
 */
#include <linux/bitfield.h>
#include <linux/bsearch.h>

#include "core.h"

static int compare_offset(const void *key, const void *element)
{
	const struct peerdma_segment *segment = element;
	u64 offset = *(const u64 *)key;

	if (offset < segment->start)
		return -1;
	return offset - segment->start >= segment->length;
}

/* Beyond the next descriptor: those left in its block, and those left in the chain. */
static u32 adjacent(u32 index, u32 count)
{
	u32 in_block = PEERDMA_BLOCK - 1 - (index + 1) % PEERDMA_BLOCK;

	return index + 2 < count ? min(in_block, count - 2 - index) : 0;
}

/**
 * peerdma_chain_build() - writes a chain to a lane's ring
 * @lane: BUILDING, by the caller
 * @surface: memory on this side; a job keeps it mapped
 * @offset: first byte in it
 * @card: card address of the first byte
 * @card_fixed: every descriptor has this card address
 * @bytes: how many to move at most; not 0, and within the surface
 * @count: set to the number of descriptors
 *
 * The descriptors lie one after the other, in blocks that do not cross 4 KiB. Only the last one
 * stops, with the chain's one interrupt.
 *
 * Return: how many bytes the chain moves, at least 1.
 */
u64 peerdma_chain_build(struct peerdma_lane *lane, struct peerdma_surface *surface, u64 offset,
			u64 card, bool card_fixed, u64 bytes, u32 *count)
{
	const struct peerdma_segment *segment =
		bsearch(&offset, surface->segments, surface->segment_count,
			sizeof(*surface->segments), compare_offset);
	u64 skip = offset - segment->start;
	u64 built = 0;
	u32 n, flags;

	for (n = 0; n < PEERDMA_RING && built < bytes; n++) {
		struct peerdma_descriptor *descriptor = &lane->ring[n];
		u64 length = min3(segment->length - skip, bytes - built,
				  (u64)rounddown(PEERDMA_DESC_MAX_LENGTH, PAGE_SIZE));
		u64 bus = segment->address + skip;
		u64 here = card_fixed ? card : card + built;

		descriptor->length = cpu_to_le32(length);
		descriptor->source = cpu_to_le64(lane->index == PEERDMA_H2C ? bus : here);
		descriptor->destination = cpu_to_le64(lane->index == PEERDMA_H2C ? here : bus);
		descriptor->next = cpu_to_le64(lane->ring_address + (n + 1) * sizeof(*descriptor));
		built += length;
		skip += length;
		if (skip == segment->length) {
			segment++;
			skip = 0;
		}
	}
	*count = n;
	while (n--) {
		flags = n + 1 == *count ? PEERDMA_DESC_STOP | PEERDMA_DESC_COMPLETED : 0;
		lane->ring[n].control =
			cpu_to_le32(FIELD_PREP(PEERDMA_DESC_MAGIC_MASK, PEERDMA_DESC_MAGIC) |
				    FIELD_PREP(PEERDMA_DESC_ADJACENT_MASK, adjacent(n, *count)) |
				    flags);
	}
	lane->ring[*count - 1].next = 0;
	return built;
}
