//! Parallel steps: each is a separate process, in one of the lanes, of which two run at a time, and
//! for a while a third one whose steps mostly wait.
//!
//! Invariant: a failed step never hides a later one, and the last line counts both. The output of a
//! step is never mixed with another one's: one step at a time has the terminal, each other one
//! writes into a log that is shown whole when it has ended.

use super::{
    second_try,
    step::{Lane, Step},
};
use crate::{
    children::{self, Stop},
    problem::Result,
    progress::{lock, seconds},
    servers::log_to,
    tools::{self, Tool},
    workspace::Workspace,
};
use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// A step that has ended.
struct Ended {
    step: &'static Step,
    passed: bool,
    time: Duration,
}

/// Of steps in the order of the list.
pub fn run(workspace: &Workspace, steps: &[&'static Step]) -> Result<()> {
    let mut wanted: Vec<&'static Tool> = Vec::new();
    for tool in steps.iter().flat_map(|step| step.needs) {
        if !wanted.iter().any(|other| other.name == tool.name) {
            wanted.push(tool);
        }
    }
    // A tool that could not be installed fails the steps that need it, not the others.
    tools::ensure(workspace, &wanted).err().iter().for_each(|problem| eprintln!("\n{problem}"));
    second_try::forget(workspace);
    let started = Instant::now();
    let mut ended = in_lanes(steps, &|step| run_step(workspace, step));
    ended.sort_by_key(|one| steps.iter().position(|step| std::ptr::eq(*step, one.step)));
    summary(&ended, started.elapsed(), &second_try::told(workspace))
}

/// Runs each step once, as [`Lane`] describes it; the results in the order of their ends.
fn in_lanes<T: Send>(steps: &[&'static Step], run: &(dyn Fn(&'static Step) -> T + Sync)) -> Vec<T> {
    let ended = Mutex::new(Vec::new());
    let of = |lane| Mutex::new(steps.iter().copied().filter(move |step| step.lane == lane));
    let patient = of(Lane::Patient); // two threads take steps from it
    let run_all = |queue: &Mutex<dyn Iterator<Item = &'static Step> + Send + '_>| {
        let next = || lock(queue).next();
        while let Some(step) = next() {
            let one = run(step);
            lock(&ended).push(one);
        }
    };
    let (are_built, built) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (run_all, patient) = (&run_all, &patient);
        scope.spawn(move || {
            run_all(&of(Lane::Release));
            drop(are_built);
            scope.spawn(move || run_all(&of(Lane::Page)));
            run_all(patient);
        });
        run_all(&of(Lane::Debug));
        built.recv().ok(); // an error, when the other end is dropped
        run_all(&of(Lane::Served));
        run_all(patient);
    });
    run_all(&of(Lane::Alone));
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Held by the step that writes to the terminal.
static TERMINAL: Mutex<()> = Mutex::new(());

fn run_step(workspace: &Workspace, step: &'static Step) -> Ended {
    let terminal = TERMINAL.try_lock().ok();
    let started = Instant::now();
    let title = format!("{}: {}", step.group, step.name);
    let note = if terminal.is_some() { "" } else { ", at the same time as others" };
    println!("\n=== {title}{note}");
    let log = log_of(workspace, step);
    let status = process(step, terminal.is_none().then_some(&log));
    let passed = status.as_ref().is_ok_and(|passed| *passed);
    let time = started.elapsed();
    let mut out = std::io::stdout().lock();
    if terminal.is_none() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        writeln!(
            out,
            "\n=== {title}, which ran at the same time as others, printed:\n{}",
            said.trim_end()
        )
        .ok();
    }
    if let Err(problem) = status {
        writeln!(out, "{problem}").ok();
    }
    writeln!(out, "--- {title}: {} after {}", verdict(passed), seconds(time)).ok();
    Ended { step, passed, time }
}

/// This program with one step to run, its output to the terminal or into a log.
fn process(step: &Step, log: Option<&PathBuf>) -> Result<bool> {
    // The file that runs, although cargo may have replaced it since.
    let mut command = Command::new(format!("/proc/{}/exe", std::process::id()));
    command.args(["test", "--step", step.name]);
    if let Some(log) = log {
        log_to(&mut command, log)?;
    }
    let mut running = children::spawn(&mut command, Stop::Leader(Duration::from_secs(30)))?;
    Ok(running.wait()?.success())
}

fn log_of(workspace: &Workspace, step: &Step) -> PathBuf {
    let name: String =
        step.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    workspace.out.join(format!("run/step-{name}.log"))
}

fn summary(ended: &[Ended], elapsed: Duration, second_tries: &str) -> Result<()> {
    println!("\n{:<8}  {:<32}  {:<6}  time", "group", "step", "result");
    for Ended { step, passed, time } in ended {
        let (verdict, time) = (verdict(*passed), seconds(*time));
        println!("{:<8}  {:<32}  {verdict:<6}  {time}", step.group, step.name);
    }
    let failed = ended.iter().filter(|one| !one.passed).count();
    let processors =
        children::processor_time().map(|used| format!(", {} of processors", seconds(used)));
    let used = processors.unwrap_or_default();
    println!("\n{} passed, {failed} failed, in {}{used}", ended.len() - failed, seconds(elapsed));
    for name in second_tries.lines() {
        println!("passed only at the second try, fix it: {name}");
    }
    if failed == 0 {
        return Ok(());
    }
    std::process::exit(1) // the table is the message; nothing more to say
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

#[cfg(test)]
mod tests {
    use super::{super::STEPS, *};

    #[test]
    fn each_step_runs_once_and_none_before_what_it_needs() {
        let steps: Vec<&'static Step> = STEPS.iter().collect();
        let ended = in_lanes(&steps, &|step| step);
        assert_eq!(ended.len(), steps.len());
        let place = |step: &Step| ended.iter().position(|other| other.name == step.name).unwrap();
        let of = |lane| steps.iter().filter(move |step| step.lane == lane);
        let last = |lane| of(lane).map(|step| place(step)).max().unwrap();
        let first = |lane| of(lane).map(|step| place(step)).min().unwrap();
        for after in [Lane::Served, Lane::Patient, Lane::Page] {
            assert!(last(Lane::Release) < first(after));
        }
        assert!(last(Lane::Debug) < first(Lane::Served));
        let alone = of(Lane::Alone).count();
        assert_eq!(first(Lane::Alone), steps.len() - alone);
    }
}
