//! The parts of a release: each with its files, and the packages that are linked into them.
//!
//! Invariant: this list is the only one. A missing file is an error.

use super::{command_line, names::CRATES};
use crate::{
    build::{
        archive::{Entry, gzip, tar},
        envoy, worker,
    },
    files,
    linked::{Build, NATIVE_TARGET},
    problem::Result,
    versions::{AARCH64_TARGET, TOLLGATE as VERSION, WASM_TARGET},
    workspace::Workspace,
};
use std::path::Path;

/// Programs and their packages.
const PROGRAMS: [(&str, &str); 2] =
    [("tollgate", "tollgate-cli"), ("tollgate-server", "tollgate-server")];
/// The folders with container files and what they mount.
const CONTAINERS: [&str; 2] = ["envoy", "fleet"];
const TEXTS: [&str; 2] = ["LICENSE", "NOTICE"];

pub struct Part {
    /// The name of its list of parts.
    pub name: String,
    pub files: Vec<File>,
    /// None where nothing is compiled.
    pub linked: Option<Linked>,
}

pub struct File {
    pub name: String,
    pub bytes: Vec<u8>,
    pub is_program: bool,
}

/// A part whose dependencies cargo lists.
pub struct Linked {
    pub build: Build,
    /// A word of CycloneDX.
    pub kind: &'static str,
}

/// With the default features.
fn linked(package: &'static str, target: &'static str, kind: &'static str) -> Linked {
    Linked { build: Build { package, target, features: &[] }, kind }
}

pub fn all(workspace: &Workspace) -> Result<Vec<Part>> {
    let mut parts = vec![];
    for module in envoy::ALL {
        parts.push(filter(workspace, module)?);
    }
    parts.push(dynamic_module(NATIVE_TARGET, &workspace.envoy_module())?);
    parts.push(dynamic_module(AARCH64_TARGET, &workspace.envoy_module_for_aarch64())?);
    parts.push(worker_modules(workspace)?);
    for (program, package) in PROGRAMS {
        let name = format!("{program}-{VERSION}-{NATIVE_TARGET}");
        let file = workspace.target.join("release-test").join(program);
        let mut files = vec![File { is_program: true, ..data(name.clone(), &file)? }];
        if package == "tollgate-cli" {
            files.extend(installable(workspace, &files[0].bytes)?);
        }
        let linked = linked(package, NATIVE_TARGET, "application");
        parts.push(Part { name, files, linked: Some(linked) });
    }
    for package in CRATES {
        let name = format!("{package}-{VERSION}");
        let file = workspace.out.join(format!("crates/package/{name}.crate"));
        let files = vec![data(format!("{name}.crate"), &file)?];
        let linked = linked(package, NATIVE_TARGET, "library");
        parts.push(Part { name, files, linked: Some(linked) });
    }
    parts.push(containers(workspace)?);
    let texts = TEXTS.map(|text| data(text.to_owned(), &workspace.root.join(text)));
    let files = texts.into_iter().collect::<Result<_>>()?;
    parts.push(Part { name: "texts".to_owned(), files, linked: None });
    Ok(parts)
}

/// The command line as a package for npm and one for pip.
fn installable(workspace: &Workspace, program: &[u8]) -> Result<[File; 2]> {
    let npm = command_line::npm(workspace, program)?;
    let (wheel_name, wheel) = command_line::wheel(workspace, program)?;
    Ok([
        File { name: command_line::npm_name(), bytes: npm, is_program: false },
        File { name: wheel_name, bytes: wheel, is_program: false },
    ])
}

/// A module, and the same as an image.
fn filter(workspace: &Workspace, module: &envoy::Module) -> Result<Part> {
    let file = module.file;
    let name = file.trim_end_matches(".wasm").to_owned();
    let image = entries(&workspace.images_dir().join(&name), "")?;
    let files = vec![
        data(file.to_owned(), &workspace.out.join(file))?,
        File { name: format!("{name}.oci.tar"), bytes: tar(&image)?, is_program: false },
    ];
    let mut linked = linked("tollgate-envoy", WASM_TARGET, "application");
    linked.build.features = module.features;
    Ok(Part { name, files, linked: Some(linked) })
}

/// The dynamic module for a target.
fn dynamic_module(target: &'static str, file: &Path) -> Result<Part> {
    let name = format!("tollgate-envoy-module-{VERSION}-{target}");
    let files = vec![data(format!("{name}.so"), file)?];
    let linked = linked("tollgate-envoy-module", target, "library");
    Ok(Part { name, files, linked: Some(linked) })
}

/// The files that `wrangler deploy` uploads, with the file that lists them; and the npm package.
fn worker_modules(workspace: &Workspace) -> Result<Part> {
    let mut modules = entries(&workspace.worker_dir(), "")?;
    let text = files::text(workspace.root.join("wrangler.toml"))?;
    modules.push(Entry { name: "wrangler.toml".to_owned(), bytes: built(&text).into_bytes() });
    for text in TEXTS {
        modules.push(entry(text.to_owned(), &workspace.root.join(text))?);
    }
    let npm = workspace.npm_package();
    let npm_name = npm.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = format!("tollgate-worker-modules-{VERSION}.tar.gz");
    let files = vec![
        File { name, bytes: gzip(&tar(&modules)?)?, is_program: false },
        data(npm_name, &npm)?,
    ];
    let linked = linked("tollgate-worker", WASM_TARGET, "application");
    Ok(Part { name: format!("tollgate-worker-{VERSION}"), files, linked: Some(linked) })
}

/// The configuration for modules that are built, next to them.
fn built(wrangler: &str) -> String {
    let main = format!("main = \"crates/tollgate-worker/{}\"", worker::MAIN);
    let text = wrangler.replace(&main, &format!("main = \"{}\"", worker::MAIN));
    let mut is_build = false;
    let kept = text.lines().filter(|line| {
        is_build = line.starts_with("[build]") || is_build && !line.trim().is_empty();
        !is_build
    });
    kept.map(|line| format!("{line}\n")).collect()
}

/// As they lie in the repository, with the modules where they are mounted from.
fn containers(workspace: &Workspace) -> Result<Part> {
    let mut all = vec![];
    for folder in CONTAINERS {
        all.extend(entries(&workspace.root.join(folder), &format!("{folder}/"))?);
    }
    for module in envoy::MODULES {
        all.push(entry(format!("target/tollgate/{module}"), &workspace.out.join(module))?);
    }
    let name = format!("tollgate-containers-{VERSION}");
    let bytes = gzip(&tar(&all)?)?;
    let files = vec![File { name: format!("{name}.tar.gz"), bytes, is_program: false }];
    Ok(Part { name, files, linked: None })
}

/// Every file below `folder`, in the order of names.
fn entries(folder: &Path, prefix: &str) -> Result<Vec<Entry>> {
    let mut all = vec![];
    for path in files::sorted(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match path.is_dir() {
            true => all.extend(entries(&path, &format!("{prefix}{name}/"))?),
            false => all.push(entry(format!("{prefix}{name}"), &path)?),
        }
    }
    Ok(all)
}

fn entry(name: String, file: &Path) -> Result<Entry> {
    Ok(Entry { name, bytes: files::bytes(file)? })
}

fn data(name: String, file: &Path) -> Result<File> {
    Ok(File { name, bytes: files::bytes(file)?, is_program: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards: an operator that unpacks the modules deploys them, and builds nothing.
    #[test]
    fn wrangler_finds_the_modules_beside_its_file() {
        let text = "a = 1\nmain = \"crates/tollgate-worker/entry.mjs\"\n\n[build]\ncommand = \"x\"\n\n[[rules]]\nb = 2\n";
        assert_eq!(built(text), "a = 1\nmain = \"entry.mjs\"\n\n\n[[rules]]\nb = 2\n");
    }
}
