// Environment variables: any text is a number in range or a UsageError that names the variable.
#include <cstdlib>
#include <cstring>
#include <string>

#include "control/worker/fault.h"
#include "core/env.h"
#include "tutti/dtype.h"
#include "tutti/error.h"
#include "tutti/worker.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  setenv("TUTTI_FUZZ", text.c_str(), 1);
  try {
    const int64_t value = tutti::detail::env_int("TUTTI_FUZZ", 5, -3, 1000);
    if (value < -3 || value > 1000) std::abort();
  } catch (const tutti::UsageError& error) {
    if (!std::strstr(error.what(), "TUTTI_FUZZ")) std::abort();
  }
  try {
    tutti::detail::parse_faults(text);
  } catch (const tutti::UsageError& error) {
    if (!std::strstr(error.what(), "TUTTI_FAULT")) std::abort();
  }
  try {
    if (to_string(tutti::parse_dtype(text)).empty()) std::abort();
  } catch (const tutti::UsageError&) {
  }
  try {
    tutti::parse_reduce_op(text);
  } catch (const tutti::UsageError&) {
  }
  return 0;
}
