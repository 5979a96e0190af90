// Watches tutti's calls of MPI (PMPI): what is made is freed, device and sub-communicators before shared memory, that before the
// control communicator (the first one made), then MPI_Finalize, not from a static destructor.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "tutti/tutti.h"

namespace {

std::map<MPI_Comm, int> alive;  // which one it was
int made = 0;
bool in_main = true;
std::string wrong;

bool maps_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:tutti") != std::string::npos) return true;
  return false;
}

int made_one(int code, MPI_Comm comm) {
  if (code == MPI_SUCCESS && comm != MPI_COMM_NULL) alive[comm] = made++;
  return code;
}

int controller(int, char**) {
  using namespace tutti;
  for (int round = 0; round < 2; ++round) {
    Session s = Session::create({.num_groups = 2});
    DRef x = s.empty({1000}, kFloat32), y = s.empty({1000}, kFloat32);
    s.allreduce(x, y);
    s.get_global_func("finalise.communicate")();
    s.sync_all();
    if (round == 0) s.shutdown();  // the other is dropped
  }
  return 0;
}

}  // namespace

extern "C" int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* out) {
  const int code = PMPI_Comm_split(comm, color, key, out);
  return made_one(code, *out);
}
extern "C" int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* out) {
  const int code = PMPI_Comm_split_type(comm, type, key, info, out);
  return made_one(code, *out);
}
extern "C" int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* out) {
  const int code = PMPI_Comm_create_group(comm, group, tag, out);
  return made_one(code, *out);
}
extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  const auto it = alive.find(*comm);
  if (it == alive.end()) wrong += "freed what it has not made; ";
  else if (it->second == 0) {
    if (alive.size() > 1) wrong += "the control communicator was not the last; ";
    if (maps_shared_memory()) wrong += "shared memory outlives the control communicator; ";
  }
  if (it != alive.end()) alive.erase(it);
  return PMPI_Comm_free(comm);
}
extern "C" int MPI_Finalize() {
  if (!alive.empty()) wrong += std::to_string(alive.size()) + " communicators are left; ";
  if (!in_main) wrong += "after main; ";
  std::printf("finalise: %d communicators; wrong: %s\n", made, wrong.empty() ? "nothing" : wrong.c_str());
  std::fflush(stdout);
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  tutti::register_global_func("finalise.communicate", [] {
    using namespace tutti;
    const Tensor x = Tensor::full<float>({64}, 1);
    worker::world().allreduce(x, x);
    worker::group().allreduce(x, x);
    worker::world().split(worker::id() % 2).allreduce(x, x);
    const char* shared = std::getenv("TUTTI_SHARED_MEMORY");
    if (!(shared && *shared == '0') && !maps_shared_memory())
      throw std::logic_error("no memfd:tutti is mapped: this test looks for the wrong name");
  });
  const int code = tutti::run(argc, argv, controller);
  in_main = false;
  return wrong.empty() ? code : 5;
}
