//! The same filter in the Envoys before the one that everything else runs with.
//!
//! Invariant: tests of the end-to-end step, by name, with another Envoy and nothing else changed:
//! each with one of the older ones, in the deep step all with each. A name that no test has fails
//! the step. envoy/README.md lists the differences of earlier Envoys.

use super::{
    end_to_end,
    second_try::{self, Tests},
    servers,
};
use crate::{build, build::Product, problem::Result, tools::envoy, workspace::Workspace};

const TARGET: &[&str] = &["envoy"];

/// Tests that use the host: each covers a matter in which another version could behave differently.
pub(super) const TESTS: &[&str] = &[
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_answers::no_header_traps_and_none_can_hide",
    "envoy_answers::text_struct_and_bytes_are_the_same_policy",
    "envoy_charging::every_place_of_a_success_comes_back",
    "envoy_charging::the_end_of_a_response_settles_the_cost_that_it_shows",
    "envoy_config::a_bad_policy_refuses_to_start",
    "envoy_config::a_reload_keeps_the_counts",
    "envoy_config::policies_share_a_vm_without_meeting",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_flood::fresh_keys_are_exact_while_the_table_grows",
    "envoy_grpc::a_refusal_is_trailers_only",
    "envoy_grpc::grpc_web_is_refused_through_envoys_filter_too",
    "envoy_headers::grpc_gets_the_same_fields",
    "envoy_identity::only_use_remote_address_makes_the_connection_the_client",
    "envoy_identity::the_corpus_holds_when_envoy_appends_the_peer",
    "envoy_identity::the_corpus_of_spoofing",
    "envoy_jwt::a_claim_counts_by_the_text_that_the_table_says",
    "envoy_jwt::a_token_that_was_not_verified_is_never_read",
    "envoy_jwt::users_are_counted_by_a_verified_claim",
    "envoy_jwt::without_a_verifier_there_are_no_users",
    "envoy_layers::the_client_is_who_the_connection_manager_says",
    "envoy_policy::a_key_may_be_the_route",
    "envoy_policy::a_mark_reaches_the_origin_and_replaces_the_clients_own",
    "envoy_policy::a_refusal_of_ones_own",
    "envoy_policy::a_request_that_waited_lacks_nothing",
    "envoy_policy::only_failed_logins_are_charged",
    "envoy_policy::who_is_over_the_limit_waits_and_passes",
    "envoy_policy::who_waits_in_vain_is_refused",
    "envoy_routes::a_route_has_the_policy_that_it_names",
    "envoy_shipped::a_route_takes_no_configuration_of_the_filter",
    "envoy_shipped::policies_come_from_files",
    "envoy_shipped::routes_have_policies_of_their_own",
    "envoy_succession::no_request_is_admitted_twice_across_a_reload",
    "envoy_succession::what_a_connection_is_told_when_its_listener_is_replaced",
    "envoy_values::white_space_makes_no_new_key",
    "envoy_waiting::a_request_with_a_body_waits_too",
    "envoy_waiting::a_time_out_ends_a_wait",
];
/// Tests of code in the module that calls the host only in ways that one of [`TESTS`] does, too:
/// formats of fields and answers, sizes of tables, which rule applies.
pub(super) const ALSO_DEEP: &[&str] = &[
    "envoy_exact::fresh_keys_are_exact_with_four_workers",
    "envoy_flood::a_flood_under_a_larger_limit_lets_nobody_in_again",
    "envoy_flood::another_capacity_forgets_nobody",
    "envoy_grpc::a_status_of_ones_own_is_for_http",
    "envoy_grpc::an_answer_in_silence_has_the_code_of_its_status",
    "envoy_grpc::who_waited_in_vain_is_told_so",
    "envoy_headers::draft_11_is_a_structured_field",
    "envoy_headers::the_partition_key_is_a_byte_sequence",
    "envoy_layers::a_denial_is_charged_to_none",
    "envoy_layers::what_cannot_be_committed_everywhere_is_given_back",
    "envoy_limits::a_queue_lets_requests_go_one_by_one",
    "envoy_limits::a_table_overflows_without_growing",
    "envoy_policy::a_rule_may_be_for_one_route",
    "envoy_policy::a_shadow_is_counted_and_not_felt",
    "envoy_policy::tiers_replace_the_quotas",
    "envoy_succession::a_policy_changes_during_an_attack_on_four_workers",
];
/// None would mean all.
const _: () = assert!(!TESTS.is_empty());

pub fn test(workspace: &Workspace) -> Result<()> {
    on_each(workspace, of)
}

/// All tests with each of the older releases, for `cargo xtask test deep`.
pub fn test_all(workspace: &Workspace) -> Result<()> {
    on_each(workspace, |_| TESTS.iter().chain(ALSO_DEEP).copied().collect())
}

fn on_each(workspace: &Workspace, tests: fn(usize) -> Vec<&'static str>) -> Result<()> {
    build::build(workspace, Product::Envoy)?;
    for (i, release) in envoy::older().into_iter().enumerate() {
        let tests = tests(i);
        println!("\n=== Envoy {}: envoy.yaml, and {} tests", release.version, tests.len());
        servers::validate_on(workspace, release)?;
        second_try::run(workspace, Tests::Named(&tests), || {
            end_to_end::tests_of(workspace, release, TARGET)
        })?;
    }
    Ok(())
}

/// The tests of one of the older releases.
fn of(release: usize) -> Vec<&'static str> {
    TESTS.iter().skip(release).step_by(envoy::older().len()).copied().collect()
}
