//! A row of the table of tools.

use super::{apt, cargo_tools, npm, python};
use crate::{problem::Result, progress::Job, versions, workspace::Workspace};

/// One row of the table.
#[derive(Debug)]
pub struct Tool {
    pub name: &'static str,
    pub needed_for: &'static str,
    source: Source,
}

/// How a tool is found and installed.
#[derive(Debug)]
pub enum Source {
    /// Packages of the distribution, and the programs in them.
    Installed(&'static [&'static str], &'static [&'static str]),
    Unpacked(&'static apt::Unpacked),
    Npm(&'static npm::Packages),
    Pip(&'static python::Packages),
    /// By cargo, from sources of our own.
    Compiled(&'static cargo_tools::Program),
    Other(Other),
}

/// A source that only one tool has.
#[derive(Debug)]
pub struct Other {
    pub version: &'static str,
    /// Advice for when xtask cannot install it.
    pub by_hand: &'static str,
    pub lane: Lane,
    /// The place or the version of the installed tool.
    pub check: fn(&Workspace) -> Option<String>,
    pub install: fn(&Workspace, &Job) -> Result<()>,
}

/// Tools of different lanes are installed at the same time, those of one lane in table order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Compile,
    Download,
}

impl Tool {
    pub const fn new(name: &'static str, needed_for: &'static str, source: Source) -> Self {
        Self { name, needed_for, source }
    }

    pub const fn version(&self) -> &'static str {
        match &self.source {
            Source::Installed(..) | Source::Unpacked(_) => "distribution's",
            Source::Npm(_) | Source::Pip(_) => "locked",
            Source::Compiled(_) => versions::WASM_BINDGEN,
            Source::Other(other) => other.version,
        }
    }

    /// Advice for when xtask cannot install it.
    pub fn by_hand(&self) -> String {
        match &self.source {
            Source::Installed(packages, _) => format!("apt-get install {}", packages.join(" ")),
            Source::Unpacked(it) => format!("see whether apt-get download {} works", it.package),
            Source::Npm(_) => {
                "install npm (Node 20 or newer) and see whether it reaches its registry".to_owned()
            }
            Source::Pip(_) => {
                "install Python 3.10 or newer with pip and see whether it reaches its index"
                    .to_owned()
            }
            Source::Compiled(_) => "see whether cargo reaches its registry".to_owned(),
            Source::Other(other) => other.by_hand.to_owned(),
        }
    }

    pub const fn lane(&self) -> Lane {
        match &self.source {
            Source::Compiled(_) => Lane::Compile,
            Source::Other(other) => other.lane,
            _ => Lane::Download,
        }
    }

    /// The place or the version of the installed tool, when it is the wanted one.
    pub fn check(&self, workspace: &Workspace) -> Option<String> {
        match &self.source {
            Source::Installed(_, programs) => apt::check_programs(programs),
            Source::Unpacked(package) => package.check(workspace),
            Source::Npm(packages) => packages.check(workspace),
            Source::Pip(packages) => packages.check(workspace),
            Source::Compiled(program) => program.check(workspace),
            Source::Other(other) => (other.check)(workspace),
        }
    }

    pub fn install(&self, workspace: &Workspace, job: &Job) -> Result<()> {
        match &self.source {
            Source::Installed(packages, _) => apt::install(packages, job),
            Source::Unpacked(package) => package.install(workspace, job),
            Source::Npm(packages) => packages.install(workspace, job),
            Source::Pip(packages) => packages.install(workspace, job),
            Source::Compiled(program) => program.install(workspace, job),
            Source::Other(other) => (other.install)(workspace, job),
        }
    }
}
