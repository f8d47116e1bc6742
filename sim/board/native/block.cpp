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
             Trace &trace)
    : options_(options), config_(config), link_(link), log_(log), root_(root), trace_(trace),
      random_(options.block_seed) {}

void Block::reset(bool link_up) {
    transmit_.clear();
    received_.clear();
    current_.reset();
    shown_ = false;
    completion_headers_ = completion_credits_ = gap_left_ = 0;
    non_posted_left_ = kNonPostedAfterHold;
    link_up_ = link_up;
    bus_master_ = interrupt_taken_ = false;
    late_.assign(options_.buffer_lag, options_.transmit_buffers);
    received_beats_ = sent_beats_ = 0;
    receive_pause_left_ = options_.receive_pause;
    transmit_pause_left_ = options_.transmit_pause;
    open_tag_.reset();
    offer_room();
}

void Block::refresh() {
    if (bus_master_ && !config_.bus_master()) bus_master_fell_ = link_.cycle();
    bus_master_ = config_.bus_master();
}

void Block::step(const Signs &signs) {
    take_received(signs);
    if (signs.timed_out) config_.report_device_status(kNonFatalDetected);
    if (signs.unexpected) config_.report_device_status(kCorrectableDetected);
    config_.set_transactions_pending(signs.reads_pending);
    link_.advance();
    root_.advance();
    if (gap_left_)
        gap_left_--;
    else if (!current_ && !received_.empty())
        choose_received();
    present();
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
    bool within = !transmit_.empty();
    unsigned used = link_.transmit_buffers_used() + within;
    late_.push_back(options_.transmit_buffers - std::min(used, options_.transmit_buffers));
    free_ = late_.front();
    late_.pop_front();
    takes_ = link_up_ && (room() || within);
    if (options_.transmit_stall > 0)
        takes_ &= !std::bernoulli_distribution(options_.transmit_stall)(random_);
    if (within && transmit_pause_left_ && sent_beats_ >= options_.transmit_pause_after) {
        transmit_pause_left_--;
        pauses_.long_transmit++;
        takes_ = false;
    }
    pauses_.in_sent += within && !takes_;
    uint64_t now = link_.cycle();
    posted_headers_ = link_.posted().headers_left(now, kPostedHeaders);
    posted_data_ = link_.posted().data_left(now, kPostedData);
    nonposted_headers_ = link_.nonposted().headers_left(now, kNonPostedHeaders);
    nonposted_data_ = link_.nonposted().data_left(now, kNonPostedHeaders);
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
        if (!lags) link_.send_up({Upstream::Packet, 0, words});
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
        interrupt_taken_ = asked && room();
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
    trace_(link_.cycle(), false, packet.words, "", request ? packet.bar : -1);
    received_.push_back(std::move(packet));
}

void Block::take_received(const Signs &signs) {
    if (signs.nonposted_ok) non_posted_left_ = kNonPostedAfterHold;
    if (!shown_ || !signs.takes) return;
    received_beats_++;
    if (++beat_ < shape_.beats) return;
    if (current_->kind == Kind::Completion) {
        count_interleaved(*current_);
        completion_headers_--;
        completion_credits_ -= data_credits(*current_);
    } else if (current_->kind == Kind::MemoryRead && !signs.nonposted_ok) {
        non_posted_left_--;
    }
    root_.delivered(*current_);
    current_.reset();
    gap_left_ = std::max(options_.tlp_gap, shape_.gap);
}

void Block::count_interleaved(const Downstream &packet) {
    uint8_t tag = Header::parse(packet.words).tag;
    pauses_.interleaved += open_tag_ && *open_tag_ != tag;
    open_tag_.reset();
    if (!packet.final) open_tag_ = tag;
}

void Block::choose_received() {
    // Posted requests and completions pass a non-posted request that the core holds back.
    for (auto packet = received_.begin(); packet != received_.end(); ++packet) {
        if (packet->kind == Kind::MemoryRead && !non_posted_left_) continue;
        current_ = std::move(*packet);
        received_.erase(packet);
        shape_ = shape(*current_);
        beat_ = 0;
        return;
    }
}

void Block::present() {
    bool idle = options_.beat_idle > 0 &&
                std::bernoulli_distribution(options_.beat_idle)(random_);
    bool within = current_ && beat_;
    if (within && receive_pause_left_ && received_beats_ >= options_.receive_pause_after) {
        receive_pause_left_--;
        pauses_.long_receive++;
        idle = true;
    }
    pauses_.in_received += idle && within;
    shown_ = current_ && !idle;
}

}  // namespace peerdma
