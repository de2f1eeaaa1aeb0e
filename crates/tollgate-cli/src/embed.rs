//! `tollgate embed`: the block of an envoy.yaml that enforces a policy.
//!
//! Invariant: what is printed, pasted among `http_filters`, gives the filter the very policy that
//! was read: as JSON in a `StringValue`, where no reader of YAML makes booleans of words or texts
//! of large numbers. A policy that the filter would refuse is not embedded.

use std::fmt::Write as _;

use tollgate_policy::Surface;

use crate::args::EmbedArgs;
use tollgate_yaml::Document;
use crate::end::End;
use crate::manager;
use crate::source::{self, Compiled, Source};
use tollgate_yaml::{Form, Reading, Scalar, Value};
use crate::{command, output};

/// Prints the block.
pub(crate) fn run(args: &EmbedArgs) -> Result<(), End> {
    let (file, source) = source::load(&args.policy)?;
    let document = match source {
        Source::Policy(document) => document,
        Source::Fault(fault) => {
            return Err(command::refuse(
                &Compiled::failed(fault, &[Surface::Envoy]).problems,
                &file,
            ));
        }
        Source::Envoy(_) => {
            let message = format!("{file} is a configuration of Envoy already; give a policy");
            return Err(End::Misuse(message));
        }
    };
    let compiled = source::compile(&document, &[Surface::Envoy]);
    if !compiled.problems.is_empty() {
        return Err(command::refuse(&compiled.problems, &file));
    }
    let needs = compiled.policies.first().map(|(_, policy)| manager::needed_by(policy));
    output::raw(&block(args, &document, &needs.unwrap_or_default()))
}

fn block(args: &EmbedArgs, document: &Document, needs: &str) -> String {
    let EmbedArgs { wasm, name, vm_id, indent, .. } = args;
    let (name, vm_id, wasm) = (scalar(name), scalar(vm_id), scalar(wasm));
    let head = format!(
        "\
{needs}- name: {name}
  typed_config:
    \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
    config:
      name: {name}
      # If the module ever crashes, start it again; the counts survive, they are outside of it.
      failure_policy: FAIL_RELOAD
      vm_config:
        # Counts are shared by all plugins of the same vm_id. Changing it forgets them.
        vm_id: {vm_id}
        runtime: envoy.wasm.runtime.v8
        code:
          local: {{ filename: {wasm} }}
      configuration:
        \"@type\": type.googleapis.com/google.protobuf.StringValue
        value: |
"
    );
    let mut out = String::new();
    let margin = " ".repeat((*indent).into());
    for line in head.lines() {
        let _ = writeln!(out, "{margin}{line}"); // cannot fail
    }
    // In JSON a lone carriage return is a blank; to most readers of YAML it ends a line.
    let json = document.pretty().replace("\r\n", "\n");
    for line in json.trim_ascii().split(['\n', '\r']) {
        let _ = writeln!(out, "{margin}          {}", escaped(line)); // cannot fail
    }
    out
}

/// A text as YAML, without quotes where it needs none.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let plain = Scalar { text: text.to_owned(), form: Form::Plain };
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    if starts && text.chars().all(is_plain) && Reading::Envoy.value(&plain) == Value::Text(text) {
        return plain.text;
    }
    escaped(&serde_json::to_string(text).unwrap_or_default())
}

/// JSON without the characters that YAML has not or takes for ends of lines, and without those that
/// no reader sees. They stand in texts only, where an escape is the same.
fn escaped(line: &str) -> String {
    let is_special = |c: char| {
        c > '\u{7e}' && output::is_hidden(c)
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        if is_special(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c)); // cannot fail
        } else {
            out.push(c);
        }
    }
    out
}
