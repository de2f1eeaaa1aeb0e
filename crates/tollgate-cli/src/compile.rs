//! `tollgate compile`: a policy in its binary form.
//!
//! Invariant: the bytes are read again before they are written, and must give the policy that was
//! compiled. The file is written as every output is (`output_file`). It is as secret as the
//! document.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tollgate_policy::{Plugin, Surface};

use crate::error::CommandError;
use crate::output_file::{Content, Force, MODULE, OutputFile, OverwriteMode};
use crate::source::{self, Source};
use crate::values::surface_parser;
use crate::{command, output};

#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    /// The policy in JSON or YAML, for envoy also with "fleet" next to it; - reads the standard
    /// input
    pub(crate) policy: PathBuf,
    /// The surface that enforces it
    #[arg(long, value_parser = surface_parser())]
    pub(crate) surface: Surface,
    /// The output file; the standard output by default. A file named .mjs becomes a module for a
    /// Worker
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the bytes as text, for a configuration of Envoy: the value of a StringValue or a
    /// BytesValue, or of the field "compiled" of a Struct
    #[arg(long)]
    pub(crate) base64: bool,
    /// Print the document as JSON, for a Worker, which does not read YAML
    #[arg(long, conflicts_with_all = ["base64", "output"])]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) force: Force,
}

/// Compiles and writes; warnings go to the standard error.
pub(crate) fn run(args: &CompileArgs) -> Result<(), CommandError> {
    let (file, source) = source::load(&args.policy)?;
    let document = match source {
        Source::Policy(document) => document,
        Source::Fault(fault) => return Err(command::refuse(&[fault.into()], &file)),
        Source::Envoy(_) => {
            return Err(CommandError::Misuse(format!(
                "{file} is a configuration of Envoy; give the policy"
            )));
        }
    };
    let compiled = source::compile_plugin(&document, args.surface);
    let (plugin, warnings) = compiled.map_err(|problems| command::refuse(&problems, &file))?;
    command::warn(&warnings, &file);
    if args.json {
        return output::raw(&format!("{}\n", document.pretty().trim_ascii_end()));
    }
    let mut bytes = bytes(&plugin, args.surface)?;
    if args.base64 {
        bytes = format!("{}\n", plugin.to_compiled_text()).into();
    }
    match &args.output {
        Some(path) => {
            if path.extension().is_some_and(|extension| extension == "mjs") {
                bytes = format!("{MODULE}{}\";\n", plugin.to_compiled_text()).into();
            }
            let (inputs, replaces) = ([args.policy.as_path()], OverwriteMode::by(args.force));
            OutputFile::new(path, inputs, Content::Compiled, replaces)?.write(&bytes)?;
            let surface = args.surface.name();
            output::raw(&format!("{}: {} bytes, for {surface}\n", path.display(), bytes.len()))
        }
        None if !args.base64 && std::io::stdout().is_terminal() => {
            let message = "the compiled policy is binary; name a file with -o, or ask for --base64";
            Err(CommandError::Misuse(message.to_owned()))
        }
        None => output::bytes(&bytes),
    }
}

/// The compiled policy as bytes, which are read again.
pub(crate) fn bytes(plugin: &Plugin, surface: Surface) -> Result<Vec<u8>, CommandError> {
    let mut bytes = Vec::new();
    plugin.write_compiled(&mut bytes);
    match Plugin::read_compiled(&bytes, surface) {
        Ok(_) => Ok(bytes),
        Err(why) => Err(CommandError::Misuse(format!(
            "the compiled policy {why}; this is a bug of Tollgate, please report it"
        ))),
    }
}
