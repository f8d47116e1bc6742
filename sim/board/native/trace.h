// SPDX-License-Identifier: BSD-2-Clause
// Records what passes the hard block, for people: as text, and as a capture for `peerdma trace`.
//
// The text has a line per TLP, in the order in which the hard block handled them:
//
//   CYCLE up|down MRd|MWr addr= len= tag= be=FIRST/LAST data=FIRST_BYTES   [# NOTE]
//   CYCLE up|down Cpl|CplD status= len= tag= count= low= data=             [# NOTE]
//
// "up" is sent by the core. Lengths are in bytes of whole dwords; data is at most 16 bytes, in
// memory order. A note says what became of a TLP that did not take the usual way.
//
// The capture is a pcapng file (docs/trace.md) with all bytes of each TLP, and events.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "options.h"
#include "tlp.h"

namespace peerdma {

class Trace {
public:
    // Throws std::runtime_error if a file cannot be written.
    explicit Trace(const Options &options);

    // `up`: sent by the core; `note` is empty or says what happened; `bar`: which a request of the
    // host hits, or -1.
    void operator()(uint64_t cycle, bool up, const Words &words, const char *note = "",
                    int bar = -1);

    // Events are in the capture only. `text` is "KIND key=value ...".
    bool captures() const { return capture_ != nullptr; }
    __attribute__((format(printf, 3, 4))) void event(uint64_t cycle, const char *format, ...);

    void flush();

private:
    struct Close {
        void operator()(FILE *file) const { fclose(file); }
    };
    using File = std::unique_ptr<FILE, Close>;

    static File open(const std::string &path);
    void block(uint32_t type, std::string_view body);
    void packet(uint32_t interface, uint64_t cycle, std::string_view data, std::string_view options);

    const double nanoseconds_;  // per cycle
    File text_, capture_;
};

}  // namespace peerdma
