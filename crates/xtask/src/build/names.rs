//! Shortens the names of a module's functions, which are there for whoever reads a trap in the log.
//!
//! Invariant: every other section is copied byte for byte, and a name keeps all that a person reads
//! of it. What goes are the hashes that the compiler adds, half of what the names take in an upload
//! because nothing compresses them, and names of anything but functions.

use wasm_encoder::{CustomSection, Module, NameMap, NameSection, RawSection};
use wasmparser::{KnownCustom, Name, NameSectionReader, Parser, Payload};

/// Letters of the hash of a symbol, or of a crate.
const HASH: usize = 16;

/// The same module.
pub fn shorten(module: &[u8]) -> Result<Vec<u8>, String> {
    let mut rewritten = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(|error| error.to_string())?;
        if let Payload::CustomSection(section) = &payload
            && let KnownCustom::Name(names) = section.as_known()
        {
            rewritten.section(&shortened(names)?);
        } else if let Payload::CustomSection(section) = &payload {
            let (name, data) = (section.name().into(), section.data().into());
            rewritten.section(&CustomSection { name, data });
        } else if let Some((id, range)) = payload.as_section() {
            let data = section(module, range).ok_or("a section lies outside the module")?;
            rewritten.section(&RawSection { id, data });
        }
    }
    Ok(rewritten.finish())
}

fn shortened(names: NameSectionReader<'_>) -> Result<NameSection, String> {
    let mut functions = NameMap::new();
    for name in names {
        if let Name::Function(map) = name.map_err(|error| error.to_string())? {
            for naming in map {
                let naming = naming.map_err(|error| error.to_string())?;
                functions.append(naming.index, &without_hashes(naming.name));
            }
        }
    }
    let mut section = NameSection::new();
    section.functions(&functions);
    Ok(section)
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

/// What comes behind the hash that `text` begins with.
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

fn section(module: &[u8], range: std::ops::Range<u64>) -> Option<&[u8]> {
    module.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn all_but_the_names_stays() {
        let mut names = NameSection::new();
        names.module("m");
        let mut functions = NameMap::new();
        functions.append(3, "a::b::h0123456789abcdef");
        names.functions(&functions);
        let other = CustomSection { name: "other".into(), data: (&[1, 2, 3][..]).into() };
        let mut module = Module::new();
        module.section(&names).section(&other);
        let mut expected = Module::new();
        let (mut names, mut functions) = (NameSection::new(), NameMap::new());
        functions.append(3, "a::b");
        names.functions(&functions);
        expected.section(&names).section(&other);
        assert_eq!(shorten(&module.finish()).unwrap(), expected.finish());
    }
}
