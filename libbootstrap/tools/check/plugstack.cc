// The line of plugstack.conf that loads the plugin, read as Slurm reads it, and what is wrong with it.
// SPDX-License-Identifier: Apache-2.0
//
// Slurm's own reader is src/common/spank.c (plugstack.c before 23.11): _spank_stack_load, _plugin_stack_parse_line.
#include "tools/check/plugstack.h"

#include <fcntl.h>
#include <glob.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "core/settings/settings.h"
#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

constexpr std::string_view kFile = "spank_bootstrap.so";
constexpr int kMostIncludes = 16;  // of each other: Slurm itself has no limit
// spank_plugin/spank_hooks.cc
constexpr std::string_view kMark = "slurm-bootstrap plugin ";
constexpr std::string_view kMarkOfSlurm = " for Slurm ";
constexpr std::size_t kMostOfPlugin = 8 << 20;  // what is loaded comes first, and debug information after it
constexpr std::size_t kMostOfConfig = 8 << 20;  // of a slurm.conf that names each node of a large cluster: 1 MiB

std::vector<std::string> words_of(std::string_view line) {
  std::istringstream stream{std::string(line.substr(0, line.find('#')))};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }  // npos + 1 is 0

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string in_folders(const std::string& plugin, const std::string& folders) {
  if (plugin.starts_with('/')) return plugin;
  for (const auto folder : split(folders, ':')) {
    auto path = cat({folder, "/", plugin});
    if (exists(path)) return path;
  }
  return plugin;
}

// The error is in errno. A user's variable may name any file: a FIFO without a writer is empty.
std::optional<std::string> beginning_of(const std::string& path, std::size_t most) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return std::nullopt;
  auto text = read_whole(file.get(), most);
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

// Adds what is wrong to `troubles`. Slurm takes a missing file for an empty one.
std::string read_config(const std::string& path, std::vector<std::string>& troubles) {
  auto text = beginning_of(path, kMostOfConfig);
  if (!text && errno != ENOENT) troubles.push_back(cat({path, ": ", std::strerror(errno)}));
  if (text && text->size() > kMostOfConfig) {
    troubles.push_back(cat({path, " is larger than 8 MiB, and was not read further; is it the right file?"}));
  }
  return text ? std::move(*text) : std::string();
}

class Reader {
 public:
  explicit Reader(LocalPlugin& found) : found_(found) {}

  void read(const std::string& path, int depth) {
    const auto before = lines_;
    const auto text = read_config(path, found_.troubles);
    unsigned number = 0;
    for (const auto line : split(text, '\n')) {
      take(path, cat({path, ":", std::to_string(++number), ": "}), words_of(line), depth);
    }
    const auto distrust = distrust_of_writers(path);
    if (lines_ > before && !distrust.empty()) found_.troubles.push_back(cat({path, ": ", distrust}));
  }

 private:
  void take(const std::string& path, const std::string& place, const std::vector<std::string>& words, int depth) {
    if (words.empty()) return;
    const auto& type = words.front();
    if (type != "required" && type != "optional" && type != "include") {
      complain(place, cat({quote(type), " is not optional, required or include; Slurm ignores the line"}));
    } else if (words.size() < 2) {
      complain(place, cat({type, " names no file; Slurm ignores the line"}));
    } else if (type == "include") {
      include(path, place, words[1], depth);
    } else if (name_of(words[1]) == kFile) {
      load(place, words);
    } else {
      compare_order(place, words[1]);
    }
  }

  // Slurm calls each hook of all plugins in the order of the lines, and our variables are set in task_init. A plugin
  // that stands before our line is kept until our line is found.
  void compare_order(const std::string& place, const std::string& plugin) {
    const auto has = [name = name_of(plugin)](const char* part) { return name.find(part) != std::string::npos; };
    // pyxis_slurmstepd.c: the first task of the node exports its environment, and each task imports it.
    if (lines_ > 0 && has("pyxis")) {
      complain(place, cat({plugin, " gives all tasks of a node the environment of one of them, with its RANK; ",
                           "move this line before ", own_place_}));
    }
    // GSI's slurm-singularity-exec calls execvpe(); the same plugin has the new name of the program, too.
    if (lines_ == 0 && before_us_.size() < kMostTroubles && (has("singularity") || has("apptainer"))) {
      before_us_.push_back(cat({place, plugin, " starts the program in its own task_init, so that a plugin behind it ",
                                "sets nothing; move this line behind "}));
    }
  }

  void load(const std::string& place, std::vector<std::string> words) {
    if (++lines_ > 1) {
      complain(place, "loads the plugin again, and its arguments are ignored; remove this line");
      return;
    }
    own_place_ = cat({place.substr(0, place.size() - 2), ", the line of ", kFile,
                      "; in a folder of *.conf files their names decide the order"});
    for (const auto& line : before_us_) found_.troubles.push_back(cat({line, own_place_}));
    found_.path = in_folders(words[1], found_.plugin_dir);
    words.erase(words.begin() + 1);
    found_.line = cat({place, join(words, " ")});
    Settings settings;
    for (const auto& argument : std::span(words).subspan(1)) {
      const auto applied = apply_site_argument(settings, argument);
      if (!applied) complain(place, applied.error().message);
    }
    read_plugin(place);
  }

  void read_plugin(const std::string& place) {
    const auto read = beginning_of(found_.path, kMostOfPlugin);
    if (!read) {
      found_.trouble = cat({place, found_.path, ": ", std::strerror(errno)});
      return;
    }
    const std::string& content = *read;
    const auto at = content.find(kMark);
    const auto text = at == std::string::npos ? std::string() : content.substr(at + kMark.size(), 64);
    const auto middle = text.find(kMarkOfSlurm);
    if (middle == std::string::npos) {
      found_.trouble = cat({place, found_.path, " is not a plugin of slurm-bootstrap"});
      return;
    }
    found_.version = text.substr(0, middle);
    found_.slurm = text.substr(middle + kMarkOfSlurm.size());
    found_.slurm.resize(std::min(found_.slurm.size(), found_.slurm.find('\0')));
    const auto distrust = distrust_of_writers(found_.path);
    if (!distrust.empty()) found_.trouble = cat({place, found_.path, ": ", distrust});
  }

  void include(const std::string& path, const std::string& place, const std::string& pattern, int depth) {
    const auto absolute = pattern.starts_with('/') ? pattern : cat({folder_of(path), "/", pattern});
    if (depth == kMostIncludes) {
      complain(place, "the files include each other; Slurm does not stop reading them");
      return;
    }
    glob_t files{};
    if (::glob(absolute.c_str(), 0, nullptr, &files) != 0) {
      found_.unmatched.push_back(cat({place, "include ", pattern, " finds no file"}));
    }
    for (std::size_t i = 0; i < files.gl_pathc && found_.troubles.size() < kMostTroubles; ++i) {
      read(files.gl_pathv[i], depth + 1);
    }
    ::globfree(&files);
  }

  void complain(const std::string& place, std::string_view what) {
    if (found_.troubles.size() < kMostTroubles) found_.troubles.push_back(cat({place, what}));
  }

  static constexpr std::size_t kMostTroubles = 8;
  LocalPlugin& found_;
  unsigned lines_ = 0;  // that load the plugin
  std::string own_place_;
  std::vector<std::string> before_us_;  // sentences about plugins that belong behind our line
};

// The value of `Key=value` or `Key = value` in a text of such lines, with any case of the key.
std::string value_of(std::string_view text, const char* key) {
  std::string found;
  for (const auto line : split(text, '\n')) {
    const auto content = line.substr(0, line.find('#'));
    const auto equals = content.find('=');
    const std::string name(trim(content.substr(0, equals)));
    if (equals == std::string_view::npos || ::strcasecmp(name.c_str(), key) != 0) continue;
    const auto value = trim(content.substr(equals + 1));
    if (value != "(null)") found = value.substr(0, value.find(' '));
  }
  return found;
}

// `place`: of slurm.conf; may be empty.
LocalPlugin files_of(std::string_view config, const std::string& place) {
  auto plugstack = value_of(config, "PlugStackConfig");
  if (plugstack.empty() && !place.empty()) plugstack = cat({folder_of(place), "/plugstack.conf"});
  return {.plugstack = std::move(plugstack), .plugin_dir = value_of(config, "PluginDir")};
}

}  // namespace

LocalPlugin find_slurm_files(const Environment& environment, const std::string& root) {
  std::vector<std::string> places{std::string(environment.get("SLURM_CONF").value_or(""))};
  for (const auto* const folder : {"/etc/slurm", "/run/slurm/conf", "/usr/local/etc", "/etc/slurm-llnl"}) {
    places.push_back(cat({root, folder, "/slurm.conf"}));
  }
  const auto place = std::find_if(places.begin(), places.end(), exists);
  if (place == places.end()) return {};
  std::vector<std::string> troubles;
  auto files = files_of(read_config(*place, troubles), *place);
  files.troubles = std::move(troubles);
  return files;
}

LocalPlugin read_slurm_config(const std::string& text) { return files_of(text, value_of(text, "SLURM_CONF")); }

LocalPlugin look_at_plugin(LocalPlugin found) {
  if (!found.plugstack.empty()) Reader(found).read(std::string(found.plugstack), 0);
  return found;
}

}  // namespace bootstrap
