//! `cargo xtask test`: the list of steps.
//!
//! Invariant: a step checks one thing, which its name states. Its lane and the steps in parallel
//! with it belong to `lanes.rs`.

mod browser;
mod compose;
mod end_to_end;
mod envoy_modules;
mod lanes;
mod manifests;
mod meshes;
mod older_envoys;
mod packages;
mod readme;
mod release;
mod rust;
mod sanitizer;
mod second_try;
mod servers;
mod step;

use crate::{
    bench, build, children, fuzz, load,
    problem::{Problem, Result},
    progress::seconds,
    tools::{self, Tool},
    workspace::Workspace,
};
pub use rust::SHIPPED;
use step::{Step, alone, built, checked, paged, patient, served};

/// Steps that need only Rust, and are not in the whole test because that contains more of the same.
const QUICK: &[Step] = &[
    checked("quick", "rustfmt", &[], rust::format),
    checked("quick", "tidy", &[], crate::tidy::tidy),
    checked("quick", "clippy, default members", &[], rust::clippy_default),
    checked("quick", "tests, default members", &[], rust::test_default),
];

/// Longer runs of what the whole test runs briefly: by hand, before a release.
const DEEP: &[Step] = &[
    checked("deep", "laws, nine more seeds", &[], fuzz::laws_deeply),
    checked("deep", "fuzz targets, 400,000 inputs each", &fuzz::TOOLS, fuzz::deeply),
    checked("deep", "races of the module, ThreadSanitizer", SANITIZED, sanitizer::races),
    patient("deep", "every test of older Envoys on each of them", OLDER, older_envoys::test_all),
    patient("deep", "end to end, wasm, the module's tests", END_TO_END, envoy_modules::wasm_deeply),
    patient("deep", "the dynamic module on aarch64", EMULATED, envoy_modules::aarch64),
    patient("deep", "all decisions, Envoy and workerd", END_TO_END, servers::decisions_deeply),
];

/// Every list; a group or a step of each can be named.
fn all() -> impl Iterator<Item = &'static Step> {
    STEPS.iter().chain(QUICK).chain(DEEP)
}

/// In the order in which a mistake is found cheapest; of patient steps the longest first.
const STEPS: &[Step] = &[
    checked("tidy", "rustfmt", &[], rust::format),
    checked("tidy", "tidy", &[], crate::tidy::tidy),
    checked("native", "clippy, native", &[], rust::clippy_native),
    checked("native", "clippy, wasm", TARGET, rust::clippy_wasm),
    checked("native", "each feature alone", &[], rust::features),
    checked("native", "unit tests, laws and vectors", &[], rust::native),
    built("native", "laws and decisions, optimised", &[], rust::release_laws),
    built("native", "tables of accuracy", &[], bench::check_accuracy),
    built("native", "instructions of decisions", bench::NEEDED_TO_CHECK, bench::check),
    checked("fuzz", "fuzz targets compile", &[], fuzz::check),
    checked("docs", "rustdoc", &[], rust::docs),
    checked("docs", "NOTICE", BUNDLED, crate::notice::check),
    checked("docs", "packages to publish", &[], packages::build),
    built("wasm", "core is pure", TARGET, crate::build::purity::check),
    checked("wasm", "core as wasm in Node", IN_NODE, rust::wasm_node),
    checked("wasm", "100,000 decisions, Node", IN_NODE, rust::cases_node),
    checked("wasm", "tables of the simulator, Node", IN_NODE, rust::tables_node),
    checked("browser", "core as wasm in Chromium", BROWSER, rust::wasm_browser),
    checked("browser", "100,000 decisions, Chromium", BROWSER, rust::cases_browser),
    checked("browser", "the page's own scripts", ON_NODE, browser::scripts),
    checked("browser", "the types of the pages", TYPED, browser::types),
    built("browser", "build the playground", tools::FOR_PLAYGROUND, build::playground::build),
    built("browser", "build the admin page and the Worker", ADMIN_PAGE, browser::build_admin),
    built("envoy", "build the filter", TARGET, servers::build_envoy),
    built("envoy", "build the dynamic module", &[], servers::build_module),
    built("envoy", "build the example of a filter", TARGET, servers::build_example),
    built("envoy", "envoy.yaml is valid", SERVERS, servers::validate),
    built("envoy", "manifests of meshes in envoy/", MESHES, meshes::check),
    served("envoy", "end to end, Envoy", END_TO_END, envoy_modules::wasm),
    built("workerd", "build the Worker", SERVERS, servers::build_worker),
    built("workerd", "wrangler deploy --dry-run", SERVERS, servers::dry_run),
    built("workerd", "pack the npm package", SERVERS, servers::npm_package),
    built("release", "what is released, with its sums", RELEASED, release::check),
    patient("workerd", "end to end, workerd", END_TO_END, servers::e2e_workerd),
    patient("envoy", "the filter on Envoy 1.36, 1.37 and 1.39", OLDER, older_envoys::test),
    patient("envoy", "end to end, the slim module", END_TO_END, envoy_modules::slim),
    patient("envoy", "end to end, the lean module", END_TO_END, envoy_modules::lean),
    patient("envoy", "end to end, the dynamic module", MODULE, envoy_modules::module),
    patient("envoy", "end to end, a filter with the SDK", END_TO_END, envoy_modules::example),
    paged("browser", "the playground in Chromium", PLAYGROUND, browser::test),
    paged("browser", "the admin page in Chromium", ADMIN_PAGE, browser::test_admin),
    checked("server", "manifests, unit and workflows", MANIFESTS, manifests::check),
    served("server", "end to end, tollgate-server", PROXIES, servers::e2e_server),
    served("fleet", "end to end, a shared engine", FLEET, servers::e2e_fleet),
    alone("up", "cargo xtask up", SERVERS, servers::up),
    alone("load", "both products under load", load::NEEDS, load::briefly),
    alone("compose", "compose files and READMEs", COMPOSE, compose::compose),
];

const TARGET: &[&Tool] = &[&tools::WASM_TARGET];
const IN_NODE: &[&Tool] = &[&tools::WASM_TARGET, &tools::TEST_RUNNER, &tools::NODE];
const ON_NODE: &[&Tool] = &[&tools::NODE];
const TYPED: &[&Tool] = &[&tools::NODE, &tools::PAGE, &tools::TYPES];
const BROWSER: &[&Tool] = &[&tools::WASM_TARGET, &tools::TEST_RUNNER, &tools::CHROMIUM];
const EMULATED: &[&Tool] = &[
    &tools::AARCH64_TARGET,
    &tools::AARCH64_LINKER,
    &tools::QEMU,
    &tools::ENVOY_FOR_AARCH64,
    &tools::NGINX,
];
const SANITIZED: &[&Tool] = &[&tools::NIGHTLY, &tools::NIGHTLY_SOURCES];
/// The packages whose licences are read.
const BUNDLED: &[&Tool] = &[&tools::PAGE];
const PLAYGROUND: &[&Tool] =
    &[&tools::WASM_TARGET, &tools::PAGE_BINDGEN, &tools::NODE, &tools::PAGE, &tools::CHROMIUM];
const ADMIN_PAGE: &[&Tool] =
    &[&tools::WASM_TARGET, &tools::WASM_BINDGEN, &tools::NODE, &tools::PAGE, &tools::CHROMIUM];
const SERVERS: &[&Tool] = &[&tools::WASM_TARGET, &tools::WASM_BINDGEN, &tools::NODE, &tools::ENVOY];
/// With the origins that tests put behind them.
const END_TO_END: &[&Tool] = &[
    &tools::WASM_TARGET,
    &tools::WASM_BINDGEN,
    &tools::NODE,
    &tools::ENVOY,
    &tools::NGINX,
    &tools::PROMETHEUS,
    &tools::REGISTRY,
    &tools::TYPES,
    &tools::SCHEMATHESIS,
];
const RELEASED: &[&Tool] = &[
    &tools::WASM_TARGET,
    &tools::AARCH64_TARGET,
    &tools::AARCH64_LINKER,
    &tools::WASM_BINDGEN,
    &tools::NODE,
    &tools::CYCLONEDX,
];
/// The filter itself is built by an earlier step.
const OLDER: &[&Tool] = &[&tools::WASM_TARGET, &tools::NODE, &tools::ENVOY, &tools::OLDER_ENVOYS];
/// With an origin that some of its tests have.
const MODULE: &[&Tool] = &[&tools::NODE, &tools::ENVOY, &tools::OLDER_ENVOYS, &tools::NGINX];
const MESHES: &[&Tool] = &[&tools::WASM_TARGET, &tools::NODE, &tools::ENVOY, &tools::MANIFESTS];
const MANIFESTS: &[&Tool] = &[&tools::MANIFESTS];
/// The tests that use the server.
const PROXIES: &[&Tool] = &[&tools::ENVOY, &tools::NGINX, &tools::CADDY];
const FLEET: &[&Tool] = &[&tools::REDIS, &tools::WASM_TARGET, &tools::ENVOY, &tools::OLDER_ENVOYS];
const COMPOSE: &[&Tool] =
    &[&tools::DOCKER, &tools::COMPOSE, &tools::ENVOY, &tools::STAND_IN, &tools::REDIS];

pub fn test(workspace: &Workspace, wanted: &TestSelection) -> Result<()> {
    match wanted {
        TestSelection::List => {
            all().for_each(|step| println!("{:<8} {}", step.group, step.name));
            Ok(())
        }
        TestSelection::Groups(groups) => lanes::run(workspace, &choose(groups)?),
        TestSelection::Step(name) => {
            let step = all().find(|step| step.name == name);
            let why = || Problem::new("cannot test", format!("there is no step {name:?}"), SEE);
            let step = step.ok_or_else(why)?;
            tools::ensure(workspace, step.needs)?;
            let result = (step.run)(workspace);
            let used = children::processor_time();
            used.iter().for_each(|used| println!("{} of processors", seconds(*used)));
            result
        }
    }
}

/// The arguments of `cargo xtask test`.
#[derive(Debug, PartialEq, Eq)]
pub enum TestSelection {
    List,
    /// None means all.
    Groups(Vec<String>),
    /// One, without a table: how a step is started as a process of its own.
    Step(String),
}

const SEE: &str = "see `cargo xtask test --list`";

fn choose(groups: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = groups.iter().find(|name| !all().any(|step| step.group == *name)) {
        return Err(Problem::new("cannot test", format!("there is no group {unknown:?}"), SEE));
    }
    if groups.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    Ok(all().filter(|step| groups.iter().any(|name| name == step.group)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(groups: &[&str]) -> Result<Vec<&'static Step>> {
        choose(&groups.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn groups_choose_their_steps_and_unknown_ones_are_refused() {
        assert_eq!(chosen(&[]).unwrap().len(), STEPS.len());
        let wasm = chosen(&["wasm"]).unwrap();
        assert!(!wasm.is_empty() && wasm.iter().all(|step| step.group == "wasm"));
        assert_eq!(chosen(&["quick"]).unwrap().len(), QUICK.len());
        assert_eq!(chosen(&["deep"]).unwrap().len(), DEEP.len());
        assert!(chosen(&["nothing"]).is_err());
    }

    // Guards: a test that is renamed, which the steps that name it find half an hour later.
    #[test]
    fn tests_that_are_named_are_there() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e");
        let named = older_envoys::TESTS.iter().chain(older_envoys::ALSO_DEEP);
        for name in named
            .chain(&envoy_modules::OF_SLIM)
            .chain(&envoy_modules::OF_LEAN)
            .chain(&envoy_modules::OF_MODULE)
            .chain(&envoy_modules::OF_MODULE_ON_AARCH64)
            .chain(&envoy_modules::IN_MODULE_ALONE)
            .chain(&[envoy_modules::ALL_DECISIONS])
            .chain(&envoy_modules::OF_EXAMPLE)
            .chain(&servers::DEEP_ENVOY)
            .chain(&servers::DEEP_WORKER)
        {
            let (file, test) = name.split_once("::").expect("a module and a test");
            let text = std::fs::read_to_string(folder.join(format!("{file}.rs"))).expect(file);
            assert!(text.contains(&format!("\nfn {test}(")), "there is no {name}");
        }
        for name in servers::FLEET_OF_SLIM.iter().chain(&envoy_modules::CALLS_OF_MODULE) {
            let (file, test) = name.split_once("::").unwrap_or((end_to_end::FLEET_LEASES, name));
            let file = folder.join(file).with_extension("rs");
            let text = std::fs::read_to_string(file).expect("the tests of a fleet");
            assert!(text.contains(&format!("\nfn {test}(")), "there is no {test}");
        }
    }

    /// Each is started by its name, and a contributor with only Rust can run the quick ones.
    #[test]
    fn names_are_unique_within_a_list_and_quick_steps_need_no_tool() {
        for list in [STEPS, QUICK, DEEP] {
            for (i, step) in list.iter().enumerate() {
                assert!(list[..i].iter().all(|other| other.name != step.name), "{}", step.name);
            }
        }
        for step in QUICK {
            assert!(step.needs.is_empty());
            let same = STEPS.iter().find(|other| other.name == step.name);
            assert!(same.is_none_or(|other| std::ptr::fn_addr_eq(other.run, step.run)));
        }
    }
}
