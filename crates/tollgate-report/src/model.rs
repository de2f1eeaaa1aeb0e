//! The report: a title, and sections of text, figures, tables and plots in the order in which they
//! are read.
//!
//! Invariant: all text and numbers here are as they were given; nothing is escaped yet.

use crate::plot::Plot;
use crate::table::{Cell, Table};

/// A report.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) title: String,
    pub(crate) sections: Vec<Section>,
    pub(crate) footer: String,
}

impl Report {
    /// A report without sections yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), sections: Vec::new(), footer: String::new() }
    }

    /// Adds an empty section at the end. An empty heading is not written: such a section belongs to
    /// the title.
    pub fn section(&mut self, heading: impl Into<String>) -> &mut Section {
        self.sections.push(Section { heading: heading.into(), blocks: Vec::new() });
        let last = self.sections.len().saturating_sub(1);
        #[expect(clippy::indexing_slicing, reason = "it was pushed a line above")]
        &mut self.sections[last]
    }

    /// Adds a line at the end with the origin of the report: the command and its version.
    pub fn footer(&mut self, footer: impl Into<String>) {
        self.footer = footer.into();
    }
}

/// A part of a report.
#[derive(Clone, Debug)]
pub struct Section {
    pub(crate) heading: String,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) -> &mut Self {
        self.block(Block::Text(text.into()))
    }

    /// Adds lines to be copied unchanged.
    pub fn code(&mut self, code: impl Into<String>) -> &mut Self {
        self.block(Block::Code(code.into()))
    }

    /// Adds figures.
    pub fn figures(&mut self, figures: Figures) -> &mut Self {
        self.block(Block::Figures(figures))
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) -> &mut Self {
        self.block(Block::Table(table))
    }

    /// Adds a plot.
    pub fn plot(&mut self, plot: Plot) -> &mut Self {
        self.block(Block::Plot(Box::new(plot)))
    }

    /// Adds any block.
    pub fn block(&mut self, block: Block) -> &mut Self {
        self.blocks.push(block);
        self
    }
}

/// A piece of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// Lines to be copied unchanged, such as a quota for a policy.
    Code(String),
    /// Single numbers with their names.
    Figures(Figures),
    /// A table.
    Table(Table),
    /// A plot.
    Plot(Box<Plot>),
}

/// Single numbers with their names: the first things that a reader should see.
#[derive(Clone, Debug)]
pub struct Figures {
    pub(crate) name: String,
    pub(crate) figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    pub(crate) label: String,
    pub(crate) value: Cell,
    pub(crate) note: String,
}

impl Figures {
    /// No figures yet. Programs find them in CSV by `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new() }
    }

    /// The figures with one more. The note may be empty.
    #[must_use]
    pub fn figure(
        mut self,
        label: impl Into<String>,
        value: Cell,
        note: impl Into<String>,
    ) -> Self {
        self.figures.push(Figure { label: label.into(), value, note: note.into() });
        self
    }
}
