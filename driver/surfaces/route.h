/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether an address reaches memory, from what is known of the address and of the way there.
 *
 * Decisions alone, of plain values: tests/driver/test_route.py runs them over made topologies.
 */
#ifndef PEERDMA_ROUTE_H
#define PEERDMA_ROUTE_H

#include <linux/types.h>

/* Bridges above a function that are looked at; below more than these a way is through the host. */
#define PEERDMA_MOST_HOPS	16

/**
 * struct peerdma_hop - a function, or a bridge above it
 * @id: another one for each in the machine
 * @redirects: its access control (ACS) sends requests or completions of peers up to the host
 */
struct peerdma_hop {
	unsigned long id;
	bool redirects;
};

/**
 * struct peerdma_way - from a function up to its host bridge
 * @count: number of @hops; 0: not known
 * @hops: the function, the bridge above it, and so on
 */
struct peerdma_way {
	unsigned int count;
	struct peerdma_hop hops[PEERDMA_MOST_HOPS];
};

/**
 * peerdma_direct() - whether requests get from a function to a peer without the host
 * @board: the function's path
 * @peer: the peer's
 *
 * As the kernel decides for peer-to-peer DMA: they have a bridge in common, and nothing from there
 * down to both redirects. Then switches route by bus address, and no IOMMU sees the requests.
 *
 * Return: whether they do.
 */
static inline bool peerdma_direct(const struct peerdma_way *board,
				  const struct peerdma_way *peer)
{
	bool redirected = false;
	unsigned int b, p;

	for (p = 0; p < peer->count; p++) {
		redirected |= peer->hops[p].redirects;
		for (b = 0; b < board->count; b++)
			if (board->hops[b].id == peer->hops[p].id)
				break;
		if (b == board->count)
			continue;
		while (b--)
			redirected |= board->hops[b].redirects;
		return !redirected;
	}
	return false;
}

/**
 * enum peerdma_target - what is at an address
 * @PEERDMA_TARGET_NOTHING: nothing that takes DMA
 * @PEERDMA_TARGET_RAM: memory of the host
 * @PEERDMA_TARGET_BAR: a BAR of another function
 * @PEERDMA_TARGET_REST: other memory: carve-outs, stolen or persistent memory
 */
enum peerdma_target {
	PEERDMA_TARGET_NOTHING,
	PEERDMA_TARGET_RAM,
	PEERDMA_TARGET_BAR,
	PEERDMA_TARGET_REST,
};

/**
 * enum peerdma_reach - what becomes of DMA to an address
 * @PEERDMA_REACH_NOWHERE: it is lost
 * @PEERDMA_REACH_RAW: lost as well, but right for the peer once the IOMMU has been told
 * @PEERDMA_REACH_HOST: it gets to memory of the host
 * @PEERDMA_REACH_PEER: to a function, whose driver gave the address
 * @PEERDMA_REACH_OTHER: to something else
 * @PEERDMA_REACH_COUNT: how many there are
 */
enum peerdma_reach {
	PEERDMA_REACH_NOWHERE,
	PEERDMA_REACH_RAW,
	PEERDMA_REACH_HOST,
	PEERDMA_REACH_PEER,
	PEERDMA_REACH_OTHER,
	PEERDMA_REACH_COUNT,
};

/**
 * peerdma_reach() - what becomes of DMA to an address
 * @target: what is there: behind the IOMMU if that translates the address
 * @untranslated: an IOMMU translates for the board, and does not know the address
 * @direct: for a BAR, peerdma_direct()
 * @owned: for a BAR, its function belongs to who gave the address
 *
 * Return: enum peerdma_reach.
 */
static inline enum peerdma_reach peerdma_reach(enum peerdma_target target, bool untranslated,
					       bool direct, bool owned)
{
	if (target == PEERDMA_TARGET_NOTHING)
		return PEERDMA_REACH_NOWHERE;
	/* The IOMMU stops it, unless it does not get so far. */
	if (untranslated && target != PEERDMA_TARGET_BAR)
		return PEERDMA_REACH_NOWHERE;
	if (untranslated && !direct)
		return owned ? PEERDMA_REACH_RAW : PEERDMA_REACH_NOWHERE;
	if (target == PEERDMA_TARGET_RAM)
		return PEERDMA_REACH_HOST;
	if (target == PEERDMA_TARGET_BAR && owned)
		return PEERDMA_REACH_PEER;
	return PEERDMA_REACH_OTHER;
}

#endif /* PEERDMA_ROUTE_H */
