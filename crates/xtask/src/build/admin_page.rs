//! The operator's page: bundled as static files of the Worker.
//!
//! Invariant: `target/tollgate/assets` contains it below its request path, so that no file is at a
//! path of an origin. All names except `index.html` contain a hash of the content. The server that
//! serves the page sends its permissions. Nothing is compiled for it.

use super::{
    playground::{PAGE, bundle_of, files, page_of},
    product,
};
use crate::{
    problem::{OrProblem, Result},
    tools::{self, place::atomically},
    workspace::Workspace,
};
use std::fs;

const SOURCES: &str = "crates/tollgate-service/page";
const ASSETS_FOLDER: &str = "assets/.well-known/tollgate/admin";

pub fn build(workspace: &Workspace) -> Result<()> {
    package(workspace)?;
    files(&workspace.out.join(ASSETS_FOLDER))?
        .iter()
        .try_for_each(|file| product::print_sizes(workspace, file))
}

pub fn package(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, &[&tools::NODE, &tools::PAGE])?;
    atomically(&workspace.out.join(ASSETS_FOLDER), |folder| {
        let main = bundle_of(workspace, SOURCES, folder, &["main.js", "style.css"], &[])?;
        let fix = "free disk space";
        let page = page_of(workspace, SOURCES, &main)?;
        fs::write(folder.join(PAGE), page).or_problem("cannot write the page", fix)?;
        let notice = fs::copy(workspace.root.join("NOTICE"), folder.join("NOTICE.txt"));
        notice.map(drop).or_problem("cannot copy NOTICE", "restore it with git")
    })
}
