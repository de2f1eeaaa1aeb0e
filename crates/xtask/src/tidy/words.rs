//! Words that readers whose first language is not English find hard, in comments and documents.
//!
//! Invariant: each finding has the replacement. `Code`, "quotations" and code blocks are exempt.
//! So are the rows of metrics, whose help is the text of a surface.
//! Deliberately not here: grammar; docs/style.md has the rules that no list can hold.

use super::finding::Finding;

/// A word, and its replacement.
const WORDS: [(&str, &str); 13] = [
    ("told", "name the actor and write reported, shown or returned"),
    ("anew", "again"),
    ("whoever", "the noun: the client that, the process that"),
    ("nobody", "the noun: no client, no process"),
    ("somebody", "the noun: a client, an operator"),
    ("everybody", "the noun: all clients"),
    ("beside", "next to, in addition to"),
    ("so long", "for this long"),
    ("so many", "this many"),
    ("at the most", "at most"),
    ("surely", "certainly"),
    ("by itself", "on its own, alone"),
    ("once more", "again"),
];

/// The listed words in the comments of a Rust file or a script that begin a line.
pub fn in_comments(path: &str, text: &str) -> Vec<Finding> {
    let marks: &[&str] = if path.ends_with(".rs") { &["//"] } else { &["//", "/*", "*"] };
    let comment = |line: &str| {
        let line = line.trim_start();
        marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::to_owned)
    };
    let lines = text.lines().enumerate();
    found(path, lines.filter_map(|(index, line)| Some((index, comment(line)?))))
}

/// The listed words in the prose of a document.
pub fn in_prose(path: &str, text: &str) -> Vec<Finding> {
    let mut is_code = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("| `tollgate_")
    });
    found(path, lines.map(|(index, line)| (index, line.to_owned())))
}

fn found(path: &str, lines: impl Iterator<Item = (usize, String)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in lines {
        let plain = without(&without(&line, '`'), '"').to_lowercase();
        for (word, instead) in WORDS.iter().filter(|(word, _)| has(&plain, word)) {
            let message = format!("\"{word}\" is hard to read: write {instead}");
            findings.push(Finding::new(path, index + 1, message));
        }
    }
    findings
}

/// `line` without the text between two `marks`; what follows a single one is kept.
fn without(line: &str, mark: char) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(mark) {
        kept.push_str(before);
        match after.split_once(mark) {
            Some((_, behind)) => rest = behind,
            None => return kept + after,
        }
    }
    kept + rest
}

/// True when `word` is in `line` as a word.
fn has(line: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let after = line[at + word.len()..].chars().next();
        !is_letter(line[..at].chars().next_back()) && !is_letter(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_word_is_found_in_comments_and_prose_only() {
        let text =
            "//! Planned anew.\nlet beside = \"anew\";\n    // Nobody `told` us.\n/// \"anew\"\n";
        assert_eq!(lines(&in_comments("a.rs", text)), [1, 3]);
        let text = "/**\n * Planned anew.\n */\nlet told = beside;\n/* Told. */\n";
        assert_eq!(lines(&in_comments("a.js", text)), [2, 5]);
        assert_eq!(lines(&in_comments("a.rs", text)), [0; 0]);
        let text = "Told so.\n```\nanew\n```\nThe `beside` of a \"quotation told\"; renewed, besides.\nat the\nmost at the most\n| `tollgate_a` | told |\n";
        assert_eq!(lines(&in_prose("a.md", text)), [1, 7]);
    }

    #[test]
    fn a_finding_says_what_to_write() {
        let findings = in_prose("a.md", "Counted anew.");
        assert_eq!(findings[0].message, "\"anew\" is hard to read: write again");
    }
}
