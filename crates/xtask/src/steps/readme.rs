//! Commands and their output as a document shows them.
//!
//! Invariant: every `$ ` line of a ```console block is a command, and each line below it must
//! appear in its output, in that order. A line `...` represents any lines, also none; inside a line
//! it represents any characters.

/// One command and its documented output.
#[derive(Debug, PartialEq, Eq)]
pub struct Example {
    pub line: String,
    pub shown: Vec<String>,
}

pub fn commands(document: &str) -> Vec<Example> {
    let mut commands: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("```") {
            inside = !inside && line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            commands.push(Example { line: command.to_owned(), shown: Vec::new() });
        } else if let Some(last) = commands.last_mut().filter(|_| inside) {
            last.shown.push(line.to_owned());
        }
    }
    commands
}

/// The first documented line that is missing.
pub fn compare(shown: &[String], printed: &str) -> Result<(), String> {
    if shown.iter().all(|line| line.trim().is_empty()) {
        return Ok(());
    }
    let mut lines = printed.lines().map(str::trim_end);
    let mut anything = false;
    for wanted in shown {
        if wanted.trim() == "..." {
            anything = true;
            continue;
        }
        let found = match anything {
            true => lines.any(|line| matches(wanted, line)),
            false => lines.next().is_some_and(|line| matches(wanted, line)),
        };
        if !found {
            return Err(format!("the document shows {wanted:?}, the command printed:\n{printed}"));
        }
        anything = false;
    }
    match anything || lines.all(str::is_empty) {
        true => Ok(()),
        false => Err(format!("it printed more than the document shows:\n{printed}")),
    }
}

fn matches(wanted: &str, line: &str) -> bool {
    let mut parts = wanted.trim_end().split("...");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut open_ended = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        open_ended = part.is_empty();
    }
    rest.is_empty() || open_ended
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_console_blocks_hold_commands() {
        let document = "$ no\n```console\n$ echo a\na\n$ true\n```\n```sh\n$ no\n```\n";
        let found = commands(document);
        assert_eq!(found[0], Example { line: "echo a".into(), shown: lines("a") });
        assert_eq!(found[1], Example { line: "true".into(), shown: vec![] });
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn shown_output_is_compared() {
        assert!(compare(&lines("a\n...\nc"), "a\nb\nc\n").is_ok());
        assert!(compare(&lines("date: ...\n..."), "date: now\nmore\n").is_ok());
        assert!(compare(&lines("a"), "a\nb\n").unwrap_err().contains("more than"));
        assert!(compare(&lines("b"), "a\nb\n").is_err());
        assert!(compare(&[], "anything").is_ok());
    }
}
