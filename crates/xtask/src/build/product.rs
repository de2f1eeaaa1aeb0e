//! A product on disk: whether it must be made again, its optimiser, and its sizes.
//!
//! Invariant: a product is made from the same bytes in the same way, or it is made again.

use super::archive;
use crate::{env, files, problem::Result, run, tools::npm, workspace::Workspace};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Raw and gzipped length of a file in bytes.
pub fn sizes(file: &Path) -> Result<(usize, usize)> {
    let bytes = files::bytes(file)?;
    Ok((bytes.len(), archive::gzip(&bytes)?.len()))
}

/// Whether `products` were already made from `source` in the way `how` describes.
///
/// Optimising takes ten times as long as everything else when nothing changed.
pub fn is_made(stamp: &Path, source: &[u8], how: &str, products: &[PathBuf]) -> bool {
    let made_from = fs::read(stamp).unwrap_or_default();
    products.iter().all(|file| file.is_file()) && made_from == stamp_of(source, how)
}

/// Stores the state that [`is_made`] compares; call it after the last product is in place.
pub fn remember(stamp: &Path, source: &[u8], how: &str) -> Result<()> {
    files::write(stamp, stamp_of(source, how))
}

fn stamp_of(source: &[u8], how: &str) -> Vec<u8> {
    [source, how.as_bytes()].concat()
}

/// Lets wasm-opt write `to`.
pub fn optimise(workspace: &Workspace, options: &[&str], from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new(npm::bin(workspace).join("wasm-opt"));
    command.args(options).arg(from).arg("-o").arg(to);
    run::output(env::with_tools(workspace, &mut command), "read the output of wasm-opt").map(drop)
}

pub fn print_sizes(workspace: &Workspace, file: &Path) -> Result<()> {
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
