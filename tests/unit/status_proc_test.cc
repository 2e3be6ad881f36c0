// What `status` reads from texts of /proc, of py-spy, of Slurm's commands and of its looking step.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "core/util/text.h"
#include "probe/process_state.h"
#include "tools/status/node_look.h"
#include "tools/status/parse_proc.h"
#include "tools/status/step_choice.h"

namespace bootstrap {
namespace {

TEST(StatusProc, StatOfANameWithParentheses) {
  const auto stat = parse_process_stat("12 (a) T (b) S 7 12 12 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 1");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->name, "a) T (b");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->ticks, 200U);
  for (const auto* const text : {"", "12", "12 (a", "12 (a) S 1", ")("}) EXPECT_FALSE(parse_process_stat(text)) << text;
}

TEST(StatusProc, Variables) {
  const std::string environ("A=1\0AB=2\0A=3\0EMPTY=\0", 19);
  EXPECT_EQ(variable_in(environ, {"A"}), "1");
  EXPECT_EQ(variable_in(environ, {"EMPTY", "AB"}), "2");
  EXPECT_EQ(variable_in(environ, {"B"}), "");
}

TEST(StatusProc, Libraries) {
  const auto found = parse_maps(
      "7f00-7f01 r--p 00000000 fe:00 42 /opt/nccl-2.26.5/lib/libnccl.so.2\n"
      "7f01-7f02 r-xp 00000000 fe:00 42 /opt/nccl-2.26.5/lib/libnccl.so.2\n"
      "7f02-7f03 r-xp 00000000 fe:00 43 /usr/lib/libmpi.so.40\n"
      "7f03-7f04 r-xp 00000000 fe:00 44 /usr/lib/python3/dist-packages/torch/lib/libtorch_cpu.so\n"
      "7ffe-7fff rw-p 00000000 00:00 0 [stack]\n");
  EXPECT_EQ(found.framework, "PyTorch");
  EXPECT_EQ(found.nccl_file, "fe:00 42");
  EXPECT_EQ(found.nccl_version, "2.26.5");
  EXPECT_EQ(found.nccl_address, 0x7f00U);
  EXPECT_EQ(parse_maps("x /usr/lib/libc.so.6\n").framework, "");
}

TEST(StatusProc, TcpSockets) {
  TcpPorts ports;
  parse_tcp(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000 10001        0 11 1 0\n"
      "   1: 0101140A:733C 0201140A:9C40 01 00000000:00000000 00:00000000 00000000 10001        0 12 1 0\n"
      "   2: 0101140A:9C41 0201140A:733D 02 00000000:00000000 00:00000000 00000000 10001        0 13 1 0\n"
      "   3: 0101140A:9C42 0201140A:733C 01 00000000:00000000 00:00000000 00000000 10002        0 99 1 0\n"
      "broken line\n",
      {11, 12, 13}, ports);
  EXPECT_EQ(ports.listens, (std::set<std::uint64_t>{29500}));
  EXPECT_EQ(ports.tries, (std::set<std::uint64_t>{29501}));
  ASSERT_EQ(ports.established.size(), 1U);
  EXPECT_EQ(ports.established[0], (std::pair<std::uint64_t, std::uint64_t>{29500, 40000}));
}

TEST(StatusProc, Waits) {
  EXPECT_EQ(describe_wchan("futex_do_wait"), "futex");
  EXPECT_EQ(describe_wchan("__futex_wait"), "futex");
  EXPECT_EQ(describe_wchan("request_wait_answer"), "file system (request_wait_answer)");
  EXPECT_EQ(describe_wchan("hrtimer_nanosleep"), "sleep");
  EXPECT_EQ(describe_wchan("something_new"), "something_new");
  EXPECT_EQ(describe_wchan("0"), "");
}

TaskProcess process(std::uint64_t pid, std::uint64_t parent, std::string name, std::string framework = "",
                    std::string rank = "") {
  TaskProcess made;
  made.pid = pid;
  made.parent = parent;
  made.name = name;
  made.words = {std::move(name)};
  made.framework = std::move(framework);
  made.rank = std::move(rank);
  return made;
}

TEST(StatusTree, TheProgramBelowShells) {
  const auto ranks = find_ranks({process(1, 0, "bash"), process(2, 1, "numactl"), process(3, 2, "python3", "PyTorch"),
                                 process(4, 3, "python3", "PyTorch")});
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_EQ(ranks[0].main, 2U);
  EXPECT_EQ(ranks[0].members.size(), 4U);
  EXPECT_EQ(ranks[0].chain, "bash, numactl, python3");
  EXPECT_FALSE(ranks[0].is_launcher);
}

TEST(StatusTree, OnlyAShell) {
  EXPECT_TRUE(find_ranks({process(1, 0, "bash")})[0].is_launcher);
  const auto asleep = find_ranks({process(1, 0, "bash"), process(2, 1, "sleep")});
  EXPECT_FALSE(asleep[0].is_launcher);
  EXPECT_EQ(asleep[0].main, 1U);
  EXPECT_TRUE(find_ranks({}).empty());
}

TEST(StatusTree, WorkersOfTorchrun) {
  auto agent = process(1, 0, "python3", "PyTorch");
  agent.words = {"python3", "-m", "torch.distributed.run", "train.py"};
  const auto ranks = find_ranks({agent, process(2, 1, "python3", "PyTorch", "4"),
                                 process(3, 1, "python3", "PyTorch", "5"), process(4, 2, "python3", "", "4")});
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_TRUE(ranks[0].is_worker);
  EXPECT_EQ(ranks[0].main, 1U);
  EXPECT_EQ(ranks[0].members, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(ranks[1].main, 2U);
}

TEST(StatusStack, FramesOfTheMainThread) {
  const auto stack = parse_stack(
      "Process 12: python3 train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
      "Thread 13 (idle): \"worker\"\n    wait (/usr/lib/python3.11/threading.py:1)\n"
      "Thread 12 (active): \"MainThread\"\n    all_reduce (/usr/lib/python3/dist-packages/torch/x.py:7)\n    main "
      "(/home/a/train.py:9)\n"
      "Thread 14 (idle): \"other\"\n    poll (/usr/lib/python3.11/selectors.py:2)\n");
  EXPECT_EQ(stack, (std::vector<std::string>{"all_reduce (torch/x.py:7)", "* main (train.py:9)"}));
  EXPECT_EQ(describe_stack(stack), "all_reduce, called by main (train.py:9)");
  EXPECT_EQ(describe_stack({"* main (train.py:9)"}), "main (train.py:9)");
  EXPECT_TRUE(parse_stack("Error: Permission Denied").empty());
  EXPECT_NE(explain_stack_failure("Error: Permission Denied: Try again", "node001").find("kernel.yama.ptrace_scope=0"),
            std::string::npos);
}

TEST(StatusGpus, ProcessesOfNvidiaSmi) {
  EXPECT_EQ(parse_gpu_use("GPU-1, 0, 87\nGPU-2, 1, [N/A]\n", "4711, GPU-2\n12, GPU-1\n13, GPU-9\n"),
            (std::vector<std::string>{"4711 1 [N/A] GPU-2", "12 0 87 GPU-1"}));
  EXPECT_TRUE(parse_gpu_use("NVIDIA-SMI has failed, a, b\n", "No devices were found\n").empty());
}

TEST(StatusRas, ReleasesThatCrashAreRefused) {
  EXPECT_NE(refuse_ras("2.26.5", 28028).find("NVIDIA/nccl issue 1762"), std::string::npos);
  EXPECT_NE(refuse_ras("2.29.7", 28028).find("NVIDIA/nccl issue 2346"), std::string::npos);
  EXPECT_NE(refuse_ras("2.23.4", 28028).find("has no RAS"), std::string::npos);
  EXPECT_NE(refuse_ras("", 28029).find("ncclras --port 28029"), std::string::npos);
  EXPECT_EQ(refuse_ras("2.30.3", 28028), "");
}

TEST(StatusChoice, Arguments) {
  EXPECT_EQ(parse_step_argument("12.3")->step, "3");
  EXPECT_EQ(parse_step_argument("12_3.batch")->job, "12_3");
  for (const auto* const text : {"", "x", ".0", "12.", "12.x", "12 3", "-1", "12.3.4", "12;id"})
    EXPECT_FALSE(parse_step_argument(text)) << text;
}

TEST(StatusChoice, Jobs) {
  const auto jobs = parse_jobs(
      "JobId=3 HetJobId=2 HetJobOffset=1 JobName=a b UserId=alice(10001) JobState=RUNNING JOB_GRES=gpu:4   "
      "Nodes=node001 GRES=gpu:a100:2(IDX:0,3),gpu:t4:1(IDX:1) "
      "Nodes=node002 GRES=gpu:2(IDX:0-1)\nslurm_load_jobs error\n");
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].leader, "2");
  EXPECT_EQ(jobs[0].user_id, 10001U);
  EXPECT_EQ(jobs[0].gpus, 2U);
  EXPECT_EQ(refuse_job(jobs, "3", 10001), "");
  EXPECT_NE(refuse_job(jobs, "3", 10002).find("belongs to alice(10001)"), std::string::npos);
}

TEST(StatusChoice, TheOnlyWorld) {
  const auto steps = parse_steps(
      "12.extern|1|n1|extern\n12.batch|1|n1|batch\n12.0|4|n[1-2]|a|b\n12.1|2|n[1-2]|slurm-bootstrap-status\nbroken\n");
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[2].name, "a|b");
  EXPECT_EQ(choose_step(steps, {.job = "12", .step = {}})->step, "0");
  EXPECT_EQ(choose_step(steps, {.job = "12", .step = "7"}).error().message,
            "job 12 has no running step 7; running: 12.batch (batch, 1 task on n1), 12.0 (a|b, 4 tasks on n[1-2])");
  EXPECT_EQ(choose_step({}, {}).error().message, "you have no running step; squeue --me lists your jobs");
}

TEST(StatusChoice, ComponentsAreOneStep) {
  const auto steps = parse_steps("3.0|1|n2|a\n2.0|2|n1|a\n");
  std::vector<JobLine> jobs(2);
  jobs[0].id = "3";
  jobs[0].component = 1;
  jobs[1].id = "2";
  jobs[0].leader = jobs[1].leader = "2";
  const auto step = join_parts(jobs, steps, "0");
  EXPECT_EQ(step.name(), "2.0");
  EXPECT_EQ(step.tasks(), 3U);
  EXPECT_EQ(step.parts[1].job, "3");
  EXPECT_EQ(step.parts[1].first_rank, 2U);
}

RankState full_state() {
  RankState rank;
  rank.rank = rank.task = 5;
  rank.local_rank = 1;
  rank.node = "node002";
  rank.pid = 4711;
  rank.program = "a \"b\" \\";
  rank.is_launcher = true;
  rank.state = "S";
  rank.links = {"40000:29500", "40001:29500"};
  rank.listens = {29500, 1};
  rank.stack = {"* main (train.py:12)"};
  return rank;
}

StepState read_lines(std::string_view text) {
  StepState step;
  StateReader reader;
  for (const auto line : split(text, '\n')) (void)reader.add(line, step);
  return step;
}

TEST(StatusLines, ComeBackAsTheyWereInAnyOrder) {
  auto other = full_state();
  other.pid = 12;
  NodeState node;
  node.node = "node001";
  node.ras = {"line 1", "line 2"};
  node.gpus = {"4711 0 99 GPU-1"};
  const auto first = rank_lines(full_state());
  const auto second = rank_lines(other);
  const auto ones = split(first, '\n');
  const auto others = split(second, '\n');
  std::string mixed;
  for (std::size_t i = 0; i < ones.size(); ++i) mixed += cat({ones[i], "\n", others[i], "\n"});
  const auto step = read_lines(mixed + node_lines(node, 77));
  ASSERT_EQ(step.ranks.size(), 2U);
  EXPECT_EQ(step.ranks[0], full_state());
  EXPECT_EQ(step.ranks[1], other);
  ASSERT_EQ(step.nodes.size(), 1U);
  EXPECT_EQ(step.nodes[0], node);
}

TEST(StatusLines, ARankCountsWhenItIsWhole) {
  const auto lines = rank_lines(full_state());
  for (std::size_t size = 0; size + 1 < lines.size(); ++size)
    EXPECT_TRUE(read_lines(lines.substr(0, size)).ranks.empty());
  EXPECT_TRUE(read_lines(replaced(lines, " rank 5\n", " rank 4294967295\n")).ranks.empty()) << "no such rank";
}

TEST(StatusLines, WhatOthersWriteIsHarmless) {
  StepState step;
  StateReader reader;
  for (const auto* const line :
       {"", "srun: error: x", "status", "status rank", "status rank a 1", "status step a 1 end"}) {
    EXPECT_FALSE(reader.add(line, step)) << line;
  }
  for (int i = 0; i < 5000; ++i) EXPECT_TRUE(reader.add("status rank n 1 listens 1", step));
  EXPECT_TRUE(reader.add("status rank n 1 program \x1b[2J\a\xc3\xa4", step));
  EXPECT_TRUE(reader.add("status rank n 1 cpu_percent -1", step));
  EXPECT_TRUE(reader.add("status rank n 1 no_such_member 1", step));
  EXPECT_TRUE(reader.add("status rank n 1 waits_in " + std::string(100000, 'x'), step));
  EXPECT_TRUE(reader.add("status rank n 1 end", step));
  ASSERT_EQ(step.ranks.size(), 1U);
  EXPECT_LE(step.ranks[0].listens.size(), 1024U);
  EXPECT_TRUE(is_printable_text(step.ranks[0].program, 100)) << step.ranks[0].program;
  EXPECT_EQ(step.ranks[0].cpu, 0U);
  auto rank = full_state();
  rank.unread = "\x1b]0;" + std::string(100000, 'y');
  const auto lines = rank_lines(rank);
  for (const auto line : split(lines, '\n')) {
    EXPECT_LT(line.size(), 1000U) << "srun may mix longer lines";
    EXPECT_TRUE(is_printable_text(line, line.size()));
  }
}

TEST(StatusLines, ListOfTasks) {
  const NodeLook look{.job = "12", .step = "0", .first_rank = 8, .asks_ras = false, .scontrol = {}, .py_spy = {}};
  const auto tasks = parse_task_list(
      "PID      JOBID    STEPID   LOCALID GLOBALID\n"
      "314      12       0        0       2\n"
      "316      12       0        1       3\n"
      "319      12       0        -       -\n"
      "320      13       0        0       0\n"
      "x        12       0        0       0\n"
      "320      12       0        0\n",
      look, "node001");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[1], task_at("node001", 316, 11, 1));
}

}  // namespace
}  // namespace bootstrap
