// SPDX-License-Identifier: BSD-2-Clause
#include "ultrascale.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace peerdma {

namespace {

// Dwords of descriptors: of requests, and of completions.
constexpr size_t kRequestDwords = 4, kCompletionDwords = 3;
// The width at which completions may straddle, and the lane in which the second one begins.
constexpr unsigned kStraddleWidth = 256;
constexpr size_t kHalf = 4;
// Request types.
constexpr uint32_t kMemoryRead = 0, kMemoryWrite = 1;
// Error codes of completions of the core's requests.
constexpr uint32_t kPoisoned = 1, kBadStatus = 2, kFunctionReset = 8;
// What cfg_fc_sel has to say for the credits that are left, and most that are shown.
constexpr unsigned kTransmitAvailable = 4, kMostCredits = 0xFF;
// Bits of tuser: of requests of the core, its discontinue; of completions of these, the beginnings
// of packets and the first of two fields for their ends; of requests of the host, their beginning.
constexpr unsigned kRqDiscontinue = 11, kRcBegins = 32, kRcEnds = 34, kRcEndBits = 4, kCqBegins = 40;
constexpr unsigned kCcDiscontinue = 0;
// A core may wait this many of its completion timeouts for a read, until its tag is free again.
constexpr double kTimeouts = 8;

uint32_t bits(uint32_t word, unsigned low, unsigned count) {
    return word >> low & ((1u << count) - 1);
}

template <size_t N>
void set(std::array<uint32_t, N> &user, unsigned bit, uint32_t value = 1) {
    user[bit / 32] |= value << bit % 32;
}

// Sequence number of a request, in two parts.
unsigned sequence_of(const std::array<uint32_t, 3> &user) {
    return bits(user[0], 24, 4) | bits(user[1], 28, 2) << 4;
}

}  // namespace

bool AxiStream::operator==(const AxiStream &other) const {
    return tdata == other.tdata && tuser == other.tuser && tkeep == other.tkeep &&
           tlast == other.tlast && tvalid == other.tvalid;
}

UltraScaleBlock::UltraScaleBlock(const UltraScaleKind &kind, const Options &options,
                                 ConfigSpace &config, Link &link, Root &root, Log &log,
                                 Trace &trace)
    : Block(options, config, link, root, log, trace, kMostPorts), kind_(kind),
      lanes_(kind.width / 32), straddle_(kind.width == kStraddleWidth && options.straddle),
      patience_(uint64_t(kTimeouts * options.completion_timeout_us * options.clock_khz / 1000)) {
    if (options.streams != kind.name)
        throw std::invalid_argument(std::string("this core is for the block ") + kind.name);
    for (const Fault &fault : options.faults)
        if (fault.kind == Fault::Discard)
            throw std::invalid_argument(std::string(kind.name) + " discards no TLP");
    reset(false);
}

void UltraScaleBlock::reset(bool link_up) {
    offered_ = {};
    requests_.clear();
    completions_.clear();
    returned_.clear();
    outstanding_.reset();
    interrupt_.reset();
    asserted_ = credits_shown_ = reset_done_ = false;
    Block::reset(link_up);
    // The core gives a credit for each that may come.
    nonposted_left_ = 0;
    pins_ = UltraScalePorts();
    pins_.user_lnk_up = link_up;
    show();
    refresh();
}

void UltraScaleBlock::refresh() {
    Block::refresh();
    if (!config_.bus_master()) {
        // What the block has kept is gone, and its numbers do not come back.
        requests_.clear();
        outbound_[kRequester].held = 0;
    }
    pins_.cfg_function_status = (config_.command() & 3) | config_.bus_master() << 2 |
                                config_.intx_disabled() << 3;
    pins_.cfg_max_payload = config_.max_payload_code();
    pins_.cfg_max_read_req = config_.max_read_code();
    pins_.cfg_rcb_status = config_.boundary_128();
    unsigned speed = config_.link_speed(), lanes = config_.link_width();
    pins_.cfg_current_speed = kind_.one_hot_speed ? 1 << (speed - 1) : speed - 1;
    pins_.cfg_negotiated_width = kind_.one_hot_speed ? lanes : __builtin_ctz(lanes);
    if (kind_.bus_number) pins_.cfg_bus_number = options_.requester_id >> 8;
    pins_.cfg_interrupt_msi_enable = config_.msi_enabled();
    pins_.cfg_interrupt_msi_mmenable = config_.msi_granted_code();
    pins_.cfg_interrupt_msix_enable = config_.msix_enabled();
    pins_.cfg_interrupt_msix_mask = config_.msix_masked();
}

// An interrupt that was asked for and not sent is gone. The core deasserts INTA itself.
void UltraScaleBlock::reset_function(bool on) {
    pins_.cfg_flr_in_process = on;
    interrupt_.reset();
    interrupt_taken_ = false;
    if (on) end_reads();
    refresh();
}

// The core is told of each read that gets no answer any more.
void UltraScaleBlock::end_reads() {
    for (unsigned tag = 0; tag < kTags; tag++) {
        if (!outstanding_[tag]) continue;
        Header request;
        request.requester = options_.requester_id;
        request.tag = tag;
        // What has been answered of it does not matter to this: it counts as the last byte.
        Words words = completion_header(request, 0, kSuccess, 1, ends_[tag] - 1, 0, false);
        Downstream packet = {std::move(words), Kind::Completion};
        packet.made_up = true;
        receive(std::move(packet));
    }
}

void UltraScaleBlock::edge(const UltraScalePorts &core) {
    if (take(kRequester, core.s_axis_rq)) take_request();
    if (take(kCompleter, core.s_axis_cc)) take_completion();
    take_interrupts(core);
    reset_done_ = core.cfg_flr_done & 1;
    answer_management(core);
    hand_over();
    credits_shown_ = core.cfg_fc_sel == kTransmitAvailable;
    bool waits = outstanding_.any() && link_.cycle() < last_read_ + patience_;
    asks_ = core.s_axis_rq.tvalid || core.s_axis_cc.tvalid || interrupt_ || !returned_.empty() ||
            waits;
    step({{bool(core.m_axis_rc.tready), bool(core.m_axis_cq.tready)}, false, core.pcie_cq_np_req,
          false, false, outstanding_.any()});
    show();
}

void UltraScaleBlock::error(const char *what) {
    errors_++;
    log_("error: cycle %llu: at the streams, %s", (unsigned long long)link_.cycle(), what);
}

// Of the core --------------------------------------------------------------------------------

// True if the beat was a packet's last one, whose descriptor and payload are the port's words then.
bool UltraScaleBlock::take(Port number, const AxiStream &stream) {
    Outbound &port = outbound_[number];
    AxiStream &offered = offered_[number];
    if (offered.tvalid && !(stream == offered))
        error("the core takes back or changes a beat that it has offered");
    offered = stream;
    offered.tvalid = stream.tvalid && !port.takes;
    if (!stream.tvalid || !port.takes) return false;
    if (port.words.empty() && number == kRequester) user_ = stream.tuser;
    port.beats++;
    unsigned discontinue = number == kRequester ? kRqDiscontinue : kCcDiscontinue;
    if (bits(stream.tuser[0], discontinue, 1)) error("the core cuts off a packet");
    size_t count = __builtin_popcount(stream.tkeep);
    if (!count || stream.tkeep >> count || (!stream.tlast && count != lanes_))
        error("a beat of the core has dwords left out");
    port.words.insert(port.words.end(), stream.tdata.begin(), stream.tdata.begin() + count);
    return stream.tlast;
}

void UltraScaleBlock::take_request() {
    Words raw = std::exchange(outbound_[kRequester].words, {});
    if (raw.size() < kRequestDwords) return error("a request is shorter than its descriptor");
    uint32_t type = bits(raw[2], 11, 4);
    Header header;
    header.kind = type == kMemoryWrite ? Kind::MemoryWrite : Kind::MemoryRead;
    header.has_data = type == kMemoryWrite;
    header.dws = bits(raw[2], 0, 11);
    // The block adds its own, and chooses the length of the header.
    header.requester = options_.requester_id;
    header.tag = bits(raw[3], 0, 8);
    // Relaxed ordering and no snoop; ID-based ordering is not for the core to ask for.
    header.attributes = bits(raw[3], 28, 2);
    header.first_be = bits(user_[0], 0, 4), header.last_be = bits(user_[0], 4, 4);
    header.address = uint64_t(raw[1]) << 32 | (raw[0] & ~3u);
    if (type > kMemoryWrite || raw[2] >> 15 || (raw[0] & 3) || (raw[3] & 0xCFFF'FF00))
        error("a request has bits set that it may not have");
    if (raw.size() != kRequestDwords + header.payload_dws())
        error("a request is not as long as its descriptor says");
    sequence_ = sequence_of(user_);
    if (sequence_ >> kind_.sequence_bits) error("a sequence number is larger than they can be");
    Words words = request_header(header);
    for (size_t at = kRequestDwords; at < raw.size(); at++)
        words.push_back(__builtin_bswap32(raw[at]));
    send(std::move(words));
}

void UltraScaleBlock::take_completion() {
    Words raw = std::exchange(outbound_[kCompleter].words, {});
    if (raw.size() < kCompletionDwords) return error("a completion is shorter than its descriptor");
    Header request;
    request.requester = raw[1] >> 16;
    request.tag = bits(raw[2], 0, 8);
    request.traffic_class = bits(raw[2], 25, 3), request.attributes = bits(raw[2], 28, 2);
    unsigned dws = bits(raw[1], 0, 11);
    if ((raw[2] & 0xC1FF'FF00) || bits(raw[0], 8, 2))
        error("a completion has bits set that it may not have");
    if (raw.size() != kCompletionDwords + dws)
        error("a completion is not as long as its descriptor says");
    Words words = completion_header(request, options_.requester_id, Status(bits(raw[1], 11, 3)),
                                    bits(raw[0], 16, 13), raw[0], dws, bits(raw[1], 14, 1));
    words[0] |= bits(raw[0], 29, 1) << 24;  // of a locked read
    for (size_t at = kCompletionDwords; at < raw.size(); at++)
        words.push_back(__builtin_bswap32(raw[at]));
    send(std::move(words));
}

void UltraScaleBlock::forward(Words &&words) {
    Header header = Header::parse(words);
    if (header.kind == Kind::Completion) {
        completions_.push_back(std::move(words));
        outbound_[kCompleter].held++;
        return;
    }
    if (header.kind == Kind::MemoryRead) {
        outstanding_.set(header.tag);
        ends_[header.tag] = header.address + header.first_byte() + header.bytes();
        last_read_ = link_.cycle();
    }
    requests_.push_back({sequence_, std::move(words)});
    outbound_[kRequester].held++;
}

// From here on nothing passes anything: the link is in order.
void UltraScaleBlock::hand_over() {
    while (link_takes() && link_.waiting_up() < kWaiting) {
        if (!completions_.empty()) {
            link_.send_up({Upstream::Packet, 0, std::move(completions_.front())});
            completions_.pop_front();
            outbound_[kCompleter].held--;
        } else if (!requests_.empty()) {
            link_.send_up({Upstream::Packet, 0, std::move(requests_.front().words)});
            returned_.push_back(requests_.front().sequence);
            requests_.pop_front();
            outbound_[kRequester].held--;
        } else {
            return;
        }
    }
}

// A message is asked for in one cycle, a change of INTA by its level; either is answered.
void UltraScaleBlock::take_interrupts(const UltraScalePorts &core) {
    pins_.cfg_interrupt_sent = pins_.cfg_interrupt_msi_sent = pins_.cfg_interrupt_msi_fail = 0;
    if (core.cfg_interrupt_msi_int) {
        if (interrupt_) error("an interrupt is asked for before the last one was sent");
        interrupt_ = {true, unsigned(__builtin_ctz(core.cfg_interrupt_msi_int)), false};
    } else if (bool(core.cfg_interrupt_int & 1) != asserted_ && !interrupt_) {
        asserted_ = core.cfg_interrupt_int & 1;
        interrupt_ = {false, 0, asserted_};
    }
    if (interrupt_ && interrupt_->msi && !(config_.msi_enabled() && config_.bus_master())) {
        interrupt_.reset();
        interrupt_taken_ = false;
        pins_.cfg_interrupt_msi_fail = 1;
    }
    bool goes = interrupt_ && interrupt_taken_;
    Interrupt now = interrupt_.value_or(Interrupt{});
    take_interrupt(interrupt_.has_value(), now.msi, now.number, now.assert);
    if (!goes) return;
    (now.msi ? pins_.cfg_interrupt_msi_sent : pins_.cfg_interrupt_sent) = 1;
    interrupt_.reset();
}

void UltraScaleBlock::answer_management(const UltraScalePorts &core) {
    bool answers = core.cfg_mgmt_read && !pins_.cfg_mgmt_read_write_done;
    uint8_t bytes[4];
    config_.read(4 * core.cfg_mgmt_addr % ConfigSpace::kSize, bytes, sizeof bytes);
    memcpy(&pins_.cfg_mgmt_read_data, bytes, sizeof bytes);
    pins_.cfg_mgmt_read_write_done = answers;
}

void UltraScaleBlock::show() {
    pins_.s_axis_rq.tready = outbound_[kRequester].takes;
    pins_.s_axis_cc.tready = outbound_[kCompleter].takes;
    pins_.pcie_rq_seq_num_vld = !returned_.empty();
    if (!returned_.empty()) {
        pins_.pcie_rq_seq_num = returned_.front();
        returned_.pop_front();
    }
    pins_.cfg_fc_nph = credits_shown_ ? std::min(nonposted_headers_, kMostCredits) : 0;
    show_completions();
    show_requests();
}

// To the core --------------------------------------------------------------------------------

void UltraScaleBlock::receive(Downstream &&packet) {
    if (packet.kind == Kind::Completion) {
        Header header = Header::parse(packet.words);
        packet.final |= header.status != kSuccess;
        if (packet.final) outstanding_.reset(header.tag);
    }
    Block::receive(std::move(packet));
}

Block::Shape UltraScaleBlock::shape(const Downstream &packet, bool joins) const {
    bool completion = packet.kind == Kind::Completion;
    size_t dwords = Header::parse(packet.words).payload_dws() + (joins ? kHalf : 0) +
                    (completion ? kCompletionDwords : kRequestDwords);
    size_t beats = (dwords + lanes_ - 1) / lanes_;
    bool half = (dwords - 1) % lanes_ < kHalf;
    return {beats, 0, completion && straddle_ && half};
}

std::array<uint32_t, 4> UltraScaleBlock::descriptor(const Downstream &packet) const {
    Header h = Header::parse(packet.words);
    uint32_t attributes = uint32_t(h.attributes) << 28 | uint32_t(h.traffic_class) << 25;
    if (packet.kind != Kind::Completion) {
        uint32_t type = packet.kind == Kind::MemoryRead ? kMemoryRead : kMemoryWrite;
        uint32_t aperture = __builtin_ctzll(config_.bar_size(packet.bar));
        return {uint32_t(h.address), uint32_t(h.address >> 32),
                uint32_t(h.requester) << 16 | type << 11 | h.dws,
                attributes | aperture << 19 | uint32_t(packet.bar) << 16 | h.tag};
    }
    uint32_t low = uint32_t(ends_[h.tag] - h.byte_count) & 0xFFF;
    uint32_t code = packet.made_up         ? kFunctionReset
                    : h.status != kSuccess ? kBadStatus
                    : packet.poisoned      ? kPoisoned
                                           : 0;
    return {uint32_t(packet.final) << 30 | uint32_t(h.byte_count) << 16 | code << 12 | low,
            uint32_t(h.requester) << 16 | uint32_t(packet.poisoned) << 14 |
                uint32_t(h.status) << 11 | h.payload_dws(),
            attributes | uint32_t(h.completer) << 8 | h.tag};
}

// Fills the lanes of a beat that has `skipped` dwords of the packet before it; wraps for one that
// begins in the middle.
void UltraScaleBlock::fill(AxiStream &to, const Downstream &packet, size_t skipped) const {
    size_t header = Header::parse(packet.words).header_dws();
    size_t described = packet.kind == Kind::Completion ? kCompletionDwords : kRequestDwords;
    std::array<uint32_t, 4> dwords = descriptor(packet);
    size_t count = described + packet.words.size() - header;
    for (size_t lane = 0; lane < lanes_; lane++) {
        size_t at = skipped + lane;
        if (at >= count) continue;
        to.tdata[lane] =
            at < described ? dwords[at] : __builtin_bswap32(packet.words[header + at - described]);
        to.tkeep |= 1 << lane;
    }
}

void UltraScaleBlock::show_completions() {
    const Inbound &port = inbound_[kRequester];
    AxiStream &to = pins_.m_axis_rc;
    to = AxiStream();
    if (!port.shown) return;
    to.tvalid = 1;
    unsigned begins = 0, ends = 0;
    auto put = [&](const Downstream &packet, size_t skipped, bool first, bool last) {
        fill(to, packet, skipped);
        if (first) set(to.tuser, kRcBegins + begins++);
        unsigned lane = 31 - __builtin_clz(to.tkeep);
        if (last) set(to.tuser, kRcEnds + kRcEndBits * ends++, lane << 1 | 1);
    };
    size_t shift = port.joined ? kHalf : 0;
    put(*port.current, port.beat * lanes_ - shift, !port.beat, port.last());
    if (port.next) put(*port.next, -kHalf, true, shape(*port.next, true).beats == 1);
    to.tlast = port.last();
    if (!straddle_) return;
    // Where packets may share a beat, these two say nothing.
    to.tlast = 0;
    to.tkeep = (1 << lanes_) - 1;
}

void UltraScaleBlock::show_requests() {
    const Inbound &port = inbound_[kCompleter];
    AxiStream &to = pins_.m_axis_cq;
    to = AxiStream();
    if (!port.shown) return;
    to.tvalid = 1;
    to.tlast = port.last();
    Header header = Header::parse(port.current->words);
    fill(to, *port.current, port.beat * lanes_);
    set(to.tuser, 0, uint32_t(header.last_be) << 4 | header.first_be);
    if (!port.beat) set(to.tuser, kCqBegins);
}

}  // namespace peerdma
