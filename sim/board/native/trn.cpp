// SPDX-License-Identifier: BSD-2-Clause
#include "trn.h"

#include <stdexcept>

namespace peerdma {

TrnBlock::TrnBlock(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
                   Trace &trace)
    : Block(options, config, link, root, log, trace) {
    if (options.seam_width || !options.streams.empty())
        throw std::invalid_argument("this core is behind the adapter of the 7 series");
    reset(false);
}

void TrnBlock::reset(bool link_up) {
    discarded_.clear();
    Block::reset(link_up);
    pins_ = Inputs();
    pins_.trnlnkup = link_up;
    pins_.cfgmsgdata = options_.requester_id;
    show();
    refresh();
}

void TrnBlock::refresh() {
    Block::refresh();
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

void TrnBlock::edge(const Outputs &core) {
    take_transmit(core);
    take_interrupt(!core.cfginterruptn, config_.msi_enabled(), core.cfginterruptdi,
                   !core.cfginterruptassertn);
    asks_ = core.trntsrcrdy || !core.cfginterruptn || !core.cfgtrnpendingn;
    step({{bool(core.trnrdstrdy)}, bool(core.trnrnpok), 0, !core.cfgerrcpltimeoutn,
          !core.cfgerrcplunexpectn, !core.cfgtrnpendingn});
    show();
}

void TrnBlock::take_transmit(const Outputs &core) {
    if (!core.trntsrcrdy || !pins_.trntdstrdy) return;
    if (core.trntsof != out_.words.empty() || core.trntsrcdsc || core.trnterrfwd) {
        errors_++;
        log_("error: cycle %llu: transmit beat %zu of a TLP has sof=%u dsc=%u errfwd=%u",
             (unsigned long long)link_.cycle(), out_.words.size() / 2, core.trntsof,
             core.trntsrcdsc, core.trnterrfwd);
        out_.words.clear();
        return;
    }
    out_.beats++;
    out_.words.push_back(core.trntd >> 32);
    if (!core.trnteof || core.trntrem) out_.words.push_back(uint32_t(core.trntd));
    if (core.trnteof && send(std::exchange(out_.words, {})))
        discarded_.push_back(link_.cycle() + options_.discard_lag);
}

void TrnBlock::show() {
    pins_.trntbufav = free_;
    pins_.trntdstrdy = out_.takes;
    pins_.trnterrdrop = !discarded_.empty() && discarded_.front() <= link_.cycle();
    if (pins_.trnterrdrop) discarded_.pop_front();
    pins_.trnfcph = posted_headers_;
    pins_.trnfcpd = posted_data_;
    pins_.trnfcnph = nonposted_headers_;
    pins_.trnfcnpd = nonposted_data_;
    pins_.cfginterruptrdyn = !interrupt_taken_;
    show_received();
}

Block::Shape TrnBlock::shape(const Downstream &packet, bool) const {
    return {(packet.words.size() + 1) / 2, 0};
}

void TrnBlock::show_received() {
    pins_.trnrsrcrdy = shown() != nullptr;
    if (!shown()) {
        pins_.trnrsof = pins_.trnreof = pins_.trnrerrfwd = 0;
        pins_.trnrbarhit = 0;
        return;
    }
    const Words &words = shown()->words;
    size_t at = 2 * beat();
    bool pair = at + 1 < words.size();
    pins_.trnrd = uint64_t(words[at]) << 32 | (pair ? words[at + 1] : 0);
    pins_.trnrrem = pair;
    pins_.trnrsof = beat() == 0;
    pins_.trnreof = last();
    pins_.trnrerrfwd = shown()->poisoned;
    pins_.trnrbarhit = shown()->kind == Kind::Completion ? 0 : 1 << shown()->bar;
}

}  // namespace peerdma
