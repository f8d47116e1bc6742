// SPDX-License-Identifier: BSD-2-Clause
// A program of 32 bits, without a library: both generations of requests. Ends with status 42, or
// with the number of the step that failed.
#include "peerdma_uapi.h"

enum { EXIT = 1, OPEN = 5, IOCTL = 54 };

static int call(int number, long a, long b, long c) {
    int result;
    asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

static void check(int step, int good) {
    if (!good) call(EXIT, step, 0, 0);
}

static char memory[8192];
static struct peerdma_info info;
static struct peerdma_pin_pages pages;

void _start(void) {
    int fd = call(OPEN, (long)"/dev/picoevb", 2, 0);
    check(1, fd >= 0);
    check(2, !call(IOCTL, fd, PEERDMA_IOC_LED, 3));
    // Without the padding that it has on 64 bits, and therefore of another code.
    struct peerdma_pin_cuda pin = {.va = (unsigned long)memory, .size = 4096};
    check(3, !call(IOCTL, fd, PEERDMA_IOC_PIN_CUDA, (long)&pin) && pin.handle == 1);
    struct peerdma_h2c_dma h2c = {.src = pin.handle, .dst = 16, .len = 4096, .flags = 1};
    check(4, !call(IOCTL, fd, PEERDMA_IOC_H2C_DMA, (long)&h2c) && h2c.dma_time_ns);
    pages.size = sizeof pages;
    pages.address = (unsigned long)memory;
    pages.length = 100;
    pages.access = PEERDMA_ACCESS_READ | PEERDMA_ACCESS_WRITE;
    check(5, !call(IOCTL, fd, PEERDMA_IOC_PIN_PAGES, (long)&pages) && pages.handle == 2);
    info.size = sizeof info;
    check(6, !call(IOCTL, fd, PEERDMA_IOC_GET_INFO, (long)&info) && info.card_ram_size == 65536);
    call(EXIT, 42, 0, 0);
}
