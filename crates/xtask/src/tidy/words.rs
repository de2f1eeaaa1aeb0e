//! Words that readers whose first language is not English find hard, in comments, documents, helps
//! and the descriptions of the API.
//!
//! Invariant: each finding has the replacement. `Code`, "quotations" and code blocks are exempt.
//! Deliberately not here: grammar; docs/style.md has the rules that no list can hold.

use super::{docs, finding::Finding};

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

/// The listed words in a file of this name: in its prose, its comments or its descriptions.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let ends = |endings: &[&str]| endings.iter().any(|ending| path.ends_with(ending));
    match () {
        () if ends(&[".rs", ".js", ".mjs"]) => in_comments(path, text),
        () if ends(&[".css"]) => in_block_comments(path, text),
        () if ends(&[".toml", ".yaml", ".yml"]) => in_hash_comments(path, text),
        () if ends(&["openapi.json"]) => in_descriptions(path, text),
        () if ends(&["help.txt"]) || docs::is_document(path) => in_prose(path, text),
        () => Vec::new(),
    }
}

/// The listed words in the comments of a Rust file or a script that begin a line.
fn in_comments(path: &str, text: &str) -> Vec<Finding> {
    let marks: &[&str] = if path.ends_with(".rs") { &["//"] } else { &["//", "/*", "*"] };
    let comment = |line: &str| {
        let line = line.trim_start();
        marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::to_owned)
    };
    let lines = text.lines().enumerate();
    found(path, lines.filter_map(|(index, line)| Some((index, comment(line)?))))
}

/// The listed words in the comments of a style sheet, also behind a rule.
fn in_block_comments(path: &str, text: &str) -> Vec<Finding> {
    let mut is_comment = false;
    let mut comment = |line: &str| {
        let (mut rest, mut kept) = (line, String::new());
        loop {
            let mark = if is_comment { "*/" } else { "/*" };
            let (before, after) = rest.split_once(mark).map_or((rest, None), |(a, b)| (a, Some(b)));
            if is_comment {
                kept.push_str(before);
            }
            let Some(after) = after else { return kept };
            (is_comment, rest) = (!is_comment, after);
        }
    };
    let lines = text.lines().enumerate();
    found(path, lines.map(|(index, line)| (index, comment(line))))
}

/// The listed words in the comments of TOML and YAML, also behind a value.
fn in_hash_comments(path: &str, text: &str) -> Vec<Finding> {
    let comment = |line: &str| Some(format!(" {line}").split_once(" #")?.1.to_owned());
    let lines = text.lines().enumerate();
    found(path, lines.filter_map(|(index, line)| Some((index, comment(line)?))))
}

/// The listed words in the descriptions of a JSON document, each of which is on one line.
fn in_descriptions(path: &str, text: &str) -> Vec<Finding> {
    let described = |line: &str| {
        let line = line.replace("\\\"", "`");
        let texts = line.split("\"description\": \"").skip(1);
        let texts = texts.filter_map(|rest| Some(rest.split_once('"')?.0));
        texts.collect::<Vec<_>>().join(" ")
    };
    found(path, text.lines().map(described).enumerate())
}

/// The listed words in the prose of a document.
fn in_prose(path: &str, text: &str) -> Vec<Finding> {
    let mut is_code = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
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

/// True when `word` is in `line` as a word, and not in the name of a flag.
fn has(line: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c));
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
        let text = ".told { } /* Told. */ .anew { }\n/* a\n beside */ .beside { } /* b */\n";
        assert_eq!(lines(&check("a.css", text)), [1, 3]);
        let text = "Told so.\n```\nanew\n```\nThe `beside` of a \"quotation told\"; renewed, besides.\nat the\nmost at the most\n| `tollgate_a` | told |\n";
        assert_eq!(lines(&in_prose("a.md", text)), [1, 7, 8]);
    }

    #[test]
    fn a_word_is_found_in_comments_of_toml_and_yaml_descriptions_and_helps() {
        let text = "# Told.\na = \"told\"  # anew\n  b: beside\nc: \"#anew\"\n  # \"anew\"\n";
        assert_eq!(lines(&check("a.toml", text)), [1, 2]);
        assert_eq!(lines(&check("a.yaml", text)), [1, 2]);
        let text = "{\"description\": \"A.\", \"told\": {\"description\": \"Told.\"}}\n\
                    \"description\": \"A \\\"told\\\" word.\", \"x\": \"anew\"\n";
        assert_eq!(lines(&check("docs/openapi.json", text)), [1]);
        assert_eq!(lines(&check("a.json", text)), [0; 0]);
        assert_eq!(lines(&check("a/help.txt", "  --told\n  --a  Told\n")), [2]);
    }

    #[test]
    fn a_finding_says_what_to_write() {
        let findings = in_prose("a.md", "Counted anew.");
        assert_eq!(findings[0].message, "\"anew\" is hard to read: write again");
    }
}
