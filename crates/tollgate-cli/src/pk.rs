//! `tollgate pk`: the hash that identifies a client in logs and to the client.
//!
//! Invariant: the hash is the one that the surface reports for a request with these values, made by
//! the same functions. The secret is read from a file or from the configuration, never from the
//! command line, which other users of the machine can read. Neither the secret nor a key is
//! printed.

use std::path::{Path, PathBuf};

use clap::Args;
use sha2::{Digest as _, Sha256};
use tollgate_policy::plugin::NamedPolicy;
use tollgate_policy::{GivenKey, NoKey, Policy, Surface, pk_text, plugin_hash_key};

use crate::envoy::Filter;
use crate::error::CommandError;
use crate::source::{self, Compiled, Source};
use crate::values::surface_parser;
use crate::{command, input, output};

/// The longest secret that is read; surfaces accept shorter ones only.
const MAX_SECRET: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct PkArgs {
    /// The policy in JSON or YAML, or a configuration of Envoy with it; - reads the standard input
    pub(crate) policy: PathBuf,
    /// The rule that counts the client
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: String,
    /// The value of a part of the rule's key, in the order of the policy; may be repeated
    #[arg(long, value_name = "VALUE")]
    pub(crate) key: Vec<String>,
    /// The tenant of the request, if it has quotas of its own
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// The surface that enforces the policy
    #[arg(long, value_parser = surface_parser(), default_value = "envoy")]
    pub(crate) surface: Surface,
    /// The file with the secret of the surface: hash_key of the filter, HASH_KEY of the Worker,
    /// hash_key of the server. A configuration of Envoy already contains it
    #[arg(long, value_name = "FILE")]
    pub(crate) hash_key: Option<PathBuf>,
}

/// One policy that may have the rule.
struct Candidate {
    /// Its position in an Envoy configuration.
    place: Option<String>,
    policy: Policy,
}

/// Prints the hash.
pub(crate) fn run(args: &PkArgs) -> Result<(), CommandError> {
    let (file, candidates) = candidates(args)?;
    let given = args.hash_key.as_deref().map(|path| secret(path, args.surface)).transpose()?;
    let (mut lines, mut lacks_secret) = (Vec::new(), false);
    for Candidate { place, mut policy } in candidates {
        let key = match key(&policy, args) {
            Err(NoKey::NoRule) => continue,
            Err(NoKey::Wrong(problem)) => return Err(CommandError::Misuse(problem.to_string())),
            Ok(key) => key,
        };
        let Some(secret) = given.or(policy.hash_key()) else {
            lacks_secret = true;
            continue; // another filter of the file may have one
        };
        policy.set_hash_key(secret);
        lines.push((place, pk_text(key.pk(&policy))));
    }
    match lines.as_slice() {
        [] if lacks_secret => Err(CommandError::Misuse(NO_SECRET.to_owned())),
        [] => Err(CommandError::Misuse(format!("{file} has no rule \"{}\"", args.rule))),
        [(_, pk)] => output::raw(&format!("{pk}\n")),
        several => output::raw(&several.iter().fold(String::new(), |text, (place, pk)| {
            format!(
                "{text}{}{pk}\n",
                place.as_deref().map(|it| format!("{it}: ")).unwrap_or_default()
            )
        })),
    }
}

const NO_SECRET: &str = "the hash needs the secret: name its file with --hash-key; a filter without hash_key makes a new secret at each start, so set hash_key";

fn key(policy: &Policy, args: &PkArgs) -> Result<GivenKey, NoKey> {
    let key = GivenKey::new(policy, &args.rule, &args.key)?;
    match &args.tenant {
        Some(tenant) => key.of_tenant(policy, tenant),
        None => Ok(key),
    }
}

/// All policies of the file, and the file's name.
fn candidates(args: &PkArgs) -> Result<(String, Vec<Candidate>), CommandError> {
    let (file, source) = source::load(&args.policy)?;
    let refuse = |problems: &[source::Finding]| command::refuse(problems, &file);
    let mut candidates = Vec::new();
    match source {
        Source::Fault(fault) => {
            return Err(refuse(&Compiled::failed(fault, &[args.surface]).problems));
        }
        Source::Policy(document) => {
            let (plugin, _) = source::compile_plugin(&document, args.surface)
                .map_err(|problems| refuse(&problems))?;
            candidates.push(Candidate { place: None, policy: plugin.policy });
            candidates.extend(plugin.named.into_iter().map(of_route));
        }
        Source::Envoy(filters) => {
            for Filter { place, host, document, around, .. } in filters.filters {
                let document = document.map_err(|fault| refuse(&[fault.into()]))?;
                let compiled = source::compile_for(host, &document, &[]);
                if !compiled.problems.is_empty() {
                    return Err(refuse(&compiled.problems));
                }
                for (_, mut policy) in compiled.policies {
                    if let Some(key) = around.hash_key {
                        policy.set_hash_key(key);
                    }
                    candidates.push(Candidate { place: Some(place.words()), policy });
                }
                candidates.extend(around.named.into_iter().map(of_route));
            }
        }
    }
    Ok((file, candidates))
}

fn of_route(named: NamedPolicy) -> Candidate {
    let NamedPolicy { name, policy } = named;
    Candidate { place: Some(format!("policy \"{name}\"")), policy }
}

/// Reads the secret in a file and derives the key from it as the surface does.
fn secret(path: &Path, surface: Surface) -> Result<[u8; 16], CommandError> {
    let bytes = input::bytes_of(path, MAX_SECRET)?;
    let text = bytes.trim_ascii();
    if text.is_empty() || bytes.len() > MAX_SECRET {
        let message = format!("{} must have 1 to {MAX_SECRET} bytes", path.display());
        return Err(CommandError::Misuse(message));
    }
    match surface {
        Surface::Envoy => {
            let text = core::str::from_utf8(text);
            text.map(plugin_hash_key)
                .map_err(|_| CommandError::Misuse(format!("{} is not UTF-8", path.display())))
        }
        Surface::Library => {
            let message =
                "a program with the library chooses its key itself (Policy::set_hash_key)";
            Err(CommandError::Misuse(message.to_owned()))
        }
        Surface::Worker | Surface::Server => {
            let digest: [u8; 32] = Sha256::digest(text).into();
            Ok(digest.first_chunk().copied().unwrap_or_default())
        }
    }
}
