// Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 ./train
// SPDX-License-Identifier: Apache-2.0
//
// Data-parallel training with srun alone: a small network, a GPU for each rank and NCCL, or the CPUs where there are
// none. Built with one of these; bootstrap(3) adds where a library outside of /usr is:
//
//     g++ -O2 train.cc -o train -lbootstrap                                       (CPUs)
//     nvcc -O2 -DWITH_CUDA train.cc train_cuda.cu -o train -lbootstrap -lnccl     (GPUs, and CPUs where there are none)
//
// Every rank works on its part of the same batch, and the gradients are summed over all ranks: with ncclAllReduce over
// a communicator of bootstrap_nccl_comm, or, on CPUs, with bootstrap_exchange. So any number of ranks computes what one
// process computes, up to rounding, and all ranks hold the same parameters, to the bit. Exits with 1 if they do not, or
// if the loss did not fall. Started without srun it trains alone.
#include <bootstrap/bootstrap.h>
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "train.h"
#include "train_cpu.h"

namespace {

constexpr int kTestSamples = 1024;
constexpr float kLearningRate = 0.1F;
constexpr int kRows = 8;  // of the table of losses

struct Options {
  int steps = 40;
  int batch = 256;  // samples of all ranks together
  int hidden = 32;
  int seed = 1;
};

// The step that this process is a task of; a process that srun did not start has none, and trains alone.
class Job {
 public:
  Job() {
    // The library also returns "missing" when variables of a step got lost: that must not become N separate trainings.
    const bool has_step = std::getenv("SLURM_STEP_ID") != nullptr;
    const auto status = bootstrap_open(&handle_, nullptr);
    if (status != BOOTSTRAP_ERROR_MISSING || has_step) check(status);
  }
  ~Job() { bootstrap_close(handle_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bootstrap_t* handle() const { return handle_; }  // null when alone
  int rank() const { return handle_ == nullptr ? 0 : bootstrap_rank(handle_); }
  int size() const { return handle_ == nullptr ? 1 : bootstrap_size(handle_); }

  // `mine` of every rank, in order of rank. Collective.
  template <typename T>
  std::vector<T> gather(const T& mine) const {
    std::vector<T> all(static_cast<std::size_t>(size()), mine);
    if (handle_ != nullptr) check(bootstrap_exchange(handle_, &mine, sizeof mine, all.data()));
    return all;
  }

 private:
  bootstrap_t* handle_ = nullptr;
};

// The facts that the ranks exchange before they start.
struct Member {
  char host[64];
  int local_rank;
  int device;         // as CUDA counts
  char why_cpu[160];  // empty: this rank can train on its GPU
};

Member describe(const Job& job) {
  Member member{};
  (void)gethostname(member.host, sizeof member.host - 1);
  member.local_rank = job.handle() == nullptr ? 0 : bootstrap_local_rank(job.handle());
  member.device = job.handle() == nullptr ? 0 : bootstrap_device(job.handle());
#ifdef WITH_CUDA
  const auto reason = member.device < 0 ? "Slurm gave it no GPU" : why_not_cuda(member.device);
#else
  const std::string reason = "this program was built without CUDA";
#endif
  (void)std::snprintf(member.why_cpu, sizeof member.why_cpu, "%s", reason.c_str());
  return member;
}

void print_members(const Job& job, const std::vector<Member>& members, const Member* unable) {
  if (unable == nullptr) {
    std::printf("on GPUs, gradients over NCCL\n");
  } else {
    std::printf("on CPUs, gradients over bootstrap_exchange; rank %td (%s) says: %s\n", unable - members.data(),
                unable->host, unable->why_cpu);
  }
  if (job.handle() == nullptr)
    std::printf("alone, since this process is no task of a Slurm step; start more with srun\n");
  std::printf("\n%-6s%-12s%-12s%-12s%s\n", "rank", "host", "local rank", "world size", "device");
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const auto& member = members[rank];
    const auto device = unable == nullptr ? "cuda:" + std::to_string(member.device) : "cpu";
    std::printf("%-6zu%-12s%-12d%-12zu%s\n", rank, member.host, member.local_rank, members.size(), device.c_str());
  }
  std::printf("\n");
}

// On GPUs only if every rank can: otherwise some would wait in NCCL for ranks that never come there. Collective.
std::unique_ptr<Model> make_model(const Job& job, const Options& options) {
  const auto members = job.gather(describe(job));
  const auto at =
      std::find_if(members.begin(), members.end(), [](const auto& member) { return member.why_cpu[0] != 0; });
  const Member* const unable = at == members.end() ? nullptr : &*at;
  if (job.rank() == 0) print_members(job, members, unable);
  const auto parameters = first_parameters(options.seed, options.hidden);
#ifdef WITH_CUDA
  if (unable == nullptr) {
    return make_cuda_model(job.handle(), members[static_cast<std::size_t>(job.rank())].device, parameters);
  }
#endif
  return std::make_unique<CpuModel>(job.handle(), options.hidden, parameters);
}

// The same batch of all ranks, cut into parts whose sizes differ by one sample at most. Returns milliseconds per step.
double train(Model& model, const Job& job, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto part = [&](std::int64_t rank) { return options.batch * rank / job.size(); };
  const int every = std::max(1, options.steps / kRows);
  const auto start = Clock::now();
  for (int step = 1; step <= options.steps; ++step) {
    const auto first = std::int64_t{step} * options.batch;
    const auto mine = make_samples(options.seed, first + part(job.rank()), first + part(job.rank() + 1));
    const float loss = model.step(mine, options.batch, kLearningRate);
    if (job.rank() == 0 && step % every == 0) {
      std::printf("step %5d  loss %.6f\n", step, static_cast<double>(loss));
      (void)std::fflush(stdout);
    }
  }
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / std::max(1, options.steps);
}

// The result of one rank, computed without the others.
struct Outcome {
  float loss;
  std::uint64_t checksum;  // FNV-1a of the bytes of the parameters
};

Outcome outcome_of(const std::vector<float>& parameters, const Options& options, const Samples& test) {
  Outcome outcome{};
  outcome.loss = mean_squared_error(parameters, options.hidden, test);
  outcome.checksum = 0xcbf29ce484222325U;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(parameters.data());
  for (std::size_t at = 0; at < parameters.size() * sizeof(float); ++at) {
    outcome.checksum = (outcome.checksum ^ bytes[at]) * 0x100000001b3U;
  }
  return outcome;
}

// True if all ranks ended with the same result; rank 0 prints the ranks that did not. Collective.
bool all_agree(const Job& job, const Outcome& mine) {
  const auto all = job.gather(mine);
  bool agree = true;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool equal = all[rank].checksum == all[0].checksum && std::memcmp(&all[rank].loss, &all[0].loss, 4) == 0;
    if (!equal && job.rank() == 0) {
      (void)std::fprintf(stderr,
                         "train: rank %zu ended with loss %.9g and parameters %016jx, rank 0 with %.9g and %016jx\n",
                         rank, static_cast<double>(all[rank].loss), static_cast<std::uintmax_t>(all[rank].checksum),
                         static_cast<double>(all[0].loss), static_cast<std::uintmax_t>(all[0].checksum));
    }
    agree = agree && equal;
  }
  return agree;
}

int run(const Options& options) {
  const Job job;
  const auto model = make_model(job, options);
  const auto test = make_samples(options.seed, -kTestSamples, 0);
  const auto before = outcome_of(model->parameters(), options, test);
  const double milliseconds = train(*model, job, options);
  const auto after = outcome_of(model->parameters(), options, test);
  if (!all_agree(job, after)) return 1;
  if (job.rank() == 0) {
    std::printf("\nfinal loss %.6f (it was %.6f) and parameters %016jx on all %d ranks, %.2f ms per step\n",
                static_cast<double>(after.loss), static_cast<double>(before.loss),
                static_cast<std::uintmax_t>(after.checksum), job.size(), milliseconds);
  }
  if (after.loss < before.loss || options.steps == 0) return 0;
  if (job.rank() == 0) (void)std::fprintf(stderr, "train: the loss did not fall\n");
  return 1;
}

// Returns false when the command line is not understood.
bool parse(int count, char** words, Options& options) {
  const option known[] = {{"steps", required_argument, nullptr, 's'},
                          {"batch", required_argument, nullptr, 'b'},
                          {"hidden", required_argument, nullptr, 'h'},
                          {"seed", required_argument, nullptr, 'r'},
                          {nullptr, 0, nullptr, 0}};
  for (int key; (key = getopt_long(count, words, "", known, nullptr)) != -1;) {
    if (key == '?') return false;
    char* end = nullptr;
    const long value = std::strtol(optarg, &end, 10);
    if (end == optarg || *end != '\0' || value < (key == 's' ? 0 : 1) || value > 1000000) return false;
    (key == 's'   ? options.steps
     : key == 'b' ? options.batch
     : key == 'h' ? options.hidden
                  : options.seed) = static_cast<int>(value);
  }
  return optind == count;
}

}  // namespace

int main(int count, char** words) {
  Options options;
  if (!parse(count, words, options)) {
    (void)std::fprintf(stderr,
                       "Usage: train [--steps N] [--batch N] [--hidden N] [--seed N]\n"
                       "  steps of gradient descent (%d), samples of all ranks in a step (%d), units of the hidden\n"
                       "  layer (%d; on CPUs 1,638 at most, since an exchange takes 64 KiB), seed of everything (%d)\n",
                       options.steps, options.batch, options.hidden, options.seed);
    return 2;
  }
  try {
    return run(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
