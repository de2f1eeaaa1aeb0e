//! The sizes of the filter's modules, and their limits.
//!
//! Invariant: each has a ceiling in bytes, because V8 compiles the whole module before Envoy serves
//! the first request. A ceiling is at most 3 % above the size when it was set, so that growth is
//! noticed in the commit that causes it; it is raised only for a reason, and lowered after savings.

use super::{envoy::MODULES, product};
use crate::{
    problem::{Problem, Result},
    workspace::Workspace,
};

/// Bytes, by [`MODULES`].
const CEILINGS: [usize; MODULES.len()] = [850_000, 574_000];

/// Fails when a module has outgrown its ceiling.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut measured = Vec::new();
    for (module, most) in MODULES.into_iter().zip(CEILINGS) {
        let (bytes, _) = product::sizes(&workspace.out.join(module))?;
        println!("  {module:<24} {bytes:>9} of {most:>9} bytes");
        measured.push((module, bytes, most));
    }
    let exceeded = exceeded(&measured);
    if exceeded.is_empty() {
        return Ok(());
    }
    let fix = "see which functions grew (docs/decisions.md, \"The size of the filter\"); raise it in \
               crates/xtask/src/build/envoy_size.rs only for a reason";
    Err(Problem::new("the filter is too large", exceeded.join("\n"), fix))
}

/// A line for each module that exceeds its ceiling.
fn exceeded(measured: &[(&str, usize, usize)]) -> Vec<String> {
    let larger = measured.iter().filter(|(_, bytes, most)| bytes > most);
    larger.map(|(module, bytes, most)| format!("{module}: {bytes} bytes of {most}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: a gate that lets everything pass, and each megabyte more with it.
    #[test]
    fn what_is_larger_than_its_ceiling_is_named() {
        assert_eq!(exceeded(&[("one", 3, 3), ("other", 4, 3)]), ["other: 4 bytes of 3"]);
        assert!(CEILINGS.iter().is_sorted_by(|filter, slim| filter > slim));
    }
}
