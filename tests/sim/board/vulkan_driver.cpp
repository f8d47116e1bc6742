// SPDX-License-Identifier: BSD-2-Clause
// A stand-in for NVIDIA's Vulkan driver: its GPU's memory is ordinary files, as that of the
// stand-in for CUDA. Ends the process if it is used in a way that Vulkan does not allow. What it
// lacks is said by the environment's STANDIN_VULKAN.
#include "vulkan_abi.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace peerdma::vulkan;

namespace {

#define REQUIRE(what)                                                    \
    do {                                                                 \
        if (!(what)) {                                                   \
            fprintf(stderr, "stand-in for Vulkan: not %s\n", #what);     \
            abort();                                                     \
        }                                                                \
    } while (0)

constexpr uint32_t kType = 2;  // the only one that can be mapped
const char kUuid[] = "peerdma stand-in";
uint64_t instance, other_gpu, gpu, device;  // things to point to

struct Allocation {
    int fd;
    uint64_t size;
    void *base;
};
std::map<Memory, Allocation> allocations;
Memory last_memory;
int instances, devices;

bool lacks(const char *what) {
    const char *said = getenv("STANDIN_VULKAN");
    return said && !strcmp(said, what);
}

Handle handle(uint64_t &thing) { return reinterpret_cast<Handle>(&thing); }

Result create_instance(const InstanceCreateInfo *info, const void *, Handle *made) {
    REQUIRE(info->type == kInstanceCreateInfo && info->application->type == kApplicationInfo);
    REQUIRE(info->application->api_version >= kVersion12);  // what is used below is in that
    if (lacks("instance")) return ErrorIncompatibleDriver;
    instances++;
    *made = handle(instance);
    return Success;
}

void destroy_instance(Handle given, const void *) {
    REQUIRE(given == handle(instance) && devices == 0 && instances-- > 0);
}

Result enumerate(Handle, uint32_t *count, Handle *found) {
    REQUIRE(*count >= 2);
    found[0] = handle(other_gpu), found[1] = handle(gpu);
    *count = lacks("gpu") ? 1 : 2;
    return Success;
}

void properties(Handle which, DeviceProperties2 *all) {
    REQUIRE(all->type == kPhysicalDeviceProperties2);
    for (auto *next = static_cast<Header *>(all->next); next;
         next = static_cast<Header *>(next->next)) {
        if (next->type == kPhysicalDeviceIdProperties)
            memcpy(static_cast<IdProperties *>(next)->device,
                   which == handle(gpu) ? kUuid : "another GPU.....", 16);
        else if (next->type == kPhysicalDeviceDriverProperties)
            static_cast<DriverProperties *>(next)->id = lacks("driver") ? 3 : kNvidiaDriver;
        else
            REQUIRE(!"a structure that is known");
    }
}

void memory_properties(Handle, MemoryProperties *all) {
    all->types = 4, all->heaps = 2;
    all->heap[0] = {uint64_t(80) << 30, 1}, all->heap[1] = {uint64_t(200) << 20, 1};
    all->type[0] = {kDeviceLocal, 0};
    all->type[1] = {kDeviceLocal | kHostVisible | kHostCoherent | kHostCached, 0};
    all->type[kType] = {lacks("type") ? kDeviceLocal : kDeviceLocal | kHostVisible | kHostCoherent,
                        1};
    all->type[3] = {kHostVisible | kHostCoherent, 0};
}

void external_buffer(Handle, const ExternalBufferInfo *info, ExternalBufferProperties *can) {
    REQUIRE(info->type == kPhysicalDeviceExternalBufferInfo && info->handle_type == kOpaqueFd);
    REQUIRE(can->type == kExternalBufferProperties && info->usage);
    can->features = lacks("import") ? 0 : kImportable;
}

Result create_device(Handle which, const DeviceCreateInfo *info, const void *, Handle *made) {
    REQUIRE(which == handle(gpu) && info->type == kDeviceCreateInfo && info->queues == 1);
    REQUIRE(info->queue_infos->type == kDeviceQueueCreateInfo && info->queue_infos->count == 1);
    REQUIRE(info->extensions == 1);
    REQUIRE(!strcmp(info->extension_names[0], "VK_KHR_external_memory_fd"));
    if (lacks("device")) return ErrorOutOfDeviceMemory;
    devices++;
    *made = handle(device);
    return Success;
}

void destroy_device(Handle given, const void *) {
    REQUIRE(given == handle(device) && allocations.empty() && devices-- > 0);
}

Result allocate(Handle, const MemoryAllocateInfo *info, const void *, Memory *made) {
    auto *import = static_cast<ImportMemoryFdInfo *>(info->next);
    REQUIRE(info->type == kMemoryAllocateInfo && info->memory_type == kType);
    REQUIRE(import && import->type == kImportMemoryFdInfo && import->handle_type == kOpaqueFd);
    if (lacks("allocate")) return ErrorOutOfDeviceMemory;
    struct stat status;
    REQUIRE(!fstat(import->fd, &status) && uint64_t(status.st_size) == info->size);
    for (auto &[memory, known] : allocations) {
        struct stat other;
        fstat(known.fd, &other);
        REQUIRE(other.st_ino != status.st_ino);  // each is imported once
    }
    *made = ++last_memory;
    allocations[*made] = {import->fd, info->size, nullptr};  // the descriptor is ours now
    return Success;
}

Result map(Handle, Memory memory, uint64_t offset, uint64_t size, uint32_t, void **base) {
    Allocation &found = allocations.at(memory);
    REQUIRE(offset == 0 && size == kWholeSize && !found.base);
    if (lacks("map")) return ErrorOutOfDeviceMemory;
    found.base = mmap(nullptr, found.size, PROT_READ | PROT_WRITE, MAP_SHARED, found.fd, 0);
    REQUIRE(found.base != MAP_FAILED);
    *base = found.base;
    return Success;
}

void free_memory(Handle, Memory memory, const void *) {
    Allocation found = allocations.at(memory);
    if (found.base) munmap(found.base, found.size);
    close(found.fd);
    allocations.erase(memory);
}

}  // namespace

extern "C" Function vk_icdGetInstanceProcAddr(Handle, const char *name) {
    static const std::map<std::string, Function> functions = {
#define ENTRY(name, function) {name, reinterpret_cast<Function>(function)}
        ENTRY("vkCreateInstance", create_instance),
        ENTRY("vkDestroyInstance", destroy_instance),
        ENTRY("vkEnumeratePhysicalDevices", enumerate),
        ENTRY("vkGetPhysicalDeviceProperties2", properties),
        ENTRY("vkGetPhysicalDeviceMemoryProperties", memory_properties),
        ENTRY("vkGetPhysicalDeviceExternalBufferProperties", external_buffer),
        ENTRY("vkCreateDevice", create_device),
        ENTRY("vkDestroyDevice", destroy_device),
        ENTRY("vkAllocateMemory", allocate),
        ENTRY("vkFreeMemory", free_memory),
        ENTRY("vkMapMemory", map),
    };
    auto found = functions.find(name);
    return found == functions.end() ? nullptr : found->second;
}

extern "C" Result vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    return *version < 5 ? ErrorIncompatibleDriver : Success;
}
