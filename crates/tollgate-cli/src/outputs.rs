//! The common output of `simulate` and `replay`: text, JSON, CSV or a page.
//!
//! Invariant: the page is written first, so that a page that cannot be written is known before
//! anything is printed; a page in a file does not change the printed output.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tollgate_report::{Part, Report};

use crate::error::CommandError;
use crate::output::{self, Page};
use crate::output_file::{Content, Force, OutputFile, OverwriteMode};

/// The width of text that is not shown on a terminal.
const WIDTH: usize = 100;
/// The largest width: a wider table only moves names away from their numbers.
const MOST_WIDTH: usize = 140;

/// The form of the output, and the file of the page.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Outputs {
    /// Print the results as JSON
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print the tables as CSV; the first field of each line names the table
    #[arg(long)]
    pub(crate) csv: bool,
    /// Also write the report as one HTML page; - prints it instead
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

impl Outputs {
    /// The file of the page, for a command that reads `inputs`. It is checked before they are read,
    /// so that no report is computed in vain.
    ///
    /// # Errors
    /// The page may not be written there, or cannot be printed.
    pub(crate) fn file<'p>(
        &'p self,
        inputs: impl IntoIterator<Item = &'p Path>,
    ) -> Result<Option<OutputFile<'p>>, CommandError> {
        match self.html.as_deref() {
            None => Ok(None),
            Some(path) if path.as_os_str() != "-" => {
                let replaces = OverwriteMode::by(self.force);
                OutputFile::new(path, inputs, Content::Page, replaces).map(Some)
            }
            Some(_) if self.json || self.csv => {
                let message =
                    "--html - prints the page alone: give a file, or leave out --json and --csv";
                Err(CommandError::Misuse(message.to_owned()))
            }
            Some(_) => Ok(None),
        }
    }

    /// Writes a report in the requested form; `data` is the content of `--json`, `file` that of the
    /// page.
    pub(crate) fn write(
        &self,
        file: Option<&OutputFile<'_>>,
        data: &impl Serialize,
        report: &Report,
    ) -> Result<(), CommandError> {
        match file {
            Some(file) => file.write(report.to_html().as_bytes())?,
            None if self.html.is_some() => return output::raw(&report.to_html()),
            None => {}
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
}

/// The columns of the terminal, or the default width for a file.
fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(std::io::stdout());
    terminal.map_or(WIDTH, |(columns, _)| usize::from(columns.0).min(MOST_WIDTH))
}
