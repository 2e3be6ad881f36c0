// The deadline of a call also holds if NCCL or CUDA does not start at all.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_library.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "communicator_step.h"
#include "in_child.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout{1000};

// The sentence of the C function on each rank. A call without an end is ended by SIGALRM, which fails the test.
std::vector<std::string> make_comms(const std::string& nccl, std::uint32_t ranks) {
  (void)::alarm(300);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  std::vector<std::string> sentences(ranks);
  for_each_rank({ranks}, [&](bootstrap_t& job, Rank rank) {
    job.timeout = kTimeout;
    job.device = static_cast<int>(rank);
    job.nccl_library = nccl;
    ncclComm* comm = nullptr;
    const auto status = bootstrap_nccl_comm(&job, BOOTSTRAP_WORLD, nullptr, &comm);
    sentences[rank] = status == BOOTSTRAP_OK ? "" : bootstrap_last_error();
  });
  return sentences;
}

TEST(FirstCalls, OfALibraryOrDriverThatDoesNotStartEndInTheDeadline) {
  in_child([] {
    for (const auto& sentence : make_comms(DOUBLES_DIR "/nccl_endless.so", 2)) {
      EXPECT_NE(sentence.find("the start of NCCL and the GPU on this rank has not ended before the deadline"),
                std::string::npos)
          << sentence;
    }
  });
  for (const bool stalls : {true, false}) {
    in_child([stalls] {
      load_gpus("2");
      if (stalls) ::setenv("CUDA_DOUBLE_STALL", "1", 1);
      for (const auto& sentence : make_comms(nccl_double_path("2.28.9"), 2)) {
        EXPECT_EQ(sentence.find("has not ended before the deadline") != std::string::npos, stalls) << sentence;
        EXPECT_EQ(sentence.empty(), !stalls) << "control: " << sentence;
      }
    });
  }
}

// The root has time left to send the reason to the other ranks.
TEST(FirstCalls, AnIdThatIsNeverMadeEndsInTheDeadlineOnAllRanks) {
  in_child([] {
    (void)::alarm(300);
    Step step({1, 2});
    const auto comms = step.make(
        [](Rank, Call& call) {
          call.nccl.get_unique_id = [](nccl::UniqueId*) {
            for (;;) (void)::pause();
            return nccl::kSuccess;
          };
        },
        kTimeout);
    for (const auto& comm : comms) {
      ASSERT_FALSE(comm);
      EXPECT_NE(comm.error().message.find("ncclGetUniqueId has not ended before the deadline"), std::string::npos)
          << comm.error().message;
    }
  });
}

}  // namespace
}  // namespace bootstrap
