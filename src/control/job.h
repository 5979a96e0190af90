#pragma once

#include <functional>
#include <memory>
#include <string>

#include "control/channel/mpi/mpi_job.h"
#include "control/controller/controller.h"

namespace tutti::detail {

/// The ranks that this process may make sessions on. Used by the thread that runs the controller.
struct Job {
  std::string owner;                     // tutti::run, or the line that called session_from; empty: there is no job
  std::unique_ptr<MpiJob> mpi;           // null: one rank without MPI
  std::string live_session;              // where the one that holds the ranks was made
  std::weak_ptr<Controller> controller;  // of that one
  bool mpi_is_over = false;              // somebody called MPI_Finalize

  static Job& here();
  int size() const { return mpi ? mpi->size() : 1; }
  void start(std::string by, MPI_Comm comm, bool owns_mpi, const std::string& bind = {});  ///< collective over comm
  void serve();  ///< above rank 0: works for sessions until rank 0 ends the job. What fails aborts it
  void end();    ///< on rank 0 sends the others home
  [[noreturn]] void abort(const std::string& why);
};

}  // namespace tutti::detail
