// SPDX-License-Identifier: BSD-2-Clause
#include "vulkan.h"

#include "vulkan_abi.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <stdexcept>
#include <unistd.h>

namespace peerdma::vulkan {

namespace {

const char *const kImportFd = "VK_KHR_external_memory_fd";
// The interface between loader and driver in which drivers have all that is used here.
constexpr uint32_t kDriverInterface = 5;
constexpr uint32_t kMostDevices = 64;

[[noreturn]] void fail(const std::string &why) { throw std::runtime_error(why); }

void require(Result result, const char *what) {
    if (result == ErrorOutOfDeviceMemory)
        fail(std::string(what) + " failed, as the GPU has no room for it");
    if (result != Success) fail(std::string(what) + " failed with " + std::to_string(result));
}

// A loaded library that has Vulkan; it is never unloaded, as drivers leave threads behind.
GetInstanceProcAddr load(const std::string &driver) {
    void *library = dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    if (void *found = dlsym(library, "vkGetInstanceProcAddr"))
        return reinterpret_cast<GetInstanceProcAddr>(found);
    auto negotiate = reinterpret_cast<NegotiateInterface>(
        dlsym(library, "vk_icdNegotiateLoaderICDInterfaceVersion"));
    uint32_t version = kDriverInterface;
    if (negotiate && negotiate(&version) != Success) return nullptr;
    return reinterpret_cast<GetInstanceProcAddr>(dlsym(library, "vk_icdGetInstanceProcAddr"));
}

// One GPU, opened.
class Gpu {
public:
    Gpu(const std::string &driver, const Uuid &wanted) : get_(load(driver)) {
        if (!get_) {
            const char *error = dlerror();
            fail(error ? error : driver + " has no Vulkan that is new enough");
        }
        ApplicationInfo application = {{kApplicationInfo}, "peerdma", 0, nullptr, 0, kVersion12};
        InstanceCreateInfo info = {{kInstanceCreateInfo}, 0, &application, 0, nullptr, 0, nullptr};
        require(function<CreateInstance>("vkCreateInstance")(&info, nullptr, &instance_),
                "vkCreateInstance");
        try {
            find(wanted);
            choose_type();
            open();
        } catch (...) {
            close();
            throw;
        }
    }
    ~Gpu() { close(); }
    Gpu(const Gpu &) = delete;

    uint8_t *map(int fd, uint64_t size, Memory *memory) {
        if (size > heap_)
            fail("it has " + std::to_string(size >> 20) + " MiB, and the GPU shows the CPU " +
                 std::to_string(heap_ >> 20) + " MiB of its memory at a time (BAR1)");
        ImportMemoryFdInfo import = {{kImportMemoryFdInfo}, kOpaqueFd, dup(fd)};
        MemoryAllocateInfo info = {{kMemoryAllocateInfo, &import}, size, type_};
        Result result =
            function<AllocateMemory>("vkAllocateMemory")(device_, &info, nullptr, memory);
        if (result != Success) ::close(import.fd);  // else it is Vulkan's
        require(result, "its import (vkAllocateMemory)");
        void *base = nullptr;
        result = function<MapMemory>("vkMapMemory")(device_, *memory, 0, kWholeSize, 0, &base);
        if (result != Success) free(*memory);
        require(result, "mapping it for the CPU (vkMapMemory)");
        return static_cast<uint8_t *>(base);
    }
    // Unmaps it, too.
    void free(Memory memory) { function<FreeMemory>("vkFreeMemory")(device_, memory, nullptr); }

private:
    template <class F> F function(const char *name) const {
        Function found = get_(instance_, name);
        if (!found) fail(std::string("Vulkan has no ") + name);
        return reinterpret_cast<F>(found);
    }

    void find(const Uuid &wanted) {
        Handle devices[kMostDevices];
        uint32_t count = kMostDevices;
        function<EnumeratePhysicalDevices>("vkEnumeratePhysicalDevices")(instance_, &count,
                                                                         devices);
        auto properties =
            function<GetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2");
        for (uint32_t each = 0; each < count; each++) {
            DriverProperties driver = {};
            driver.type = kPhysicalDeviceDriverProperties;
            IdProperties id = {};
            id.type = kPhysicalDeviceIdProperties, id.next = &driver;
            DeviceProperties2 all = {};
            all.type = kPhysicalDeviceProperties2, all.next = &id;
            properties(devices[each], &all);
            // Other drivers of the same GPU cannot import what CUDA exports.
            if (std::equal(wanted.begin(), wanted.end(), id.device) && driver.id == kNvidiaDriver)
                physical_ = devices[each];
        }
        if (!physical_)
            fail("Vulkan does not have this GPU (" + std::to_string(count) +
                 " devices): of an MIG instance it has none");
        ExternalBufferInfo info = {{kPhysicalDeviceExternalBufferInfo}, 0,
                                   kTransferSource | kTransferDestination, kOpaqueFd};
        ExternalBufferProperties can = {{kExternalBufferProperties}, 0, 0, 0};
        function<GetPhysicalDeviceExternalBufferProperties>(
            "vkGetPhysicalDeviceExternalBufferProperties")(physical_, &info, &can);
        if (!(can.features & kImportable)) fail("its driver imports no memory of other processes");
    }

    void choose_type() {
        constexpr uint32_t kNeeded = kDeviceLocal | kHostVisible | kHostCoherent;
        MemoryProperties all = {};
        function<GetPhysicalDeviceMemoryProperties>("vkGetPhysicalDeviceMemoryProperties")(
            physical_, &all);
        for (uint32_t each = 0; each < all.types; each++)
            if ((all.type[each].flags & (kNeeded | kHostCached)) == kNeeded) {
                type_ = each, heap_ = all.heap[all.type[each].heap].size;
                return;
            }
        fail("the GPU shows the CPU none of its memory (no memory type is device-local, "
             "host-visible and host-coherent)");
    }

    void open() {
        float priority = 1;
        DeviceQueueCreateInfo queue = {{kDeviceQueueCreateInfo}, 0, 0, 1, &priority};
        DeviceCreateInfo info = {{kDeviceCreateInfo}, 0, 1, &queue, 0, nullptr, 1, &kImportFd,
                                 nullptr};
        require(function<CreateDevice>("vkCreateDevice")(physical_, &info, nullptr, &device_),
                "vkCreateDevice");
    }

    void close() {
        if (device_) function<DestroyDevice>("vkDestroyDevice")(device_, nullptr);
        if (instance_) function<DestroyInstance>("vkDestroyInstance")(instance_, nullptr);
    }

    GetInstanceProcAddr get_;
    Handle instance_ = nullptr, physical_ = nullptr, device_ = nullptr;
    uint32_t type_ = 0;
    uint64_t heap_ = 0;
};

std::shared_ptr<Gpu> open(const std::vector<std::string> &drivers, const Uuid &device) {
    static std::map<Uuid, std::weak_ptr<Gpu>> opened;
    if (auto known = opened[device].lock()) return known;
    std::string why;
    for (const std::string &driver : drivers) {
        try {
            auto gpu = std::make_shared<Gpu>(driver, device);
            opened[device] = gpu;
            return gpu;
        } catch (const std::runtime_error &error) {
            why += (why.empty() ? "" : "; ") + std::string(error.what());
        }
    }
    fail("the board found no Vulkan that has it (" + why +
         "). Install NVIDIA's driver with its graphics libraries; a container needs the driver's "
         "\"graphics\" capability (NVIDIA_DRIVER_CAPABILITIES)");
}

}  // namespace

Mapping map(const std::vector<std::string> &drivers, const Uuid &device, int fd, uint64_t size) {
    try {
        auto gpu = open(drivers, device);
        Memory memory = 0;
        uint8_t *base = gpu->map(fd, size, &memory);
        return {{base, [gpu, memory](uint8_t *) { gpu->free(memory); }}, "", gpu};
    } catch (const std::runtime_error &error) {
        return {nullptr, error.what(), nullptr};
    }
}

}  // namespace peerdma::vulkan
