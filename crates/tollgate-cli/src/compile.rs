//! `tollgate compile`: a policy as bytes, for whoever enforces it without reading its document.
//!
//! Invariant: what is written is read again before, and is the policy that was compiled. The file
//! is replaced as a whole, or stays as it was. It is as secret as the document.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use tollgate_policy::{Policy, Surface};

use crate::end::End;
use crate::source::{self, Compiled, Source};
use crate::values::surface_parser;
use crate::{command, output};

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    /// The policy in JSON or YAML; - reads the standard input
    pub(crate) policy: PathBuf,
    /// Where it is enforced
    #[arg(long, value_parser = surface_parser())]
    pub(crate) surface: Surface,
    /// The file that it is written to; the standard output when left out. One that is called .mjs
    /// becomes a module for a Worker
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Compiles and writes; warnings go to the standard error.
pub(crate) fn run(args: &CompileArgs) -> Result<(), End> {
    let (file, source) = source::load(&args.policy)?;
    let compiled = match source {
        Source::Policy(document) => source::compile(&document, &[args.surface]),
        Source::Fault(fault) => Compiled::failed(fault, &[args.surface]),
        Source::Envoy(_) => {
            return Err(End::Misuse(format!(
                "{file} is a configuration of Envoy; give the policy"
            )));
        }
    };
    let Some((_, policy)) = compiled.policies.first() else {
        return Err(command::refuse(&compiled.problems, &file));
    };
    command::warn(&compiled.warnings, &file);
    let mut bytes = Vec::new();
    policy.write_compiled(&mut bytes);
    if let Err(why) = Policy::read_compiled(&bytes, args.surface) {
        return Err(End::Misuse(format!("what was compiled {why}; that is a mistake of ours")));
    }
    match &args.output {
        Some(path) => {
            if path.extension().is_some_and(|extension| extension == "mjs") {
                bytes = format!("export default \"{}\";\n", policy.to_compiled_text()).into();
            }
            replace(path, &bytes).map_err(|error| End::UnwrittenFile(path.clone(), error))?;
            let surface = args.surface.name();
            output::raw(&format!("{}: {} bytes, for {surface}\n", path.display(), bytes.len()))
        }
        None if std::io::stdout().is_terminal() => {
            Err(End::Misuse("what is compiled is no text; name a file with -o".to_owned()))
        }
        None => output::bytes(&bytes),
    }
}

/// Writes a file beside `path` and puts it in its place.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    let beside = PathBuf::from(beside);
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside); // what could not be written may not be there
    }
    written
}
