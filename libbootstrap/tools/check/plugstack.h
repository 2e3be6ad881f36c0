// The line of plugstack.conf that loads the plugin, read as Slurm reads it, and what is wrong with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/util/environment.h"

namespace bootstrap {

// The plugin on one machine.
struct LocalPlugin {
  // Where Slurm's own files are.
  std::string plugstack = {};              // empty: no slurm.conf was found
  std::string plugin_dir = {};             // folders for plugins without a path, separated by colons; may be empty
  std::vector<std::string> troubles = {};  // of files and arguments: "/etc/slurm/plugstack.conf:3: ..."

  std::string line = {};  // that loads the plugin: "/etc/slurm/plugstack.conf:3: optional when=always"
  std::vector<std::string> unmatched = {};  // includes that find no file: "/etc/slurm/plugstack.conf:1: include ..."
  std::string path = {};     // of the plugin, or the word of the line if no folder has it; empty: no line loads it
  std::string version = {};  // "0.1.0"; empty: see the trouble
  std::string slurm = {};    // the Slurm that it was built for: "22.05.8"
  std::string trouble = {};  // why Slurm does not load it, or should not

  bool is_expected = true;  // this host is meant to load it
};

// Finds Slurm's files: from SLURM_CONF, or the usual places. `root` is put before every path: for tests.
LocalPlugin find_slurm_files(const Environment& environment, const std::string& root = "");

// Where Slurm may look for plugins, if neither slurm.conf nor slurmctld names it.
inline constexpr std::string_view kUsualPluginDirs =
    "/usr/lib/x86_64-linux-gnu/slurm-wlm:/usr/lib/aarch64-linux-gnu/slurm-wlm:/usr/lib/x86_64-linux-gnu/slurm:"
    "/usr/lib/aarch64-linux-gnu/slurm:/usr/lib64/slurm:/usr/lib/slurm:/usr/local/lib/slurm:/opt/slurm/lib/slurm";

// The same from what `scontrol show config` prints, where no slurm.conf was found, or one without PluginDir.
LocalPlugin read_slurm_config(const std::string& text);

// Reads plugstack.conf and the file of the plugin.
LocalPlugin look_at_plugin(LocalPlugin found);

}  // namespace bootstrap
