// SPDX-License-Identifier: BSD-2-Clause
// Messages of the vfio-user protocol ("vfio-user Protocol Specification" as shipped with QEMU and
// libvfio-user), protocol version 0. All fields are little-endian.
#pragma once

#include <cstdint>

namespace peerdma::wire {

enum Command : uint16_t {
    kVersion = 1,
    kDmaMap = 2,
    kDmaUnmap = 3,
    kGetInfo = 4,
    kGetRegionInfo = 5,
    kGetIrqInfo = 7,
    kSetIrqs = 8,
    kRegionRead = 9,
    kRegionWrite = 10,
    kDmaRead = 11,
    kDmaWrite = 12,
    kReset = 13,
    kWriteMulti = 15,
    kGpuMap = 0x8000,  // of this project alone; the board's version data offers it
};

enum Flags : uint32_t { kTypeMask = 0xF, kReply = 0x1, kNoReply = 0x10, kError = 0x20 };

struct Message {
    uint16_t id, command;
    uint32_t size, flags, error;
};

struct VersionInfo {
    uint16_t major, minor;
};

struct DmaMap {
    enum : uint32_t { kReadable = 1, kWritable = 2 };
    uint32_t argsz, flags;
    uint64_t offset, address, size;
};

// As DmaMap, of memory of a GPU that comes as a file; the reply has why it cannot be mapped, as
// text, and nothing if it is.
struct GpuMap {
    enum : uint32_t { kReadable = 1, kWritable = 2, kMappable = 4 };
    uint32_t argsz, flags;
    uint64_t offset, address, size;  // offset: of the window in the file
    uint64_t file_size, identity;
    uint8_t device[16];
};

struct DmaUnmap {
    enum : uint32_t { kAll = 2 };
    uint32_t argsz, flags;
    uint64_t address, size;
};

struct DeviceInfo {
    enum : uint32_t { kReset = 1, kPci = 2 };
    uint32_t argsz, flags, regions, irqs;
};

struct RegionInfo {
    enum : uint32_t { kRead = 1, kWrite = 2, kMmap = 4, kCapabilities = 8 };
    uint32_t argsz, flags, index, capabilities;
    uint64_t size, offset;
};

// After RegionInfo: the one area of the region that can be mapped, from the file that comes with
// the reply, at the offsets that it has in the region.
struct SparseMmap {
    enum : uint16_t { kId = 1, kVersion = 1 };
    uint16_t id, version;
    uint32_t next, areas, reserved;
    uint64_t offset, size;
};

struct IrqInfo {
    uint32_t argsz, flags, index, count;
};

struct IrqSet {
    uint32_t argsz, flags, index, start, count;
};

struct RegionAccess {
    uint64_t offset;
    uint32_t region, count;
};

// One write of kWriteMulti.
struct MultiWrite {
    RegionAccess access;
    uint8_t data[8];
};

struct DmaAccess {
    uint64_t address, count;
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are read as they come");
static_assert(sizeof(Message) == 16 && sizeof(DmaMap) == 32 && sizeof(GpuMap) == 64 &&
              sizeof(DmaUnmap) == 24 && sizeof(RegionInfo) == 32 && sizeof(SparseMmap) == 32 &&
              sizeof(IrqSet) == 20 && sizeof(MultiWrite) == 24);

enum Region : uint32_t { kConfigRegion = 7, kRegions = 9 };

constexpr uint32_t kMostData = 1 << 20;  // bytes of one read or write
constexpr uint32_t kMostFds = 16;        // of one message

}  // namespace peerdma::wire
