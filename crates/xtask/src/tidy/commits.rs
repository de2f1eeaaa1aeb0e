//! The subjects of the commits of a branch.
//!
//! Invariant: only commits that `main` does not have are read, because they can still be reworded.
//! Without a branch `main`, as in a checkout of CI, there are none.

use super::finding::Finding;
use crate::workspace::Workspace;
use std::process::Command;

const MOST_CHARACTERS: usize = 60;

/// The subjects that are too long.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut git = Command::new("git");
    git.current_dir(&workspace.root).args(["log", "--no-merges", "--format=%h %s", "main..HEAD"]);
    let log = git.output().map(|output| output.stdout).unwrap_or_default();
    subjects(&String::from_utf8_lossy(&log))
}

fn subjects(log: &str) -> Vec<Finding> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let long = commits.filter_map(|(commit, subject)| {
        let count = subject.chars().count();
        let message = format!(
            "a subject of {count} characters, {MOST_CHARACTERS} are allowed: reword the commit"
        );
        let is_long = count > MOST_CHARACTERS;
        is_long.then(|| Finding::new(&format!("commit {commit}"), 1, message))
    });
    long.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_subject_is_found() {
        let log = format!("0a1 {}\n0a2 {}\n", "\u{e9}".repeat(60), "x".repeat(61));
        let found = subjects(&log);
        assert!(found.len() == 1 && found[0].file == "commit 0a2", "{found:?}");
        assert!(found[0].message.starts_with("a subject of 61 characters"), "{found:?}");
    }
}
