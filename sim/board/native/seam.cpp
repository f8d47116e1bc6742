// SPDX-License-Identifier: BSD-2-Clause
#include "seam.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

namespace peerdma {

namespace {

// TargetKind of hw/seam.py.
constexpr uint8_t kRead = 0, kWrite = 1;
// Dwords of a beat of the register bus.
constexpr size_t kBusLanes = 2;
constexpr unsigned kMostCredits = 0xFF;
// Relaxed ordering, among a TLP's attributes.
constexpr uint8_t kRelaxed = 2;

auto fields(const RequestHeader &h) {
    return std::tie(h.write, h.address, h.dwords, h.first_be, h.last_be, h.tag, h.relaxed, h.token);
}

auto fields(const CompletionHeader &h) {
    return std::tie(h.status, h.byte_count, h.lower_address, h.dwords, h.tag, h.requester_id,
                    h.traffic_class, h.attributes, h.poisoned, h.locked);
}

Words header_words(const RequestHeader &h, uint16_t id) {
    Header header;
    header.kind = h.write ? Kind::MemoryWrite : Kind::MemoryRead;
    header.attributes = h.relaxed ? kRelaxed : 0;
    header.dws = h.dwords;
    header.requester = id;
    header.tag = h.tag;
    header.first_be = h.first_be, header.last_be = h.last_be;
    header.address = h.address;
    return request_header(header);
}

Words header_words(const CompletionHeader &h, uint16_t id) {
    Header request;
    request.requester = h.requester_id;
    request.tag = h.tag;
    request.traffic_class = h.traffic_class, request.attributes = h.attributes;
    Words words = completion_header(request, id, Status(h.status), h.byte_count, h.lower_address,
                                    h.dwords, h.poisoned);
    words[0] |= uint32_t(h.locked) << 24;
    return words;
}

size_t payload_of(const RequestHeader &h) { return h.write ? h.dwords : 0; }
size_t payload_of(const CompletionHeader &h) { return h.dwords; }

void fill(CompletionHeader &to, const Header &from) {
    to.status = from.status;
    to.byte_count = from.byte_count;
    to.lower_address = from.lower_address;
    to.dwords = from.payload_dws();
}

void fill(TargetHeader &to, const Header &from) {
    to.kind = from.kind == Kind::MemoryRead ? kRead : kWrite;
    to.address = from.address;
    to.dwords = from.dws;
    to.first_be = from.first_be, to.last_be = from.last_be;
}

}  // namespace

bool RequestHeader::operator==(const RequestHeader &other) const {
    return fields(*this) == fields(other);
}

bool CompletionHeader::operator==(const CompletionHeader &other) const {
    return fields(*this) == fields(other);
}

SeamBlock::SeamBlock(const Options &options, ConfigSpace &config, Link &link, Root &root,
                     Log &log, Trace &trace)
    : Block(options, config, link, root, log, trace), lanes_(options.seam_width / 32) {
    reset(false);
}

void SeamBlock::require(unsigned width) const {
    if (options_.seam_width != width)
        throw std::invalid_argument("seam_width: this core has " + std::to_string(width) +
                                    " bits at the seam");
}

void SeamBlock::reset(bool link_up) {
    requests_ = {}, completions_ = {};
    sent_.clear();
    Block::reset(link_up);
    pins_ = SeamPorts();
    pins_.link.link_up = link_up;
    pins_.link.requester_id = options_.requester_id;
    show();
    refresh();
}

void SeamBlock::refresh() {
    Block::refresh();
    SeamPorts::LinkState &state = pins_.link;
    state.bus_master = config_.bus_master();
    state.intx_disable = config_.intx_disabled();
    state.max_payload = config_.max_payload_code();
    state.max_read_request = config_.max_read_code();
    state.extended_tag = config_.extended_tag();
    state.relaxed_ordering = config_.relaxed_ordering();
    state.rcb = config_.boundary_128();
    state.speed = config_.link_speed();
    state.width = config_.link_width();
    state.msi_enable = config_.msi_enabled();
    state.msi_granted = config_.msi_granted_code();
    state.msix_enable = config_.msix_enabled();
    state.msix_mask = config_.msix_masked();
}

void SeamBlock::edge(const SeamPorts &core) {
    if (take(core.requester, pins_.requester.ready, requests_)) {
        bool dropped = send(std::exchange(out_.words, {}));
        if (requests_.header.write) sent_.push_back({requests_.header.token, dropped});
    }
    if (take(core.completion, pins_.completion.ready, completions_))
        send(std::exchange(out_.words, {}));
    const SeamPorts::Interrupt &interrupt = core.interrupt.payload;
    take_interrupt(core.interrupt.valid, interrupt.msi, interrupt.msi ? interrupt.vector : 0,
                   interrupt.asserted);
    asks_ = core.requester.valid || core.completion.valid || core.interrupt.valid ||
            core.reads_pending;
    bool takes = shown() && (shown()->kind == Kind::Completion || core.target.ready);
    if (takes) check_inbound();
    step({{takes}, bool(core.target_np_ok), 0, bool(core.timed_out), bool(core.unexpected),
          bool(core.reads_pending)});
    show();
}

void SeamBlock::error(const char *what) {
    errors_++;
    log_("error: cycle %llu: at the seam, %s", (unsigned long long)link_.cycle(), what);
}

// Of the core --------------------------------------------------------------------------------

// True if the beat was a packet's last one, whose dwords are in out_.words then.
template <class Header>
bool SeamBlock::take(const SeamStream<SeamBeat<Header>> &port, bool ready,
                     Outbound<Header> &state) {
    if (!port.valid) {
        if (state.offered) error("the core takes back a beat that it has offered");
        state.offered = false;
        return false;
    }
    const SeamBeat<Header> &beat = port.payload;
    bool first = state.beats == 0;
    if (beat.first != first) error("a beat of the core has first where it is not, or has it not");
    if ((state.offered || !first) && !(beat.header == state.header))
        error("a header of the core changes within its packet");
    state.header = beat.header;
    state.offered = !ready;
    if (!ready) return false;
    out_.beats++;
    if (first) out_.words = header_words(beat.header, options_.requester_id);
    size_t payload = payload_of(beat.header), begin = state.beats++ * lanes_;
    for (size_t lane = 0; lane < lanes_ && begin + lane < payload; lane++)
        out_.words.push_back(__builtin_bswap32(beat.data[lane]));
    if (beat.last != (state.beats == beats(payload, lanes_)))
        error("a packet of the core is not as long as its header says");
    if (!beat.last) return false;
    state.beats = 0;
    return true;
}

void SeamBlock::show() {
    // A first beat has to be offered for a cycle before it is taken. Completions come first.
    bool completion = completions_.beats || (!requests_.beats && completions_.offered);
    pins_.completion.ready = out_.takes && completion;
    pins_.requester.ready =
        out_.takes && !completion && (requests_.beats || requests_.offered);
    pins_.sent.valid = !sent_.empty();
    if (pins_.sent.valid) {
        pins_.sent.payload = sent_.front();
        sent_.pop_front();
    }
    pins_.interrupt.ready = interrupt_taken_;
    pins_.link.np_headers = std::min(nonposted_headers_, kMostCredits);
    pins_.link.read_room = free_ > 0;
    pins_.link.write_room =
        free_ > 1 && link_.waiting_up() + !out_.words.empty() < kWaiting;
    show_received();
}

// To the core --------------------------------------------------------------------------------

Block::Shape SeamBlock::shape(const Downstream &packet, bool) const {
    size_t count = beats(Header::parse(packet.words).payload_dws(), lanes_);
    bool narrow = packet.kind != Kind::Completion && lanes_ == kBusLanes;
    return {count, count == 1 || narrow};
}

// That `shape` has left the cycles out that the seam wants.
void SeamBlock::check_inbound() {
    bool narrow = shown()->kind != Kind::Completion && lanes_ == kBusLanes;
    uint64_t now = link_.cycle();
    if (beat() == 0) {
        if (now - began_ < 2) error("the model gives first beats in two cycles that follow");
        began_ = now;
    }
    if (last() && narrow) ended_ = now;
    if (beat() == 0 && now == ended_ + 1)
        error("the model leaves no cycle out behind a request of the host");
}

void SeamBlock::show_received() {
    bool completion = shown() && shown()->kind == Kind::Completion;
    pins_.requester_completion.valid = completion;
    pins_.target.valid = shown() && !completion;
    if (!shown()) return;
    const Words &words = shown()->words;
    Header header = Header::parse(words);
    auto put = [&](auto &payload) {
        fill(payload.header, header);
        payload.header.tag = header.tag;
        payload.header.requester_id = header.requester;
        payload.header.traffic_class = header.traffic_class;
        payload.header.attributes = header.attributes;
        payload.header.poisoned = shown()->poisoned;
        payload.first = beat() == 0;
        payload.last = last();
        for (size_t lane = 0; lane < lanes_; lane++) {
            size_t at = header.header_dws() + beat() * lanes_ + lane;
            payload.data[lane] = at < words.size() ? __builtin_bswap32(words[at]) : 0;
        }
    };
    if (completion) return put(pins_.requester_completion.payload);
    put(pins_.target.payload);
    pins_.target.payload.header.bar = shown()->bar;
}

}  // namespace peerdma
