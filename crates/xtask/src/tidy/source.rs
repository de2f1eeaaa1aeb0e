//! Rust files: header, length, functions, banned names, and lints that stay on.
//!
//! Invariant: tests are exempt from lengths and may panic, but not exempt from the ban on names.
//! Tests are: folders named `tests`, `benches` or `e2e`, files named `tests.rs`, and items under
//! `#[cfg(test)]` or `#[test]`. What a macro expands to is not seen; clippy sees it.

use super::finding::Finding;
use crate::steps::SHIPPED;
use proc_macro2::{LineColumn, TokenStream, TokenTree};
use syn::{
    Attribute, Block, File, ImplItemFn, Item, ItemFn, ItemMod, TraitItemFn,
    spanned::Spanned,
    visit::{self, Visit},
};

const MOST_LINES: usize = 400;
const MOST_FUNCTION_LINES: usize = 60;
const MOST_COLUMNS: usize = 100;

/// Famous libraries mean different numbers by these.
const NAMES: [(&str, &str); 3] =
    [("max_burst", "burst"), ("tau", "burst_tolerance"), ("dvt", "burst_tolerance")];

/// Lints of the workspace that nothing there may switch off: each is a panic.
const PANICS: [&str; 6] =
    ["unwrap_used", "expect_used", "panic", "todo", "unimplemented", "unreachable"];

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        let message = "the file must open with `//!`: what it is for, the invariant it keeps, what it does not do";
        findings.push(Finding::new(path, 1, message));
    }
    comments(path, text, &mut findings);
    match (syn::parse_file(text), text.parse::<TokenStream>()) {
        (Ok(file), Ok(tokens)) => {
            banned_names(path, tokens, &mut findings);
            if is_test_file(path) {
                feature_gate(path, &file, &mut findings);
            } else {
                findings.extend(check_items(path, text, &file));
            }
        }
        (Err(error), _) => {
            let line = error.span().start().line;
            findings.push(Finding::new(path, line, format!("does not parse: {error}")));
        }
        (_, Err(error)) => findings.push(Finding::new(path, 1, format!("does not parse: {error}"))),
    }
    findings
}

/// Comments as wide as the code, which rustfmt keeps. A table or a line without a place to break
/// may be wider.
fn comments(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let words = line.trim_start().trim_start_matches(['/', '!']).trim();
        let is_comment = line.trim_start().starts_with("//");
        let is_wide = line.chars().count() > MOST_COLUMNS && words.contains(' ');
        if is_comment && is_wide && !words.starts_with('|') {
            let message = format!("a comment of more than {MOST_COLUMNS} columns: break the line");
            findings.push(Finding::new(path, index + 1, message));
        }
    }
}

fn is_test_file(path: &str) -> bool {
    let test_folder = |part: &str| matches!(part, "tests" | "benches" | "e2e" | "tests.rs");
    path.split('/').any(test_folder)
}

/// A test file that is empty without a feature says "0 tests" and passes.
fn feature_gate(path: &str, file: &File, findings: &mut Vec<Finding>) {
    for attribute in &file.attrs {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
        let names_feature = condition.is_ok_and(|condition| condition.contains("feature"));
        if attribute.path().is_ident("cfg") && names_feature {
            let message = "runs nothing without the feature: let the crate's dev-dependency on itself switch it on";
            findings.push(Finding::new(path, attribute.span().start().line, message));
        }
    }
}

/// True for a source of a crate that is loaded into a proxy, a Worker or a page: nothing there may
/// panic.
fn is_shipped(path: &str) -> bool {
    let source = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
    source.is_some_and(|(package, _)| SHIPPED.contains(&package))
}

fn check_items(path: &str, text: &str, file: &File) -> Vec<Finding> {
    let mut scan = Scan { path, is_shipped: is_shipped(path), test_lines: 0, findings: Vec::new() };
    scan.visit_file(file);
    let length = text.lines().count() - scan.test_lines;
    if length > MOST_LINES {
        let message = format!(
            "{length} lines without tests, {MOST_LINES} are allowed: move a part with a purpose of its own into another file"
        );
        scan.findings.push(Finding::new(path, 1, message));
    }
    scan.findings
}

struct Scan<'a> {
    path: &'a str,
    is_shipped: bool,
    test_lines: usize,
    findings: Vec<Finding>,
}

impl Scan<'_> {
    fn found(&mut self, at: LineColumn, message: impl Into<String>) {
        self.findings.push(Finding::new(self.path, at.line, message));
    }

    fn function(&mut self, name: &str, from: LineColumn, block: &Block) {
        let lines = block.span().end().line + 1 - from.line;
        if lines > MOST_FUNCTION_LINES {
            let message = format!(
                "`{name}` has {lines} lines, {MOST_FUNCTION_LINES} are allowed: give a part of it a name of its own"
            );
            self.found(from, message);
        }
    }
}

impl<'ast> Visit<'ast> for Scan<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test_item(item) {
            let span = item.span();
            self.test_lines += span.end().line + 1 - span.start().line;
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig.ident.to_string(), item.sig.span().start(), &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !item.attrs.iter().any(is_test) {
            self.function(&item.sig.ident.to_string(), item.sig.span().start(), &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig.ident.to_string(), item.sig.span().start(), block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let switches_off =
            attribute.path().is_ident("allow") || attribute.path().is_ident("expect");
        let lints = attribute.meta.require_list().map(|list| list.tokens.to_string());
        let lints = lints.unwrap_or_default();
        let named = PANICS.iter().find(|lint| lints.contains(&format!("clippy :: {lint}")));
        if let Some(lint) = named.filter(|_| self.is_shipped && switches_off) {
            let message = format!(
                "`{lint}` guards against crashes of a whole worker: make the case impossible, or handle it"
            );
            self.found(attribute.span().start(), message);
        }
    }
}

/// Under `#[cfg(test)]` or `#[test]`.
pub fn is_test_item(item: &Item) -> bool {
    attributes(item).iter().any(is_test)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(ItemMod { attrs, .. }) | Item::Fn(ItemFn { attrs, .. }) => attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ...))]`.
pub fn is_test(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
    let condition = condition.unwrap_or_default();
    attribute.path().is_ident("cfg") && (condition == "test" || condition.starts_with("all (test"))
}

fn banned_names(path: &str, tokens: TokenStream, findings: &mut Vec<Finding>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => banned_names(path, group.stream(), findings),
            TokenTree::Ident(ident) => {
                let banned = NAMES.iter().find(|(name, _)| ident == name);
                if let Some((name, instead)) = banned {
                    let message = format!(
                        "`{name}` means different things to different people: write `{instead}`"
                    );
                    findings.push(Finding::new(path, ident.span().start().line, message));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = "crates/tollgate-core/src/a.rs";

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(path, text).into_iter().map(|f| format!("{}: {}", f.line, f.message)).collect()
    }

    #[test]
    fn a_file_opens_with_its_purpose() {
        assert!(messages(CORE, "fn a() {}\n")[0].contains("must open with `//!`"));
        assert_eq!(messages(CORE, "//! Says it.\nfn a() {}\n"), [""; 0]);
    }

    #[test]
    fn long_functions_and_files_are_found_but_not_in_tests() {
        let body = "    let _ = 1;\n".repeat(61);
        let function = format!("//! a\nfn long() {{\n{body}}}\n");
        assert!(messages(CORE, &function)[0].starts_with("2: `long` has 63 lines"));
        let test = format!("//! a\n#[cfg(test)]\nmod tests {{\nfn long() {{\n{body}}}\n}}\n");
        assert_eq!(messages(CORE, &test), [""; 0]);
        let long = format!("//! a\n{}", "const A: u8 = 1;\n".repeat(400));
        assert!(messages(CORE, &long)[0].contains("401 lines without tests"));
        assert_eq!(messages("crates/tollgate-core/tests/a.rs", &long), [""; 0]);
    }

    #[test]
    fn nothing_shipped_switches_off_what_forbids_panics() {
        let text = "//! a\n#[allow(clippy::unwrap_used)]\nfn a() {}\n\
                    fn b() { #[expect(clippy::panic, reason = \"x\")] let _ = 1; }\n";
        let found = messages(CORE, text);
        assert!(found[0].starts_with("2: `unwrap_used`") && found[1].starts_with("4: `panic`"));
        assert_eq!(messages("crates/xtask/src/a.rs", text), [""; 0]);
        let others = "//! a\n#[expect(clippy::as_conversions)]\nfn a() {}\n\
                      #[cfg(test)]\nmod tests { #![allow(clippy::unwrap_used)] }\n";
        assert_eq!(messages(CORE, others), [""; 0]);
    }

    #[test]
    fn a_test_file_is_not_empty_without_a_feature() {
        let text = "//! a\n#![cfg(feature = \"x\")]\n";
        assert!(messages("crates/a/tests/a.rs", text)[0].starts_with("2: runs nothing without"));
        assert_eq!(messages("crates/a/tests/a.rs", "//! a\n#![cfg(unix)]\n"), [""; 0]);
        assert_eq!(messages("crates/a/src/a.rs", text), [""; 0]);
    }

    #[test]
    fn comments_are_as_wide_as_the_code() {
        let wide = "word ".repeat(20);
        let found = messages(CORE, &format!("//! a\n    // {wide}x\n// {}\n", &wide[..97]));
        assert!(found.len() == 1 && found[0].starts_with("2: a comment of more than 100"));
        let table = format!("//! | {wide} |\n// {}\n", "x".repeat(120));
        assert_eq!(messages(CORE, &table), [""; 0]);
    }

    #[test]
    fn ambiguous_names_are_banned_everywhere() {
        let text = "//! a\n#[test]\nfn a() { let tau = 1; assert_eq!(tau, 1); }\n";
        let found = messages("crates/tollgate-core/tests/a.rs", text);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("write `burst_tolerance`"));
    }
}
