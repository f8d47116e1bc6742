// SPDX-License-Identifier: BSD-2-Clause
// The few structures and numbers of Vulkan 1.2 that vulkan.cpp uses: a board has to compile where
// there are no headers of it. From the Vulkan specification, with its names less their prefix.
#pragma once

#include <cstdint>

namespace peerdma::vulkan {

using Handle = struct Opaque *;
using Memory = uint64_t;  // not dispatchable
using Function = void (*)();

enum Result : int32_t { Success = 0, ErrorOutOfDeviceMemory = -2, ErrorIncompatibleDriver = -9 };

enum Type : uint32_t {
    kApplicationInfo = 0,
    kInstanceCreateInfo = 1,
    kDeviceQueueCreateInfo = 2,
    kDeviceCreateInfo = 3,
    kMemoryAllocateInfo = 5,
    kPhysicalDeviceProperties2 = 1000059001,
    kPhysicalDeviceExternalBufferInfo = 1000071002,
    kExternalBufferProperties = 1000071003,
    kPhysicalDeviceIdProperties = 1000071004,
    kImportMemoryFdInfo = 1000074000,
    kPhysicalDeviceDriverProperties = 1000196000,
};

constexpr uint32_t kVersion12 = 1u << 22 | 2u << 12;
constexpr uint32_t kOpaqueFd = 1;    // of VkExternalMemoryHandleTypeFlagBits
constexpr uint32_t kImportable = 4;  // of VkExternalMemoryFeatureFlagBits
constexpr uint32_t kTransferSource = 1, kTransferDestination = 2;
constexpr uint32_t kNvidiaDriver = 4;  // of VkDriverId
constexpr uint32_t kDeviceLocal = 1, kHostVisible = 2, kHostCoherent = 4, kHostCached = 8;
constexpr uint64_t kWholeSize = ~uint64_t(0);

struct Header {
    Type type;
    void *next = nullptr;
};

struct ApplicationInfo : Header {
    const char *name;
    uint32_t version;
    const char *engine;
    uint32_t engine_version, api_version;
};

struct InstanceCreateInfo : Header {
    uint32_t flags;
    const ApplicationInfo *application;
    uint32_t layers;
    const char *const *layer_names;
    uint32_t extensions;
    const char *const *extension_names;
};

struct DeviceQueueCreateInfo : Header {
    uint32_t flags, family, count;
    const float *priorities;
};

struct DeviceCreateInfo : Header {
    uint32_t flags, queues;
    const DeviceQueueCreateInfo *queue_infos;
    uint32_t layers;
    const char *const *layer_names;
    uint32_t extensions;
    const char *const *extension_names;
    const void *features;
};

struct IdProperties : Header {
    uint8_t device[16], driver[16], luid[8];
    uint32_t node_mask, luid_valid;
};

struct DriverProperties : Header {
    uint32_t id;
    char name[256], info[256];
    uint8_t conformance[4];
};

struct DeviceProperties2 : Header {
    uint32_t api_version, driver_version, vendor, device, kind;
    char name[256];
    alignas(8) uint8_t rest[544];  // cache UUID, limits, sparse properties
};

struct MemoryProperties {
    uint32_t types;
    struct {
        uint32_t flags, heap;
    } type[32];
    uint32_t heaps;
    struct {
        uint64_t size;
        uint32_t flags;
    } heap[16];
};

struct ExternalBufferInfo : Header {
    uint32_t flags, usage, handle_type;
};

struct ExternalBufferProperties : Header {
    uint32_t features, export_from_imported, compatible;
};

struct ImportMemoryFdInfo : Header {
    uint32_t handle_type;
    int fd;
};

struct MemoryAllocateInfo : Header {
    uint64_t size;
    uint32_t memory_type;
};

using GetInstanceProcAddr = Function (*)(Handle instance, const char *name);
using CreateInstance = Result (*)(const InstanceCreateInfo *, const void *, Handle *);
using DestroyInstance = void (*)(Handle, const void *);
using EnumeratePhysicalDevices = Result (*)(Handle, uint32_t *, Handle *);
using GetPhysicalDeviceProperties2 = void (*)(Handle, DeviceProperties2 *);
using GetPhysicalDeviceMemoryProperties = void (*)(Handle, MemoryProperties *);
using GetPhysicalDeviceExternalBufferProperties = void (*)(Handle, const ExternalBufferInfo *,
                                                           ExternalBufferProperties *);
using CreateDevice = Result (*)(Handle, const DeviceCreateInfo *, const void *, Handle *);
using DestroyDevice = void (*)(Handle, const void *);
using AllocateMemory = Result (*)(Handle, const MemoryAllocateInfo *, const void *, Memory *);
using FreeMemory = void (*)(Handle, Memory, const void *);
using MapMemory = Result (*)(Handle, Memory, uint64_t offset, uint64_t size, uint32_t flags,
                             void **);
using NegotiateInterface = Result (*)(uint32_t *version);

}  // namespace peerdma::vulkan
