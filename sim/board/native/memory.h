// SPDX-License-Identifier: BSD-2-Clause
// The client's memory by bus address, as DMA_MAP and DMA_UNMAP describe it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "vulkan.h"

namespace peerdma {

class Memory {
public:
    enum class Place { Nowhere, Shared, Gpu, ByMessage };

    struct Piece {
        Place place = Place::Nowhere;
        uint8_t *at = nullptr;  // Shared, Gpu
        size_t n = 0;           // bytes of the wanted range that are there
    };

    // An allocation in a GPU's memory, exported as a file.
    struct GpuFile {
        uint64_t identity;    // the client's number of it, by which it is mapped once; 0: none
        uint64_t size;        // of all of it
        bool mappable;        // by mmap, else by Vulkan
        vulkan::Uuid device;  // the GPU
        int fd;               // stays the caller's
    };

    // Adds a window. `fd` < 0: its bytes can only be accessed by messages. The fd stays the
    // caller's. Returns 0 or an errno: EEXIST if something is mapped there.
    int map(uint64_t address, uint64_t size, bool readable, bool writable, int fd,
            uint64_t offset);
    // Adds a window of a GPU's memory. Returns 0 or an errno; if the memory cannot be mapped, ENXIO
    // and why in `why`.
    int map_gpu(uint64_t address, uint64_t size, bool readable, bool writable, const GpuFile &file,
                uint64_t offset, const std::vector<std::string> &drivers, std::string &why);
    // Removes all windows, and parts of windows, in [address, address + size); 2^64 may be the end.
    void unmap(uint64_t address, uint64_t size);
    void clear() { windows_.clear(), files_.clear(), gpu_files_.clear(), gpus_.clear(); }

    // Where the first bytes of [address, address + n) are; n > 0.
    Piece find(uint64_t address, size_t n, bool write) const;

private:
    struct Backing {
        std::shared_ptr<uint8_t> base;
        size_t size;
        bool writable;
        bool gpu;
    };
    struct Window {
        uint64_t last;  // address of the last byte
        bool readable, writable;
        std::shared_ptr<Backing> backing;  // null: by message
        uint64_t offset;                   // of the first byte in the backing
    };

    int check(uint64_t address, uint64_t size, bool readable, bool writable) const;
    int back(Window &window, uint64_t size, int fd, uint64_t offset);

    std::map<uint64_t, Window> windows_;  // by first address
    // Behind an IOMMU the client maps a file page by page; here each file is mapped once.
    std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<Backing>> files_;
    std::map<uint64_t, std::weak_ptr<Backing>> gpu_files_;  // by identity
    std::map<vulkan::Uuid, std::shared_ptr<void>> gpus_;    // in use since the last clear()
};

using Copy = void (*)(uint8_t *to, const uint8_t *from, size_t n);

// Copies to or from memory whose file the client may have truncated; false if a page is missing.
bool guarded(Copy copy, uint8_t *to, const uint8_t *from, size_t n);

// While an instance exists, guarded copies survive a missing page (SIGBUS).
class BusErrorGuard {
public:
    BusErrorGuard();
    ~BusErrorGuard();
};

}  // namespace peerdma
