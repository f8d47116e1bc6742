// SPDX-License-Identifier: BSD-2-Clause
#include "trace.h"

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <stdexcept>

namespace peerdma {

namespace {

// pcapng (draft-ietf-opsawg-pcapng): types of blocks and codes of options.
constexpr uint32_t kSection = 0x0A0D0D0A, kInterface = 1, kPacket = 6;
constexpr uint32_t kByteOrder = 0x1A2B3C4D;
constexpr uint16_t kComment = 1, kName = 2, kFlags = 2, kResolution = 9;
constexpr uint32_t kInbound = 1, kOutbound = 2;
// Link types that users may define: TLPs, and lines of text.
constexpr uint16_t kTlps = 147, kEvents = 148;
// Units of time stamps, in powers of ten.
constexpr char kNanoseconds = 9;

template <typename T>
void add(std::string &to, T value) {
    to.append(reinterpret_cast<const char *>(&value), sizeof value);
}

void pad(std::string &to) { to.append(-to.size() % 4, '\0'); }

void add_option(std::string &to, uint16_t code, std::string_view value) {
    add(to, code);
    add(to, uint16_t(value.size()));
    to.append(value);
    pad(to);
}

std::string interface(uint16_t link_type, std::string_view name) {
    std::string body;
    add(body, link_type);
    add(body, uint16_t(0));
    add(body, uint32_t(0));  // packets of any length
    add_option(body, kName, name);
    add_option(body, kResolution, std::string_view(&kNanoseconds, 1));
    add(body, uint32_t(0));
    return body;
}

}  // namespace

Trace::Trace(const Options &options)
    : nanoseconds_(1e6 / options.clock_khz),
      text_(open(options.tlp_log)),
      capture_(open(options.trace)) {
    if (!capture_) return;
    std::string section;
    add(section, kByteOrder);
    add(section, uint16_t(1));  // version 1.0
    add(section, uint16_t(0));
    add(section, int64_t(-1));  // of unknown length
    block(kSection, section);
    block(kInterface, interface(kTlps, "tlps"));
    block(kInterface, interface(kEvents, "events"));
    event(0, "clock khz=%g", options.clock_khz);
    event(0, "limits transmit=%u headers=%u data=%u", options.transmit_buffers,
          options.completion_headers, options.completion_credits);
}

Trace::File Trace::open(const std::string &path) {
    if (path.empty()) return {};
    File file(fopen(path.c_str(), "w"));
    if (!file) throw std::runtime_error("cannot write " + path + ": " + strerror(errno));
    return file;
}

void Trace::operator()(uint64_t cycle, bool up, const Words &words, const char *note, int bar) {
    if (text_)
        fprintf(text_.get(), "%llu %s %s%s%s\n", (unsigned long long)cycle, up ? "up" : "down",
                describe(words).c_str(), *note ? " # " : "", note);
    if (!capture_) return;
    std::string data(4 * words.size(), '\0'), options;
    for (size_t i = 0; i < words.size(); i++)
        store_dword(reinterpret_cast<uint8_t *>(&data[4 * i]), words[i]);
    uint32_t direction = up ? kOutbound : kInbound;
    add_option(options, kFlags, {reinterpret_cast<char *>(&direction), sizeof direction});
    if (bar >= 0) add_option(options, kComment, "BAR" + std::to_string(bar));
    if (*note) add_option(options, kComment, note);
    add(options, uint32_t(0));
    packet(0, cycle, data, options);
}

void Trace::event(uint64_t cycle, const char *format, ...) {
    if (!capture_) return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    packet(1, cycle, line, {});
}

void Trace::packet(uint32_t interface, uint64_t cycle, std::string_view data,
                   std::string_view options) {
    uint64_t time = cycle * nanoseconds_;
    std::string body;
    for (uint32_t value : {interface, uint32_t(time >> 32), uint32_t(time),
                           uint32_t(data.size()), uint32_t(data.size())})
        add(body, value);
    body.append(data);
    pad(body);
    body.append(options);
    block(kPacket, body);
}

void Trace::block(uint32_t type, std::string_view body) {
    uint32_t length = 12 + body.size();
    fwrite(&type, sizeof type, 1, capture_.get());
    fwrite(&length, sizeof length, 1, capture_.get());
    fwrite(body.data(), 1, body.size(), capture_.get());
    fwrite(&length, sizeof length, 1, capture_.get());
}

void Trace::flush() {
    for (File *file : {&text_, &capture_})
        if (*file) fflush(file->get());
}

}  // namespace peerdma
