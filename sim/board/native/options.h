// SPDX-License-Identifier: BSD-2-Clause
// Options of link, root complex and board; parsed from "key=value" lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pins.h"
#include "register_pages.h"

namespace peerdma {

// What happens to one memory read of the core, or to one memory write: Discard, by the hard block,
// or Illegal, which makes it break a rule, for who has to notice that. Each kind of request is
// counted from 1 since the client connected.
struct Fault {
    enum Kind { UnsupportedRequest, CompleterAbort, Poison, Drop, Hang, Discard, Illegal } kind;
    uint64_t request;

    bool of_write() const { return kind == Discard || kind == Illegal; }
};

struct Options {
    double clock_khz = 125000;
    double link_mbps = 500;  // raw bytes per microsecond after line code; 0: unlimited
    unsigned link_speed = 2;  // as in Link Status
    double rtt_ns = 1000;    // last byte of a read request received to its completion ready
    double ack_ns = 400;     // TLP received to its transmit buffer free again
    // The root port's credits, 0: without limit; and a TLP received to its credits back.
    unsigned posted_headers = 0, posted_data = 0, nonposted_headers = 0;
    double credit_ns = 0;
    unsigned completion_boundary = 64;
    unsigned completion_bytes = 512;  // most payload of one completion, if MPS allows
    unsigned seam_width = 0;  // bits of a beat of a core without an adapter; 0: it has one
    std::string streams;      // a block with AXI4-Streams, as hw/pcie/adapters.py names it
    bool straddle = true;     // it lets completions begin in the middle of a beat of 256 bits
    unsigned transmit_buffers = kTransmitBuffers;
    // What the receive buffer holds of completions; credits of 16 bytes.
    unsigned completion_headers = kCompletionHeaders, completion_credits = kCompletionCredits;
    unsigned tlp_gap = 0;   // idle cycles between two received TLPs
    double beat_idle = 0;   // probability, per cycle, that there is no received beat, even in a TLP
    unsigned buffer_lag = 0;    // cycles by which the count of free ones is late
    unsigned discard_lag = 1;   // cycles from a TLP's last beat until it is said, at least 1
    double transmit_stall = 0;  // probability, per cycle, that the block takes no beat
    // One long pause in either direction, within a TLP: for so many cycles, behind so many beats.
    uint64_t receive_pause = 0, receive_pause_after = 0;
    uint64_t transmit_pause = 0, transmit_pause_after = 0;
    uint64_t block_seed = 0;    // of both
    uint64_t requester_id = 0x0100;
    bool reorder = false;
    uint64_t reorder_seed = 0;
    uint32_t time_scale = 1;
    double completion_timeout_us = kCompletionTimeoutUs;
    bool once = false;
    // Registers of `pages_bar` that shared pages offer; empty: no page.
    std::vector<RegisterPages::Register> pages;
    unsigned pages_bar = 0;
    std::vector<std::string> vulkan;  // libraries that may have it
    std::string tlp_log, trace;
    std::string waves;
    std::vector<Fault> faults;

    // Throws std::invalid_argument naming the line that is wrong.
    static Options parse(const std::string &text);
};

}  // namespace peerdma
