#pragma once

#include <string>

#include "control/controller/controller.h"
#include "tutti/distributed.h"

namespace tutti::distributed {

/// To what the handles of a session stand for.
struct Access {
  static detail::Controller& controller(Session& session) { return session.controller(); }
  static detail::Controller& controller(const DRef& ref, const char* what);  ///< @throws UsageError  it is empty
};

void check_workers(const DeviceMesh& mesh, const detail::Controller& controller);  ///< @throws UsageError  the session lacks some

/// @throws UsageError  more or fewer entries than mesh dimensions, or sizes than workers; `what`: for the message
void check_entries(const Placement& placement, const DeviceMesh& mesh, const std::string& what);

// What travels in commands.
List to_values(const DeviceMesh& mesh);
DeviceMesh to_mesh(const Value& values);
List to_values(const DTensorStructInfo& info);
DTensorStructInfo to_info(const Value& values);

// The functions that workers call, "runtime.disco.<name>".
void register_new_parts();
void register_join();
void register_shard_map();

}  // namespace tutti::distributed
