// SPDX-License-Identifier: BSD-2-Clause
// The PCIe link as two serialisers with DLLP overhead; times are in cycles of the core's clock.
//
// Upstream: each TLP costs header + payload + framing at the link's rate and keeps its transmit
// buffer until it is acknowledged; a request waits for credits of the root port, and all behind it
// with it. Downstream: the same cost; a TLP arrives when its last byte
// does. One ACK per four TLPs, and one UpdateFC per four posted or non-posted TLPs, take link
// time in the opposite direction. SKP ordered sets scale the rate.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "credits.h"
#include "options.h"
#include "tlp.h"

namespace peerdma {

// A TLP of the core, or an interrupt that the hard block made into one.
struct Upstream {
    enum What { Packet, Msi, Intx } what = Packet;
    unsigned value = 0;  // MSI: message number; INTx: 1 asserted
    Words words;
};

struct Downstream {
    Words words;
    Kind kind = Kind::Other;
    uint8_t bar = 0;      // requests
    bool final = true;    // completions: the last one of its request
    bool poisoned = false;
    // No completion of the host: the block ends a read by itself.
    bool made_up = false;
};

class Link {
public:
    struct UpperEnd {
        virtual ~UpperEnd() = default;
        // The last byte of an upstream TLP arrived at `time`, not after the current cycle.
        virtual void receive(double time, Upstream &&packet) = 0;
    };
    struct LowerEnd {
        virtual ~LowerEnd() = default;
        virtual void receive(Downstream &&packet) = 0;
    };

    explicit Link(const Options &options);

    void connect(UpperEnd *upper, LowerEnd *lower) { upper_ = upper, lower_ = lower; }

    // Starts an upstream TLP whose last beat was accepted in this cycle.
    void send_up(Upstream &&packet);
    // Queues a downstream TLP that may start at `ready` (cycles).
    void send_down(double ready, Downstream &&packet);
    // One clock edge.
    void advance();
    // From now on, TLPs that are sent are acknowledged so long after they were received.
    void acknowledge_after(double ns) { ack_ = ns * cycles_per_ns_; }
    // Discards reads and completions of reads in flight, but no others.
    void drop_reads();
    // Discards everything in flight; does not reset time.
    void flush();

    uint64_t cycle() const { return cycle_; }
    unsigned transmit_buffers_used() const { return unacknowledged_.size(); }
    // Upstream TLPs of which the link carries nothing yet.
    unsigned waiting_up() const;
    const Credits &posted() const { return posted_; }
    const Credits &nonposted() const { return nonposted_; }
    bool busy() const {
        return !unacknowledged_.empty() || !up_.empty() || !waiting_.empty() || !down_.empty();
    }

private:
    struct UpEntry {
        double start, finish;
        Upstream packet;
    };
    struct DownEntry {
        double time;  // ready while waiting, finish while on the link
        uint64_t order;
        Downstream packet;
    };
    static bool answers(const DownEntry &entry) {
        return entry.packet.kind == Kind::Completion;
    }
    struct Later {
        bool operator()(const DownEntry &a, const DownEntry &b) const {
            return a.time != b.time ? a.time > b.time : a.order > b.order;
        }
    };

    UpperEnd *upper_ = nullptr;
    LowerEnd *lower_ = nullptr;
    double bytes_per_cycle_;
    double cycles_per_ns_;
    double ack_ = 0;
    Credits posted_, nonposted_;
    uint64_t cycle_ = 0;
    double up_free_ = 0, down_free_ = 0;
    std::deque<double> unacknowledged_;
    std::deque<UpEntry> up_;
    std::vector<DownEntry> waiting_;  // heap by Later
    std::deque<DownEntry> down_;
    uint64_t order_ = 0;
    unsigned up_count_ = 0, up_requests_ = 0, down_count_ = 0, down_requests_ = 0;
    unsigned up_dllps_ = 0, down_dllps_ = 0;
};

}  // namespace peerdma
