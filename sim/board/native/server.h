// SPDX-License-Identifier: BSD-2-Clause
// Serves the model to one vfio-user client at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "connection.h"
#include "interrupts.h"
#include "log.h"
#include "memory.h"
#include "model.h"
#include "register_pages.h"

namespace peerdma {

// Checks the client's version and capabilities (JSON without its NUL) and writes the board's;
// returns the bytes written to `reply`, or a negative errno. `most_data`: bytes of one DMA message.
using Negotiate = int (*)(unsigned major, unsigned minor, const char *json, size_t n, char *reply,
                          size_t room, uint64_t *most_data);

class Server : public Host {
public:
    // `listener` is a listening, non-blocking socket that stays the caller's.
    Server(const Options &options, const ConfigSpace &config, int listener, Negotiate negotiate);

    // Serves for at most `milliseconds`, less if there are lines in the log. False: the only client
    // to serve has disconnected.
    bool serve(int milliseconds);
    std::string take_log() { return log_.take(); }
    // PCIe rules that the core broke.
    uint64_t errors() const { return model_.errors(); }

    // Host
    int read(uint64_t address, uint8_t *to, size_t n, uint64_t token) override;
    bool write(uint64_t address, const uint8_t *from, size_t n) override;
    bool must_wait(uint64_t address, bool write) const override;
    bool unsettled() const override { return writes_unanswered_ > 0; }
    void msi(unsigned vector) override { interrupts_->message(Interrupts::Msi, vector); }
    void msix(unsigned vector) override { interrupts_->message(Interrupts::Msix, vector); }
    void intx(bool asserted) override { interrupts_->level(asserted); }
    void answer(uint64_t cookie, const std::vector<uint8_t> &data) override;

private:
    struct Question {  // a DMA message without its reply
        bool write;
        uint64_t token, address;
        uint32_t count;
    };
    struct Waiting {  // a register read without its answer
        wire::Message message;
        wire::RegionAccess access;
    };
    using Bytes = std::vector<uint8_t>;

    void wait(int milliseconds);
    void accept_client();
    void drop_client(const std::string &why);
    void take_messages();
    bool may_take() const;
    bool accesses_bar() const;
    void handle();
    int command(Bytes &reply, bool &later);
    int negotiate(Bytes &reply);
    int dma_map();
    int gpu_map(Bytes &reply);
    void trace_map(uint64_t address, uint64_t size, const std::string &name);
    int dma_unmap(Bytes &reply);
    int device_info(Bytes &reply);
    int region_info(Bytes &reply);
    int irq_info(Bytes &reply);
    int set_irqs();
    int region_read(Bytes &reply, bool &later);
    int region_write(Bytes &reply);
    int write_multi(Bytes &reply);
    int write_region(const wire::RegionAccess &access, const uint8_t *data);
    int reset();
    void take_reply();
    void take_pages();
    uint64_t region_size(uint32_t region) const;
    void program_msix(uint32_t start, uint32_t count);
    Memory::Piece find(uint64_t address, size_t n, bool write) const;
    void ask(bool write, uint64_t token, uint64_t address, const uint8_t *data, uint32_t n);

    Options options_;
    int listener_;
    Negotiate negotiate_;
    Log log_;
    BusErrorGuard guard_;
    Memory memory_;
    Model model_;
    std::optional<Interrupts> interrupts_;
    std::unique_ptr<Connection> client_;
    std::unique_ptr<RegisterPages> pages_;  // the client's, if some are offered
    bool held_ = false;  // a message waits for the end of register accesses
    bool negotiated_ = false, finished_ = false;
    uint64_t most_data_ = 0;
    std::unordered_map<uint16_t, Question> questions_;
    uint16_t next_question_ = 0;
    unsigned writes_unanswered_ = 0;
    std::unordered_map<uint64_t, Waiting> waiting_;
    uint64_t next_cookie_ = 0;
};

}  // namespace peerdma
