#pragma once

#include <string>
#include <vector>

#include "tutti/distributed.h"
#include "tutti/value.h"

namespace tutti::distributed {

/// What the workers are told of a tensor that they save.
struct SavedTensor {
  DTensorStructInfo info;  ///< no partial values
  std::string file;
  int64_t begin;  ///< of its bytes in the file
};
List to_values(const SavedTensor& tensor);

// The functions that workers call.
void register_save_parts();    ///< runtime.disco.save_parts(ledger, async, SavedTensors, part, ...): None, or what writes
void register_load_parts();    ///< runtime.disco.load_parts, check_loaded
void register_shard_loader();  ///< runtime.disco.ShardLoader...

}  // namespace tutti::distributed
