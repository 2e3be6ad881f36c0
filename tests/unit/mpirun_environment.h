// The environment of an imaginary rank that mpirun of Open MPI 4.1 started.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "step_environment.h"

namespace bootstrap {

// Job [12141,1]: four ranks on two nodes.
inline Environment mpirun_rank(int rank) {
  return environment_of({{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % 2)},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_COMM_WORLD_NODE_RANK", std::to_string(rank % 2)},
                         {"PMIX_NAMESPACE", "795672577"},
                         {"PMIX_RANK", std::to_string(rank)},
                         {"PMIX_HOSTNAME", rank < 2 ? "node001" : "node002"}});
}

// The same four ranks on node001.
inline Environment mpirun_rank_on_one_node(int rank) {
  auto environment = mpirun_rank(rank);
  environment.set("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank));
  environment.set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  environment.set("PMIX_HOSTNAME", "node001");
  return environment;
}

}  // namespace bootstrap
