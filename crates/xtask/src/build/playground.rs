//! The playground's page: compiled, bound to JavaScript, optimised and bundled as static files.
//!
//! Invariant: `target/tollgate/playground` contains every file that the page requests and nothing
//! else, in one folder, so that it works below any path of any static server. All names except
//! `index.html` contain a hash of the content. The files that the page fetches before the user
//! acts, that is, those that its scripts import at once, have at most [`FIRST_LOAD`] bytes,
//! gzipped, or the build fails. Only the pinned tools are downloaded.
//!
//! The bundler replaces in the sources in `web/`:
//!
//! | in the sources | in the result |
//! |---|---|
//! | `import init, { check } from "tollgate"` | the JavaScript of wasm-bindgen: the feature `lanes` |
//! | `import module from "tollgate.wasm"` | the name of the module's file, next to the script |
//! | `"tollgate-logs"`, `"tollgate-logs.wasm"` | the same for the feature `logs` |
//! | `WORKER_URL` in `main.js` | the name of the bundled `worker.js`, next to the script |
//! | `href="style.css"`, `src="main.js"` in `index.html` | the names of the bundled files |
//! | `<meta charset="utf-8">` in `index.html` | the same, followed by the permissions of the page |
//! | `await import("./editor.js")` | a separate file, fetched on demand |

use super::product;
use crate::{
    env, files,
    problem::{OrProblem, Problem, Result},
    run::{self, Runner},
    tools::{self, cargo_tools, npm},
    versions::{BINARYEN, WASM_BINDGEN, WASM_TARGET},
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The most bytes that the page fetches before the user acts, gzipped: a second on a slow phone.
pub const FIRST_LOAD: usize = 500_000;

/// The permissions of the page and its files: one line. The page contains it, so that it holds on
/// any server; our server and the Worker send it with every file.
const CONTENT_SECURITY_POLICY: &str = "crates/tollgate-playground/csp.txt";
/// The folder of the page among the Worker's assets. It is a part of their paths, so that no file
/// is at a path of an origin, however the assets are configured.
const ASSETS_FOLDER: &str = "assets/.well-known/tollgate/playground";
/// In the root Cargo.toml: small before fast.
const PROFILE: &str = "page";
const SOURCES: &str = "crates/tollgate-playground/web";
/// The modules of the page, each of one feature of the crate, by their names in the bundler.
const MODULES: [(&str, &str); 2] = [("lanes", "tollgate"), ("logs", "tollgate-logs")];
pub(super) const PAGE: &str = "index.html";

/// The features that rustc 1.95 uses by default; names of functions are removed. Without inlining,
/// which makes a gzipped module an eighth larger; and with similar functions next to each other,
/// above all instances of one function, which makes it a twentieth smaller.
const WASM_OPT: &[&str] = &[
    "--enable-mutable-globals",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-reference-types",
    "--strip-producers",
    "-O2",
    "--skip-pass=inlining-optimizing",
    "--reorder-functions-by-name",
];

/// Browsers of the last two years.
const ESBUILD: &[&str] = &[
    "--bundle",
    "--minify",
    "--format=esm",
    "--splitting",
    "--target=chrome120,firefox121,safari17.2",
    "--loader:.wasm=file",
    "--entry-names=[name]-[hash]",
    "--asset-names=[name]-[hash]",
    "--chunk-names=[name]-[hash]",
    "--legal-comments=none",
    "--log-level=warning",
];

/// `cargo xtask playground`; shows the output of the compiler.
pub fn build(workspace: &Workspace) -> Result<()> {
    compile(workspace, &run::shown)?;
    package(workspace)?;
    print_sizes(workspace)
}

pub fn compile(workspace: &Workspace, run: Runner) -> Result<()> {
    tools::ensure(workspace, &[&tools::WASM_TARGET])?;
    MODULES.iter().try_for_each(|(feature, _)| {
        let mut cargo = workspace.cargo();
        cargo.args(["build", "--profile", PROFILE, "-p", "tollgate-playground"]);
        cargo.args(["--target", WASM_TARGET, "--no-default-features", "--features", feature]);
        run(&mut cargo, "fix the errors of the compiler")?;
        // The next one has the same name.
        let linked = workspace.target.join(WASM_TARGET).join(PROFILE);
        files::copy(linked.join("tollgate_playground.wasm"), linked_of(workspace, feature))
    })
}

/// The linked module of a feature.
fn linked_of(workspace: &Workspace, feature: &str) -> PathBuf {
    workspace.out.join(format!("playground-{feature}.linked.wasm"))
}

/// Makes the page from the compiled modules and from `web/`.
pub fn package(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_PLAYGROUND)?;
    for (feature, name) in MODULES {
        bind(workspace, feature, name)?;
    }
    let mut at_once = 0;
    files::atomically(&workspace.playground_dir(), |folder| {
        let worker = bundle(workspace, folder, &["worker.js"], &[])?;
        let define = format!("--define:WORKER_URL=\"./{}\"", worker.output("worker.js")?);
        let main = bundle(workspace, folder, &["main.js", "style.css"], &[&define])?;
        put_page(workspace, &main, folder)?;
        let mut fetched = vec![PAGE.to_owned()];
        fetched.extend(worker.at_once(&["worker.js"]));
        fetched.extend(main.at_once(&["main.js", "style.css"]));
        fetched.sort();
        fetched.dedup();
        for file in &fetched {
            at_once += product::sizes(&folder.join(file))?.1;
        }
        files::copy(workspace.root.join("NOTICE"), folder.join("NOTICE.txt"))
    })?;
    // The zlib of servers makes a hundredth more of a module than the library that counts here.
    at_once = at_once.saturating_add(at_once.div_ceil(100));
    if at_once > FIRST_LOAD {
        print_sizes(workspace)?;
        let why = format!("up to {at_once} bytes, gzipped, are fetched before the user acts");
        let fix = format!("import less of it at once, until at most {FIRST_LOAD} are left");
        return Err(Problem::new("the playground is too large", why, fix));
    }
    println!("  up to {at_once} of {FIRST_LOAD} bytes, gzipped, are fetched before the user acts");
    files::atomically(&workspace.out.join(ASSETS_FOLDER), |folder| {
        files::sorted(workspace.playground_dir())?.iter().try_for_each(|file| {
            let to = folder.join(file.file_name().unwrap_or_default());
            files::copy(file, to)
        })
    })
}

/// The line with the permissions of the page.
pub fn content_security_policy(workspace: &Workspace) -> Result<String> {
    let text = files::text(workspace.root.join(CONTENT_SECURITY_POLICY))?;
    Ok(text.trim().to_owned())
}

pub fn print_sizes(workspace: &Workspace) -> Result<()> {
    for file in files::sorted(workspace.playground_dir())? {
        product::print_sizes(workspace, &file)?;
    }
    Ok(())
}

/// A module and its JavaScript, made again only when the module changed.
fn bind(workspace: &Workspace, feature: &str, name: &str) -> Result<()> {
    let linked = linked_of(workspace, feature);
    let module = files::bytes(&linked)?;
    let folder = bound_in(workspace, name);
    let stamp = workspace.out.join(format!("{name}-page.stamp"));
    let how = format!("{WASM_BINDGEN} {BINARYEN} {}", WASM_OPT.join(" "));
    let bound = folder.join("tollgate_bg.wasm");
    if product::is_made(&stamp, &module, &how, &[bound.clone(), folder.join("tollgate.js")]) {
        return Ok(());
    }
    files::remove_all(&folder)?;
    let mut bindgen = Command::new(cargo_tools::PAGE_BINDGEN.path(workspace));
    run::output(bindgen.arg(&linked).arg(&folder), "read the output of wasm-bindgen")?;
    let optimised = folder.join("optimised.wasm");
    product::optimise(workspace, WASM_OPT, &bound, &optimised)?;
    files::rename(&optimised, &bound)?;
    product::remember(&stamp, &module, &how)
}

/// The folder of a module that is bound to JavaScript.
fn bound_in(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.out.join("playground-bindgen").join(name)
}

/// The metadata of the bundler about its output.
pub(super) struct Bundle(Value);

/// Bundles the imports of the page, with the wasm modules.
fn bundle(ws: &Workspace, folder: &Path, entries: &[&str], extra: &[&str]) -> Result<Bundle> {
    let mut aliases: Vec<String> = extra.iter().map(|&argument| argument.to_owned()).collect();
    for (_, name) in MODULES {
        let bound = bound_in(ws, name);
        aliases.push(format!("--alias:{name}={}", bound.join("tollgate.js").display()));
        aliases.push(format!("--alias:{name}.wasm={}", bound.join("tollgate_bg.wasm").display()));
    }
    bundle_of(ws, SOURCES, folder, entries, &aliases)
}

/// Bundles `entries` of the folder `sources` into `folder`.
pub(super) fn bundle_of(
    ws: &Workspace,
    sources: &str,
    folder: &Path,
    entries: &[&str],
    extra: &[String],
) -> Result<Bundle> {
    let metadata = folder.with_extension("bundle.json");
    let mut esbuild = Command::new(npm::bin(ws).join("esbuild"));
    esbuild.current_dir(ws.root.join(sources)).args(ESBUILD).args(extra).args(entries);
    esbuild.env("NODE_PATH", npm::PAGE.modules(ws));
    esbuild.arg(format!("--outdir={}", folder.display()));
    esbuild.arg(format!("--metafile={}", metadata.display()));
    run::output(env::with_tools(ws, &mut esbuild), "read the output of esbuild")?;
    let fix = "run again";
    let text = files::text(&metadata)?;
    let bundle = serde_json::from_str(&text).map(Bundle);
    fs::remove_file(&metadata).ok();
    bundle.or_problem("cannot read the output of esbuild", fix)
}

impl Bundle {
    fn outputs(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0["outputs"].as_object().into_iter().flatten()
    }

    /// The file that an entry became.
    pub(super) fn output(&self, entry: &str) -> Result<String> {
        let mut outputs = self.outputs();
        let file = outputs.find(|(_, output)| output["entryPoint"] == *entry);
        file.map(|(path, _)| name_of(path)).ok_or_else(|| {
            let why = format!("esbuild wrote no output for {entry}");
            Problem::new("the page is incomplete", why, format!("see {SOURCES}"))
        })
    }

    /// The files that these entries became, and those that they import at once.
    fn at_once(&self, entries: &[&str]) -> Vec<String> {
        let mut wanted: Vec<&str> = self
            .outputs()
            .filter(|(_, output)| entries.iter().any(|entry| output["entryPoint"] == **entry))
            .map(|(path, _)| path.as_str())
            .collect();
        let mut next = 0;
        while let Some(path) = wanted.get(next).copied() {
            let imports = self.0["outputs"][path]["imports"].as_array().into_iter().flatten();
            for import in imports.filter(|import| import["kind"] != "dynamic-import") {
                let file = import["path"].as_str().unwrap_or_default();
                if !wanted.contains(&file) {
                    wanted.push(file);
                }
            }
            next += 1;
        }
        wanted.into_iter().map(name_of).collect()
    }
}

fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// The text of a page with the names of its files.
pub(super) fn page_of(workspace: &Workspace, sources: &str, main: &Bundle) -> Result<String> {
    let path = workspace.root.join(sources).join(PAGE);
    let text = files::text(path)?;
    let text = renamed(&text, "src=\"main.js\"", &format!("src=\"{}\"", main.output("main.js")?))?;
    let style = format!("href=\"{}\"", main.output("style.css")?);
    renamed(&text, "href=\"style.css\"", &style)
}

/// The page, with its permissions.
fn put_page(workspace: &Workspace, main: &Bundle, folder: &Path) -> Result<()> {
    let text = page_of(workspace, SOURCES, main)?;
    let policy = content_security_policy(workspace)?;
    let charset = "<meta charset=\"utf-8\">";
    let meta =
        format!("{charset}<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    let text = renamed(&text, charset, &meta)?;
    files::write(folder.join(PAGE), text)
}

fn renamed(text: &str, from: &str, to: &str) -> Result<String> {
    match text.matches(from).count() {
        1 => Ok(text.replace(from, to)),
        count => {
            let why = format!("its {PAGE} contains {from} {count} times");
            Err(Problem::new("the page cannot name its files", why, "write it once"))
        }
    }
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
    fn what_is_fetched_at_once_is_what_is_imported_at_once() {
        let import = |path: &str, kind: &str| json!({"path": path, "kind": kind});
        let outputs = json!({"outputs": {
            "../out/main-2.js": {"entryPoint": "main.js", "imports": [
                import("../out/chunk-1.js", "import-statement"),
                import("../out/editor-3.js", "dynamic-import")]},
            "../out/chunk-1.js": {"imports": [import("../out/a.wasm", "file-loader")]},
            "../out/editor-3.js": {"entryPoint": "editor.js", "imports": []},
            "../out/a.wasm": {}}});
        let bundle = Bundle(outputs);
        assert_eq!(bundle.output("main.js").unwrap(), "main-2.js");
        assert!(bundle.output("style.css").is_err());
        assert_eq!(bundle.at_once(&["main.js"]), ["main-2.js", "chunk-1.js", "a.wasm"]);
    }
}
