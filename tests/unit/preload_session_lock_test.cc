// The one PMIx session of a task, claimed by a name that nobody else can hold or guess.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/session_lock.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace bootstrap {
namespace {

const StepId kStep{.job = 12, .step = 0, .restart = 0, .launcher = Launcher::kSlurm};

std::string name_of(const char* test) { return lock_name(kStep, 3, 0) + "." + test + std::to_string(::getpid()); }

// As another user would: bound, listening or not, and never taking a call.
int squat(const std::string& name, int attempt, bool listens) {
  const auto text = name + "." + std::to_string(attempt);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(listens ? ::listen(socket, SOMAXCONN) : 0, 0);
  return socket;
}

TEST(SessionLock, IsHeldOnce) {
  const auto name = name_of("once");
  {
    const SessionLock first(name);
    EXPECT_TRUE(first.is_held());
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(SessionLock(name).is_held());
    EXPECT_TRUE(SessionLock(name_of("other")).is_held());
  }
  EXPECT_TRUE(SessionLock(name).is_held());
}

TEST(SessionLock, ANameThatAnotherUserHoldsIsNoClaim) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  for (const bool listens : {true, false}) {
    const auto name = name_of(listens ? "loud" : "quiet");
    const int socket = squat(name, 0, listens);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setuid(65534) != 0) ::_exit(3);
      const SessionLock ours(name);
      ::_exit(ours.is_held() && !SessionLock(name).is_held() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << listens;
    // The control: one of our own user is a claim.
    EXPECT_TRUE(!listens || !SessionLock(name).is_held());
    ::close(socket);
  }
}

TEST(SessionLock, ManyNamesOfAStrangerDoNotSilenceUs) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  const auto name = name_of("many");
  int sockets[8];
  for (int i = 0; i < 8; ++i) sockets[i] = squat(name, i, true);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(65534) == 0 && SessionLock(name).is_held() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int socket : sockets) ::close(socket);
}

TEST(SessionLock, TheNameIsTheSameInAllProcessesOfATaskAndHasAPartThatOthersDoNotSee) {
  const auto task = static_cast<std::uint32_t>(::getpid());
  const auto name = lock_name(kStep, 3, task);
  EXPECT_EQ(lock_name(kStep, 3, task), name);
  EXPECT_TRUE(name.starts_with("bootstrap.12.0.0.3."));
  EXPECT_GT(name.size(), std::string("bootstrap.12.0.0.3.").size() + 8);
  EXPECT_EQ(lock_name(kStep, 3, 0), "bootstrap.12.0.0.3") << "without a task";
  if (::geteuid() != 0) return;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto seen = ::setuid(65534) == 0 ? lock_name(kStep, 3, task) : std::string("?");
    ::_exit(::write(ends[1], seen.data(), seen.size()) > 0 ? 0 : 1);
  }
  char text[128];
  const auto size = ::read(ends[0], text, sizeof text);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(size)), "bootstrap.12.0.0.3.") << "another user";
  (void)::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace bootstrap
