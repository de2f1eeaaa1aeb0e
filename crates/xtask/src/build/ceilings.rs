//! The sizes of the products, and their limits.
//!
//! Invariant: each file has a ceiling in bytes, and so have all of the Worker's together, so that
//! growth is noticed in the commit that causes it; a ceiling is raised only for a reason. Those of
//! the filter are in the declarations of its modules (`tollgate_policy::explain`), by which
//! operators choose: V8 compiles a whole module before Envoy serves the first request. They are at
//! most 3 % above the size, so they are lowered after savings. Those of the Worker are after
//! `gzip -9`, each file separately, which is no less than the platform counts.

use super::{
    product,
    worker::{COMPILED, MAIN, MODULES, POLICY, WASM},
};
use crate::{
    problem::{Problem, Result},
    workspace::Workspace,
};
use tollgate_policy::explain::FILTER_MODULES;

/// A module of the filter has at least this share of its ceiling, in percent.
const LEAST_SHARE: usize = 97;

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
    let measured = FILTER_MODULES.iter().map(|module| {
        let bytes = product::sizes(&workspace.out.join(module.file))?.0;
        Ok((module.file, bytes, module.max_bytes))
    });
    let measured = measured.collect::<Result<Vec<_>>>()?;
    hold("the filter", &measured)?;
    let is_low = |(_, bytes, most): &&(&str, usize, usize)| bytes * 100 < most * LEAST_SHARE;
    let lower: Vec<String> = measured
        .iter()
        .filter(is_low)
        .map(|(file, bytes, most)| format!("{file}: {bytes} bytes of {most}"))
        .collect();
    if lower.is_empty() {
        return Ok(());
    }
    let fix = "lower max_bytes in crates/tollgate-policy/src/explain/filter_module.rs, and measure \
               start_cpu_ms again";
    Err(Problem::new("the filter is smaller than declared", lower.join("\n"), fix))
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
               \"Its size\"); raise it (explain/filter_module.rs of tollgate-policy, \
               build/ceilings.rs of xtask) only for a reason";
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
    }

    // Guards: a gate that lets everything pass, and each megabyte more with it.
    #[test]
    fn what_is_larger_than_its_ceiling_is_named() {
        assert!(hold("it", &[("one", 3, 3)]).is_ok());
        let problem = hold("it", &[("one", 3, 3), ("other", 4, 3)]).unwrap_err();
        assert_eq!(problem.why, "other: 4 bytes of 3");
    }
}
