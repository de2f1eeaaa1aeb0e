//! The scripts of the pages, checked by the compiler of TypeScript: the types are in their comments
//! (JSDoc).
//!
//! Invariant: every module of both pages is checked, strictly, against the packages that they are
//! bundled with. Of files that only the build makes, only their existence is known.

use crate::{env, files, problem::Result, run, tools::npm, workspace::Workspace};
use std::{path::Path, process::Command};

/// The locations of modules.
const PAGES: [&str; 2] = ["crates/tollgate-playground/web", "crates/tollgate-service/page"];

/// Files that the build adds: wasm, the glue to it, and the name of a file.
const BUILT: &str = r#"declare module "*.wasm";
declare module "tollgate";
declare module "tollgate-logs";
declare const WORKER_URL: string;
"#;

pub fn check(workspace: &Workspace) -> Result<()> {
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
        PAGES.iter().map(|page| text(&format!("{}/*.js", root.join(page).display()))).collect();
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
