// SPDX-License-Identifier: BSD-2-Clause
#include "options.h"

#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>

namespace peerdma {

static Fault parse_fault(const std::string &text) {
    static const std::map<std::string, Fault::Kind> kinds = {
        {"ur", Fault::UnsupportedRequest}, {"ca", Fault::CompleterAbort}, {"poison", Fault::Poison},
        {"drop", Fault::Drop},             {"hang", Fault::Hang},
        {"discard", Fault::Discard},       {"illegal", Fault::Illegal},
    };
    size_t at = text.find('@');
    auto kind = kinds.find(text.substr(0, at));
    if (at == std::string::npos || kind == kinds.end())
        throw std::invalid_argument("a fault is ur, ca, poison, drop, hang, discard or illegal and @N");
    return {kind->second, std::stoull(text.substr(at + 1))};
}

Options Options::parse(const std::string &text) {
    Options o;
    using Setter = std::function<void(const std::string &)>;
    auto number = [](double &field) -> Setter {
        return [&field](const std::string &v) { field = std::stod(v); };
    };
    auto integer = [](auto &field) -> Setter {
        return [&field](const std::string &v) {
            field = static_cast<std::decay_t<decltype(field)>>(std::stoull(v));
        };
    };
    auto string = [](std::string &field) -> Setter {
        return [&field](const std::string &v) { field = v; };
    };
    const std::map<std::string, Setter> setters = {
        {"clock_khz", number(o.clock_khz)},
        {"link_mbps", number(o.link_mbps)},
        {"link_speed", integer(o.link_speed)},
        {"rtt_ns", number(o.rtt_ns)},
        {"ack_ns", number(o.ack_ns)},
        {"completion_boundary", integer(o.completion_boundary)},
        {"completion_bytes", integer(o.completion_bytes)},
        {"seam_width", integer(o.seam_width)},
        {"streams", string(o.streams)},
        {"straddle", integer(o.straddle)},
        {"transmit_buffers", integer(o.transmit_buffers)},
        {"completion_headers", integer(o.completion_headers)},
        {"completion_credits", integer(o.completion_credits)},
        {"tlp_gap", integer(o.tlp_gap)},
        {"beat_idle", number(o.beat_idle)},
        {"buffer_lag", integer(o.buffer_lag)},
        {"discard_lag", integer(o.discard_lag)},
        {"transmit_stall", number(o.transmit_stall)},
        {"receive_pause", integer(o.receive_pause)},
        {"receive_pause_after", integer(o.receive_pause_after)},
        {"transmit_pause", integer(o.transmit_pause)},
        {"transmit_pause_after", integer(o.transmit_pause_after)},
        {"block_seed", integer(o.block_seed)},
        {"posted_headers", integer(o.posted_headers)},
        {"posted_data", integer(o.posted_data)},
        {"nonposted_headers", integer(o.nonposted_headers)},
        {"credit_ns", number(o.credit_ns)},
        {"requester_id", integer(o.requester_id)},
        {"reorder",
         [&](const std::string &v) { o.reorder = true, o.reorder_seed = std::stoull(v); }},
        {"time_scale", integer(o.time_scale)},
        {"completion_timeout_us", number(o.completion_timeout_us)},
        {"once", integer(o.once)},
        {"pages_bar", integer(o.pages_bar)},
        {"page_register32",
         [&](const std::string &v) { o.pages.push_back({std::stoull(v), 4}); }},
        {"page_register64",
         [&](const std::string &v) { o.pages.push_back({std::stoull(v), 8}); }},
        {"vulkan", [&](const std::string &v) { o.vulkan.push_back(v); }},
        {"tlp_log", string(o.tlp_log)},
        {"trace", string(o.trace)},
        {"waves", string(o.waves)},
        {"fault", [&](const std::string &v) { o.faults.push_back(parse_fault(v)); }},
    };
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        size_t equals = line.find('=');
        auto setter = setters.find(line.substr(0, equals));
        if (equals == std::string::npos || setter == setters.end())
            throw std::invalid_argument("unknown option line '" + line + "'");
        try {
            setter->second(line.substr(equals + 1));
        } catch (const std::logic_error &error) {
            throw std::invalid_argument("option line '" + line + "': " + error.what());
        }
    }
    return o;
}

}  // namespace peerdma
