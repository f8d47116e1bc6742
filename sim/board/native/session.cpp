// SPDX-License-Identifier: BSD-2-Clause
// A board in the caller's process: the caller controls memory, accesses and clock, and each
// write and interrupt is recorded with its cycle. For measurements; called by sim/board/session.py.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "config_space.h"
#include "log.h"
#include "model.h"
#include "options.h"

namespace peerdma {
namespace {

// What reached the host; sim/board/session.py has the same as a dtype.
struct Event {
    uint64_t cycle;
    uint64_t address;  // of a write
    uint32_t bytes;    // of a write; 0: an interrupt
    uint32_t vector;
};

class Session : public Host {
public:
    Session(const Options &options, const ConfigSpace &config, uint64_t base, uint8_t *memory,
            uint64_t size)
        : base_(base), memory_(memory), size_(size), model_(options, config, *this, log_) {}

    int read(uint64_t address, uint8_t *to, size_t n, uint64_t) override {
        if (!inside(address, n)) return kUnmapped;
        memcpy(to, memory_ + (address - base_), n);
        return 0;
    }
    bool write(uint64_t address, const uint8_t *from, size_t n) override {
        if (!inside(address, n)) return false;
        memcpy(memory_ + (address - base_), from, n);
        events_.push_back({model_.cycle(), address, uint32_t(n), 0});
        return true;
    }
    bool must_wait(uint64_t, bool) const override { return false; }
    bool unsettled() const override { return false; }
    void msi(unsigned vector) override {
        events_.push_back({model_.cycle(), 0, 0, vector});
        interrupted_ = true;
        model_.interrupt_run();
    }
    void msix(unsigned vector) override { msi(vector); }
    void intx(bool asserted) override {
        if (asserted) msi(0);
    }
    void answer(uint64_t, const std::vector<uint8_t> &data) override {
        memcpy(&answer_, data.data(), data.size());
        answered_ = true;
        model_.interrupt_run();
    }

    // False if no answer came within `cycles`.
    bool read(unsigned bar, uint64_t offset, size_t n, uint64_t cycles, uint64_t *value) {
        answered_ = false;
        answer_ = 0;
        model_.mmio_read(bar, offset, n, 0);
        run(cycles, answered_);
        *value = answer_;
        return answered_;
    }
    // Whether an interrupt came, now or since the last call.
    bool wait(uint64_t cycles) {
        run(cycles, interrupted_);
        return std::exchange(interrupted_, false);
    }
    Model &model() { return model_; }
    std::vector<Event> take_events() { return std::exchange(events_, {}); }

private:
    bool inside(uint64_t address, size_t n) const {
        return address >= base_ && address - base_ <= size_ && n <= size_ - (address - base_);
    }
    // Until `until`, nothing left to do, or the limit.
    void run(uint64_t cycles, const bool &until) {
        for (uint64_t done = 1; cycles && done && !until; cycles -= std::min(cycles, done))
            done = model_.run(cycles);
    }

    uint64_t base_;
    uint8_t *memory_;
    uint64_t size_;
    std::vector<Event> events_;
    bool interrupted_ = false, answered_ = false;
    uint64_t answer_ = 0;
    Log log_;
    Model model_;
};

}  // namespace
}  // namespace peerdma

using peerdma::Session;

extern "C" {

// The masks are 4096 bytes each, `memory` has `size` bytes and outlives the session. Returns null
// and a text in `error` if something is wrong.
Session *session_open(const char *options, const uint8_t *image, const uint8_t *writable,
                      const uint8_t *clearable, uint64_t base, uint8_t *memory, uint64_t size,
                      char *error, size_t room) {
    peerdma::ConfigSpace::Bytes bytes[3];
    const uint8_t *from[] = {image, writable, clearable};
    for (int i = 0; i < 3; i++) memcpy(bytes[i].data(), from[i], bytes[i].size());
    try {
        return new Session(peerdma::Options::parse(options), {bytes[0], bytes[1], bytes[2]}, base,
                           memory, size);
    } catch (const std::exception &problem) {
        snprintf(error, room, "%s", problem.what());
        return nullptr;
    }
}

void session_config(Session *session, uint64_t offset, uint32_t value, size_t n) {
    uint8_t data[4];
    memcpy(data, &value, sizeof data);
    session->model().config_write(offset, data, n);
}

void session_write(Session *session, unsigned bar, uint64_t offset, uint64_t value, size_t nbytes) {
    uint8_t data[sizeof value];
    memcpy(data, &value, sizeof data);
    session->model().mmio_write(bar, offset, data, nbytes);
}

// Of at most 8 bytes; 0 if no answer came within `cycles`.
int session_read(Session *session, unsigned bar, uint64_t offset, size_t n, uint64_t cycles,
                 uint64_t *value) {
    return session->read(bar, offset, n, cycles, value);
}

int session_wait(Session *session, uint64_t cycles) { return session->wait(cycles); }

uint64_t session_run(Session *session, uint64_t cycles) { return session->model().run(cycles); }

uint64_t session_cycle(Session *session) { return session->model().cycle(); }

// Copies the events that reached the host since the last call, at most `room`, and returns how many
// there were.
size_t session_events(Session *session, peerdma::Event *to, size_t room) {
    auto events = session->take_events();
    std::copy_n(events.begin(), std::min(room, events.size()), to);
    return events.size();
}

// PCIe rules that the core broke. Writes what was traced to its files.
uint64_t session_errors(Session *session) {
    session->model().trace().flush();
    return session->model().errors();
}

// What the block has done so far.
void session_pauses(Session *session, peerdma::Pauses *to) { *to = session->model().pauses(); }

// As `ack_ns`, of TLPs that are sent from now on.
void session_acknowledge_after(Session *session, double ns) {
    session->model().acknowledge_after(ns);
}

void session_close(Session *session) { delete session; }
}
