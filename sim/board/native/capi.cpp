// SPDX-License-Identifier: BSD-2-Clause
// The library's C interface, called by sim/board/server.py.
#include <cstdio>
#include <cstring>
#include <exception>

#include "server.h"

namespace {

peerdma::ConfigSpace::Bytes bytes(const uint8_t *from) {
    peerdma::ConfigSpace::Bytes to;
    memcpy(to.data(), from, to.size());
    return to;
}

}  // namespace

extern "C" {

// The three masks are 4096 bytes each. Returns null and a text in `error` if something is wrong.
peerdma::Server *board_open(const char *options, const uint8_t *image, const uint8_t *writable,
                            const uint8_t *clearable, int listener, peerdma::Negotiate negotiate,
                            char *error, size_t room) {
    try {
        peerdma::ConfigSpace config(bytes(image), bytes(writable), bytes(clearable));
        return new peerdma::Server(peerdma::Options::parse(options), config, listener, negotiate);
    } catch (const std::exception &problem) {
        snprintf(error, room, "%s", problem.what());
        return nullptr;
    }
}

// 0 when the only client to serve has disconnected, else 1.
int board_serve(peerdma::Server *server, int milliseconds) { return server->serve(milliseconds); }

// Copies the log's lines since the last call; returns their length, at most `room`.
size_t board_log(peerdma::Server *server, char *text, size_t room) {
    std::string log = server->take_log();
    size_t n = std::min(log.size(), room);
    memcpy(text, log.data(), n);
    return n;
}

uint64_t board_errors(peerdma::Server *server) { return server->errors(); }

void board_close(peerdma::Server *server) { delete server; }
}
