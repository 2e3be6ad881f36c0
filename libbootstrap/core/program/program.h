// Finds what a step starts, by one scan of its command line and the first bytes of the files in it: a training
// program, torchrun, or a program that is left alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/program/program_files.h"
#include "core/program/torchrun_options.h"
#include "core/util/environment.h"

namespace bootstrap {

enum class ProgramKind : std::uint8_t {
  kTraining,  // may be a training program: ELF, Python
  kTorchrun,  // torchrun, or python -m torch.distributed.run or launch, which leaves nodes and rendezvous to us
  kLauncher,  // starts ranks, workers or other programs itself: mpirun, accelerate, ray, make; a torchrun that does not
              // leave nodes and rendezvous to us is one, too
  kShell,     // a shell
  kScript,    // a script of another interpreter, no program at all, or one that may start a shell or a launcher
  kUnseen,    // cannot be seen from here, and its name is unknown
};

struct Program {
  ProgramKind kind = ProgramKind::kUnseen;
  std::string name;           // the word that decided, without its folder: "mpirun", "train.py", "apptainer"
  std::string reason;         // for people, short: "mpirun starts its own ranks", "bash is a shell"
  std::string remedy = {};    // of a launcher, and of a program that may start one: what helps; else empty
  bool starts_ranks = false;  // of a launcher: MPI's or a framework's
  bool is_stuck = false;      // its options make it wait for ever on the nodes of the step
  std::string closed = {};    // a sentence: what keeps the variables of the task from the program; empty: nothing known
};

struct ProgramPlace {
  Environment environment;  // srun's: PATH, VIRTUAL_ENV, CONDA_PREFIX, PET_*
  ReadHead read_head;
  bool has_chdir = false;  // srun --chdir: a relative name is unseen
  std::uint32_t tasks = 1;
  NodesOfStep nodes = {};
  std::string launchers = {};  // the site's own, separated by commas
  std::string trainers = {};
};

// `words` is the command line of the step's program, as srun has it.
Program classify_program(std::span<const std::string> words, const ProgramPlace& place);

// The same from the words alone, if no file may be read.
ProgramKind kind_by_words(std::span<const std::string> words, const Environment& environment, std::uint32_t nodes);

}  // namespace bootstrap
