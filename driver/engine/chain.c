// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptor chains: how memory becomes descriptors, and how the board is told of them.
 *
 * The layout is PG195's: the descriptors follow each other, in blocks that do not cross 4 KiB. Of a
 * chain that ends only the last one stops, with the one interrupt of the chain.
 */
#include <linux/bitfield.h>
#include <linux/bsearch.h>

#include "engine.h"

/* How many contiguous descriptors the adjacency fields can announce. */
#define BLOCK			64
/* A ring interrupts at least this often: then it is given credits, of which not all may fit. */
#define INTERRUPT_EVERY		256

#define CONTROL_LOG		(PEERDMA_CHANNEL_CONTROL_IE_DESCRIPTOR_STOPPED | \
				 PEERDMA_CHANNEL_CONTROL_IE_DESCRIPTOR_COMPLETED | \
				 PEERDMA_CHANNEL_CONTROL_IE_ALIGN_MISMATCH | \
				 PEERDMA_CHANNEL_CONTROL_IE_MAGIC_STOPPED | \
				 PEERDMA_CHANNEL_CONTROL_IE_INVALID_LENGTH | \
				 PEERDMA_CHANNEL_CONTROL_IE_READ_ERROR | \
				 PEERDMA_CHANNEL_CONTROL_IE_WRITE_ERROR | \
				 PEERDMA_CHANNEL_CONTROL_IE_DESC_ERROR)

/**
 * struct chain_place - a byte in a surface
 * @segment: where it is
 * @skip: bytes of @segment before it
 */
struct chain_place {
	const struct peerdma_segment *segment;
	u64 skip;
};

/**
 * peerdma_chain_alloc() - allocates memory for descriptors
 * @board: it is there. May sleep
 * @chain: has none
 * @room: for so many
 *
 * Return: 0 or -ENOMEM.
 */
int peerdma_chain_alloc(struct peerdma_dev *board, struct peerdma_chain *chain, u32 room)
{
	chain->descriptors = dma_alloc_coherent(&board->pdev->dev,
						room * sizeof(*chain->descriptors),
						&chain->address, GFP_KERNEL);
	chain->room = room;
	return chain->descriptors ? 0 : -ENOMEM;
}

/**
 * peerdma_chain_free() - undoes peerdma_chain_alloc()
 * @board: it is there. May sleep
 * @chain: may have none
 *
 * Idempotent.
 */
void peerdma_chain_free(struct peerdma_dev *board, struct peerdma_chain *chain)
{
	if (chain->descriptors)
		dma_free_coherent(&board->pdev->dev, chain->room * sizeof(*chain->descriptors),
				  chain->descriptors, chain->address);
	chain->descriptors = NULL;
}

static int chain_compare(const void *key, const void *element)
{
	const struct peerdma_segment *segment = element;
	u64 offset = *(const u64 *)key;

	if (offset < segment->start)
		return -1;
	return offset - segment->start >= segment->length;
}

static struct chain_place chain_find(const struct peerdma_surface *surface, u64 offset)
{
	const struct peerdma_segment *segment =
		bsearch(&offset, surface->segments, surface->segment_count,
			sizeof(*surface->segments), chain_compare);

	return (struct chain_place){ segment, offset - segment->start };
}

/* How many of the next bytes, at most @most, one descriptor can move, and goes behind them. */
static u64 chain_next(struct chain_place *place, u64 most, u64 *bus)
{
	u64 length = min3(place->segment->length - place->skip, most,
			  (u64)rounddown(PEERDMA_DESC_MAX_LENGTH, PAGE_SIZE));

	*bus = place->segment->address + place->skip;
	place->skip += length;
	if (place->skip == place->segment->length)
		*place = (struct chain_place){ place->segment + 1, 0 };
	return length;
}

/*
 * How many descriptors after the next one lie contiguous with it: what is left of its block, or of
 * the chain.
 */
static u32 chain_adjacent(u32 index, u32 count)
{
	u32 in_block = BLOCK - 1 - (index + 1) % BLOCK;

	return index + 2 < count ? min(in_block, count - 2 - index) : 0;
}

/* Writes a descriptor, but for its control word. */
static void chain_write(const struct peerdma_chain *chain, u32 index, u64 bus, u64 card, u32 length)
{
	struct peerdma_descriptor *descriptor = &chain->descriptors[index];

	descriptor->length = cpu_to_le32(length);
	descriptor->source = cpu_to_le64(chain->c2h ? card : bus);
	descriptor->destination = cpu_to_le64(chain->c2h ? bus : card);
	descriptor->next = cpu_to_le64(chain->address + (index + 1) * sizeof(*descriptor));
}

static void chain_control(const struct peerdma_chain *chain, u32 index, u32 adjacent, u32 flags)
{
	chain->descriptors[index].control =
		cpu_to_le32(FIELD_PREP(PEERDMA_DESC_MAGIC_MASK, PEERDMA_DESC_MAGIC) |
			    FIELD_PREP(PEERDMA_DESC_ADJACENT_MASK, adjacent) | flags);
}

/* Writes the control words of a chain that ends. */
static void chain_close(const struct peerdma_chain *chain, u32 count)
{
	u32 n = count, flags;

	while (n--) {
		flags = n + 1 == count ? PEERDMA_DESC_STOP | PEERDMA_DESC_COMPLETED : 0;
		chain_control(chain, n, chain_adjacent(n, count), flags);
	}
	chain->descriptors[count - 1].next = 0;
}

/**
 * peerdma_chain_build() - writes a chain
 * @chain: nobody uses what is in it
 * @surface: the memory
 * @offset: first byte in @surface
 * @card: card address of the first byte
 * @card_fixed: all descriptors have this card address
 * @bytes: at most to be moved; not 0 and within the surface
 * @count: set to the number of descriptors
 *
 * Return: bytes that they move.
 */
u64 peerdma_chain_build(const struct peerdma_chain *chain, const struct peerdma_surface *surface,
			u64 offset, u64 card, bool card_fixed, u64 bytes, u32 *count)
{
	struct chain_place place = chain_find(surface, offset);
	u64 bus, length, built = 0;
	u32 n;

	for (n = 0; n < chain->room && built < bytes; n++) {
		length = chain_next(&place, bytes - built, &bus);
		chain_write(chain, n, bus, card_fixed ? card : card + built, length);
		built += length;
	}
	*count = n;
	chain_close(chain, n);
	return built;
}

/**
 * peerdma_chain_length() - counts the descriptors that memory takes
 * @surface: the memory
 * @offset: first byte
 * @length: bytes, not 0 and within the surface
 *
 * Return: how many; more than PEERDMA_CHAIN_ROOM: too many.
 */
u32 peerdma_chain_length(const struct peerdma_surface *surface, u64 offset, u64 length)
{
	struct chain_place place = chain_find(surface, offset);
	u64 bus;
	u32 n;

	for (n = 0; n <= PEERDMA_CHAIN_ROOM && length; n++)
		length -= chain_next(&place, length, &bus);
	return n;
}

/**
 * peerdma_chain_address() - finds memory on the bus
 * @surface: the memory
 * @offset: first byte
 * @length: bytes, not 0 and within the surface
 * @bus: set to the address of the first byte
 *
 * Return: whether it is contiguous there.
 */
bool peerdma_chain_address(const struct peerdma_surface *surface, u64 offset, u64 length, u64 *bus)
{
	struct chain_place place = chain_find(surface, offset);

	return chain_next(&place, length, bus) == length;
}

/* Behind the first @index descriptors. Returns how many there are then. */
static u32 chain_append(const struct peerdma_chain *chain, u32 index, u64 card,
			const struct peerdma_surface *surface, u64 offset, u64 length)
{
	struct chain_place place = chain_find(surface, offset);
	u64 bus, part;

	for (; length; length -= part) {
		part = chain_next(&place, length, &bus);
		chain_write(chain, index++, bus, card, part);
	}
	return index;
}

/**
 * peerdma_chain_build_packet() - writes a chain for a packet: the frame, and behind it its record
 * @chain: nobody uses what is in it; it has room
 * @leg: memory for the frame, and the stream window
 * @record: memory for the record
 * @record_offset: first byte in @record
 */
void peerdma_chain_build_packet(const struct peerdma_chain *chain, const struct peerdma_leg *leg,
				const struct peerdma_surface *record, u64 record_offset)
{
	u32 count;

	count = chain_append(chain, 0, leg->card, leg->surface, leg->offset, leg->length);
	count = chain_append(chain, count, leg->card, record, record_offset,
			     sizeof(struct peerdma_frame_record));
	chain_close(chain, count);
}

/**
 * peerdma_chain_build_ring() - writes a chain that never ends: each frame, and behind it its record
 * @engine: it is BUILDING
 * @ring: has been measured
 *
 * Return: the number of descriptors. The last one of each frame interrupts.
 */
u32 peerdma_chain_build_ring(struct peerdma_engine *engine, const struct peerdma_frame_ring *ring)
{
	const struct peerdma_chain *chain = &engine->chain;
	u64 card = engine->board->stream_window;
	const struct peerdma_frame_place *frame;
	u32 frames, count = 0, n;
	bool ends;

	for (frames = 0; frames < ring->frame_count; frames++) {
		frame = &ring->frames[frames];
		count = chain_append(chain, count, card, frame->surface, frame->offset,
				     frame->length);
		if (ring->records)
			count = chain_append(chain, count, card, ring->records,
					     ring->records_offset +
					     frames * sizeof(struct peerdma_frame_record),
					     sizeof(struct peerdma_frame_record));
	}
	frame = ring->frames;
	for (n = 0; n < count; n++) {
		ends = n + 1 == frame->end;
		frame += ends;
		chain_control(chain, n,
			      n + 1 == count ? min_t(u32, count, BLOCK) - 1 :
					       chain_adjacent(n, count),
			      ends || !((n + 1) % INTERRUPT_EVERY) ? PEERDMA_DESC_COMPLETED : 0);
	}
	chain->descriptors[count - 1].next = cpu_to_le64(chain->address);
	return count;
}

/* Writes a short chain into the board, which saves it a round trip to memory. */
static void chain_push(struct peerdma_engine *engine, u32 count)
{
	const __le32 *words = (const __le32 *)engine->chain.descriptors;
	u32 n;

	for (n = 0; n < count * sizeof(*engine->chain.descriptors) / sizeof(*words); n++)
		peerdma_write(engine->board, engine->push + n * sizeof(*words),
			      le32_to_cpu(words[n]));
}

/* Tells the board where in memory an engine's chain is. */
static void chain_point(struct peerdma_engine *engine, u32 count)
{
	struct peerdma_dev *board = engine->board;

	peerdma_write(board, engine->sgdma + PEERDMA_SGDMA_DESCRIPTOR_LO_REG,
		      lower_32_bits(engine->chain.address));
	peerdma_write(board, engine->sgdma + PEERDMA_SGDMA_DESCRIPTOR_HI_REG,
		      upper_32_bits(engine->chain.address));
	peerdma_write(board, engine->sgdma + PEERDMA_SGDMA_DESCRIPTOR_ADJACENT_REG,
		      min_t(u32, count, BLOCK) - 1);
}

/**
 * peerdma_chain_doorbell() - starts an engine's chain
 * @engine: its channel is stopped. The board's lock is held
 * @count: number of descriptors
 */
void peerdma_chain_doorbell(struct peerdma_engine *engine, u32 count)
{
	/* What goes round is fetched again and again. */
	if (engine->push && count <= PEERDMA_PUSH_DESCRIPTORS && !engine->job->run.frame_ring)
		chain_push(engine, count);
	else
		chain_point(engine, count);
	peerdma_channel_write(engine, PEERDMA_CHANNEL_PERF_CONTROL_REG,
			      PEERDMA_CHANNEL_PERF_CONTROL_CLEAR);
	peerdma_channel_write(engine, PEERDMA_CHANNEL_PERF_CONTROL_REG,
			      PEERDMA_CHANNEL_PERF_CONTROL_RUN | PEERDMA_CHANNEL_PERF_CONTROL_AUTO);
	/* Clears status and count as well; writel() orders the descriptors before it. */
	peerdma_channel_write(engine, PEERDMA_CHANNEL_CONTROL_REG,
			      CONTROL_LOG | PEERDMA_CHANNEL_CONTROL_RUN);
}
