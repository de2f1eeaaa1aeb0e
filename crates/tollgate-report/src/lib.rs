//! Figures, tables and plots, written as text, CSV, Markdown or one self-contained HTML page.
//!
//! A command fills a [`Report`] with its results, in units; their formatting (thousands, percent,
//! milliseconds, alignment, escapes) is decided here, once for all commands.
//!
//! The prices of the Worker's platform are in [`bill`], for the command line and the documents.
//!
//! Invariant: text in a page is text and never markup, whatever its origin; and the data of a plot
//! is in a table, too. Deliberately absent: JSON, which each command makes of its own data;
//! scripts; files; a clock.
//!
//! ```
//! use tollgate_report::{Cell, Column, Report, Table};
//!
//! let mut keys = Table::new("keys", "Who was limited most")
//!     .column(Column::text("client"))
//!     .column(Column::count("denied"));
//! keys.push([Cell::text("192.0.2.1"), Cell::Count(1_027)]);
//! let mut report = Report::new("Replay of access.log");
//! report.section("Clients").table(keys);
//! assert!(report.to_text(80).contains("192.0.2.1   1,027\n"));
//! ```
#![forbid(unsafe_code)]

pub mod bill;
mod html;
mod svg;
mod markup;
mod palette;
mod frame;
mod layers;
mod scale;
mod markdown;
mod csv;
mod text;
mod model;
mod rows;
mod plot_table;
mod plot;
mod points;
mod table;
mod words;
mod visible;

pub use html::GENERATOR;
pub use model::{Block, Figure, Figures, Report, Section};
pub use palette::Theme;
pub use plot::{Axis, Mark, Plot, Series, Shape};
pub use points::MAX_POINTS;
pub use table::{Cell, Column, Kind, Table};
pub use text::Part;
pub use visible::{is_plain, visible};
pub use words::rfc3339;
