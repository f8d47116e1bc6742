// SPDX-License-Identifier: BSD-2-Clause
// Maps a GPU's memory that another process has exported: CUDA's files can only be mapped by Vulkan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace peerdma::vulkan {

using Uuid = std::array<uint8_t, 16>;

struct Mapping {
    std::shared_ptr<uint8_t> base;  // the memory is let go with the last of its users
    std::string why;                // there is none
    std::shared_ptr<void> gpu;      // opened, which takes a fraction of a second
};

// Imports all of the `size` bytes behind `fd`, which stays the caller's, into the GPU `device`.
// `drivers` are libraries to try, Vulkan's loader or drivers themselves; none is loaded before. The
// GPU is closed when nothing of it is mapped and nobody keeps it open.
Mapping map(const std::vector<std::string> &drivers, const Uuid &device, int fd, uint64_t size);

}  // namespace peerdma::vulkan
