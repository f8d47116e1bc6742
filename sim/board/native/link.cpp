// SPDX-License-Identifier: BSD-2-Clause
#include "link.h"

#include <algorithm>
#include <limits>

namespace peerdma {

namespace {
constexpr double kFraming = 8;  // STP 1, sequence number 2, LCRC 4, END 1
constexpr double kDllp = 8;
// Share of the link that SKP ordered sets take, by its line code.
constexpr double kSkp8b10b = 4.0 / 1538, kSkp128b130b = 16.25 / 5920;
constexpr unsigned kGen3 = 3;
constexpr unsigned kTlpsPerAck = 4;
constexpr unsigned kRequestsPerUpdate = 4;
}  // namespace

Link::Link(const Options &options)
    : bytes_per_cycle_(options.link_mbps > 0
                           ? options.link_mbps * 1000 / options.clock_khz *
                                 (1 - (options.link_speed < kGen3 ? kSkp8b10b : kSkp128b130b))
                           : std::numeric_limits<double>::infinity()),
      cycles_per_ns_(options.clock_khz * 1e-6),
      posted_(options.posted_headers, options.posted_data,
              options.credit_ns * cycles_per_ns_),
      nonposted_(options.nonposted_headers, 0, options.credit_ns * cycles_per_ns_) {
    acknowledge_after(options.ack_ns);
}

void Link::send_up(Upstream &&packet) {
    if (up_dllps_) {
        up_free_ = std::max(up_free_, double(cycle_)) + up_dllps_ * kDllp / bytes_per_cycle_;
        up_dllps_ = 0;
    }
    Header header = Header::parse(packet.words);
    bool completion = packet.what == Upstream::Packet && header.kind == Kind::Completion;
    double start = std::max(up_free_, cycle_ + 1.0);
    Credits *credits = completion                          ? nullptr
                       : header.kind == Kind::MemoryRead ? &nonposted_
                                                           : &posted_;
    unsigned data = header.has_data ? (header.dws + 3) / 4 : 0;
    if (credits) start = credits->when(start, data);
    up_free_ = start + (4 * packet.words.size() + kFraming) / bytes_per_cycle_;
    if (credits) credits->use(start, up_free_, data);
    unacknowledged_.push_back(up_free_ + ack_);
    if (++up_count_ % kTlpsPerAck == 0) down_dllps_++;
    if (!completion && ++up_requests_ % kRequestsPerUpdate == 0) down_dllps_++;
    up_.push_back({start, up_free_, std::move(packet)});
}

unsigned Link::waiting_up() const {
    return std::count_if(up_.begin(), up_.end(),
                         [this](const UpEntry &entry) { return entry.start > cycle_; });
}

void Link::send_down(double ready, Downstream &&packet) {
    waiting_.push_back({ready, order_++, std::move(packet)});
    std::push_heap(waiting_.begin(), waiting_.end(), Later());
}

void Link::advance() {
    ++cycle_;
    posted_.advance(cycle_);
    nonposted_.advance(cycle_);
    while (!unacknowledged_.empty() && unacknowledged_.front() <= cycle_)
        unacknowledged_.pop_front();
    while (!up_.empty() && up_.front().finish <= cycle_) {
        UpEntry entry = std::move(up_.front());
        up_.pop_front();
        upper_->receive(entry.finish, std::move(entry.packet));
    }
    while (!waiting_.empty() && down_free_ < cycle_ && waiting_.front().time < cycle_) {
        std::pop_heap(waiting_.begin(), waiting_.end(), Later());
        DownEntry entry = std::move(waiting_.back());
        waiting_.pop_back();
        double start = std::max(down_free_, entry.time);
        start += down_dllps_ * kDllp / bytes_per_cycle_;
        down_dllps_ = 0;
        entry.time = down_free_ =
            start + (4 * entry.packet.words.size() + kFraming) / bytes_per_cycle_;
        if (++down_count_ % kTlpsPerAck == 0) up_dllps_++;
        if (entry.packet.kind != Kind::Completion && ++down_requests_ % kRequestsPerUpdate == 0)
            up_dllps_++;
        down_.push_back(std::move(entry));
    }
    while (!down_.empty() && down_.front().time <= cycle_) {
        Downstream packet = std::move(down_.front().packet);
        down_.pop_front();
        lower_->receive(std::move(packet));
    }
}

void Link::drop_reads() {
    auto read = [](const UpEntry &entry) {
        return entry.packet.what == Upstream::Packet &&
               Header::parse(entry.packet.words).kind == Kind::MemoryRead;
    };
    up_.erase(std::remove_if(up_.begin(), up_.end(), read), up_.end());
    down_.erase(std::remove_if(down_.begin(), down_.end(), answers), down_.end());
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), answers), waiting_.end());
    std::make_heap(waiting_.begin(), waiting_.end(), Later());
}

void Link::flush() {
    up_free_ = down_free_ = cycle_;
    unacknowledged_.clear();
    posted_.flush();
    nonposted_.flush();
    up_.clear();
    waiting_.clear();
    down_.clear();
    up_count_ = up_requests_ = down_count_ = down_requests_ = up_dllps_ = down_dllps_ = 0;
}

}  // namespace peerdma
