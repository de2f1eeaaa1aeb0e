//! The end-to-end tests of the filter, by the module in which they run.
//!
//! Invariant: every test runs in one module at least; what depends on a host runs in each module
//! that can have it. The wasm module runs all tests but [`IN_MODULE_ALONE`], so a new test needs no
//! row here. The tests of older Envoys are `older_envoys.rs`.

use super::{
    end_to_end::{FLEET_LEASES, FLEET_PROCESSES, build_clock, e2e, tests_of},
    second_try::{self, Tests},
};
use crate::{
    build::{self, Product},
    problem::Result,
    run,
    tools::{
        cross,
        envoy::{CURRENT, FOR_AARCH64, Release, older},
    },
    workspace::Workspace,
};
use std::path::Path;

/// The tests of the filter as the wasm module, without those that run in the dynamic module alone.
pub fn wasm(workspace: &Workspace) -> Result<()> {
    e2e(workspace, |name| name.contains("envoy"), Tests::AllBut(&IN_MODULE_ALONE))
}

/// The tests of the slim module: forms and rejections, the vectors, responses and races, each of
/// which depends on the reading of a policy. The other tests cover code behind that
/// which all modules have, and would take the same time again.
pub(super) const OF_SLIM: [&str; 19] = [
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_answers::no_header_traps_and_none_can_hide",
    "envoy_answers::text_struct_and_bytes_are_the_same_policy",
    "envoy_answers::the_fields_of_the_origin_stay",
    "envoy_compiled::a_compiled_policy_is_taken_in_every_form",
    "envoy_compiled::a_document_is_read_or_refused_with_what_to_do",
    "envoy_compiled::an_object_of_json_and_a_folded_text_are_taken",
    "envoy_compiled::no_compiled_configuration_traps",
    "envoy_compiled::what_is_no_policy_of_this_module_is_refused_in_words",
    "envoy_config::a_reload_keeps_the_counts",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_exact::fresh_keys_are_exact_with_four_workers",
    "envoy_jwt::users_are_counted_by_a_verified_claim",
    "envoy_module::a_denial_is_repeated_from_memory_and_exactly",
    "envoy_module::a_lost_race_gives_back_what_was_committed",
    "envoy_module::the_vectors_hold_in_the_module",
    "envoy_numbers::counts_are_exact_with_one_sequence_and_with_one_for_each_name",
    "envoy_routes::a_route_has_the_policy_that_it_names",
    "envoy_routes::lines_of_policies_are_apart",
];

/// What runs in the dynamic module alone, in the wasm module, and all random decisions in the slim
/// one.
pub fn wasm_deeply(workspace: &Workspace) -> Result<()> {
    build_clock(workspace)?;
    build::build(workspace, Product::Envoy)?;
    let tests = Tests::Named(&IN_MODULE_ALONE);
    second_try::run(workspace, tests, || tests_of(workspace, CURRENT, &["envoy"]))?;
    in_wasm(workspace, &workspace.envoy_slim_wasm(), "envoy", &[ALL_DECISIONS])
}

/// It decides in the default module, in the ordinary test.
pub(super) const ALL_DECISIONS: &str = "envoy_cases::every_case_in_the_module";

/// Tests of the filter, of the module that takes compiled policies alone.
pub fn slim(workspace: &Workspace) -> Result<()> {
    in_wasm(workspace, &workspace.envoy_slim_wasm(), "envoy", &OF_SLIM)
}

/// The tests of the lean module: what it refuses, and that all else goes on without the code for
/// waiting and for calls, through each callback and at the end of streams and configurations.
pub(super) const OF_LEAN: [&str; 8] = [
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_charging::every_place_of_a_success_comes_back",
    "envoy_compiled::a_compiled_policy_is_taken_in_every_form",
    "envoy_compiled::what_the_lean_module_cannot_do_is_refused_by_name",
    "envoy_concurrency::no_more_than_the_limit_run_at_once_and_every_end_frees_one",
    "envoy_config::a_reload_keeps_the_counts",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_routes::a_route_has_the_policy_that_it_names",
];

/// Tests of the filter, of the smallest module.
pub fn lean(workspace: &Workspace) -> Result<()> {
    in_wasm(workspace, &workspace.envoy_lean_wasm(), "envoy", &OF_LEAN)
}

/// The tests of the dynamic module: what depends on its host. Rules, algorithms and formats are the
/// same code in all modules. Left out: what it refuses (nested metadata, claims), what a wasm host
/// alone has (traps, images, several machines), and the gauges of memory. Its calls to clusters are
/// [`CALLS_OF_MODULE`].
pub(super) const OF_MODULE: [&str; 50] = [
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_answers::no_header_traps_and_none_can_hide",
    "envoy_answers::text_struct_and_bytes_are_the_same_policy",
    "envoy_answers::the_fields_of_the_origin_stay",
    "envoy_body::a_body_settles_the_cost_that_it_shows",
    "envoy_body::a_header_may_be_a_trailer",
    "envoy_body::a_model_server_that_streams_has_a_budget_and_four_places",
    "envoy_body::a_response_that_breaks_off_costs_what_it_showed",
    "envoy_cases_real::every_case_in_a_real_envoy",
    "envoy_certificates::a_client_is_counted_by_its_verified_certificate",
    "envoy_charging::a_client_that_leaves_before_the_response_is_charged",
    "envoy_charging::a_response_settles_the_cost_that_it_shows",
    "envoy_charging::estimates_in_flight_are_at_most_the_limit",
    "envoy_charging::every_place_of_a_success_comes_back",
    "envoy_charging::the_end_of_a_response_settles_the_cost_that_it_shows",
    "envoy_concurrency::a_client_that_leaves_while_it_waits_takes_no_place",
    "envoy_concurrency::another_limit_keeps_what_runs",
    "envoy_concurrency::no_more_than_the_limit_run_at_once_and_every_end_frees_one",
    "envoy_concurrency::requests_wait_for_a_place_in_order",
    "envoy_config::a_bad_policy_refuses_to_start",
    "envoy_config::a_reload_keeps_the_counts",
    "envoy_day::the_real_day_adds_up",
    "envoy_ends::a_response_of_envoy_itself_frees_the_place",
    "envoy_ends::a_time_out_of_the_route_frees_the_place",
    "envoy_ends::an_internal_redirect_is_a_second_stream",
    "envoy_ends::an_upgraded_connection_has_its_place_until_either_side_closes_it",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_exact::fresh_keys_are_exact_with_four_workers",
    "envoy_exact::rules_of_one_key_are_exact_with_four_workers",
    "envoy_grpc::a_refusal_is_trailers_only",
    "envoy_grpc::grpc_web_is_refused_through_envoys_filter_too",
    "envoy_identity::only_use_remote_address_makes_the_connection_the_client",
    "envoy_identity::the_corpus_of_spoofing",
    "envoy_layers::what_cannot_be_committed_everywhere_is_given_back",
    "envoy_limits::a_table_overflows_without_growing",
    "envoy_metadata::a_copied_header_is_what_the_client_sends",
    "envoy_metadata::a_filter_that_runs_later_has_set_nothing",
    "envoy_metadata::a_tenant_is_counted_as_ext_authz_names_it",
    "envoy_metadata::a_value_at_the_top_counts_by_its_type",
    "envoy_metadata::only_the_named_value_of_the_named_filter_is_read",
    "envoy_pace::a_body_waits_where_it_comes_from",
    "envoy_pace::a_line_goes_at_the_rate_of_its_quota",
    "envoy_penalty::workers_that_deny_at_once_take_one_step",
    "envoy_priority::who_pays_goes_first",
    "envoy_routes::a_route_has_the_policy_that_it_names",
    "envoy_routes::lines_of_policies_are_apart",
    "envoy_succession::a_policy_changes_during_an_attack_on_four_workers",
    "envoy_succession::no_request_is_admitted_twice_across_a_reload",
    "envoy_waiting::a_request_with_a_body_waits_too",
    "envoy_waiting::four_hundred_are_refused_at_once",
];

/// Tests of what all modules share behind the host: rules, algorithms, fields, formats. With the
/// dynamic module Envoy starts in a twentieth of the time that it takes with the wasm module, so
/// they run there alone, and in the wasm module in the deep step.
pub(super) const IN_MODULE_ALONE: [&str; 54] = [
    "envoy_charging::parallel_guesses_are_bounded_by_held_places",
    "envoy_concurrency::a_client_reads_how_many_may_run_and_no_time",
    "envoy_concurrency::a_request_is_counted_for_as_long_as_it_runs",
    "envoy_deny::a_rule_denies_before_anything_is_counted",
    "envoy_flood::a_flood_through_a_table_of_the_default_size_lets_nobody_in_again",
    "envoy_flood::a_flood_under_a_larger_limit_lets_nobody_in_again",
    "envoy_flood::another_capacity_forgets_nobody",
    "envoy_grpc::a_status_of_ones_own_is_for_http",
    "envoy_grpc::an_answer_in_silence_has_the_code_of_its_status",
    "envoy_grpc::who_waited_in_vain_is_told_so",
    "envoy_headers::draft_11_is_a_structured_field",
    "envoy_headers::draft_6_and_x_ratelimit_have_three_integers",
    "envoy_headers::draft_7_tells_the_nearest_quota",
    "envoy_headers::grpc_gets_the_same_fields",
    "envoy_headers::the_partition_key_is_a_byte_sequence",
    "envoy_headers::what_is_switched_off_is_not_sent",
    "envoy_identity::a_hash_key_makes_pk_the_same_in_every_envoy",
    "envoy_identity::an_address_that_envoy_has_not_verified_is_noticed",
    "envoy_identity::the_corpus_holds_when_envoy_appends_the_peer",
    "envoy_layers::a_denial_is_charged_to_none",
    "envoy_layers::the_client_is_who_the_connection_manager_says",
    "envoy_limits::a_queue_is_bounded_and_survives_a_client_that_leaves",
    "envoy_limits::a_queue_lets_requests_go_one_by_one",
    "envoy_migrate::a_full_table_forgets_there_and_not_here",
    "envoy_migrate::a_share_is_of_requests_there_and_of_keys_here",
    "envoy_migrate::both_answer_as_the_table_says",
    "envoy_migrate::defaults_and_updates_of_the_other_filter_are_as_told",
    "envoy_migrate::fields_that_the_example_lacks_become_what_the_document_says",
    "envoy_migrate::refusals_say_the_same",
    "envoy_origins::a_wrong_policy_is_found",
    "envoy_origins::one_thing_has_one_count_at_every_origin",
    "envoy_policy::a_refusal_of_ones_own",
    "envoy_policy::a_rule_may_be_for_one_route",
    "envoy_policy::a_shadow_is_counted_and_not_felt",
    "envoy_policy::a_wait_that_is_too_long_is_refused_at_once",
    "envoy_policy::an_answer_in_silence_tells_nothing",
    "envoy_policy::failures_under_way_together_use_the_quota_up",
    "envoy_policy::only_failed_logins_are_charged",
    "envoy_policy::tiers_replace_the_quotas",
    "envoy_policy::who_is_over_the_limit_waits_and_passes",
    "envoy_policy::who_waits_in_vain_is_refused",
    "envoy_priority::nobody_waits_longer_than_it_may_for_others",
    "envoy_priority::who_leaves_lets_all_behind_it_move_up",
    "envoy_settings::a_body_is_what_the_policy_says",
    "envoy_settings::a_percentage_of_keys_is_enforced",
    "envoy_settings::jitter_spreads_who_comes_back",
    "envoy_succession::a_policy_changes_during_an_attack_on_one_worker",
    "envoy_succession::what_a_connection_is_told_when_its_listener_is_replaced",
    "envoy_values::a_policy_without_hosts_reads_none",
    "envoy_values::another_line_or_element_makes_no_new_key",
    "envoy_values::cookies_and_query_values_make_no_new_key",
    "envoy_values::no_spelling_of_a_host_goes_round_its_rule",
    "envoy_values::the_host_of_the_target_counts",
    "envoy_values::white_space_makes_no_new_key",
];

/// Those of [`OF_MODULE`] that an Envoy of another ABI could break: how headers, metadata,
/// responses, waiting and the end of a stream go.
const OF_MODULE_ON_OLDER: [&str; 7] = [
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_charging::every_place_of_a_success_comes_back",
    "envoy_concurrency::requests_wait_for_a_place_in_order",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_grpc::a_refusal_is_trailers_only",
    "envoy_metadata::a_value_at_the_top_counts_by_its_type",
    "envoy_waiting::four_hundred_are_refused_at_once",
];

/// Tests of the filter, in the dynamic module; a few of them also in the older Envoy that loads it.
pub fn module(workspace: &Workspace) -> Result<()> {
    let older = older_that_loads_it().map(|it| (it, OF_MODULE_ON_OLDER.to_vec()));
    let all = (CURRENT, [&OF_MODULE[..], &IN_MODULE_ALONE].concat());
    for (envoy, tests) in [all].into_iter().chain(older) {
        second_try::run(workspace, Tests::Named(&tests), || {
            let mut command = tests_of(workspace, envoy, &["envoy"]);
            command.env("TOLLGATE_ENVOY_WASM", workspace.envoy_module());
            command
        })?;
    }
    Ok(())
}

/// The tests of the dynamic module's calls: leases of a fleet, and policies from a server. The main
/// thread sends them, so what depends on when they come and who is woken runs there too.
pub(super) const CALLS_OF_MODULE: [&str; 11] = [
    "a_client_that_leaves_while_the_authority_is_silent_is_let_go",
    "fleet_full::a_full_circuit_breaker_of_the_cluster_lets_nobody_through",
    "fleet_policy::a_listener_that_is_replaced_goes_on_with_what_is_in_force",
    "fleet_policy::a_plugin_that_stops_following_shows_no_version",
    "fleet_policy::a_policy_that_is_wrong_changes_nothing_and_is_said_once",
    "fleet_policy::a_server_that_is_away_changes_nothing_and_is_found_again",
    "fleet_policy::no_request_is_admitted_twice_while_workers_go_over",
    "fleet_policy::what_is_put_is_in_force_in_every_worker_and_counts_go_on",
    "with_leases_two_proxies_admit_the_limit_and_no_more",
    "without_leases_two_proxies_admit_exactly_what_one_limiter_would",
    "without_the_authority_each_rule_says_what_becomes_of_requests",
];

/// Those that an Envoy of another ABI could break.
const CALLS_ON_OLDER: [&str; 2] = [
    "fleet_policy::what_is_put_is_in_force_in_every_worker_and_counts_go_on",
    "without_the_authority_each_rule_says_what_becomes_of_requests",
];

/// Tests of the module's calls; a few of them also in the older Envoy that loads it.
pub(super) fn calls_of_module(workspace: &Workspace) -> Result<()> {
    for (envoy, tests) in [(CURRENT, &CALLS_OF_MODULE[..])]
        .into_iter()
        .chain(older_that_loads_it().map(|envoy| (envoy, &CALLS_ON_OLDER[..])))
    {
        second_try::run(workspace, Tests::Named(tests), || {
            let mut command = tests_of(workspace, envoy, &[FLEET_LEASES, FLEET_PROCESSES]);
            command.env("TOLLGATE_ENVOY_WASM", workspace.envoy_module());
            command
        })?;
    }
    Ok(())
}

fn older_that_loads_it() -> Option<Release> {
    older().into_iter().find(|release| release.version.starts_with("1.39."))
}

/// Those of [`OF_MODULE_ON_OLDER`] that pass in an emulator, which is slow: others
/// have hundreds of clients, or set Envoy's clock by a library for this machine.
pub(super) const OF_MODULE_ON_AARCH64: [&str; 4] = [
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_grpc::a_refusal_is_trailers_only",
    "envoy_metadata::a_value_at_the_top_counts_by_its_type",
];

/// Tests of the dynamic module for aarch64 in an emulator: the crate's own, and some in an Envoy
/// for aarch64. The emulator has the order of memory of this machine.
pub fn aarch64(workspace: &Workspace) -> Result<()> {
    let mut cargo = cross::cargo(workspace, "test");
    cargo.args(["-p", "tollgate-envoy-module", "--test", "all"]);
    run::shown(&mut cargo, "compare with the native tests")?;
    build::build(workspace, Product::ModuleForAarch64)?;
    let envoy = cross::emulated(workspace, &FOR_AARCH64.binary(workspace))?;
    second_try::run(workspace, Tests::Named(&OF_MODULE_ON_AARCH64), || {
        let mut command = tests_of(workspace, FOR_AARCH64, &["envoy"]);
        command.env("TOLLGATE_ENVOY_BIN", &envoy);
        command.env("TOLLGATE_ENVOY_WASM", workspace.envoy_module_for_aarch64());
        command
    })
}

/// The tests of a filter that limits with `tollgate-proxy-wasm`: what depends on the SDK, which
/// calls the limiter. Left out: requests that wait and calls to clusters, which it refuses.
pub(super) const OF_EXAMPLE: [&str; 11] = [
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_answers::no_header_traps_and_none_can_hide",
    "envoy_answers::the_fields_of_the_origin_stay",
    "envoy_charging::a_client_that_leaves_before_the_response_is_charged",
    "envoy_charging::a_response_settles_the_cost_that_it_shows",
    "envoy_charging::every_place_of_a_success_comes_back",
    "envoy_config::a_reload_keeps_the_counts",
    "envoy_config::policies_share_a_vm_without_meeting",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_grpc::a_refusal_is_trailers_only",
    "envoy_life_changes::two_listeners_of_one_plugin_share_counts_through_changes_of_one",
];

/// Tests of the filter, in a filter with the SDK.
pub fn example(workspace: &Workspace) -> Result<()> {
    in_wasm(workspace, &workspace.envoy_example_wasm(), "envoy", &OF_EXAMPLE)
}

/// Runs these tests of one target in this module of wasm.
pub(super) fn in_wasm(
    workspace: &Workspace,
    module: &Path,
    target: &str,
    tests: &[&str],
) -> Result<()> {
    second_try::run(workspace, Tests::Named(tests), || {
        let mut command = tests_of(workspace, CURRENT, &[target]);
        command.env("TOLLGATE_ENVOY_WASM", module);
        command
    })
}
