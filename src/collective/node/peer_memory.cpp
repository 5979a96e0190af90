#include "collective/node/peer_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "core/arena.h"
#include "tutti/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tutti {
namespace {

constexpr size_t kPiece = Arena::kLeast;

}  // namespace

Operand operand_of(Buffer buffer, const NodePlane& node) {
  if (!buffer.data) return {};
  const auto size = static_cast<uint64_t>(buffer.size_bytes());
  if (node.one_process) return {.where = Operand::Where::kHere, .offset = reinterpret_cast<uint64_t>(buffer.data), .size_bytes = size};
  const auto place = Arena::here().find(buffer.data, size);
  if (!place) return {};
  return {.where = Operand::Where::kArena, .fd = place->fd, .extent = place->extent, .offset = place->offset, .size_bytes = size};
}

char* PeerMemory::map(int worker, const Operand& operand) {
  if (operand.where == Operand::Where::kHere) return reinterpret_cast<char*>(operand.offset);
  const auto [it, is_new] = extents_.try_emplace({worker, operand.extent});
  Extent& extent = it->second;
  if (is_new) try {
    extent.memory = SharedMemory::open(pid_(worker), operand.fd);
    extent.touched.assign(extent.memory.size_bytes() / kPiece, false);
  } catch (...) {
    extents_.erase(it);
    throw;
  }
  const uint64_t size = operand.size_bytes;
  if (operand.offset > extent.memory.size_bytes() || size > extent.memory.size_bytes() - operand.offset)
    throw SystemError(fmt::format("worker {} says its operand lies at {} of {} bytes", worker, operand.offset, extent.memory.size_bytes()));
  // all at once is faster than a fault for each page
  const size_t begin = operand.offset / kPiece, end = (operand.offset + size + kPiece - 1) / kPiece;
  size_t first = begin;
  while (first < end && extent.touched[first]) ++first;
  if (first < end) {
    ::madvise(extent.memory.data() + first * kPiece, (end - first) * kPiece, MADV_POPULATE_WRITE);
    std::fill(extent.touched.begin() + static_cast<ptrdiff_t>(first), extent.touched.begin() + static_cast<ptrdiff_t>(end), true);
  }
  return reinterpret_cast<char*>(extent.memory.data()) + operand.offset;
}

}  // namespace tutti
