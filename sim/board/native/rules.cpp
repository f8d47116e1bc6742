// SPDX-License-Identifier: BSD-2-Clause
// The rules that the core's TLPs are checked against, and those of the seam, as C functions for use
// without a core.
#include <cstdio>

#include "root.h"
#include "seam.h"
#include "tlp.h"
#include "trace.h"

namespace {

// A host that has no memory, and that nobody asks for any.
struct Nobody : peerdma::Host {
    int read(uint64_t, uint8_t *, size_t, uint64_t) override { return kUnmapped; }
    bool write(uint64_t, const uint8_t *, size_t) override { return false; }
    bool must_wait(uint64_t, bool) const override { return false; }
    bool unsettled() const override { return false; }
    void msi(unsigned) override {}
    void msix(unsigned) override {}
    void intx(bool) override {}
    void answer(uint64_t, const std::vector<uint8_t> &) override {}
};

// What the core shows at the seam's requester port in one cycle; of a write of `dwords` dwords.
struct Cycle {
    uint32_t valid, first, last, dwords;
};

}  // namespace

// Why the TLP of `n` dwords is illegal, as text; empty if it is not. `limits` is what
// peerdma::Limits holds, in its order.
extern "C" void tlp_violation(const uint32_t *words, size_t n, const unsigned limits[6],
                              char *text, size_t room) {
    peerdma::Limits allowed = {uint16_t(limits[0]), limits[1],      limits[2],
                               limits[3] != 0,      limits[4] != 0, limits[5] != 0};
    peerdma::Words tlp(words, words + n);
    snprintf(text, room, "%s", peerdma::violation(tlp, allowed).c_str());
}

// What the block logs of a core that shows these `n` cycles at a seam of `width` bits.
extern "C" void seam_violations(unsigned width, const Cycle *cycles, size_t n, char *text,
                                size_t room) {
    peerdma::Options options;
    options.seam_width = width;
    peerdma::ConfigSpace::Bytes image{}, none{};
    constexpr size_t kExpress = 0x60;
    image[0x04] = 6;  // memory space, bus master
    image[0x34] = kExpress;
    image[kExpress] = 0x10;
    peerdma::ConfigSpace config(image, none, none);
    Nobody nobody;
    peerdma::Log log;
    peerdma::Trace trace(options);
    peerdma::Link link(options);
    peerdma::Root root(options, config, link, nobody, log, trace);
    peerdma::SeamBlock block(options, config, link, root, log, trace);
    link.connect(&root, &block);
    block.reset(true);
    for (size_t i = 0; i < n; i++) {
        peerdma::SeamPorts core;
        auto &beat = core.requester.payload;
        core.requester.valid = cycles[i].valid;
        beat.first = cycles[i].first, beat.last = cycles[i].last;
        beat.header.write = 1;
        beat.header.dwords = cycles[i].dwords;
        beat.header.first_be = 15, beat.header.last_be = cycles[i].dwords > 1 ? 15 : 0;
        block.edge(core);
    }
    snprintf(text, room, "%s", log.take().c_str());
}
