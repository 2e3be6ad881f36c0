// A machine with known files, for the judgement of command lines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.h"
#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {

inline const std::string kElf =
    "\x7f"
    "ELF";

// All files of the machine.
inline ProgramHead known_head(const std::string& path) {
  static const std::map<std::string, std::string> kFiles{
      {"/usr/bin/env", kElf},
      {"/usr/bin/nvcc-made", kElf},
      {"./test", kElf},
      {"/usr/bin/gmx", kElf},
      {"/usr/bin/stat", kElf},
      {"/usr/bin/test", kElf},
      {"/usr/bin/perl-script", "#!/usr/bin/perl -w\n"},
      {"/usr/bin/folds", "#!/bin/bash\n"},
      {"/usr/bin/pip-script", "#!/bin/sh\n'''exec' \"/opt/my env/bin/python\" \"$0\" \"$@\"\n' '''\n"},
      {"/usr/bin/torchrun_jsc", "#!/usr/bin/python3\n"},
      {"/usr/bin/dotenv", "#!/usr/bin/python3\n"},
      {"./train", kElf},
      {"bin/train", kElf},
      {"./wrap", kElf},
      {"./folds.sh", "#!/bin/bash\nexec python3 train.py\n"},
      {"./select_gpu", "#!/bin/bash\nexec \"$@\"\n"},
      {"./perf", "#!/bin/bash\nexec \"$@\"\n"},
      {"./sh-of-python", "#!/bin/sh\nexec python3 \"$@\"\n"},
      {"./trainer", "#!/usr/bin/env python3\n"},
      {"./trainer-S", "#!/usr/bin/env -S python3 -u\n"},
      {"./trainer-uv", "#!/usr/bin/env -S uv run --script\n"},
      {"./rscript", "#!/usr/bin/env Rscript\n"},
      {"./image.sif", "#!/usr/bin/env run-singularity\n"},
      {"./data", "0-1 ./train\n2 ./other\n"},
      {"./settings.sh", ""},  // not executable
      {"./local-prog", kElf},
      {"./run", "#!/bin/bash\n"},
      {"./tune", kElf},
      {"./hq", "#!/bin/bash\n"},
      {"/venv/bin/mytrain", "#!/venv/bin/python3\n"},
      {"/conda/envs/torch/bin/ctrain", "#!/conda/envs/torch/bin/python\n"},
      {".venv/bin/dottrain", "#!/somewhere/.venv/bin/python\n"},
      {"/opt/bin/special", kElf},
      {"/home/me/shim/python3", "#!/bin/bash\nexec apptainer exec x python3\n"},
  };
  const auto found = kFiles.find(path);
  return found == kFiles.end() ? std::nullopt : ProgramHead(found->second);
}

inline std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const auto word : split(line, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

inline Environment user_environment() {
  return environment_of({{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"CONDA_PREFIX", "/conda"}});
}

inline Program program_of(std::string_view line, const Environment& environment = user_environment(),
                          bool has_chdir = false) {
  return classify_program(words_of(line), {.environment = environment,
                                           .read_head = known_head,
                                           .has_chdir = has_chdir,
                                           .tasks = 2,
                                           .nodes = {.count = 2, .others = {"node003"}},
                                           .launchers = "farmctl,our.farm",
                                           .trainers = "train_wrapper,folds-of-ours"});
}

}  // namespace bootstrap
