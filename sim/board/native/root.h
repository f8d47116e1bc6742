// SPDX-License-Identifier: BSD-2-Clause
// The root complex: serves the core's memory requests from the host's memory, and turns the
// host's register accesses into requests to the core.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "config_space.h"
#include "link.h"
#include "log.h"
#include "options.h"

namespace peerdma {

class Trace;

// The owner of memory and interrupts behind the root complex.
struct Host {
    static constexpr int kUnmapped = -1;

    virtual ~Host() = default;
    // Fills `to`, or requests the data from the client: returns how many calls of Root::supply will
    // follow, 0 if `to` is filled, kUnmapped if the address is not mapped.
    virtual int read(uint64_t address, uint8_t *to, size_t n, uint64_t token) = 0;
    // False if the address is not mapped, or is read-only.
    virtual bool write(uint64_t address, const uint8_t *from, size_t n) = 0;
    // True if a request to `address` must wait until the client acknowledged earlier writes.
    virtual bool must_wait(uint64_t address, bool write) const = 0;
    // True if interrupts must wait for such acknowledgements.
    virtual bool unsettled() const = 0;
    virtual void msi(unsigned vector) = 0;
    virtual void msix(unsigned vector) = 0;
    virtual void intx(bool asserted) = 0;
    // The answer to mmio_read; all bytes are 0xFF if the core did not answer successfully.
    virtual void answer(uint64_t cookie, const std::vector<uint8_t> &data) = 0;
};

class Root : public Link::UpperEnd {
public:
    // MSI-X messages are memory writes to this address + 4 * vector, above any host memory.
    static constexpr uint64_t kMsixWindow = 0xFFFF'FFFF'FEE0'0000;
    static constexpr unsigned kMsixVectors = 2048;

    Root(const Options &options, ConfigSpace &config, Link &link, Host &host, Log &log,
         Trace &trace);

    void receive(double time, Upstream &&packet) override;
    // The hard block has presented the last beat of `packet` to the core, or lost the packet.
    void delivered(const Downstream &packet);

    // Register accesses of the host; `offset` and `n` > 0 have been checked.
    void mmio_read(unsigned bar, uint64_t offset, size_t n, uint64_t cookie);
    void mmio_write(unsigned bar, uint64_t offset, const uint8_t *data, size_t n);
    // Register accesses that have not reached the core or are unanswered.
    size_t mmio_pending() const { return queue_.size() + posted_ + reads_; }

    // The client answered part of a read: `data` is null if it refused. Late answers are ignored.
    void supply(uint64_t token, uint64_t address, const uint8_t *data, size_t n);
    // The client answered: continues what waited for that.
    void client_answered() { drain(); }
    // Once per clock edge, after Link::advance.
    void advance();
    // Simulated time must stop, because the next event is an answer of the client.
    bool awaits_client() const {
        return mmio_pending() == 0 && (!arrived_.empty() || due_ <= link_.cycle());
    }
    bool busy() const { return mmio_pending() || !arrived_.empty() || !reading_.empty(); }
    // Answers no read of the core that it has not answered yet.
    void drop_reads();
    void reset();
    void restart_faults() { read_count_ = 0; }

    uint64_t errors() const { return errors_; }
    uint64_t reads() const { return read_count_; }

private:
    static constexpr unsigned kTags = 32;
    // Requests in flight towards the core: header credits of the reference configuration.
    static constexpr unsigned kPostedCredits = 32, kNonPostedCredits = 12;

    struct Arrival {
        double time;
        Upstream packet;
    };
    struct Read {  // a memory read of the core waiting for the client
        Header header;
        double ready;
        std::vector<uint8_t> data;
        int pieces;
        bool poisoned = false;
        bool refused = false;
    };
    struct Access {  // a register access as one TLP, not sent yet
        bool write;
        unsigned bar;
        Words words;
        // Reads
        uint64_t answer = 0;  // key in answers_
        size_t position = 0;  // first byte within the answer
        uint64_t address = 0;
        unsigned bytes = 0;
    };
    struct Answer {
        uint64_t cookie;
        std::vector<uint8_t> data;
        unsigned pieces;
    };
    struct TagUse {
        bool busy = false;
        unsigned bar = 0;
        uint64_t answer = 0;
        size_t position = 0;
        uint64_t address = 0;
        unsigned bytes = 0;
        uint64_t deadline = 0;
    };

    void drain();
    bool serve(double time, const Upstream &packet);
    void serve_read(double time, const Header &header);
    void serve_write(const Header &header, const Words &words);
    void respond(const Read &read, Status status);
    void take_completion(const Header &header, const Words &words);
    void finish_tag(unsigned tag, const uint8_t *data);
    void send_accesses();
    void update_due();
    void error(const char *what, const Words &words);

    const Options &options_;
    ConfigSpace &config_;
    Link &link_;
    Host &host_;
    Log &log_;
    Trace &trace_;
    double rtt_;
    uint64_t answer_limit_;
    std::mt19937_64 random_;
    std::deque<Arrival> arrived_;
    bool stalled_ = false;  // arrived_ waits for the client
    std::map<uint64_t, Read> reading_;
    uint64_t next_read_ = 0;
    double due_;  // when the first of reading_ should be answered
    std::set<uint8_t> tags_;  // of the core, outstanding
    uint64_t read_count_ = 0;
    bool hung_ = false;
    std::deque<Access> queue_;
    std::map<uint64_t, Answer> answers_;
    uint64_t next_answer_ = 0;
    std::array<TagUse, kTags> tag_use_;
    unsigned posted_ = 0, reads_ = 0;
    uint64_t errors_ = 0;
};

}  // namespace peerdma
