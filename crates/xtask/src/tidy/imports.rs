//! The imports between the files of a crate: no circle, and wings in one order.
//!
//! An arrow leads from the file that names something to the file that defines it: by `use`, by a
//! path in the code, or by a path among the tokens of a macro. `mod x;` alone is not an arrow, nor
//! is the import of a module, whose items draw their own arrows when they are named. A re-export is
//! looked through.
//!
//! Invariant: reads syntax only. A method call names no file, so a call of a method in another file
//! than its type draws no arrow.

use super::{
    finding::Finding,
    modules::{Crate, Files, Id, Target, imports},
    source,
};
use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::{
    ImplItem, Item, ItemUse, Macro, Path,
    visit::{self, Visit},
};

/// Crates whose top modules import only what is declared below them in `lib.rs`.
const WINGS: [&str; 2] = ["tollgate-policy", "tollgate-language"];

/// From a file to a file.
type Arrow<'a> = (&'a str, &'a str);

/// The item named along an arrow, and its first line.
#[derive(Debug, Default)]
struct Named {
    line: usize,
    names: BTreeSet<String>,
}

/// The circles of the crate `name`, and the upward imports of its wings.
pub fn check(name: &str, root: &str, files: &Files) -> Vec<Finding> {
    let krate = Crate::read(root, files);
    let arrows = arrows(&krate);
    let borrowed: BTreeMap<Arrow<'_>, &Named> =
        arrows.iter().map(|((from, to), named)| ((from.as_str(), to.as_str()), named)).collect();
    let mut findings = circles(&krate, &borrowed);
    if WINGS.contains(&name) {
        findings.extend(upwards(&krate, &borrowed));
    }
    findings
}

fn arrows(krate: &Crate<'_>) -> BTreeMap<(String, String), Named> {
    let mut walk = Walk { krate, module: 0, arrows: BTreeMap::new() };
    for (id, module) in krate.modules.iter().enumerate() {
        walk.module = id;
        module.items.iter().for_each(|item| walk.visit_item(item));
    }
    walk.arrows
}

struct Walk<'a> {
    krate: &'a Crate<'a>,
    module: Id,
    arrows: BTreeMap<(String, String), Named>,
}

impl Walk<'_> {
    fn names(&mut self, path: &[String], span: Span) {
        let to = match self.krate.resolve(self.module, path) {
            Some(Target::Item(file)) => file,
            Some(Target::Module(_)) | None => return,
        };
        self.leads_to(to, path.last(), span);
    }

    fn leads_to(&mut self, to: String, name: Option<&String>, span: Span) {
        let from = &self.krate.modules[self.module].file;
        if *from != to {
            let line = span.start().line;
            let named = self.arrows.entry((from.clone(), to)).or_default();
            named.line = if named.line == 0 { line } else { named.line.min(line) };
            named.names.extend(name.cloned());
        }
    }

    /// Paths among tokens that no parser has seen.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut open, mut span) = (Vec::new(), false, Span::call_site());
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if !open {
                        self.end(&mut path, span);
                        span = ident.span();
                    }
                    path.push(ident.to_string());
                    (open, colons) = (false, 0);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    open = colons == 2;
                }
                other => {
                    self.end(&mut path, span);
                    (open, colons) = (false, 0);
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.end(&mut path, span);
    }

    fn end(&mut self, path: &mut Vec<String>, span: Span) {
        if !path.is_empty() {
            self.names(path, span);
            path.clear();
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_module = matches!(item, Item::Mod(_)); // has a turn of its own
        if !is_module && !source::is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let is_test = matches!(item, ImplItem::Fn(item) if item.attrs.iter().any(source::is_test));
        if !is_test {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let span = item.use_token.span;
        for import in imports(&item.tree) {
            let target = self.krate.resolve(self.module, &import.path);
            match (import.name, target) {
                (Some(_), _) if self.krate.is_module(self.module, &import.path) => {}
                (Some(_), _) => self.names(&import.path, span),
                (None, Some(Target::Module(id))) => {
                    let file = self.krate.modules[id].file.clone();
                    self.leads_to(file, Some(&"*".to_owned()), span);
                }
                (None, _) => {}
            }
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.names(&names, first.ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Some(name) = call.path.get_ident().map(ToString::to_string)
            && self.krate.resolve(self.module, std::slice::from_ref(&name)).is_none()
            && let Some(file) = self.krate.macro_file(&name)
        {
            self.leads_to(file.to_owned(), Some(&name), call.bang_token.span);
        }
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// One finding for each set of files that all reach each other, with its shortest way round.
fn circles<'a>(krate: &'a Crate<'_>, arrows: &BTreeMap<Arrow<'a>, &Named>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for file in krate.files() {
        let members: Vec<&str> = reached(file, arrows)
            .into_iter()
            .filter(|to| reached(to, arrows).contains(file))
            .collect();
        if members.is_empty() || told.contains(file) {
            continue;
        }
        told.extend(&members);
        let ways = members.iter().filter_map(|from| way(from, from, arrows));
        let Some(shortest) = ways.min_by_key(Vec::len) else { continue };
        let shown: Vec<String> = shortest
            .windows(2)
            .map(|pair| match *pair {
                [from, to] => format!("{from} -> {to} ({})", names(arrows, (from, to))),
                _ => String::new(),
            })
            .collect();
        let start = shortest.first().copied().unwrap_or(file);
        let next = shortest.get(1).copied().unwrap_or(file);
        let message = format!(
            "a circle of {} files: {}; move what both need into a file below both",
            members.len(),
            shown.join(", ")
        );
        let line = arrows.get(&(start, next)).map_or(1, |named| named.line);
        findings.push(Finding::new(start, line, message));
    }
    findings
}

/// Every file that can be reached from `file`, itself only by a circle.
fn reached<'a>(file: &'a str, arrows: &BTreeMap<Arrow<'a>, &Named>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![file];
    while let Some(from) = open.pop() {
        let next = arrows.keys().filter(|(start, _)| *start == from).map(|(_, to)| *to);
        open.extend(next.filter(|to| seen.insert(*to)));
    }
    seen
}

/// The shortest way from one file to another, both included.
fn way<'a>(from: &'a str, to: &str, arrows: &BTreeMap<Arrow<'a>, &Named>) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = *way.last()?;
            for (_, next) in arrows.keys().filter(|(start, _)| *start == last) {
                let extended = [&way[..], &[*next]].concat();
                if *next == to {
                    return Some(extended);
                }
                if seen.insert(*next) {
                    longer.push(extended);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Every arrow from a wing to one that `lib.rs` declares above it.
fn upwards(krate: &Crate<'_>, arrows: &BTreeMap<Arrow<'_>, &Named>) -> Vec<Finding> {
    let Some(root) = krate.modules.first() else { return Vec::new() };
    let mut wings = BTreeMap::new();
    for (place, (name, id)) in root.children.iter().enumerate() {
        wings.insert(krate.modules[*id].file.as_str(), (place, name.as_str()));
        let mut below = vec![*id];
        while let Some(id) = below.pop() {
            let module = &krate.modules[id];
            wings.insert(module.file.as_str(), (place, name.as_str()));
            below.extend(module.children.iter().map(|(_, child)| *child));
        }
    }
    let mut findings = Vec::new();
    for ((from, to), named) in arrows {
        let (Some((above, wing)), upper) = (wings.get(from), wings.get(to)) else { continue };
        let names = names(arrows, (*from, *to));
        let message = match upper {
            Some((below, _)) if below >= above => continue,
            Some((_, other)) => format!(
                "`{wing}` imports {names} from `{other}`, which lib.rs declares above it: wings import only modules below them"
            ),
            None => format!("`{wing}` imports {names} from {to}: a wing does not import the face"),
        };
        findings.push(Finding::new(from, named.line, message));
    }
    findings
}

fn names(arrows: &BTreeMap<Arrow<'_>, &Named>, arrow: Arrow<'_>) -> String {
    let all = arrows.get(&arrow).map(|named| named.names.iter().cloned().collect::<Vec<_>>());
    all.unwrap_or_default().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let parsed =
            files.iter().map(|(path, text)| ((*path).to_owned(), syn::parse_file(text).unwrap()));
        let findings = check(name, "src/lib.rs", &parsed.collect());
        findings.iter().map(|f| format!("{}:{}: {}", f.file, f.line, f.message)).collect()
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let files = [
            ("src/lib.rs", "mod a;\nmod b;\n"),
            ("src/a.rs", "\nuse crate::b::B;\npub struct A(B);"),
            ("src/b.rs", "pub struct B; pub fn make() { super::a::A(B); }"),
        ];
        let found = found("x", &files);
        let circle =
            "src/a.rs:2: a circle of 2 files: src/a.rs -> src/b.rs (B), src/b.rs -> src/a.rs (A)";
        assert!(found.len() == 1 && found[0].starts_with(circle), "{found:?}");
    }

    #[test]
    fn a_circle_is_seen_through_re_exports_aliases_globs_modules_and_macros() {
        for back in [
            "use crate::A;",
            "use crate::A as Other;",
            "use crate::*; fn f(_: A) {}",
            "use super::a; fn f() { a::f() }",
            "use super::a::inner; fn f() { inner::f() }",
            "fn f() { assert_eq!(crate::a::f(), 1) }",
            "fn f() { vec![A { x: super::a::A }] } use crate::a;",
            "fn f() { made!() }",
            "use crate::a::Made;",
            "use crate::face::A;",
        ] {
            let files = [
                ("src/lib.rs", "mod a; mod b; mod face; pub use a::A;"),
                ("src/face.rs", "pub use crate::a::A;"),
                (
                    "src/a.rs",
                    "macro_rules! made { () => {} } pub fn f() -> crate::b::B {} pub struct A; \
                     pub mod inner { pub fn f() {} }",
                ),
                ("src/b.rs", &format!("pub struct B; {back}")),
            ];
            assert_eq!(found("x", &files).len(), 1, "{back}");
        }
    }

    #[test]
    fn modules_tests_locals_and_other_crates_are_no_arrows() {
        for back in [
            "use crate::a;",
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "#[cfg(test)] use crate::a::A;",
            "#[cfg(all(test, unix))] fn f() { crate::a::A; }",
            "use core::a::A;",
            "fn f(a: u8) -> u8 { a }",
            "use crate::a; fn f() { a::C }",
            "fn f() { x.a() }",
            "// crate::a::A",
            "const X: &str = \"crate::a::A\";",
        ] {
            let files = [
                ("src/lib.rs", "mod a; mod b; mod c; fn a() { b::B }"),
                ("src/a.rs", "pub struct A(crate::b::B); pub use crate::c::C;"),
                ("src/c.rs", "pub struct C;"),
                ("src/b.rs", &format!("pub struct B; {back}")),
            ];
            assert_eq!(found("x", &files), [""; 0], "{back}");
        }
    }

    #[test]
    fn the_shortest_way_round_a_large_circle_is_shown() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("src/a.rs", "pub struct A(crate::b::B);"),
            ("src/b.rs", "pub struct B(crate::c::C);"),
            ("src/c/mod.rs", "mod d; pub struct C(d::D);"),
            ("src/c/d.rs", "pub struct D(super::C, crate::a::A);"),
        ];
        let found = found("x", &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("a circle of 4 files: src/c/d.rs -> src/c/mod.rs (C), "));
    }

    #[test]
    fn wings_import_only_downwards() {
        let files = [
            ("src/lib.rs", "mod top;\n\nmod low;\npub use top::T;"),
            ("src/top/mod.rs", "mod inner; pub struct T;"),
            ("src/top/inner.rs", "use crate::low::L;\nuse super::T;"),
            ("src/low.rs", "pub struct L; pub fn l() {}"),
        ];
        assert_eq!(found(WINGS[0], &files), [""; 0]);
        let mut up = files;
        up[1].1 = "pub struct T;";
        up[3].1 = "\npub struct L(crate::T);";
        let wrong = found(WINGS[0], &up);
        assert!(
            wrong.len() == 1 && wrong[0].starts_with("src/low.rs:2: `low` imports T from `top`")
        );
        assert_eq!(found("other", &up), [""; 0]);
    }
}
