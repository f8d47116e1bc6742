// SPDX-License-Identifier: BSD-2-Clause
// Has the board write into memory of a GPU, and checks there what has arrived: CUDA's driver API.
//
//     nvcc -std=c++17 -I "$(python3 -c 'import peerdma; print(peerdma.include_dir())')"
//         gpu.cpp -o gpu -lcuda
//     ./gpu [node]
#include <cuda.h>  // before peerdma.hpp, which then has peerdma::pin::device

#include <peerdma/peerdma.hpp>

#include <cstdlib>
#include <iostream>

namespace {

void require(CUresult result, const char *what) {
    const char *name = nullptr;
    if (result == CUDA_SUCCESS) return;
    cuGetErrorName(result, &name);
    throw std::runtime_error(std::string(what) + ": " + (name ? name : "an unknown error"));
}

// A GPU's first context, and memory in it.
struct gpu_memory {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr address = 0;

    explicit gpu_memory(std::size_t bytes) {
        require(cuInit(0), "cannot use CUDA");
        require(cuDeviceGet(&device, 0), "there is no GPU");
        require(cuDevicePrimaryCtxRetain(&context, device), "cannot use the GPU");
        if (cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&address, bytes) != CUDA_SUCCESS) {
            cuDevicePrimaryCtxRelease(device);
            throw std::runtime_error("cannot allocate memory of the GPU");
        }
    }
    gpu_memory(const gpu_memory &) = delete;
    gpu_memory &operator=(const gpu_memory &) = delete;
    ~gpu_memory() {
        cuMemFree(address);
        cuDevicePrimaryCtxRelease(device);
    }
};

}  // namespace

int main(int count, char **arguments) {
    try {
        std::vector<std::uint32_t> source(1 << 18), found(source.size());
        std::size_t bytes = source.size() * sizeof(source[0]);
        for (std::size_t at = 0; at < source.size(); at++)
            source[at] = static_cast<std::uint32_t>(at * 2654435761u);

        gpu_memory memory(bytes);  // outlives its pin
        peerdma::board board(count > 1 ? arguments[1] : nullptr);
        peerdma::pin from(board, source.data(), bytes, peerdma::read);
        peerdma::pin to = peerdma::pin::device(board, memory.address, bytes, peerdma::write);
        peerdma_event event = board.copy(to, 0, from, 0, bytes);

        require(cuMemcpyDtoH(found.data(), memory.address, bytes), "cannot read the GPU's memory");
        if (found != source) {
            std::cerr << "gpu: the bytes are others\n";
            return EXIT_FAILURE;
        }
        std::cout << bytes << " bytes in " << double(event.time_ns) / 1e6 << " ms, verified\n";
        return EXIT_SUCCESS;
    } catch (const std::exception &error) {
        std::cerr << "gpu: " << error.what() << "\n";
        return EXIT_FAILURE;
    }
}
