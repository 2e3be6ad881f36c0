// temporary
#include "core/program.h"
namespace bootstrap {
Program classify_program(std::span<const std::string> words, const ProgramPlace& place) {
  if (words.empty()) return {};
  auto name = words[0].substr(words[0].rfind('/') + 1);
  if (name == "bash" || name == "sh") return {ProgramKind::kShell, name, name + " is a shell: its author decides"};
  if (name == "torchrun") return {ProgramKind::kTorchrun, name, "torchrun"};
  if (name.starts_with("python")) return {ProgramKind::kTraining, name, name + " is Python"};
  if (place.files.head("/bin/" + name)) return {ProgramKind::kTraining, name, name + " is an ELF program"};
  if (place.files.head(words[0])) return {ProgramKind::kTraining, name, name + " is an ELF program"};
  return {ProgramKind::kUnseen, name, "srun cannot see " + name};
}
bool is_launcher_process(int, const char* const*) noexcept { return false; }
}  // namespace bootstrap
