// What a Python function on a worker can ask and do.
#include <fmt/format.h>
#include <pybind11/stl.h>

#include "python/gil.h"
#include "python/object.h"
#include "tutti/worker.h"

namespace tutti::python {
namespace {

template <auto Operation>
void comm_reduction(const Comm& self, const py::object& src, const py::object& dst, const std::string& op) {
  const Tensor from = to_tensor(src), to = to_tensor(dst, true);
  without_gil([&] { (self.*Operation)(from, to, parse_reduce_op(op)); });
}
template <auto Operation>
void comm_exchange(const Comm& self, const py::object& src, const py::object& dst) {
  const Tensor from = to_tensor(src), to = to_tensor(dst, true);
  without_gil([&] { (self.*Operation)(from, to); });
}

}  // namespace

void bind_worker(py::module_& module) {
  using namespace py::literals;
  py::class_<Comm>(module, "Comm",
                   "A set of workers that comm_exchange arrays: every member calls every operation, in the same order, inside "
                   "the same command.\n\n"
                   "Arrays: Tensor or numpy, row-major. Members agree first: if one can't take part, all raise. On GPUs "
                   "that is found at the next wait for the device.")
      .def_property_readonly("rank", &Comm::rank)
      .def_property_readonly("size", &Comm::size)
      .def_property_readonly("workers", &Comm::workers, "Worker ids by rank.")
      .def("allreduce", &comm_reduction<&Comm::allreduce>, "src"_a, "dst"_a, "op"_a = "sum",
           "dst = op over all members of src: sum, prod, min, max, avg.")
      .def("reduce_scatter", &comm_reduction<&Comm::reduce_scatter>, "src"_a, "dst"_a, "op"_a = "sum",
           "Member r's dst = the r-th of `size` equal parts of the reduced src.")
      .def("allgather", &comm_exchange<&Comm::allgather>, "src"_a, "dst"_a, "dst = all members' src one after another.")
      .def(
          "broadcast",
          [](const Comm& self, const py::object& src, const py::object& dst, int root) {
            const Tensor from = src.is_none() ? Tensor() : to_tensor(src), to = to_tensor(dst, true);
            const WithoutGil released;
            self.broadcast(from, to, root);
          },
          "src"_a, "dst"_a, "root"_a = 0, "dst = root's src; elsewhere src may be None.")
      .def(
          "scatter",
          [](const Comm& self, const py::object& src, const py::object& dst, int root, const std::vector<int64_t>& counts) {
            const Tensor from = src.is_none() ? Tensor() : to_tensor(src), to = to_tensor(dst, true);
            const WithoutGil released;
            self.scatter(from, to, root, counts);
          },
          "src"_a, "dst"_a, "root"_a = 0, "counts"_a = std::vector<int64_t>(),
          "Member r's dst = the r-th part of root's src; counts: elements of each.")
      .def(
          "gather",
          [](const Comm& self, const py::object& src, const py::object& dst, int root, const std::vector<int64_t>& counts) {
            const Tensor from = to_tensor(src), to = dst.is_none() ? Tensor() : to_tensor(dst, true);
            const WithoutGil released;
            self.gather(from, to, root, counts);
          },
          "src"_a, "dst"_a, "root"_a = 0, "counts"_a = std::vector<int64_t>(), "Root's dst = all members' src one after another.")
      .def(
          "all_to_all",
          [](const Comm& self, const py::object& src, const py::object& dst, const std::vector<int64_t>& src_counts,
             const std::vector<int64_t>& dst_counts) {
            const Tensor from = to_tensor(src), to = to_tensor(dst, true);
            const WithoutGil released;
            if (src_counts.empty() && dst_counts.empty()) self.all_to_all(from, to);
            else self.all_to_all(from, to, src_counts, dst_counts);
          },
          "src"_a, "dst"_a, "src_counts"_a = std::vector<int64_t>(), "dst_counts"_a = std::vector<int64_t>(),
          "Part r of src goes to member r; dst = the parts for us, by sender. Parts are equal, or as the counts say: elements to "
          "each member, and from each.")
      .def(
          "send",
          [](const Comm& self, const py::object& src, int to) {
            const Tensor from = to_tensor(src);
            const WithoutGil released;
            self.send(from, to);
          },
          "src"_a, "to"_a)
      .def(
          "recv",
          [](const Comm& self, const py::object& dst, int from) {
            const Tensor to = to_tensor(dst, true);
            const WithoutGil released;
            self.recv(to, from);
          },
          "dst"_a, "from_"_a)
      .def("barrier", &Comm::barrier, py::call_guard<WithoutGil>())
      .def("split", &Comm::split, "color"_a, "key"_a = 0, py::call_guard<WithoutGil>(),
           "Members with equal color form a communicator, ordered by (key, rank); it lives until the command ends.")
      .def("__repr__", [](const Comm& self) { return fmt::format("Comm(rank {} of {})", self.rank(), self.size()); });

  auto worker = module.def_submodule(
      "worker", "What a function that a session calls can ask and do, on the thread that the session called.");
  worker.def("active", &worker::active, "Whether this thread runs a session's function.");
  worker.def("id", &worker::id, "0 to count() - 1");
  worker.def("count", &worker::count);
  worker.def("group_id", &worker::group_id);
  worker.def("group_size", &worker::group_size);
  worker.def("num_groups", &worker::num_groups);
  worker.def("device", &worker::device);
  worker.def("ccl", &worker::ccl, "The one that is in use: 'nccl' where init_ccl('auto') has found GPUs for all workers.");
  worker.def(
      "stream", [] { return reinterpret_cast<uintptr_t>(stream()); },
      "Where work for the device belongs (cudaStream_t, as torch.cuda.ExternalStream takes it); 0: the default stream.");
  worker.def("world", &worker::world, "All workers, as a Comm.");
  worker.def("group", &worker::group, "The workers of our group, as a Comm.");
  worker.def(
      "comm", &worker::comm, "workers"_a,
      "These workers, by rank, as a Comm that is kept as long as the session. Each of them names the same list; nobody waits.");
}

}  // namespace tutti::python
