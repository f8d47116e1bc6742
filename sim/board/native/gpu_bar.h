// SPDX-License-Identifier: BSD-2-Clause
// A TLP's bytes through a GPU's BAR, as accesses of this processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peerdma {

// Each aligned 8 bytes (16 on 64-bit Arm) by one store, in the order of their addresses; what is
// stored after it, by this processor or by a client that is told of it, is seen after it.
void store_to_gpu(uint8_t *to, const uint8_t *from, size_t n);

// What is there now. Reads whole lines of 64 bytes, so `from` must be in a mapping of whole pages.
void load_from_gpu(uint8_t *to, const uint8_t *from, size_t n);

}  // namespace peerdma
