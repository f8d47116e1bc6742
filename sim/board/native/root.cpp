// SPDX-License-Identifier: BSD-2-Clause
#include "root.h"

#include <algorithm>
#include <limits>

#include "trace.h"

namespace peerdma {

namespace {
constexpr uint16_t kRootId = 0;
constexpr double kNever = std::numeric_limits<double>::infinity();
// A CPU's register accesses do not cross a cache line.
constexpr size_t kLine = 64;
// Completion timeout of a CPU's register read, in simulated milliseconds.
constexpr double kAnswerLimitMs = 10;
// Bits of Status and Device Status.
constexpr uint16_t kReceivedMasterAbort = 1 << 13, kReceivedTargetAbort = 1 << 12;
constexpr uint16_t kDetectedParityError = 1 << 15, kUnsupportedDetected = 1 << 3;
}  // namespace

Root::Root(const Options &options, ConfigSpace &config, Link &link, Host &host, Log &log,
           Trace &trace)
    : options_(options),
      config_(config),
      link_(link),
      host_(host),
      log_(log),
      trace_(trace),
      rtt_(options.rtt_ns * options.clock_khz * 1e-6),
      answer_limit_(uint64_t(kAnswerLimitMs * options.clock_khz)),
      random_(options.reorder_seed),
      due_(kNever) {}

void Root::reset() {
    arrived_.clear();
    stalled_ = false;
    reading_.clear();
    due_ = kNever;
    tags_.clear();
    hung_ = false;
    queue_.clear();
    posted_ = reads_ = 0;
    tag_use_.fill({});
    // Register reads that wait are answered as by a device in reset.
    auto unanswered = std::move(answers_);
    answers_.clear();
    for (auto &[key, answer] : unanswered) {
        std::fill(answer.data.begin(), answer.data.end(), 0xFF);
        host_.answer(answer.cookie, answer.data);
    }
}

void Root::drop_reads() {
    auto read = [](const Arrival &arrival) {
        return arrival.packet.what == Upstream::Packet &&
               Header::parse(arrival.packet.words).kind == Kind::MemoryRead;
    };
    arrived_.erase(std::remove_if(arrived_.begin(), arrived_.end(), read), arrived_.end());
    reading_.clear();
    due_ = kNever;
    tags_.clear();
}

void Root::error(const char *what, const Words &words) {
    errors_++;
    log_("error: cycle %llu: %s: %s", (unsigned long long)link_.cycle(), what,
         describe(words).c_str());
}

// Memory requests of the core ----------------------------------------------------------------

void Root::receive(double time, Upstream &&packet) {
    // Completions may pass the requests that wait for the client (PCIe ordering forbids passing
    // posted writes, but the client may not serve those before its register read is answered).
    if (packet.what == Upstream::Packet) {
        Header header = Header::parse(packet.words);
        if (header.kind == Kind::Completion) return take_completion(header, packet.words);
    }
    arrived_.push_back({time, std::move(packet)});
    drain();
}

void Root::drain() {
    // A request that waited for the client counts as arrived when it is served.
    double earliest = stalled_ ? link_.cycle() : 0;
    for (stalled_ = false; !arrived_.empty() && !stalled_;) {
        Arrival &first = arrived_.front();
        stalled_ = !serve(std::max(first.time, earliest), first.packet);
        if (!stalled_) arrived_.pop_front();
    }
}

bool Root::serve(double time, const Upstream &packet) {
    if (packet.what != Upstream::Packet) {
        if (host_.unsettled()) return false;
        packet.what == Upstream::Msi ? host_.msi(packet.value) : host_.intx(packet.value);
        return true;
    }
    Header header = Header::parse(packet.words);
    bool write = header.kind != Kind::MemoryRead;
    if (header.address >= kMsixWindow ? host_.unsettled() : host_.must_wait(header.address, write))
        return false;
    if (write)
        serve_write(header, packet.words);
    else
        serve_read(time, header);
    return true;
}

void Root::serve_write(const Header &header, const Words &words) {
    uint64_t vector = (header.address - kMsixWindow) / 4;
    if (header.address >= kMsixWindow && vector < kMsixVectors && header.dws == 1)
        return host_.msix(vector);
    std::vector<uint8_t> data(4 * header.dws);
    for (unsigned i = 0; i < header.dws; i++)
        store_dword(&data[4 * i], words[header.header_dws() + i]);
    auto enabled = [&](unsigned byte) {
        uint8_t be = byte < 4 ? header.first_be : byte >= 4 * header.dws - 4 ? header.last_be : 15;
        return be >> byte % 4 & 1;
    };
    bool there = true;
    for (unsigned end, at = 0; at < data.size(); at = end + 1) {
        for (end = at; end < data.size() && enabled(end);) end++;
        if (end > at) there &= host_.write(header.address + at, &data[at], end - at);
    }
    if (there) return;
    trace_(link_.cycle(), true, words, "no such memory: dropped");
    log_("write of %zu bytes to 0x%llx: nobody has mapped it for writing, dropped", data.size(),
         (unsigned long long)header.address);
}

void Root::serve_read(double time, const Header &header) {
    read_count_++;
    Read read = {header, time + rtt_, std::vector<uint8_t>(4 * header.dws), 0};
    if (!tags_.insert(header.tag).second) {
        errors_++;
        log_("error: cycle %llu: tag %u is used again before its read is answered",
             (unsigned long long)link_.cycle(), header.tag);
    }
    for (const Fault &fault : options_.faults) {
        if (fault.of_write()) continue;  // the hard block's
        if (fault.kind == Fault::Hang ? read_count_ < fault.request
                                      : read_count_ != fault.request)
            continue;
        const char *const kNames[] = {"Unsupported Request", "Completer Abort", "poisoned data",
                                      "no answer", "no answer from now on"};
        if (!hung_) log_("fault: read %llu gets %s", (unsigned long long)read_count_,
                         kNames[fault.kind]);
        switch (fault.kind) {
            case Fault::UnsupportedRequest: return respond(read, kUnsupportedRequest);
            case Fault::CompleterAbort: return respond(read, kCompleterAbort);
            case Fault::Poison: read.poisoned = true; break;
            case Fault::Hang: hung_ = true; [[fallthrough]];
            case Fault::Drop: tags_.erase(header.tag); return;
            case Fault::Discard:
            case Fault::Illegal: break;
        }
    }
    uint64_t token = next_read_++;
    Read &waiting = reading_.emplace(token, std::move(read)).first->second;
    unsigned first = header.first_byte(), n = header.bytes();
    waiting.pieces = host_.read(header.address + first, &waiting.data[first], n, token);
    if (waiting.pieces > 0) return update_due();
    if (waiting.pieces == Host::kUnmapped)
        log_("read of %u bytes from 0x%llx: nobody has mapped it, Unsupported Request", n,
             (unsigned long long)header.address + first);
    respond(waiting, waiting.pieces < 0 ? kUnsupportedRequest : kSuccess);
    reading_.erase(token);
}

void Root::supply(uint64_t token, uint64_t address, const uint8_t *data, size_t n) {
    auto found = reading_.find(token);
    if (found == reading_.end()) return;
    Read &read = found->second;
    if (data)
        std::copy(data, data + n, &read.data[address - read.header.address]);
    else
        read.refused = true;
    if (--read.pieces) return;
    read.ready = std::max(read.ready, double(link_.cycle()));
    respond(read, read.refused ? kUnsupportedRequest : kSuccess);
    reading_.erase(found);
    update_due();
}

void Root::update_due() {
    due_ = kNever;
    for (auto &[token, read] : reading_) due_ = std::min(due_, read.ready);
}

void Root::respond(const Read &read, Status status) {
    const Header &h = read.header;
    uint64_t first = h.address + h.first_byte(), end = first + h.bytes();
    double ready = read.ready;
    if (options_.reorder) ready += std::uniform_real_distribution<>(0, 2 * rtt_)(random_);
    if (status != kSuccess) {
        config_.report_status(status == kCompleterAbort ? kReceivedTargetAbort
                                                        : kReceivedMasterAbort);
        link_.send_down(ready, {completion(h, kRootId, status, end - first, first, nullptr, 0,
                                           false),
                                Kind::Completion});
        return;
    }
    bool poisoned = read.poisoned;
    if (poisoned) config_.report_status(kDetectedParityError);
    unsigned boundary = options_.completion_boundary;
    unsigned most = std::max(boundary, std::min(options_.completion_bytes,
                                                128u << config_.max_payload_code()));
    uint64_t stop = h.address + 4 * h.dws;
    for (uint64_t at = h.address; at < stop;) {
        unsigned step = most;
        if (options_.reorder)
            step = boundary * std::uniform_int_distribution<>(1, most / boundary)(random_);
        uint64_t next = std::min<uint64_t>(stop, at / step * step + step);
        uint64_t from = std::max(at, first);
        bool poison = std::exchange(poisoned, false);
        Words words = completion(h, kRootId, kSuccess, end - from, from,
                                 &read.data[at - h.address], (next - at) / 4, poison);
        link_.send_down(ready, {std::move(words), Kind::Completion, 0, next == stop, poison});
        if (options_.reorder) ready += std::uniform_real_distribution<>(0, rtt_ / 4)(random_);
        at = next;
    }
}

// Register accesses of the host --------------------------------------------------------------

void Root::mmio_read(unsigned bar, uint64_t offset, size_t n, uint64_t cookie) {
    uint64_t key = next_answer_++;
    Answer &answer = answers_[key] = {cookie, std::vector<uint8_t>(n), 0};
    uint64_t address = config_.bar_address(bar) + offset;
    for (size_t at = 0; at < n; answer.pieces++) {
        size_t step = std::min<size_t>(n - at, kLine - (address + at) % kLine);
        queue_.push_back({false, bar, memory_read(address + at, step, kRootId, 0), key, at,
                          address + at, unsigned(step)});
        at += step;
    }
    send_accesses();
}

void Root::mmio_write(unsigned bar, uint64_t offset, const uint8_t *data, size_t n) {
    uint64_t address = config_.bar_address(bar) + offset;
    for (size_t at = 0; at < n;) {
        size_t step = std::min<size_t>(n - at, kLine - (address + at) % kLine);
        queue_.push_back({true, bar, memory_write(address + at, data + at, step, kRootId)});
        at += step;
    }
    send_accesses();
}

void Root::send_accesses() {
    while (!queue_.empty()) {
        Access &access = queue_.front();
        if (access.write ? posted_ >= kPostedCredits : reads_ >= kNonPostedCredits) return;
        if (access.write) {
            posted_++;
        } else {
            auto use = std::find_if(tag_use_.begin(), tag_use_.end(),
                                    [](const TagUse &t) { return !t.busy; });
            *use = {true,           access.bar,   access.answer,
                    access.position, access.address, access.bytes,
                    link_.cycle() + answer_limit_};
            access.words[1] |= unsigned(use - tag_use_.begin()) << 8;
            reads_++;
        }
        Kind kind = access.write ? Kind::MemoryWrite : Kind::MemoryRead;
        link_.send_down(link_.cycle(), {std::move(access.words), kind, uint8_t(access.bar)});
        queue_.pop_front();
    }
}

void Root::delivered(const Downstream &packet) {
    if (packet.kind == Kind::MemoryWrite) {
        posted_--;
        send_accesses();
    } else if (packet.kind == Kind::Completion && packet.final) {
        tags_.erase(Header::parse(packet.words).tag);
    }
}

void Root::take_completion(const Header &header, const Words &words) {
    if (header.requester != kRootId || header.tag >= kTags || !tag_use_[header.tag].busy)
        return error("completion that nobody waits for", words);
    const TagUse &use = tag_use_[header.tag];
    if (header.status != kSuccess) {
        config_.report_device_status(kUnsupportedDetected);
        log_("register read at BAR%u + 0x%llx: completion status %u, answered with all ones",
             use.bar, (unsigned long long)use.address - config_.bar_address(use.bar),
             header.status);
        return finish_tag(header.tag, nullptr);
    }
    // Reads stay within a cache line, so they are answered by one completion.
    if (!header.has_data || header.dws != ByteEnables::of(use.address, use.bytes).dws ||
        header.byte_count != use.bytes || header.lower_address != (use.address & 0x7F)) {
        error("completion does not fit its request", words);
        return finish_tag(header.tag, nullptr);
    }
    uint8_t data[kLine];
    for (unsigned i = 0; i < header.dws; i++)
        store_dword(data + 4 * i, words[header.header_dws() + i]);
    finish_tag(header.tag, data + (use.address & 3));
}

void Root::finish_tag(unsigned tag, const uint8_t *data) {
    TagUse use = std::exchange(tag_use_[tag], {});
    reads_--;
    auto found = answers_.find(use.answer);
    Answer &answer = found->second;
    for (unsigned i = 0; i < use.bytes; i++) answer.data[use.position + i] = data ? data[i] : 0xFF;
    if (--answer.pieces == 0) {
        host_.answer(answer.cookie, answer.data);
        answers_.erase(found);
    }
    send_accesses();
}

void Root::advance() {
    if (!arrived_.empty()) drain();
    if (!reads_) return;
    for (unsigned tag = 0; tag < kTags; tag++) {
        const TagUse &use = tag_use_[tag];
        if (!use.busy || link_.cycle() < use.deadline) continue;
        errors_++;
        log_("error: register read at BAR%u + 0x%llx: no completion within %g ms, all ones",
             use.bar, (unsigned long long)use.address - config_.bar_address(use.bar),
             kAnswerLimitMs);
        finish_tag(tag, nullptr);
    }
}

}  // namespace peerdma
