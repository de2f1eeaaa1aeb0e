//! Running a command to its end: on the terminal, for its output, or into a log with progress.
//!
//! Invariant: a command that failed becomes a `Problem` that shows the command line and the end of
//! its output. No shell is ever involved.

use crate::{
    children::{self, Stop},
    files,
    problem::{OrProblem, Problem, Result},
    progress::Job,
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

/// How much of a log an error message repeats.
const TAIL_LINES: usize = 25;

/// A way to run a command to its end, with advice for its failure: [`shown`], or [`logged`] for a
/// job.
pub type Runner<'a> = &'a dyn Fn(&mut Command, &str) -> Result<()>;

/// Runs `command` on the terminal of the caller.
pub fn shown(command: &mut Command, fix: &str) -> Result<()> {
    let status = children::spawn(command, Stop::Group)?.wait()?;
    check(command, status, String::new(), fix)
}

/// Runs `command` on the terminal of the caller, and keeps the lines of its standard output that
/// are `wanted`.
pub fn watched(
    command: &mut Command,
    wanted: impl Fn(&str) -> bool,
    fix: &str,
) -> Result<(Result<()>, Vec<String>)> {
    let mut running = children::spawn(command.stdout(Stdio::piped()), Stop::Group)?;
    let mut kept = Vec::new();
    for line in running.output().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line.or_problem("cannot read the output of a command", "run it by hand")?;
        println!("{line}");
        if wanted(&line) {
            kept.push(line);
        }
    }
    let status = running.wait()?;
    Ok((check(command, status, String::new(), fix), kept))
}

/// Runs `command` quietly and returns its standard output.
pub fn output(command: &mut Command, fix: &str) -> Result<String> {
    let (status, stdout, stderr) = captured(command)?;
    check(command, status, tail(&format!("{stdout}\n{stderr}")), fix)?;
    Ok(stdout)
}

/// True when `command` can be run and succeeds; its output is thrown away.
pub fn succeeds(command: &mut Command) -> bool {
    captured(command).is_ok_and(|(status, _, _)| status.success())
}

/// Runs `command` and returns status, standard output and standard error.
pub fn captured(command: &mut Command) -> Result<(ExitStatus, String, String)> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .or_problem(format!("cannot start {program}"), "see `cargo xtask doctor`")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((done.status, text(done.stdout), text(done.stderr)))
}

/// Runs `command` with both outputs appended to the job's log, counting its lines as progress.
pub fn logged(command: &mut Command, job: &Job, fix: &str) -> Result<()> {
    let log = open_log(&job.log)?;
    let second = log.try_clone().or_problem("cannot share the log file", "free disk space")?;
    let mut reader =
        File::open(&job.log).or_problem("cannot read the log file", "check its permissions")?;
    skip_to_end(&mut reader, &job.log)?;
    let mut running = children::spawn(command.stdout(log).stderr(second), Stop::Group)?;
    let mut seen = Vec::new();
    let status = loop {
        let status = running.poll()?;
        let mut fresh = Vec::new();
        reader.read_to_end(&mut fresh).ok();
        job.saw(&fresh);
        seen.extend(fresh);
        match status {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(100)),
        }
    };
    let fix = format!("{fix} (the whole log: {})", job.log.display());
    check(command, status, tail(&String::from_utf8_lossy(&seen)), &fix)
}

fn open_log(path: &Path) -> Result<File> {
    let fix = "free disk space or set TOLLGATE_CACHE to a folder that can be written";
    if let Some(parent) = path.parent() {
        files::make_folder(parent)?;
    }
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .or_problem(format!("cannot write {}", path.display()), fix)
}

fn skip_to_end(reader: &mut File, path: &Path) -> Result<()> {
    std::io::Seek::seek(reader, std::io::SeekFrom::End(0))
        .map(drop)
        .or_problem(format!("cannot read {}", path.display()), "delete the file and run again")
}

fn check(command: &Command, status: ExitStatus, said: String, fix: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let mut why = status.to_string();
    if !said.trim().is_empty() {
        why = format!("{why}; it said:\n{}", said.trim_end());
    }
    Err(Problem::new(format!("`{}` failed", line_of(command)), why, fix))
}

/// The command as a person would type it.
pub fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_command_and_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let problem = output(&mut command, "do this").unwrap_err();
        assert!(problem.what.contains("`sh -c"), "{problem}");
        assert!(problem.why.contains("exit status: 3"), "{problem}");
        assert!(problem.why.contains("out\nerr"), "{problem}");
        assert_eq!(problem.fix, "do this");
    }
}
