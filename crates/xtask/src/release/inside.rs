//! The packages that a compiled file names in its functions: a list of parts must contain them.
//!
//! Invariant: reads symbols only (both of Rust's manglings), so it finds a
//! package whose code is there, and may miss one of which everything was inlined.

use std::collections::BTreeSet;

/// The crates of the standard library, which is one entry of each list.
const STANDARD: [&str; 22] = [
    "addr2line",
    "adler2",
    "alloc",
    "cfg_if",
    "compiler_builtins",
    "core",
    "gimli",
    "hashbrown",
    "libc",
    "memchr",
    "miniz_oxide",
    "object",
    "panic_abort",
    "panic_unwind",
    "rustc_demangle",
    "rustc_literal_escaper",
    "rustc_std_workspace_alloc",
    "rustc_std_workspace_core",
    "std",
    "std_detect",
    "test",
    "unwind",
];

/// Names of crates in `file`, as the compiler writes them: `serde_json`.
pub fn crates(file: &[u8]) -> BTreeSet<String> {
    let underscores = (0..file.len()).filter(|i| file[*i] == b'_');
    let names = underscores.filter_map(|i| legacy(file, i).or_else(|| mangled(file, i)));
    names.filter(|name| !STANDARD.contains(&name.as_str())).collect()
}

/// `_ZN10serde_json4read17h…`, with the first underscore at `i`.
fn legacy(file: &[u8], i: usize) -> Option<String> {
    file[i..].starts_with(b"_ZN").then(|| counted(&file[i + 3..]))?
}

/// `Cs4fqI2P2rA04_10serde_json`, with the first underscore at `i`.
fn mangled(file: &[u8], i: usize) -> Option<String> {
    const HASH: std::ops::RangeInclusive<usize> = 9..=12;
    let before = &file[i.saturating_sub(*HASH.end() + 2)..i];
    let hash = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric());
    let hash: Vec<u8> = hash.copied().collect();
    // Read backwards, so that it ends with `sC`.
    let begins = hash.windows(2).enumerate().any(|(n, two)| two == b"sC" && HASH.contains(&n));
    begins.then(|| counted(&file[i + 1..]))?
}

/// A name behind its length.
fn counted(text: &[u8]) -> Option<String> {
    const MOST: usize = 3;
    let digits = text.iter().take(MOST).take_while(|byte| byte.is_ascii_digit()).count();
    let length: usize = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    text.get(digits..digits + length).and_then(word)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn word(bytes: &[u8]) -> Option<String> {
    let is_name = bytes.first()?.is_ascii_lowercase() && bytes.iter().all(|byte| is_word(*byte));
    String::from_utf8(bytes.to_vec()).ok().filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_are_read() {
        let text = b"\0_RNvMNtCsgEmfK2I1SDS_4core3strCs4X4t9plMPHF_10serde_json4read\0\
                     _ZN4itoa6Buffer3new17h98c915e4ec70fcc2E\0_ZN54_$LT$x..Y$GT$\0_9abc_4word";
        let found: Vec<String> = crates(text).into_iter().collect();
        assert_eq!(found, ["itoa", "serde_json"]);
    }
}
