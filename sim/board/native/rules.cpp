// SPDX-License-Identifier: BSD-2-Clause
// The rules that the core's TLPs are checked against, and those of the seam and of the streams, as C
// functions for use without a core.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "root.h"
#include "seam.h"
#include "tlp.h"
#include "trace.h"
#include "ultrascale.h"

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

// The same of a stream, of its requests or of its completions.
struct Beat {
    uint32_t completion, tvalid, tlast, tkeep;
    uint32_t tuser[2], tdata[8];
};

// A block of this kind with all that is around it.
template <class Block>
struct Bench {
    template <class... Kind>
    explicit Bench(const peerdma::Options &given, const Kind &...kind)
        : options(given), block(kind..., options, config, link, root, log, trace) {
        link.connect(&root, &block);
        block.reset(true);
    }

    static peerdma::ConfigSpace configuration() {
        peerdma::ConfigSpace::Bytes image{}, none{};
        constexpr size_t kExpress = 0x60;
        image[0x04] = 6;  // memory space, bus master
        image[0x34] = kExpress;
        image[kExpress] = 0x10;
        image[kExpress + 0x12] = 0x11;  // Gen1 x1
        return peerdma::ConfigSpace(image, none, none);
    }

    peerdma::Options options;
    peerdma::ConfigSpace config = configuration();
    Nobody nobody;
    peerdma::Log log;
    peerdma::Trace trace{options};
    peerdma::Link link{options};
    peerdma::Root root{options, config, link, nobody, log, trace};
    Block block;
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
    Bench<peerdma::SeamBlock> bench(options);
    for (size_t i = 0; i < n; i++) {
        peerdma::SeamPorts core;
        auto &beat = core.requester.payload;
        core.requester.valid = cycles[i].valid;
        beat.first = cycles[i].first, beat.last = cycles[i].last;
        beat.header.write = 1;
        beat.header.dwords = cycles[i].dwords;
        beat.header.first_be = 15, beat.header.last_be = cycles[i].dwords > 1 ? 15 : 0;
        bench.block.edge(core);
    }
    snprintf(text, room, "%s", bench.log.take().c_str());
}

// The same of streams of 256 bits.
extern "C" void streams_violations(const Beat *beats, size_t n, char *text, size_t room) {
    constexpr peerdma::UltraScaleKind kKind = {"rules", 256, 6, false, true};
    peerdma::Options options;
    options.streams = kKind.name;
    Bench<peerdma::UltraScaleBlock> bench(options, kKind);
    for (size_t i = 0; i < n; i++) {
        peerdma::UltraScalePorts core;
        auto &stream = beats[i].completion ? core.s_axis_cc : core.s_axis_rq;
        stream.tvalid = beats[i].tvalid, stream.tlast = beats[i].tlast;
        stream.tkeep = beats[i].tkeep;
        std::copy(std::begin(beats[i].tuser), std::end(beats[i].tuser), stream.tuser.begin());
        std::copy(std::begin(beats[i].tdata), std::end(beats[i].tdata), stream.tdata.begin());
        bench.block.edge(core);
    }
    snprintf(text, room, "%s", bench.log.take().c_str());
}
