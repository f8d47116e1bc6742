// SPDX-License-Identifier: BSD-2-Clause
// What a program that was written for NVIDIA's driver does: only its requests, on /dev/picoevb.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "peerdma_picoevb.h"

#define WORDS (256 * 256)

static int fd;

static void must(int result, const char *what) {
    if (result) {
        perror(what);
        exit(1);
    }
}

static void compare(const void *a, const void *b, size_t size, const char *what) {
    if (memcmp(a, b, size)) {
        fprintf(stderr, "%s: wrong data\n", what);
        exit(1);
    }
}

// Memory to memory by pointers, as with malloc().
static void copy(uint32_t *source, uint32_t *destination) {
    struct peerdma_h2c2h_dma dma = {.src = (uintptr_t)source,
                                    .dst = (uintptr_t)destination,
                                    .len = WORDS * sizeof *source};
    for (uint32_t n = 0; n < WORDS; n++) destination[n] = ~(source[n] = n);
    must(ioctl(fd, PEERDMA_IOC_H2C2H_DMA, &dma), "H2C2H");
    compare(source, destination, dma.len, "H2C2H");
}

// All of card RAM, there and back, by handles as with CUDA memory.
static void fill(uint32_t *source, uint32_t *destination) {
    struct peerdma_card_info card = {0};
    must(ioctl(fd, PEERDMA_IOC_CARD_INFO, &card), "CARD_INFO");
    struct peerdma_pin_cuda s = {.va = (uintptr_t)source, .size = card.fpga_ram_size};
    struct peerdma_pin_cuda d = {.va = (uintptr_t)destination, .size = card.fpga_ram_size};
    must(ioctl(fd, PEERDMA_IOC_PIN_CUDA, &s), "PIN_CUDA");
    must(ioctl(fd, PEERDMA_IOC_PIN_CUDA, &d), "PIN_CUDA");
    struct peerdma_h2c_dma h2c = {
        .src = s.handle, .len = card.fpga_ram_size, .flags = PEERDMA_H2C_SRC_IS_HANDLE};
    struct peerdma_c2h_dma c2h = {
        .dst = d.handle, .len = card.fpga_ram_size, .flags = PEERDMA_C2H_DST_IS_HANDLE};
    memset(destination, 0, card.fpga_ram_size);
    must(ioctl(fd, PEERDMA_IOC_H2C_DMA, &h2c), "H2C");
    must(ioctl(fd, PEERDMA_IOC_C2H_DMA, &c2h), "C2H");
    compare(source, destination, card.fpga_ram_size, "card RAM");
    struct peerdma_unpin_cuda unpin = {.handle = d.handle};
    must(ioctl(fd, PEERDMA_IOC_UNPIN_CUDA, &unpin), "UNPIN_CUDA");
    unpin.handle = s.handle;
    must(ioctl(fd, PEERDMA_IOC_UNPIN_CUDA, &unpin), "UNPIN_CUDA");
    if (!h2c.dma_time_ns || !c2h.dma_time_ns) must(1, "no time was told");
}

int main(void) {
    uint32_t *source = malloc(WORDS * sizeof *source);
    uint32_t *destination = malloc(WORDS * sizeof *destination);
    fd = open("/dev/picoevb", O_RDWR);
    must(fd < 0, "open");
    must(ioctl(fd, PEERDMA_IOC_LED, 3), "LED");
    copy(source, destination);
    fill(source, destination);
    puts("all is well");
    return 0;
}
