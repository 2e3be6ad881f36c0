// Where the ranks meet: MASTER_ADDR and MASTER_PORT, the same on every node without a word between them.
// SPDX-License-Identifier: Apache-2.0
#include "core/rendezvous.h"

#include "core/text.h"

namespace bootstrap {
namespace {

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

// The n-th port, counted from 0, of a list such as "12000-12003,12007".
std::optional<std::uint16_t> reserved_port(std::string_view text, std::uint64_t n) {
  for (const auto item : split(text, ',')) {
    const auto dash = item.find('-');
    const auto low = parse_unsigned(item.substr(0, dash), 65535);
    const auto high = dash == std::string_view::npos ? low : parse_unsigned(item.substr(dash + 1), 65535);
    if (!low || *low == 0 || !high || *high < *low) return std::nullopt;
    if (n <= *high - *low) return static_cast<std::uint16_t>(*low + n);
    n -= *high - *low + 1;
  }
  return std::nullopt;
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

std::uint16_t further_port(const Facts& facts, const PortRange& range, std::uint32_t n) {
  if (const auto reserved = facts.environment.get("SLURM_STEP_RESV_PORTS")) {
    if (const auto port = reserved_port(*reserved, n)) return *port;
  }
  // splitmix64's finalizer: steps that follow each other land anywhere but beside each other.
  std::uint64_t mixed = (std::uint64_t{facts.id.job} << 32) ^ (std::uint64_t{facts.id.restart} << 24) ^ facts.id.step;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  mixed ^= mixed >> 31;
  const std::uint64_t size = std::uint64_t{range.high} - range.low + 1;
  const auto master = std::uint64_t{computed_port(facts.id, range)} - range.low;
  const auto first = mixed % size;
  // Counted from the first one upwards, around the end of the range, and past the step's own MASTER_PORT.
  const bool passes_master = (master + size - first) % size < n;
  const auto offset = (first + n - (passes_master ? 0 : 1)) % size;
  return static_cast<std::uint16_t>(range.low + offset);
}

std::string fabric_address(const Settings& settings, const std::string& host) {
  return fill_template(settings.address.value, host);
}

std::string fabric_name(const Settings& settings, const std::string& host) {
  return settings.address.value.find('%') == std::string::npos ? host : fabric_address(settings, host);
}

Result<Rendezvous> make_rendezvous(const Facts& facts, const Settings& settings) {
  Rendezvous rendezvous;
  rendezvous.address = fabric_address(settings, facts.layout.host_of(0));
  rendezvous.address_from = settings.address.source == Source::kDefault
                                ? std::string(layout_origin(facts.layout_source))
                                : setting_name("master_addr", settings.address.source);

  if (settings.port.value != 0) {
    rendezvous.port = settings.port.value;
    rendezvous.port_from = setting_name("port", settings.port.source);
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
