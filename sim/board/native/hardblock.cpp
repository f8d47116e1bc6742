// SPDX-License-Identifier: BSD-2-Clause
#include "hardblock.h"

#include "root.h"
#include "trace.h"

namespace peerdma {

namespace {

// Credits shown of a root port without limits (trnfcsel 4, transmit credits available).
constexpr unsigned kPostedHeaders = 64, kNonPostedHeaders = 64, kPostedData = 1024;

unsigned data_credits(const Downstream &packet) { return (packet.words.size() - 3 + 3) / 4; }

// First dword of a header: a memory write, of either length, and a reserved bit.
constexpr uint32_t kWrite = 0x4000'0000, kWriteMask = 0x5F00'0000, kReserved = 0x0080'0000;

// Bits of Device Status.
constexpr uint16_t kCorrectableDetected = 1 << 0, kNonFatalDetected = 1 << 1;

}  // namespace

HardBlock::HardBlock(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
                     Trace &trace)
    : options_(options), config_(config), link_(link), root_(root), log_(log), trace_(trace),
      random_(options.block_seed) {
    reset(false);
}

void HardBlock::reset(bool link_up) {
    transmit_.clear();
    received_.clear();
    current_.reset();
    completion_headers_ = completion_credits_ = gap_left_ = 0;
    non_posted_left_ = kNonPostedAfterHold;
    pins_ = ToCore();
    pins_.trnlnkup = link_up;
    pins_.cfginterruptrdyn = 1;
    pins_.cfgmsgdata = options_.requester_id;
    free_.assign(options_.buffer_lag, options_.transmit_buffers);
    discarded_.clear();
    received_beats_ = sent_beats_ = 0;
    receive_pause_left_ = options_.receive_pause;
    transmit_pause_left_ = options_.transmit_pause;
    open_tag_.reset();
    show_transmit();
    refresh();
}

void HardBlock::refresh() {
    if (pins_.cfgcommandbusmasterenable && !config_.bus_master())
        bus_master_fell_ = link_.cycle();
    pins_.cfgcommandbusmasterenable = config_.bus_master();
    pins_.cfgcommandinterruptdisable = config_.intx_disabled();
    pins_.cfgdevcontrolmaxpayload = config_.max_payload_code();
    pins_.cfgdevcontrolmaxreadreq = config_.max_read_code();
    pins_.cfgdevcontrolexttagen = config_.extended_tag();
    pins_.cfgdevcontrolenablero = config_.relaxed_ordering();
    pins_.cfglinkcontrolrcb = config_.boundary_128();
    pins_.cfglinkstatuscurrentspeed = config_.link_speed();
    pins_.cfglinkstatusnegotiatedwidth = config_.link_width();
    pins_.cfginterruptmsienable = config_.msi_enabled();
    pins_.cfginterruptmsixenable = config_.msix_enabled();
    pins_.cfginterruptmsixfm = config_.msix_masked();
    pins_.cfginterruptmmenable = config_.msi_granted_code();
}

void HardBlock::edge(const FromCore &core) {
    take_transmit(core);
    take_interrupt(core);
    take_receive(core);
    if (!core.cfgerrcpltimeoutn) config_.report_device_status(kNonFatalDetected);
    if (!core.cfgerrcplunexpectn) config_.report_device_status(kCorrectableDetected);
    config_.set_transactions_pending(!core.cfgtrnpendingn);
    link_.advance();
    root_.advance();
    if (gap_left_)
        gap_left_--;
    else if (!current_ && !received_.empty())
        choose_received();
    present();
    show_transmit();
    if (trace_.captures()) capture();
}

void HardBlock::capture() {
    std::array<unsigned, 6> now = {
        options_.transmit_buffers - std::min(options_.transmit_buffers, unsigned(pins_.trntbufav)),
        completion_headers_, completion_credits_, unsigned(pins_.trnfcph),
        unsigned(pins_.trnfcpd), unsigned(pins_.trnfcnph)};
    if (now == captured_) return;
    captured_ = now;
    trace_.event(link_.cycle(), "fill transmit=%u headers=%u data=%u ph=%u pd=%u nph=%u", now[0],
                 now[1], now[2], now[3], now[4], now[5]);
}

// Transmit -----------------------------------------------------------------------------------

void HardBlock::show_transmit() {
    unsigned used = link_.transmit_buffers_used() + !transmit_.empty();
    free_.push_back(options_.transmit_buffers - std::min(used, options_.transmit_buffers));
    pins_.trntbufav = free_.front();
    free_.pop_front();
    pins_.trntdstrdy = pins_.trnlnkup && (room() || !transmit_.empty());
    if (options_.transmit_stall > 0)
        pins_.trntdstrdy &= !std::bernoulli_distribution(options_.transmit_stall)(random_);
    bool within = !transmit_.empty();
    if (within && transmit_pause_left_ && sent_beats_ >= options_.transmit_pause_after) {
        transmit_pause_left_--;
        pauses_.long_transmit++;
        pins_.trntdstrdy = 0;
    }
    pauses_.in_sent += within && !pins_.trntdstrdy;
    pins_.trnterrdrop = !discarded_.empty() && discarded_.front() <= link_.cycle();
    if (pins_.trnterrdrop) discarded_.pop_front();
    uint64_t now = link_.cycle();
    pins_.trnfcph = link_.posted().headers_left(now, kPostedHeaders);
    pins_.trnfcpd = link_.posted().data_left(now, kPostedData);
    pins_.trnfcnph = link_.nonposted().headers_left(now, kNonPostedHeaders);
    pins_.trnfcnpd = link_.nonposted().data_left(now, kNonPostedHeaders);
}

void HardBlock::take_transmit(const FromCore &core) {
    if (!core.trntsrcrdy || !pins_.trntdstrdy) return;
    if (core.trntsof != transmit_.empty() || core.trntsrcdsc || core.trnterrfwd) {
        errors_++;
        log_("error: cycle %llu: transmit beat %zu of a TLP has sof=%u dsc=%u errfwd=%u",
             (unsigned long long)link_.cycle(), transmit_.size() / 2, core.trntsof,
             core.trntsrcdsc, core.trnterrfwd);
        transmit_.clear();
        return;
    }
    sent_beats_++;
    transmit_.push_back(core.trntd >> 32);
    if (!core.trnteof || core.trntrem) transmit_.push_back(uint32_t(core.trntd));
    if (!core.trnteof) return;
    check(std::exchange(transmit_, {}));
}

void HardBlock::check(Words words) {
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
        if (!lags && fault) return discard(words);
        trace_(link_.cycle(), true, words, lags ? "dropped: Bus Master Enable fell" : "");
        if (!lags) link_.send_up({Upstream::Packet, 0, words});
        return;
    }
    trace_(link_.cycle(), true, words, wrong.c_str());
    errors_++;
    log_("error: cycle %llu: the core sent an illegal TLP: %s: %s",
         (unsigned long long)link_.cycle(), wrong.c_str(), describe(words).c_str());
}

// Counts writes.
const Fault *HardBlock::fault_of(const Words &words) {
    if ((words[0] & kWriteMask) != kWrite) return nullptr;
    writes_++;
    for (const Fault &fault : options_.faults)
        if (fault.of_write() && fault.request == writes_) return &fault;
    return nullptr;
}

void HardBlock::discard(const Words &words) {
    trace_(link_.cycle(), true, words, "discarded by the block");
    log_("fault: the block discards write %llu", (unsigned long long)writes_);
    discarded_.push_back(link_.cycle() + options_.discard_lag);
}

void HardBlock::take_interrupt(const FromCore &core) {
    bool asked = !core.cfginterruptn && pins_.trnlnkup;
    if (!asked || pins_.cfginterruptrdyn) {
        pins_.cfginterruptrdyn = !(asked && room());
        return;
    }
    pins_.cfginterruptrdyn = 1;
    Upstream message;
    const char *wrong = nullptr;
    if (config_.msi_enabled()) {
        if (core.cfginterruptdi >> config_.msi_granted_code())
            wrong = "MSI message number was not granted";
        else if (bus_master_lags())
            return;
        else if (!config_.bus_master())
            wrong = "MSI while Bus Master Enable is 0";
        unsigned data = config_.msi_data() | core.cfginterruptdi;
        uint8_t bytes[4] = {uint8_t(data), uint8_t(data >> 8)};
        message = {Upstream::Msi, core.cfginterruptdi,
                   memory_write(config_.msi_address(), bytes, 4, options_.requester_id)};
    } else {
        if (config_.msix_enabled())
            wrong = "interrupt request of the block while MSI-X is enabled";
        else if (core.cfginterruptdi)
            wrong = "INTx other than INTA";
        bool asserted = !core.cfginterruptassertn;
        message = {Upstream::Intx, asserted, intx_message(asserted, options_.requester_id)};
    }
    trace_(link_.cycle(), true, message.words, wrong ? wrong : "interrupt");
    if (!wrong) return link_.send_up(std::move(message));
    errors_++;
    log_("error: cycle %llu: %s: number %u, dropped", (unsigned long long)link_.cycle(), wrong,
         core.cfginterruptdi);
}

// Receive ------------------------------------------------------------------------------------

void HardBlock::receive(Downstream &&packet) {
    if (packet.kind == Kind::Completion) {
        unsigned credits = data_credits(packet);
        if (completion_headers_ == kCompletionHeaders ||
            completion_credits_ + credits > kCompletionCredits) {
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

void HardBlock::take_receive(const FromCore &core) {
    if (core.trnrnpok) non_posted_left_ = kNonPostedAfterHold;
    if (!pins_.trnrsrcrdy || !core.trnrdstrdy) return;
    position_ += 2;
    received_beats_++;
    if (position_ < current_->words.size()) return;
    if (current_->kind == Kind::Completion) {
        count_interleaved(*current_);
        completion_headers_--;
        completion_credits_ -= data_credits(*current_);
    } else if (current_->kind == Kind::MemoryRead && !core.trnrnpok) {
        non_posted_left_--;
    }
    root_.delivered(*current_);
    current_.reset();
    gap_left_ = options_.tlp_gap;
}

void HardBlock::count_interleaved(const Downstream &packet) {
    uint8_t tag = Header::parse(packet.words).tag;
    pauses_.interleaved += open_tag_ && *open_tag_ != tag;
    open_tag_.reset();
    if (!packet.final) open_tag_ = tag;
}

void HardBlock::choose_received() {
    // Posted requests and completions pass a non-posted request that the core holds back.
    for (auto packet = received_.begin(); packet != received_.end(); ++packet) {
        if (packet->kind == Kind::MemoryRead && !non_posted_left_) continue;
        current_ = std::move(*packet);
        received_.erase(packet);
        position_ = 0;
        return;
    }
}

void HardBlock::present() {
    bool idle = options_.beat_idle > 0 &&
                std::bernoulli_distribution(options_.beat_idle)(random_);
    bool within = current_ && position_;
    if (within && receive_pause_left_ && received_beats_ >= options_.receive_pause_after) {
        receive_pause_left_--;
        pauses_.long_receive++;
        idle = true;
    }
    pauses_.in_received += idle && within;
    pins_.trnrsrcrdy = current_ && !idle;
    if (!pins_.trnrsrcrdy) {
        pins_.trnrsof = pins_.trnreof = pins_.trnrerrfwd = 0;
        pins_.trnrbarhit = 0;
        return;
    }
    const Words &words = current_->words;
    bool pair = position_ + 1 < words.size();
    pins_.trnrd = uint64_t(words[position_]) << 32 | (pair ? words[position_ + 1] : 0);
    pins_.trnrrem = pair;
    pins_.trnrsof = position_ == 0;
    pins_.trnreof = position_ + 2 >= words.size();
    pins_.trnrerrfwd = current_->poisoned;
    pins_.trnrbarhit = current_->kind == Kind::Completion ? 0 : 1 << current_->bar;
}

}  // namespace peerdma
