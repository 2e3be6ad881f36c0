"""What `scripts/check` leaves to `scripts/check --full`: further cases of a kind, controls that take long, and our own tools.
A new test or case runs by default, unless a row here names it. pytest by hand runs all tests that its line names."""

# SPDX-License-Identifier: Apache-2.0

import re
from itertools import groupby

# A file or a test, and what remains by default: a number of cases of each test, evenly chosen, or cases whose ids match.
ROWS: dict[str, int | str] = {
    # Real frameworks and pages: the README trains with PyTorch and torchrun, by srun and sbatch; one row of another framework.
    "test_real_frameworks::test_a_framework_starts_with_the_plugin": r"^JAX 0\.10$",
    "test_real_frameworks::test_a_framework_starts_with_the_preload_alone": 0,
    "test_real_frameworks::test_a_framework_starts_with_neither": 0,
    "test_examples::test_the_rate_of_all_ranks_is_that_of_one_times_their_number": 0,
    "test_examples::test_torchrun_without_the_plugin_trains_on_each_node_alone": 0,
    "test_documents::test_the_commands_of_a_page_work": r"^README",
    "test_examples::test_a_program_trains_with_the_line_at_its_head": r"^(train\.cc|train_mpi4py\.py)$",
    "test_examples::test_a_script_trains_when_it_is_submitted": 0,
    "test_examples": 1,
    "test_horovod": 1,
    "test_python_package::test_pytorch_meets_in_other_steps": 0,
    "test_python_package": 1,
    "test_train": 1,
    # Ordinary uses with the plugin off and on: some of each group; the control needs all of them.
    "test_harm::test_harm": 24,
    "test_harm::test_harm_control_a_plugin_that_sets_up_each_step_fails": 0,
    # Kinds of steps.
    "test_advice::test_each_advice_works": r"^(one rank for all nodes|a launcher|one task|GPUs per task|a shell|another partition|shares|MIG instances)$",
    "test_advice::test_each_hint_of_check_works": r"^(a port of the system|a name at the loopback)$",
    "test_addresses::test_each_exported_address_has_its_outcome": r"^(an interface that no node has|a port that is taken, by the number)$",
    "test_options::test_a_wrong_argument_in_plugstack_refuses_steps_that_ask_and_leaves_others_alone": 4,
    "test_options::test_an_option_of_the_job_applies_to_steps_without_their_own": 5,
    "test_options::test_export_none_loses_no_setting": 2,
    "test_options::test_each_source_wins_over_the_default_and_over_weaker_sources": 2,
    "test_refusals::test_a_plugin_that_cannot_be_loaded_ends_steps_only_if_required": 4,
    "test_refusals::test_forged_layout_is_refused_where_srun_cannot_replace_it": 1,
    "test_layouts::test_every_task_has_the_right_values": 48,
    "test_layouts::test_control_ranks_of_launch_scripts_do_not_meet": 0,
    "test_gpus": 1,
    "test_gpu_shapes": 1,
    "test_near_gpus::test_near_binds_to_the_cores_near_the_gpu": r"gpus-per-task|cpu-bind=cores|near9",
    "test_near_gpus::test_each_task_gets_the_gpus_near_its_cores": 3,
    "test_ports::test_a_taken_port_ends_the_step_with_one_sentence": 3,
    # Exchanges and communicators.
    "test_exchange::test_many_rounds_in_one_step_are_right": 1,
    "test_exchange::test_different_calls_fail_at_once": 1,
    "test_exchange::test_control_sessions_without_a_common_leave_lose_fences": 0,
    "test_exchange_pmi1::test_all_ranks_have_all_values": 3,
    "test_exchange_pmi1::test_values_of_each_size_arrive": 3,
    "test_exchange_pmi1::test_different_calls_fail_at_once_over_pmi1": 1,
    "test_exchange_pmi1::test_a_rank_that_ends_is_named_where_srun_has_the_plugin": 1,
    "test_exchange_pmi1::test_an_unusable_pmi1_is_one_sentence_at_once": 1,
    "test_exchange_daemons::test_ranks_of_other_nodes_fail_in_time_when_slurmstepd_is_killed": 1,
    "test_exchange_faults::test_a_node_where_all_ranks_have_ended_is_named_and_no_other": 1,
    "test_exchange_faults::test_a_rank_that_does_not_call_again_is_named_by_all": 1,
    "test_exchange_faults::test_a_rank_that_continues_does_not_revive_a_failed_call": 0,
    "test_exchange_faults::test_all_missing_ranks_of_a_node_are_one_item": 0,
    "test_exchange::test_an_unusable_pmix_is_refused_in_one_sentence": 3,
    "test_exchange::test_mpi_and_the_exchange_take_turns": 0,
    "test_communicators::test_four_calls_make_a_communicator": 3,
    "test_communicators::test_each_group_makes_its_communicator": 3,
    "test_communicators::test_a_rank_that_fails_alone_is_named_by_all": 1,
    "test_communicators::test_a_rank_that_does_not_return_from_nccl_is_named": 1,
    "test_communicators::test_ranks_that_wait_in_nccl_end_at_the_deadline": 1,
    "test_communicators::test_an_environment_with_a_wrong_address_for_nccl_is_named": 1,
    "test_communicators::test_a_rank_that_fails_after_it_has_waited_is_named_by_all": 0,
    "test_preload::test_a_program_ends_as_it_would_without_us": 5,
    "test_preload::test_the_preload_sets_the_variables_of_the_plugin": 3,
    "test_preload::test_an_unchanged_ddp_script_trains": 1,
    "test_preload::test_children_of_a_rank_have_its_variables": 0,
    "test_preload_own_step::test_jobs_that_ranks_submit_have_right_ranks_ten_deep": 0,
    "test_preload_own_step::test_jobs_that_ranks_submit_have_right_ranks_with_the_plugins_preload": 0,
    "test_mpirun": 1,
    "test_mpirun::test_pytorch_trains_over_two_nodes": 0,
    "test_mpirun::test_mpi_sees_the_nodes_as_it_would_without_us": 0,
    "test_mpirun::test_control_mpi_does_not_see_the_nodes_with_another_gds": 0,
    # Failures, load, security.
    "test_first_failure::test_an_asked_step_ends_after_its_grace": 1,
    "test_load": 0,
    "test_first_failure::test_a_task_that_another_process_ends_has_not_failed": 0,
    "test_first_failure::test_memory_is_not_guessed_as_a_cause": 0,
    "test_first_failure::test_the_line_names_how_to_end_the_tasks_that_still_run": 0,
    "test_first_failure::test_an_asked_step_without_grace_goes_on": 1,
    "test_plugin_faults::test_control_the_verdict_notices_misbehaving_plugins": 0,
    "test_sanitizers::test_control_a_plugin_that_holds_slurmstepd_is_in_its_stacks": 0,
    "test_sanitizers::test_control_faults_of_another_plugin_are_reported": 1,
    "test_sanitizers::test_control_faults_of_another_plugin_in_srun_are_reported": 0,
    "test_hook_instructions::test_hooks_are_bounded": 4,
    "test_rogue_peers": 1,
    # The command.
    "test_command_line::test_usage_errors_are_named_and_end_with_2": 4,
    "test_explain::test_the_table_has_the_values_of_the_tasks": 5,
    "test_status::test_a_late_process_of_jax_is_named": 0,
    "test_command_line::test_a_failure_is_red_only_on_a_terminal": 0,
    "test_status_harm::test_the_ras_of_nccl_is_asked_where_that_is_safe": 1,
    "test_status_harm::test_a_node_with_a_frozen_slurmd_is_named": 0,
    "test_status_harm::test_a_heterogeneous_job_is_found_by_any_of_its_ids": 0,
    "test_status::test_a_rank_in_another_collective_is_named": 0,
    "test_status_harm::test_variables_of_the_user_do_no_harm": 2,
    # Our own tools.
    "test_bench::test_it_cleans_up_when_it_is_stopped": 1,
    "test_bench::test_bench_prints_its_table": 0,
    "test_bench::test_the_clocks_measure_the_plugin": 0,
    "test_bench::test_the_counts_are_within_their_limits": 0,
    "test_demo": 0,
    "test_file_queue": 0,
    "test_the_check::test_the_next_run_removes_the_cluster_of_a_run_that_was_killed": 0,
    "test_cluster::test_up_ended_midway_leaves_nothing": 3,
    "test_cluster::test_signals_reach_the_command_and_its_status_comes_back": 1,
    "test_cluster::test_srun_and_its_step_end_with_their_timeout": 2,
    "test_cluster_cgroups": 1,
    "test_debian": 0,
    "test_framework_environments": 0,
    "test_packages": 0,
    "test_packages::test_a_release_runs_no_tool_but_the_pinned_ones": 1,
    "test_packages::test_a_release_takes_no_folder_that_holds_something": 1,
    "test_packages::test_the_plugin_needs_its_release_of_slurm": 1,
    "test_scaling_report": 0,
    "test_slurm_headers": 0,
    "test_the_check::test_it_leaves_nothing_when_it_is_ended": 1,
}


def rest(cases, remains):
    """The cases of a test that run only with --full."""
    if isinstance(remains, str):
        return [case for case in cases if not re.search(remains, case.callspec.id)]
    places = {number * len(cases) // remains for number in range(remains)}
    return [case for place, case in enumerate(cases) if place not in places]


def left_to_full(items):
    """The items that run only with --full, because of their mark or a row."""
    left = []
    for (path, function), group in groupby(items, key=lambda item: (item.path, item.originalname)):
        cases = []
        for item in group:
            (left if item.get_closest_marker("full") else cases).append(item)
        row = next((row for row in (f"{path.stem}::{function}", path.stem) if row in ROWS), None)
        if row:
            left += rest(cases, ROWS[row])
    return left
