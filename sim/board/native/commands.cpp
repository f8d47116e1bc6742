// SPDX-License-Identifier: BSD-2-Clause
// The commands of a vfio-user client. Each handler returns 0 or the errno of the reply.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <unistd.h>

#include "server.h"

namespace peerdma {

namespace {

constexpr size_t kMostJson = 4096;

// The structure at the start of a message body; false if the body is too short.
template <class Record> bool parse(const std::vector<uint8_t> &body, Record &record) {
    if (body.size() < sizeof record) return false;
    memcpy(&record, body.data(), sizeof record);
    return true;
}

template <class Record> void append(std::vector<uint8_t> &reply, const Record &record) {
    auto *bytes = reinterpret_cast<const uint8_t *>(&record);
    reply.insert(reply.end(), bytes, bytes + sizeof record);
}

// What memory is called in a trace: the name of its file, or "client" if that serves it by messages.
std::string name_of(int fd) {
    if (fd < 0) return "client";
    char target[256];
    std::string link = "/proc/self/fd/" + std::to_string(fd);
    ssize_t n = readlink(link.c_str(), target, sizeof target);
    std::string name(target, std::max<ssize_t>(n, 0));
    name = name.substr(0, name.find(" (deleted)"));
    return name.substr(name.find_last_of("/:") + 1);
}

}  // namespace

void Server::handle() {
    wire::Message message = client_->message;
    bool later = false;
    Bytes reply;
    int error = message.flags & wire::kTypeMask ? EINVAL : command(reply, later);
    if (!client_ || later) return;
    if (error)
        log_("command %u (%zu bytes, %zu fds) refused: %s", message.command, client_->body.size(),
             client_->fds.size(), strerror(error));
    if (message.flags & wire::kNoReply) return;
    message.flags = wire::kReply;
    if (error) message.flags |= wire::kError;
    message.error = error;
    client_->send(message, reply.data(), error ? 0 : reply.size());
}

int Server::command(Bytes &reply, bool &later) {
    if (client_->fds.size() > wire::kMostFds) return E2BIG;
    uint16_t command = client_->message.command;
    if (!negotiated_ && command != wire::kVersion) return EPROTO;
    switch (command) {
        case wire::kVersion: return negotiate(reply);
        case wire::kDmaMap: return dma_map();
        case wire::kGpuMap: return gpu_map(reply);
        case wire::kDmaUnmap: return dma_unmap(reply);
        case wire::kGetInfo: return device_info(reply);
        case wire::kGetRegionInfo: return region_info(reply);
        case wire::kGetIrqInfo: return irq_info(reply);
        case wire::kSetIrqs: return set_irqs();
        case wire::kRegionRead: return region_read(reply, later);
        case wire::kRegionWrite: return region_write(reply);
        case wire::kWriteMulti: return write_multi(reply);
        case wire::kReset: return reset();
        default: return EOPNOTSUPP;
    }
}

int Server::negotiate(Bytes &reply) {
    wire::VersionInfo version;
    const Bytes &body = client_->body;
    if (negotiated_ || !parse(body, version)) return EINVAL;
    size_t n = body.size() - sizeof version;
    if (n > kMostJson) return E2BIG;
    const char *json = reinterpret_cast<const char *>(body.data()) + sizeof version;
    if (n && json[--n] != 0) return EINVAL;
    char ours[kMostJson];
    int length = negotiate_(version.major, version.minor, json, n, ours, sizeof ours, &most_data_);
    if (length < 0) return -length;
    append(reply, wire::VersionInfo{version.major, 0});
    reply.insert(reply.end(), ours, ours + length);
    reply.push_back(0);
    negotiated_ = true;
    return 0;
}

// Memory -------------------------------------------------------------------------------------

int Server::dma_map() {
    wire::DmaMap map;
    if (!parse(client_->body, map) || client_->body.size() != sizeof map) return EINVAL;
    if (map.argsz < sizeof map || client_->fds.size() > 1) return EINVAL;
    if (map.flags & ~(map.kReadable | map.kWritable)) return EINVAL;
    int fd = client_->fds.empty() ? -1 : client_->fds[0];
    int error = memory_.map(map.address, map.size, map.flags & map.kReadable,
                            map.flags & map.kWritable, fd, map.offset);
    if (!error) trace_map(map.address, map.size, model_.trace().captures() ? name_of(fd) : "");
    return error;
}

int Server::gpu_map(Bytes &reply) {
    wire::GpuMap map;
    if (!parse(client_->body, map) || client_->body.size() != sizeof map) return EINVAL;
    if (map.argsz < sizeof map || client_->fds.size() != 1) return EINVAL;
    if (map.flags & ~(map.kReadable | map.kWritable | map.kMappable)) return EINVAL;
    Memory::GpuFile file = {map.identity, map.file_size, bool(map.flags & map.kMappable), {},
                            client_->fds[0]};
    memcpy(file.device.data(), map.device, sizeof map.device);
    std::string why;
    int error = memory_.map_gpu(map.address, map.size, map.flags & map.kReadable,
                                map.flags & map.kWritable, file, map.offset, options_.vulkan, why);
    if (!error) trace_map(map.address, map.size, "aperture");
    if (error != ENXIO) return error;
    log_("memory of a GPU is not mapped: %s", why.c_str());
    reply.insert(reply.end(), why.begin(), why.end());
    return 0;
}

void Server::trace_map(uint64_t address, uint64_t size, const std::string &name) {
    model_.trace().event(model_.cycle(), "map address=0x%llx size=0x%llx memory=%s",
                         (unsigned long long)address, (unsigned long long)size, name.c_str());
}

int Server::dma_unmap(Bytes &reply) {
    wire::DmaUnmap unmap;
    if (!parse(client_->body, unmap) || client_->body.size() != sizeof unmap) return EINVAL;
    if (unmap.argsz < sizeof unmap || (unmap.flags & ~unmap.kAll)) return EINVAL;
    if (unmap.flags & unmap.kAll)
        memory_.clear();
    else
        memory_.unmap(unmap.address, unmap.size);
    model_.trace().event(model_.cycle(), "unmap address=0x%llx size=0x%llx",
                         (unsigned long long)unmap.address, (unsigned long long)unmap.size);
    append(reply, unmap);
    return 0;
}

// Description --------------------------------------------------------------------------------

int Server::device_info(Bytes &reply) {
    wire::DeviceInfo info;
    if (!parse(client_->body, info) || info.argsz < sizeof info) return EINVAL;
    append(reply, wire::DeviceInfo{sizeof info, info.kReset | info.kPci, wire::kRegions,
                                   Interrupts::kIndices});
    return 0;
}

uint64_t Server::region_size(uint32_t region) const {
    if (region == wire::kConfigRegion) return ConfigSpace::kSize;
    return region < 6 ? model_.config().bar_size(region) : 0;
}

int Server::region_info(Bytes &reply) {
    wire::RegionInfo info;
    if (!parse(client_->body, info) || info.argsz < sizeof info) return EINVAL;
    if (info.index >= wire::kRegions) return EINVAL;
    uint64_t size = region_size(info.index);
    uint32_t flags = size ? info.kRead | info.kWrite : 0, room = info.argsz;
    if (!pages_ || info.index != options_.pages_bar) {
        append(reply, wire::RegionInfo{sizeof info, flags, info.index, 0, size, 0});
        return 0;
    }
    uint32_t whole = sizeof info + sizeof(wire::SparseMmap);
    flags |= info.kMmap | info.kCapabilities;
    bool fits = room >= whole;  // else the client repeats the request with the size in the reply
    append(reply, wire::RegionInfo{whole, flags, info.index, fits ? uint32_t(sizeof info) : 0, size,
                                   0});
    if (!fits) return 0;
    append(reply, wire::SparseMmap{wire::SparseMmap::kId, wire::SparseMmap::kVersion, 0, 1, 0,
                                   pages_->offset(), pages_->size()});
    client_->attach(pages_->fd());
    return 0;
}

int Server::irq_info(Bytes &reply) {
    wire::IrqInfo info;
    if (!parse(client_->body, info) || info.argsz < sizeof info) return EINVAL;
    if (info.index >= Interrupts::kIndices) return EINVAL;
    append(reply, wire::IrqInfo{sizeof info, interrupts_->info(info.index), info.index,
                                interrupts_->vectors(info.index)});
    return 0;
}

// Interrupts ---------------------------------------------------------------------------------

int Server::set_irqs() {
    wire::IrqSet set;
    if (!parse(client_->body, set) || set.argsz < sizeof set) return EINVAL;
    Interrupts::Setup setup = {set.flags, set.index, set.start, set.count,
                               client_->body.data() + sizeof set,
                               client_->body.size() - sizeof set};
    int error = interrupts_->set(setup, client_->fds);
    if (error) return error;
    if (set.index == Interrupts::Msix && (set.flags & Interrupts::kDataEventfd))
        program_msix(set.start, set.count);
    model_.refresh();
    return 0;
}

void Server::program_msix(uint32_t start, uint32_t count) {
    // The client does not pass on its user's table and connects eventfds instead. The core's table
    // is filled in here, so that its messages reach the root complex.
    const ConfigSpace &config = model_.config();
    for (uint32_t vector = start; vector < start + count; vector++) {
        uint64_t address = Root::kMsixWindow + 4 * vector;
        uint32_t masked = !interrupts_->connected(Interrupts::Msix, vector);
        uint32_t entry[4] = {uint32_t(address), uint32_t(address >> 32), vector, masked};
        model_.root().mmio_write(config.msix_bar(), config.msix_table() + sizeof entry * vector,
                                 reinterpret_cast<uint8_t *>(entry), sizeof entry);
    }
}

// Regions ------------------------------------------------------------------------------------

int Server::region_read(Bytes &reply, bool &later) {
    wire::RegionAccess access;
    if (!parse(client_->body, access) || client_->body.size() != sizeof access) return EINVAL;
    uint64_t size = region_size(access.region);
    if (access.count == 0 || access.count > size || access.offset > size - access.count)
        return EINVAL;
    if (access.region == wire::kConfigRegion) {
        append(reply, access);
        reply.resize(reply.size() + access.count);
        model_.config().read(access.offset, &reply[sizeof access], access.count);
        return 0;
    }
    take_pages();
    later = true;
    waiting_[next_cookie_] = {client_->message, access};
    model_.mmio_read(access.region, access.offset, access.count, next_cookie_++);
    return 0;
}

int Server::write_region(const wire::RegionAccess &access, const uint8_t *data) {
    uint64_t size = region_size(access.region);
    if (access.count == 0 || access.count > size || access.offset > size - access.count)
        return EINVAL;
    if (access.region == wire::kConfigRegion) {
        model_.config_write(access.offset, data, access.count);
        interrupts_->refresh();
    } else {
        take_pages();
        model_.mmio_write(access.region, access.offset, data, access.count);
    }
    return 0;
}

int Server::region_write(Bytes &reply) {
    wire::RegionAccess access;
    if (!parse(client_->body, access)) return EINVAL;
    if (client_->body.size() != sizeof access + access.count) return EINVAL;
    int error = write_region(access, client_->body.data() + sizeof access);
    append(reply, access);
    return error;
}

int Server::write_multi(Bytes &reply) {
    uint64_t count;
    const Bytes &body = client_->body;
    if (!parse(body, count)) return EINVAL;
    size_t writes = (body.size() - sizeof count) / sizeof(wire::MultiWrite);
    if (count != writes || body.size() != sizeof count + writes * sizeof(wire::MultiWrite))
        return EINVAL;
    int error = 0;
    for (size_t i = 0; i < writes; i++) {
        wire::MultiWrite write;
        memcpy(&write, &body[sizeof count + i * sizeof write], sizeof write);
        int failed = write.access.count > sizeof write.data
                         ? EINVAL
                         : write_region(write.access, write.data);
        if (failed) error = failed;
    }
    append(reply, count);
    return error;
}

int Server::reset() {
    log_("the client reset the device");
    model_.config().has_function_reset() ? model_.reset_function() : model_.reset();
    interrupts_->reset();
    return 0;
}

}  // namespace peerdma
