//! Plain workerd serving the Worker as it is deployed, configured from `wrangler.toml`.
//!
//! Invariant: main module, variables, Durable Objects and compatibility date come from
//! `wrangler.toml`, so the code that runs here is the code that deploys. `wrangler dev` is not
//! used: it is 14 times slower and starts helpers of its own.

use super::{STOP_TIMEOUT, Server, log_to};
use crate::{
    build::worker::{COMPILED, MAIN, MODULES, POLICY, TWIN_MODULES, compiled},
    children::{self, Stop},
    files,
    problem::{OrProblem, Problem, Result},
    tools::npm,
    workspace::Workspace,
};
use std::{collections::BTreeMap, path::Path, process::Command};
use toml::{Table, Value};

/// The code that runs.
#[derive(Debug, Clone)]
pub enum Code {
    Shipped,
    /// The shipped Worker with this policy instead of the bundled one.
    WithPolicy(String),
    /// One JavaScript module instead of it, to be compared with. It exports a class `Limiter`, too.
    Script(&'static str),
    /// The twins of the Worker in Rust, built as it is built: `tests/twin`.
    Twin,
}

impl Code {
    /// Whether it decides.
    pub const fn is_ours(&self) -> bool {
        matches!(self, Self::Shipped | Self::WithPolicy(_))
    }
}

/// The class of the code that is compared with.
const SCRIPT_CLASS: &str = "Limiter";
const ASSETS: &str = "assets.mjs";

/// The platform's handling of assets: files by their paths, a folder's page, and their types.
const ASSETS_SCRIPT: &str = include_str!("workerd-assets.mjs");

/// One workerd to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names its folder in `target/tollgate/run/`; unique among those running.
    pub name: &'static str,
    pub port: u16,
    /// These win over `[vars]`.
    pub vars: BTreeMap<String, String>,
    pub code: Code,
    /// Whether `target/tollgate/assets` is bound, as the block of assets in wrangler.toml does it.
    pub has_assets: bool,
    /// A path that responds once it is up.
    pub ready: &'static str,
}

/// Starts with empty storage.
pub fn start(workspace: &Workspace, options: Options) -> Result<Server> {
    let folder = workspace.out.join("run").join(options.name);
    files::remove_all(&folder)?;
    let storage = folder.join("storage");
    files::make_folder(&storage)?;
    put_modules(workspace, &options.code, &folder)?;
    if options.has_assets {
        files::write(folder.join(ASSETS), ASSETS_SCRIPT)?;
    }
    let capnp = folder.join("worker.capnp");
    let manifest = files::text(workspace.root.join("wrangler.toml"))?;
    let files = workspace.out.join("assets").display().to_string();
    let text = config(&manifest, &options, &storage.display().to_string(), &files)?;
    files::write(&capnp, text)?;
    let log = folder.join("workerd.log");
    let mut command = Command::new(npm::workerd(workspace));
    command.arg("serve").arg(&capnp);
    log_to(&mut command, &log)?;
    let running = children::spawn(&mut command, Stop::Leader(STOP_TIMEOUT))?;
    let server = Server { name: options.name, port: options.port, running, log };
    server.wait_until_ready(options.port, options.ready)
}

fn put_modules(workspace: &Workspace, code: &Code, folder: &Path) -> Result<()> {
    if let Code::Script(script) = code {
        return files::write(folder.join(MAIN), script);
    }
    let (modules, made) = match code {
        Code::Twin => (&TWIN_MODULES[..], workspace.twin_dir()),
        _ => (&MODULES[..], workspace.worker_dir()),
    };
    for module in modules {
        files::copy(made.join(module), folder.join(module))?;
    }
    match code {
        Code::WithPolicy(policy) => {
            files::write(folder.join(COMPILED), compiled(policy))?;
            files::write(folder.join(POLICY), policy)
        }
        Code::Shipped | Code::Script(_) | Code::Twin => Ok(()),
    }
}

fn config(manifest: &str, options: &Options, storage: &str, files: &str) -> Result<String> {
    let fix = "make wrangler.toml and crates/xtask/src/servers/workerd.rs agree";
    let manifest: Table = manifest.parse().or_problem("cannot read wrangler.toml", fix)?;
    let date = text_at(&manifest, "compatibility_date")?;
    let (objects, mut bindings) = objects(&manifest, &options.code)?;
    let mut vars = BTreeMap::new();
    for (name, value) in manifest.get("vars").and_then(Value::as_table).into_iter().flatten() {
        vars.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    vars.extend(options.vars.clone());
    for (name, value) in &vars {
        bindings.push(format!("(name = {}, text = {})", quoted(name), quoted(value)));
    }
    let (mut services, mut workers) = (String::new(), String::new());
    if options.has_assets {
        bindings.push("(name = \"ASSETS\", service = \"assets\")".to_owned());
        services = format!(
            "    (name = \"assets\", worker = .assets),\n    (name = \"files\", disk = (path = {}, \
             allowDotfiles = true)),\n",
            quoted(files)
        );
        workers = format!(
            "const assets :Workerd.Worker = (\n  modules = [{}],\n  compatibilityDate = {},\n  bindings = \
             [(name = \"FILES\", service = \"files\")],\n);\n",
            module(ASSETS),
            quoted(date)
        );
    }
    let address = format!("127.0.0.1:{}", options.port);
    let modules: Vec<String> = match options.code {
        Code::Script(_) => vec![module(MAIN)],
        Code::Twin => TWIN_MODULES.map(module).into(),
        Code::Shipped | Code::WithPolicy(_) => MODULES.map(module).into(),
    };
    Ok(format!(
        "using Workerd = import \"/workerd/workerd.capnp\";\n\
         const config :Workerd.Config = (\n  services = [\n    (name = \"main\", worker = .worker),\n    \
         (name = \"storage\", disk = (path = {storage}, writable = true)),\n    \
         (name = \"internet\", network = (allow = [\"public\", \"private\", \"local\"])),\n{services}  ],\n  \
         sockets = [(name = \"http\", address = {address}, http = (), service = \"main\")],\n);\n\
         const worker :Workerd.Worker = (\n  modules = [{modules}],\n  compatibilityDate = {date},\n  \
         durableObjectNamespaces = [{objects}],\n  durableObjectStorage = (localDisk = \"storage\"),\n  \
         bindings = [{bindings}],\n);\n{workers}",
        storage = quoted(storage),
        address = quoted(&address),
        modules = modules.join(", "),
        date = quoted(date),
        objects = objects.join(", "),
        bindings = bindings.join(", "),
    ))
}

/// The namespaces of Durable Objects and the bindings to them, as far as `code` has their classes.
fn objects(manifest: &Table, code: &Code) -> Result<(Vec<String>, Vec<String>)> {
    let (mut namespaces, mut bindings) = (Vec::new(), Vec::new());
    let listed = manifest.get("durable_objects").and_then(|table| table.get("bindings"));
    for object in listed.and_then(Value::as_array).into_iter().flatten() {
        let object = object.as_table().ok_or_else(|| lacks("durable_objects.bindings"))?;
        let (class, name) = (text_at(object, "class_name")?, text_at(object, "name")?);
        if !code.is_ours() && class != SCRIPT_CLASS {
            continue;
        }
        let (class, name) = (quoted(class), quoted(name));
        namespaces.push(format!("(className = {class}, uniqueKey = {class}, enableSql = true)"));
        bindings.push(format!("(name = {name}, durableObjectNamespace = {class})"));
    }
    Ok((namespaces, bindings))
}

fn text_at<'a>(table: &'a Table, key: &str) -> Result<&'a str> {
    table.get(key).and_then(Value::as_str).ok_or_else(|| lacks(key))
}

fn lacks(key: &str) -> Problem {
    Problem::new("cannot use wrangler.toml", format!("it lacks {key}"), format!("add {key}"))
}

fn module(path: &str) -> String {
    let kind = match path.rsplit('.').next() {
        Some("js" | "mjs") => "esModule",
        Some("wasm") => "wasm",
        _ => "text",
    };
    // Named as `entry.mjs` imports it.
    format!("(name = {name}, {kind} = embed {name})", name = quoted(path))
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_follows_wrangler_toml() {
        let manifest = "compatibility_date = \"2026-01-02\"\n[vars]\nORIGIN = \"x\"\nN = 3\n\
                        [durable_objects]\nbindings = [{ name = \"L\", class_name = \"Lim\" }]\n";
        let vars = BTreeMap::from([("ORIGIN".to_owned(), "say \"hi\"".to_owned())]);
        let options = Options {
            name: "t",
            port: 1,
            vars,
            code: Code::Shipped,
            has_assets: false,
            ready: "/",
        };
        let text = config(manifest, &options, "/s", "/f").unwrap();
        assert!(text.contains(r#"(name = "L", durableObjectNamespace = "Lim")"#), "{text}");
        assert!(text.contains(r#"(name = "ORIGIN", text = "say \"hi\"")"#), "{text}");
        assert!(text.contains(r#"(name = "N", text = "3")"#), "{text}");
        assert!(text.contains(r#"compatibilityDate = "2026-01-02""#), "{text}");
    }

    #[test]
    fn a_manifest_without_a_date_is_refused() {
        let options = Options {
            name: "t",
            port: 1,
            vars: BTreeMap::new(),
            code: Code::Script(""),
            has_assets: false,
            ready: "/",
        };
        assert!(config("", &options, "/s", "/f").unwrap_err().why.contains("compatibility_date"));
    }
}
