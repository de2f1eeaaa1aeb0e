//! Anchors: a link to a heading leads to a heading, or to an `<a id>`, of that document.
//!
//! Invariant: the anchor of a heading is GitHub's: lower case, `-` for each space, no punctuation,
//! and `-1` for the second of two equal ones. It reads links on one line, outside of code. Links to
//! files that are not Markdown are not checked here.

use super::docs::is_document;
use super::finding::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// A heading that moved to another page begins a row of a table with its anchor.
const MOVED: &str = "| <a id=\"";

/// The links with anchors in all documents, and the rows of moved headings.
pub fn check(files: &[(&str, &str)]) -> Vec<Finding> {
    let pages = files.iter().filter(|(path, _)| path.ends_with(".md"));
    let pages: BTreeMap<_, _> = pages.map(|(path, text)| (*path, anchors(text))).collect();
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| is_document(path)) {
        for (line, prose) in prose(text) {
            let links = links(&prose);
            if prose.starts_with(MOVED) && links.is_empty() {
                let message = "names no new place of this heading: link to the heading there";
                findings.push(Finding::new(path, line, message));
            }
            for (file, anchor) in links {
                let to = if file.is_empty() { (*path).to_owned() } else { resolved(path, file) };
                let is_known = pages.get(to.as_str()).is_none_or(|known| known.contains(anchor));
                if !is_known {
                    let message =
                        format!("links to #{anchor}, which {to} does not have: correct the anchor");
                    findings.push(Finding::new(path, line, message));
                }
            }
        }
    }
    findings
}

/// The lines outside of fenced blocks, without their `code`; counted from 1.
fn prose(text: &str) -> Vec<(usize, String)> {
    let without_code = |line: &str| line.split('`').step_by(2).collect::<String>();
    let lines = outside_fences(text);
    lines.into_iter().map(|(line, text)| (line, without_code(text))).collect()
}

fn outside_fences(text: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let is_outside = |(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    };
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(is_outside).collect()
}

/// The file (empty: the same document) and the anchor of each link that has one.
fn links(line: &str) -> Vec<(&str, &str)> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://"));
    local.filter_map(|target| target.split_once('#')).collect()
}

/// `../a.md` in `docs/policy/b.md` is `docs/a.md`.
fn resolved(path: &str, file: &str) -> String {
    let mut names = Vec::new();
    for part in Path::new(path).parent().unwrap_or(Path::new("")).join(file).components() {
        match part {
            Component::ParentDir => drop(names.pop()),
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    names.join("/")
}

/// Every anchor of a document: those of its headings, and each `<a id="...">`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in outside_fences(text) {
        let ids = line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(ids.map(str::to_owned));
        let title = line.trim_start_matches('#');
        let is_heading = (1..=6).contains(&(line.len() - title.len()));
        if let Some(title) = title.strip_prefix(' ').filter(|_| is_heading) {
            let anchor = anchor(title);
            let others = (1..).map(|number| format!("{anchor}-{number}"));
            let mut names = std::iter::once(anchor.clone()).chain(others);
            found.extend(names.find(|name| !found.contains(name)));
        }
    }
    found
}

/// GitHub's anchor of a heading: a link in it counts by its text.
fn anchor(title: &str) -> String {
    let mut parts = title.trim().split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_that_of_github() {
        assert_eq!(anchor("when and unless"), "when-and-unless");
        assert_eq!(anchor("`escaped_slashes`, and [why](x.md#y)?"), "escaped_slashes-and-why");
        assert_eq!(anchor("Envoy's `a` + b: 1.2"), "envoys-a--b-12");
        let text = "# A\n## A\n```sh\n# no heading\n```\n#hash\n| <a id=\"old\"></a> |\n";
        let expected = ["a", "a-1", "old"].map(str::to_owned);
        assert_eq!(anchors(text), BTreeSet::from(expected));
    }

    #[test]
    fn finds_links_to_headings_that_are_not_there() {
        let page = "# Page\n[up](../a.md#key), [here](#page), [`code`](../a.md#no)\n\
                    `[x](#no)` [web](https://example.com/#no) [code](../a.rs#L3)\n\
                    ```sh\n[x](#no)\n```\n[x](#no)\n";
        let start =
            "# Start\n<a id=\"key\"></a>[page](docs/page.md#page) [page](docs/page.md#Page)\n";
        let other = "[not a document](#no)\n";
        let files = [("docs/page.md", page), ("a.md", start), ("crates/x.md", other)];
        let found = check(&files);
        let found: Vec<_> = found.iter().map(|f| (&f.file[..], f.line, &f.message[..])).collect();
        let message = |anchor: &str, file: &str| {
            format!("links to #{anchor}, which {file} does not have: correct the anchor")
        };
        let expected = [
            ("docs/page.md", 2, &message("no", "a.md")[..]),
            ("docs/page.md", 7, &message("no", "docs/page.md")[..]),
            ("a.md", 2, &message("Page", "docs/page.md")[..]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_moved_heading_has_a_new_place() {
        let text = "| heading | now in |\n| <a id=\"a\"></a>A | [B](b.md#a) |\n\
                    | <a id=\"c\"></a>C | b.md |\n";
        let found = check(&[("a.md", text), ("b.md", "## a\n")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].line == 3 && found[0].message.starts_with("names no new place"));
    }
}
