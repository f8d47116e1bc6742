// SPDX-License-Identifier: BSD-2-Clause
// peerdma.h for C++11 and later: what is open closes itself, and errors are exceptions.
//
//     peerdma::board board;
//     std::vector<float> source(4096), destination(4096);
//     peerdma::pin from(board, source.data(), bytes, peerdma::read);
//     peerdma::pin to(board, destination.data(), bytes, peerdma::write);
//     board.copy(to, 0, from, 0, bytes);
//
// Threads, ownership and versions are as in peerdma.h. Objects can be moved, not copied. A pin, job
// or queue has to be gone before its board is, and the pins of a job after that.
#ifndef PEERDMA_HPP
#define PEERDMA_HPP

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "peerdma.h"

namespace peerdma {

enum access : std::uint32_t {
    read = PEERDMA_ACCESS_READ,
    write = PEERDMA_ACCESS_WRITE,
    both = PEERDMA_ACCESS_READ | PEERDMA_ACCESS_WRITE,
};

// An error of the driver or the board: code() is its errno, what() the words of the driver.
class error : public std::system_error {
public:
    error(int number, const std::string &text)
        : std::system_error(-number, std::generic_category(), text) {}
};

// Throws unless `result` is 0 or more, which it returns.
inline int check(peerdma_board *board, int result, const char *what) {
    char text[PEERDMA_TEXT];
    if (result >= 0) return result;
    peerdma_error_text(board, result, text, sizeof(text));
    throw error(result, std::string(what) + ": " + text);
}

// Waits for a job; returns whether it has ended. Throws if it failed.
inline bool finish(peerdma_board *board, peerdma_job &job, int timeout) {
    char text[PEERDMA_TEXT];
    int result = peerdma_job_wait(board, &job, timeout);
    if (!peerdma_job_done(&job)) {
        if (result != -EAGAIN) check(board, result, "cannot wait for a transfer");
        return false;
    }
    if (result) throw error(result, peerdma_event_text(&job.event, text, sizeof(text)));
    return true;
}

// As a timeout of peerdma.h; what is longer than that can be is as long as it can be.
inline int timeout(std::chrono::milliseconds time) {
    using count = std::chrono::milliseconds::rep;
    return static_cast<int>(std::max<count>(0, std::min<count>(time.count(), INT_MAX)));
}

// A board that is open. All members but the destructor may be called by any thread.
class board {
public:
    explicit board(const char *node = nullptr) : board_(new peerdma_board, end) {
        check(get(), peerdma_board_open(get(), node), "cannot open a board");
    }

    peerdma_board *get() const { return board_.get(); }
    // For poll(): dispatch() has something to do when it is readable.
    int fd() const { return board_->fd; }

    peerdma_info info() const {
        peerdma_info found;
        check(get(), peerdma_board_info(get(), &found), "cannot query a board");
        return found;
    }

    // Learns which jobs have ended, without waiting; returns whether any may have.
    bool dispatch() const {
        int result = peerdma_board_dispatch(get());
        if (result == -EAGAIN) return false;
        check(get(), result, "cannot wait for a board");
        return true;
    }

    // Each returns how the transfer went: bytes, time and cycles.
    peerdma_event run(const peerdma_transfer &transfer) const;
    peerdma_event copy(const peerdma_pin &to, std::uint64_t to_offset, const peerdma_pin &from,
                       std::uint64_t from_offset, std::uint64_t length) const {
        return run({PEERDMA_OP_COPY, &to, to_offset, &from, from_offset, length, 0});
    }
    peerdma_event write(std::uint64_t card_address, const peerdma_pin &from,
                        std::uint64_t from_offset, std::uint64_t length) const {
        return run({PEERDMA_OP_H2C, nullptr, card_address, &from, from_offset, length, 0});
    }
    peerdma_event read(const peerdma_pin &to, std::uint64_t to_offset, std::uint64_t card_address,
                       std::uint64_t length) const {
        return run({PEERDMA_OP_C2H, &to, to_offset, nullptr, card_address, length, 0});
    }

private:
    static void end(peerdma_board *board) {
        peerdma_board_close(board);
        delete board;
    }
    std::unique_ptr<peerdma_board, void (*)(peerdma_board *)> board_;
};

// Pinned memory, until it is gone. It is a peerdma_pin for all that takes one.
class pin {
public:
    // Memory of this process
    pin(const board &board, const void *memory, std::size_t length, std::uint32_t access)
        : board_(board.get()) {
        check(board_, peerdma_pin_memory(board_, &pin_, memory, length, access),
              "cannot pin memory");
    }
    // A dma-buf; `length` 0: up to its end
    static pin dma_buf(const board &board, int fd, std::uint64_t offset, std::uint64_t length,
                       std::uint32_t access, std::uint32_t flags = 0) {
        pin made(board);
        int result =
            peerdma_pin_dma_buf(board.get(), &made.pin_, fd, offset, length, access, flags);
        check(board.get(), result, "cannot pin a dma-buf");
        return made;
    }
    // GPU memory by its CUDA address
    static pin address(const board &board, std::uint64_t address, std::uint64_t length) {
        pin made(board);
        int result = peerdma_pin_address(board.get(), &made.pin_, address, length);
        check(board.get(), result, "cannot pin an address of CUDA");
        return made;
    }
#ifdef CUDA_VERSION
    // GPU memory, as a dma-buf where CUDA exports it
    static pin device(const board &board, CUdeviceptr address, std::size_t length,
                      std::uint32_t access, std::uint32_t flags = 0) {
        pin made(board);
        int result = peerdma_pin_device(board.get(), &made.pin_, address, length, access, flags);
        check(board.get(), result, "cannot pin memory of a GPU");
        return made;
    }
#endif
    pin(pin &&other) noexcept : board_(other.board_), pin_(other.pin_) { other.pin_ = {}; }
    pin &operator=(pin &&other) noexcept {
        std::swap(board_, other.board_);
        std::swap(pin_, other.pin_);
        return *this;
    }
    ~pin() { peerdma_unpin(board_, &pin_); }

    operator const peerdma_pin &() const { return pin_; }
    const peerdma_pin *get() const { return &pin_; }

private:
    explicit pin(const board &board) : board_(board.get()), pin_() {}
    peerdma_board *board_;
    peerdma_pin pin_;
};

// A transfer in progress. One that is not waited for is cancelled and waited for at the end.
class job {
public:
    job(const board &board, const peerdma_transfer &transfer)
        : board_(board.get()), job_(new peerdma_job) {
        check(board_, peerdma_job_start(board_, job_.get(), &transfer), "cannot start a transfer");
    }
    job(job &&other) noexcept : board_(other.board_), job_(std::move(other.job_)) {}
    job &operator=(job &&other) noexcept {
        std::swap(board_, other.board_);
        std::swap(job_, other.job_);
        return *this;
    }
    ~job() {
        // A board that is gone does not use the memory.
        int result = job_ ? 0 : -ENODEV;
        while (result != -ENODEV && !done()) {
            cancel();
            result = peerdma_job_wait(board_, job_.get(), 1000);
        }
    }

    bool done() const { return peerdma_job_done(job_.get()); }
    // Waits; returns how it went. Throws if it failed.
    peerdma_event wait() {
        finish(board_, *job_, -1);
        return job_->event;
    }
    // Waits for so long; returns whether it has ended. Throws if it failed.
    bool wait_for(std::chrono::milliseconds time) {
        return finish(board_, *job_, timeout(time));
    }
    void cancel() { peerdma_job_cancel(board_, job_.get()); }

private:
    peerdma_board *board_;
    std::unique_ptr<peerdma_job> job_;
};

inline peerdma_event board::run(const peerdma_transfer &transfer) const {
    return job(*this, transfer).wait();
}

// Frames of the user stream, each into its place, round and round.
class frames {
public:
    frames(const board &board, const std::vector<peerdma_frame> &places)
        : board_(board.get()), frames_(new peerdma_frames) {
        check(board_, peerdma_frames_start(board_, frames_.get(), places.data(),
                                         static_cast<std::uint32_t>(places.size()), nullptr),
                    "cannot receive frames");
    }
    frames(frames &&other) noexcept : board_(other.board_), frames_(std::move(other.frames_)) {}
    frames &operator=(frames &&) = delete;
    ~frames() {
        if (frames_) peerdma_frames_stop(board_, frames_.get());
    }

    // Waits until more than so many have been filled since the start; returns how many have been,
    // which is no more if none came in time. Frame n is in place n modulo their count.
    std::uint64_t wait_for(std::uint64_t seen, std::chrono::milliseconds time) {
        std::uint64_t filled;
        int result = peerdma_frames_wait(board_, frames_.get(), seen, timeout(time), &filled);
        if (result != -EAGAIN) check(board_, result, "frames have ended");
        return filled;
    }
    std::uint64_t released() const { return frames_->released; }
    void release(std::uint64_t count) {
        check(board_, peerdma_frames_release(board_, frames_.get(), count),
                      "cannot give frames back");
    }

private:
    peerdma_board *board_;
    std::unique_ptr<peerdma_frames> frames_;
};

// A launch queue, by which kernels start transfers: device.cuh.
class launch {
public:
    launch(const board &board, void *memory, const peerdma_pin &pin, std::uint32_t depth)
        : board_(board.get()), launch_(new peerdma_launch) {
        check(board_, peerdma_launch_open(board_, launch_.get(), memory, &pin, depth),
                    "cannot open a launch queue");
    }
    launch(launch &&other) noexcept : board_(other.board_), launch_(std::move(other.launch_)) {}
    launch &operator=(launch &&) = delete;
    ~launch() {
        if (launch_) peerdma_launch_close(board_, launch_.get());
    }

    // The number by which kernels start it
    int prepare(const peerdma_transfer &transfer) {
        return check(board_, peerdma_launch_prepare(board_, launch_.get(), &transfer),
                             "cannot prepare a transfer");
    }
    void resume() {
        check(board_, peerdma_launch_resume(board_, launch_.get()), "cannot resume a queue");
    }

#ifdef PEERDMA_DEVICE_CUH
    // What kernels take, which see the memory, and the doorbell unless null, at these addresses.
    peerdma_queue device(void *memory, void *doorbell = nullptr) const {
        char *at = static_cast<char *>(memory);
        peerdma_queue queue = {};
        queue.entries = reinterpret_cast<unsigned long long *>(at + PEERDMA_LAUNCH_ENTRIES);
        queue.records = reinterpret_cast<unsigned long long *>(at + PEERDMA_LAUNCH_RECORDS);
        queue.tail = reinterpret_cast<unsigned *>(at + PEERDMA_LAUNCH_TAIL);
        queue.state = reinterpret_cast<unsigned *>(at + PEERDMA_LAUNCH_STATE);
        queue.next = reinterpret_cast<unsigned *>(at + PEERDMA_LAUNCH_NEXT);
        queue.published = reinterpret_cast<unsigned *>(at + PEERDMA_LAUNCH_PUBLISHED);
        queue.done = reinterpret_cast<unsigned *>(at + PEERDMA_LAUNCH_DONE);
        queue.written = reinterpret_cast<unsigned *>(at + PEERDMA_LAUNCH_WRITTEN);
        queue.doorbell = static_cast<unsigned long long *>(doorbell);
        queue.depth = launch_->depth;
        queue.generation = launch_->generation;
        queue.plans = launch_->plans;
        for (unsigned plan = 0; plan < launch_->plans; plan++)
            queue.slots[plan] = launch_->slots[plan];
        return queue;
    }
#endif

private:
    peerdma_board *board_;
    std::unique_ptr<peerdma_launch> launch_;
};

}  // namespace peerdma

#endif  // PEERDMA_HPP
