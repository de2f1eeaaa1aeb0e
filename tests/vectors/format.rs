//! Reads the vectors: tables of one row per event that every surface must agree with.
//!
//! The format is described in `README.md` in this folder. Invariant: nothing is guessed; a line
//! that cannot be read is an error that names the file and the line. Deliberately not here: running
//! the rows, and any dependency, so that every crate can include this one file.
#![allow(
    dead_code,
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test code that several crates include, each using a part"
)]

/// Every file: its name and its text.
pub const FILES: &[(&str, &str)] = &[
    ("gcra.txt", include_str!("gcra.txt")),
    ("leaky_queue.txt", include_str!("leaky_queue.txt")),
    ("fixed_window.txt", include_str!("fixed_window.txt")),
    ("sliding_window.txt", include_str!("sliding_window.txt")),
    ("sliding_buckets.txt", include_str!("sliding_buckets.txt")),
    ("sliding_log.txt", include_str!("sliding_log.txt")),
    ("layered.txt", include_str!("layered.txt")),
    ("clock.txt", include_str!("clock.txt")),
    ("extremes.txt", include_str!("extremes.txt")),
    ("carry.txt", include_str!("carry.txt")),
    ("debit.txt", include_str!("debit.txt")),
    ("within.txt", include_str!("within.txt")),
];

/// One trace from a state never seen.
#[derive(Clone, Debug)]
pub struct Case {
    pub file: String,
    /// The line of its title, for messages.
    pub line: usize,
    pub title: String,
    /// One, or several that are layered: all or nothing.
    pub quotas: Vec<QuotaLine>,
    pub rows: Vec<Row>,
}

/// A quota as a policy writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaLine {
    /// As in a policy: `gcra`, `token-bucket`, `sliding-log` and so on.
    pub algorithm: String,
    pub limit: u64,
    /// As written, for a policy: `1m`.
    pub window: String,
    pub window_ns: u64,
    pub burst: Option<u64>,
    pub strict: bool,
    pub buckets: Option<u16>,
    pub weighted: bool,
}

/// One event and what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub line: usize,
    pub at_ns: u64,
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request of this cost; `peek` if it must change nothing.
    Check { cost: u64, peek: bool, expected: Expected },
    /// A request of this cost with a limit of its own, at most the quota's.
    Within { limit: u64, cost: u64, expected: Expected },
    /// Take back the cost that was admitted then.
    Refund { cost: u64, charged_at_ns: u64 },
    /// Record these units on every quota, whether or not they fit.
    Debit { units: u64 },
    /// From here on the only quota is this one.
    Change(QuotaLine),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub verdict: Expectation,
    pub remaining: u64,
    pub retry_after_ns: Option<u64>,
    /// `None` where the row leaves it open.
    pub reset_after_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    Allow,
    Delay { wait_ns: u64 },
    Deny,
}

/// All cases of all files.
///
/// # Panics
/// When a file cannot be read, with every reason.
#[must_use]
pub fn all() -> Vec<Case> {
    let parsed = FILES.iter().map(|(name, text)| parse(name, text));
    parsed.collect::<Result<Vec<_>, _>>().expect("readable vectors").concat()
}

/// The cases of one file.
///
/// # Errors
/// `file:line: reason` for the first line that cannot be read.
pub fn parse(file: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        if let Some(title) = content.strip_prefix("case:") {
            let title = title.trim().to_owned();
            let file = file.to_owned();
            cases.push(Case { file, line: number, title, quotas: Vec::new(), rows: Vec::new() });
            continue;
        }
        let read = match cases.last_mut() {
            None => Err("a file starts with `case:`".to_owned()),
            Some(case) => read_line(case, number, content),
        };
        read.map_err(|reason| format!("{file}:{number}: {reason}"))?;
    }
    Ok(cases.into_iter().flat_map(for_each_algorithm).collect())
}

/// The case once for each of the algorithms that its first quota names: `gcra|token-bucket`.
fn for_each_algorithm(case: Case) -> Vec<Case> {
    let names = case.quotas.first().map_or("", |quota| quota.algorithm.as_str()).to_owned();
    let with = |name: &str| {
        let mut case = case.clone();
        if let Some(quota) = case.quotas.first_mut() {
            name.clone_into(&mut quota.algorithm);
        }
        for row in &mut case.rows {
            if let Event::Change(quota) = &mut row.event
                && quota.algorithm.is_empty()
            {
                name.clone_into(&mut quota.algorithm);
            }
        }
        case
    };
    names.split('|').map(with).collect()
}

fn read_line(case: &mut Case, line: usize, content: &str) -> Result<(), String> {
    if let Some(quota) = content.strip_prefix("quota:") {
        if !case.rows.is_empty() {
            return Err("quota lines come before the rows".to_owned());
        }
        case.quotas.push(quota_line(quota)?);
    } else if case.quotas.is_empty() {
        return Err("a case names its quota before its rows".to_owned());
    } else {
        let row = row(line, content)?;
        if matches!(row.event, Event::Change(_)) && case.quotas.len() > 1 {
            return Err("only a quota alone is changed".to_owned());
        }
        case.rows.push(row);
    }
    Ok(())
}

fn quota_line(text: &str) -> Result<QuotaLine, String> {
    let mut words = text.split_whitespace();
    let algorithm = words.next().ok_or("a quota names its algorithm")?.to_owned();
    let mut quota = QuotaLine {
        algorithm,
        limit: 0,
        window: String::new(),
        window_ns: 0,
        burst: None,
        strict: false,
        buckets: None,
        weighted: false,
    };
    for word in words {
        match word.split_once('=') {
            None if word == "strict" => quota.strict = true,
            None if word == "weighted" => quota.weighted = true,
            Some(("limit", value)) => quota.limit = number(value)?,
            Some(("burst", value)) => quota.burst = Some(number(value)?),
            Some(("buckets", value)) => {
                quota.buckets = Some(value.parse().map_err(|_| format!("`{value}`?"))?);
            }
            Some(("window", value)) => {
                quota.window_ns = span_ns(value)?;
                value.clone_into(&mut quota.window);
            }
            _ => return Err(format!("`{word}` is no part of a quota")),
        }
    }
    if quota.limit == 0 || quota.window_ns == 0 {
        return Err("a quota has a limit and a window".to_owned());
    }
    Ok(quota)
}

fn row(line: usize, content: &str) -> Result<Row, String> {
    let words: Vec<&str> = content.split_whitespace().collect();
    let at_ns = span_ns(words[0])?;
    if let [_, "refund", cost, "of", charged_at] = words.as_slice() {
        let event = Event::Refund { cost: number(cost)?, charged_at_ns: span_ns(charged_at)? };
        return Ok(Row { line, at_ns, event });
    }
    if let [_, "debit", units] = words.as_slice() {
        return Ok(Row { line, at_ns, event: Event::Debit { units: number(units)? } });
    }
    if let [_, "change", quota @ ..] = words.as_slice() {
        // Without a name: by the same algorithm.
        let is_named = quota.first().is_some_and(|word| !word.contains('='));
        let named = if is_named { quota.join(" ") } else { format!("same {}", quota.join(" ")) };
        let mut quota = quota_line(&named)?;
        if !is_named {
            quota.algorithm.clear();
        }
        return Ok(Row { line, at_ns, event: Event::Change(quota) });
    }
    let (verdict, numbers) = match words.get(2..) {
        Some(["allow", numbers @ ..]) => (Expectation::Allow, numbers),
        Some(["deny", numbers @ ..]) => (Expectation::Deny, numbers),
        Some(["delay", wait, numbers @ ..]) => {
            (Expectation::Delay { wait_ns: span_ns(wait)? }, numbers)
        }
        _ => return Err("a row is: time cost verdict remaining retry_after".to_owned()),
    };
    let (remaining, retry_after, reset_after) = match numbers {
        [remaining, retry_after] => (remaining, retry_after, &"-"),
        [remaining, retry_after, reset_after] => (remaining, retry_after, reset_after),
        _ => return Err("a verdict is followed by remaining and retry_after".to_owned()),
    };
    let expected = Expected {
        verdict,
        remaining: number(remaining)?,
        retry_after_ns: optional_span_ns(retry_after)?,
        reset_after_ns: optional_span_ns(reset_after)?,
    };
    if let Some((cost, limit)) = words[1].split_once('@') {
        let event = Event::Within { limit: number(limit)?, cost: number(cost)?, expected };
        return Ok(Row { line, at_ns, event });
    }
    let peek = words[1].ends_with('?');
    let cost = number(words[1].trim_end_matches('?'))?;
    Ok(Row { line, at_ns, event: Event::Check { cost, peek, expected } })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number"))
}

fn optional_span_ns(text: &str) -> Result<Option<u64>, String> {
    if text == "-" { Ok(None) } else { span_ns(text).map(Some) }
}

/// `1m30s`, `1.9s`, `700ms`: a sum of decimal numbers with units, exact in nanoseconds.
///
/// # Errors
/// The text cannot be read, or has fractions of a nanosecond.
pub fn span_ns(text: &str) -> Result<u64, String> {
    let error = || format!("`{text}` is not a time such as 1m30s, 1.9s or 700ms");
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or_else(error)?;
        let (value, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit_ns = unit_ns(unit).ok_or_else(error)?;
        let part = decimal(value, unit_ns).ok_or_else(error)?;
        total = total.checked_add(part).ok_or_else(error)?;
        rest = tail;
    }
    if text.is_empty() { Err(error()) } else { Ok(total) }
}

fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    })
}

/// `value` x `unit_ns`, where `value` may have a fraction that comes out even.
fn decimal(value: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(u128::from(unit_ns))?;
    if product % scale == 0 { u64::try_from(product / scale).ok() } else { None }
}
