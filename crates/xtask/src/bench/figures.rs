//! From samples to a table: medians, ratios, Markdown.
//!
//! Invariant: pure. Nothing is left out as an outlier; the spread is shown instead.

/// One table of the report.
#[derive(Debug)]
pub struct Table {
    title: String,
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    note: String,
}

impl Table {
    pub fn new(title: &str, heading: &[&str]) -> Self {
        let heading = heading.iter().map(|cell| (*cell).to_owned()).collect();
        Self { title: title.to_owned(), heading, rows: Vec::new(), note: String::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Notes for the reader, below the table.
    pub fn note(&mut self, text: &str) {
        text.clone_into(&mut self.note);
    }

    /// The first column is text, the others are figures, aligned to the right.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = (0..self.heading.len())
            .map(|column| if column == 0 { "---" } else { "---:" }.to_owned())
            .collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        let note = if self.note.is_empty() { String::new() } else { format!("\n{}\n", self.note) };
        format!("### {}\n\n{}{}{rows}{note}", self.title, line(&self.heading), line(&rule))
    }
}

/// A table as [`Table::markdown`] writes it, for a document with a heading of its own.
pub fn without_heading(text: &str) -> &str {
    text.split_once("\n\n").map_or(text, |(_, table)| table)
}

/// The document with `text` in the place of what is between the two marks; `None` without them.
pub fn between(document: &str, [begin, end]: [&str; 2], text: &str) -> Option<String> {
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}{text}{end}{after}"))
}

/// The middle sample, or the mean of the two in the middle; `NaN` of nothing.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(upper), 0) => f64::midpoint(sorted[middle - 1], *upper),
        (Some(only), _) => *only,
        (None, _) => f64::NAN,
    }
}

/// The least value that this part of `sorted` does not exceed; `NaN` of nothing.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

pub fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NAN, f64::min)
}

pub fn most(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NAN, f64::max)
}

/// The median of the ratios of each round: an effect that slows a whole round down cancels.
pub fn paired_ratio(samples: &[f64], base: &[f64]) -> f64 {
    let ratios: Vec<f64> = samples.iter().zip(base).map(|(one, other)| one / other).collect();
    median(&ratios)
}

/// The median of the differences of each round, for the same reason.
pub fn paired_difference(samples: &[f64], base: &[f64]) -> f64 {
    let differences: Vec<f64> = samples.iter().zip(base).map(|(one, other)| one - other).collect();
    median(&differences)
}

/// A figure with this many decimals; a dash where there is none.
pub fn figure(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { "-".to_owned() }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_string(), "2");
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).to_string(), "2.5");
        assert!(median(&[]).is_nan());
        assert_eq!(figure(median(&[]), 1), "-");
    }

    #[test]
    fn quantiles_are_samples() {
        let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
        let all = [0.5, 0.99, 1.0].map(|part| figure(quantile(&sorted, part), 0));
        assert_eq!(all, ["100", "198", "200"]);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn the_spread_is_from_least_to_most() {
        let samples = [2.0, 1.0, 3.0];
        assert_eq!(
            (least(&samples).to_string(), most(&samples).to_string()),
            ("1".into(), "3".into())
        );
    }

    #[test]
    fn a_slow_round_does_not_change_a_ratio() {
        assert_eq!(paired_ratio(&[3.0, 6.0, 3.0], &[2.0, 4.0, 2.0]).to_string(), "1.5");
        assert_eq!(paired_ratio(&[3.0, 60.0, 6.0], &[2.0, 40.0, 4.0]).to_string(), "1.5");
        assert_eq!(paired_difference(&[3.0, 61.0, 7.0], &[2.0, 60.0, 4.0]).to_string(), "1");
    }

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new("Sizes", &["what", "bytes"]);
        table.row(["a".to_owned(), grouped(1_234_567)]);
        table.row(["b".to_owned(), grouped(12)]);
        let expected =
            "### Sizes\n\n| what | bytes |\n| --- | ---: |\n| a | 1,234,567 |\n| b | 12 |\n";
        assert_eq!(table.markdown(), expected);
        table.note("Read this.");
        assert_eq!(table.markdown(), format!("{expected}\nRead this.\n"));
    }
}
