//! The filter: compiled, freed of exports it does not use, optimised.
//!
//! Invariant: every callback that is exported costs CPU on every request, so a shipped module
//! exports what its lists name and nothing else; a name that is missing fails the build.

use super::{exports, paths, product};
use crate::{
    files,
    problem::{OrProblem, Result},
    run::{self, Runner},
    tools,
    versions::{BINARYEN, WASM_TARGET},
    workspace::Workspace,
};
use std::path::PathBuf;
use tollgate_policy::explain::FILTER_MODULES;

/// The callbacks that Envoy may call, one name per line; stored next to the callbacks, in the
/// sources of the filter.
const EXPORTS: &str = "crates/tollgate-envoy/src/exports.txt";
/// Those of the full module alone.
const EXPORTS_FULL: &str = "crates/tollgate-envoy/src/exports_full.txt";

/// Those of the example.
const EXPORTS_EXAMPLE: &str = "examples/proxy-wasm-filter/exports.txt";

/// The shipped modules, in target/tollgate, the smallest first.
pub const ALL: [&Module; FILTER_MODULES.len()] = [&LEAN, &SLIM, &FILTER, &FULL];
pub const MODULES: [&str; ALL.len()] = [LEAN.file, SLIM.file, FILTER.file, FULL.file];

/// How a module is compiled.
pub struct Module {
    pub file: &'static str,
    package: &'static str,
    /// Arguments of cargo.
    pub features: &'static [&'static str],
    exports: &'static [&'static str],
    /// Cargo's folder for it, below its usual one. Cargo gives all modules one name: in one
    /// folder, each build of one would replace the other, which would be linked again the next
    /// time.
    folder: &'static str,
}

const FILES: [&str; FILTER_MODULES.len()] = {
    let [lean, slim, filter, full] = &FILTER_MODULES;
    [lean.file, slim.file, filter.file, full.file]
};

/// It holds no requests and makes none.
pub const LEAN: Module = Module {
    file: FILES[0],
    package: "tollgate-envoy",
    features: &["--no-default-features"],
    exports: &[EXPORTS],
    folder: "lean",
};
/// It reads only compiled policies.
pub const SLIM: Module = Module {
    file: FILES[1],
    package: "tollgate-envoy",
    features: &["--no-default-features", "--features", "waiting,calls"],
    exports: &[EXPORTS],
    folder: "slim",
};
pub const FILTER: Module = Module {
    file: FILES[2],
    package: "tollgate-envoy",
    features: &[],
    exports: &[EXPORTS],
    folder: "",
};
/// It also reads the bodies and trailers of responses, and has regular expressions.
pub const FULL: Module = Module {
    file: FILES[3],
    package: "tollgate-envoy",
    features: &["--features", "body,regex"],
    exports: &[EXPORTS, EXPORTS_FULL],
    folder: "full",
};

/// The filter in `examples`, which is tested and not shipped.
pub const EXAMPLE: Module = Module {
    file: "example-proxy-wasm-filter.wasm",
    package: "example-proxy-wasm-filter",
    features: &[],
    exports: &[EXPORTS_EXAMPLE],
    folder: "",
};

/// Of the root `Cargo.toml`.
const PROFILE: &str = "filter";

/// The features that rustc 1.95 uses by default. Never `--all-features`: V8 rejects its output.
const WASM_OPT: &[&str] = &[
    "--enable-bulk-memory",
    "--enable-bulk-memory-opt",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-mutable-globals",
    "--enable-multivalue",
    "--enable-reference-types",
    "--enable-call-indirect-overlong",
    "--strip-producers",
    "-O3",
];

/// Copies of functions in their callers only where they are small, or where the source asks for
/// it: a seventh less to compile at the start of each Envoy, for 1 % more instructions of a request
/// (docs/decisions.md, "The size of the filter").
const INLINING: &[&str] = &["-Cllvm-args=-inline-threshold=20"];

/// Compiles all modules.
pub fn compile(workspace: &Workspace, run: Runner) -> Result<()> {
    tools::ensure(workspace, &[&tools::WASM_TARGET])?;
    ALL.iter().try_for_each(|module| module.compile(workspace, run))
}

/// Compiles the module that reads documents, too.
pub fn compile_filter(workspace: &Workspace, run: Runner) -> Result<()> {
    tools::ensure(workspace, &[&tools::WASM_TARGET])?;
    FILTER.compile(workspace, run)
}

/// Makes the module of the example and prints its size.
pub fn build_example(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_ENVOY_BUILD)?;
    EXAMPLE.compile(workspace, &run::shown)?;
    package_one(workspace, &EXAMPLE)?;
    product::print_sizes(workspace, &workspace.out.join(EXAMPLE.file))
}

impl Module {
    fn compile(&self, workspace: &Workspace, run: Runner) -> Result<()> {
        let mut cargo = workspace.cargo();
        cargo.args(["build", "--profile", PROFILE, "-p", self.package]);
        cargo.args(["--target", WASM_TARGET]).args(self.features);
        let folder = workspace.target.join(self.folder);
        cargo.arg("--target-dir").arg(&folder);
        paths::hide(workspace, &mut cargo, INLINING)?;
        run(&mut cargo, "fix the errors of the compiler")?;
        let linked = folder.join(WASM_TARGET).join(PROFILE).join(self.package.replace('-', "_"));
        let linked = linked.with_extension("wasm");
        files::copy(linked, self.compiled(workspace))
    }

    /// The output of the compiler.
    fn compiled(&self, workspace: &Workspace) -> PathBuf {
        workspace.out.join(self.file).with_extension("compiled.wasm")
    }
}

/// Makes the modules that Envoy loads from the compiled ones, unless they are there.
pub fn package(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_ENVOY_BUILD)?;
    ALL.iter().try_for_each(|module| package_one(workspace, module))
}

/// Makes the module that reads documents.
pub fn package_filter(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_ENVOY_BUILD)?;
    package_one(workspace, &FILTER)
}

fn package_one(workspace: &Workspace, module: &Module) -> Result<()> {
    let made = workspace.out.join(module.file);
    let module = strip(workspace, module)?;
    let stripped = made.with_extension("linked.wasm");
    let stamp = made.with_extension("stamp");
    let how = format!("{BINARYEN} {}", WASM_OPT.join(" "));
    if !product::is_made(&stamp, &module, &how, std::slice::from_ref(&made)) {
        files::write(&stripped, &module)?;
        let partial = made.with_extension("partial");
        product::optimise(workspace, WASM_OPT, &stripped, &partial)?;
        files::rename(&partial, &made)?;
        product::remember(&stamp, &module, &how)?;
    }
    Ok(())
}

pub fn print_sizes(workspace: &Workspace) -> Result<()> {
    MODULES.iter().try_for_each(|file| product::print_sizes(workspace, &workspace.out.join(file)))
}

/// The linked module without the exports that Envoy does not call.
fn strip(workspace: &Workspace, module: &Module) -> Result<Vec<u8>> {
    let lists = module.exports.iter().map(|list| files::text(workspace.root.join(list)));
    let list = lists.collect::<Result<Vec<_>>>()?.join("\n");
    let names: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    exports::keep_only(&files::bytes(module.compiled(workspace))?, &names).or_problem(
        "the filter does not export what it must",
        format!("change {}", module.exports.join(" or ")),
    )
}
