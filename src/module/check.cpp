#include "module/check.h"

#include <fmt/format.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "module/object.h"

namespace tutti::ffi {
namespace {

constexpr uintptr_t kPage = 4096;
constexpr int32_t kMostDimensions = 64;
constexpr int kMostDepth = 32;

/// The kernel reads 8 bytes before it looks at `how`, which is none it knows: EFAULT if it can't, else EINVAL.
bool word_is_readable(uintptr_t address) {
  if (address < kPage) return false;  // null means no set
  return syscall(SYS_rt_sigprocmask, ~0, address & ~uintptr_t{7}, nullptr, size_t{8}) == 0 || errno != EFAULT;
}

std::string why_not_text(const char* what, const TVMFFIByteArray& text) {
  if (text.size > size_t{1} << 40 || !is_readable(text.data, text.size))
    return fmt::format("{} of {} bytes at {} that can't be read", what, text.size, fmt::ptr(text.data));
  return {};
}

std::string why_not(const TVMFFIAny& value, int depth);

std::string why_not_object(const TVMFFIAny& value, int depth) {
  if (!is_object(value.v_obj))
    return fmt::format("type index {} with {}, where no object is", value.type_index, fmt::ptr(value.v_obj));
  const TVMFFIObject& object = *value.v_obj;
  if (object.type_index != value.type_index)
    return fmt::format("type index {} with an object that says {}", value.type_index, object.type_index);
  const uint32_t strong = strong_count(value.v_obj);
  if (strong == 0 || strong > INT32_MAX) return fmt::format("an object with {} references", strong);
  if (value_of(value.v_obj)) return {};  // one of ours
  if (object.deleter && !is_code(reinterpret_cast<const void*>(object.deleter)))
    return fmt::format("an object of type index {} whose deleter is no code", value.type_index);
  const auto readable = [&](size_t bytes) { return is_readable(value.v_obj + 1, bytes); };
  const auto cut_short = [&] { return fmt::format("an object of type index {} that is cut short", value.type_index); };
  switch (value.type_index) {
    case kTVMFFIStr:
    case kTVMFFIBytes:
      return readable(sizeof(TVMFFIByteArray)) ? why_not_text("a string", cell_of<TVMFFIByteArray>(value.v_obj)) : cut_short();
    case kTVMFFIShape: {
      if (!readable(sizeof(TVMFFIShapeCell))) return cut_short();
      const auto& shape = cell_of<TVMFFIShapeCell>(value.v_obj);
      return shape.size <= size_t{1} << 32 && is_readable_array(shape.data, shape.size * 8) ? "" : "a shape that can't be read";
    }
    case kTVMFFITensor: return readable(sizeof(DLTensor)) ? why_not_tensor(cell_of<DLTensor>(value.v_obj)) : cut_short();
    case kTVMFFIFunction:
      if (!readable(sizeof(TVMFFIFunctionCell))) return cut_short();
      return is_code(reinterpret_cast<const void*>(cell_of<TVMFFIFunctionCell>(value.v_obj).safe_call))
                 ? ""
                 : "a function that is no code";
    case kTVMFFIError: {
      if (!readable(offsetof(TVMFFIErrorCell, cause_chain))) return cut_short();  // an older tvm-ffi's
      const auto& error = cell_of<TVMFFIErrorCell>(value.v_obj);
      for (const auto& text : {error.kind, error.message, error.backtrace})
        if (auto why = why_not_text("an error's text", text); !why.empty()) return why;
      return {};
    }
    case kTVMFFIArray:
    case kTVMFFIList: {
      if (!readable(sizeof(TVMFFISeqCell))) return cut_short();
      const auto& items = cell_of<TVMFFISeqCell>(value.v_obj);
      const auto* first = static_cast<const TVMFFIAny*>(items.data);
      if (items.size < 0 || items.size > int64_t{1} << 32 ||
          !is_readable_array(first, static_cast<size_t>(items.size) * sizeof(TVMFFIAny)))
        return fmt::format("an array of {} items that can't be read", items.size);
      for (int64_t i = 0; i < items.size; ++i)
        if (auto why = why_not(first[i], depth + 1); !why.empty()) return "an array with " + why;
      return {};
    }
    default: return {};
  }
}

std::string why_not(const TVMFFIAny& value, int depth) {
  if (depth > kMostDepth) return "arrays nested too deep";
  if (value.type_index >= kTVMFFIObject) return why_not_object(value, depth);
  switch (value.type_index) {
    case kTVMFFINone:
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIOpaquePtr:
    case kTVMFFIDevice: return {};
    case kTVMFFIDataType: return value.v_dtype.bits > 0 && value.v_dtype.lanes > 0 ? "" : "a dtype of no size";
    case kTVMFFISmallStr:
    case kTVMFFISmallBytes: return value.small_str_len <= 7 ? "" : fmt::format("a small string of {} bytes", value.small_str_len);
    case kTVMFFIDLTensorPtr:
    case kTVMFFIRawStr:
    case kTVMFFIByteArrayPtr:
    case kTVMFFIObjectRValueRef:
      return fmt::format("type index {}, which is for arguments only; a result is an object", value.type_index);
    default: return fmt::format("type index {}, which is none", value.type_index);
  }
}

bool find_code(const void* address) {
  struct Search {
    uintptr_t address;
    bool found;
  } search{reinterpret_cast<uintptr_t>(address), false};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        for (int i = 0; i < object->dlpi_phnum && !s.found; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
          s.found =
              segment.p_type == PT_LOAD && (segment.p_flags & PF_X) && s.address >= begin && s.address < begin + segment.p_memsz;
        }
        return s.found ? 1 : 0;
      },
      &search);
  if (search.found) return true;
  std::ifstream maps("/proc/self/maps");  // code made at run time
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char flags[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, flags) == 3 && flags[2] == 'x' && search.address >= begin &&
        search.address < end)
      return true;
  }
  return false;
}

}  // namespace

bool is_readable(const void* begin, size_t size_bytes) {
  if (size_bytes == 0) return true;
  const auto first = reinterpret_cast<uintptr_t>(begin);
  uintptr_t last = 0;
  if (__builtin_add_overflow(first, size_bytes - 1, &last)) return false;
  if (!word_is_readable(first)) return false;
  for (uintptr_t page = first / kPage + 1; page <= last / kPage; ++page)
    if (!word_is_readable(page * kPage)) return false;
  return true;
}

bool is_readable_array(const void* begin, size_t size_bytes) {
  return size_bytes == 0 || (reinterpret_cast<uintptr_t>(begin) % 8 == 0 && is_readable(begin, size_bytes));
}

bool is_object(const TVMFFIObject* object) { return is_readable_array(object, sizeof(TVMFFIObject)); }

std::optional<size_t> readable_length(const char* text) {
  for (const char* at = text;;) {
    const size_t rest_of_page = kPage - reinterpret_cast<uintptr_t>(at) % kPage;
    if (!is_readable(at, rest_of_page)) return std::nullopt;
    const size_t n = strnlen(at, rest_of_page);
    at += n;
    if (n < rest_of_page) return static_cast<size_t>(at - text);
  }
}

bool is_code(const void* address) {
  if (reinterpret_cast<intptr_t>(address) < 0) return false;  // the kernel's half: maps calls all of its vsyscall page executable
  thread_local std::set<const void*> known;                   // libraries are never unloaded
  if (known.contains(address)) return true;
  const bool found = find_code(address);
  if (found) known.insert(address);
  return found;
}

std::string why_not_tensor(const DLTensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > kMostDimensions) return fmt::format("a tensor with {} dimensions", tensor.ndim);
  const auto dimensions = static_cast<size_t>(tensor.ndim);
  if (!is_readable_array(tensor.shape, dimensions * 8)) return "a tensor whose shape can't be read";
  if (tensor.strides && !is_readable_array(tensor.strides, dimensions * 8)) return "a tensor whose strides can't be read";
  if (tensor.dtype.bits == 0 || tensor.dtype.lanes == 0)
    return fmt::format("a tensor with dtype code {}, {} bits, {} lanes", tensor.dtype.code, tensor.dtype.bits,
                       tensor.dtype.lanes);
  uintptr_t begin = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(tensor.data), tensor.byte_offset, &begin))
    return fmt::format("a tensor whose byte_offset is {}", tensor.byte_offset);
  int64_t count = 1, last = 0;
  for (size_t i = 0; i < dimensions; ++i) {
    const int64_t extent = tensor.shape[i];
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return "a tensor whose shape can't be";
  }
  if (count == 0) return {};
  int64_t stride = 1;
  for (size_t i = dimensions; i-- > 0;) {
    const int64_t step = tensor.strides ? tensor.strides[i] : stride;
    int64_t reach = 0;
    if (step < 0 || __builtin_mul_overflow(step, tensor.shape[i] - 1, &reach) || __builtin_add_overflow(last, reach, &last))
      return "a tensor whose strides can't be";
    stride *= tensor.shape[i];
  }
  const int64_t element = (int64_t{tensor.dtype.bits} * tensor.dtype.lanes + 7) / 8;
  int64_t size_bytes = 0;
  if (__builtin_mul_overflow(last + 1, element, &size_bytes)) return "a tensor whose size can't be";
  if (tensor.device.device_type == 1 && !is_readable(reinterpret_cast<const void*>(begin), static_cast<size_t>(size_bytes)))
    return fmt::format("a tensor whose {} bytes can't be read", size_bytes);
  return {};
}

std::string why_not_valid(const TVMFFIAny& value) { return why_not(value, 0); }

}  // namespace tutti::ffi
