// Placements: any text is a placement whose own text says the same, or a UsageError. What fits a tensor has parts inside it.
#include <cstdlib>
#include <string>

#include "tutti/distributed.h"
#include "tutti/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::distributed;
  try {
    const auto placement = Placement::from_text({reinterpret_cast<const char*>(data), size});
    if (Placement::from_text(to_string(placement)) != placement) std::abort();
    if (placement.dim_specs().size() > 4) return 0;  // a mesh of 2 to the power of that
    const DTensorStructInfo info({{7, 5}}, DeviceMesh(tutti::Shape(placement.dim_specs().size(), 2)), placement);
    for (int64_t worker = 0; worker < info.device_mesh().size(); ++worker) {
      const Block block = info.local(worker);
      for (size_t axis = 0; axis < 2; ++axis)
        if (block.offset[axis] < 0 || block.shape[axis] < 0 ||
            block.offset[axis] + block.shape[axis] > info.tensor_sinfo().shape[axis])
          std::abort();
    }
  } catch (const tutti::UsageError&) {
  }
  return 0;
}
