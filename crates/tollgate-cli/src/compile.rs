//! `tollgate compile`: a policy as bytes, for whoever enforces it without reading its document.
//!
//! Invariant: what is written is read again before, and is the policy that was compiled. The file
//! is replaced as a whole, or stays as it was. It is as secret as the document.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use tollgate_policy::{Plugin, Surface};

use crate::end::End;
use crate::source::{self, Source};
use crate::values::surface_parser;
use crate::{command, output};

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    /// The policy in JSON or YAML, for envoy also with "fleet" beside it; - reads the standard
    /// input
    pub(crate) policy: PathBuf,
    /// Where it is enforced
    #[arg(long, value_parser = surface_parser())]
    pub(crate) surface: Surface,
    /// The file that it is written to; the standard output when left out. One that is called .mjs
    /// becomes a module for a Worker
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the bytes as text, for a configuration of Envoy: the value of a StringValue or a
    /// BytesValue, or of the field "compiled" of a Struct
    #[arg(long)]
    pub(crate) base64: bool,
}

/// Compiles and writes; warnings go to the standard error.
pub(crate) fn run(args: &CompileArgs) -> Result<(), End> {
    let (file, source) = source::load(&args.policy)?;
    let compiled = match source {
        Source::Policy(document) => source::compile_plugin(&document, args.surface),
        Source::Fault(fault) => Err(vec![fault.into()]),
        Source::Envoy(_) => {
            return Err(End::Misuse(format!(
                "{file} is a configuration of Envoy; give the policy"
            )));
        }
    };
    let (plugin, warnings) = compiled.map_err(|problems| command::refuse(&problems, &file))?;
    command::warn(&warnings, &file);
    let mut bytes = Vec::new();
    plugin.write_compiled(&mut bytes);
    if let Err(why) = Plugin::read_compiled(&bytes, args.surface) {
        return Err(End::Misuse(format!("what was compiled {why}; that is a mistake of ours")));
    }
    if args.base64 {
        bytes = format!("{}\n", plugin.to_compiled_text()).into();
    }
    match &args.output {
        Some(path) => {
            if path.extension().is_some_and(|extension| extension == "mjs") {
                bytes = format!("export default \"{}\";\n", plugin.to_compiled_text()).into();
            }
            replace(path, &bytes).map_err(|error| End::UnwrittenFile(path.clone(), error))?;
            let surface = args.surface.name();
            output::raw(&format!("{}: {} bytes, for {surface}\n", path.display(), bytes.len()))
        }
        None if !args.base64 && std::io::stdout().is_terminal() => {
            let message = "what is compiled is no text; name a file with -o, or ask for --base64";
            Err(End::Misuse(message.to_owned()))
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
