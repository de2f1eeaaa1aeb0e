//! Shared by the tests: command lines in documents, run and compared word for word.
//!
//! A session is text in which a line that begins with `$ ` is a command, followed by its output:
//! standard output, then standard error, then `exit code N` unless that is 0. With
//! `TOLLGATE_BLESS=1` the files are rewritten with the output instead of compared.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use tollgate_test_support::golden::is_blessing;

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of the folder `docs/{name}`, also those that are added later, in the order of their
/// names: `docs/policy/key.md`.
pub fn pages(name: &str) -> Vec<String> {
    let files = std::fs::read_dir(root().join("docs").join(name)).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<_> = files.map(|file| format!("docs/{name}/{file}")).collect();
    pages.sort();
    pages
}

/// A folder of one test, empty at first: `replay/late`.
pub fn scratch(path: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(path);
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The output and the exit code of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

/// Runs `tollgate` with these arguments in `folder`.
pub fn tollgate(folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    ran(command.current_dir(folder).args(arguments).output().unwrap())
}

fn ran(done: Output) -> Ran {
    Ran {
        stdout: String::from_utf8(done.stdout).unwrap(),
        stderr: String::from_utf8(done.stderr).unwrap(),
        code: done.status.code().unwrap(),
    }
}

/// Runs `tollgate` with `input` as its standard input.
pub fn tollgate_reading(folder: &Path, arguments: &[&str], input: &[u8]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may have read enough before all is written.
    let writer = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let done = child.wait_with_output().unwrap();
    writer.join().unwrap();
    ran(done)
}

/// Runs a line as a reader who copies it does: a `>` without quotes writes a file.
fn in_shell(folder: &Path, line: &str) -> Ran {
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let paths = [program].into_iter().chain(std::env::split_paths(&others));
    let path = std::env::join_paths(paths).unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).env("PATH", path).env_remove("COLUMNS").current_dir(folder);
    ran(command.output().unwrap())
}

/// Runs every command of `session` in `folder`: returns the session with its real output. Commands
/// for a fresh checkout that use cargo run in the root.
pub fn replay(folder: &Path, session: &str) -> String {
    const WITH_CARGO: &str = "cargo run -p tollgate-cli -- ";
    let root = root();
    let mut out = String::new();
    for line in session.lines().filter(|line| line.starts_with("$ ")) {
        let ran = match line[2..].strip_prefix(WITH_CARGO) {
            Some(arguments) => in_shell(&root, &format!("tollgate {arguments}")),
            None if line.starts_with("$ tollgate ") => in_shell(folder, &line[2..]),
            None => panic!("only tollgate is run: {line}"),
        };
        out.push_str(&format!("{line}\n{}{}", ran.stdout, ran.stderr));
        if ran.code != 0 {
            out.push_str(&format!("exit code {}\n", ran.code));
        }
    }
    out
}

/// Fails at the first line in which a session differs from its real output.
pub fn assert_same(at: &str, written: &str, printed: &str) {
    if written == printed {
        return;
    }
    let same = written.lines().zip(printed.lines()).take_while(|(a, b)| a == b).count();
    let command = printed.lines().take(same + 1).filter(|line| line.starts_with("$ ")).last();
    panic!(
        "{at}\n  {}\n  written: {}\n  printed: {}\nif this is meant: TOLLGATE_BLESS=1 cargo test -p tollgate-cli",
        command.unwrap_or_default(),
        written.lines().nth(same).unwrap_or("(nothing)"),
        printed.lines().nth(same).unwrap_or("(nothing)"),
    );
}

/// A fenced block of a Markdown document.
#[derive(Debug)]
pub struct Block {
    pub language: String,
    pub text: String,
    /// Counted from 1.
    pub line: usize,
    /// The surface in the last `<!-- surface: ... -->` since the last block.
    pub surface: Option<String>,
    /// The name in the last `<!-- file: ... -->` since the last block: the block is this file.
    pub file: Option<String>,
}

/// A document as text and blocks in turn; joined again they give the document.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    let (mut surface, mut file) = (None, None);
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let (language, line) = (language.to_owned(), index + 1);
                let (surface, file) = (surface.take(), file.take());
                open = Some(Block { language, text: String::new(), line, surface, file });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text.push_str(&format!("{line}\n")),
            (None, None) => {
                let comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
                match comment.and_then(|comment| comment.split_once(": ")) {
                    Some(("surface", name)) => surface = Some(name.to_owned()),
                    Some(("file", name)) => file = Some(name.to_owned()),
                    _ => {}
                }
            }
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}
