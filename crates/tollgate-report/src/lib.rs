//! Figures, tables and plots, written as text, CSV, Markdown or one self-contained HTML page.
//!
//! Invariant: what is written into a page is text and never markup, whoever wrote it first; and
//! what a plot shows stands in a table, too.
#![forbid(unsafe_code)]
