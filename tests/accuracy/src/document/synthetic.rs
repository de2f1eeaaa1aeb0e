//! Simulated traffic, as tables.

use super::{Block, nasa::QUOTAS, rows::grouped};
use crate::measure::Measured;
use crate::subject::{half, subjects};
use crate::synthetic::{MODELS, Model};
use tollgate_core::{DEFAULT_BUCKETS, Span};
use tollgate_report::{Cell, Column, Table};

/// A table for each model, with a column for each quota.
///
/// # Errors
/// One of the policies or traffic documents is invalid.
pub fn block() -> Result<Block, String> {
    let mut text = String::new();
    for model in MODELS {
        let rows = grouped(rows(&model)?);
        let (limit, seconds) = QUOTAS[0];
        text.push_str(&format!(
            "### {}\n\n{} At {limit} per {seconds} s:\n\n```json\n{}\n```\n\n{}\n",
            model.name,
            model.words,
            model.document(limit, seconds),
            table(rows).to_markdown()
        ));
    }
    Ok(Block { name: "synthetic", text })
}

/// Each limiter's results for the model, at each quota.
fn rows(model: &Model) -> Result<Vec<(String, Vec<Measured>)>, String> {
    let mut rows: Vec<(String, Vec<Measured>)> = Vec::new();
    for (limit, seconds) in QUOTAS {
        for subject in subjects(limit, Span::from_secs(seconds), &[half(limit)], &[DEFAULT_BUCKETS])
        {
            let measured = model.run(&subject)?;
            match rows.iter_mut().find(|(name, _)| *name == subject.name) {
                Some((_, cells)) => cells.push(measured),
                None => rows.push((subject.name, vec![measured])),
            }
        }
    }
    Ok(rows)
}

fn table(rows: Vec<(String, Vec<Measured>)>) -> Table {
    let mut table = Table::new("synthetic", "").column(Column::text("algorithm"));
    for (limit, seconds) in QUOTAS {
        table = table
            .column(Column::share(format!("{limit}/{seconds} s: false allow")))
            .column(Column::share("false deny"))
            .column(Column::count("most"));
    }
    for (name, cells) in rows {
        let cells = cells.into_iter().flat_map(|measured| {
            [
                Cell::share(measured.false_allow, measured.requests),
                Cell::share(measured.false_deny, measured.requests),
                Cell::Count(measured.most),
            ]
        });
        table.push([Cell::text(name)].into_iter().chain(cells));
    }
    table
}
