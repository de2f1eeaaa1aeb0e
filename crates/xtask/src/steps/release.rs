//! The content of a release: whole, the same each time, with true sums and lists of parts.
//!
//! Invariant: the judges are programs that are not ours (`sha256sum`, the schema of CycloneDX by
//! its own library, wrangler), and each must also reject a copy with a mistake. Nothing is
//! published.

use crate::{
    build::{archive, envoy::MODULES},
    env, files,
    linked::{self, NATIVE_TARGET},
    problem::{OrProblem, Problem, Result},
    release::{self, command_line, inside, names::SUMS, sums},
    run,
    tools::{npm, python},
    versions::{AARCH64_TARGET, TOLLGATE as VERSION},
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "see crates/xtask/src/release";

pub fn check(workspace: &Workspace) -> Result<()> {
    release::build(workspace)?;
    let folder = workspace.release_dir();
    release::assemble(workspace, &folder)?;
    let again = workspace.out.join("run/release-again");
    release::assemble(workspace, &again)?;
    let same = sums::read(&folder)? == sums::read(&again)?;
    wanted(same, "two runs on the same files give other bytes")?;
    check_sums(&again)?;
    files::remove_all(&again)?;
    check_modules(workspace, &folder)?;
    check_dynamic_module(&folder, NATIVE_TARGET, &workspace.envoy_module())?;
    check_dynamic_module(&folder, AARCH64_TARGET, &workspace.envoy_module_for_aarch64())?;
    check_parts(workspace, &folder)?;
    check_command_line(workspace, &folder)?;
    deployable(workspace, &folder)?;
    println!("{} files in {}", sums::names(&folder)?.len(), folder.display());
    Ok(())
}

fn wanted(is_so: bool, otherwise: impl Into<String>) -> Result<()> {
    if is_so { Ok(()) } else { Err(Problem::new("the release is not right", otherwise, FIX)) }
}

/// Every file but the sums has one, and a changed file is found.
fn check_sums(folder: &Path) -> Result<()> {
    let are_true = || {
        let mut command = Command::new("sha256sum");
        run::succeeds(command.current_dir(folder).args(["--strict", "--quiet", "-c", SUMS]))
    };
    wanted(are_true(), "`sha256sum -c` finds a wrong sum")?;
    let lines = sums::read(folder)?;
    let listed: Vec<&str> =
        lines.lines().filter_map(|line| Some(line.split_once("  ")?.1)).collect();
    let there: Vec<String> = sums::names(folder)?.into_iter().filter(|name| name != SUMS).collect();
    wanted(listed == there, format!("listed: {listed:?}; there: {there:?}"))?;
    let changed = folder.join(MODULES[0]);
    let mut bytes = files::bytes(&changed)?;
    bytes.push(0);
    files::write(&changed, bytes)?;
    wanted(!are_true(), "`sha256sum -c` does not find that a module was changed")
}

/// The modules are those that end-to-end tests run, also inside of the images.
fn check_modules(workspace: &Workspace, folder: &Path) -> Result<()> {
    let read = |file: PathBuf| files::bytes(&file);
    for module in MODULES {
        let tested = read(workspace.out.join(module))?;
        wanted(read(folder.join(module))? == tested, format!("{module} is not the tested one"))?;
        let entry = archive::Entry { name: "plugin.wasm".to_owned(), bytes: tested };
        let layer = archive::gzip(&archive::tar(&[entry])?)?;
        let image = read(folder.join(module.replace(".wasm", ".oci.tar")))?;
        let is_in = image.windows(layer.len()).step_by(512).any(|part| part == layer);
        wanted(is_in, format!("the image does not contain the tested {module}"))?;
    }
    Ok(())
}

/// The newest version of the C library that the dynamic module may need. Debian 12, Ubuntu 22.04,
/// Red Hat 9, Amazon Linux 2023 and Envoy's images have it, as docs/envoy-module.md says.
const GLIBC: (u32, u32) = (2, 34);

/// The dynamic module for a target is the tested one, is for its processor, and loads with the C
/// library of the oldest distribution.
fn check_dynamic_module(folder: &Path, target: &str, tested: &Path) -> Result<()> {
    let tested = files::bytes(tested)?;
    let name = format!("tollgate-envoy-module-{VERSION}-{target}.so");
    wanted(files::bytes(folder.join(&name))? == tested, format!("{name} is not the tested one"))?;
    // `e_machine` of ELF: EM_X86_64 or EM_AARCH64.
    let machine = if target == AARCH64_TARGET { [183, 0] } else { [62, 0] };
    let is_for_it = tested.get(18..20).is_some_and(|it| *it == machine);
    wanted(is_for_it, format!("{name} is for another processor"))?;
    let needed = glibc(&tested);
    wanted(needed.is_some_and(|needed| needed <= GLIBC), format!("{name} needs glibc {needed:?}"))
}

/// The newest version of the C library among the names of versions in a shared library.
fn glibc(library: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let named = library.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let versions = named.filter_map(|(at, _)| {
        let digits = library.get(at + MARK.len()..)?.split(|byte| *byte == 0).next()?;
        let mut parts = std::str::from_utf8(digits).ok()?.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.max()
}

/// npm and pip install the command line, and what they install compiles a policy.
fn check_command_line(workspace: &Workspace, folder: &Path) -> Result<()> {
    let there = workspace.out.join("run/command-line");
    files::make_empty(&there)?;
    let names = sums::names(folder)?;
    let wheel = names.iter().find(|name| name.ends_with(".whl"));
    let wheel = wheel.ok_or_else(|| Problem::new("the release is not right", "no wheel", FIX))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--global", "--offline", "--no-audit", "--no-fund", "--prefix"]);
    npm.arg(there.join("npm")).arg(folder.join(command_line::npm_name()));
    run::output(&mut npm, "read the output of npm")?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--prefix"]);
    pip.arg(there.join("pip")).arg("--break-system-packages").arg(folder.join(wheel));
    run::output(&mut pip, "read the output of pip")?;
    for installed in ["npm", "pip"] {
        let program = program_in(&there.join(installed));
        let program = program.ok_or_else(|| {
            Problem::new(
                "the release is not right",
                format!("{installed} installs no program"),
                FIX,
            )
        })?;
        let mut check = Command::new(program);
        check.arg("check").arg(workspace.root.join("examples/policy.json"));
        let said = run::output(&mut check, FIX)?;
        wanted(said.contains("good for envoy and worker"), format!("{installed}: {said}"))?;
    }
    Ok(())
}

/// Where a package manager puts programs below its prefix.
fn program_in(prefix: &Path) -> Option<PathBuf> {
    ["bin/tollgate", "local/bin/tollgate"]
        .map(|file| prefix.join(file))
        .into_iter()
        .find(|it| it.exists())
}

/// Lists are valid, and name every package in the code.
fn check_parts(workspace: &Workspace, folder: &Path) -> Result<()> {
    let names = sums::names(folder)?;
    let lists: Vec<&String> = names.iter().filter(|name| name.ends_with(".cdx.json")).collect();
    let paths: Vec<PathBuf> = lists.iter().map(|name| folder.join(name)).collect();
    judged(workspace, &paths)?;
    // As the compiler writes them.
    let locked = linked::locked(workspace)?.into_keys().map(|(name, _)| name.replace('-', "_"));
    let locked: BTreeSet<String> = locked.collect();
    let mut seen = 0;
    for list in lists {
        let text = files::bytes(folder.join(list))?;
        let list: Value = serde_json::from_slice(&text).or_problem("cannot read a list", FIX)?;
        let named = |value: &Value| value["name"].as_str().unwrap_or_default().replace('-', "_");
        let parts = list["components"].as_array().into_iter().flatten().map(named);
        let main = &list["metadata"]["component"];
        let parts: BTreeSet<String> = parts.chain([named(main)]).collect();
        for file in main["components"].as_array().into_iter().flatten() {
            let name = file["name"].as_str().unwrap_or_default();
            // In an archive names are compressed, and in an image the module's.
            let archives = [".tgz", ".whl", ".crate"];
            if name.contains(".tar") || archives.iter().any(|end| name.ends_with(end)) {
                continue;
            }
            // A shipped module has no names any more; it had them when it was linked.
            let file = match name.strip_suffix(".wasm") {
                Some(stem) => workspace.out.join(format!("{stem}.linked.wasm")),
                None => folder.join(name),
            };
            let bytes = files::bytes(file)?;
            let inside = inside::crates(&bytes);
            let inside: BTreeSet<&String> =
                inside.iter().filter(|name| locked.contains(*name)).collect();
            // The command line has the name of the library, which it does not contain.
            let is_program = |name: &str| name == "tollgate" && parts.contains("tollgate_cli");
            let is_absent = |name: &&&String| !parts.contains(**name) && !is_program(name);
            let absent: Vec<_> = inside.iter().filter(is_absent).collect();
            wanted(absent.is_empty(), format!("the list of {name} lacks {absent:?}"))?;
            seen += inside.len();
        }
    }
    wanted(seen > 20, format!("only {seen} packages were found in files by their symbols"))
}

const JUDGE: &str = "
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
judge = JsonStrictValidator(SchemaVersion.V1_6)
for name in sys.argv[1:]:
    problem = judge.validate_str(open(name).read())
    if problem is not None: sys.exit(f'{name}: {problem}'[:2000])
";

/// By the official schema.
fn judged(workspace: &Workspace, lists: &[PathBuf]) -> Result<()> {
    let judge = |lists: &[PathBuf]| {
        run::captured(python::CYCLONEDX.python(workspace).args(["-c", JUDGE]).args(lists))
    };
    let (status, said, complaints) = judge(lists)?;
    wanted(status.success(), said + &complaints)?;
    let text = lists.first().map(files::text).transpose()?.unwrap_or_default();
    let broken = workspace.out.join("run/broken.cdx.json");
    for (right, wrong) in [("\"library\"", "\"books\""), ("SHA-256", "SHA-257")] {
        wanted(text.contains(right), format!("no list contains {right}"))?;
        files::write(&broken, text.replacen(right, wrong, 1))?;
        let (status, _, _) = judge(std::slice::from_ref(&broken))?;
        wanted(!status.success(), format!("a list with {wrong} is accepted as valid"))?;
    }
    Ok(())
}

/// The content of the Worker's archive can be deployed as it is unpacked.
fn deployable(workspace: &Workspace, folder: &Path) -> Result<()> {
    let unpacked = workspace.out.join("run/release-worker");
    files::make_empty(&unpacked)?;
    let archive = format!("tollgate-worker-modules-{}.tar.gz", VERSION);
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(folder.join(archive)).arg("-C").arg(&unpacked);
    run::output(&mut tar, "install tar")?;
    let mut wrangler = Command::new(npm::bin(workspace).join("wrangler"));
    wrangler.current_dir(&unpacked).args(["deploy", "--dry-run", "--outdir", "dry"]);
    let said = run::output(env::with_tools(workspace, &mut wrangler), "see wrangler.toml")?;
    wanted(said.contains("--dry-run: exiting now"), said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_c_library_is_found() {
        let library = b"\0GLIBC_2.9\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(glibc(library), Some((2, 34)));
        assert_eq!(glibc(b"GLIBC_\xff"), None);
    }
}
