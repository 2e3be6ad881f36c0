// The rules for steps that are set up, and srun's line.
// SPDX-License-Identifier: Apache-2.0
#include "core/activation/activation_rules.h"

#include <gtest/gtest.h>

namespace bootstrap {
namespace {

const UserChoice kNobody;
const UserChoice kJob{.asked = Asked::kWeakly, .is_off = false, .origin = "the job's --bootstrap=on"};
const UserChoice kLine{.asked = Asked::kStrongly, .is_off = false, .origin = "--bootstrap=on"};

SrunFacts step_of(std::uint32_t tasks, std::uint32_t nodes, ProgramKind kind = ProgramKind::kTraining) {
  SrunFacts step;
  step.tasks = tasks;
  step.nodes = nodes;
  step.program = {.kind = kind, .name = "prog", .reason = "prog is what it is"};
  return step;
}

SlurmctldAnswers answers_of(const std::string& per_node, std::vector<std::uint32_t> tasks_per_node) {
  SlurmctldAnswers answers;
  answers.request.per_node = per_node;
  answers.tasks_per_node = std::move(tasks_per_node);
  return answers;
}

Settings settings_of(When when) { return {.when = {when, Source::kSite}}; }

Activation decide(const SrunFacts& step, const SlurmctldAnswers& answers, const UserChoice& choice = kNobody,
                  When when = When::kWorld) {
  return decide_activation(choice, settings_of(when), step, answers);
}

SetUp set_up(const SrunFacts& step, const SlurmctldAnswers& answers, const UserChoice& choice = kNobody,
             When when = When::kWorld) {
  return decide(step, answers, choice, when).decision.set_up;
}

const SlurmctldAnswers kTwoByTwo = answers_of("gres:gpu:2", {2, 2});

TEST(Activation, AWorldIsATaskForEachGpu) {
  EXPECT_EQ(set_up(step_of(4, 2), kTwoByTwo), SetUp::kWorld);
  EXPECT_EQ(set_up(step_of(2, 1), answers_of("gres:gpu:2", {2})), SetUp::kWorld);
  EXPECT_EQ(set_up(step_of(2, 2), answers_of("gres:gpu:1", {1, 1})), SetUp::kWorld);
  EXPECT_EQ(set_up(step_of(1, 1), answers_of("gres:gpu:1", {1})), SetUp::kNothing);
  EXPECT_EQ(set_up(step_of(2, 2), answers_of("gres:gpu:2", {1, 1})), SetUp::kNothing) << "several GPUs a task";
  EXPECT_EQ(set_up(step_of(8, 2), answers_of("gres:gpu:2", {4, 4})), SetUp::kNothing) << "GPUs are shared";
  EXPECT_EQ(set_up(step_of(4, 2), answers_of("gres:gpu:2", {3, 1})), SetUp::kNothing) << "dealt 3 and 1";
  EXPECT_EQ(set_up(step_of(5, 2), answers_of("gres:gpu:3", {3, 2})), SetUp::kNothing);
  EXPECT_EQ(set_up(step_of(4, 2), answers_of("", {2, 2})), SetUp::kNothing) << "no GPUs";
}

TEST(Activation, OnlyProgramsThatMayTrain) {
  for (const auto kind : {ProgramKind::kLauncher, ProgramKind::kShell, ProgramKind::kScript, ProgramKind::kUnseen,
                          ProgramKind::kTorchrun}) {
    EXPECT_EQ(set_up(step_of(4, 2, kind), kTwoByTwo), SetUp::kNothing) << static_cast<int>(kind);
  }
}

TEST(Activation, WarnsOfAnUnseenProgramIfItsStepIsAWorld) {
  EXPECT_TRUE(decide(step_of(4, 2, ProgramKind::kUnseen), kTwoByTwo).needs_warning);
  EXPECT_EQ(decide(step_of(4, 2, ProgramKind::kUnseen), kTwoByTwo).line(),
            "NOT SET UP: prog is what it is; use --bootstrap=on to set it up, or --bootstrap=off");
  EXPECT_FALSE(decide(step_of(4, 2, ProgramKind::kUnseen), answers_of("gres:gpu:1", {2, 2})).needs_warning);
  EXPECT_FALSE(decide(step_of(4, 2, ProgramKind::kShell), kTwoByTwo).needs_warning);
}

TEST(Activation, TorchrunIsOneTaskOnEachOfSeveralNodes) {
  const auto torchrun = [](std::uint32_t tasks, std::uint32_t nodes) {
    return step_of(tasks, nodes, ProgramKind::kTorchrun);
  };
  EXPECT_EQ(set_up(torchrun(2, 2), answers_of("gres:gpu:2", {1, 1})), SetUp::kTorchrun);
  EXPECT_EQ(set_up(torchrun(2, 2), answers_of("", {1, 1})), SetUp::kNothing) << "no GPUs";
  EXPECT_EQ(set_up(torchrun(1, 1), answers_of("gres:gpu:2", {1})), SetUp::kNothing);
  EXPECT_EQ(set_up(torchrun(4, 2), kTwoByTwo), SetUp::kNothing);
  EXPECT_EQ(set_up(torchrun(2, 2), answers_of("gres:gpu:2", {1, 1}), kJob), SetUp::kTorchrun);
  EXPECT_EQ(set_up(torchrun(2, 2), answers_of("gres:gpu:2", {1, 1}), kNobody, When::kGpu), SetUp::kTorchrun);
  EXPECT_EQ(set_up(torchrun(2, 2), answers_of("gres:gpu:2", {1, 1}), kNobody, When::kAsked), SetUp::kNothing);
  EXPECT_EQ(set_up(torchrun(2, 2), answers_of("gres:gpu:2", {1, 1}), kLine), SetUp::kAllSettings);
}

TEST(Activation, TheLineNamesTheOptionsOfSlurmToUse) {
  const auto line = [](const SrunFacts& step, const std::string& gpus, std::vector<std::uint32_t> tasks) {
    return decide(step, answers_of(gpus, std::move(tasks))).line();
  };
  EXPECT_EQ(line(step_of(4, 2), "gres:gpu:2", {3, 1}),
            "NOT SET UP: Slurm spreads the 4 tasks unevenly (1 to 3 on a node); use --ntasks-per-node=2 for an even "
            "spread");
  EXPECT_TRUE(
      line(step_of(4, 2), "gres:gpu:3", {3, 1}).ends_with(" for an even spread, or --bootstrap=on to set it up"));
  EXPECT_EQ(line(step_of(2, 2), "gres:gpu:2", {1, 1}),
            "NOT SET UP: each node has 1 task and 2 GPUs; use --ntasks-per-node=2 for a task for each GPU, or "
            "--bootstrap=on for tasks with several GPUs");
  EXPECT_EQ(line(step_of(4, 2), "gres:gpu:1", {2, 2}),
            "NOT SET UP: each node has 2 tasks and 1 GPU; use --gpus-per-node=2 for a GPU for each task, or "
            "--bootstrap-gpu-share to share GPUs");
  EXPECT_EQ(line(step_of(4, 2, ProgramKind::kTorchrun), "gres:gpu:2", {2, 2}),
            "NOT SET UP: the step starts torchrun 4 times on 2 nodes, and each torchrun starts its own ranks; use "
            "--ntasks-per-node=1");
  EXPECT_NE(line(step_of(1, 1), "gres:gpu:2", {1}).find("; use --ntasks-per-node=N"), std::string::npos);
  EXPECT_NE(line(step_of(4, 2, ProgramKind::kShell), "", {2, 2}).find("#SBATCH --bootstrap=on"), std::string::npos);
}

SrunFacts launcher_of(std::uint32_t tasks, std::uint32_t nodes) {
  auto step = step_of(tasks, nodes, ProgramKind::kLauncher);
  step.program.remedy = "start it otherwise";
  step.program.starts_ranks = true;
  return step;
}

TEST(Activation, ALauncherIsNotAdvisedToAsk) {
  const auto line = [](const SrunFacts& step, const UserChoice& choice, When when = When::kWorld) {
    return decide(step, kTwoByTwo, choice, when).line();
  };
  EXPECT_EQ(line(launcher_of(2, 2), kNobody), "NOT SET UP: prog is what it is; start it otherwise");
  EXPECT_EQ(line(launcher_of(2, 2), kJob),
            "NOT SET UP: prog is what it is, although the job's --bootstrap=on asks for it; start it otherwise");
  auto step = launcher_of(2, 2);
  step.is_explained = true;
  EXPECT_TRUE(needs_program(kNobody, settings_of(When::kAsked), step));
  EXPECT_EQ(line(step, kNobody, When::kAsked).substr(0, 60), line(step_of(2, 2), kNobody, When::kAsked).substr(0, 60));
  EXPECT_TRUE(line(step, kNobody, When::kAsked).ends_with("; start it otherwise"));
  for (const auto change :
       {+[](SrunFacts& other) { other.has_terminal = true; }, +[](SrunFacts& other) { other.has_components = true; }}) {
    auto other = launcher_of(2, 2);
    change(other);
    EXPECT_TRUE(line(other, kNobody).ends_with("; start it otherwise")) << line(other, kNobody);
  }
  EXPECT_EQ(line(step_of(1, 1, ProgramKind::kTorchrun), kNobody),
            "NOT SET UP: torchrun starts its own ranks, and on one node it needs no plugin");
  auto torchrun = launcher_of(4, 2);
  torchrun.program.name = "torchrun";
  EXPECT_TRUE(
      line(torchrun, kNobody).ends_with("; start it otherwise, and use --bootstrap=on and --ntasks-per-node=1"));
}

TEST(Activation, AStepThatWaitsForEverHasAWarning) {
  auto step = launcher_of(2, 2);
  EXPECT_FALSE(decide(step, kTwoByTwo).needs_warning);
  step.program.is_stuck = true;
  EXPECT_TRUE(decide(step, kTwoByTwo).needs_warning);
}

TEST(Activation, WarnsOfAProgramThatDoesNotUseTheRanks) {
  const auto warnings = [](const SrunFacts& step, const UserChoice& choice) {
    return program_warnings(decide(step, kTwoByTwo, choice).decision, step);
  };
  const std::vector<std::string> launcher{"prog is what it is; start it otherwise"};
  EXPECT_EQ(warnings(launcher_of(2, 2), kLine), launcher);
  EXPECT_TRUE(warnings(launcher_of(2, 2), kNobody).empty()) << "it is not set up";
  EXPECT_TRUE(warnings(launcher_of(1, 1), kLine).empty());
  EXPECT_EQ(warnings(step_of(4, 2, ProgramKind::kTorchrun), kLine),
            std::vector<std::string>{"the step starts torchrun 4 times on 2 nodes, and each torchrun starts its own "
                                     "ranks; use --ntasks-per-node=1"});
  auto closed = step_of(4, 2);
  closed.program.closed = "closed";
  EXPECT_EQ(warnings(closed, kNobody), std::vector<std::string>{"closed"});
  EXPECT_EQ(warnings(closed, kLine), std::vector<std::string>{"closed"});
  closed.tasks = 3;
  EXPECT_TRUE(warnings(closed, kNobody).empty()) << "it is not set up";
}

TEST(Activation, AJobWithGpusNamesTheRequestOfItsStep) {
  auto step = step_of(4, 2);
  step.gpus_of_job = 2;
  EXPECT_EQ(decide(step, answers_of("", {2, 2})).line(),
            "NOT SET UP: the job has GPUs, and this step requests none; use --gpus-per-node=2, or --bootstrap=on for "
            "CPUs alone");
  EXPECT_EQ(decide(step, kTwoByTwo).decision.set_up, SetUp::kWorld);
  EXPECT_EQ(decide(step, answers_of("gres/shard:2", {2, 2})).line(),
            "NOT SET UP: the step has shares of GPUs (shard, MPS); use --bootstrap=on to set it up");
}

TEST(Activation, TheseRulesNeedNoCall) {
  const auto free = [](SrunFacts step, const UserChoice& choice = kNobody, When when = When::kWorld) {
    return decide_without_calls(choice, settings_of(when), step).has_value();
  };
  EXPECT_FALSE(free(step_of(4, 2)));
  EXPECT_TRUE(free(step_of(1, 1)));
  EXPECT_TRUE(free(step_of(3, 2))) << "uneven";
  EXPECT_TRUE(free(step_of(4, 2, ProgramKind::kShell)));
  EXPECT_TRUE(free(step_of(4, 2, ProgramKind::kLauncher)));
  EXPECT_TRUE(free(step_of(4, 2, ProgramKind::kScript)));
  EXPECT_TRUE(free(step_of(4, 2), kNobody, When::kAsked));
  EXPECT_TRUE(free(step_of(4, 2), kLine));
  EXPECT_TRUE(free(step_of(4, 2), {.asked = Asked::kUnasked, .is_off = true, .origin = "SLURM_BOOTSTRAP=off"}));
  for (const auto change :
       {+[](SrunFacts& step) { step.has_terminal = true; }, +[](SrunFacts& step) { step.has_components = true; },
        +[](SrunFacts& step) { step.is_submitit = true; }}) {
    auto step = step_of(4, 2);
    change(step);
    EXPECT_TRUE(free(step));
    EXPECT_EQ(set_up(step, kTwoByTwo), SetUp::kNothing);
  }
}

TEST(Activation, TheProgramOfASingleTaskIsReadOnlyForAnExplanation) {
  const auto reads = [](SrunFacts step, const UserChoice& choice = kNobody, When when = When::kWorld) {
    return needs_program(choice, settings_of(when), step);
  };
  EXPECT_TRUE(reads(step_of(2, 1)));
  EXPECT_FALSE(reads(step_of(1, 1)));
  EXPECT_TRUE(reads(step_of(1, 1), kLine));
  EXPECT_TRUE(reads(step_of(1, 1), kNobody, When::kGpu));
  auto explained = step_of(1, 1);
  explained.is_explained = true;
  EXPECT_TRUE(reads(explained));
}

TEST(Activation, AnyStepThatAsksIsSetUp) {
  for (const auto kind : {ProgramKind::kTraining, ProgramKind::kLauncher, ProgramKind::kShell, ProgramKind::kUnseen}) {
    auto step = step_of(1, 1, kind);
    step.has_terminal = true;
    const auto activation = decide(step, answers_of("", {1}), kLine);
    EXPECT_EQ(activation.decision.set_up, SetUp::kAllSettings);
    EXPECT_EQ(activation.decision.asked, Asked::kStrongly);
  }
}

TEST(Activation, AJobThatAsksLeavesLaunchersTerminalsAndRefusalsAlone) {
  EXPECT_EQ(set_up(step_of(1, 1), answers_of("gres:gpu:2", {1}), kJob), SetUp::kAllSettings);
  EXPECT_EQ(set_up(step_of(4, 2, ProgramKind::kShell), kTwoByTwo, kJob), SetUp::kAllSettings);
  EXPECT_EQ(set_up(step_of(4, 2, ProgramKind::kLauncher), kTwoByTwo, kJob), SetUp::kNothing);
  EXPECT_TRUE(decide(step_of(4, 2, ProgramKind::kLauncher), kTwoByTwo, kJob).needs_warning);
  auto terminal = step_of(4, 2);
  terminal.has_terminal = true;
  EXPECT_EQ(set_up(terminal, kTwoByTwo, kJob), SetUp::kNothing);
  const auto shared = answers_of("gres:gpu:1", {2, 2});
  EXPECT_EQ(set_up(step_of(4, 2), shared, kJob), SetUp::kNothing);
  auto settings = settings_of(When::kWorld);
  settings.gpu_share.value = true;
  EXPECT_EQ(decide_activation(kJob, settings, step_of(4, 2), shared).decision.set_up, SetUp::kAllSettings);
}

TEST(Activation, ComponentsWithTheirOwnExportAreLeftAloneOrRefused) {
  auto step = step_of(4, 2);
  step.has_components = true;
  EXPECT_EQ(set_up(step, kTwoByTwo, kLine), SetUp::kAllSettings);
  step.has_own_export = true;
  for (const auto& choice : {kJob, kLine}) {
    const auto activation = decide(step, kTwoByTwo, choice);
    const bool is_refused = choice.asked == Asked::kStrongly;
    EXPECT_EQ(activation.decision.set_up, SetUp::kNothing);
    EXPECT_EQ(activation.decision.asked, is_refused ? Asked::kStrongly : Asked::kUnasked);
    EXPECT_EQ(activation.needs_warning, !is_refused) << "it is an error, not a warning";
    EXPECT_NE(activation.line().find("SLURM_BOOTSTRAP_DECISION"), std::string::npos) << activation.line();
  }
}

TEST(Activation, OffWins) {
  const UserChoice off{.asked = Asked::kUnasked, .is_off = true, .origin = "SLURM_BOOTSTRAP=off"};
  EXPECT_EQ(decide(step_of(4, 2), kTwoByTwo, off, When::kAlways).line(),
            "NOT SET UP: SLURM_BOOTSTRAP=off switches it off");
  const UserChoice wrong{.asked = Asked::kUnasked, .is_off = true, .wrong = "X=0 is not valid", .origin = {}};
  const auto activation = decide(step_of(4, 2), kTwoByTwo, wrong, When::kAlways);
  EXPECT_EQ(activation.line(), "NOT SET UP: X=0 is not valid, and counts as off");
  EXPECT_TRUE(activation.needs_warning);
  EXPECT_FALSE(decide(step_of(4, 2), kTwoByTwo, wrong, When::kAsked).needs_warning) << "it would not be set up anyway";
}

TEST(Activation, TheSiteSetsWhichStepsAreSetUp) {
  const auto shell = step_of(1, 1, ProgramKind::kShell);
  const auto one_gpu = answers_of("gres:gpu:1", {1});
  EXPECT_EQ(set_up(shell, one_gpu, kNobody, When::kGpu), SetUp::kWorld);
  EXPECT_EQ(set_up(shell, answers_of("", {1}), kNobody, When::kGpu), SetUp::kNothing);
  EXPECT_EQ(set_up(shell, answers_of("", {1}), kNobody, When::kAlways), SetUp::kWorld);
  EXPECT_EQ(set_up(step_of(4, 2, ProgramKind::kLauncher), kTwoByTwo, kNobody, When::kAlways), SetUp::kNothing);
  EXPECT_EQ(set_up(step_of(4, 2), kTwoByTwo, kNobody, When::kAsked), SetUp::kNothing);
}

TEST(Activation, ObserveShowsTheDecisionOfWorld) {
  const auto world = decide(step_of(4, 2), kTwoByTwo, kNobody, When::kObserve);
  EXPECT_EQ(world.decision.set_up, SetUp::kNothing);
  EXPECT_TRUE(world.decision.is_observed);
  EXPECT_EQ(world.line(),
            "NOT SET UP: when=observe; when=world would say: SET UP: a GPU for each task, and "
            "prog is what it is; use --bootstrap=off to run it without the plugin");
  const auto shell = decide(step_of(4, 2, ProgramKind::kShell), kTwoByTwo, kNobody, When::kObserve);
  EXPECT_TRUE(shell.decision.is_observed);
  EXPECT_NE(shell.line().find("would say: NOT SET UP: prog is what it is"), std::string::npos);
  EXPECT_EQ(set_up(step_of(4, 2), kTwoByTwo, kJob, When::kObserve), SetUp::kAllSettings) << "it asks";
}

// The nodes obey this decision. A node with 1.0.0 would end the tasks of a step that asks on its own line.
TEST(Activation, NeverSetsUpNoStepAndWarnsOfOneThatAsks) {
  for (const auto& choice : {kNobody, kJob, kLine}) {
    const auto activation = decide(step_of(4, 2), kTwoByTwo, choice, When::kNever);
    EXPECT_EQ(activation.decision.set_up, SetUp::kNothing);
    EXPECT_EQ(activation.decision.asked, Asked::kUnasked);
    EXPECT_EQ(activation.needs_warning, choice.asked != Asked::kUnasked) << choice.origin;
    EXPECT_TRUE(decide_without_calls(choice, settings_of(When::kNever), step_of(4, 2))) << "no call of slurmctld";
    EXPECT_FALSE(needs_program(choice, settings_of(When::kNever), step_of(4, 2)));
  }
  EXPECT_EQ(decide(step_of(4, 2), kTwoByTwo, kLine, When::kNever).line(),
            "NOT SET UP: the site sets when=never, as at the start and the end of a roll-out, although --bootstrap=on "
            "asks for it; ask your administrator when that ends, and start the step again then");
  EXPECT_EQ(decide(step_of(4, 2), kTwoByTwo, kNobody, When::kNever).line(),
            "NOT SET UP: the site sets when=never, as at the start and the end of a roll-out");
  const UserChoice wrong{.asked = Asked::kUnasked, .is_off = true, .wrong = "X=0 is not valid", .origin = {}};
  EXPECT_FALSE(decide(step_of(4, 2), kTwoByTwo, wrong, When::kNever).needs_warning) << "the user meant off";
}

TEST(Activation, ThePartitionIsTheStepsIfSrunHasNone) {
  auto settings = settings_of(When::kWorld);
  settings.partitions.value = "gpu";
  auto answers = kTwoByTwo;
  answers.partition = "old";
  EXPECT_EQ(decide_activation(kNobody, settings, step_of(4, 2), answers).decision.set_up, SetUp::kNothing);
  answers.partition = "gpu";
  EXPECT_EQ(decide_activation(kNobody, settings, step_of(4, 2), answers).decision.set_up, SetUp::kWorld);
}

TEST(Activation, OnlyAStepThatAsksIsSetUpWithoutAnAnswer) {
  const auto unasked = decide_without_answers(kNobody, "slurmctld did not answer within 5 s");
  EXPECT_EQ(unasked.decision.set_up, SetUp::kNothing);
  EXPECT_TRUE(unasked.needs_warning);
  EXPECT_NE(unasked.line().find("--bootstrap=on"), std::string::npos);
  EXPECT_EQ(decide_without_answers(kLine, "").decision.set_up, SetUp::kAllSettings);
  EXPECT_EQ(decide_without_answers(kJob, "").decision.asked, Asked::kWeakly);
}

TEST(Activation, AStepWithoutAnAddressIsLeftAloneOrRefused) {
  for (const auto& choice : {kNobody, kJob, kLine}) {
    const auto activation = decide_without_address(choice, "a reason");
    EXPECT_EQ(activation.decision.set_up, SetUp::kNothing);
    EXPECT_EQ(activation.decision.asked == Asked::kStrongly, choice.asked == Asked::kStrongly);
    EXPECT_TRUE(activation.needs_warning);
    EXPECT_NE(activation.line().find("--bootstrap-addr"), std::string::npos) << activation.line();
  }
}

}  // namespace
}  // namespace bootstrap
