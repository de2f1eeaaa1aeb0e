//! Merges rows that differ only in their name.

/// `rows` by name, in their order; those with the same cells are one row with all their names.
///
/// GCRA, the token bucket and the leaky bucket decide the same: a table with three equal rows is
/// harder to read.
pub fn grouped<T: PartialEq>(rows: impl IntoIterator<Item = (String, T)>) -> Vec<(String, T)> {
    let mut groups: Vec<(Vec<String>, T)> = Vec::new();
    for (name, cells) in rows {
        match groups.iter_mut().find(|(names, known)| *known == cells && are_kin(names, &name)) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], cells)),
        }
    }
    groups.into_iter().map(|(names, cells)| (joined(&names), cells)).collect()
}

/// The algorithm and its options.
fn parts(name: &str) -> (&str, &str) {
    name.split_once(", ").unwrap_or((name, ""))
}

/// Other algorithms of the same family with the same options; readers look for their names.
fn are_kin(names: &[String], name: &str) -> bool {
    const KIN: [&str; 3] = ["gcra", "token-bucket", "leaky-bucket"];
    let (algorithm, options) = parts(name);
    KIN.contains(&algorithm)
        && names.iter().all(|other| {
            let (other, other_options) = parts(other);
            KIN.contains(&other) && other_options == options
        })
}

/// `gcra, token-bucket, leaky-bucket: strict`
fn joined(names: &[String]) -> String {
    let (_, options) = names.first().map_or(("", ""), |name| parts(name));
    let algorithms: Vec<&str> = names.iter().map(|name| parts(name).0).collect();
    let options = if options.is_empty() { String::new() } else { format!(": {options}") };
    format!("{}{options}", algorithms.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kin_with_the_same_cells_stand_in_one_row() {
        let rows = [
            ("gcra", 1),
            ("gcra, strict", 2),
            ("token-bucket", 1),
            ("token-bucket, strict", 3),
            ("leaky-bucket", 1),
            ("sliding-log", 1),
        ];
        let grouped = grouped(rows.map(|(name, cell)| (name.to_owned(), cell)));
        let names: Vec<&str> = grouped.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "gcra, token-bucket, leaky-bucket",
            "gcra: strict",
            "token-bucket: strict",
            "sliding-log",
        ];
        assert_eq!(names, expected);
    }
}
