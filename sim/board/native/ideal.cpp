// SPDX-License-Identifier: BSD-2-Clause
// An engine without bubbles, without descriptors and without RTL on the model of hard block, link
// and root complex: the upper bound that the core is measured against, and the model's own test.
#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "config_space.h"
#include "hardblock.h"
#include "link.h"
#include "log.h"
#include "root.h"
#include "trace.h"

namespace peerdma {
namespace {

constexpr uint64_t kSource = 0x1000'0000, kDestination = 0x1020'0000;
constexpr unsigned kTags = 32;
// Writes queued in the transmit buffer while there are reads to send too.
constexpr unsigned kWritesQueued = 16;
constexpr uint64_t kLimit = 4'000'000;
// Completions of up to 128 bytes, of 8 credits, for which the hard block has room.
constexpr unsigned kCompletions = std::min(kCompletionHeaders, kCompletionCredits / 8);
// Dwords of a completion at the port when the first one of its data has come.
constexpr size_t kHeaded = 4;

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
    uint64_t total;

    uint64_t requested = 0, sent = 0, received = 0;
    Words beats;
    size_t at = 0;
    std::set<unsigned> free;
    std::vector<unsigned> missing = std::vector<unsigned>(kTags);
    unsigned expected = 0;  // completions that may come
    Progress progress;

    Engine() {
        for (unsigned tag = 0; tag < kTags; tag++) free.insert(tag);
    }

    bool sending() const { return at < beats.size(); }

    // Completions that n bytes may come in, the last ones before a boundary.
    unsigned completions(unsigned n) const { return (n + boundary - 1) / boundary; }

    bool room() const {
        return !accounts || expected + completions(mrrs) <= kCompletions;
    }

    void choose(unsigned queued, uint16_t requester) {
        if (sending()) return;
        beats.clear(), at = 0;
        if (reads && requested < total && !free.empty() && room()) {
            unsigned tag = *free.begin(), n = std::min<uint64_t>(mrrs, total - requested);
            free.erase(free.begin());
            missing[tag] = n;
            expected += completions(n);
            beats = memory_read(kSource + requested, n, requester, tag);
            requested += n;
        } else if (writes && sent < total && queued < (reads ? std::min(kWritesQueued, buffers) : buffers)) {
            uint64_t n = std::min<uint64_t>(mps, total - sent);
            if (chained && received - sent < n) return;
            std::vector<uint8_t> data(n);
            beats = memory_write(kDestination + sent, data.data(), n, requester);
            sent += n;
        }
    }

    void show(FromCore &pins) const {
        pins.trntsrcrdy = sending();
        if (!sending()) return;
        bool pair = at + 1 < beats.size();
        pins.trntd = uint64_t(beats[at]) << 32 | (pair ? beats[at + 1] : 0);
        pins.trntrem = pair;
        pins.trntsof = at == 0;
        pins.trnteof = at + 2 >= beats.size();
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

struct Result {
    double write_bytes_per_cycle, read_bytes_per_cycle;
    double cycles;
    double doorbell, data, interrupt;  // cycles; latency runs only
    double errors;
};

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

    Log log;
    Trace trace(options);
    ConfigSpace config = configuration(mps, mrrs);
    Memory memory;
    Link link(options);
    Root root(options, config, link, memory, log, trace);
    HardBlock block(options, config, link, root, log, trace);
    link.connect(&root, &block);
    block.reset(true);
    memory.link = &link;

    Result result{};
    bool started = !latency, interrupt_left = latency;
    if (latency) {
        uint8_t one[4] = {1};
        root.mmio_write(0, 0, one, 4);
    }
    Words packet;
    uint64_t read_done = 0;
    while (link.cycle() < kLimit) {
        FromCore pins;
        pins.trnrdstrdy = pins.trnrnpok = 1;
        pins.cfginterruptn = pins.cfgtrnpendingn = 1;
        pins.cfgerrcpltimeoutn = pins.cfgerrcplunexpectn = 1;
        if (started) engine.choose(link.transmit_buffers_used(), options.requester_id);
        engine.show(pins);
        const ToCore &in = block.pins();
        bool accepted = pins.trntsrcrdy && in.trntdstrdy, ended = false;
        if (in.trnrsrcrdy) {
            if (in.trnrsof) packet.clear();
            packet.push_back(in.trnrd >> 32);
            if (in.trnrrem) packet.push_back(uint32_t(in.trnrd));
            ended = in.trnreof;
        }
        bool headed = in.trnrsrcrdy && packet.size() == kHeaded;
        block.edge(pins);
        if (accepted) engine.at += 2;
        if (headed && Header::parse(packet).kind == Kind::Completion) engine.begin(packet);
        if (ended && Header::parse(packet).kind == Kind::Completion) {
            engine.take(packet, link.cycle());
            if (engine.received == total) read_done = link.cycle();
        } else if (ended) {
            started = true;
            result.doorbell = link.cycle() - 1;
        }
        bool all_sent = !engine.sending() && (!engine.writes || engine.sent >= total) &&
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
    auto r = peerdma::run(peerdma::Options::parse(options), what, mps, mrrs, accounts, total);
    double numbers[] = {r.write_bytes_per_cycle, r.read_bytes_per_cycle, r.cycles, r.doorbell,
                        r.data,                  r.interrupt,            r.errors};
    memcpy(result, numbers, sizeof numbers);
}
