//! What `simulate` and `replay` do alike: write what they found as text, JSON, CSV or a page.
//!
//! Invariant: the page is written first, so that one that cannot be written is known before
//! anything is printed; a page in a file changes nothing of what is printed.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tollgate_report::{Part, Report};

use crate::end::End;
use crate::output::{self, Page};

/// The width of text that no terminal shows.
const WIDTH: usize = 100;
/// A wider terminal would only tear names and numbers apart.
const MOST_WIDTH: usize = 140;

/// In which form something is printed, and where a page of it goes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Outputs {
    /// Print what was found as JSON
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print the tables as CSV; the first field of each line names the table
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write the report as one HTML page, besides what is printed; - prints it instead
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl Outputs {
    /// Writes a report in the form that was asked for; `data` is what `--json` prints.
    pub(crate) fn write(&self, data: &impl Serialize, report: &Report) -> Result<(), End> {
        if let Some(path) = &self.html {
            if path.as_os_str() == "-" {
                return self.print_page(report);
            }
            let written = std::fs::write(path, report.to_html());
            written.map_err(|error| End::UnwrittenFile(path.clone(), error))?;
        }
        match (self.json, self.csv) {
            (true, _) => output::json(data),
            (false, true) => output::raw(&report.to_csv()),
            (false, false) => {
                let mut page = Page::default();
                report.each_part(width(), |part| match part {
                    Part::Heading(text) => page.push_styled(output::HEADING, text),
                    Part::Plain(text) => page.push_str(text),
                });
                page.out()
            }
        }
    }

    fn print_page(&self, report: &Report) -> Result<(), End> {
        if self.json || self.csv {
            let message =
                "--html - prints the page alone: give a file, or leave out --json and --csv";
            return Err(End::Misuse(message.to_owned()));
        }
        output::raw(&report.to_html())
    }
}

/// The columns of the terminal, or those of a text that goes into a file.
fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(std::io::stdout());
    terminal.map_or(WIDTH, |(columns, _)| usize::from(columns.0).min(MOST_WIDTH))
}
