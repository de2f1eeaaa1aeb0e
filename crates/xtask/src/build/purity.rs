//! Proves that the core is pure: no dependencies, and as WebAssembly no imports.
//!
//! Invariant: every compiled function of the core is linked and kept, so an import cannot hide in
//! code that the linker drops. Generic code is checked where it is used, in the products.

use super::exports;
use crate::{
    files, metadata,
    problem::{Problem, Result},
    run, tools,
    versions::WASM_TARGET,
    workspace::Workspace,
};
use std::process::Command;

/// Not `release`: with link-time optimisation a library contains no machine code to examine.
const PROFILE: &str = "release-test";
const FIX: &str = "keep clocks, I/O, allocation and dependencies out of tollgate-core";

/// The smallest crate that can be linked: the core is `no_std` and has no panic handler.
const HOST: &str =
    "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n";

pub fn check(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, &[&tools::WASM_TARGET])?;
    no_dependencies(workspace)?;
    let imports = exports::imports(&linked(workspace)?)
        .map_err(|why| Problem::new("cannot read the linked core", why, FIX))?;
    match imports.as_slice() {
        [] => Ok(()),
        some => Err(Problem::new("tollgate-core is not pure", format!("it imports {some:?}"), FIX)),
    }
}

fn no_dependencies(workspace: &Workspace) -> Result<()> {
    let packages = metadata::packages(workspace)?;
    let core = packages.iter().find(|package| package.name == "tollgate-core");
    match core.map(|core| core.dependencies.as_slice()) {
        Some([]) => Ok(()),
        found => {
            let why = format!("its dependencies are {found:?}");
            Err(Problem::new("tollgate-core must have no dependencies", why, FIX))
        }
    }
}

fn linked(workspace: &Workspace) -> Result<Vec<u8>> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "-p", "tollgate-core", "--target", WASM_TARGET]);
    run::shown(cargo.args(["--profile", PROFILE]), "fix the errors of the compiler")?;
    let library = workspace.target.join(WASM_TARGET).join(PROFILE).join("libtollgate_core.rlib");
    let folder = workspace.out.join("purity");
    let (source, module) = (folder.join("host.rs"), folder.join("core.wasm"));
    files::write(&source, HOST)?;
    let mut rustc = Command::new("rustc");
    rustc.current_dir(&workspace.root).args(["--edition", "2024", "--crate-type", "cdylib"]);
    rustc.args(["--target", WASM_TARGET, "-C", "panic=abort", "-C", "link-arg=--export-all"]);
    rustc.args(["-C", "link-arg=--whole-archive", "-C"]);
    rustc.arg(format!("link-arg={}", library.display()));
    rustc.args(["-C", "link-arg=--no-whole-archive", "-C", "link-arg=--allow-undefined", "-o"]);
    run::output(rustc.arg(&module).arg(&source), FIX)?;
    files::bytes(&module)
}
