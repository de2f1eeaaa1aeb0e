//! A row of the table of tools.

use super::place::ToolState;
use crate::{problem::Result, progress::Job, workspace::Workspace};

/// Tools of different lanes are installed at the same time, those of one lane in table order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Compile,
    Download,
}

/// One row of the table.
#[derive(Debug)]
pub struct Tool {
    pub name: &'static str,
    pub version: &'static str,
    pub needed_for: &'static str,
    /// Advice for when xtask cannot install it.
    pub by_hand: &'static str,
    pub lane: Lane,
    pub check: fn(&Workspace) -> ToolState,
    pub install: fn(&Workspace, &Job) -> Result<()>,
}
