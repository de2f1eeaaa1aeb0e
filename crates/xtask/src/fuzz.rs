//! `cargo xtask fuzz`: the targets of `tests/fuzz` and the laws of the property tests, for any
//! length of time and with a fresh seed each time; the deep step, with the same inputs each time.
//!
//! Invariant: the committed corpora change only by `--keep`. A finding comes with the files to
//! commit and the way to reproduce it without a fuzzer. Everything is built into `target/fuzz`, by
//! a separate compiler, so that the other builds stay unchanged; the check needs neither.

use crate::{
    files,
    problem::{Problem, Result},
    run,
    tools::{self, Tool, cargo_tools},
    workspace::Workspace,
};
use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

pub static TOOLS: [&Tool; 2] = [&tools::NIGHTLY, &tools::CARGO_FUZZ];

const FOLDER: &str = "tests/fuzz";
/// Inputs for one target in the deep step, including those of its corpus.
const INPUTS: u32 = 400_000;
/// The run ends by a number of inputs and not by time, so a slow machine tries the same ones. They
/// are the same because only the seed and the reached code choose them. Compared values are not
/// used, because addresses are among them, nor the files that the run itself has written, because
/// those are read again by the clock.
const SAME: [&str; 4] = ["-seed=1", "-timeout=600", "-use_cmp=0", "-reload=0"];
/// The property tests, as if they were a target.
const LAWS: &str = "laws";
const FIX: &str = "correct tests/fuzz, or what it calls";
/// No input is large or takes much memory.
const LIMITS: [&str; 2] = ["-max_len=65536", "-rss_limit_mb=2048"];
/// Nor seconds, when a person watches.
const PATIENCE: &str = "-timeout=5";

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// None means all.
    pub targets: Vec<String>,
    pub seconds: u32,
    /// New inputs that reach new code are added to the corpora.
    pub keep: bool,
}

pub fn fuzz(workspace: &Workspace, mut options: Options) -> Result<()> {
    let mut known = targets(workspace)?;
    known.push(LAWS.to_owned());
    if let Some(other) = options.targets.iter().find(|target| !known.contains(target)) {
        let why = format!("there is no target {other:?}");
        return Err(Problem::new("cannot fuzz", why, format!("choose of {}", known.join(", "))));
    }
    if options.targets.is_empty() {
        options.targets = known;
    }
    let with_laws = options.targets.iter().any(|target| target == LAWS);
    options.targets.retain(|target| target != LAWS);
    if !options.targets.is_empty() {
        tools::ensure(workspace, &TOOLS)?;
        build(workspace)?;
    }
    for target in &options.targets {
        println!("\n=== {target}, {} s", options.seconds);
        let mut command = fuzzer(workspace, target, target, &[corpus(workspace, target)])?;
        command.arg(PATIENCE).arg(format!("-max_total_time={}", options.seconds));
        run::shown(&mut command, &again(target))?;
        if options.keep {
            run::shown(&mut merge(workspace, target), FIX)?;
        }
    }
    if with_laws {
        laws(workspace, options.seconds)?;
    }
    Ok(())
}

/// The property tests with one fresh seed after the other, for this long; at least once.
fn laws(workspace: &Workspace, seconds: u32) -> Result<()> {
    let started = Instant::now();
    loop {
        let seed = RandomState::new().build_hasher().finish();
        println!("\n=== {LAWS}, seed {seed}");
        laws_of(workspace, seed)?;
        if started.elapsed() >= Duration::from_secs(seconds.into()) {
            return Ok(());
        }
    }
}

/// The property tests with seeds that the other steps do not use, for `cargo xtask test deep`.
pub fn laws_deeply(workspace: &Workspace) -> Result<()> {
    (2..=10).try_for_each(|seed| {
        println!("\n=== {LAWS}, seed {seed}");
        laws_of(workspace, seed)
    })
}

fn laws_of(workspace: &Workspace, seed: u64) -> Result<()> {
    let tests = "test --profile release-test -p tollgate-core -p tollgate-http-syntax \
                 -p tollgate-storage -p tollgate-policy -p tollgate-lab";
    let mut command = workspace.cargo();
    command.env(SEED, seed.to_string());
    let fix = format!(
        "see it again with `{SEED}={seed} cargo {tests}`; fix it, give the case a row of its own, and commit both \
         with the .regressions file that `git status` shows"
    );
    run::shown(command.args(tests.split(' ')), &fix)
}

/// The variable of proptest's seed; `.cargo/config.toml` sets it for every other run.
const SEED: &str = "PROPTEST_RNG_SEED";

/// The targets compile, by the compiler of everything else and without the fuzzer, whose C++ takes
/// longer to build than the targets. Tests of the crates that they are about replay the corpora.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["check", "--manifest-path", &format!("{FOLDER}/Cargo.toml"), "--target-dir"]);
    // The build script of libfuzzer-sys compiles nothing when a library is named; none is linked.
    command.arg(&workspace.target).env("CUSTOM_LIBFUZZER_PATH", "/not-linked/libfuzzer.a");
    run::shown(&mut command, FIX)
}

/// Each target on its corpus and then on a number of inputs, the same ones each time: findings of
/// an earlier run are not used. Only `policy` and `paths` differ a little from run to run, because
/// a table of theirs hashes by its own seed.
pub fn deeply(workspace: &Workspace) -> Result<()> {
    build(workspace)?;
    for target in targets(workspace)? {
        let scratch = format!("deep-{target}");
        let _ = fs::remove_dir_all(workspace.out.join("fuzz").join(&scratch));
        let mut command = fuzzer(workspace, &target, &scratch, &[])?;
        let list = workspace.out.join("fuzz").join(format!("{scratch}.list"));
        files::write(&list, in_order(&corpus(workspace, &target))?)?;
        command.args(SAME).arg(format!("-runs={INPUTS}"));
        command.arg(format!("-seed_inputs=@{}", list.display()));
        let (status, _, said) = run::captured(&mut command)?;
        if !status.success() {
            let what = format!("fuzzing `{target}` found a failure");
            return Err(Problem::new(what, excerpt(&said), again(&target)));
        }
        let done = said.lines().rev().find(|line| line.starts_with("Done "));
        println!("  {target:<11} {}", done.unwrap_or("nothing was run"));
    }
    Ok(())
}

/// The targets, so that none is forgotten: the files of `tests/fuzz/targets`.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let name = |path: &PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let targets = files::sorted(workspace.root.join(FOLDER).join("targets"))?;
    Ok(targets.iter().filter_map(name).collect())
}

fn build(workspace: &Workspace) -> Result<()> {
    run::shown(&mut cargo_fuzz(workspace, "build"), FIX)
}

/// The target on a scratch folder, where it writes its findings, and on other folders.
fn fuzzer(
    workspace: &Workspace,
    target: &str,
    scratch: &str,
    others: &[PathBuf],
) -> Result<Command> {
    let scratch = workspace.out.join("fuzz").join(scratch);
    files::make_folder(&scratch)?;
    let mut command = cargo_fuzz(workspace, "run");
    command.arg(target).arg(scratch).args(others).arg("--").args(LIMITS);
    let words = workspace.root.join(FOLDER).join(format!("{target}.dict"));
    if words.is_file() {
        command.arg(format!("-dict={}", words.display()));
    }
    Ok(command)
}

fn corpus(workspace: &Workspace, target: &str) -> PathBuf {
    workspace.root.join(FOLDER).join("corpus").join(target)
}

/// The files of a folder as a list for the fuzzer, by their names: a file system lists them in an
/// order of its own, and the fuzzer keeps to it.
fn in_order(folder: &Path) -> Result<String> {
    let names: Vec<_> =
        files::sorted(folder)?.iter().map(|path| path.display().to_string()).collect();
    Ok(names.join(","))
}

/// Adds to the corpus inputs that reach code that the corpus does not.
fn merge(workspace: &Workspace, target: &str) -> Command {
    let mut command = cargo_fuzz(workspace, "run");
    command.arg(target).arg(corpus(workspace, target));
    command.arg(workspace.out.join("fuzz").join(target));
    // As few files as possible, and none for running a loop more often.
    command.args(["--", "-set_cover_merge=1", "-use_counters=0"]);
    command
}

fn cargo_fuzz(workspace: &Workspace, verb: &str) -> Command {
    let program = cargo_tools::cargo_fuzz(workspace);
    let mut command = cargo_tools::with_nightly(workspace, program);
    command.env("CARGO_TARGET_DIR", workspace.target.join("fuzz"));
    // The tested code has no unsafe code, and runs twice as fast without the address sanitizer.
    command.args([verb, "--fuzz-dir", FOLDER, "--sanitizer", "none"]);
    command
}

fn again(target: &str) -> String {
    let package = match target {
        "traffic" => "lab",
        _ if target.starts_with("log_") => "access-log",
        _ => "policy",
    };
    format!(
        "copy the file that was written to {FOLDER}/corpus/{target}/ and run \
         `cargo test -p tollgate-{package} --test all corpora::`; see {FOLDER}/README.md"
    )
}

/// The law that was broken and the file that broke it, from the fuzzer's output.
fn excerpt(said: &str) -> String {
    const TOLD: [&str; 3] = ["panicked at", "Test unit written to", "ERROR: libFuzzer"];
    let lines: Vec<&str> = said.lines().collect();
    let is_told =
        |line: &str| line.starts_with("error") || TOLD.iter().any(|words| line.contains(words));
    // The line after a panic's place is its message.
    let wanted = (0..lines.len())
        .filter(|i| is_told(lines[*i]) || *i > 0 && lines[*i - 1].contains("panicked at"));
    wanted.map(|i| lines[i]).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_run_has_one_seed() {
        let config = fs::read_to_string(Workspace::find().root.join(".cargo/config.toml")).unwrap();
        assert!(config.contains(&format!("\n[env]\n{SEED} = \"1\"\n")), "{config}");
    }

    #[test]
    fn an_unknown_target_is_refused() {
        let options = Options { targets: vec!["x".into()], seconds: 1, keep: false };
        let problem = fuzz(&Workspace::find(), options).unwrap_err();
        assert!(problem.why.contains("no target \"x\"") && problem.fix.contains(LAWS));
    }

    #[test]
    fn every_target_is_declared_and_has_a_corpus() {
        let workspace = Workspace::find();
        let targets = targets(&workspace).unwrap();
        let manifest = fs::read_to_string(workspace.root.join("tests/fuzz/Cargo.toml")).unwrap();
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
        for target in targets {
            assert!(manifest.contains(&format!("path = \"targets/{target}.rs\"")), "{target}");
            assert!(workspace.root.join(FOLDER).join("corpus").join(&target).is_dir(), "{target}");
        }
    }

    #[test]
    fn inputs_are_given_in_the_order_of_their_names() {
        let folder = corpus(&Workspace::find(), "state");
        let list = in_order(&folder).unwrap();
        let names: Vec<&str> = list.split(',').collect();
        assert!(names.is_sorted() && names.len() == fs::read_dir(folder).unwrap().count());
        assert!(names.iter().all(|name| Path::new(name).is_file()));
    }

    #[test]
    fn a_finding_is_told_in_three_lines() {
        let said = "#1 NEW\nthread 'x' panicked at src/a.rs:1:2:\nbroken\nstack backtrace:\n\
                    artifact_prefix='x'; Test unit written to x/crash-1\nBase64: AA==\n";
        let told = excerpt(said);
        assert_eq!(told.lines().count(), 3);
        assert!(told.contains("\nbroken\n") && told.ends_with("x/crash-1"));
    }
}
