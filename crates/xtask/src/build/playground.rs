//! The playground's page: compiled, bound to JavaScript, optimised and bundled as static files.
//!
//! Invariant: `target/tollgate/playground` holds every file that the page ever asks for and nothing
//! else, in one folder, so that it works below any path of any static server. All names but
//! `index.html` hold a hash of their content. What is fetched before the user acts is at most
//! [`FIRST_LOAD`] bytes, gzipped, or the build fails. Nothing is downloaded but the pinned tools.
//!
//! The bundler gives the sources in `web/`:
//!
//! | in the sources | what it becomes |
//! |---|---|
//! | `import init, { check } from "tollgate"` | the JavaScript of wasm-bindgen |
//! | `import module from "tollgate.wasm"` | the name of the module's file, beside the script |
//! | `WORKER_URL` in `main.js` | the name of the bundled `worker.js`, beside the script |
//! | `href="style.css"`, `src="main.js"` in `index.html` | the names of the bundled files |
//! | `<meta charset="utf-8">` in `index.html` | the same, and behind it what the page may do |
//! | `await import("./editor.js")` | a file of its own, fetched when it is asked for |

use super::{product, worker};
use crate::{
    env,
    problem::{OrProblem, Problem, Result},
    run::{self, Runner},
    tools::{
        self, cargo_tools, node, page,
        place::{atomically, remove_all},
    },
    versions::{BINARYEN, WASM_BINDGEN, WASM_TARGET},
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the page may fetch before the user acts, gzipped: a second on a slow telephone.
const FIRST_LOAD: usize = 400_000;

/// What the page and its files may do: one line. The page says it of itself, so that it holds on
/// any server; ours and the Worker send it with every file.
const CONTENT_SECURITY_POLICY: &str = "crates/tollgate-playground/csp.txt";
/// Where the page lies among the Worker's assets. It is a part of their paths, so that no file
/// stands at a path of an origin, however the assets are configured.
const ASSETS_FOLDER: &str = "assets/.well-known/tollgate/playground";
/// In the root Cargo.toml: small before fast.
const PROFILE: &str = "page";
const SOURCES: &str = "crates/tollgate-playground/web";
const MODULE: &str = "tollgate_bg.wasm";
const PAGE: &str = "index.html";

/// What rustc 1.95 uses by default; names of functions go.
const WASM_OPT: &[&str] = &[
    "--enable-mutable-globals",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-reference-types",
    "--strip-producers",
    "-O3",
];

/// Browsers of the last two years.
const ESBUILD: &[&str] = &[
    "--bundle",
    "--minify",
    "--format=esm",
    "--target=chrome120,firefox121,safari17.2",
    "--loader:.wasm=file",
    "--entry-names=[name]-[hash]",
    "--asset-names=[name]-[hash]",
    "--chunk-names=[name]-[hash]",
    "--legal-comments=none",
    "--log-level=warning",
];

/// `cargo xtask playground`; what the compiler says is shown.
pub fn build(workspace: &Workspace) -> Result<()> {
    compile(workspace, &run::shown)?;
    package(workspace)?;
    print_sizes(workspace)
}

pub fn compile(workspace: &Workspace, run: Runner) -> Result<()> {
    tools::ensure(workspace, &[&tools::WASM_TARGET])?;
    worker::same_wasm_bindgen(workspace)?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&workspace.root);
    cargo.args(["build", "--profile", PROFILE, "-p", "tollgate-playground"]);
    cargo.args(["--target", WASM_TARGET]);
    run(&mut cargo, "fix what the compiler says")
}

/// Makes the page out of what was compiled and of `web/`.
pub fn package(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_PLAYGROUND)?;
    let bound = bind(workspace)?;
    atomically(&workspace.playground_dir(), |folder| {
        let worker = bundle(workspace, &bound, folder, &["worker.js"], &[])?;
        let worker = worker.script("worker")?;
        let define = format!("--define:WORKER_URL=\"./{worker}\"");
        // What the editor needs is fetched after what the page needs to be seen.
        let main = ["main.js", "style.css"];
        let main = bundle(workspace, &bound, folder, &main, &["--splitting", &define])?;
        put_page(workspace, &main, folder)?;
        fs::copy(workspace.root.join("NOTICE"), folder.join("NOTICE.txt"))
            .map(drop)
            .or_problem("cannot copy NOTICE", "restore it with git")
    })?;
    first_load(workspace)?;
    atomically(&workspace.out.join(ASSETS_FOLDER), |folder| {
        files(&workspace.playground_dir())?.iter().try_for_each(|file| {
            let to = folder.join(file.file_name().unwrap_or_default());
            fs::copy(file, to).map(drop).or_problem("cannot copy the page", "free disk space")
        })
    })
}

/// The line that says what the page may do.
pub fn content_security_policy(workspace: &Workspace) -> Result<String> {
    let text = fs::read_to_string(workspace.root.join(CONTENT_SECURITY_POLICY));
    let text = text.or_problem("cannot read what the page may do", "restore it with git")?;
    Ok(text.trim().to_owned())
}

pub fn print_sizes(workspace: &Workspace) -> Result<()> {
    for file in files(&workspace.playground_dir())? {
        product::print_sizes(workspace, &file)?;
    }
    println!("  first load {} of {FIRST_LOAD} bytes gzipped", first_load(workspace)?);
    Ok(())
}

/// The module and its JavaScript in a folder, made again only when the module changed.
fn bind(workspace: &Workspace) -> Result<PathBuf> {
    let linked = workspace.target.join(WASM_TARGET).join(PROFILE).join("tollgate_playground.wasm");
    let module = fs::read(&linked).or_problem("cannot read the linked module", "build again")?;
    let folder = workspace.out.join("playground-bindgen");
    let stamp = workspace.out.join("tollgate-playground.stamp");
    let how = format!("{WASM_BINDGEN} {BINARYEN} {}", WASM_OPT.join(" "));
    let made = [folder.join(MODULE), folder.join("tollgate.js")];
    if product::is_made(&stamp, &module, &how, &made) {
        return Ok(folder);
    }
    remove_all(&folder)?;
    let mut bindgen = Command::new(cargo_tools::page_bindgen_bin(workspace).join("page-bindgen"));
    run::output(bindgen.arg(&linked).arg(&folder), "see what wasm-bindgen says")?;
    let (bound, optimised) = (folder.join(MODULE), folder.join("optimised.wasm"));
    let mut optimise = Command::new(node::bin(workspace).join("wasm-opt"));
    optimise.args(WASM_OPT).arg(&bound).arg("-o").arg(&optimised);
    run::output(env::with_tools(workspace, &mut optimise), "see what wasm-opt says")?;
    fs::rename(&optimised, &bound).or_problem("cannot replace the module", "free disk space")?;
    product::remember(&stamp, &module, &how)?;
    Ok(folder)
}

/// What the bundler wrote: the metadata that it gives.
struct Bundle(Value);

fn bundle(
    workspace: &Workspace,
    bound: &Path,
    folder: &Path,
    entries: &[&str],
    extra: &[&str],
) -> Result<Bundle> {
    let metadata = workspace.out.join("playground-bundle.json");
    let mut esbuild = Command::new(node::bin(workspace).join("esbuild"));
    esbuild.current_dir(workspace.root.join(SOURCES)).args(ESBUILD).args(extra).args(entries);
    esbuild.env("NODE_PATH", page::modules(workspace));
    esbuild.arg(format!("--alias:tollgate={}", bound.join("tollgate.js").display()));
    esbuild.arg(format!("--alias:tollgate.wasm={}", bound.join(MODULE).display()));
    esbuild.arg(format!("--outdir={}", folder.display()));
    esbuild.arg(format!("--metafile={}", metadata.display()));
    run::output(env::with_tools(workspace, &mut esbuild), "see what esbuild says")?;
    let fix = "run again";
    let text = fs::read_to_string(&metadata).or_problem("cannot read what esbuild wrote", fix)?;
    serde_json::from_str(&text).map(Bundle).or_problem("cannot read what esbuild wrote", fix)
}

impl Bundle {
    /// The file that an entry became, by its name without its kind.
    fn output(&self, name: &str, kind: &str) -> Result<String> {
        let outputs = self.0["outputs"].as_object().into_iter().flatten();
        let entry = format!("{name}.{kind}");
        let of_entry = |(_, output): &(&String, &Value)| output["entryPoint"] == *entry;
        let file = outputs.clone().find(of_entry).and_then(|(path, _)| path.rsplit('/').next());
        file.map(str::to_owned).ok_or_else(|| {
            let why = format!("esbuild made nothing of {entry}");
            Problem::new("the page is incomplete", why, format!("see {SOURCES}"))
        })
    }

    fn script(&self, name: &str) -> Result<String> {
        self.output(name, "js")
    }
}

/// The page with the names of its files.
fn put_page(workspace: &Workspace, main: &Bundle, folder: &Path) -> Result<()> {
    let path = workspace.root.join(SOURCES).join(PAGE);
    let text = fs::read_to_string(path).or_problem("cannot read the page", "restore it")?;
    let text = renamed(&text, "src=\"main.js\"", &format!("src=\"{}\"", main.script("main")?))?;
    let style = format!("href=\"{}\"", main.output("style", "css")?);
    let text = renamed(&text, "href=\"style.css\"", &style)?;
    let policy = content_security_policy(workspace)?;
    let charset = "<meta charset=\"utf-8\">";
    let meta =
        format!("{charset}<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    let text = renamed(&text, charset, &meta)?;
    fs::write(folder.join(PAGE), text).or_problem("cannot write the page", "free disk space")
}

fn renamed(text: &str, from: &str, to: &str) -> Result<String> {
    match text.matches(from).count() {
        1 => Ok(text.replace(from, to)),
        count => {
            let why = format!("{SOURCES}/{PAGE} holds {from} {count} times");
            Err(Problem::new("the page cannot name its files", why, "write it once"))
        }
    }
}

/// What the page fetches before the user acts, in bytes, gzipped: everything but the licences.
fn first_load(workspace: &Workspace) -> Result<usize> {
    let mut sum = 0;
    for file in files(&workspace.playground_dir())? {
        if file.extension().is_some_and(|kind| kind != "txt") {
            sum += product::sizes(&file)?.1;
        }
    }
    if sum <= FIRST_LOAD {
        return Ok(sum);
    }
    let why = format!("{sum} bytes, gzipped, are fetched before the user acts");
    let fix = format!("take something out until at most {FIRST_LOAD} are left");
    Err(Problem::new("the playground is too large", why, fix))
}

/// In the order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder);
    let entries = entries.or_problem("cannot read the page", "cargo xtask playground")?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_names_its_files_or_is_refused() {
        assert_eq!(renamed("<a src=\"x\">", "src=\"x\"", "src=\"y\"").unwrap(), "<a src=\"y\">");
        assert!(renamed("<a>", "src=\"x\"", "").is_err());
        assert!(renamed("src=\"x\" src=\"x\"", "src=\"x\"", "").is_err());
    }

    #[test]
    fn an_entry_is_found_among_what_was_written() {
        let outputs = json!({"outputs": {
            "../out/chunk-1.js": {}, "../out/main-2.js": {"entryPoint": "main.js"}}});
        let bundle = Bundle(outputs);
        assert_eq!(bundle.script("main").unwrap(), "main-2.js");
        assert!(bundle.output("style", "css").is_err());
    }
}
