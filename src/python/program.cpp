// Recorded programs: session.record(), Program.
#include "tutti/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>

#include "python/errors.h"
#include "python/object.h"
#include "python/py_session.h"
#include "python/where.h"

namespace tutti::python {
namespace {

/// A recording inside of its `with`, a program after it.
class PyProgram {
 public:
  PyProgram(py::object session, std::string name) : session_(std::move(session)), name_(std::move(name)) {}

  void begin() {
    if (!session_) throw UsageError("a program is recorded once; session.record() makes another one");
    auto& session = session_.cast<PySession&>();
    about_ = std::make_shared<About>(session.about());
    recording_ = session.session().record(name_, here());
  }
  /// The session is its own from here on: a program does not hold it.
  void end(bool is_good) {
    const py::object session = std::exchange(session_, {});
    auto recording = std::exchange(recording_, std::nullopt);
    if (!is_good || !recording) return;
    program_ = recording->finish(here());
    if (returned_ > 1) item_ = session.cast<PySession&>().cached("runtime.disco.program_item", here());
  }

  Recording& recording() {
    if (!recording_) throw UsageError("no recording: this works inside `with session.record() as program:`");
    return *recording_;
  }
  Ref slot(const std::string& name) { return {recording().slot(name), about_}; }
  void returns(const py::args& values) {
    for (const py::handle value : values) {
      const Ref* ref = as_ref(value);
      if (ref) recording().returns(ref->dref);
      else if (py::isinstance<PyDTensor>(value)) recording().returns(value.cast<const PyDTensor&>().tensor.parts());
      else throw UsageError(fmt::format("returns: expected a DRef, got {}", type_name(value)));
      ++returned_;
    }
  }

  py::object call(const py::args& given, const py::kwargs& named) {
    const List values = values_of(given, named);
    const Ref result{program().call(values, here()), about_};
    if (returned_ < 2) return to_ref(result);
    py::tuple results(returned_);
    for (size_t i = 0; i < returned_; ++i) results[i] = to_ref(python::call(*item_, List{result.dref, static_cast<int64_t>(i)}));
    return results;
  }
  Ref repeat(int64_t times, const py::args& given, const py::kwargs& named) {
    const List values = values_of(given, named);
    return {program().repeat(times, values, here()), about_};
  }

  bool is_recorded() const { return static_cast<bool>(program_); }
  const Program& program() const {
    if (!program_)
      throw UsageError("the program is not recorded yet: it can be replayed after `with session.record() as program:`");
    return program_;
  }
  std::string repr() const {
    if (recording_) return "Program(being recorded)";
    if (!program_) return "Program(not recorded)";
    return fmt::format("Program({}, {} step{}, slots: {})", program_.name(), program_.size(), program_.size() == 1 ? "" : "s",
                       program_.slots().empty() ? "none" : fmt::format("{}", fmt::join(program_.slots(), ", ")));
  }

 private:
  /// By position or by name.
  List values_of(const py::args& given, const py::kwargs& named) const {
    const auto& slots = program().slots();
    List values;
    for (const py::handle value : given) values.push_back(to_value(value));
    if (named.empty()) return values;
    if (values.size() > slots.size()) return values;  // too many, which replay() refuses
    std::vector<bool> is_given(slots.size());
    std::fill_n(is_given.begin(), values.size(), true);
    values.resize(slots.size());
    for (const auto& [key, value] : named) {
      const auto name = key.cast<std::string>();
      const auto found = std::ranges::find(slots, name);
      const auto i = static_cast<size_t>(found - slots.begin());
      if (found == slots.end())
        throw UsageError(fmt::format("program {} has no slot '{}'; its slots: {}", program_.name(), name,
                                     slots.empty() ? "none" : fmt::format("{}", fmt::join(slots, ", "))));
      if (is_given[i]) throw UsageError(fmt::format("program {}: slot '{}' is given twice", program_.name(), name));
      is_given[i] = true;
      values[i] = to_value(value);
    }
    for (size_t i = 0; i < slots.size(); ++i)
      if (!is_given[i]) throw UsageError(fmt::format("program {}: slot '{}' is not given", program_.name(), slots[i]));
    return values;
  }

  py::object session_;  // until it is recorded
  std::string name_;
  std::shared_ptr<const About> about_;
  std::optional<Recording> recording_;
  Program program_;
  size_t returned_ = 0;
  std::optional<Ref> item_;
};

}  // namespace

void bind_program(py::module_& module) {
  using namespace py::literals;
  module.attr("Session").attr("record") = py::cpp_function(
      [](py::object session, const std::string& name) { return std::make_unique<PyProgram>(std::move(session), name); },
      py::name("record"), py::is_method(module.attr("Session")), "name"_a = "",
      "`with session.record() as program:` sends nothing: the calls inside become the steps of a program, which each\n"
      "program(...) replays on all workers by one command. Functions and modules are looked up at once; calls that wait are\n"
      "refused. name: for messages; default: this line.");
  py::class_<PyProgram>(module, "Program",
                        "Calls that session.record() has recorded. A DRef that one of them returned holds, after a replay, what "
                        "the last\n"
                        "replay left in it. Arrays of the controller in copies, broadcast and scatter are read by each replay.")
      .def("slot", &PyProgram::slot, "name"_a = "",
           "Inside of the recording: a value that each replay gives, an argument of steps.")
      .def(
          "assign",
          [](PyProgram& p, const Ref& slot, const py::object& value) { p.recording().assign(slot.dref, to_value(value)); },
          "slot"_a, "value"_a,
          "Inside of the recording: at the end of each iteration the slot gets the value, an array itself. All values are read\n"
          "before the first slot is set.")
      .def(
          "stop_when", [](PyProgram& p, const Ref& flag) { p.recording().stop_when(flag.dref, here()); }, "flag"_a,
          "Inside of the recording: a replay ends here if flag holds True on all workers, which agree on it.")
      .def("returns", &PyProgram::returns,
           "Inside of the recording: what a call returns, a DRef, or a tuple of them if there are several.")
      .def("__call__", &PyProgram::call, "Replays the steps once. One value for each slot, by position or by name.")
      .def("repeat", &PyProgram::repeat, "times"_a, py::pos_only(),
           "Replays the steps `times` times, or until stop_when() ends it, by one command. The result holds how many iterations "
           "have begun.")
      .def_property_readonly("name", [](PyProgram& p) { return p.program().name(); })
      .def_property_readonly("slots", [](PyProgram& p) { return p.program().slots(); })
      .def("__bool__", [](PyProgram& p) { return p.is_recorded(); })
      .def("__len__", [](PyProgram& p) { return p.program().size(); })
      .def("__enter__",
           [](const py::object& self) {
             self.cast<PyProgram&>().begin();
             return self;
           })
      .def("__exit__", [](PyProgram& p, const py::object& type, const py::object&, const py::object&) { p.end(type.is_none()); })
      .def("__repr__", &PyProgram::repr);
}

}  // namespace tutti::python
