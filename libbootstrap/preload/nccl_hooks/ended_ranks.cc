// Which ranks of this node have ended, by what the kernel says of slurmstepd's children.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/ended_ranks.h"

#include <dirent.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::optional<std::string> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (file == nullptr) return std::nullopt;
  std::string text;
  char bytes[4096];
  while (const auto size = std::fread(bytes, 1, sizeof bytes, file.get())) text.append(bytes, size);
  if (std::ferror(file.get()) != 0 || text.empty()) return std::nullopt;
  return text;
}

struct Process {
  std::string name;
  char state = '?';
  std::uint64_t parent = 0;
};

// proc(5): "PID (NAME) STATE PPID ...", where NAME may hold spaces and parentheses.
std::optional<Process> read_process(const std::string& folder) {
  const auto text = read_file(folder + "/stat");
  if (!text) return std::nullopt;
  const auto begin = text->find('(');
  const auto end = text->rfind(") ");
  if (begin == std::string::npos || end == std::string::npos || end + 2 >= text->size()) return std::nullopt;
  const auto fields = split(std::string_view(*text).substr(end + 2), ' ');
  const auto parent = fields.size() > 1 ? parse_unsigned(fields[1]) : std::nullopt;
  if (!parent) return std::nullopt;
  return Process{text->substr(begin + 1, end - begin - 1), fields[0].empty() ? '?' : fields[0].front(), *parent};
}

std::optional<Rank> read_rank(const std::string& folder) {
  const auto environment = read_file(folder + "/environ");
  if (!environment) return std::nullopt;
  constexpr std::string_view kName = "SLURM_PROCID=";
  for (const auto entry : split(*environment, '\0')) {
    if (entry.substr(0, kName.size()) != kName) continue;
    const auto rank = parse_unsigned(entry.substr(kName.size()), kMaxRanks - 1);
    if (rank) return static_cast<Rank>(*rank);
  }
  return std::nullopt;
}

bool is_number(std::string_view text) { return parse_unsigned(text).has_value(); }

}  // namespace

std::vector<Rank> ended_ranks(const Layout& layout, Rank rank, pid_t task, const char* proc) {
  const auto folder_of = [proc](std::string_view id) { return cat({proc, "/", id}); };
  const auto own = read_process(folder_of(std::to_string(task)));
  const auto step = own ? read_process(folder_of(std::to_string(own->parent))) : std::nullopt;
  if (!step || step->name != "slurmstepd") return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir(proc), ::closedir);
  if (all == nullptr) return {};
  std::vector<Rank> there;
  while (const auto* const entry = ::readdir(all.get())) {
    const std::string_view name = entry->d_name;
    const auto process = is_number(name) ? read_process(folder_of(name)) : std::nullopt;
    if (!process || process->parent != own->parent || process->state == 'Z' || process->state == 'X') continue;
    const auto found = read_rank(folder_of(name));
    if (!found) return {};  // a child that cannot be looked at could be any rank
    there.push_back(*found);
  }
  const auto has = [&there](Rank one) { return std::find(there.begin(), there.end(), one) != there.end(); };
  if (!has(rank)) return {};
  auto ranks = layout.ranks_on(layout.place(rank).node);
  std::erase_if(ranks, has);
  return ranks;
}

}  // namespace bootstrap
