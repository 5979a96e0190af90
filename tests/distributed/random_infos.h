#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "tutti/distributed.h"

namespace tutti_test {

using namespace tutti;
using namespace tutti::distributed;

/// Any mesh of 8 workers at most, any placement that fits the shape.
class RandomInfos {
 public:
  explicit RandomInfos(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t end) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(end)); }
  Shape shape() {
    Shape shape(static_cast<size_t>(below(4)));
    for (int64_t& extent : shape) extent = below(8);
    return shape;
  }
  DeviceMesh mesh() {
    const Shape shapes[] = {{1}, {2}, {3}, {4}, {2, 2}, {2, 3}, {3, 2}, {1, 4}, {2, 2, 2}, {8}, {5}};
    const Shape& shape = shapes[static_cast<size_t>(below(std::size(shapes)))];
    std::vector<int64_t> ids(8);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
    std::shuffle(ids.begin(), ids.end(), engine_);
    ids.resize(static_cast<size_t>(element_count(shape)));
    return DeviceMesh(shape, ids);
  }
  DTensorStructInfo info(const Shape& shape) {
    const DeviceMesh mesh = this->mesh();
    std::vector<PlacementSpec> specs;
    std::vector<bool> is_cut(shape.size(), false);
    for (const int64_t workers : mesh.shape()) {
      const int64_t kind = below(4);
      const auto axis = shape.empty() ? size_t{0} : static_cast<size_t>(below(static_cast<int64_t>(shape.size())));
      if (kind == 0 || (kind != 1 && shape.empty())) specs.push_back(PlacementSpec::replica());
      else if (kind == 1) specs.push_back(PlacementSpec::partial());
      else if (kind == 2 || is_cut[axis]) specs.push_back(PlacementSpec::sharding(static_cast<int>(axis))), is_cut[axis] = true;
      else {
        std::vector<int64_t> sizes(static_cast<size_t>(workers), 0);
        for (int64_t i = 0; i < shape[axis]; ++i) ++sizes[static_cast<size_t>(below(workers))];
        specs.push_back(PlacementSpec::ragged(static_cast<int>(axis), sizes)), is_cut[axis] = true;
      }
    }
    return DTensorStructInfo({shape, kInt32}, mesh, Placement(specs));
  }

 private:
  std::mt19937 engine_;
};

}  // namespace tutti_test
