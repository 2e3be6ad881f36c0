// Receipts: what a node reports to srun about the set-up of its tasks, and which nodes have not reported.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/receipts.h"

#include <algorithm>

#include "core/step/host_list.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string name_of(std::string_view host, std::uint32_t job) { return cat({host, " ", std::to_string(job)}); }

std::string have(const std::vector<std::string>& hosts, std::string_view one, std::string_view several) {
  return cat({write_host_list(hosts), hosts.size() == 1 ? one : several});
}

// In milliseconds.
constexpr std::uint64_t kSilent = 10'000;     // after another host reported that its tasks passed
constexpr std::uint64_t kUnpassed = 60'000;   // after the last hello of a node
constexpr std::uint64_t kGathering = 500;     // for tasks that end at about the same time
constexpr std::uint64_t kLook = 20;           // between the first looks; after the step srun forgets what has started
constexpr std::uint64_t kRunning = 2'000;     // a node is named once its tasks ran so long, or at the end of the step
constexpr std::uint64_t kLastLook = 600'000;  // no look later than that

constexpr std::string_view kRemedy = "; run there: slurm-bootstrap check --local";

}  // namespace

Receipts::Receipts(const std::vector<ComponentText>& components) {
  Rank first = 0;
  for (const auto& component : components) {
    const auto hosts = parse_host_list(component.nodes, component.tasks_per_node.size());
    if (!hosts || hosts->size() != component.tasks_per_node.size()) continue;
    std::vector<Rank> first_ranks(hosts->size(), 0);
    for (auto rank = component.node_of_rank.size(); rank > 0; --rank) {
      first_ranks[component.node_of_rank[rank - 1]] = first + static_cast<Rank>(rank - 1);
    }
    for (std::size_t i = 0; i < hosts->size(); ++i) {
      const auto [at, is_new] = by_name_.emplace(name_of((*hosts)[i], component.job), nodes_.size());
      if (is_new) {
        auto& node = nodes_.emplace_back();
        node.host = (*hosts)[i];
        node.first_rank = first_ranks[i];
      }
      nodes_[at->second].tasks += component.tasks_per_node[i];
    }
    first += static_cast<Rank>(component.node_of_rank.size());
  }
  unsettled_ = nodes_.size();
}

void Receipts::add(const NodeReport& report, bool is_elsewhere, std::uint64_t now) {
  const auto found = by_name_.find(name_of(report.host, report.job));
  if (found == by_name_.end()) return;
  auto& node = nodes_[found->second];
  const bool was_settled = node.is_settled();
  has_other_host_ = has_other_host_ || is_elsewhere;
  if (!first_at_) look_at_ = now + kLook;
  if (!first_at_) first_at_ = now;
  switch (report.kind) {
    case NodeReport::Kind::kHello:
      node.hello_at = now;
      break;
    case NodeReport::Kind::kPassed:
      node.hello_at = node.hello_at.value_or(now);
      if (is_elsewhere && !passed_elsewhere_at_) passed_elsewhere_at_ = now;
      if (std::find(node.senders.begin(), node.senders.end(), report.slurmstepd) != node.senders.end()) break;
      node.senders.push_back(report.slurmstepd);
      node.passed += std::min(report.tasks, node.tasks);
      break;
    case NodeReport::Kind::kNeverSet:
      if (was_settled || node.is_never_set) break;
      node.is_never_set = true;
      if (!gathered_at_) gathered_at_ = now + kGathering;
      look_at_ = std::min(look_at_.value_or(UINT64_MAX), *gathered_at_);
      break;
    case NodeReport::Kind::kRefused:
      node.passed = node.tasks;  // the refusal is reported in its own sentence
      break;
  }
  if (!was_settled && node.is_settled()) --unsettled_;
}

std::optional<std::uint64_t> Receipts::next_look() const {
  if (unsettled_ == 0) return std::nullopt;
  if (has_other_host_ || is_silence_noted_) return look_at_;
  return std::min(look_at_.value_or(UINT64_MAX), kUnpassed);
}

std::vector<std::string> Receipts::look(std::uint64_t now, const HasStarted& has_started, bool is_last) {
  std::vector<std::string> sentences;
  const bool is_time = is_last ? first_at_.has_value() : look_at_ && now >= *look_at_;
  if (unsettled_ == 0 || !is_time) return sentences;
  const bool is_gathered = is_last || (gathered_at_ && now >= *gathered_at_);
  std::vector<std::string> silent;
  std::vector<std::string> unpassed;
  for (auto& node : nodes_) {
    if (node.is_settled()) continue;
    const bool was_running = node.running_at && now >= *node.running_at + kRunning;
    if (!node.running_at && has_started(node.first_rank)) node.running_at = now;
    const bool is_unpassed = node.hello_at && now >= *node.hello_at + kUnpassed;
    const bool is_late = (is_gathered && node.is_never_set) || (was_running && is_unpassed);
    // Silence counts only after a report of another host has arrived: else UDP to srun may be blocked.
    const bool is_silent = !node.hello_at && passed_elsewhere_at_ && now >= *passed_elsewhere_at_ + kSilent;
    // A node sends its hello before its first task starts, so none comes after the end of the step.
    const bool never_comes = is_last && node.running_at && !node.hello_at && passed_elsewhere_at_;
    if (!is_late && !never_comes && !(was_running && is_silent)) continue;
    node.is_named = true;
    --unsettled_;
    (is_late ? unpassed : silent).push_back(node.host);
  }
  // Looks less often the longer it takes.
  look_at_ = now + std::max(kLook, (now - *first_at_) / 4);
  if (now - *first_at_ > kLastLook) look_at_.reset();
  if (is_gathered) gathered_at_.reset();
  if (gathered_at_) look_at_ = std::min(look_at_.value_or(UINT64_MAX), *gathered_at_);
  if (!silent.empty()) {
    sentences.push_back(
        cat({have(silent, " has not confirmed that its tasks", " have not confirmed that their tasks"),
             " got their ranks: the plugin's line is missing in plugstack.conf there, another plugin started the "
             "program first, UDP from there to srun is blocked, or slurm-bootstrap there is older than 1.1",
             kRemedy}));
  }
  if (!unpassed.empty()) {
    sentences.push_back(
        cat({have(unpassed, " has not confirmed that all of its tasks", " have not confirmed that all of their tasks"),
             " got their ranks: another plugin started or ended a task before slurm-bootstrap's turn", kRemedy}));
  }
  return sentences;
}

std::string Receipts::note_silence(std::uint64_t now) {
  if (unsettled_ == 0 || has_other_host_ || is_silence_noted_ || now < kUnpassed) return {};
  is_silence_noted_ = true;
  return "no other host has confirmed that its tasks got their ranks: UDP from the nodes to srun may be blocked, or "
         "slurm-bootstrap there is older than 1.1";
}

}  // namespace bootstrap
