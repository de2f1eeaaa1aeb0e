//! The playground in a real Chromium, compared with the command line that it must equal, and the
//! admin page in front of a real workerd.
//!
//! Invariant: the tested pages are those that `cargo xtask playground` makes: the one served below
//! two paths as any server of static files would, the other by the Worker as it is deployed. The
//! tests themselves are `tests/browser/playground.mjs` and `tests/browser/admin.mjs`.

use crate::{
    build::{admin_page, playground, server, worker},
    env, files,
    problem::{OrProblem, Problem, Result},
    run,
    servers::{free_port, static_files, workerd},
    tools::{apt, npm},
    workspace::Workspace,
};
use std::{collections::BTreeMap, os::unix::fs::symlink, path::Path, process::Command};

/// Its folder where it is served the second time: no file of the page may know its path.
const BELOW: &str = "some/where";

/// The locations of the pages' modules, some of which need no browser to be tested.
const SCRIPTS: [&str; 2] = ["crates/tollgate-playground/web", "crates/tollgate-service/page"];

/// The settings for the test of the admin page; secrets of this run only.
const SECRETS: [(&str, &str); 5] = [
    ("ADMIN_TOKEN", "the-token-of-this-test"),
    ("READ_TOKEN", "what-reads-in-this-test"),
    ("METRICS_TOKEN", "what-reads-metrics-here"),
    ("AUDIT_HEADER", "x-who"),
    ("METRICS_INTERVAL_S", "1"),
];
const HEALTH: &str = "/.well-known/tollgate/health";

/// The parts that need no browser: links, drawings, numbers, the reading of files.
pub fn scripts(workspace: &Workspace) -> Result<()> {
    SCRIPTS.iter().try_for_each(|scripts| {
        let mut node = Command::new(npm::node(workspace));
        node.current_dir(workspace.root.join(scripts)).arg("--test");
        run::shown(env::with_tools(workspace, &mut node), "read the failed test")
    })
}

/// Files that the build adds: wasm, the glue to it, and the name of a file.
const BUILT: &str = r#"declare module "*.wasm";
declare module "tollgate";
declare module "tollgate-logs";
declare const WORKER_URL: string;
"#;

/// The scripts of the pages, checked by the compiler of TypeScript: the types are in their comments
/// (JSDoc). Every module of both pages, strictly, against the packages that they are bundled with;
/// of files that only the build makes, only their existence is known.
pub fn types(workspace: &Workspace) -> Result<()> {
    let folder = workspace.out.join("page-types");
    files::write(folder.join("built.d.ts"), BUILT)?;
    let config = config(&workspace.root, &npm::PAGE.modules(workspace));
    files::write(folder.join("tsconfig.json"), config)?;
    let mut tsc = Command::new(npm::node(workspace));
    tsc.arg(npm::TYPES.modules(workspace).join("typescript/bin/tsc")).arg("-p").arg(&folder);
    run::shown(env::with_tools(workspace, &mut tsc), "fix the errors of the compiler")
}

fn config(root: &Path, packages: &Path) -> String {
    let text = |text: &str| format!("{text:?}");
    let modules: Vec<String> =
        SCRIPTS.iter().map(|page| text(&format!("{}/*.js", root.join(page).display()))).collect();
    let packages = text(&format!("{}/*", packages.display()));
    format!(
        r#"{{
  "compilerOptions": {{
    "target": "es2024", "module": "esnext", "moduleResolution": "bundler",
    "lib": ["es2024", "dom", "dom.iterable"], "types": [], "paths": {{"*": [{packages}]}},
    "strict": true, "noEmit": true, "allowJs": true, "checkJs": true
  }},
  "include": ["built.d.ts", {}]
}}"#,
        modules.join(", ")
    )
}

pub fn test(workspace: &Workspace) -> Result<()> {
    server::build(workspace, "tollgate-cli")?;
    let mut node = browser(workspace, "tests/browser/playground.mjs")?;
    let site = workspace.playground_dir();
    let above = workspace.out.join("run/above-playground");
    files::make_empty(&above.join("some"))?;
    symlink(&site, above.join(BELOW)).or_problem("cannot link the page", "free disk space")?;
    let here = static_files::serve(workspace, free_port()?, &site)?;
    let there = static_files::serve(workspace, free_port()?, &above)?;
    node.env("TOLLGATE_PLAYGROUND", format!("http://127.0.0.1:{}/", here.port));
    node.env("TOLLGATE_PLAYGROUND_BELOW", format!("http://127.0.0.1:{}/{BELOW}/", there.port));
    node.env("TOLLGATE_FIRST_LOAD", playground::FIRST_LOAD.to_string());
    node.env("TOLLGATE_CLI", workspace.cli());
    run::shown(env::with_tools(workspace, &mut node), "read the failed test")
}

pub fn build_admin(workspace: &Workspace) -> Result<()> {
    worker::compile(workspace, &run::shown)?;
    worker::package(workspace)?;
    admin_page::build(workspace)
}

pub fn test_admin(workspace: &Workspace) -> Result<()> {
    let mut node = browser(workspace, "tests/browser/admin.mjs")?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let options = workerd::Options {
        name: "admin-page",
        port: free_port()?,
        vars: BTreeMap::from(SECRETS.map(owned)),
        code: workerd::Code::Shipped,
        has_assets: true,
        ready: HEALTH,
    };
    let server = workerd::start(workspace, options)?;
    node.env("TOLLGATE_WORKER", format!("http://127.0.0.1:{}", server.port));
    node.envs(SECRETS);
    run::shown(env::with_tools(workspace, &mut node), "read the failed test")
}

/// A script that drives Chromium.
fn browser(workspace: &Workspace, script: &str) -> Result<Command> {
    let chromium = apt::find_program("chromium").ok_or_else(|| {
        Problem::new("cannot test the page", "there is no chromium", "apt-get install chromium")
    })?;
    let mut node = Command::new(npm::node(workspace));
    node.current_dir(&workspace.root).arg(script);
    node.env("TOLLGATE_PAGE_MODULES", npm::PAGE.modules(workspace));
    node.env("TOLLGATE_CHROMIUM", chromium);
    node.env("TOLLGATE_PICTURES", workspace.out.join("pictures"));
    Ok(node)
}
