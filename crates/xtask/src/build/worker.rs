//! The Worker: compiled, bound to JavaScript, optimised, and collected as the files to deploy. Its
//! twins, with which benches compare it, in the same way.
//!
//! Invariant: `target/tollgate/worker` contains `entry.mjs` and the modules that it imports, as
//! wrangler uploads them, and `build/` in the folder of the Worker contains the same for wrangler.
//! Only the pinned tools are downloaded. The JavaScript that the platform requires is written by
//! hand in `entry.mjs`.

use super::{glue, names, paths, product};
use crate::{
    env, files,
    problem::{Problem, Result},
    run::{self, Runner},
    tools::{self, cargo_tools, npm},
    versions::{BINARYEN, WASM_BINDGEN, WASM_TARGET},
    workspace::Workspace,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use tollgate_policy::{Surface, compiled_text};

/// The main module, and the policy that is bundled with it.
pub const MAIN: &str = "entry.mjs";
pub const POLICY: &str = "policy.json";
/// The compiled policy, in a module of JavaScript.
pub const COMPILED: &str = "build/policy.mjs";
/// The main module and its imports, relative to the crate.
pub const MODULES: [&str; 5] = [MAIN, POLICY, COMPILED, "build/index.js", WASM];
pub const WASM: &str = "build/index_bg.wasm";
/// Names of functions, for operators who read a trap in the log; it is not uploaded.
pub const NAMES: &str = "build/names.txt";

/// The profile of Cargo.toml.
const PROFILE: &str = "worker";

/// A crate that is built in this way.
struct Crate {
    package: &'static str,
    /// The file that the linker writes.
    linked: &'static str,
    /// Its folder in the work tree.
    folder: &'static str,
    modules: &'static [&'static str],
    /// The folder in which its modules are collected.
    collected: PathBuf,
}

/// The modules of the Worker's twins.
pub const TWIN_MODULES: [&str; 3] = [MAIN, "build/index.js", WASM];

fn shipped(workspace: &Workspace) -> Crate {
    Crate {
        package: "tollgate-worker",
        linked: "tollgate_worker.wasm",
        folder: "crates/tollgate-worker",
        modules: &[MAIN, POLICY, COMPILED, "build/index.js", WASM, NAMES],
        collected: workspace.worker_dir(),
    }
}

/// A Worker in Rust that decides nothing.
fn twin(workspace: &Workspace) -> Crate {
    Crate {
        package: "tollgate-twin",
        linked: "tollgate_twin.wasm",
        folder: "tests/twin",
        modules: &TWIN_MODULES,
        collected: workspace.twin_dir(),
    }
}

/// The features that rustc 1.95 uses by default, and the exceptions that wasm-bindgen catches. The
/// names of functions stay until they are written to a file. Without more inlining, which makes
/// modules a tenth larger once they are gzipped; and with similar functions next to each other,
/// above all instances of one function.
const WASM_OPT: &[&str] = &[
    "--enable-mutable-globals",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-reference-types",
    "--enable-exception-handling",
    "--debuginfo",
    "--strip-producers",
    "-Oz",
    "--skip-pass=inlining-optimizing",
    "--reorder-functions-by-name",
];

/// One module of the glue code and what it imports. Two equal keys in an object are a mistake.
const ESBUILD: &[&str] = &[
    "--bundle",
    "--minify",
    "--format=esm",
    "--external:./index_bg.wasm",
    "--external:cloudflare:*",
    "--log-level=warning",
    "--log-override:duplicate-object-key=error",
];

pub fn compile(workspace: &Workspace, run: Runner) -> Result<()> {
    compile_crate(workspace, &shipped(workspace), run)
}

fn compile_crate(workspace: &Workspace, made: &Crate, run: Runner) -> Result<()> {
    tools::ensure(workspace, &[&tools::WASM_TARGET])?;
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--profile", PROFILE, "-p", made.package, "--target", WASM_TARGET]);
    paths::hide(workspace, &mut cargo, &[])?;
    run(&mut cargo, "fix the errors of the compiler")
}

/// Makes the files to deploy from the compiled ones, unless they are there.
pub fn package(workspace: &Workspace) -> Result<()> {
    package_crate(workspace, &shipped(workspace))
}

/// Makes the Worker's twins as the Worker is made.
pub fn make_twin(workspace: &Workspace) -> Result<()> {
    let twin = twin(workspace);
    compile_crate(workspace, &twin, &run::shown)?;
    package_crate(workspace, &twin)
}

fn package_crate(workspace: &Workspace, made: &Crate) -> Result<()> {
    tools::ensure(workspace, tools::FOR_WORKER_BUILD)?;
    files::make_folder(&workspace.out)?;
    let linked = workspace.target.join(WASM_TARGET).join(PROFILE).join(made.linked);
    let module = files::bytes(&linked)?;
    let folder = workspace.root.join(made.folder);
    let stamp = workspace.out.join(format!("{}.stamp", made.package));
    let how = format!("{WASM_BINDGEN} {BINARYEN} {}", [WASM_OPT, ESBUILD].concat().join(" "));
    let bound = made.modules.iter().filter(|module| **module != COMPILED);
    let products: Vec<PathBuf> = bound.map(|module| folder.join(module)).collect();
    if !product::is_made(&stamp, &module, &how, &products) {
        bind(workspace, &linked, &folder.join("build"))?;
        product::remember(&stamp, &module, &how)?;
    }
    if made.modules.contains(&COMPILED) {
        let policy = files::text(folder.join(POLICY))?;
        files::write(folder.join(COMPILED), compiled(&policy))?;
    }
    let copied = |module| files::copy(folder.join(module), made.collected.join(module));
    made.modules.iter().try_for_each(copied)
}

/// The module with a compiled policy; with none when the policy has problems, which the Worker then
/// reports.
pub fn compiled(policy: &str) -> String {
    let compiled = tollgate_language::compile(policy, Surface::Worker);
    let text = compiled.map(|policy| compiled_text(|out| policy.write_compiled(out)));
    let text = text.unwrap_or_default();
    format!("export default \"{text}\";\n")
}

pub fn print_sizes(workspace: &Workspace) -> Result<()> {
    let print = |module| product::print_sizes(workspace, &workspace.worker_dir().join(module));
    MODULES.into_iter().try_for_each(print)
}

/// Fills `folder` with the imports of `entry.mjs`; it is replaced when all of them are made.
fn bind(workspace: &Workspace, linked: &Path, folder: &Path) -> Result<()> {
    let glue = workspace.out.join("worker-bindgen");
    files::remove_all(&glue)?;
    let mut bindgen = Command::new(cargo_tools::WORKER_BINDGEN.path(workspace));
    run::output(bindgen.arg(linked).arg(&glue), "read the output of wasm-bindgen")?;
    let index = glue.join("index.js");
    let text = files::text(&index)?;
    files::write(&index, glue::mend(&text))?;
    files::atomically(folder, |partial| {
        let optimised = glue.join("optimised.wasm");
        product::optimise(workspace, WASM_OPT, &glue.join("index_bg.wasm"), &optimised)?;
        write_module(&optimised, partial)?;
        let mut bundle = Command::new(npm::bin(workspace).join("esbuild"));
        bundle.current_dir(&glue).args(ESBUILD).arg("./index.js");
        bundle.arg(format!("--outfile={}", partial.join("index.js").display()));
        run::output(env::with_tools(workspace, &mut bundle), "read the output of esbuild").map(drop)
    })
}

/// Writes the module at `from` as it is deployed: without names of functions, and these in a file.
fn write_module(from: &Path, folder: &Path) -> Result<()> {
    let what = "cannot write the module";
    let wrong = |why: String| Problem::new(what, why, "see crates/xtask/src/build/names.rs");
    let module = files::bytes(from)?;
    let functions = names::functions(&module).map_err(wrong)?;
    let name = format!("tollgate-worker-{}", names::build_of(&module));
    let files = [
        ("index_bg.wasm", names::named(&module, &name).map_err(wrong)?),
        ("names.txt", names::lines(&name, &functions).into_bytes()),
    ];
    files.into_iter().try_for_each(|(file, bytes)| files::write(folder.join(file), bytes))
}
