//! The steps with real servers: build, validate, deploy dry, end to end, and `up` itself.
//!
//! Invariant: the end-to-end tests are `tests/`, found by the names of their targets: those with
//! "envoy" run in the Envoy step, those with "fleet" in the fleet's, all others in the workerd
//! step, so none is forgotten.

use super::{readme, second_try};
use crate::{
    build::{self, Product},
    children::{self, Stop},
    env, files, metadata,
    problem::{OrProblem, Problem, Result},
    run,
    servers::{
        Server,
        envoy::{self, Ports},
        free_port,
        http::Request,
        log_to,
    },
    tools::{
        envoy::{CURRENT, Release, older},
        npm,
    },
    workspace::Workspace,
};
use std::{ffi::OsStr, fs, process::Command, time::Duration};

const E2E: &str = "tollgate-e2e";
/// A third of their time such tests wait: for an event, a window, a clock of the platform.
const AT_ONCE: &str = "3";
/// Builds included.
const UP_PATIENCE: Duration = Duration::from_secs(600);

/// With the clock that tests preload into it.
pub fn build_envoy(workspace: &Workspace) -> Result<()> {
    build_clock(workspace)?;
    build::build(workspace, Product::Envoy)?;
    build::ceilings::check_filter(workspace)
}

pub fn build_module(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Module)
}

pub fn build_example(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Example)
}

pub fn build_worker(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Worker)?;
    build::ceilings::check_worker(workspace)
}

/// Envoy itself reads the shipped configuration and really configures the filter with its policy.
pub fn validate(workspace: &Workspace) -> Result<()> {
    validate_on(workspace, CURRENT)
}

/// The same on another Envoy.
pub(super) fn validate_on(workspace: &Workspace, release: Release) -> Result<()> {
    let ports = Ports { ingress: free_port()?, admin: free_port()?, origin: free_port()? };
    let config = envoy::shipped_config(workspace, ports)?;
    envoy::validate(workspace, release, "validate", &config)?;
    let origin = envoy::origin_config(workspace, ports.origin)?;
    envoy::validate(workspace, release, "validate-origin", &origin)
}

pub fn npm_package(workspace: &Workspace) -> Result<()> {
    build::npm::build(workspace)
}

pub fn dry_run(workspace: &Workspace) -> Result<()> {
    let mut command = Command::new(npm::bin(workspace).join("wrangler"));
    command.current_dir(&workspace.root).args(["deploy", "--dry-run", "--outdir"]);
    command.arg(workspace.out.join("dry-run"));
    run::shown(env::with_tools(workspace, &mut command), "correct wrangler.toml or the Worker")
}

pub fn e2e_envoy(workspace: &Workspace) -> Result<()> {
    e2e(workspace, |name| name.contains("envoy"))
}

/// Also tests that need both servers: they run after the filter was built.
pub fn e2e_workerd(workspace: &Workspace) -> Result<()> {
    let is_others = |name: &str| ["envoy", "fleet", "server"].iter().any(|it| name.contains(it));
    e2e(workspace, |name| !is_others(name))
}

/// All random events in real servers, instead of a quarter; and a million decisions across changes
/// of the policy, instead of the twelve thousand of every run.
pub fn decisions_deeply(workspace: &Workspace) -> Result<()> {
    build_clock(workspace)?;
    for (product, target, tests) in
        [(Product::Envoy, "envoy", &DEEP_ENVOY[..]), (Product::Worker, "worker", &DEEP_WORKER)]
    {
        build::build(workspace, product)?;
        second_try::run(workspace, tests, || {
            let mut command = tests_of(workspace, CURRENT, &[target]);
            command.env("TOLLGATE_DECISIONS", "1000000").env("TOLLGATE_CASES", "416");
            command
        })?;
    }
    Ok(())
}

pub(super) const DEEP_ENVOY: [&str; 1] = ["envoy_cases_real::every_case_in_a_real_envoy"];

pub(super) const DEEP_WORKER: [&str; 2] = [
    "worker_cases::every_case_in_workerd",
    "worker_changes::every_decision_across_changes_is_the_cores",
];

/// `tollgate-server` alone.
pub fn e2e_server(workspace: &Workspace) -> Result<()> {
    build::server::build(workspace, "tollgate-server")?;
    e2e(workspace, |name| name.contains("server"))
}

fn build_clock(workspace: &Workspace) -> Result<()> {
    let mut clock = workspace.cargo();
    clock.args(["build", "-p", "tollgate-clock"]);
    run::shown(clock.args(["--profile", "release-test"]), "correct tests/clock")
}

/// Servers that share one budget in a real engine, real Envoys that share that of a server, and one
/// that follows a server.
pub fn e2e_fleet(workspace: &Workspace) -> Result<()> {
    build_clock(workspace)?;
    build::build(workspace, Product::Envoy)?;
    build::server::build(workspace, "tollgate-server")?;
    e2e(workspace, |name| name.contains("fleet"))?;
    of_slim(workspace, FLEET_LEASES, &FLEET_OF_SLIM)
}

pub(super) const FLEET_LEASES: &str = "fleet_leases";

/// The same with the servers to ask compiled in addition to the policy, in the module that reads
/// nothing else.
pub(super) const FLEET_OF_SLIM: [&str; 3] = [
    "with_leases_two_proxies_admit_the_limit_and_no_more",
    "without_leases_two_proxies_admit_exactly_what_one_limiter_would",
    "without_the_authority_each_rule_says_what_becomes_of_requests",
];

fn e2e(workspace: &Workspace, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let packages = metadata::packages(workspace)?;
    let tests = packages.into_iter().filter(|package| package.name == E2E);
    let tests: Vec<String> =
        tests.flat_map(|package| package.tests).filter(|test| wanted(test)).collect();
    if tests.is_empty() {
        let why = "tests/Cargo.toml has no test target for this step";
        return Err(Problem::new(
            "nothing was tested",
            why,
            "add the [[test]] to tests/Cargo.toml",
        ));
    }
    second_try::run(workspace, &[], || tests_of(workspace, CURRENT, &tests))
}

/// The tests of the slim module: forms and rejections, the vectors, the random cases, responses and
/// races, each of which depends on the reading of a policy. The other tests cover code behind that
/// which all modules have, and would take the same time again.
pub(super) const OF_SLIM: [&str; 20] = [
    "envoy_answers::a_refusal_says_what_the_draft_says",
    "envoy_answers::no_header_traps_and_none_can_hide",
    "envoy_answers::text_struct_and_bytes_are_the_same_policy",
    "envoy_answers::the_fields_of_the_origin_stay",
    "envoy_cases::every_case_in_the_module",
    "envoy_compiled::a_compiled_policy_is_taken_in_every_form",
    "envoy_compiled::a_document_is_read_or_refused_with_what_to_do",
    "envoy_compiled::an_object_of_json_and_a_folded_text_are_taken",
    "envoy_compiled::no_compiled_configuration_traps",
    "envoy_compiled::what_is_no_policy_of_this_module_is_refused_in_words",
    "envoy_config::a_reload_keeps_the_counts",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_exact::fresh_keys_are_exact_with_two_workers",
    "envoy_jwt::users_are_counted_by_a_verified_claim",
    "envoy_module::a_denial_is_repeated_from_memory_and_exactly",
    "envoy_module::a_lost_race_gives_back_what_was_committed",
    "envoy_module::the_vectors_hold_in_the_module",
    "envoy_numbers::counts_are_exact_with_one_sequence_and_with_one_for_each_name",
    "envoy_routes::a_route_has_the_policy_that_it_names",
    "envoy_routes::lines_of_policies_are_apart",
];

/// Tests of the filter, of the module that takes compiled policies alone.
pub fn e2e_envoy_slim(workspace: &Workspace) -> Result<()> {
    of_slim(workspace, "envoy", &OF_SLIM)
}

/// The tests of the dynamic module: what depends on its host. Rules, algorithms and formats are the
/// same code in all modules. Left out: what it refuses (nested metadata, claims, calls to
/// clusters), what a wasm host alone has (traps, images, several machines), and the gauges of
/// memory.
pub(super) const OF_MODULE: [&str; 48] = [
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
    "envoy_deny::a_rule_denies_before_anything_is_counted",
    "envoy_exact::a_hot_key_is_exact_with_four_workers",
    "envoy_exact::fresh_keys_are_exact_with_four_workers",
    "envoy_exact::rules_of_one_key_are_exact_with_four_workers",
    "envoy_grpc::a_refusal_is_trailers_only",
    "envoy_grpc::grpc_web_is_refused_through_envoys_filter_too",
    "envoy_headers::grpc_gets_the_same_fields",
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

/// Those of them that an Envoy of another ABI could break: how headers, metadata, responses,
/// waiting and the end of a stream go.
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
pub fn e2e_module(workspace: &Workspace) -> Result<()> {
    let loads_it = |release: &Release| release.version.starts_with("1.39.");
    let older = older().into_iter().find(loads_it).map(|it| (it, &OF_MODULE_ON_OLDER[..]));
    for (envoy, tests) in [(CURRENT, &OF_MODULE[..])].into_iter().chain(older) {
        second_try::run(workspace, tests, || {
            let mut command = tests_of(workspace, envoy, &["envoy"]);
            command.env("TOLLGATE_ENVOY_WASM", workspace.envoy_module());
            command
        })?;
    }
    Ok(())
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
pub fn e2e_example(workspace: &Workspace) -> Result<()> {
    second_try::run(workspace, &OF_EXAMPLE, || {
        let mut command = tests_of(workspace, CURRENT, &["envoy"]);
        command.env("TOLLGATE_ENVOY_WASM", workspace.envoy_example_wasm());
        command
    })
}

fn of_slim(workspace: &Workspace, target: &str, tests: &[&str]) -> Result<()> {
    second_try::run(workspace, tests, || {
        let mut command = tests_of(workspace, CURRENT, &[target]);
        command.env("TOLLGATE_ENVOY_WASM", workspace.envoy_slim_wasm());
        command
    })
}

/// The end-to-end tests of these targets, with this Envoy.
pub(super) fn tests_of<T: AsRef<OsStr>>(ws: &Workspace, envoy: Release, targets: &[T]) -> Command {
    // What these tests depend on is optimised: they compare with thousands of decisions, and run
    // the filter in an interpreter.
    let mut command = ws.cargo();
    command.args(["test", "-p", E2E, "--profile", "release-test"]);
    targets.iter().for_each(|target| {
        command.arg("--test").arg(target);
    });
    command.env("RUST_TEST_THREADS", AT_ONCE);
    env::for_tests(ws, envoy, &mut command);
    command
}

/// Starts `cargo xtask up` as a person would, checks its output, stops it, checks that nothing is
/// left.
pub fn up(workspace: &Workspace) -> Result<()> {
    let fix = "run `cargo xtask up` by hand";
    let (envoy, worker) = (free_port()?, free_port()?);
    let (server, page) = (free_port()?, free_port()?);
    // Through cargo: another cargo command may have replaced this program's file meanwhile.
    let mut command = workspace.cargo();
    command.args(["xtask", "up", "--all"]);
    command.args(["--envoy-port", &envoy.to_string(), "--worker-port", &worker.to_string()]);
    command.args(["--server-port", &server.to_string(), "--playground-port", &page.to_string()]);
    let log = workspace.out.join("run/up.log");
    log_to(&mut command, &log)?;
    let running = children::spawn(&mut command, Stop::Leader(Duration::from_secs(20)))?;
    let started = Server { name: "`cargo xtask up`", port: envoy, running, log: log.clone() };
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let is_up = || said().contains("Ctrl-C stops everything");
    let started = started.wait_until(is_up, UP_PATIENCE, Duration::from_millis(200))?;
    let shown = said();
    let is_denial = |line: &&str| line.trim_end().ends_with("429");
    if shown.lines().filter(is_denial).count() != 3 {
        return Err(Problem::new("`cargo xtask up` must show one 429 of each", shown, fix));
    }
    if Request::new(page, "/").send()? != 200 {
        return Err(Problem::new("`cargo xtask up` does not serve the playground", shown, fix));
    }
    let ports = [(envoy, "10000"), (worker, "8787"), (server, "8080"), (page, "8000")];
    compare_with_readme(
        workspace,
        ports.iter().fold(shown, |text, (port, default)| {
            text.replace(&format!("127.0.0.1:{port}/"), &format!("127.0.0.1:{default}/"))
        }),
    )?;
    drop(started);
    let answers = |port| Request::new(port, "/").send().is_ok();
    if [envoy, worker, server, page].into_iter().any(answers) {
        let why = "a server still responds after `up` was stopped";
        return Err(Problem::new("a process was left behind", why, "see children.rs"));
    }
    Ok(())
}

/// The README's output of `up` must be the one that it printed.
fn compare_with_readme(workspace: &Workspace, printed: String) -> Result<()> {
    let text = files::text(workspace.root.join("README.md"))?;
    let shown = readme::commands(&text).into_iter().find(|shown| shown.line == "cargo xtask up");
    let fix = "correct the output of `cargo xtask up` in README.md";
    let shown = shown.ok_or_else(|| Problem::new("README.md is incomplete", "no `up`", fix))?;
    // A line that begins with `$ ` inside the output is indented, so it is not a separate command.
    readme::compare(&shown.shown, &printed).or_problem("README.md shows another output", fix)
}
