//! `cargo xtask build`: the two products, with their sizes.
//!
//! Invariant: what is tested, run and shipped is the same file in `target/tollgate/`. Nothing here
//! decides how cargo compiles; the profiles in the root `Cargo.toml` do.

pub mod envoy;
pub mod exports;
pub mod purity;
pub mod worker;

use crate::{
    problem::{OrProblem, Problem, Result},
    workspace::Workspace,
};
use flate2::{Compression, write::GzEncoder};
use std::{fs, io::Write, path::Path};

/// What can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    Envoy,
    Worker,
}

pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let products = match arguments {
        [] => vec![Product::Envoy, Product::Worker],
        [one] if one == "envoy" => vec![Product::Envoy],
        [one] if one == "worker" => vec![Product::Worker],
        other => {
            let why = format!("there is no product {:?}", other.join(" "));
            return Err(Problem::new("cannot build", why, "cargo xtask build [envoy|worker]"));
        }
    };
    products.into_iter().try_for_each(|product| build(workspace, product))
}

pub fn build(workspace: &Workspace, product: Product) -> Result<()> {
    match product {
        Product::Envoy => envoy::build(workspace),
        Product::Worker => worker::build(workspace),
    }
}

/// Raw and gzipped length of a file in bytes.
pub fn sizes(file: &Path) -> Result<(usize, usize)> {
    let bytes = fs::read(file).or_problem(format!("cannot read {}", file.display()), "build it")?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zipped = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    let zipped = zipped.or_problem("cannot compress", "run again")?;
    Ok((bytes.len(), zipped.len()))
}

fn print_sizes(workspace: &Workspace, file: &Path) -> Result<()> {
    let (raw, zipped) = sizes(file)?;
    let shown = file.strip_prefix(&workspace.root).unwrap_or(file);
    println!("  {:<44} {raw:>9} bytes {zipped:>9} gzipped", shown.display().to_string());
    Ok(())
}
