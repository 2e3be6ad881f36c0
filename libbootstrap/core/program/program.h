// What a step starts, judged by its command line and the first bytes of its file: a training program, torchrun, or one
// of the many that are none of our business.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/util/environment.h"

namespace bootstrap {

enum class ProgramKind : std::uint8_t {
  kTraining,  // may be a training program: ELF, Python
  kTorchrun,  // torchrun, or python -m torch.distributed.run or launch, which leaves nodes and rendezvous to us
  kLauncher,  // starts ranks, workers or other programs itself: mpirun, accelerate, ray, make; a torchrun that does not
              // leave nodes and rendezvous to us is one, too
  kShell,     // a shell
  kScript,    // a script of another interpreter, what is no program at all, or behind words that are not known
  kUnseen,    // cannot be seen from here, and its name says nothing
};

struct Program {
  ProgramKind kind = ProgramKind::kUnseen;
  std::string name;    // the word that decided, without its folder: "mpirun", "train.py", "apptainer"
  std::string reason;  // for people, short: "mpirun starts its own ranks", "bash is a shell"
};

// The first bytes of a file, read by srun as the user. Nothing: it cannot be opened, or is no regular file.
inline constexpr std::size_t kProgramHead = 256;

// Where the words of the command line are looked up. Pure: files are read by the caller.
class ProgramFiles {
 public:
  virtual ~ProgramFiles() = default;
  // The first kProgramHead bytes of the file at this path; a relative one counts from srun's working directory.
  virtual std::optional<std::string> head(const std::string& path) const = 0;
};

struct ProgramPlace {
  const Environment& environment;  // srun's: PATH, VIRTUAL_ENV, CONDA_PREFIX, PET_*
  const ProgramFiles& files;
  bool has_chdir = false;   // srun --chdir: a relative name is unseen
  std::uint32_t nodes = 1;  // of the step: `torchrun --nnodes=N` with that N says nothing new
};

// `words` is the command line of the step's program, as srun has it.
Program classify_program(std::span<const std::string> words, const ProgramPlace& place);

// The same by a process about itself: by names alone, without files. For the preload: neither allocates nor throws.
// True for launchers and agents, also where an interpreter runs one (python /usr/bin/torchrun, python -m ...).
bool is_launcher_process(int count, const char* const* words) noexcept;

}  // namespace bootstrap
