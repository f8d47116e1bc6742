// SPDX-License-Identifier: BSD-2-Clause
// A text file with a line per TLP, in the order in which the hard block handled them:
//
//   CYCLE up|down MRd|MWr addr= len= tag= be=FIRST/LAST data=FIRST_BYTES   [# NOTE]
//   CYCLE up|down Cpl|CplD status= len= tag= count= low= data=             [# NOTE]
//
// "up" is sent by the core. Lengths are in bytes of whole dwords; data is at most 16 bytes, in
// memory order. A note says what became of a TLP that did not take the usual way.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tlp.h"

namespace peerdma {

class TlpLog {
public:
    // An empty path: no log. Throws std::runtime_error if the file cannot be written.
    explicit TlpLog(const std::string &path) {
        if (path.empty()) return;
        file_ = fopen(path.c_str(), "w");
        if (!file_) throw std::runtime_error("cannot write " + path + ": " + strerror(errno));
    }
    ~TlpLog() {
        if (file_) fclose(file_);
    }
    TlpLog(const TlpLog &) = delete;
    TlpLog &operator=(const TlpLog &) = delete;

    // `direction` is "up" (sent by the core) or "down"; `note` is empty or says what happened.
    void operator()(uint64_t cycle, const char *direction, const Words &words,
                    const char *note = "") {
        if (!file_) return;
        fprintf(file_, "%llu %s %s%s%s\n", (unsigned long long)cycle, direction,
                describe(words).c_str(), *note ? " # " : "", note);
    }
    void flush() {
        if (file_) fflush(file_);
    }

private:
    FILE *file_ = nullptr;
};

}  // namespace peerdma
