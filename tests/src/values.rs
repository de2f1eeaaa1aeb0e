//! Spellings of one value: those that surfaces must count as one, and those that they must reject.
//!
//! Invariant: an origin that follows HTTP reads all of them as the same value.

/// `value` with every white space of up to two bytes on each side, and some of three: 51 spellings,
/// the plain one first.
pub fn padded(value: &str) -> Vec<String> {
    let outer = ["", " ", "\t", "  ", " \t", "\t ", "\t\t"];
    let both = outer.iter().flat_map(|left| outer.map(|right| format!("{left}{value}{right}")));
    both.chain([format!("{value}   "), format!("   {value}")]).collect()
}

/// Authorities that one origin or another serves as `host`, but that are invalid.
pub fn unreadable(host: &str) -> Vec<String> {
    let name = host.trim_start_matches('a');
    vec![
        format!("{host}:80:80"),
        format!("{host}:65536"),
        format!("{host}:x"),
        format!("{host}:+80"),
        format!("user@{host}"),
        format!("user:password@{host}"),
        format!("{host}, other.test"),
        format!("{host},{host}"),
        format!("{host}.."),
        format!(".{host}"),
        format!("%61{name}"),
        format!("{host}/"),
        format!("{host}\\"),
        format!("{host};x"),
        "[fe80::1%25eth0]:80".to_owned(),
        "[::1]x".to_owned(),
    ]
}
