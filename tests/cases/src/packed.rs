//! Packs the responses of one case into text that is short, readable, and comparable with `diff`.
//!
//! Most responses of a case differ only in a few numbers and the hashes of keys. Similar lines
//! become one pattern with `$` for each difference, and responses with the same patterns become one
//! shape. Each response is a line: the shape's number and its values. A hash of a key is written
//! once and named `@0`, `@1` and so on.
//!
//! Invariant: nothing is lost; [`unpack`] returns the input of [`pack`].

use std::collections::BTreeMap;
use std::fmt::Write;

const PATTERN: &str = "| ";
const KEY: &str = "@ ";
const SHAPE: &str = "= ";
/// The placeholder for a value in a pattern.
const HOLE: char = '$';
/// The text around the hash of a key in a field.
const HASH: (&str, char) = (";pk=:", ':');

/// A line, without the values that may differ from line to line.
type Literals = Vec<String>;

/// Packs texts of several lines each.
pub fn pack(answers: &[String]) -> String {
    let mut packer = Packer::default();
    let lines: Vec<Vec<(Literals, Vec<String>)>> =
        answers.iter().map(|answer| answer.lines().map(split).collect()).collect();
    for (literals, values) in lines.iter().flatten() {
        packer.note(literals, values);
    }
    packer.write_patterns();
    let events: Vec<String> = lines.iter().map(|lines| packer.event(lines)).collect();
    packer.keys.iter().for_each(|key| line(&mut packer.text, KEY, key));
    for shape in &packer.shapes {
        let numbers: Vec<String> = shape.iter().map(ToString::to_string).collect();
        line(&mut packer.text, SHAPE, &numbers.join(" "));
    }
    packer.text + &events.concat()
}

#[derive(Default)]
struct Packer {
    /// Each pattern with its index and all its values.
    seen: BTreeMap<Literals, (usize, Vec<Vec<String>>)>,
    /// For each pattern, the indices of the values that are written.
    written: Vec<Vec<usize>>,
    keys: Vec<String>,
    shapes: Vec<Vec<usize>>,
    text: String,
}

impl Packer {
    fn note(&mut self, literals: &Literals, values: &[String]) {
        let place = self.seen.len();
        let (_, all) = self.seen.entry(literals.clone()).or_insert_with(|| (place, vec![]));
        all.push(values.to_vec());
    }

    /// A constant value becomes part of the pattern; a value that always equals an earlier one
    /// becomes a hole with its index.
    fn write_patterns(&mut self) {
        let mut patterns: Vec<_> = self.seen.iter().collect();
        patterns.sort_by_key(|(_, (place, _))| *place);
        for (literals, (_, all)) in patterns {
            let (mut text, mut written) = (literals[0].clone(), vec![]);
            for i in 0..literals.len() - 1 {
                let equals = |j: &usize| all.iter().all(|values| values[*j] == values[i]);
                let same = written.iter().position(equals);
                if all.iter().all(|values| values[i] == all[0][i]) {
                    text.push_str(&all[0][i]);
                } else if let Some(same) = same {
                    let _ = write!(text, "{HOLE}{same}");
                } else {
                    text.push(HOLE);
                    written.push(i);
                }
                text.push_str(&literals[i + 1]);
            }
            line(&mut self.text, PATTERN, &text);
            self.written.push(written);
        }
    }

    fn event(&mut self, lines: &[(Literals, Vec<String>)]) -> String {
        let shape: Vec<usize> = lines.iter().map(|(literals, _)| self.seen[literals].0).collect();
        let mut text = place(&mut self.shapes, &shape).to_string();
        for ((_, values), pattern) in lines.iter().zip(&shape) {
            for i in &self.written[*pattern] {
                let value = &values[*i];
                if value.bytes().all(|byte| byte.is_ascii_digit()) {
                    let _ = write!(text, " {value}");
                } else {
                    let _ = write!(text, " @{}", place(&mut self.keys, value));
                }
            }
        }
        text.push('\n');
        text
    }
}

fn line(text: &mut String, mark: &str, rest: &str) {
    let _ = writeln!(text, "{mark}{rest}");
}

/// The index of `item` in `list`; it is added if it is not there.
fn place<T: PartialEq + Clone>(list: &mut Vec<T>, item: &T) -> usize {
    list.iter().position(|other| other == item).unwrap_or_else(|| {
        list.push(item.clone());
        list.len() - 1
    })
}

/// The parts of a line around its values: numbers, and hashes of keys.
fn split(line: &str) -> (Literals, Vec<String>) {
    assert!(!line.contains(HOLE), "choose another mark than {HOLE}: {line}");
    let (mut literals, mut values) = (vec![String::new()], vec![]);
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let before = literals.last_mut().expect("at least one");
        let end = if before.ends_with(HASH.0) {
            rest.find(HASH.1).unwrap_or(0)
        } else {
            rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())
        };
        if end == 0 {
            before.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            values.push(rest[..end].to_owned());
            literals.push(String::new());
            rest = &rest[end..];
        }
    }
    (literals, values)
}

/// The packed texts.
pub fn unpack(text: &str) -> Vec<String> {
    let (mut patterns, mut keys, mut shapes, mut answers) = (vec![], vec![], vec![], vec![]);
    for line in text.lines() {
        if let Some(pattern) = line.strip_prefix(PATTERN) {
            patterns.push(pattern);
        } else if let Some(key) = line.strip_prefix(KEY) {
            keys.push(key);
        } else if let Some(shape) = line.strip_prefix(SHAPE) {
            let numbers = shape.split_whitespace().filter_map(|number| number.parse().ok());
            shapes.push(numbers.collect::<Vec<usize>>());
        } else {
            let mut words = line.split(' ');
            let shape = words.next().and_then(|word| shapes.get(word.parse::<usize>().ok()?));
            let mut values = words.map(|word| {
                let key = word.strip_prefix('@').and_then(|place| place.parse::<usize>().ok());
                key.and_then(|place| keys.get(place).copied()).unwrap_or(word)
            });
            let lines = shape.into_iter().flatten().filter_map(|place| patterns.get(*place));
            answers.push(lines.map(|pattern| fill(pattern, &mut values) + "\n").collect());
        }
    }
    answers
}

/// `pattern` with its holes filled.
fn fill<'v>(pattern: &str, values: &mut impl Iterator<Item = &'v str>) -> String {
    // A hole with a number equals the hole of that index among those without.
    let mut parts = pattern.split(HOLE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut filled: Vec<&str> = vec![];
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let value = match part[..digits].parse::<usize>() {
            Ok(place) => filled.get(place).copied().unwrap_or("?"),
            Err(_) => {
                let value = values.next().unwrap_or("?");
                filled.push(value);
                value
            }
        };
        text.push_str(value);
        text.push_str(&part[digits..]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back() {
        let answers = [
            "200 after [] ms\nratelimit: \"a 1\";r=4;t=1;pk=:A1+/=:, \"b\";r=4;pk=:A1+/=:\npassed\n",
            "200 after [] ms\nratelimit: \"a 1\";r=3;t=1;pk=:B2=:, \"b\";r=5;pk=:B2=:\npassed\n",
            "429 after [10, 20] ms\nretry-after: 7\nrefused: \"{\\\"x\\\":1}\"\n",
            "200 after [] ms\nratelimit: \"a 1\";r=3;t=1;pk=:12:, \"b\";r=5;pk=:12:\npassed\n",
            "",
        ];
        let answers = answers.map(str::to_owned);
        let packed = pack(&answers);
        assert_eq!(unpack(&packed), answers, "{packed}");
        let pattern = "| ratelimit: \"a 1\";r=$;t=1;pk=:$:, \"b\";r=$;pk=:$1:\n";
        assert!(packed.contains(pattern), "{packed}");
        assert!(packed.contains("\n0 4 @0 4\n0 3 @1 5\n"), "{packed}");
    }
}
