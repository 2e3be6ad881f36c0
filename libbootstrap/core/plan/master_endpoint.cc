// Where the ranks meet: MASTER_ADDR and MASTER_PORT, the same on every node without a word between them.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/master_endpoint.h"

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string_view layout_origin(LayoutSource source) {
  switch (source) {
    case LayoutSource::kStepLayout:
      return "host of rank 0, from srun";
    case LayoutSource::kMpirun:
      return "this host, where all ranks are";
    case LayoutSource::kDistribution:
      break;
  }
  return "first host of SLURM_STEP_NODELIST";
}

Error no_reserved_port(const Environment& environment) {
  const auto text = environment.get("SLURM_STEP_RESV_PORTS").value_or("");
  return {ErrorCode::kInvalid,
          cat({"SLURM_STEP_RESV_PORTS=", quoted(text), " does not start with a port from 1024 to 65535; ask for one ",
               "with --bootstrap-port, or ask your administrator to check MpiParams=ports= in slurm.conf"})};
}

// splitmix64's finalizer: what is close together lands anywhere but beside each other.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::uint64_t ids_of(const StepId& id) {
  return (std::uint64_t{id.job} << 32) ^ (std::uint64_t{id.restart} << 24) ^ id.step;
}

std::uint64_t size_of(const PortRange& range) { return std::uint64_t{range.high} - range.low + 1; }

}  // namespace

std::uint16_t computed_port(const StepId& id, const PortRange& range, std::uint64_t salt) {
  constexpr std::uint64_t kPerJob = 37;
  constexpr std::uint64_t kPerRestart = 5003;  // prime, far from a multiple of kPerJob
  const auto place = salt == 0 ? id.job * kPerJob + id.step + id.restart * kPerRestart : mix(salt);
  return static_cast<std::uint16_t>(range.low + place % size_of(range));
}

std::uint16_t further_port(const StepFacts& facts, const PortRange& range, std::uint32_t n) {
  if (facts.reserved_ports && n < facts.reserved_ports->size()) return (*facts.reserved_ports)[n];
  const auto salt = facts.decision.salt;
  const auto size = size_of(range);
  const auto master = std::uint64_t{computed_port(facts.id, range, salt)} - range.low;
  const auto first = mix(ids_of(facts.id) ^ salt) % size;
  // Counted from the first one upwards, around the end of the range, and past the step's own MASTER_PORT.
  const bool passes_master = (master + size - first) % size < n;
  const auto offset = (first + n - (passes_master ? 0 : 1)) % size;
  return static_cast<std::uint16_t>(range.low + offset);
}

std::string fill_address(std::string_view address, std::string_view host) { return replaced(address, "%h", host); }

std::string fabric_name(const Settings& settings, const std::string& host) {
  const auto& address = settings.address.value;
  return address.find('%') == std::string::npos ? host : fill_address(address, host);
}

Result<MasterEndpoint> choose_master_endpoint(const StepFacts& facts, const Settings& settings) {
  MasterEndpoint master;
  const bool is_known = facts.knows_hosts || settings.address.value.find("%h") == std::string::npos;
  if (is_known) master.address = fill_address(settings.address.value, facts.layout.host_of(0));
  master.address_from = settings.address.source == Source::kDefault
                            ? std::string(layout_origin(facts.layout_source))
                            : setting_name("master_addr", settings.address.source);

  if (settings.port.value != 0) {
    master.port = settings.port.value;
    master.port_from = setting_name("port", settings.port.source);
    return master;
  }
  if (facts.reserved_ports) {
    if (facts.reserved_ports->empty()) return fail(no_reserved_port(facts.environment));
    master.port = facts.reserved_ports->front();
    master.port_from = "SLURM_STEP_RESV_PORTS";
    return master;
  }
  const auto& range = settings.port_range.value;
  const bool is_salted = facts.decision.salt != 0;
  master.port = computed_port(facts.id, range, facts.decision.salt);
  master.port_from = cat({is_salted ? std::string("chosen by srun") : cat({"step ", to_string(facts.id)}), " in ",
                          std::to_string(range.low), "-", std::to_string(range.high)});
  return master;
}

}  // namespace bootstrap
