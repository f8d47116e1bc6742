// SPDX-License-Identifier: BSD-2-Clause
#include "block.h"

#include "root.h"
#include "trace.h"

namespace peerdma {

namespace {

// Credits shown of a root port without limits.
constexpr unsigned kPostedHeaders = 64, kNonPostedHeaders = 64, kPostedData = 1024;

unsigned data_credits(const Downstream &packet) { return (packet.words.size() - 3 + 3) / 4; }

// First dword of a header: a memory write, of either length, and a reserved bit.
constexpr uint32_t kWrite = 0x4000'0000, kWriteMask = 0x5F00'0000, kReserved = 0x0080'0000;

// Bits of Device Status.
constexpr uint16_t kCorrectableDetected = 1 << 0, kNonFatalDetected = 1 << 1;

}  // namespace

Block::Block(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
             Trace &trace, unsigned ports)
    : options_(options), config_(config), link_(link), log_(log), inbound_(ports),
      outbound_(ports), root_(root), trace_(trace), random_(options.block_seed) {}

void Block::reset(bool link_up) {
    for (Inbound &port : inbound_) port = Inbound(), port.pause_left = options_.receive_pause;
    for (Outbound &port : outbound_) port = Outbound(), port.pause_left = options_.transmit_pause;
    completion_headers_ = completion_credits_ = 0;
    nonposted_left_ = kNonPostedAfterHold;
    link_up_ = link_up;
    bus_master_ = interrupt_taken_ = false;
    late_.assign(options_.buffer_lag, options_.transmit_buffers);
    open_tag_.reset();
    offer_room();
}

void Block::refresh() {
    if (bus_master_ && !config_.bus_master()) bus_master_fell_ = link_.cycle();
    bus_master_ = config_.bus_master();
}

void Block::step(const Signs &signs) {
    if (signs.nonposted_ok) nonposted_left_ = kNonPostedAfterHold;
    nonposted_left_ += signs.nonposted_more;
    for (unsigned port = 0; port < inbound_.size(); port++)
        take_received(inbound_[port], signs.takes[port], signs.nonposted_ok);
    if (signs.timed_out) config_.report_device_status(kNonFatalDetected);
    if (signs.unexpected) config_.report_device_status(kCorrectableDetected);
    config_.set_transactions_pending(signs.reads_pending);
    link_.advance();
    root_.advance();
    for (Inbound &port : inbound_) {
        if (port.gap_left)
            port.gap_left--;
        else if (!port.current && !port.waiting.empty())
            choose_received(port);
        join(port);
        present(port);
    }
    offer_room();
    if (trace_.captures()) capture();
}

void Block::capture() {
    std::array<unsigned, 6> now = {
        options_.transmit_buffers - std::min(options_.transmit_buffers, free_),
        completion_headers_, completion_credits_, posted_headers_, posted_data_,
        nonposted_headers_};
    if (now == captured_) return;
    captured_ = now;
    trace_.event(link_.cycle(), "fill transmit=%u headers=%u data=%u ph=%u pd=%u nph=%u", now[0],
                 now[1], now[2], now[3], now[4], now[5]);
}

// Transmit -----------------------------------------------------------------------------------

void Block::offer_room() {
    unsigned taken = used() + !outbound_[0].words.empty();
    late_.push_back(options_.transmit_buffers - std::min(taken, options_.transmit_buffers));
    free_ = late_.front();
    late_.pop_front();
    for (Outbound &port : outbound_) offer_beat(port);
    uint64_t now = link_.cycle();
    posted_headers_ = link_.posted().headers_left(now, kPostedHeaders);
    posted_data_ = link_.posted().data_left(now, kPostedData);
    nonposted_headers_ = link_.nonposted().headers_left(now, kNonPostedHeaders);
    nonposted_data_ = link_.nonposted().data_left(now, kNonPostedHeaders);
}

void Block::offer_beat(Outbound &port) {
    bool within = !port.words.empty();
    // What the host has asked for does not wait for what the core asks for.
    unsigned taken = &port == &outbound_[0] ? used() : port.held;
    port.takes = link_up_ && (taken < options_.transmit_buffers || within);
    if (options_.transmit_stall > 0)
        port.takes &= !std::bernoulli_distribution(options_.transmit_stall)(random_);
    if (within && port.pause_left && port.beats >= options_.transmit_pause_after) {
        port.pause_left--;
        pauses_.long_transmit++;
        port.takes = false;
    }
    pauses_.in_sent += within && !port.takes;
}

bool Block::send(Words words) {
    const Fault *fault = fault_of(words);
    if (fault && fault->kind == Fault::Illegal) {
        log_("fault: write %llu gets a reserved bit", (unsigned long long)writes_);
        words[0] |= kReserved;
    }
    bool lags = bus_master_lags();
    Limits limits = {uint16_t(options_.requester_id), 128u << config_.max_payload_code(),
                     128u << config_.max_read_code(), config_.bus_master() || lags,
                     config_.extended_tag(),          config_.relaxed_ordering()};
    std::string wrong = violation(words, limits);
    if (wrong.empty()) {
        lags &= Header::parse(words).kind != Kind::Completion;
        if (!lags && fault) {
            discard(words);
            return true;
        }
        trace_(link_.cycle(), true, words, lags ? "dropped: Bus Master Enable fell" : "");
        if (!lags) forward(std::move(words));
        return false;
    }
    trace_(link_.cycle(), true, words, wrong.c_str());
    errors_++;
    log_("error: cycle %llu: the core sent an illegal TLP: %s: %s",
         (unsigned long long)link_.cycle(), wrong.c_str(), describe(words).c_str());
    return false;
}

// Counts writes.
const Fault *Block::fault_of(const Words &words) {
    if ((words[0] & kWriteMask) != kWrite) return nullptr;
    writes_++;
    for (const Fault &fault : options_.faults)
        if (fault.of_write() && fault.request == writes_) return &fault;
    return nullptr;
}

void Block::discard(const Words &words) {
    trace_(link_.cycle(), true, words, "discarded by the block");
    log_("fault: the block discards write %llu", (unsigned long long)writes_);
}

void Block::take_interrupt(bool asked, bool msi, unsigned number, bool assert) {
    asked &= link_up_;
    if (!asked || !interrupt_taken_) {
        interrupt_taken_ = asked && link_takes();
        return;
    }
    interrupt_taken_ = false;
    Upstream message;
    const char *wrong = nullptr;
    if (msi != config_.msi_enabled())
        wrong = msi ? "MSI while MSI Enable is 0" : "INTx while MSI Enable is 1";
    if (msi) {
        if (number >> config_.msi_granted_code())
            wrong = "MSI message number was not granted";
        else if (bus_master_lags())
            return;
        else if (!config_.bus_master())
            wrong = "MSI while Bus Master Enable is 0";
        unsigned data = config_.msi_data() | number;
        uint8_t bytes[4] = {uint8_t(data), uint8_t(data >> 8)};
        message = {Upstream::Msi, number,
                   memory_write(config_.msi_address(), bytes, 4, options_.requester_id)};
    } else {
        if (config_.msix_enabled())
            wrong = "interrupt request of the block while MSI-X is enabled";
        else if (number)
            wrong = "INTx other than INTA";
        message = {Upstream::Intx, assert, intx_message(assert, options_.requester_id)};
    }
    trace_(link_.cycle(), true, message.words, wrong ? wrong : "interrupt");
    if (!wrong) return link_.send_up(std::move(message));
    errors_++;
    log_("error: cycle %llu: %s: number %u, dropped", (unsigned long long)link_.cycle(), wrong,
         number);
}

// Receive ------------------------------------------------------------------------------------

void Block::receive(Downstream &&packet) {
    if (packet.kind == Kind::Completion) {
        unsigned credits = data_credits(packet);
        if (completion_headers_ == options_.completion_headers ||
            completion_credits_ + credits > options_.completion_credits) {
            errors_++;
            trace_(link_.cycle(), false, packet.words, "lost: completion buffer full");
            log_("error: cycle %llu: completion buffer overflow, completion lost: %s",
                 (unsigned long long)link_.cycle(), describe(packet.words).c_str());
            return root_.delivered(packet);
        }
        completion_headers_++;
        completion_credits_ += credits;
    }
    bool request = packet.kind != Kind::Completion;
    const char *note = packet.made_up ? "made up by the block" : "";
    trace_(link_.cycle(), false, packet.words, note, request ? packet.bar : -1);
    inbound_[request ? inbound_.size() - 1 : 0].waiting.push_back(std::move(packet));
}

void Block::take_received(Inbound &port, bool takes, bool nonposted_ok) {
    if (!port.shown || !takes) return;
    port.shown = false;
    port.beats++;
    if (++port.beat < port.shape.beats) return;
    deliver(*port.current, nonposted_ok);
    if (port.next) {
        port.shape = shape(*port.next, true);
        port.beat = 1;
        port.joined = true;
        port.current = std::move(port.next);
        port.next.reset();
        if (port.shape.beats > 1) return;
        deliver(*port.current, nonposted_ok);
    }
    port.current.reset();
    port.gap_left = std::max(options_.tlp_gap, port.shape.gap);
}

void Block::deliver(const Downstream &packet, bool nonposted_ok) {
    if (packet.kind == Kind::Completion) {
        count_interleaved(packet);
        completion_headers_--;
        completion_credits_ -= data_credits(packet);
    } else if (packet.kind == Kind::MemoryRead && !nonposted_ok) {
        nonposted_left_--;
    }
    root_.delivered(packet);
}

void Block::count_interleaved(const Downstream &packet) {
    uint8_t tag = Header::parse(packet.words).tag;
    pauses_.interleaved += open_tag_ && *open_tag_ != tag;
    open_tag_.reset();
    if (!packet.final) open_tag_ = tag;
}

void Block::choose_received(Inbound &port) {
    // Posted requests and completions pass a non-posted request that the core holds back.
    for (auto packet = port.waiting.begin(); packet != port.waiting.end(); ++packet) {
        if (packet->kind == Kind::MemoryRead && !nonposted_left_) continue;
        port.current = std::move(*packet);
        port.waiting.erase(packet);
        port.shape = shape(*port.current, false);
        port.beat = 0;
        port.joined = false;
        return;
    }
}

// A beat that the core has been shown stays as it is.
void Block::join(Inbound &port) {
    if (!port.current || port.shown || port.next || port.waiting.empty()) return;
    if (!port.last() || !port.shape.shares || options_.tlp_gap) return;
    port.next = std::move(port.waiting.front());
    port.waiting.pop_front();
}

void Block::present(Inbound &port) {
    if (port.shown) return;
    bool idle = options_.beat_idle > 0 &&
                std::bernoulli_distribution(options_.beat_idle)(random_);
    bool within = port.current && port.beat;
    if (within && port.pause_left && port.beats >= options_.receive_pause_after) {
        port.pause_left--;
        pauses_.long_receive++;
        idle = true;
    }
    pauses_.in_received += idle && within;
    port.shown = port.current && !idle;
}

}  // namespace peerdma
