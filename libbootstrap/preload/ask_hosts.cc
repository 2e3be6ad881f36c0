// Where the ranks of mpirun are, asked before `main` in a process of its own, which the program never notices.
// SPDX-License-Identifier: Apache-2.0
#include "preload/ask_hosts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "comm/hosts.h"
#include "core/text.h"
#include "probe/descriptor.h"
#include "probe/environment.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kTimeForOthers = std::chrono::seconds(8);  // ranks of the node that are not preloaded never come
constexpr unsigned kLifeOfHelper = 60;  // seconds: one that is late for us takes leave of the server all the same
constexpr int kAnswer = 3;              // the helper's descriptor for it
constexpr std::string_view kDone = "end\n";
constexpr std::size_t kMaxAnswer = std::size_t{64} << 20;

// This library has an entry point (preload/entry.cc), and the loader of this process can start it as a program.
struct Helper {
  std::string loader;
  std::string library;
};

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

int note_file(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  auto& helper = *static_cast<Helper*>(found);
  const auto name = base_name(info->dlpi_name);
  if (name.starts_with("ld-") || name.starts_with("ld64.")) helper.loader = info->dlpi_name;
  return 0;
}

Result<Helper> find_helper() {
  Helper helper;
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&ask_for_hosts), &self) != 0 && self.dli_fname != nullptr) {
    helper.library = self.dli_fname;
  }
  (void)::dl_iterate_phdr(note_file, &helper);
  if (helper.library.empty() || helper.loader.empty()) {
    return fail(ErrorCode::kUnavailable, "the loader of this process, or this library, is in no file");
  }
  return helper;
}

// As it is, but for what is preloaded.
std::vector<std::string> environment_of_helper() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) entries.emplace_back(*entry);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// What posix_spawn(3) does beside starting: signals as a fresh process has them, and no descriptor but for the answer.
class SpawnPlan {
 public:
  explicit SpawnPlan(int answer) {
    sigset_t none;
    sigset_t all;
    (void)::sigemptyset(&none);
    (void)::sigfillset(&all);
    (void)::posix_spawnattr_init(&attributes_);
    (void)::posix_spawnattr_setsigmask(&attributes_, &none);
    (void)::posix_spawnattr_setsigdefault(&attributes_, &all);
    (void)::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    (void)::posix_spawn_file_actions_init(&actions_);
    (void)::posix_spawn_file_actions_adddup2(&actions_, answer, kAnswer);
    for (int file = 0; file < kAnswer; ++file) {
      (void)::posix_spawn_file_actions_addopen(&actions_, file, "/dev/null", O_RDWR, 0);
    }
    (void)::posix_spawn_file_actions_addclosefrom_np(&actions_, kAnswer + 1);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    (void)::posix_spawn_file_actions_destroy(&actions_);
    (void)::posix_spawnattr_destroy(&attributes_);
  }

  Result<pid_t> start(std::vector<std::string> words, std::vector<std::string> entries) const {
    const auto arguments = pointers(words);
    const auto variables = pointers(entries);
    pid_t process = 0;
    const int error =
        ::posix_spawn(&process, words.front().c_str(), &actions_, &attributes_, arguments.data(), variables.data());
    if (error == 0) return process;
    return fail(ErrorCode::kUnavailable, cat({"cannot start ", words.front(), ": ", std::strerror(error)}));
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

std::optional<std::string> read_until(int descriptor, steady_clock::time_point deadline) {
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxAnswer) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    pollfd ready{descriptor, POLLIN, 0};
    const int events = left <= 0 ? 0 : ::poll(&ready, 1, static_cast<int>(left));
    if (events < 0 && errno == EINTR) continue;
    if (events <= 0) return std::nullopt;
    const auto size = ::read(descriptor, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto size = ::write(descriptor, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;  // nobody waits any more
    text.remove_prefix(static_cast<std::size_t>(size));
  }
}

}  // namespace

std::string write_answer(const Result<std::vector<std::string>>& hosts) {
  std::string text = hosts ? "+\n" : cat({"-\n", hosts.error().message, "\n"});
  if (hosts) {
    for (const auto& host : *hosts) text += cat({host, "\n"});
  }
  return text + std::string(kDone);
}

Result<std::vector<std::string>> read_answer(std::string_view text) {
  if (text.size() <= kDone.size() + 2 || !text.ends_with(kDone)) {
    return fail(ErrorCode::kUnavailable, "the process that asks mpirun's PMIx server ended without an answer");
  }
  const bool is_good = text.starts_with("+\n");
  text = text.substr(2, text.size() - 3 - kDone.size());
  if (!is_good) return fail(ErrorCode::kUnavailable, std::string(text));
  std::vector<std::string> hosts;
  for (const auto line : split(text, '\n')) hosts.emplace_back(line);
  return hosts;
}

Result<std::vector<std::string>> ask_for_hosts() {
  const auto helper = find_helper();
  if (!helper) return fail(helper.error());
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::kUnavailable, cat({"no pipe: ", std::strerror(errno)}));
  const Descriptor ours(ends[0]);
  Descriptor low(ends[1]);
  // Above those that the helper opens anew: a program may have been started without a standard output.
  Descriptor theirs(::fcntl(low.get(), F_DUPFD_CLOEXEC, kAnswer + 1));
  low.reset();
  const auto process = SpawnPlan(theirs.get()).start({helper->loader, helper->library}, environment_of_helper());
  theirs.reset();
  if (!process) return fail(process.error());
  // It ends at once and leaves the work to a child: the program shall not meet a child that it knows nothing of.
  while (::waitpid(*process, nullptr, 0) < 0 && errno == EINTR) {
  }
  // One that is late is not killed: mpirun would take the end of its session for the loss of the rank.
  const auto text = read_until(ours.get(), steady_clock::now() + kPatience);
  if (text) return read_answer(*text);
  return fail(ErrorCode::kTimeout, "mpirun's PMIx server did not say within 10 s where the ranks are");
}

void answer_where_hosts_are() noexcept {
  const pid_t child = ::fork();
  if (child != 0) ::_exit(child < 0 ? 1 : 0);
  (void)::alarm(kLifeOfHelper);
  try {
    const auto until = steady_clock::now() + kTimeForOthers;
    write_all(kAnswer, write_answer(ask_hosts_first(process_environment(), until)));
  } catch (const std::exception&) {
    // Without memory there is no answer, and the rank says so.
  }
  ::_exit(0);
}

}  // namespace bootstrap
