#include "collective/node/peer_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "core/arena.h"
#include "tutti/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tutti::detail {
namespace {

constexpr size_t kPiece = Arena::kLeast;

}  // namespace

Operand operand_of(Buffer buffer, const NodePlane& node) {
  if (!buffer.data) return {.where = Operand::Where::kNone};
  const auto size = static_cast<uint64_t>(buffer.size_bytes());
  if (node.one_process)
    return {.where = Operand::Where::kHere, .offset = reinterpret_cast<uint64_t>(buffer.data), .size_bytes = size};
  const auto place = Arena::here().find(buffer.data, size);
  if (!place) return {};
  return {.where = Operand::Where::kArena, .fd = place->fd, .extent = place->extent, .offset = place->offset, .size_bytes = size};
}

char* PeerMemory::map(int worker, const Operand& operand, int64_t begin, int64_t size_bytes) {
  if (operand.where == Operand::Where::kHere) return reinterpret_cast<char*>(operand.offset) + begin;
  const auto [it, is_new] = extents_.try_emplace({worker, operand.extent});
  Extent& extent = it->second;
  if (is_new) try {
      extent.memory = SharedMemory::open(pid_(worker), operand.fd);
      extent.memory.close_fd();                                                    // they would be many
      ::madvise(extent.memory.data(), extent.memory.size_bytes(), MADV_DONTDUMP);  // its owner's core has it
      extent.touched.assign(extent.memory.size_bytes() / kPiece, false);
    } catch (const std::exception& error) {
      extents_.erase(it);
      throw SystemError(fmt::format(
          "the memory of worker {}'s tensors can't be mapped: {}; raise the limit (ulimit -n, -v), or set TUTTI_ARENA=0", worker,
          error.what()));
    }
  const size_t first = operand.offset + static_cast<uint64_t>(begin), end = first + static_cast<uint64_t>(size_bytes);
  if (end < first || end > extent.memory.size_bytes())
    throw SystemError(
        fmt::format("worker {} says that its operand lies at {} to {}, expected inside of its {} bytes; do all ranks run the "
                    "same version of tutti?",
                    worker, first, end, extent.memory.size_bytes()));
  // what is new all at once: faster than a fault for each page
  for (size_t at = first / kPiece; at < (end + kPiece - 1) / kPiece; ++at) {
    if (extent.touched[at]) continue;
    size_t last = at;
    while (last < (end + kPiece - 1) / kPiece && !extent.touched[last]) extent.touched[last++] = true;
    ::madvise(extent.memory.data() + at * kPiece, (last - at) * kPiece, MADV_POPULATE_WRITE);
    at = last;
  }
  return reinterpret_cast<char*>(extent.memory.data()) + first;
}

}  // namespace tutti::detail
