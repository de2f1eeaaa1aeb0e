//! The size of the Worker's script, and its limits.
//!
//! Invariant: each file has a ceiling, and so have all together, in bytes after `gzip -9`, so that
//! growth is noticed in the commit that causes it. A ceiling is raised only for a reason. Each file
//! is compressed separately, which is no less than the platform counts.

use super::{
    product,
    worker::{COMPILED, MAIN, MODULES, POLICY, WASM},
};
use crate::{
    problem::{Problem, Result},
    workspace::Workspace,
};

/// The glue code.
const GLUE: &str = "build/index.js";

/// Bytes, gzipped.
const CEILINGS: [(&str, usize); 5] =
    [(MAIN, 5_600), (POLICY, 300), (COMPILED, 300), (GLUE, 10_700), (WASM, 541_000)];

/// Bytes, gzipped, of all uploaded files. Less than the sum of the ceilings: the files cannot all
/// grow to their ceilings.
const ALL: usize = 557_000;

/// The size of all uploaded files, in gzipped bytes.
pub fn uploaded(workspace: &Workspace) -> Result<usize> {
    MODULES.into_iter().map(|module| zipped(workspace, module)).sum()
}

/// Fails when a module has outgrown its ceiling.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut measured = Vec::new();
    for (module, most) in CEILINGS {
        measured.push((module, zipped(workspace, module)?, most));
    }
    measured.push(("all of them", uploaded(workspace)?, ALL));
    for (what, zipped, most) in &measured {
        println!("  {what:<24} {zipped:>7} of {most:>7} bytes, gzipped");
    }
    let exceeded = exceeded(&measured);
    if exceeded.is_empty() {
        return Ok(());
    }
    let fix = "see which functions grew (docs/worker.md, \"Its size\"); raise it in \
               crates/xtask/src/build/worker_size.rs only for a reason";
    Err(Problem::new("the Worker is too large", exceeded.join("\n"), fix))
}

/// A line for each file that exceeds its ceiling.
fn exceeded(measured: &[(&str, usize, usize)]) -> Vec<String> {
    let larger = measured.iter().filter(|(_, zipped, most)| zipped > most);
    larger
        .map(|(what, zipped, most)| format!("{what}: {zipped} bytes, gzipped, of {most}"))
        .collect()
}

fn zipped(workspace: &Workspace, module: &str) -> Result<usize> {
    product::sizes(&workspace.worker_dir().join(module)).map(|(_, zipped)| zipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_has_a_ceiling() {
        assert_eq!(CEILINGS.map(|(module, _)| module), MODULES);
    }

    #[test]
    fn the_sum_is_held_below_the_ceilings_of_the_modules() {
        assert!(ALL < CEILINGS.iter().map(|(_, most)| most).sum());
        let told = exceeded(&[("one", 3, 3), ("all of them", 4, 3)]);
        assert_eq!(told, ["all of them: 4 bytes, gzipped, of 3"]);
    }
}
