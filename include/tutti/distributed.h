// Sharded tensors. Where their parts lie is said in the words of TVM's relax.distributed, with more kinds of placement: values,
// which never change and compare by what they hold. A DTensor is a handle on parts that workers have.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/dtype.h"
#include "tutti/export.h"
#include "tutti/session.h"
#include "tutti/tensor.h"
#include "tutti/worker.h"

namespace tutti::distributed {

using tutti::to_string;

/// Workers in an n-d arrangement.
class TUTTI_API DeviceMesh {
 public:
  /// @param shape       workers along each mesh dimension, each at least 1
  /// @param device_ids  worker ids, in row-major order, each once; empty: 0, 1, ...
  /// @param names       of the mesh dimensions: letters, digits and _, each once; empty: none
  /// @throws UsageError  no dimension, counts that do not agree, a negative or repeated id, a bad or repeated name
  explicit DeviceMesh(Shape shape, std::vector<int64_t> device_ids = {}, std::vector<std::string> names = {});

  int ndim() const { return static_cast<int>(shape_.size()); }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return static_cast<int64_t>(device_ids_.size()); }  ///< workers
  const std::vector<int64_t>& device_ids() const { return device_ids_; }
  const std::vector<std::string>& names() const { return names_; }
  int dim(std::string_view name) const;               ///< @throws UsageError  no mesh dimension has this name
  int64_t worker(const Shape& coordinate) const;      ///< @throws UsageError  it lies outside
  std::optional<Shape> coordinate(int64_t id) const;  ///< nothing: that worker is not in the mesh
  std::string describe_dim(int dim) const;            ///< for messages: "mesh dimension 1 ('tp')"
  /// The workers that differ from this one in no other dimension, itself included, in that dimension's order: those that
  /// worker::comm takes for a collective along it.  @throws UsageError  the worker or the dimension is not in the mesh
  std::vector<int> peers(int64_t id, int dim) const;
  bool operator==(const DeviceMesh&) const = default;

 private:
  Shape shape_;
  std::vector<int64_t> device_ids_;
  std::vector<std::string> names_;
};
TUTTI_API std::string to_string(const DeviceMesh& mesh);  ///< "DeviceMesh((2, 2), range(0, 4), names=['dp', 'tp'])"

enum class PlacementSpecKind : int {
  kSharding = 0,
  kReplica = 1,
  kPartial = 2,
  kRagged = 3
};  ///< the first two as TVM numbers them

/// What one mesh dimension does with a tensor.
class TUTTI_API PlacementSpec {
 public:
  /// "S[axis]": the axis is cut into as many parts as the mesh dimension has workers. Sizes differ by at most 1; the first parts
  /// are the larger ones; a part may be empty.
  static PlacementSpec sharding(int axis);
  /// "R": each worker along the mesh dimension has the same.
  static PlacementSpec replica();
  /// "P", "P(max)": the value is the sum (prod, min, max, avg) over the workers along the mesh dimension. Averages are reduced,
  /// not made: no whole value becomes "P(avg)".
  static PlacementSpec partial(std::string_view op = "sum");
  /// "S[axis](3, 0, 5)": as sharding, with parts of these sizes.
  static PlacementSpec ragged(int axis, std::vector<int64_t> sizes);

  PlacementSpecKind kind() const { return kind_; }
  int axis() const { return axis_; }  ///< of the tensor; -1: none is cut
  bool cuts() const { return axis_ >= 0; }
  const std::string& op() const { return op_; }                 ///< empty unless partial
  const std::vector<int64_t>& sizes() const { return sizes_; }  ///< empty unless ragged
  bool operator==(const PlacementSpec&) const = default;

 private:
  explicit PlacementSpec(PlacementSpecKind kind) : kind_(kind) {}
  PlacementSpecKind kind_;
  int axis_ = -1;
  std::string op_;
  std::vector<int64_t> sizes_;
};
TUTTI_API std::string to_string(const PlacementSpec& spec);  ///< as in a placement's text

/// What each dimension of a mesh does with a tensor. Several may cut one axis: the first cuts it, the next cuts each part.
class TUTTI_API Placement {
 public:
  /// @throws UsageError  none, or partial ones of different operations
  explicit Placement(std::vector<PlacementSpec> dim_specs);
  /// "S[0], R, P(max)". Spaces do not matter.  @throws UsageError  says where, and what was expected there
  static Placement from_text(std::string_view text);
  const std::vector<PlacementSpec>& dim_specs() const { return dim_specs_; }
  bool operator==(const Placement&) const = default;

 private:
  std::vector<PlacementSpec> dim_specs_;
};
TUTTI_API std::string to_string(const Placement& placement);  ///< what from_text reads

/// A tensor as a whole.
struct TensorStructInfo {
  Shape shape;
  DType dtype = kFloat32;
  bool operator==(const TensorStructInfo&) const = default;
};

/// A worker's part of a tensor.
struct Block {
  Shape offset, shape;  ///< of each axis
  bool operator==(const Block&) const = default;
};

/// A tensor, and where its parts lie.
class TUTTI_API DTensorStructInfo {
 public:
  /// @throws UsageError  no such tensor; more or fewer entries than mesh dimensions; an axis that the tensor lacks; sizes of
  ///         ragged parts that are not the axis; a dtype that can't be reduced as a partial entry says
  DTensorStructInfo(TensorStructInfo tensor_sinfo, DeviceMesh device_mesh, Placement placement);
  const TensorStructInfo& tensor_sinfo() const { return tensor_sinfo_; }
  const DeviceMesh& device_mesh() const { return device_mesh_; }
  const Placement& placement() const { return placement_; }
  Block local(int64_t worker) const;  ///< what that worker holds.  @throws UsageError  it is not in the mesh
  bool operator==(const DTensorStructInfo&) const = default;

 private:
  TensorStructInfo tensor_sinfo_;
  DeviceMesh device_mesh_;
  Placement placement_;
};
TUTTI_API std::string to_string(const DTensorStructInfo& info);  ///< "float32 (8, 6) by 'S[0], R' on DeviceMesh(...)"
/// What redistribute does: its exchanges, a line each, with the bytes that change workers, and the memory that this takes.
/// @throws UsageError  two tensors
TUTTI_API std::string explain(const DTensorStructInfo& from, const DTensorStructInfo& to);

/// The bytes that change workers when redistribute does that.  @throws UsageError  two tensors
TUTTI_API int64_t bytes_moved(const DTensorStructInfo& from, const DTensorStructInfo& to);

/// The most host memory that one worker needs for it, in bytes, where blocks are packed: the result, but not the worker's own
/// part. Not counted are copies as large as the part: of parts on a GPU, of views that are not row-major, and where workers are
/// processes of foreign memory, which a function has returned.  @throws UsageError  two tensors
TUTTI_API int64_t peak_bytes(const DTensorStructInfo& from, const DTensorStructInfo& to);

/// The mesh of `to` with its workers in the order in which they hold most of what they are to have: redistribute moves the fewest
/// bytes then. Without change, if no order is better or values are partial. Takes n^3 steps for n workers.
/// @throws UsageError  two tensors
TUTTI_API DeviceMesh relabelled(const DTensorStructInfo& from, const DTensorStructInfo& to);

/// Who holds what: a table, a line for each worker of the mesh.
TUTTI_API std::string show(const DTensorStructInfo& info);

/// A tensor whose parts lie on the workers of a mesh. A handle: copies share the parts. Calls are the session's: they issue
/// commands, and what goes wrong on a worker is a RemoteError of the next synchronising call.
class TUTTI_API DTensor {
 public:
  /// Parts that the workers have: in `parts` each worker of the mesh has a tensor of the dtype and the shape that
  /// info.local(worker) says, in host memory, or row-major on a device; other workers may have anything but what a failure took.
  DTensor(DRef parts, DTensorStructInfo info) : parts_(std::move(parts)), info_(std::move(info)) {}
  /// The same, where the shapes of the parts say what the tensor is. Parts of an axis whose sizes are not those of S[a] make it
  /// ragged. Synchronising: the workers of the mesh compare what they have. After a TimeoutError a new call begins anew.
  /// @throws UsageError  the mesh has workers that the session lacks; more or fewer entries than mesh dimensions
  /// @throws RemoteError  a part is no tensor, or its shape or dtype does not fit the others or the placement
  static DTensor from_local(const DRef& parts, const DeviceMesh& mesh, const Placement& placement, Timeout timeout = {},
                            Where where = Where::current());
  const DTensorStructInfo& info() const { return info_; }
  Block local(int64_t worker) const { return info_.local(worker); }
  const DRef& parts() const { return parts_; }  ///< of redistribute and distribute: None on workers that are not in the mesh
  /// The same values in other places; this tensor stays as it is. Each worker receives what it lacks, and no more: of partial
  /// values, what its elements are reduced from. The result lies where the worker's part lies, or on its device if it has none.
  /// Workers that send or receive something wait for each other; each new set of them has a communicator, which is kept
  /// (worker::comm).
  /// @throws UsageError  the placement does not fit; a mesh has workers that the session lacks; a whole value, or a part of the
  ///         partial dimensions, is to become "P(avg)"; complex whole values are to become "P(prod)"
  DTensor redistribute(const Placement& placement, const std::optional<DeviceMesh>& mesh = {},
                       Where where = Where::current()) const;
  /// All of it, on the controller. Synchronising. After a TimeoutError a new call begins anew.
  Tensor full(Timeout timeout = {}, Where where = Where::current()) const;
  /// All of it in worker 0's register; None on the others.
  DRef gather_to_worker0(Where where = Where::current()) const;
  /// Every step-th index from begin to end of an axis that at most one mesh dimension cuts: nothing moves, and of a cut axis each
  /// worker keeps what it has (a ragged cut). Parts are views: what is written to one tensor is seen in the other.
  /// @throws UsageError  several mesh dimensions cut the axis; indices that it lacks
  DTensor slice(int axis, int64_t begin, int64_t end, int64_t step = 1, Where where = Where::current()) const;
  /// One index of such an axis, which the result lacks. Of a cut axis it is a copy: the workers that have it send it to the
  /// others along that mesh dimension, which replicates the result.
  DTensor select(int axis, int64_t index, Where where = Where::current()) const;
  /// The same elements with the axes in this order; none are given: in reverse order. Parts are views; nothing moves.
  /// @throws UsageError  not each axis from 0 to ndim - 1 once
  DTensor transpose(std::vector<int> axes = {}, Where where = Where::current()) const;

 private:
  DRef parts_;
  DTensorStructInfo info_;
};

/// Parts of an array of the controller's, which may be changed on return. Worker 0 has all of it meanwhile.
/// @throws UsageError  the placement does not fit; the mesh has workers that the session lacks
TUTTI_API DTensor distribute(Session& session, const Tensor& array, const DeviceMesh& mesh, const Placement& placement,
                             Where where = Where::current());

/// New tensors, on the workers' devices. Each worker makes its own part; nothing moves. Of partial values one worker has the
/// whole, the others have what changes no sum.
/// @throws UsageError  the mesh has workers that the session lacks; a value that the dtype can't hold; but for empty "P(avg)"
TUTTI_API DTensor empty(Session& session, const DTensorStructInfo& info, Where where = Where::current());
TUTTI_API DTensor zeros(Session& session, const DTensorStructInfo& info, Where where = Where::current());
/// value: a real number, or a bool. Floats are rounded; a value that would become infinite, and no whole one for integers, are
/// refused.
TUTTI_API DTensor full(Session& session, const DTensorStructInfo& info, const Value& value, Where where = Where::current());
/// Element i, counted row-major in the whole tensor, comes from the (i + 1)-th 64 bits of the generator SplitMix64 with this
/// seed, wherever it lies. Floats: their first bits, as many as the mantissa holds, as a number from 0 to below 1; integers and
/// bool: their first bits; complex numbers take two after each other, as a tensor of twice as many floats. No float8.
TUTTI_API DTensor random(Session& session, const DTensorStructInfo& info, int64_t seed = 0, Where where = Where::current());

/// What a function that a ShardMap calls can ask about its place.
struct TUTTI_API ShardContext {
  DeviceMesh mesh;
  Shape coordinate;                                    ///< of this worker
  std::vector<std::optional<DTensorStructInfo>> args;  ///< nothing: the argument is no DTensor

  Block local(size_t arg) const;  ///< which part of that argument this worker has.  @throws UsageError  it is no DTensor
  /// The workers along a mesh dimension. Kept, as worker::comm keeps it.  @throws UsageError  the mesh lacks it
  Comm comm(int dim) const;
  Comm comm(std::string_view name) const;
};
/// @throws UsageError  this thread runs no such function
TUTTI_API const ShardContext& shard_context();

/// A function on the parts of DTensors. Each worker of a mesh calls it with its own parts; what it returns are parts again.
class TUTTI_API ShardMap {
 public:
  using Argument = std::variant<DTensor, Value>;
  /// @param func            the same on every worker, in a register
  /// @param in_placements   for each argument; nothing: it is no DTensor, every worker gets it as it is
  /// @param out_placements  for each tensor that the function returns; more than one: it returns them as a List. Numbers become
  ///                        tensors without axes, of float64, int64 or bool
  /// @throws UsageError  a placement has more or fewer entries than the mesh has dimensions
  ShardMap(const DRef& func, DeviceMesh mesh, std::vector<std::optional<Placement>> in_placements,
           std::vector<Placement> out_placements);
  const DeviceMesh& mesh() const;
  /// Redistributes the arguments that do not lie so, calls the function, and makes DTensors of what it returns.
  /// Synchronising, since only the parts say how large those are: DTensor::from_local; not so if `out_sinfos` has one for each,
  /// which each worker holds against what it returns. Parts of replicas are not compared: what the first has counts. Arguments
  /// that lie so are given as they are: a function that writes to one changes the caller's. After a TimeoutError a new call calls
  /// the function again.
  /// @throws UsageError  other arguments than in_placements say; RemoteError as from_local
  std::vector<DTensor> operator()(const std::vector<Argument>& args, const std::vector<TensorStructInfo>& out_sinfos = {},
                                  Timeout timeout = {}, Where where = Where::current()) const;
  /// What the function returns, on each worker of the mesh; None on the others. Does not wait.
  DRef call(const std::vector<Argument>& args, Where where = Where::current()) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A function that every worker has registered under this name makes the parts of a tensor: each worker of info's mesh calls it
/// with its own parts of the DTensors among `args`, as they lie, and holds what it returns against `info`. Does not wait: what
/// goes wrong there is a RemoteError of the next synchronising call.
/// @throws UsageError  no argument is a DTensor, or one lies on another mesh
TUTTI_API DTensor map_parts(const std::string& function, const std::vector<ShardMap::Argument>& args,
                            const DTensorStructInfo& info, Where where = Where::current());

}  // namespace tutti::distributed

template <>
struct std::hash<tutti::distributed::DeviceMesh> {
  size_t operator()(const tutti::distributed::DeviceMesh& mesh) const { return std::hash<std::string>()(to_string(mesh)); }
};
template <>
struct std::hash<tutti::distributed::PlacementSpec> {
  size_t operator()(const tutti::distributed::PlacementSpec& spec) const { return std::hash<std::string>()(to_string(spec)); }
};
template <>
struct std::hash<tutti::distributed::Placement> {
  size_t operator()(const tutti::distributed::Placement& placement) const {
    return std::hash<std::string>()(to_string(placement));
  }
};
template <>
struct std::hash<tutti::distributed::DTensorStructInfo> {
  size_t operator()(const tutti::distributed::DTensorStructInfo& info) const { return std::hash<std::string>()(to_string(info)); }
};
