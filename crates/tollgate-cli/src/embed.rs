//! `tollgate embed`: the block of an envoy.yaml that enforces a policy, or the same policy put into
//! a file.
//!
//! Invariant: the printed block, pasted among `http_filters`, gives the filter exactly the policy
//! that was read. A policy in YAML stays the same YAML where Envoy reads the same from it. Any
//! other policy becomes JSON in a `StringValue`, where no YAML reader turns words into booleans or
//! large numbers into texts. With `--compiled` it becomes its compiled form, for the smallest
//! module. A policy that the filter would reject is not embedded.

use std::fmt::Write as _;

use tollgate_policy::Surface;
use tollgate_policy::explain::{Ability, FilterModule, Requirement};
use tollgate_yaml::{Document, Form, Language, Node, Reading, Scalar, Value};

use crate::args::EmbedArgs;
use crate::configuration::Host;
use crate::envoy::Filters;
use crate::error::CommandError;
use crate::input::{self, Input};
use crate::into::{self, configuration, indented};
use crate::manager;
use crate::source::{self, Compiled, Source};
use crate::{command, compile, filter_modules, output};

/// The characters of a compiled policy on one line.
const COLUMNS: usize = 96;

/// Prints the block, or replaces the policy in a file.
pub(crate) fn run(args: &EmbedArgs) -> Result<(), CommandError> {
    let Input { name: file, text, language } = input::read(&args.policy)?;
    let yaml = (language == Language::Yaml).then(|| text.clone());
    let document = match source::read(text, language).with_files(&args.policy) {
        Source::Policy(document) => document,
        Source::Fault(fault) => {
            return Err(command::refuse(
                &Compiled::failed(fault, &[Surface::Envoy]).problems,
                &file,
            ));
        }
        Source::Envoy(_) => {
            let message = format!("{file} is a configuration of Envoy already; give a policy");
            return Err(CommandError::Misuse(message));
        }
    };
    if args.compiled {
        return compiled(args, &document, &file);
    }
    let host = if args.module.is_some() { Host::DynamicModule } else { Host::Wasm };
    let compiled = source::compile_for(host, &document, &[]);
    if !compiled.problems.is_empty() {
        return Err(command::refuse(&compiled.problems, &file));
    }
    let any =
        yaml.and_then(|yaml| as_struct(&yaml, &document)).unwrap_or_else(|| as_string(&document));
    if let Some(into) = &args.into {
        let policy = (args.policy.as_path(), &document);
        return into::run(policy, into, args.filter.as_deref(), &any);
    }
    let policy = compiled.policies.first().map(|(_, policy)| policy);
    let mut requirements = policy.map(|it| filter_modules::requirements(it, &[]));
    requirements.get_or_insert_default().push(Requirement::of_all(Ability::Documents));
    let smallest = FilterModule::smallest(&requirements.unwrap_or_default());
    let needs = policy.map(manager::needed_by).unwrap_or_default();
    output::raw(&block(args, &configuration(host, &any), &needs, smallest))
}

/// Prints the block with the compiled policy, and the module for it.
fn compiled(args: &EmbedArgs, document: &Document, file: &str) -> Result<(), CommandError> {
    let plugin = source::compile_plugin(document, Surface::Envoy);
    let (plugin, warnings) = plugin.map_err(|problems| command::refuse(&problems, file))?;
    command::warn(&warnings, file);
    compile::bytes(&plugin, Surface::Envoy)?;
    let requirements = filter_modules::requirements(&plugin.policy, &plugin.named);
    let smallest = FilterModule::smallest(&requirements);
    let mut needs = manager::needed_by(&plugin.policy);
    let lines = [
        format!("{} or a larger module ({})", smallest.file, smallest.cost()),
        "takes this compiled policy. Keep the document, and compile it again with each version of Tollgate.".to_owned(),
    ];
    lines.iter().for_each(|line| needs.push_str(&format!("# {line}\n")));
    let mut any = head_of("StringValue");
    any.push("  value: |".to_owned());
    let text = plugin.to_compiled_text();
    // The text is ASCII.
    let rows = text.as_bytes().chunks(COLUMNS).map(String::from_utf8_lossy);
    any.extend(rows.map(|row| format!("    {row}")));
    output::raw(&block(args, &configuration(Host::Wasm, &any), &needs, smallest))
}

/// The block with these lines in it, for the `smallest` module unless another file is named.
fn block(
    args: &EmbedArgs,
    configuration: &[String],
    needs: &str,
    smallest: &FilterModule,
) -> String {
    let EmbedArgs { wasm, module, name, vm_id, indent, .. } = args;
    let wasm = wasm.clone().unwrap_or_else(|| filter_modules::installed(smallest));
    let (name, vm_id, wasm) = (scalar(name), scalar(vm_id), scalar(&wasm));
    let (head, depth) = match module.as_deref().map(scalar) {
        None => (of_wasm(needs, &name, &vm_id, &wasm), 6),
        Some(module) => (of_module(needs, &name, &module), 4),
    };
    let mut out = String::new();
    let margin = " ".repeat((*indent).into());
    for line in head.lines() {
        let _ = writeln!(out, "{margin}{line}"); // cannot fail
    }
    out + &indented(configuration, usize::from(*indent).saturating_add(depth))
}

/// A filter of wasm, up to its configuration.
fn of_wasm(needs: &str, name: &str, vm_id: &str, wasm: &str) -> String {
    format!(
        "\
{needs}- name: {name}
  typed_config:
    \"@type\": type.googleapis.com/{}
    config:
      name: {name}
      # If the module ever crashes, start it again; the counts are outside of it and survive.
      failure_policy: FAIL_RELOAD
      vm_config:
        # Counts are shared by all plugins of the same vm_id. A new vm_id starts with empty counts.
        vm_id: {vm_id}
        runtime: envoy.wasm.runtime.v8
        code:
          local: {{ filename: {wasm} }}
",
        Host::Wasm.message()
    )
}

/// A filter of the dynamic module, up to its configuration.
fn of_module(needs: &str, name: &str, module: &str) -> String {
    format!(
        "\
{needs}- name: {name}
  typed_config:
    \"@type\": type.googleapis.com/{}
    dynamic_module_config:
      module: {{ local: {{ filename: {module} }} }}
      # Metrics have the names of the wasm module's.
      metrics_namespace: wasmcustom
    # Counts are shared by all filters of this name.
    filter_name: {name}
",
        Host::DynamicModule.message()
    )
}

/// The lines of an `Any` with the YAML as it is written; `None` where Envoy would read something
/// else from it.
fn as_struct(yaml: &str, document: &Document) -> Option<Vec<String>> {
    let text = yaml.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    if text.chars().any(is_special) {
        return None;
    }
    let mut lines = head_of("Struct");
    lines.push("  value:".to_owned());
    let is_mark = |line: &&str| line.trim_end() != "---";
    let policy = text.trim_end().lines().filter(is_mark).map(str::trim_end);
    lines.extend(
        indented(&policy.map(str::to_owned).collect::<Vec<_>>(), 4).lines().map(str::to_owned),
    );
    let message = Host::Wasm.message();
    let around = format!("\"@type\": type.googleapis.com/{message}\nconfig:\n  name: tollgate\n");
    let field = indented(&configuration(Host::Wasm, &lines), 2);
    let root = Node::parse(&format!("{around}{field}")).ok()?;
    let found = Filters::find(&root, Reading::Envoy).filters.into_iter().next()?;
    (found.document.ok()?.json == document.json).then_some(lines)
}

/// The lines of an `Any` with the policy as JSON.
fn as_string(document: &Document) -> Vec<String> {
    let mut lines = head_of("StringValue");
    lines.push("  value: |".to_owned());
    // In JSON a lone carriage return is white space; most YAML readers end a line at it.
    let json = document.pretty().replace("\r\n", "\n");
    let json = json.trim_ascii().split(['\n', '\r']);
    lines.extend(json.map(|line| format!("    {}", escaped(line))));
    lines
}

fn head_of(message: &str) -> Vec<String> {
    vec![format!("  \"@type\": type.googleapis.com/google.protobuf.{message}")]
}

/// A text as YAML, without quotes where it does not need them.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let plain = Scalar { text: text.to_owned(), form: Form::Plain };
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    if starts && text.chars().all(is_plain) && Reading::Envoy.value(&plain) == Value::Text(text) {
        return plain.text;
    }
    escaped(&serde_json::to_string(text).unwrap_or_default())
}

/// Escapes the characters of JSON that YAML does not allow or reads as line ends, and the invisible
/// ones. They occur in texts only, where an escape means the same.
fn escaped(line: &str) -> String {
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

/// True for a character that YAML does not allow or reads as a line end, and for an invisible one.
fn is_special(c: char) -> bool {
    c > '\u{7e}' && output::is_hidden(c)
        || matches!(c, '\r' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}
