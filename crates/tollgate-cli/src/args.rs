//! The command line.
//!
//! Invariant: meaningless arguments are reported here, before a policy is read, with exit code 2.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tollgate_core::Span;
use tollgate_policy::Surface;
use tollgate_policy::spec::{CertificateField, CloudflareField};

use crate::compile::CompileArgs;
use crate::pk::PkArgs;
use crate::replay::args::ReplayArgs;
use crate::simulate::args::SimulateArgs;
use crate::values::{span, surface_parser};

const EXIT_CODES: &str = "Exit codes: 0 good, 1 the policy has problems, or a replay fails, 2 misuse or an unreadable \
                          file, 3 the output could not be written";

/// Check a rate limit policy and explain what it does.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// When to use colours; auto: on a terminal, unless NO_COLOR or CLICOLOR_FORCE is set
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", display_order = 1000)]
    pub(crate) color: Color,
}

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Validate a policy; show its rules in words, the most that each quota allows, and the memory
    /// per key
    Check(CheckArgs),
    /// Show which rules apply to a request, their decisions, and the response; nothing is charged
    Explain(Box<ExplainArgs>),
    /// Simulate traffic against a policy, and compare each decision with an exact log
    Simulate(Box<SimulateArgs>),
    /// Replay access logs through a policy: which clients it would have limited, when, how often
    /// and by which rule
    Replay(Box<ReplayArgs>),
    /// Compile a policy to its binary form
    Compile(CompileArgs),
    /// Print the filter's block for an envoy.yaml, with the policy in it
    Embed(EmbedArgs),
    /// Convert a configuration of envoyproxy/ratelimit to a policy, and list the differences
    Convert(ConvertArgs),
    /// Print the hash (pk) of a client's key, as responses and logs contain it
    Pk(PkArgs),
    /// Print the JSON Schema of the policy document
    Schema,
    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    Man {
        /// The command of the page; all commands by default
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The policy in JSON or YAML, or a configuration of Envoy with it; - reads the standard input
    pub(crate) policy: PathBuf,
    /// The surface that enforces the policy; envoy and worker by default
    #[arg(long, value_parser = Surfaces::parser())]
    pub(crate) surface: Option<Surfaces>,
    /// Entries of tenants, as GET tenants lists them; may be repeated, one page each
    #[arg(long, value_name = "FILE")]
    pub(crate) tenants: Vec<PathBuf>,
    /// Fail also when there are warnings
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The policy in JSON or YAML, or a configuration of Envoy with it; - reads the standard input
    pub(crate) policy: PathBuf,
    /// The request as a command line of curl, as one argument
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["method", "path", "host", "url", "words"])]
    pub(crate) curl: Option<String>,
    /// The request's URL, instead of --host and --path
    #[arg(long, conflicts_with_all = ["path", "host", "words"])]
    pub(crate) url: Option<String>,
    /// The request's method
    #[arg(long, default_value = "GET", value_parser = token)]
    pub(crate) method: String,
    /// The request's path and query
    #[arg(long, default_value = "/", value_parser = path)]
    pub(crate) path: String,
    /// The request's host
    #[arg(long, default_value = "")]
    pub(crate) host: String,
    /// A header of the request, 'name: value'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// The peer address; in a Worker, CF-Connecting-IP; with a URL 192.0.2.1 by default
    #[arg(long)]
    pub(crate) ip: Option<IpAddr>,
    /// Envoy, library: the name of the route
    #[arg(long)]
    pub(crate) route: Option<String>,
    /// The client's two-letter country code; in Envoy from the header that the policy's geo names
    #[arg(long)]
    pub(crate) country: Option<String>,
    /// The client's autonomous system number; in Envoy as for the country
    #[arg(long)]
    pub(crate) asn: Option<u32>,
    /// A claim of the verified token, name=text or name:=JSON; may be repeated
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) claims: Vec<Claim>,
    /// Envoy, library: a value of the metadata that filters before this one have set,
    /// filter/name=text or filter/name:=JSON; may be repeated
    #[arg(long = "metadata", value_name = "PATH=VALUE", value_parser = metadata)]
    pub(crate) metadata: Vec<Claim>,
    /// Envoy, Worker, library: a part of the client's verified certificate, uri_san=, dns_san=,
    /// subject= or sha256=; may be repeated
    #[arg(long = "certificate", value_name = "PART=VALUE", value_parser = certificate)]
    pub(crate) certificate: Vec<(CertificateField, String)>,
    /// Worker: a fact of the connection that Cloudflare reports, colo=, ja3=, ja4= or tls_version=;
    /// may be repeated
    #[arg(long = "cf", value_name = "NAME=VALUE", value_parser = cloudflare)]
    pub(crate) cf: Vec<(CloudflareField, String)>,
    /// Server, library: the domain of a rate limit request
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Server, library: an entry of the descriptor of a rate limit request, key=value; may be
    /// repeated; the order matters
    #[arg(long = "descriptor", value_name = "KEY=VALUE", value_parser = entry)]
    pub(crate) descriptor: Vec<(String, String)>,
    /// Server, library: another descriptor of the same request, [{"key": "value"}, ...]; may be
    /// repeated
    #[arg(long, value_name = "JSON", value_parser = descriptor)]
    pub(crate) beside: Vec<Descriptor>,
    /// The surface that enforces the policy; envoy by default
    #[arg(long, value_parser = surface_parser())]
    pub(crate) surface: Option<Surface>,
    /// Entries of tenants, as GET tenants lists them; may be repeated, one page each
    #[arg(long, value_name = "FILE")]
    pub(crate) tenants: Vec<PathBuf>,
    /// Show the last of this many such requests in a row; they start from an empty state
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) repeat: u32,
    /// The time from one of the repeated requests to the next: 0s, 500ms, 2s, 1m
    #[arg(long, default_value = "0s", value_parser = span, value_name = "TIME")]
    pub(crate) every: Span,
    /// The origin's status for the earlier requests; some rules charge by it
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=599))]
    pub(crate) status: u16,
    /// The cost that the origin's responses to earlier requests show, for a rule whose cost they
    /// settle [default: none, so that the estimate stays]
    #[arg(long, value_name = "UNITS")]
    pub(crate) actual: Option<u64>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The request as a command line of curl, word by word: curl -X POST https://...
    #[arg(last = true, value_name = "CURL", conflicts_with_all = ["method", "path", "host"])]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EmbedArgs {
    /// The policy in JSON or YAML; - reads the standard input
    pub(crate) policy: PathBuf,
    /// Embed the compiled policy, for the smallest module that runs it; keep the document, and
    /// compile it again with each version of Tollgate
    #[arg(long, conflicts_with_all = ["module", "into"])]
    pub(crate) compiled: bool,
    /// The path of the filter for Envoy [default: the smallest module that takes this form of the
    /// policy, in /etc/envoy]
    #[arg(long, value_name = "FILE")]
    pub(crate) wasm: Option<String>,
    /// The path of the dynamic module for Envoy, instead of a filter of wasm
    #[arg(long, value_name = "FILE", conflicts_with_all = ["wasm", "vm_id"])]
    pub(crate) module: Option<String>,
    /// The name of the filter, also in metrics
    #[arg(long, default_value = "tollgate")]
    pub(crate) name: String,
    /// Filters with the same vm_id share their counts
    #[arg(long, default_value = "tollgate")]
    pub(crate) vm_id: String,
    /// The spaces before each line: those before the items of http_filters
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=80), value_name = "SPACES")]
    pub(crate) indent: u8,
    /// A configuration of Envoy in YAML: replace the policy of its filter instead of printing the
    /// block
    #[arg(long, value_name = "FILE", conflicts_with_all = ["wasm", "module", "name", "vm_id", "indent"])]
    pub(crate) into: Option<PathBuf>,
    /// The name of that filter, if there are several
    #[arg(long, value_name = "NAME", requires = "into")]
    pub(crate) filter: Option<String>,
}

/// The entries of a descriptor, in order.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor(pub(crate) Vec<(String, String)>);

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The configuration's files, one for each domain; - reads the standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The rule of this name gets "cost": "reported": a gateway reports its hits after the response
    #[arg(long, value_name = "RULE")]
    pub(crate) reported: Vec<String>,
    /// Print the policy and the differences as one JSON report
    #[arg(long)]
    pub(crate) json: bool,
}

/// A claim, or a value of metadata, with the text that counts for it; one without a text counts as
/// absent.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) text: Option<String>,
}

/// The surfaces that one name selects: a single surface, `both` modules, or `all`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surfaces(pub(crate) &'static [Surface]);

impl Surfaces {
    /// The filter and the Worker: the default surfaces of a policy.
    pub(crate) const MODULES: Self = Self(&[Surface::Envoy, Surface::Worker]);

    fn parser() -> impl TypedValueParser<Value = Self> {
        static ALL: [Surface; Surface::ALL.len()] = Surface::ALL;
        let names = ALL.iter().map(|surface| surface.name()).chain(["both", "all"]);
        PossibleValuesParser::new(names).map(|name| match name.as_str() {
            "both" => Self::MODULES,
            "all" => Self(&ALL),
            name => Self(
                ALL.chunks(1)
                    .find(|one| one.iter().all(|surface| surface.name() == name))
                    .unwrap_or_default(),
            ),
        })
    }
}

pub(crate) fn token(text: &str) -> Result<String, String> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !text.is_empty() && text.bytes().all(is_token) {
        Ok(text.to_owned())
    } else {
        Err("use letters, digits and !#$%&'*+-.^_`|~".to_owned())
    }
}

fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("begin it with \"/\"".to_owned()) }
}

pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("use 'name: value'")?;
    if value.contains(['\r', '\n', '\0']) {
        return Err("a value is one line".to_owned());
    }
    Ok((token(name)?.to_ascii_lowercase(), value.trim().to_owned()))
}

fn claim(text: &str) -> Result<Claim, String> {
    let (name, value) = text.split_once('=').ok_or("use name=text or name:=JSON")?;
    Ok(match name.strip_suffix(':') {
        Some(name) => {
            Claim { name: name.to_owned(), text: json_text(value, tollgate_policy::decimal)? }
        }
        None => Claim { name: name.to_owned(), text: Some(value.to_owned()) },
    })
}

fn certificate(text: &str) -> Result<(CertificateField, String), String> {
    const WANTED: &str = "use uri_san=, dns_san=, subject= or sha256= and the value";
    let (name, value) = text.split_once('=').ok_or(WANTED)?;
    let field = CertificateField::ALL.into_iter().find(|field| field.name() == name);
    Ok((field.ok_or(WANTED)?, value.to_owned()))
}

fn cloudflare(text: &str) -> Result<(CloudflareField, String), String> {
    const WANTED: &str = "use colo=, ja3=, ja4= or tls_version= and the value";
    let (name, value) = text.split_once('=').ok_or(WANTED)?;
    let field = CloudflareField::ALL.into_iter().find(|field| field.name() == name);
    Ok((field.ok_or(WANTED)?, value.to_owned()))
}

fn metadata(text: &str) -> Result<Claim, String> {
    const WANTED: &str = "use filter/name=text or filter/name:=JSON";
    let (name, value) =
        text.split_once('=').filter(|(name, _)| name.contains('/')).ok_or(WANTED)?;
    Ok(match name.strip_suffix(':') {
        Some(name) => {
            Claim { name: name.to_owned(), text: json_text(value, tollgate_policy::whole_number)? }
        }
        None => Claim { name: name.to_owned(), text: Some(value.to_owned()) },
    })
}

fn entry(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("use key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn descriptor(json: &str) -> Result<Descriptor, String> {
    const WANTED: &str = "use a list of objects with one key each: [{\"key\": \"value\"}]";
    let items: Vec<BTreeMap<String, String>> = serde_json::from_str(json).map_err(|_| WANTED)?;
    let is_descriptor = !items.is_empty() && items.iter().all(|item| item.len() == 1);
    is_descriptor.then(|| Descriptor(items.into_iter().flatten().collect())).ok_or(WANTED.into())
}

/// Converts a claim or a value of metadata given as JSON to the text that counts for it; `None` for
/// a list, an object and null. `number` writes a number.
fn json_text(json: &str, number: fn(f64) -> Option<String>) -> Result<Option<String>, String> {
    let wrong = |error: serde_json::Error| format!("not JSON: {error}");
    // The number is only validated here: the parser rejects a number beyond a double, which a token
    // may contain.
    let _: serde::de::IgnoredAny = serde_json::from_str(json).map_err(wrong)?;
    if let Ok(double) = json.trim_ascii().parse() {
        return Ok(number(double));
    }
    Ok(match serde_json::from_str(json).map_err(wrong)? {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    })
}
