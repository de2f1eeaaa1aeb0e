//! The arguments of `cargo xtask`.
//!
//! Invariant: every number is bounded here, and every word is known here but the targets of the
//! fuzzer, which are files. Built without clap's derive macros: they would make the first start of
//! `cargo xtask up` four seconds slower.

use crate::{
    bench::{self, Effort},
    build::Product,
    fuzz, load,
    release::Extent,
    steps, up,
};
use clap::{Arg, ArgAction, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use std::ffi::OsString;

#[derive(Debug, PartialEq, Eq)]
pub enum Task {
    Bench(bench::Options),
    Build(Vec<Product>),
    Doctor,
    Fuzz(fuzz::Options),
    Load(load::Options),
    Notice,
    Npm,
    /// With the port to serve it on.
    Playground(Option<u16>),
    Release(Extent),
    Test(steps::TestSelection),
    Tidy,
    Tools,
    Up(up::Options),
}

/// Reads the arguments; the error is a help page, too.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Task, clap::Error> {
    let matches = program().try_get_matches_from(words)?;
    let (name, of) = matches.subcommand().unwrap_or(("help", &matches));
    Ok(match name {
        "bench" => Task::Bench(bench::Options {
            parts: many(of, "part"),
            effort: effort(of),
            check: of.get_flag("check"),
            log: of.get_one("log").cloned(),
        }),
        "build" => Task::Build(products(of)),
        "fuzz" => Task::Fuzz(fuzz::Options {
            targets: many(of, "target"),
            seconds: number(of, "seconds"),
            keep: of.get_flag("keep"),
        }),
        "doctor" => Task::Doctor,
        "load" => Task::Load(load::Options {
            seconds: number(of, "seconds"),
            write: of.get_flag("write"),
        }),
        "notice" => Task::Notice,
        "npm" => Task::Npm,
        "playground" => Task::Playground(of.get_one("serve").copied()),
        "release" => Task::Release(extent(of)),
        "test" => Task::Test(wanted(of)),
        "tidy" => Task::Tidy,
        "tools" => Task::Tools,
        _ => Task::Up(up::Options {
            envoy_port: number(of, "envoy-port"),
            worker_port: number(of, "worker-port"),
            server_port: number(of, "server-port"),
            playground_port: number(of, "playground-port"),
            all: of.get_flag("all"),
            policy: of.get_one("policy").cloned(),
        }),
    })
}

fn program() -> Command {
    Command::new("cargo xtask")
        .bin_name("cargo xtask")
        .about("The one entry point for building, running and testing Tollgate")
        .after_help(
            "Tools are kept in .cache/ (or TOLLGATE_CACHE); after the first run no network is needed.\n\
             What tests compare with and a command wrote (snapshots, golden files, outputs in docs, the schema) is\n\
             rewritten by TOLLGATE_BLESS=1 before `cargo test`; read the difference before you commit it.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("up")
                .about("Build the filter and the Worker, and start Envoy and workerd with a demo origin")
                .arg(flag("all", "Build and start the server, the playground and the admin page, too"))
                .arg(port_of("envoy-port", "10000"))
                .arg(port_of("worker-port", "8787"))
                .arg(port_of("server-port", "8080"))
                .arg(port_of("playground-port", "8000"))
                .arg(tried_policy()),
        )
        .subcommand(
            test_program(),
        )
        .subcommand(
            Command::new("build")
                .about("Build the products into target/tollgate/")
                .arg(Arg::new("product").value_parser(PossibleValuesParser::new(PRODUCTS.map(name_of)))),
        )
        .subcommand(
            bench_program(),
        )
        .subcommand(
            Command::new("fuzz")
                .about("Look for inputs that break a law, with fresh seeds")
                .arg(Arg::new("target").num_args(0..).help("Files of tests/fuzz/targets, or `laws`"))
                .arg(bounded("seconds", "60", 86_400, "For each target"))
                .arg(flag("keep", "Add what reaches new code to the corpora")),
        )
        .subcommand(load_program())
        .subcommand(Command::new("tidy").about("Check the rules of docs/style.md that a machine can check"))
        .subcommand(
            Command::new("notice")
                .about("Rewrite NOTICE, after a bundled crate or its version has changed"),
        )
        .subcommand(
            Command::new("npm")
                .about("Build the Worker as an npm package into target/tollgate/npm/"),
        )
        .subcommand(playground_program())
        .subcommand(release_program())
        .subcommand(
            Command::new("doctor")
                .about("List the tools that are installed, those that are missing, and their purpose"),
        )
        .subcommand(
            Command::new("tools").about("Install every tool now; other commands install a tool when they need it"),
        )
}

fn load_program() -> Command {
    Command::new("load")
        .about(
            "Load both products, steadily and in bursts; a table and plots in target/tollgate/load",
        )
        .arg(bounded("seconds", "10", 60, "Of each kind of load"))
        .arg(flag("write", "Show the table and the plots in docs/performance.md"))
}

fn playground_program() -> Command {
    let serve = Arg::new("serve").long("serve").value_name("PORT");
    Command::new("playground")
        .about("Build the playground into target/tollgate/playground/, and with the admin page into target/tollgate/assets/")
        .arg(
            serve
                .value_parser(value_parser!(u16).range(1..))
                .help("Serve it on this port, to this machine only, until Ctrl-C"),
        )
}

fn release_program() -> Command {
    Command::new("release")
        .about("Build all that is released into target/release-artifacts, with sums and lists of parts")
        .arg(flag("dry-run", "Publish nothing; without it the command prints what publishing takes"))
}

fn test_program() -> Command {
    Command::new("test")
                .about("Run all tests, or the named groups")
                .long_about(
                    "Run all tests, or the named groups.\n\n\
                     `quick` is the loop while you work: formatting, tidy, clippy and `cargo test`, which need \
                     nothing but Rust. Without a group everything runs but `quick`, whose steps are then part of \
                     others, and `deep`: lints and tests on every target, fuzzing, both products, real servers. \
                     `deep` runs some of that for longer, with more seeds and inputs. The first time it installs \
                     what it needs.",
                )
                .arg(Arg::new("group").num_args(0..).help("Names of groups, as --list shows them"))
                .arg(flag("list", "Only name the groups and their steps"))
                .arg(Arg::new("step").long("step").hide(true))
}

fn bench_program() -> Command {
    Command::new("bench")
        .about("Measure decisions and requests, as tables in target/tollgate/bench.md")
        .arg(
            Arg::new("part")
                .num_args(0..)
                .value_parser(PossibleValuesParser::new(bench::ALL.map(|part| part.name))),
        )
        .arg(bounded("seconds", "2", 30, "Of load on one server in one round"))
        .arg(bounded("rounds", "7", 50, "How often everything is measured, in turns"))
        .arg(flag(
            "check",
            "With `core` and `policy`: only fail where a decision exceeds its ceiling; with `accuracy`: where \
             docs/accuracy.md is not what the code gives",
        ))
        .arg(
            Arg::new("log")
                .long("log")
                .value_name("FILE")
                .value_parser(value_parser!(std::path::PathBuf))
                .help("With `accuracy`: the day that docs/accuracy.md names; or TOLLGATE_NASA_LOG"),
        )
}

const PRODUCTS: [(&str, Product); 5] = [
    ("envoy", Product::Envoy),
    ("module", Product::Module),
    ("module-aarch64", Product::ModuleForAarch64),
    ("example", Product::Example),
    ("worker", Product::Worker),
];

fn name_of<T>((name, _): (&'static str, T)) -> &'static str {
    name
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn tried_policy() -> Arg {
    let help = "Enforce this policy, in YAML or JSON, on every surface instead of the shipped ones";
    let file = value_parser!(std::path::PathBuf);
    Arg::new("policy").long("policy").value_name("FILE").value_parser(file).help(help)
}

fn port_of(name: &'static str, default: &'static str) -> Arg {
    let valid = value_parser!(u16).range(1..);
    Arg::new(name).long(name).value_name("PORT").default_value(default).value_parser(valid)
}

fn bounded(name: &'static str, default: &'static str, most: i64, help: &'static str) -> Arg {
    let valid = value_parser!(u32).range(1..=most);
    Arg::new(name).long(name).value_name("N").default_value(default).value_parser(valid).help(help)
}

fn number<T>(matches: &ArgMatches, name: &str) -> T
where
    T: Copy + Default + Send + Sync + 'static,
{
    matches.get_one(name).copied().unwrap_or_default()
}

fn many(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches.get_many::<String>(name).into_iter().flatten().cloned().collect()
}

fn effort(matches: &ArgMatches) -> Effort {
    Effort { seconds: number(matches, "seconds"), rounds: number(matches, "rounds") }
}

fn extent(matches: &ArgMatches) -> Extent {
    if matches.get_flag("dry-run") { Extent::DryRun } else { Extent::Whole }
}

fn products(matches: &ArgMatches) -> Vec<Product> {
    let wanted = matches.get_one::<String>("product");
    let of = |(name, _): &&(&str, Product)| wanted.is_none_or(|wanted| wanted == name);
    PRODUCTS.iter().filter(of).map(|(_, product)| *product).collect()
}

fn wanted(matches: &ArgMatches) -> steps::TestSelection {
    match matches.get_one::<String>("step") {
        Some(step) => steps::TestSelection::Step(step.clone()),
        None if matches.get_flag("list") => steps::TestSelection::List,
        None => steps::TestSelection::Groups(many(matches, "group")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Task, clap::Error> {
        let words = ["cargo xtask"].into_iter().chain(text.split_whitespace());
        parse(words.map(OsString::from))
    }

    #[test]
    fn the_definition_is_sound() {
        program().debug_assert();
    }

    #[test]
    fn no_word_means_everything() {
        let effort = Effort { seconds: 2, rounds: 7 };
        assert_eq!(
            asked("bench").unwrap(),
            Task::Bench(bench::Options { parts: vec![], effort, check: false, log: None })
        );
        assert_eq!(asked("build").unwrap(), Task::Build(PRODUCTS.map(|(_, it)| it).to_vec()));
        assert_eq!(asked("playground").unwrap(), Task::Playground(None));
        assert_eq!(asked("playground --serve 8080").unwrap(), Task::Playground(Some(8080)));
        assert_eq!(asked("test").unwrap(), Task::Test(steps::TestSelection::Groups(vec![])));
        let up = up::Options {
            envoy_port: 10000,
            worker_port: 8787,
            server_port: 8080,
            playground_port: 8000,
            all: false,
            policy: None,
        };
        assert_eq!(asked("up").unwrap(), Task::Up(up));
        let fuzz = fuzz::Options { targets: vec![], seconds: 60, keep: false };
        assert_eq!(asked("fuzz").unwrap(), Task::Fuzz(fuzz));
    }

    #[test]
    fn what_is_asked_for_is_chosen() {
        let parts = vec!["worker".into(), "core".into()];
        let effort = Effort { seconds: 1, rounds: 3 };
        let bench = bench::Options { parts, effort, check: false, log: None };
        assert_eq!(asked("bench worker --seconds 1 core --rounds 3").unwrap(), Task::Bench(bench));
        let effort = Effort { seconds: 2, rounds: 7 };
        let bench = bench::Options { parts: vec!["core".into()], effort, check: true, log: None };
        assert_eq!(asked("bench core --check").unwrap(), Task::Bench(bench));
        let asked_for = asked("bench accuracy --log a.tsv --check").unwrap();
        let (parts, effort) = (vec!["accuracy".into()], Effort { seconds: 2, rounds: 7 });
        let bench = bench::Options { parts, effort, check: true, log: Some("a.tsv".into()) };
        assert_eq!(asked_for, Task::Bench(bench));
        assert_eq!(asked("release").unwrap(), Task::Release(Extent::Whole));
        assert_eq!(asked("release --dry-run").unwrap(), Task::Release(Extent::DryRun));
        assert_eq!(asked("build worker").unwrap(), Task::Build(vec![Product::Worker]));
        let up = up::Options {
            envoy_port: 10000,
            worker_port: 9,
            server_port: 10,
            playground_port: 8000,
            all: false,
            policy: None,
        };
        assert_eq!(asked("up --worker-port 9 --server-port 10").unwrap(), Task::Up(up.clone()));
        let tried = up::Options { all: true, policy: Some("p.yaml".into()), ..up };
        let words = "up --all --policy p.yaml --worker-port 9 --server-port 10";
        assert_eq!(asked(words).unwrap(), Task::Up(tried));
        let fuzz = fuzz::Options { targets: vec!["paths".into()], seconds: 5, keep: true };
        assert_eq!(asked("fuzz paths --seconds 5 --keep").unwrap(), Task::Fuzz(fuzz));
        let load = load::Options { seconds: 3, write: true };
        assert_eq!(asked("load --seconds 3 --write").unwrap(), Task::Load(load));
        let groups = steps::TestSelection::Groups(vec!["docs".into(), "wasm".into()]);
        assert_eq!(asked("test docs wasm").unwrap(), Task::Test(groups));
        let step = steps::TestSelection::Step("core is pure".into());
        let words = ["x", "test", "--step", "core is pure"].map(OsString::from);
        assert_eq!(parse(words).unwrap(), Task::Test(step));
    }

    #[test]
    fn what_is_not_known_or_out_of_bounds_is_refused() {
        for wrong in [
            "",
            "nothing",
            "tidy now",
            "bench gpu",
            "bench --rounds",
            "bench --rounds 0",
            "bench --rounds 51",
            "bench --seconds x",
            "build x",
            "fuzz --seconds 0",
            "playground --serve 0",
            "fuzz --seconds 86401",
            "load --seconds 61",
            "up --worker-port x",
            "up --envoy-port 0",
            "up --envoy-port 65536",
            "up --other",
            "test --all",
        ] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
