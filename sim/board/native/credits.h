// SPDX-License-Identifier: BSD-2-Clause
// Flow control credits of one kind of request, as the sender sees them.
#pragma once

#include <algorithm>
#include <deque>

namespace peerdma {

class Credits {
public:
    // Of headers and of units of data, 0: without limit. A TLP that was received gives its own back
    // `delay` cycles later.
    Credits(unsigned headers, unsigned data, double delay)
        : headers_(headers), data_(data), delay_(delay) {}

    // When a TLP with so many units of data may start, not before `ready`.
    double when(double ready, unsigned data) const {
        unsigned headers = 1;
        for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) {
            headers++, data += use->data;
            if ((headers_ && headers > headers_) || (data_ && data > data_))
                return std::max(ready, use->back);
        }
        return ready;
    }
    // A TLP starts, and is received at `finish`.
    void use(double start, double finish, unsigned data) {
        if (headers_ || data_) uses_.push_back({start, finish + delay_, data});
    }
    void advance(double now) {
        while (!uses_.empty() && uses_.front().back <= now) uses_.pop_front();
    }
    void flush() { uses_.clear(); }

    // What is left of a limit; `unlimited` if there is none.
    unsigned headers_left(double now, unsigned unlimited) const {
        return headers_ ? headers_ - std::min(headers_, used(now, false)) : unlimited;
    }
    unsigned data_left(double now, unsigned unlimited) const {
        return data_ ? data_ - std::min(data_, used(now, true)) : unlimited;
    }

private:
    struct Use {
        double start, back;  // cycles
        unsigned data;
    };
    unsigned used(double now, bool data) const {
        unsigned sum = 0;
        for (const Use &use : uses_)
            if (use.start <= now) sum += data ? use.data : 1;
        return sum;
    }

    unsigned headers_, data_;
    double delay_;
    std::deque<Use> uses_;  // oldest first
};

}  // namespace peerdma
