// SPDX-License-Identifier: BSD-2-Clause
// The rules that the core's TLPs are checked against, as a C function for use without a core.
#include <cstdio>

#include "tlp.h"

// Why the TLP of `n` dwords is illegal, as text; empty if it is not. `limits` is what
// peerdma::Limits holds, in its order.
extern "C" void tlp_violation(const uint32_t *words, size_t n, const unsigned limits[6],
                              char *text, size_t room) {
    peerdma::Limits allowed = {uint16_t(limits[0]), limits[1],      limits[2],
                               limits[3] != 0,      limits[4] != 0, limits[5] != 0};
    peerdma::Words tlp(words, words + n);
    snprintf(text, room, "%s", peerdma::violation(tlp, allowed).c_str());
}
