//! Moves the names of functions out of a deployed module into a separate file.
//!
//! Invariant: a module has a name that contains the build and that every trace shows. With the name
//! and the file, `crates/tollgate-worker/npm/names.mjs` turns a function's number into its name.
//! Every other section is copied byte for byte.

use super::{exports::section, sha256};
use wasm_encoder::{Module, NameSection, RawSection};
use wasmparser::{KnownCustom, Name, Parser, Payload};

/// Letters of the hash of a symbol, or of a crate.
const HASH: usize = 16;

/// Differs between two builds: a hash of the module.
pub fn build_of(module: &[u8]) -> String {
    sha256::hex(module).chars().take(8).collect()
}

/// The names of the module's functions, in the order of their numbers; empty where one has none.
pub fn functions(module: &[u8]) -> Result<Vec<String>, String> {
    let mut functions = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        let Payload::CustomSection(section) = payload.map_err(|error| error.to_string())? else {
            continue;
        };
        let KnownCustom::Name(subsections) = section.as_known() else { continue };
        for subsection in subsections {
            let Name::Function(names) = subsection.map_err(|error| error.to_string())? else {
                continue;
            };
            for naming in names {
                let naming = naming.map_err(|error| error.to_string())?;
                functions.resize(naming.index as usize, String::new());
                functions.push(naming.name.to_owned());
            }
        }
    }
    Ok(functions)
}

/// The same module with this name, without names of functions and of the tools that made it.
pub fn named(module: &[u8], name: &str) -> Result<Vec<u8>, String> {
    let mut rewritten = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(|error| error.to_string())?;
        if let (Some((id, range)), false) =
            (payload.as_section(), matches!(payload, Payload::CustomSection(_)))
        {
            let data = section(module, range).ok_or("a section ends outside the module")?;
            rewritten.section(&RawSection { id, data });
        }
    }
    let mut names = NameSection::new();
    names.module(name);
    rewritten.section(&names);
    Ok(rewritten.finish())
}

/// The lines of the file for the module `name`: module, number and name of each function.
pub fn lines(name: &str, functions: &[String]) -> String {
    let line =
        |(i, function): (usize, &String)| format!("{name} {i} {}\n", without_hashes(function));
    functions.iter().enumerate().map(line).collect()
}

/// `a::b` of `a::b::h0123456789abcdef`, and `core::fmt` of `core[0123456789abcdef]::fmt`.
fn without_hashes(name: &str) -> String {
    let mut short = String::new();
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = after_hash(rest) {
            rest = after;
            continue;
        }
        short.push(next);
        rest = &rest[next.len_utf8()..];
    }
    short
}

/// The text after the hash with which `text` begins.
fn after_hash(text: &str) -> Option<&str> {
    let (digits, close) = match text.strip_prefix("::h") {
        Some(digits) => (digits, ""),
        None => (text.strip_prefix('[')?, "]"),
    };
    let (hash, after) = digits.split_at_checked(HASH)?;
    let is_hash = hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_name = close.is_empty() && after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    after.strip_prefix(close).filter(|_| is_hash && !is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{CustomSection, NameMap, TypeSection};

    #[test]
    fn only_hashes_go() {
        for (name, short) in [
            ("a::b::h0123456789abcdef", "a::b"),
            ("<a[0123456789abcdef]::B as c>::d::h0123456789abcdef", "<a::B as c>::d"),
            ("a::{{closure}}::h0123456789abcdef.llvm.12", "a::{{closure}}.llvm.12"),
            ("a::h0123456789abcdefg", "a::h0123456789abcdefg"),
            ("a::h0123", "a::h0123"),
            ("[0123456789abcdef", "[0123456789abcdef"),
            ("", ""),
        ] {
            assert_eq!(without_hashes(name), short);
        }
    }

    #[test]
    fn a_module_keeps_what_runs_and_one_name() {
        let mut names_of = NameMap::new();
        names_of.append(3, "a::b::h0123456789abcdef");
        let mut names = NameSection::new();
        names.functions(&names_of);
        let other = CustomSection { name: "other".into(), data: (&[1, 2, 3][..]).into() };
        let mut types = TypeSection::new();
        types.ty().function([], []);
        let mut module = Module::new();
        module.section(&types).section(&names).section(&other);
        let mut expected = Module::new();
        let mut name = NameSection::new();
        name.module("m");
        expected.section(&types).section(&name);
        let module = module.finish();
        assert_eq!(named(&module, "m").unwrap(), expected.finish());
        assert_eq!(functions(&module).unwrap(), ["", "", "", "a::b::h0123456789abcdef"]);
    }

    #[test]
    fn builds_that_differ_are_told_apart() {
        assert_eq!(build_of(b"ab").len(), 8);
        assert_ne!(build_of(b"a"), build_of(b"b"));
    }

    #[test]
    fn a_line_says_module_number_and_name() {
        let functions = ["a".to_owned(), "b::c::h0123456789abcdef".to_owned()];
        assert_eq!(lines("m", &functions), "m 0 a\nm 1 b::c\n");
    }
}
