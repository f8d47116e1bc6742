// SPDX-License-Identifier: BSD-2-Clause
// An engine without bubbles, without descriptors and without RTL on the model of block, link
// and root complex: the upper bound that the core is measured against, and the model's own test.
#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "config_space.h"
#include "link.h"
#include "log.h"
#include "root.h"
#include "seam.h"
#include "trace.h"
#include "trn.h"

namespace peerdma {
namespace {

constexpr uint64_t kSource = 0x1000'0000, kDestination = 0x1020'0000;
constexpr unsigned kTags = 32;
// Writes queued in the transmit buffer while there are reads to send too.
constexpr unsigned kWritesQueued = 16;
constexpr uint64_t kLimit = 4'000'000;

// (cycle, bytes up to then)
using Progress = std::vector<std::pair<uint64_t, uint64_t>>;

// Bytes per cycle in the middle part of a run.
double rate(const Progress &progress) {
    if (progress.size() < 8) return 0;
    auto &a = progress[size_t(progress.size() * 0.3)];
    auto &b = progress[size_t(progress.size() * 0.95)];
    return double(b.second - a.second) / double(b.first - a.first);
}

// A configuration space with nothing but the fields that the model looks at.
ConfigSpace configuration(unsigned mps, unsigned mrrs) {
    constexpr size_t kExpress = 0x60;
    auto code = [](unsigned bytes) { return unsigned(__builtin_ctz(bytes / 128)); };
    ConfigSpace::Bytes image{}, none{};
    image[0x04] = 6;  // memory space, bus master
    image[0x34] = kExpress;
    image[kExpress] = 0x10;
    unsigned control = code(mps) << 5 | code(mrrs) << 12;
    image[kExpress + 8] = control, image[kExpress + 9] = control >> 8;
    return ConfigSpace(image, none, none);
}

struct Memory : Host {
    Link *link = nullptr;
    Progress written;
    uint64_t interrupt = 0;

    int read(uint64_t, uint8_t *, size_t, uint64_t) override { return 0; }
    bool write(uint64_t, const uint8_t *, size_t n) override {
        uint64_t before = written.empty() ? 0 : written.back().second;
        written.emplace_back(link->cycle(), before + n);
        return true;
    }
    bool must_wait(uint64_t, bool) const override { return false; }
    bool unsettled() const override { return false; }
    void msi(unsigned) override { interrupt = link->cycle(); }
    void msix(unsigned) override {}
    void intx(bool) override {}
    void answer(uint64_t, const std::vector<uint8_t> &) override {}
};

struct Engine {
    bool reads, writes;
    bool chained;  // what is written was read before
    bool accounts;  // asks only for what the block has room for
    unsigned mps, mrrs, boundary, buffers;
    unsigned capacity;  // completions of up to 128 bytes, of 8 credits, for which the block has room
    uint64_t total;

    uint64_t requested = 0, sent = 0, received = 0;
    Words packet;
    bool sending = false;
    std::set<unsigned> free;
    std::vector<unsigned> missing = std::vector<unsigned>(kTags);
    unsigned expected = 0;  // completions that may come
    Progress progress;

    Engine() {
        for (unsigned tag = 0; tag < kTags; tag++) free.insert(tag);
    }

    // Completions that n bytes may come in, the last ones before a boundary.
    unsigned completions(unsigned n) const { return (n + boundary - 1) / boundary; }

    bool room() const {
        return !accounts || expected + completions(mrrs) <= capacity;
    }

    void choose(unsigned queued, uint16_t requester) {
        if (sending) return;
        if (reads && requested < total && !free.empty() && room()) {
            unsigned tag = *free.begin(), n = std::min<uint64_t>(mrrs, total - requested);
            free.erase(free.begin());
            missing[tag] = n;
            expected += completions(n);
            packet = memory_read(kSource + requested, n, requester, tag);
            sending = true;
            requested += n;
        } else if (writes && sent < total && queued < (reads ? std::min(kWritesQueued, buffers) : buffers)) {
            uint64_t n = std::min<uint64_t>(mps, total - sent);
            if (chained && received - sent < n) return;
            std::vector<uint8_t> data(n);
            packet = memory_write(kDestination + sent, data.data(), n, requester);
            sending = true;
            sent += n;
        }
    }

    // A completion's length is known: until its end it counts as the one that it is.
    void begin(const Words &words) {
        Header header = Header::parse(words);
        unsigned left = missing[header.tag];
        expected -= completions(left) - completions(left - 4 * header.dws) - 1;
    }

    // A whole completion was taken at the clock edge before cycle `now`.
    void take(const Words &words, uint64_t now) {
        Header header = Header::parse(words);
        unsigned n = 4 * header.dws;
        unsigned &left = missing[header.tag];
        expected--;
        if ((left -= n) == 0) free.insert(header.tag);
        progress.emplace_back(now - 1, received += n);
    }
};

// The engine's ports, by what they are for: it takes all that it is shown, and sends a packet's beats.
class TrnPort {
public:
    using Block = TrnBlock;
    // The beat of a completion with the first dword of its data.
    static constexpr size_t kHeaded = 1;

    // TLPs that a write has before it: those that were not acknowledged, or have not begun.
    static unsigned queued(const Link &link) { return link.transmit_buffers_used(); }

    explicit TrnPort(const Options &) {
        pins_.trnrdstrdy = pins_.trnrnpok = 1;
        pins_.cfginterruptn = pins_.cfgtrnpendingn = 1;
        pins_.cfgerrcpltimeoutn = pins_.cfgerrcplunexpectn = 1;
    }
    void offer(const Words &words) {
        bool pair = at_ + 1 < words.size();
        pins_.trntsrcrdy = 1;
        pins_.trntd = uint64_t(words[at_]) << 32 | (pair ? words[at_ + 1] : 0);
        pins_.trntrem = pair;
        pins_.trntsof = at_ == 0;
        pins_.trnteof = at_ + 2 >= words.size();
    }
    // One clock edge: true if the block takes a packet's last beat.
    bool edge(TrnBlock &block) {
        bool taken = pins_.trntsrcrdy && block.pins().trntdstrdy;
        block.edge(pins_);
        pins_.trntsrcrdy = 0;
        if (taken) at_ = pins_.trnteof ? 0 : at_ + 2;
        return taken && pins_.trnteof;
    }

private:
    TrnOutputs pins_;
    size_t at_ = 0;  // dword of the packet
};

class SeamPort {
public:
    using Block = SeamBlock;
    static constexpr size_t kHeaded = 0;

    static unsigned queued(const Link &link) { return link.waiting_up(); }

    explicit SeamPort(const Options &options) : lanes_(options.seam_width / 32) {}
    void offer(const Words &words) {
        Header header = Header::parse(words);
        auto &beat = pins_.requester.payload;
        beat.header.write = header.has_data;
        beat.header.address = header.address;
        beat.header.dwords = header.dws;
        beat.header.first_be = header.first_be, beat.header.last_be = header.last_be;
        beat.header.tag = header.tag;
        for (size_t lane = 0, at = header.header_dws() + at_ * lanes_; lane < lanes_; lane++, at++)
            beat.data[lane] = at < words.size() ? __builtin_bswap32(words[at]) : 0;
        beat.first = at_ == 0;
        beat.last = at_ + 1 == SeamBlock::beats(header.payload_dws(), lanes_);
        pins_.requester.valid = 1;
    }
    bool edge(SeamBlock &block) {
        bool taken = pins_.requester.valid && block.pins().requester.ready;
        bool last = pins_.requester.payload.last;
        block.edge(pins_);
        pins_.requester.valid = 0;
        if (taken) at_ = last ? 0 : at_ + 1;
        return taken && last;
    }

private:
    size_t lanes_;
    SeamPorts pins_;
    size_t at_ = 0;  // beat of the packet
};

struct Result {
    double write_bytes_per_cycle, read_bytes_per_cycle;
    double cycles;
    double doorbell, data, interrupt;  // cycles; latency runs only
    double errors;
};

template <class Port>
Result run(const Options &options, const std::string &what, unsigned mps, unsigned mrrs,
           bool accounts, uint64_t total) {
    bool latency = what.rfind("lat_", 0) == 0;
    std::string kind = latency ? what.substr(4) : what;
    Engine engine;
    engine.reads = kind != "c2h";
    engine.writes = kind != "h2c";
    engine.chained = kind == "copy";
    engine.mps = mps, engine.mrrs = mrrs, engine.total = total;
    engine.accounts = accounts, engine.boundary = options.completion_boundary;
    engine.buffers = options.transmit_buffers;
    engine.capacity = std::min(options.completion_headers, options.completion_credits / 8);

    Log log;
    Trace trace(options);
    ConfigSpace config = configuration(mps, mrrs);
    Memory memory;
    Link link(options);
    Root root(options, config, link, memory, log, trace);
    typename Port::Block block(options, config, link, root, log, trace);
    Port port(options);
    link.connect(&root, &block);
    block.reset(true);
    memory.link = &link;

    Result result{};
    bool started = !latency, interrupt_left = latency;
    if (latency) {
        uint8_t one[4] = {1};
        root.mmio_write(0, 0, one, 4);
    }
    uint64_t read_done = 0;
    while (link.cycle() < kLimit) {
        if (started) engine.choose(Port::queued(link), options.requester_id);
        if (engine.sending) port.offer(engine.packet);
        Words packet;
        bool ended = block.shown() && block.last();
        bool headed = block.shown() && block.beat() == Port::kHeaded;
        if (ended || headed) packet = block.shown()->words;
        if (port.edge(block)) engine.sending = false;
        if (headed && Header::parse(packet).kind == Kind::Completion) engine.begin(packet);
        if (ended && Header::parse(packet).kind == Kind::Completion) {
            engine.take(packet, link.cycle());
            if (engine.received == total) read_done = link.cycle();
        } else if (ended) {
            started = true;
            result.doorbell = link.cycle() - 1;
        }
        bool all_sent = !engine.sending && (!engine.writes || engine.sent >= total) &&
                        (engine.writes || engine.received >= total);
        if (interrupt_left && started && all_sent) {
            uint8_t zero[4] = {};
            link.send_up({Upstream::Msi, 0, memory_write(0xFEE0'0000, zero, 4, 0)});
            interrupt_left = false;
        }
        uint64_t written = memory.written.empty() ? 0 : memory.written.back().second;
        bool read = !engine.reads || engine.received >= total;
        bool over = latency ? memory.interrupt > 0 : read;
        if (over && (!engine.writes || written >= total)) break;
    }
    result.write_bytes_per_cycle = rate(memory.written);
    result.read_bytes_per_cycle = rate(engine.progress);
    result.cycles = link.cycle();
    result.data = engine.writes ? memory.written.back().first : read_done;
    result.interrupt = memory.interrupt;
    result.errors = block.errors() + root.errors();
    return result;
}

}  // namespace
}  // namespace peerdma

// Called by sim/perf/ideal.py, which documents the arguments; `result` has the numbers of Result.
extern "C" void ideal_run(const char *options, const char *what, unsigned mps, unsigned mrrs,
                          bool accounts, uint64_t total, double *result) {
    auto parsed = peerdma::Options::parse(options);
    auto run = parsed.seam_width ? peerdma::run<peerdma::SeamPort> : peerdma::run<peerdma::TrnPort>;
    auto r = run(parsed, what, mps, mrrs, accounts, total);
    double numbers[] = {r.write_bytes_per_cycle, r.read_bytes_per_cycle, r.cycles, r.doorbell,
                        r.data,                  r.interrupt,            r.errors};
    memcpy(result, numbers, sizeof numbers);
}
