// Headers of checkpoints: any bytes are a header whose tensors lie inside the file, or a UsageError.
#include <cstdlib>
#include <string>

#include "checkpoint/stored.h"
#include "tutti/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::distributed;
  if (size < 2) return 0;
  const std::string header(reinterpret_cast<const char*>(data + 2), size - 2);
  const uint64_t length = header.size();
  const int64_t more = data[1];
  try {
    Catalogue tensors;
    int64_t file_bytes = 0;
    if (data[0] % 3 == 0) {
      parse_metadata(header, "f", true);
      parse_index(header, "f");
    } else if (data[0] % 3 == 1) {
      const std::string text = std::string(reinterpret_cast<const char*>(&length), 8) + header;
      parse_metadata(header, "f", false);
      tensors = parse_safetensors(text, file_bytes = std::ssize(text) + more, "f");
    } else {
      tensors = parse_npy(header, file_bytes = std::ssize(header) + more, "f");
    }
    for (const auto& [name, stored] : tensors)
      if (stored.begin < 0 || stored.begin > file_bytes ||
          tutti::size_bytes(stored.sinfo.shape, stored.sinfo.dtype) > file_bytes - stored.begin)
        std::abort();
  } catch (const tutti::UsageError&) {
  }
  return 0;
}
