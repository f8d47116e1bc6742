// SPDX-License-Identifier: BSD-2-Clause
// One vfio-user connection as a stream of messages; never blocks.
#pragma once

#include <deque>
#include <string>
#include <sys/types.h>
#include <vector>

#include "wire.h"

namespace peerdma {

class Connection {
public:
    explicit Connection(int socket) : socket_(socket) {}
    ~Connection();
    Connection(const Connection &) = delete;

    int socket() const { return socket_; }

    enum class State { More, Ready, Closed };
    // Receives what has arrived of the next message. Ready: `message`, `body` and `fds` hold it
    // until next(). Closed: the client is gone or sent an invalid message, see `why`.
    State receive();
    // Ends the handling of the message; closes fds that were not taken.
    void next();

    wire::Message message{};
    std::vector<uint8_t> body;
    std::vector<int> fds;  // more than kMostFds may be here
    std::string why;       // why the connection ended

    // Queues a message; `data` may be null if n is 0.
    void send(const wire::Message &message, const void *data, size_t n, const void *more = nullptr,
              size_t m = 0);
    // The next message that is queued carries the file descriptor, which stays the caller's and
    // open until the connection ends.
    void attach(int fd) { attached_.push_back({out_.size(), fd}); }
    // Sends as much as the socket accepts. False: the client is gone or has stopped reading.
    bool flush();
    bool flushed() const { return sent_ == out_.size(); }

private:
    // Disconnects a client when this many bytes wait for it to read.
    static constexpr size_t kMostUnsent = 64 << 20;

    struct Attached {
        size_t at;  // byte of out_ that carries it
        int fd;
    };

    State fail(const std::string &reason);
    ssize_t send_some();

    int socket_;
    size_t received_ = 0;  // of the message, header included
    std::string out_;
    size_t sent_ = 0;
    std::deque<Attached> attached_;
};

}  // namespace peerdma
