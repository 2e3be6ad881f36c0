// Where the ranks meet: MASTER_ADDR and MASTER_PORT, the same on every node without a word between them.
// SPDX-License-Identifier: Apache-2.0
#include "core/rendezvous.h"

#include "core/text.h"

namespace bootstrap {
namespace {

// Where a setting was made, in the words of the user: "--bootstrap-port", "BOOTSTRAP_PORT", "port= of the site".
std::string setting_origin(std::string_view option, std::string_view variable, std::string_view site, Source source) {
  switch (source) {
    case Source::kOption:
      return cat({"--", option});
    case Source::kEnvironment:
      return std::string(variable);
    case Source::kSite:
      return cat({site, "= of the site"});
    case Source::kDefault:
      break;
  }
  return "default";
}

std::string fill_template(std::string_view address, std::string_view host) {
  std::string filled;
  for (std::size_t at = 0; at < address.size(); ++at) {
    if (address[at] == '%') {
      filled += host;
      ++at;  // the 'h'; settings accept no other
    } else {
      filled += address[at];
    }
  }
  return filled;
}

std::string_view layout_origin(LayoutSource source) {
  switch (source) {
    case LayoutSource::kStepLayout:
      return "host of rank 0, told by srun";
    case LayoutSource::kMpirun:
      return "host of rank 0, told by mpirun";
    case LayoutSource::kDistribution:
      break;
  }
  return "first host of SLURM_STEP_NODELIST";
}

}  // namespace

Result<std::uint16_t> first_reserved_port(std::string_view text) {
  auto first = text.substr(0, text.find_first_of(",-"));
  const auto port = parse_unsigned(first, 65535);
  if (!port || *port == 0) {
    return fail(ErrorCode::kInvalid,
                cat({"SLURM_STEP_RESV_PORTS=", quoted(text), " does not start with a port; ask for one with ",
                     "--bootstrap-port, or have MpiParams=ports= of slurm.conf checked"}));
  }
  return static_cast<std::uint16_t>(*port);
}

std::uint16_t computed_port(const StepId& id, const PortRange& range) {
  constexpr std::uint64_t kPerJob = 37;
  constexpr std::uint64_t kPerRestart = 5003;  // prime, far from a multiple of kPerJob
  const std::uint64_t size = std::uint64_t{range.high} - range.low + 1;
  const auto offset = (id.job * kPerJob + id.step + id.restart * kPerRestart) % size;
  return static_cast<std::uint16_t>(range.low + offset);
}

Result<Rendezvous> make_rendezvous(const Facts& facts, const Settings& settings) {
  Rendezvous rendezvous;
  rendezvous.address = fill_template(settings.address.value, facts.layout.host_of(0));
  rendezvous.address_from =
      settings.address.source == Source::kDefault
          ? std::string(layout_origin(facts.layout_source))
          : setting_origin("bootstrap-addr", "BOOTSTRAP_ADDR", "master_addr", settings.address.source);

  if (settings.port.value != 0) {
    rendezvous.port = settings.port.value;
    rendezvous.port_from = setting_origin("bootstrap-port", "BOOTSTRAP_PORT", "port", settings.port.source);
    return rendezvous;
  }
  if (const auto reserved = facts.environment.get("SLURM_STEP_RESV_PORTS")) {
    const auto port = first_reserved_port(*reserved);
    if (!port) return fail(port.error());
    rendezvous.port = *port;
    rendezvous.port_from = "SLURM_STEP_RESV_PORTS";
    return rendezvous;
  }
  const auto& range = settings.port_range.value;
  rendezvous.port = computed_port(facts.id, range);
  rendezvous.port_from =
      cat({"step ", to_string(facts.id), " in ", std::to_string(range.low), "-", std::to_string(range.high)});
  return rendezvous;
}

}  // namespace bootstrap
