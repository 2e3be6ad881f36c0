// Which processes the preloaded library sets up, by their environment and their ancestors; its LD_PRELOAD list.
// SPDX-License-Identifier: Apache-2.0
#include "preload/preload.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/step/planned_variables.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr pid_t kSelf = 400;

// The variables of rank 3 in step 12.0 of four tasks, which later entries override; "-NAME=" removes one.
DetectedRank detect(const std::string& entries, pid_t process = kSelf) {
  std::vector<std::string> all;
  std::istringstream words("SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 " + entries);
  for (std::string word; words >> word;) {
    const bool is_removed = word.starts_with('-');
    const auto name = word.substr(is_removed ? 1 : 0, word.find('=') + (is_removed ? 0 : 1));
    std::erase_if(all, [&](const std::string& entry) { return entry.starts_with(name); });
    if (!is_removed) all.push_back(word);
  }
  std::vector<const char*> environment;
  for (const auto& entry : all) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  return detect_rank(environment.data(), process);
}

constexpr const char* kNoStep = " -SLURM_JOB_ID= -SLURM_STEP_ID= -SLURM_PROCID= ";
constexpr const char* kMpirun = " OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=795672577 ";

TEST(PreloadRank, HasTheRoleOfItsEnvironment) {
  struct Row {
    const char* why;
    std::string entries;
    Role role;
    Launcher launcher = Launcher::kSlurm;  // of the first process of a rank
  };
  const std::vector<Row> rows = {
      {"a rank", "", Role::kFirst},
      {"set up before", "SLURM_BOOTSTRAP_STEP=12.0.0", Role::kInside},
      {"set up before, requeued", "SLURM_STEP_ID=3 SLURM_RESTART_COUNT=2 SLURM_BOOTSTRAP_STEP=12.3.2", Role::kInside},
      {"its parent failed", "SLURM_BOOTSTRAP_GIVEN_UP=12.0.0", Role::kBeside},
      {"another step's parent failed", "SLURM_BOOTSTRAP_GIVEN_UP=12.1.0", Role::kFirst},
      {"batch script of 22.05", "-SLURM_STEP_ID=", Role::kOutside},
      {"rank is no number", "SLURM_PROCID=x", Role::kOutside},
      {"switched off", "SLURM_BOOTSTRAP_PRELOAD=off", Role::kOutside},
      {"prolog", "SLURM_TASK_PID=399 SLURM_SCRIPT_CONTEXT=prolog_task", Role::kBeside},
      {"22.05 leaves the prolog's variable", "SLURM_TASK_PID=400 SLURM_SCRIPT_CONTEXT=prolog_task", Role::kFirst},
      {"below a static wrapper", "SLURM_TASK_PID=399", Role::kFirst},
      {"two tasks", "SLURM_STEP_NUM_TASKS=2", Role::kFirst},
      {"one task", "SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=8", Role::kOutside},
      {"one task that asks", "SLURM_STEP_NUM_TASKS=1 SLURM_BOOTSTRAP=on", Role::kFirst},
      {"no count of tasks", "SLURM_STEP_NUM_TASKS= SLURM_NTASKS=8", Role::kOutside},
      {"a count that is no number", "SLURM_STEP_NUM_TASKS=x SLURM_NTASKS=8", Role::kOutside},
      {"the job's tasks", "-SLURM_STEP_NUM_TASKS= SLURM_NTASKS=2", Role::kFirst},
      {"no tasks at all", "-SLURM_STEP_NUM_TASKS=", Role::kOutside},
      {"mode off", "SLURM_BOOTSTRAP=off", Role::kOutside},
      {"submitit", "SUBMITIT_EXECUTOR=slurm", Role::kOutside},
      {"submitit that asks", "SUBMITIT_EXECUTOR=slurm SLURM_BOOTSTRAP=on", Role::kFirst},
      {"mpirun", cat({kNoStep, kMpirun}), Role::kFirst, Launcher::kMpirun},
      {"mpirun in a step", cat({kMpirun, "SLURM_TASK_PID=399 SLURM_BOOTSTRAP_STEP=12.0.0"}), Role::kFirst,
       Launcher::kMpirun},
      {"mpirun, set up", cat({kNoStep, kMpirun, "SLURM_BOOTSTRAP_STEP=mpirun-12141.1.0"}), Role::kInside},
      {"mpirun, Slurm's stamp", cat({kNoStep, kMpirun, "SLURM_BOOTSTRAP_STEP=12141.1.0"}), Role::kFirst,
       Launcher::kMpirun},
      {"mpirun, failed", cat({kNoStep, kMpirun, "SLURM_BOOTSTRAP_GIVEN_UP=mpirun-12141.1.0"}), Role::kBeside},
      {"mpirun, off", cat({kNoStep, kMpirun, "SLURM_BOOTSTRAP_PRELOAD=off"}), Role::kOutside},
      {"mpirun, one rank", cat({kNoStep, kMpirun, "OMPI_COMM_WORLD_SIZE=1"}), Role::kOutside},
      {"mpirun, asks", cat({kNoStep, kMpirun, "OMPI_COMM_WORLD_SIZE=1 SLURM_BOOTSTRAP=on"}), Role::kFirst,
       Launcher::kMpirun},
      {"no name space", cat({kNoStep, kMpirun, "-PMIX_NAMESPACE="}), Role::kOutside},
      {"no rank of mpirun", cat({kNoStep, kMpirun, "-OMPI_COMM_WORLD_RANK="}), Role::kOutside},
      {"a rank of mpirun that is no number", cat({kNoStep, kMpirun, "OMPI_COMM_WORLD_RANK=x"}), Role::kOutside},
      {"Slurm's own name space", cat({kMpirun, "PMIX_NAMESPACE=slurm.pmix.12.0"}), Role::kFirst},
      {"srun --mpi=none in a rank of mpirun", cat({kMpirun, "SLURM_TASK_PID=400"}), Role::kFirst},
  };
  for (const auto& row : rows) {
    const auto found = detect(row.entries);
    EXPECT_EQ(found.role, row.role) << row.why;
    if (row.role == Role::kFirst) {
      EXPECT_EQ(found.step.launcher, row.launcher) << row.why;
    }
  }
  EXPECT_EQ(detect_rank(nullptr, kSelf).role, Role::kOutside);
  for (const char* const stamp :
       {"12.1.0", "11.0.0", "12.0.1", "12.0", "12.0.0.0", "", "12.0.", "12.0.0x", "18446744073709551628.0.0", ".0.0"}) {
    EXPECT_EQ(detect(cat({"SLURM_BOOTSTRAP_STEP=", stamp})).role, Role::kFirst) << stamp;
  }
  for (const char* const step : {"4294967291", "4294967290", "4294967292", "4294967296", "", "0x1", "-1"}) {
    EXPECT_EQ(detect(cat({"SLURM_STEP_ID=", step})).role, Role::kOutside) << step;
  }
  const char* const twice[] = {"SLURM_JOB_ID=12",
                               "SLURM_STEP_ID=0",
                               "SLURM_PROCID=3",
                               "SLURM_STEP_NUM_TASKS=4",
                               "SLURM_BOOTSTRAP_STEP=12.0.0",
                               "SLURM_BOOTSTRAP_STEP=1.0.0",
                               nullptr};
  EXPECT_EQ(detect_rank(twice, kSelf).role, Role::kInside) << "the first of equal names counts, as for getenv";
}

TEST(PreloadRank, ReadsOtherFactsOfTheEnvironment) {
  EXPECT_TRUE(detect("SLURM_PTY_PORT=31001").may_be_pty);
  EXPECT_FALSE(detect("").may_be_pty);
  EXPECT_FALSE(detect("SLURM_PTY_PORT=31001 SLURM_BOOTSTRAP=on").may_be_pty);
  EXPECT_EQ(detect("SLURM_HET_SIZE=2").components, 2U);
  EXPECT_EQ(detect("SLURM_HET_SIZE=x").components, 1U);
  EXPECT_TRUE(detect("SLURM_JOB_ID=13 -SLURM_STEP_ID= SLURM_BOOTSTRAP_STEP=12.0.0").has_leftovers);
  EXPECT_FALSE(detect("-SLURM_JOB_ID= -SLURM_STEP_ID= SLURM_BOOTSTRAP_STEP=12.0.0").has_leftovers) << "no job";
  EXPECT_FALSE(detect("SLURM_JOB_ID=13 -SLURM_STEP_ID=").has_leftovers);
  const auto script =
      detect(cat({kMpirun, "-SLURM_STEP_ID= SLURM_TASK_PID=400 SLURM_BOOTSTRAP_STEP=mpirun-12141.1.0"}));
  EXPECT_EQ(script.role, Role::kOutside) << "a batch script that a rank of mpirun submitted";
  EXPECT_TRUE(script.has_leftovers);
}

constexpr pid_t kStepd = 390;
constexpr int kTerminal = 34817;

// A process that the test writes into its own /proc. `line`: the words of the command line.
struct Process {
  pid_t id;
  pid_t parent;
  std::string name;
  std::string line = {};
  int terminal = 0;
};

class ProcFolder {
 public:
  ProcFolder() : root_(testing::TempDir() + "preload_rank." + std::to_string(::getpid())) { clear(); }
  ~ProcFolder() { clear(); }
  void clear() const { std::filesystem::remove_all(root_); }

  void file(pid_t process, const std::string& name, const std::string& text) const {
    const auto folder = root_ / std::to_string(process);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / name) << text;
  }
  void write(const Process& process) const {
    file(process.id, "stat",
         cat({std::to_string(process.id), " (", process.name, ") S ", std::to_string(process.parent), " 1 1 ",
              std::to_string(process.terminal), " -1 4194560 0\n"}));
    auto line = process.line.empty() ? process.name : process.line;
    if (process.name != "slurmstepd") std::replace(line.begin(), line.end(), ' ', '\0');
    file(process.id, "cmdline", line + '\0');
  }
  std::filesystem::path folder_of(pid_t process) const { return root_ / std::to_string(process); }
  const char* path() const { return root_.c_str(); }

 private:
  std::filesystem::path root_;
};

DetectedRank first_of_step() {
  DetectedRank detected;
  detected.role = Role::kFirst;
  detected.step = {.job = 12, .step = 0, .restart = 0, .launcher = Launcher::kSlurm};
  detected.task = kSelf;
  return detected;
}

Process stepd(const std::string& title) { return {kStepd, 1, "slurmstepd", cat({"slurmstepd: ", title})}; }

TEST(PreloadRank, BelongsToTheStepByItsAncestors) {
  const Process task{kSelf, kStepd, "python3"};
  const Process child{kSelf, 395, "python3"};
  const Process grandchild{401, kSelf, "python3"};
  const Process batch{kSelf, kStepd, "slurm_script", "/bin/bash /var/spool/slurmd/job00012/slurm_script"};
  const Process init{1, 0, "systemd", "/sbin/init"};
  const auto own = stepd("[12.0]");
  struct Row {
    const char* why;
    std::vector<Process> processes;
    bool belongs;
    pid_t task = kSelf;
    std::string cgroup = {};
    bool is_mpirun = false;
    std::uint32_t components = 1;
  };
  std::vector<Row> rows = {
      {"the task", {task, own}, true},
      {"a title with blanks", {task, stepd("[12.0]   ")}, true},
      {"children of the task", {own, {395, kStepd, "bash"}, {398, 395, "a (b) c"}, {kSelf, 398, "python3"}}, true, 395},
      {"a launcher's child", {own, {395, kStepd, "hydra_pmi_proxy", "/opt/bin/hydra_pmi_proxy --rmk"}, child}, false},
      {"torchrun's child", {own, {395, kStepd, "python3", "python3 -m torch.distributed.run"}, child}, false},
      {"control: another program's child", {own, {395, kStepd, "hydra", "/opt/bin/hydra"}, child}, true},
      {"a shell that outlived its step", {{kSelf, 399, "python3"}, {399, 1, "tmux: server", "tmux"}, init}, false, 395},
      {"with a cgroup of a session",
       {{kSelf, 399, "python3"}, {399, 1, "tmux: server", "tmux"}, init},
       false,
       395,
       "0::/user.slice/user-1000.slice\n"},
      {"hidepid hides slurmstepd, and there is no cgroup", {task}, false},
      {"a shell of salloc has another job", {{kSelf, kStepd, "salloc"}, grandchild}, false},
      {"not below SLURM_TASK_PID", {{kSelf, kStepd, "bash"}, grandchild}, false, 77'000},
      {"a visible parent that is no slurmstepd",
       {{kSelf, kStepd, "bash"}, grandchild, {kStepd, 1, "bash"}, init},
       false},
      {"the second component", {task, stepd("[13.0]")}, true, kSelf, {}, false, 2},
      {"no third component", {task, stepd("[14.0]")}, false, kSelf, {}, false, 2},
      {"mpirun's daemon", {child, {395, kStepd, "orted"}, own}, true, kSelf, {}, true},
      {"a launcher that is a rank of mpirun",
       {child, {395, 394, "torchrun", "/usr/bin/python3 /usr/bin/torchrun"}, {394, kStepd, "orted"}, own},
       false,
       kSelf,
       {},
       true},
      {"a batch script that a rank of mpirun submitted", {child, {395, kStepd, "bash"}, own}, false, kSelf, {}, true},
      {"a shell of a rank of mpirun", {child, {395, 1, "tmux: server", "tmux"}, own}, false, kSelf, {}, true},
      {"no /proc", {}, false},
      {"its own parent", {{kSelf, kSelf, "loop"}}, false, 1},
  };
  for (const char* const title :
       {"[12.batch]", "[12.extern]", "[12.interactive]", "[12.1]", "[11.0]", "[13.0]", "[120.0]", "[12:0]"}) {
    rows.push_back({title, {batch, stepd(title)}, false});
  }
  const std::vector<Process> in_container = {{kSelf, 1, "python3"}, {1, 0, "init"}};
  for (const char* const cgroup : {"0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
                                   "8:pids:/\n4:memory:/slurm/uid_10001/job_12/step_0/task_3\n"}) {
    rows.push_back({cgroup, in_container, true, 77'000, cgroup});
  }
  for (const char* const cgroup : {"4:memory:/slurm/uid_10001/job_12/step_batch/task_0\n",
                                   "0::/system.slice/slurmstepd.scope/job_12/step_extern/user/task_special\n",
                                   "0::/system.slice/slurmstepd.scope/job_11/step_0/user\n",
                                   "0::/system.slice/slurmstepd.scope/job_12/step_1/user\n"}) {
    rows.push_back({cgroup, in_container, false, kSelf, cgroup});
  }
  for (const auto& row : rows) {
    const ProcFolder proc;
    for (const auto& process : row.processes) proc.write(process);
    if (!row.cgroup.empty()) proc.file(kSelf, "cgroup", row.cgroup);
    auto detected = first_of_step();
    if (row.is_mpirun) detected.step = {.job = 12141, .step = 1, .restart = 0, .launcher = Launcher::kMpirun};
    detected.task = row.task;
    detected.components = row.components;
    const bool has_grandchild = !row.processes.empty() && std::filesystem::exists(proc.folder_of(grandchild.id));
    EXPECT_EQ(belongs_to_step(detected, has_grandchild ? grandchild.id : kSelf, proc.path()), row.belongs) << row.why;
  }
  for (const char* const stat :
       {"", "400", "400 (", "400 (a", "400 (a)", "400 (a) S", "400 (a) S x", ")400(", "400 (a) S 1 2 3"}) {
    const ProcFolder proc;
    proc.file(kSelf, "stat", stat);
    EXPECT_FALSE(belongs_to_step(first_of_step(), kSelf, proc.path())) << stat;
  }
}

TEST(PreloadRank, ATerminalIsOfTheStepOrOfOneAroundIt) {
  const ProcFolder proc;
  auto detected = first_of_step();
  const auto belongs = [&] { return belongs_to_step(detected, kSelf, proc.path()); };
  proc.write(stepd("[12.0]"));
  proc.write({395, kStepd, "bash", "bash", kTerminal});
  proc.write({kSelf, 395, "python3"});  // has left the terminal: setsid
  EXPECT_TRUE(belongs()) << "SLURM_PTY_PORT is not set";
  detected.may_be_pty = true;
  EXPECT_FALSE(belongs());
  proc.write({395, kStepd, "bash"});
  EXPECT_TRUE(belongs()) << "a step inside of such a shell";
  const auto descriptors = proc.folder_of(kSelf) / "fd";
  std::filesystem::create_directories(descriptors);
  for (const char* const name : {"0", "1", "2"}) {
    EXPECT_TRUE(belongs()) << name;
    std::filesystem::create_symlink("/dev/null", descriptors / name);
  }
  EXPECT_FALSE(belongs()) << "srun gives the terminal to the first task, and /dev/null to the others";
  detected.may_be_pty = false;
  EXPECT_TRUE(belongs());
}

TEST(PreloadList, IsAppendedOnceAndLast) {
  constexpr const char* kOurs = "/usr/lib/libbootstrap.so.0";
  EXPECT_EQ(append_preload("", kOurs), kOurs);
  EXPECT_EQ(append_preload("/lib/libasan.so.8", kOurs), "/lib/libasan.so.8:/usr/lib/libbootstrap.so.0");
  EXPECT_EQ(append_preload("a.so b.so", kOurs), "a.so b.so:/usr/lib/libbootstrap.so.0");
  for (const char* const there : {"/usr/lib/libbootstrap.so.0", "/home/me/libbootstrap.so",
                                  "a.so /x/libbootstrap.so.0.1.0", "libbootstrap.so:b.so"}) {
    EXPECT_EQ(append_preload(there, kOurs), there);
  }
  EXPECT_EQ(append_preload("/x/libbootstrapper.so", kOurs), "/x/libbootstrapper.so:/usr/lib/libbootstrap.so.0");
}

TEST(Message, IsOneLineAndABrokenPipeIsNoSignal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  print_line("one");
  char text[16] = "";
  EXPECT_EQ(::read(ends[0], text, sizeof text), 4);
  EXPECT_STREQ(text, "one\n");
  ::close(ends[0]);
  errno = 77;
  print_line("no reader");  // the default action of SIGPIPE would end the test
  EXPECT_EQ(errno, 77);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  struct sigaction action {};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL) << "as before";
}

}  // namespace
}  // namespace bootstrap
