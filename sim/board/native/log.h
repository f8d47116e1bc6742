// SPDX-License-Identifier: BSD-2-Clause
// Log lines for the person who runs the board; the caller of the library collects and prints them.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <utility>

namespace peerdma {

class Log {
public:
    // A client can provoke any number of lines; more than this many per client are only counted.
    static constexpr unsigned kLimit = 500;

    __attribute__((format(printf, 2, 3))) void operator()(const char *format, ...) {
        if (++lines_ > kLimit) return;
        char line[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        text_ += line;
        text_ += '\n';
        if (lines_ == kLimit) text_ += "further lines are suppressed until the client leaves\n";
    }

    bool empty() const { return text_.empty(); }

    // All lines since the last call, each ending in a newline.
    std::string take() { return std::exchange(text_, {}); }

    // Restarts the count of lines; logs how many were not shown.
    void restart() {
        unsigned hidden = lines_ > kLimit ? lines_ - kLimit : 0;
        lines_ = 0;
        if (hidden) (*this)("%u further lines were suppressed", hidden);
        lines_ = 0;
    }

private:
    std::string text_;
    unsigned lines_ = 0;
};

}  // namespace peerdma
