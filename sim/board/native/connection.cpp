// SPDX-License-Identifier: BSD-2-Clause
#include "connection.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

namespace peerdma {

namespace {
constexpr uint32_t kLargest = sizeof(wire::Message) + sizeof(wire::DmaAccess) + wire::kMostData;
// Room for more than allowed, so that a few too many get an error reply instead of a close.
constexpr size_t kRoomForFds = 32;
}  // namespace

Connection::~Connection() {
    next();
    close(socket_);
}

Connection::State Connection::fail(const std::string &reason) {
    why = reason;
    return State::Closed;
}

Connection::State Connection::receive() {
    // Header and body are read apart: file descriptors come with the bytes they were sent with.
    for (;;) {
        bool header = received_ < sizeof message;
        size_t total = header ? sizeof message : message.size;
        if (!header && received_ == total) return State::Ready;
        uint8_t *to = header ? reinterpret_cast<uint8_t *>(&message) + received_
                             : body.data() + (received_ - sizeof message);
        iovec piece = {to, total - received_};
        alignas(cmsghdr) char control[CMSG_SPACE(kRoomForFds * sizeof(int))];
        msghdr request = {};
        request.msg_iov = &piece, request.msg_iovlen = 1;
        request.msg_control = control, request.msg_controllen = sizeof control;
        ssize_t n = recvmsg(socket_, &request, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return State::More;
        if (n < 0) return fail(strerror(errno));
        for (cmsghdr *c = CMSG_FIRSTHDR(&request); c; c = CMSG_NXTHDR(&request, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), before = fds.size();
            fds.resize(before + count);
            memcpy(&fds[before], CMSG_DATA(c), count * sizeof(int));
        }
        if (n == 0)
            return fail(received_ ? "it closed the connection within a message"
                                  : "it closed the connection");
        if (request.msg_flags & MSG_CTRUNC) return fail("it sent far too many file descriptors");
        received_ += n;
        if (header && received_ == sizeof message) {
            if (message.size < sizeof message || message.size > kLargest)
                return fail("it sent a message of " + std::to_string(message.size) + " bytes");
            body.resize(message.size - sizeof message);
        }
    }
}

void Connection::next() {
    for (int fd : fds) close(fd);
    fds.clear();
    received_ = 0;
}

void Connection::send(const wire::Message &header, const void *data, size_t n, const void *more,
                      size_t m) {
    wire::Message full = header;
    full.size = sizeof full + n + m;
    out_.append(reinterpret_cast<const char *>(&full), sizeof full);
    if (n) out_.append(static_cast<const char *>(data), n);
    if (m) out_.append(static_cast<const char *>(more), m);
}

ssize_t Connection::send_some() {
    // A file descriptor goes with the first byte of its message, which starts a piece of its own.
    bool carries = !attached_.empty() && attached_.front().at == sent_;
    size_t next = carries ? 1 : 0;
    size_t end = next < attached_.size() ? attached_[next].at : out_.size();
    iovec piece = {&out_[sent_], end - sent_};
    msghdr message = {};
    message.msg_iov = &piece, message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (carries) {
        message.msg_control = control, message.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &attached_.front().fd, sizeof(int));
    }
    ssize_t n = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0 && carries) attached_.pop_front();
    return n;
}

bool Connection::flush() {
    while (!flushed()) {
        ssize_t n = send_some();
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            if (out_.size() - sent_ <= kMostUnsent) return true;
            why = "it reads nothing";
            return false;
        }
        if (n < 0) {
            why = strerror(errno);
            return false;
        }
        sent_ += n;
    }
    out_.clear();
    sent_ = 0;
    return true;
}

}  // namespace peerdma
