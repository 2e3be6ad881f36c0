// The plugin in srun. Reports from slurmstepd to srun over a real socket: datagrams that a flood makes it lose, and
// cases without a line; test_first_failure.py has the line itself, and the end of a step. And srun reads the begin of
// the step's program: it opens only executable regular files.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/util/text.h"
#include "plugin_scenario.h"
#include "probe/files.h"
#include "slurmstepd/node_reports.h"
#include "srun/report_receiver.h"
#include "srun/report_socket.h"
#include "srun/srun_facts.h"

namespace bootstrap {
namespace {

constexpr int kFlood = 3000;
constexpr std::int32_t kExit3 = 3 << 8;

Failure failure(Rank rank, std::int32_t status) {
  return {.rank = rank, .local_rank = rank, .host = "node001", .wait_status = status};
}

ReportPolicy policy() {
  ReportPolicy policy;
  policy.id = {.job = 12, .step = 0};
  policy.jobs = {12};
  policy.tasks = 4;
  return policy;
}

// Like slurmstepd on a node: the address is from the variable, and the host is srun's.
NodeReports prepared_sender() {
  auto& slurm = spank_double();
  if (const char* const address = std::getenv("SLURM_BOOTSTRAP_FAILURE")) {
    slurm.task_environment["SLURM_BOOTSTRAP_FAILURE"] = address;
  }
  slurm.task_environment["SLURM_SRUN_COMM_HOST"] = "127.0.0.1";
  NodeReports sender;
  sender.say_hello(the_spank_handle());
  return sender;
}

Descriptor sender_to(std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return socket;
}

void flood(std::uint16_t port) {
  const auto socket = sender_to(port);
  for (int i = 0; i < kFlood; ++i) {
    const auto text = i % 2 == 0 ? std::string("junk") : write_report(failure(1, 256), static_cast<std::uint64_t>(i));
    (void)::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
}

Outcome receive(const ReportPolicy& policy, const std::function<void(NodeReports&)>& scenario) {
  return outcome_in_child([&] {
    spank_double().context = S_CTX_LOCAL;
    ::unsetenv("SLURM_BOOTSTRAP_FAILURE");
    start_report_receiver(policy);
    auto sender = prepared_sender();
    scenario(sender);
    end_report_receiver();
  });
}

TEST(PluginFirstFailure, OpensNoSocketIfThereIsNothingToReport) {
  auto single = policy();
  single.tasks = 1;
  const auto outcome = receive(single, [](NodeReports& sender) {
    EXPECT_EQ(std::getenv("SLURM_BOOTSTRAP_FAILURE"), nullptr);
    sender.send(failure(2, kExit3));
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.printed, "");
}

// Two tasks, and srun's line after the first was killed. A thread of this process works for 50 ms and may then kill
// the second task, like slurmstepd's thread on a busy node.
std::string said_of_two(bool is_second_killed) {
  return receive(policy(),
                 [&](NodeReports& sender) {
                   std::array<pid_t, 2> tasks{};
                   for (auto& task : tasks) {
                     task = ::fork();
                     while (task == 0) (void)::pause();
                     sender.note_task(task);
                   }
                   (void)::kill(tasks[0], SIGKILL);
                   (void)::waitpid(tasks[0], nullptr, 0);
                   std::thread other([&] {
                     const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
                     while (std::chrono::steady_clock::now() < until) {
                     }
                     if (is_second_killed) (void)::kill(tasks[1], SIGKILL);
                   });
                   sender.send(failure(0, SIGKILL));
                   other.join();
                   (void)::kill(tasks[1], SIGKILL);
                   (void)::waitpid(tasks[1], nullptr, 0);
                 })
      .printed;
}

TEST(PluginFirstFailure, NamesNoTaskIfAProcessKillsThemSlowly) {
  EXPECT_EQ(said_of_two(true), "");
  expect_words(said_of_two(false), "task 0 (node001, local rank 0) failed first: killed by signal 9");
}

// Nobody reads the socket meanwhile: datagrams without the token must not fill its queue.
TEST(PluginFirstFailure, TheKernelDropsDatagramsWithoutTheToken) {
  const auto socket = ReportSocket::open();
  ASSERT_TRUE(socket.is_open());
  flood(socket.address().port);
  const auto text = write_report(failure(2, kExit3), socket.address().token);
  const auto sender = sender_to(socket.address().port);
  ASSERT_GT(::send(sender.get(), text.data(), text.size(), 0), 0);
  const auto received = socket.receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(std::get<Failure>(received->report), failure(2, kExit3));
}

// The control: the same flood fills the queue of a socket without a filter.
TEST(PluginFirstFailure, ControlTheLineIsLostWithoutTheFilter) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  flood(ntohs(address.sin_port));
  const auto sender = sender_to(ntohs(address.sin_port));
  ASSERT_EQ(::send(sender.get(), "the line", 8, 0), 8);
  std::string last;
  char text[kMaxReportText];
  for (ssize_t count = 0; (count = ::recv(socket.get(), text, sizeof text, 0)) > 0;) {
    last.assign(text, static_cast<std::size_t>(count));
  }
  EXPECT_NE(last, "the line");
}

class ProgramHeadTest : public testing::Test {
 protected:
  ProgramHeadTest() : folder_(cat({testing::TempDir(), "program-head-", std::to_string(::getpid())})) {
    std::filesystem::create_directories(folder_);
    std::ofstream(at("program")) << "#!/bin/sh\n";
    EXPECT_EQ(::chmod(at("program").c_str(), 0755), 0);
    EXPECT_EQ(::mkfifo(at("fifo").c_str(), 0755), 0);
  }
  ~ProgramHeadTest() override { std::filesystem::remove_all(folder_); }

  std::string at(std::string_view name) const { return cat({folder_, "/", name}); }

 private:
  std::string folder_;
};

TEST_F(ProgramHeadTest, IsTheBeginningOfAnExecutableFile) {
  EXPECT_EQ(head_of_program(at("program")), "#!/bin/sh\n");
  std::ofstream(at("data")) << "data";
  EXPECT_EQ(head_of_program(at("data")), "");
  for (const auto& path : {at("none"), at("fifo"), at("."), std::string("/dev/zero")}) {
    EXPECT_EQ(head_of_program(path), std::nullopt) << path;
  }
}

// If srun opened the FIFO for a moment, a program that waits to write into it would begin to write.
TEST_F(ProgramHeadTest, AFifoThatReplacesTheFileIsNotOpened) {
  const Descriptor watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(::inotify_add_watch(watch.get(), at("fifo").c_str(), IN_OPEN), 0);
  std::atomic<bool> is_over = false;
  std::thread swap([&] {
    while (!is_over) {
      EXPECT_EQ(::renameat2(AT_FDCWD, at("program").c_str(), AT_FDCWD, at("fifo").c_str(), RENAME_EXCHANGE), 0);
    }
  });
  int files = 0;
  for (int others = 0; files < 20'000 || others < 20'000;) ++(head_of_program(at("program")) ? files : others);
  is_over = true;
  swap.join();
  char event = 0;
  EXPECT_EQ(::read(watch.get(), &event, sizeof event), -1);
  EXPECT_EQ(errno, EAGAIN) << "the FIFO was opened";
}

}  // namespace
}  // namespace bootstrap
