//! The sizes of the products, and their limits.
//!
//! Invariant: each file has a ceiling in bytes, and so have all of the Worker's together, so that
//! growth is noticed in the commit that causes it; a ceiling is raised only for a reason. Those of
//! the filter are at most 3 % above the size when they were set, because V8 compiles a whole module
//! before Envoy serves the first request; they are lowered after savings. Those of the Worker are
//! after `gzip -9`, each file separately, which is no less than the platform counts.

use super::{
    envoy, product,
    worker::{COMPILED, MAIN, MODULES, POLICY, WASM},
};
use crate::{
    problem::{Problem, Result},
    workspace::Workspace,
};

/// By [`envoy::MODULES`].
const FILTER: [usize; envoy::MODULES.len()] = [900_000, 575_000, 1_005_000];

/// Gzipped: the fourth is the glue code.
const WORKER: [(&str, usize); 5] =
    [(MAIN, 5_700), (POLICY, 300), (COMPILED, 300), ("build/index.js", 11_400), (WASM, 652_000)];

/// Gzipped, of all uploaded files. Less than the sum of the ceilings: the files cannot all grow to
/// their ceilings.
const ALL_OF_WORKER: usize = 669_000;

/// The size of all uploaded files of the Worker, in gzipped bytes.
pub fn uploaded(workspace: &Workspace) -> Result<usize> {
    MODULES.into_iter().map(|module| zipped(workspace, module)).sum()
}

pub fn check_filter(workspace: &Workspace) -> Result<()> {
    let measured = envoy::MODULES
        .into_iter()
        .zip(FILTER)
        .map(|(module, most)| Ok((module, product::sizes(&workspace.out.join(module))?.0, most)));
    hold("the filter", &measured.collect::<Result<Vec<_>>>()?)
}

pub fn check_worker(workspace: &Workspace) -> Result<()> {
    let measured =
        WORKER.into_iter().map(|(module, most)| Ok((module, zipped(workspace, module)?, most)));
    let mut measured = measured.collect::<Result<Vec<_>>>()?;
    measured.push(("all of them", uploaded(workspace)?, ALL_OF_WORKER));
    hold("the Worker", &measured)
}

/// Fails when a file, with its size and its ceiling, has outgrown it.
fn hold(product: &str, measured: &[(&str, usize, usize)]) -> Result<()> {
    for (what, bytes, most) in measured {
        println!("  {what:<24} {bytes:>9} of {most:>9} bytes");
    }
    let larger = measured.iter().filter(|(_, bytes, most)| bytes > most);
    let exceeded: Vec<String> =
        larger.map(|(what, bytes, most)| format!("{what}: {bytes} bytes of {most}")).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let fix = "see which functions grew (docs/decisions.md, \"The size of the filter\"; docs/worker.md, \
               \"Its size\"); raise it in crates/xtask/src/build/ceilings.rs only for a reason";
    Err(Problem::new(format!("{product} is too large"), exceeded.join("\n"), fix))
}

fn zipped(workspace: &Workspace, module: &str) -> Result<usize> {
    product::sizes(&workspace.worker_dir().join(module)).map(|(_, zipped)| zipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_has_a_ceiling() {
        assert_eq!(WORKER.map(|(module, _)| module), MODULES);
        assert!(ALL_OF_WORKER < WORKER.iter().map(|(_, most)| most).sum());
        let [filter, slim, full] = FILTER;
        assert!(slim < filter && filter < full);
    }

    // Guards: a gate that lets everything pass, and each megabyte more with it.
    #[test]
    fn what_is_larger_than_its_ceiling_is_named() {
        assert!(hold("it", &[("one", 3, 3)]).is_ok());
        let problem = hold("it", &[("one", 3, 3), ("other", 4, 3)]).unwrap_err();
        assert_eq!(problem.why, "other: 4 bytes of 3");
    }
}
