// SPDX-License-Identifier: BSD-2-Clause
// The event loop, the client's coming and going, and DMA; commands.cpp has the commands.
#include "server.h"

#include "gpu_bar.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>

namespace peerdma {

namespace {
// Cycles between polls of the socket.
constexpr uint64_t kSlice = 64;
// Messages handled at a time, so that a client cannot starve the simulation.
constexpr int kMostMessages = 256;
// DMA messages without a reply before memory requests wait.
constexpr size_t kMostQuestions = 4096;
// Register writes accepted before they have reached the core.
constexpr size_t kMostAccesses = 1024;
// Milliseconds between polls of the pages of registers while the board is idle.
constexpr int kPagesInterval = 1;

void copy(uint8_t *to, const uint8_t *from, size_t n) { memcpy(to, from, n); }
Copy load(const Memory::Piece &piece) {
    return piece.place == Memory::Place::Gpu ? load_from_gpu : copy;
}
Copy store(const Memory::Piece &piece) {
    return piece.place == Memory::Place::Gpu ? store_to_gpu : copy;
}
}  // namespace

Server::Server(const Options &options, const ConfigSpace &config, int listener,
               Negotiate negotiate)
    : options_(options),
      listener_(listener),
      negotiate_(negotiate),
      model_(options_, config, *this, log_),
      interrupts_(std::in_place, model_.config(), log_) {}

bool Server::serve(int milliseconds) {
    using Clock = std::chrono::steady_clock;
    auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
    while (!finished_ && log_.empty()) {
        auto left =
            std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) break;
        bool rests = !client_ || !model_.runnable();
        if (rests) model_.trace().flush();
        if (client_ && pages_) left = std::min<long>(left, kPagesInterval);
        wait(rests ? int(left) : 0);
        if (!client_) continue;
        take_pages();
        take_messages();
        if (!client_) continue;
        model_.run(kSlice);
        model_.tell_stalls();
        if (!client_->flush()) drop_client(client_->why);
    }
    return !finished_;
}

void Server::wait(int milliseconds) {
    pollfd fd = {listener_, POLLIN, 0};
    if (client_) {
        fd.fd = client_->socket();
        fd.events = (!held_ && may_take() ? POLLIN : 0) | (client_->flushed() ? 0 : POLLOUT);
    }
    poll(&fd, 1, milliseconds);
    if (!client_ && (fd.revents & POLLIN)) accept_client();
}

void Server::accept_client() {
    int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) return;
    client_ = std::make_unique<Connection>(socket);
    if (!options_.pages.empty()) {
        try {
            pages_ = std::make_unique<RegisterPages>(options_.pages);
        } catch (const std::system_error &error) {
            return drop_client(error.what());
        }
    }
    log_("a client connected");
}

void Server::drop_client(const std::string &why) {
    log_("the client left: %s (%llu reads of the core, %llu errors)", why.c_str(),
         (unsigned long long)model_.root().reads(), (unsigned long long)errors());
    log_.restart();
    bool served = negotiated_;
    client_.reset();
    pages_.reset();
    held_ = negotiated_ = false;
    waiting_.clear();
    questions_.clear();
    writes_unanswered_ = 0;
    memory_.clear();
    model_.trace().event(model_.cycle(), "unmap address=0x0 size=0x0");
    interrupts_->clear();
    model_.reset();
    model_.restart_faults();
    model_.trace().flush();
    finished_ = options_.once && served;
}

// Messages -----------------------------------------------------------------------------------

bool Server::may_take() const { return model_.root().mmio_pending() < kMostAccesses; }

void Server::take_messages() {
    for (int i = 0; i < kMostMessages && client_ && may_take(); i++) {
        auto state = client_->receive();
        if (state == Connection::State::More) return;
        if (state == Connection::State::Closed) return drop_client(std::string(client_->why));
        // Commands are done in order, and a register access takes simulated time.
        uint16_t command = client_->message.command;
        bool reply = (client_->message.flags & wire::kTypeMask) == wire::kReply;
        bool access = command == wire::kRegionRead || command == wire::kRegionWrite ||
                      command == wire::kWriteMulti;
        held_ = !reply && model_.root().mmio_pending() > 0 && !(access && accesses_bar());
        if (held_) return;
        reply ? take_reply() : handle();
        if (client_) client_->next();
    }
}

bool Server::accesses_bar() const {
    if (client_->message.command == wire::kWriteMulti) return true;
    wire::RegionAccess access;
    if (client_->body.size() < sizeof access) return false;
    memcpy(&access, client_->body.data(), sizeof access);
    return access.region != wire::kConfigRegion;
}

void Server::take_pages() {
    // Before a register access of the client, so that stores that it has seen come first.
    if (!pages_) return;
    pages_->take([&](RegisterPages::Register at, uint64_t value) {
        model_.mmio_write(options_.pages_bar, at.offset, reinterpret_cast<uint8_t *>(&value),
                          at.bytes);
    });
}

void Server::answer(uint64_t cookie, const std::vector<uint8_t> &data) {
    auto found = waiting_.find(cookie);
    if (found == waiting_.end()) return;
    Waiting waiting = found->second;
    waiting_.erase(found);
    waiting.message.flags = wire::kReply;
    client_->send(waiting.message, &waiting.access, sizeof waiting.access, data.data(),
                  data.size());
    model_.interrupt_run();
}

// DMA ----------------------------------------------------------------------------------------

Memory::Piece Server::find(uint64_t address, size_t n, bool write) const {
    Memory::Piece piece = memory_.find(address, n, write);
    // The client acts as the host: like an IOMMU, it refuses unmapped addresses and records that.
    if (piece.place == Memory::Place::Nowhere) piece = {Memory::Place::ByMessage, nullptr, n};
    if (piece.place == Memory::Place::ByMessage) piece.n = std::min<size_t>(piece.n, most_data_);
    return piece;
}

bool Server::must_wait(uint64_t address, bool write) const {
    if (find(address, 1, write).place == Memory::Place::ByMessage)
        return questions_.size() >= kMostQuestions;
    return unsettled();
}

int Server::read(uint64_t address, uint8_t *to, size_t n, uint64_t token) {
    // No message is sent to the client before all shared bytes are known to be present.
    for (size_t at = 0; at < n;) {
        Memory::Piece piece = find(address + at, n - at, false);
        if (piece.place != Memory::Place::ByMessage &&
            !guarded(load(piece), to + at, piece.at, piece.n)) {
            log_("0x%llx: the client truncated the file that was mapped there",
                 (unsigned long long)address + at);
            return kUnmapped;
        }
        at += piece.n;
    }
    int messages = 0;
    for (size_t at = 0; at < n;) {
        Memory::Piece piece = find(address + at, n - at, false);
        if (piece.place == Memory::Place::ByMessage) {
            ask(false, token, address + at, nullptr, piece.n);
            messages++;
        }
        at += piece.n;
    }
    return messages;
}

bool Server::write(uint64_t address, const uint8_t *from, size_t n) {
    for (size_t at = 0; at < n;) {
        Memory::Piece piece = find(address + at, n - at, true);
        // Sent even if the client truncated the file, so that it records the write as lost.
        if (piece.place == Memory::Place::ByMessage ||
            !guarded(store(piece), piece.at, from + at, piece.n))
            ask(true, 0, address + at, from + at, piece.n);
        at += piece.n;
    }
    return true;
}

void Server::ask(bool write, uint64_t token, uint64_t address, const uint8_t *data, uint32_t n) {
    while (questions_.count(++next_question_)) {
    }
    questions_[next_question_] = {write, token, address, n};
    writes_unanswered_ += write;
    wire::Message message = {next_question_, write ? wire::kDmaWrite : wire::kDmaRead, 0, 0, 0};
    wire::DmaAccess access = {address, n};
    client_->send(message, &access, sizeof access, data, data ? n : 0);
}

void Server::take_reply() {
    const wire::Message &message = client_->message;
    auto found = questions_.find(message.id);
    bool refused = message.flags & wire::kError;
    if (found == questions_.end() ||
        message.command != (found->second.write ? wire::kDmaWrite : wire::kDmaRead))
        return drop_client("it replied to a message that was not sent");
    Question question = found->second;
    wire::DmaAccess access;
    const uint8_t *data = client_->body.data() + sizeof access;
    if (!question.write && !refused) {
        bool fits = client_->body.size() == sizeof access + question.count;
        if (fits) memcpy(&access, client_->body.data(), sizeof access);
        if (!fits || access.address != question.address || access.count != question.count)
            return drop_client("its reply to DMA_READ does not fit the request");
    }
    if (refused)
        log_("%s of %u bytes at 0x%llx: the client refused it (errno %u), %s",
             question.write ? "write" : "read", question.count,
             (unsigned long long)question.address, message.error,
             question.write ? "dropped" : "Unsupported Request");
    questions_.erase(found);
    if (question.write)
        writes_unanswered_--;
    else
        model_.root().supply(question.token, question.address, refused ? nullptr : data,
                             question.count);
    model_.root().client_answered();
}

}  // namespace peerdma
