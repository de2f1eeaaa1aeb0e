//! The operator's page: bundled as static files of the Worker.
//!
//! Invariant: `target/tollgate/assets` contains it below its request path, so that no file is at a
//! path of an origin. All names except `index.html` contain a hash of the content. The server that
//! serves the page sends its permissions. Nothing is compiled for it.

use super::{
    playground::{PAGE, bundle_of, page_of},
    product,
};
use crate::{
    files,
    problem::Result,
    tools::{self},
    workspace::Workspace,
};

const SOURCES: &str = "crates/tollgate-service/page";
const ASSETS_FOLDER: &str = "assets/.well-known/tollgate/admin";

pub fn build(workspace: &Workspace) -> Result<()> {
    package(workspace)?;
    files::sorted(workspace.out.join(ASSETS_FOLDER))?
        .iter()
        .try_for_each(|file| product::print_sizes(workspace, file))
}

pub fn package(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, &[&tools::NODE, &tools::PAGE])?;
    files::atomically(&workspace.out.join(ASSETS_FOLDER), |folder| {
        let main = bundle_of(workspace, SOURCES, folder, &["main.js", "style.css"], &[])?;
        let page = page_of(workspace, SOURCES, &main)?;
        files::write(folder.join(PAGE), page)?;
        files::copy(workspace.root.join("NOTICE"), folder.join("NOTICE.txt"))
    })
}
