// Names and lines of addresses, by elfutils' libdw.
#include "core/symbols.h"

#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "core/demangle.h"

namespace tutti::detail {
namespace {

Frame exported(uintptr_t address) {
  Frame frame;
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(address), &info)) return frame;
  frame.function = demangled(info.dli_sname);
  frame.module = fmt::format("{}+{:#x}", info.dli_fname, address - reinterpret_cast<uintptr_t>(info.dli_fbase));
  return frame;
}

/// The modules of this process. Looks for debug information in them only: no files of elsewhere, no servers.
class Modules {
 public:
  Modules() : dwfl_(dwfl_begin(&callbacks_)) { report(); }
  ~Modules() { dwfl_end(dwfl_); }
  Dwfl_Module* at(uintptr_t address) {
    if (Dwfl_Module* module = dwfl_addrmodule(dwfl_, address)) return module;
    report();  // a library may have been loaded since
    return dwfl_addrmodule(dwfl_, address);
  }

 private:
  void report() {
    if (!dwfl_) return;
    dwfl_report_begin_add(dwfl_);
    dwfl_linux_proc_report(dwfl_, getpid());
    dwfl_report_end(dwfl_, nullptr, nullptr);
  }
  static int no_file(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) { return -1; }
  Dwfl_Callbacks callbacks_{.find_elf = dwfl_linux_proc_find_elf,
                            .find_debuginfo = no_file,
                            .section_address = dwfl_offline_section_address,
                            .debuginfo_path = nullptr};
  Dwfl* dwfl_;
};

Dwarf_Die* unit_of(Dwfl_Module* module, uintptr_t address, Dwarf_Addr& bias) {
  if (Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias)) return unit;
  for (Dwarf_Die* unit = nullptr; (unit = dwfl_module_nextcu(module, unit, &bias));)  // clang writes no index of addresses
    if (dwarf_haspc(unit, address - bias) > 0) return unit;
  return nullptr;
}

constexpr const char* kLambda = "lambda";  // debug information has no more

std::string name_of(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name})
    if (dwarf_attr_integrate(die, name, &attribute)) return demangled(dwarf_formstring(&attribute));
  const char* name = dwarf_diename(die);
  if (!name) return {};
  return std::strcmp(name, "operator()") == 0 ? kLambda : name;
}

int64_t number_of(Dwarf_Die* die, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  return dwarf_attr(die, name, &attribute) && dwarf_formudata(&attribute, &value) == 0 ? static_cast<int64_t>(value) : 0;
}

std::vector<Frame> look_up(uintptr_t address) {
  static auto& modules = *new Modules;
  std::vector<Frame> frames;
  Dwfl_Module* module = modules.at(address);
  if (!module) return {exported(address)};
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = unit_of(module, address, bias);
  Dwarf_Die *innermost = nullptr, *scopes = nullptr;
  int count = unit ? dwarf_getscopes(unit, address - bias, &innermost) : 0;
  const std::unique_ptr<Dwarf_Die, decltype(&std::free)> innermost_owner(innermost, &std::free);
  if (count > 0) count = dwarf_getscopes_die(innermost, &scopes);  // where it was inlined, not where it is written
  const std::unique_ptr<Dwarf_Die, decltype(&std::free)> owner(scopes, &std::free);
  Dwarf_Files* files = nullptr;
  if (unit) dwarf_getsrcfiles(unit, &files, nullptr);
  Frame frame;
  if (unit)
    if (Dwarf_Line* line = dwarf_getsrc_die(unit, address - bias)) {
      if (const char* file = dwarf_linesrc(line, nullptr, nullptr)) frame.file = file;
      dwarf_lineno(line, &frame.line);
    }
  for (int i = 0; i < count; ++i) {
    const int tag = dwarf_tag(&scopes[i]);
    if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
    frame.function = name_of(&scopes[i]);
    const char* symbol = tag == DW_TAG_subprogram && frame.function == kLambda ? dwfl_module_addrname(module, address) : nullptr;
    if (symbol) frame.function = demangled(symbol);
    frames.push_back(frame);
    if (tag == DW_TAG_subprogram) break;
    frame = {};
    const char* file =
        files ? dwarf_filesrc(files, static_cast<size_t>(number_of(&scopes[i], DW_AT_call_file)), nullptr, nullptr) : nullptr;
    if (file) frame.file = file, frame.line = static_cast<int>(number_of(&scopes[i], DW_AT_call_line));
  }
  if (frames.empty()) {
    frame = exported(address);
    if (const char* name = dwfl_module_addrname(module, address)) frame.function = demangled(name);
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace

std::vector<Frame> frames_at(uintptr_t address) {
  static std::mutex mutex;
  static auto& known = *new std::map<uintptr_t, std::vector<Frame>>;
  std::lock_guard lock(mutex);
  const auto it = known.find(address);
  return it != known.end() ? it->second : known.emplace(address, look_up(address)).first->second;
}

}  // namespace tutti::detail
