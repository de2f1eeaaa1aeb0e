//! `cargo xtask build`: the two products, with their sizes.
//!
//! Invariant: what is tested, run and shipped is the same file in `target/tollgate/`. Nothing here
//! decides how cargo compiles; the profiles in the root `Cargo.toml` do.

pub mod envoy;
pub mod exports;
mod glue;
pub mod purity;
pub mod worker;

use crate::{
    problem::{OrProblem, Problem, Result},
    workspace::Workspace,
};
use flate2::{Compression, write::GzEncoder};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

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

/// Whether `products` were already made from `source` in the way `how` describes.
///
/// Optimising takes ten times as long as everything else when nothing changed.
fn is_made(stamp: &Path, source: &[u8], how: &str, products: &[PathBuf]) -> bool {
    let made_from = fs::read(stamp).unwrap_or_default();
    products.iter().all(|file| file.is_file()) && made_from == stamp_of(source, how)
}

/// Remembers what [`is_made`] asks; call it after the last product is in place.
fn remember(stamp: &Path, source: &[u8], how: &str) -> Result<()> {
    fs::write(stamp, stamp_of(source, how)).or_problem("cannot write a stamp", "free disk space")
}

fn stamp_of(source: &[u8], how: &str) -> Vec<u8> {
    [source, how.as_bytes()].concat()
}

fn print_sizes(workspace: &Workspace, file: &Path) -> Result<()> {
    let (raw, zipped) = sizes(file)?;
    let shown = file.strip_prefix(&workspace.root).unwrap_or(file);
    println!("  {:<44} {raw:>9} bytes {zipped:>9} gzipped", shown.display().to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_made_again_when_source_or_way_change() {
        let folder = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (stamp, product) = (folder.join("stamp"), folder.join("product"));
        fs::write(&product, "x").unwrap();
        let products = [product];
        assert!(!is_made(&stamp, b"a", "-O3", &products));
        remember(&stamp, b"a", "-O3").unwrap();
        assert!(is_made(&stamp, b"a", "-O3", &products));
        assert!(!is_made(&stamp, b"b", "-O3", &products));
        assert!(!is_made(&stamp, b"a", "-Oz", &products));
        assert!(!is_made(&stamp, b"a", "-O3", &[folder.join("gone")]));
        fs::remove_dir_all(&folder).unwrap();
    }
}
