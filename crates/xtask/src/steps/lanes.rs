//! Parallel steps: each is a separate process, in one of the lanes, of which two run at a time.
//!
//! Invariant: a failed step never hides a later one, and the last line counts both. The output of a
//! step is never mixed with another one's: of two lanes the first writes to the terminal, the
//! second into logs that are shown whole when their step has ended.

use super::{
    second_try,
    step::{SIDE_BY_SIDE, Step},
};
use crate::{
    children::{self, Stop},
    files,
    problem::{OrProblem, Result},
    progress::seconds,
    tools::{self, Tool},
    workspace::Workspace,
};
use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::Command,
    sync::Mutex,
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
    let of = |lane| steps.iter().copied().filter(move |step| step.lane == lane);
    let ended = Mutex::new(Vec::new());
    let run_all = &|lane, terminal: bool| {
        for step in of(lane) {
            let one = run_step(workspace, step, terminal);
            ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(one);
        }
    };
    for (first, second) in SIDE_BY_SIDE {
        let second = second.filter(|lane| of(*lane).next().is_some());
        let is_pair = of(first).next().is_some();
        thread::scope(|scope| {
            if let Some(second) = second {
                scope.spawn(move || run_all(second, !is_pair));
            }
            run_all(first, true);
        });
    }
    let mut ended = ended.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ended.sort_by_key(|one| steps.iter().position(|step| std::ptr::eq(*step, one.step)));
    summary(&ended, started.elapsed(), &second_try::told(workspace))
}

fn run_step(workspace: &Workspace, step: &'static Step, terminal: bool) -> Ended {
    let started = Instant::now();
    let title = format!("{}: {}", step.group, step.name);
    let beside = if terminal { "" } else { ", at the same time as others" };
    println!("\n=== {title}{beside}");
    let log = log_of(workspace, step);
    let status = process(step, (!terminal).then_some(&log));
    let passed = status.as_ref().is_ok_and(|passed| *passed);
    let time = started.elapsed();
    let mut out = std::io::stdout().lock();
    if !terminal {
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
        let fix = "free disk space";
        let folder = log.parent().unwrap_or(log);
        files::make_folder(folder)?;
        let file = File::create(log).or_problem("cannot write a log", fix)?;
        let second = file.try_clone().or_problem("cannot share a log", fix)?;
        command.stdout(file).stderr(second);
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
