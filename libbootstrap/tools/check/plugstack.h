// The lines of plugstack.conf that load the plugin, read as Slurm reads them, and what is wrong with them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/util/environment.h"

namespace bootstrap {

// Where Slurm's own files are on this machine.
struct SlurmFiles {
  std::string plugstack;   // empty: no slurm.conf was found
  std::string plugin_dir;  // folders for plugins without a path, separated by colons; may be empty
};

// From SLURM_CONF, or the usual places. `root` is put before every path: for tests.
SlurmFiles find_slurm_files(const Environment& environment, const std::string& root = "");

// What `scontrol show config` prints, where no slurm.conf was found.
SlurmFiles read_slurm_config(const std::string& text);

struct PlugstackLine {
  std::string place;                   // "/etc/slurm/plugstack.conf:3"
  bool is_required = false;            // else optional
  std::string plugin;                  // its path, or the word of the line if no folder has it
  std::vector<std::string> arguments;  // "when=always"
};

struct Plugstack {
  std::vector<PlugstackLine> lines;    // of this plugin
  std::vector<std::string> troubles;   // "/etc/slurm/plugstack.conf:3: ..."
  std::vector<std::string> unmatched;  // includes that find no file: "/etc/slurm/plugstack.conf:1: include ..."
};

Plugstack read_plugstack(const SlurmFiles& files);

// The plugin that a line loads.
struct InstalledPlugin {
  std::string version;  // "0.1.0"; empty: see the trouble
  std::string slurm;    // the Slurm that it was built for: "22.05.8"
  std::string trouble;  // why there is none, as a sentence without a place
};

InstalledPlugin read_plugin(const std::string& path);

// All of this on one machine.
struct LocalPlugin {
  SlurmFiles files;
  Plugstack plugstack;
  InstalledPlugin plugin;   // of the first line, if there is one
  std::string distrust;     // why its file is not safe to load; empty: it is
  bool is_expected = true;  // this host is meant to load it
};

LocalPlugin look_at_plugin(SlurmFiles files);

}  // namespace bootstrap
