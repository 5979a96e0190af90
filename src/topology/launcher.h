// What mpirun, srun and the user have told this process about its place, by variables and by binding it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topology/node.h"

namespace tutti::topology {

using Environment = std::function<std::optional<std::string>(const char*)>;
/// Not one of the environment's: PCI ids of the NVIDIA GPUs that this process may open, where the driver says so.
inline constexpr const char* kReachableGpus = "=reachable GPUs";
/// Nor this: which GPUs the parts (MIG) in CUDA_VISIBLE_DEVICES are of, where the driver says so: "MIG-41b3...=0000:41:00.0,...".
inline constexpr const char* kWholes = "=GPUs of parts";
std::optional<std::string> this_process(
    const char* name);  ///< an Environment; empty values, too: CUDA_VISIBLE_DEVICES= hides all
/// What options of mpirun's that bind leave in a rank's environment: --bind-to, --cpu-set, --cpu-list, -rf, and older ones.
inline constexpr const char* kBindingVariables[] = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_set",
                                                    "OMPI_MCA_hwloc_base_cpu_list",       "OMPI_MCA_orte_rankfile",
                                                    "OMPI_MCA_hwloc_base_bind_to_core",   "OMPI_MCA_hwloc_base_bind_to_socket",
                                                    "OMPI_MCA_rmaps_base_cpus_per_rank"};
/// What else is asked for here, but for the local rank.
inline constexpr const char* kPlaceVariables[] = {"TUTTI_BOUND",
                                                  "OMPI_MCA_orte_bound_at_launch",
                                                  "OMPI_MCA_rmaps_base_mapping_policy",
                                                  "CUDA_VISIBLE_DEVICES",
                                                  "ROCR_VISIBLE_DEVICES",
                                                  "HIP_VISIBLE_DEVICES",
                                                  kReachableGpus,
                                                  kWholes};

struct LocalRank {
  int rank = 0, ranks = 1;  ///< on this node
};
/// Open MPI's variables before MPICH's before Slurm's: under mpirun inside Slurm, Slurm's are the daemon's.
/// @throws SetUpError  they are damaged
LocalRank local_rank(const Environment& environment);

enum class BoundBy { kNobody, kDefault, kUser };
/// Who has bound a process that is granted `cpus`: mpirun does it unasked, as `tutti bind` does (TUTTI_BOUND=1), and may be
/// overridden; what its user, Slurm or taskset said may not.
BoundBy bound_by(const Environment& environment, const Node& node, const IndexSet& cpus);

/// Positions of the GPUs that CUDA_VISIBLE_DEVICES (NVIDIA), ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, else CUDA's (AMD),
/// leave, in their order; numbers count GPUs by PCI id, those only that may be opened (kReachableGpus). As CUDA does, it ends at
/// the first that is not there. `notes` gets what was not understood. A part of a GPU (MIG) that is no device of the node's
/// (add_parts) stands for the GPU.
std::vector<int> visible_gpus(const Environment& environment, const Node& node, std::vector<std::string>& notes);

/// Parts of a GPU (MIG) that CUDA_VISIBLE_DEVICES names become devices of their own, beside the GPU: one rank gets one.
void add_parts(const Environment& environment, Node& node);

/// Variables for a program that takes device 0 and shall get this GPU: all that were visible stay so (peers are reached
/// directly), it comes first.
std::vector<std::pair<std::string, std::string>> first_gpu(const Environment& environment, const Node& node, int gpu);

}  // namespace tutti::topology
