//! `tollgate replay`: which clients would a policy have limited, by an access log?
//!
//! Invariant: facts that the logs do not contain are reported before anything is counted, and then
//! nothing is counted. So the report never shows that no client was limited because a rule lacked
//! its facts. The figures come from `tollgate_lab::replay`; this module opens files and prints.

pub(crate) mod args;
mod inputs;
mod interrupt;
mod lane;
mod merge;
mod progress;
mod spool;
mod unpack;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use tollgate_access_log::{Bounds, Field, Format};
use tollgate_lab::replay::suggest::{Bounds as SuggestBounds, Share, Suggest};
use tollgate_lab::replay::{
    AssumedValues, ConditionResult, LogCounts, Need, Observer, Options, Replay, Summary, defaults,
    needs, wanted,
};
use tollgate_policy::spec::Fact;
use tollgate_policy::{Policy, Surface};

use crate::command;
use crate::envoy::Filter;
use crate::error::CommandError;
use crate::output::{self, Page};
use crate::replay::args::ReplayArgs;
use crate::replay::inputs::Input;
use crate::replay::interrupt::Interrupt;
use crate::replay::lane::Lane;
use crate::replay::merge::Merge;
use crate::replay::progress::ReadProgress;
use crate::source::{self, Compiled, Source};
use crate::tenants::Tenants;

/// Replays the logs and prints the report.
pub(crate) fn run(args: &ReplayArgs) -> Result<(), CommandError> {
    check(args)?;
    let page = args.outputs.file(args.inputs())?;
    let (file, policy) = policy(&args.policy, args.surface)?;
    let other = args.against.as_deref().map(|path| self::policy(path, args.surface)).transpose()?;
    let assumed = args.assumed()?;
    let tenants = self::tenants(args, &policy, other.as_ref())?;
    let interrupt = Interrupt::listen();
    let spooled = args.suggest.then_some(args.spool);
    let open = |path: &std::path::PathBuf| Input::open(path, &interrupt, spooled);
    let mut inputs = args.logs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let formats = formats(args, &inputs)?;
    let policies: Vec<&Policy> = [Some(&policy), other.as_ref().map(|(_, other)| other)]
        .into_iter()
        .flatten()
        .map(AsRef::as_ref)
        .collect();
    let contains = |field: &Field| formats.iter().all(|format| format.contains(field));
    let fields = fields(args, &policies, &assumed, contains)?;
    let defaults: BTreeSet<String> =
        policies.iter().flat_map(|policy| defaults(policy, &assumed, contains)).collect();
    let reads_client = policies
        .iter()
        .any(|policy| policy.explain().reads().iter().any(|read| read.fact == Fact::Client));
    if let (Some(since), Some(until)) = (args.since, args.until)
        && since >= until
    {
        return Err(CommandError::Misuse(
            "--until is not after --since: no request is between them".to_owned(),
        ));
    }
    let mut job = Job {
        options: args.options()?,
        policy,
        other: other.map(|(_, other)| other),
        tenants,
        assumed,
        formats,
        fields,
        bounds: Bounds { out_of_order_ns: args.out_of_order.as_nanos(), ..Bounds::default() },
        touch: args.touch,
        interrupt: &interrupt,
    };
    let mut summary =
        if args.suggest { job.suggested(&mut inputs)? } else { job.pass(&mut inputs, ())?.0 };
    summary.notes.extend(defaults);
    if interrupt.is_wanted() {
        let note = "the replay was interrupted: the report covers only the lines read before";
        summary.notes.push(note.to_owned());
    }
    summary.fail_if = args.fail_if.iter().map(|condition| condition.check(&summary)).collect();
    let title = format!("Replay of {} through {file}", names(&inputs));
    args.outputs.write(page.as_ref(), &summary, &summary.report(&title))?;
    judge(args, &summary, reads_client, interrupt.is_wanted())
}

/// One or two policies, and how logs are replayed through them.
struct Job<'j> {
    options: Options,
    policy: Arc<Policy>,
    other: Option<Arc<Policy>>,
    tenants: Tenants,
    assumed: AssumedValues,
    formats: Vec<Format>,
    fields: Vec<Field>,
    bounds: Bounds,
    touch: Option<Share>,
    interrupt: &'j Interrupt,
}

impl Job<'_> {
    /// One pass over all logs, with `observer`.
    fn pass<O: Observer + Send>(
        &self,
        inputs: &mut [Input],
        observer: O,
    ) -> Result<(Summary, O), CommandError> {
        let policy = Arc::clone(&self.policy);
        let (assumed, options) = (self.assumed.clone(), self.options.clone());
        let mut replay = Replay::observed(policy, assumed, options, observer);
        if let Some(other) = &self.other {
            replay = replay.against(Arc::clone(other));
        }
        if self.tenants.are_given() {
            replay = replay.with_tenants(&self.tenants.entries);
        }
        let sizes: Option<Vec<u64>> = inputs.iter().map(|input| input.size).collect();
        let total = sizes.map(|sizes| sizes.into_iter().fold(0, u64::saturating_add));
        let mut progress = ReadProgress::new(total);
        let counts = self.read(inputs, &mut replay, &mut progress);
        drop(progress);
        Ok(replay.finish(&counts?))
    }

    fn read<O: Observer + Send>(
        &self,
        inputs: &mut [Input],
        replay: &mut Replay<O>,
        progress: &mut ReadProgress,
    ) -> Result<LogCounts, CommandError> {
        let read = Arc::clone(&progress.read);
        let with = (self.interrupt, &read);
        let mut merge = Merge::new(inputs, &self.formats, &self.fields, self.bounds, with)?;
        std::thread::scope(|scope| {
            let mut lane = Lane::start(scope, replay, &self.fields);
            while merge.step(&mut |record| lane.push(record))? {
                progress.show(merge.lines());
            }
            let counts = merge.finish(&mut |record| lane.push(record));
            lane.end();
            counts
        })
    }

    /// Reads the logs, then reads them again to try the suggested limits, if that is possible.
    fn suggested(&mut self, inputs: &mut [Input]) -> Result<Summary, CommandError> {
        let suggest = Suggest::new(&self.policy, SuggestBounds::default());
        let suggest = match self.touch {
            Some(share) => suggest.touching(share),
            None => suggest,
        };
        let (mut summary, suggest) = self.pass(inputs, suggest)?;
        let second = suggest.second_pass();
        let (second, tried) = match inputs.iter().try_for_each(Input::can_be_read_again) {
            _ if self.interrupt.is_wanted() => (second, Err("it was interrupted".to_owned())),
            Ok(()) => {
                self.other = None;
                let second = self.pass(inputs, second)?.1;
                let is_whole = !self.interrupt.is_wanted();
                (second, is_whole.then_some(()).ok_or_else(|| "it was interrupted".to_owned()))
            }
            Err(why) => (second, Err(why)),
        };
        summary.suggestions = Some(match tried {
            Ok(()) => second.finish(),
            Err(why) => {
                summary.notes.push(format!("the suggested limits were not tried: {why}"));
                second.leave_out()
            }
        });
        Ok(summary)
    }
}

/// Rejects arguments that contradict each other.
fn check(args: &ReplayArgs) -> Result<(), CommandError> {
    let is_standard = |path: &Path| path.as_os_str() == "-";
    if args.inputs().filter(|path| is_standard(path)).count() > 1 {
        return Err(CommandError::Misuse(
            "the standard input can be read once; name - once".to_owned(),
        ));
    }
    if args.against.is_none() && args.fail_if.iter().any(|condition| condition.is_about_a_change())
    {
        return Err(CommandError::Misuse("a condition on changes needs --against".to_owned()));
    }
    Ok(())
}

/// The entries given for the policies.
fn tenants(
    args: &ReplayArgs,
    policy: &Arc<Policy>,
    other: Option<&(String, Arc<Policy>)>,
) -> Result<Tenants, CommandError> {
    let other = other.map(|(_, other)| &**other);
    let policies: Vec<&Policy> = [Some(&**policy), other].into_iter().flatten().collect();
    if args.tenants.is_empty() {
        Ok(Tenants::default())
    } else {
        Tenants::load(&args.tenants, &policies)
    }
}

/// The policy in a file, and the file's name.
fn policy(path: &Path, surface: Option<Surface>) -> Result<(String, Arc<Policy>), CommandError> {
    let at = surface.unwrap_or(Surface::Envoy);
    let (file, source) = source::load(path)?;
    let compiled = match source {
        Source::Policy(document) => source::compile(&document, &[at]),
        Source::Fault(fault) => Compiled::failed(fault, &[at]),
        Source::Envoy(_) if at != Surface::Envoy => {
            return Err(CommandError::Misuse(format!(
                "{file} is a configuration of Envoy, for which the only surface is envoy"
            )));
        }
        Source::Envoy(mut found) => {
            if let Some(fault) = found.twice.pop() {
                return Err(command::refuse(&[fault.into()], &file));
            }
            let many = found.filters.len();
            match (found.filters.pop(), many) {
                (Some(Filter { host, document: Ok(document), .. }), 1) => {
                    source::compile_for(host, &document, &[])
                }
                (Some(Filter { document: Err(fault), .. }), 1) => Compiled::failed(fault, &[at]),
                _ => {
                    return Err(CommandError::Misuse(format!(
                        "{file} has {many} Tollgate filters; a replay needs one policy, in a file of its own"
                    )));
                }
            }
        }
    };
    let mut policies = compiled.policies;
    match policies.pop() {
        Some((_, mut policy)) if compiled.problems.is_empty() => {
            source::refuse_reported(&policy, &file)?;
            // Only the share of keys matters, not which ones.
            policy.set_hash_key([0; 16]);
            Ok((file, Arc::new(policy)))
        }
        _ => Err(command::refuse(&compiled.problems, &file)),
    }
}

/// The format of each log.
fn formats(args: &ReplayArgs, inputs: &[Input]) -> Result<Vec<Format>, CommandError> {
    let map = args.maps.join(",");
    let mut formats = Vec::new();
    for input in inputs {
        match input.format(args.format.as_ref(), &map) {
            Ok(format) => formats.push(format),
            // An empty file has no lines that could be parsed wrongly.
            Err(_) if input.head.trim_ascii().is_empty() && args.format.is_none() => {
                let any =
                    Format::parse("combined").map_err(|e| CommandError::Misuse(e.to_string()))?;
                formats.push(any);
            }
            Err(message) => {
                // Without a header line the column names are a line of the log.
                let shown = match message.split_once(", but ") {
                    Some((shown, _)) if args.is_private() => shown,
                    _ => &message,
                };
                problem(shown);
                return Err(CommandError::Problems);
            }
        }
    }
    Ok(formats)
}

/// The fields to read of each line; a need of a policy that nothing supplies ends the command here.
fn fields(
    args: &ReplayArgs,
    policies: &[&Policy],
    assumed: &AssumedValues,
    contains: impl Fn(&Field) -> bool + Copy,
) -> Result<Vec<Field>, CommandError> {
    let all = policies.iter().flat_map(|policy| needs(policy, assumed, contains));
    let mut missing: Vec<Need> = Vec::new();
    for need in all {
        if !missing.contains(&need) {
            missing.push(need);
        }
    }
    if !missing.is_empty() {
        #[derive(Serialize)]
        struct Missing {
            needs: Vec<Need>,
        }
        if args.outputs.json {
            output::json(&Missing { needs: missing })?;
        } else {
            missing.iter().for_each(|need| problem(&need.to_string()));
        }
        return Err(CommandError::Problems);
    }
    let mut fields: Vec<Field> =
        policies.iter().flat_map(|policy| wanted(policy, assumed, contains)).collect();
    if args.against.is_some() {
        // For examples.
        fields.extend([Field::Method, Field::Target]);
    }
    Ok(fields)
}

/// The end of the replay: success, or the conditions that fail.
fn judge(
    args: &ReplayArgs,
    summary: &Summary,
    reads_client: bool,
    is_interrupted: bool,
) -> Result<(), CommandError> {
    let log = &summary.log;
    let mut is_good = log.damaged.is_empty() && !is_interrupted;
    if log.lines == log.unparsable {
        let is_named = args.format.is_some();
        let hint = if is_named { "check --format" } else { "name the format with --format" };
        problem(&match log.lines {
            0 => "the input contains no lines".to_owned(),
            lines => format!("none of {lines} lines could be read; {hint}"),
        });
        is_good = false;
    } else if summary.requests.total == 0 {
        let (refused, outside) = (log.already_refused, log.outside);
        problem(&format!(
            "no request was replayed: {refused} were already denied in the log, {outside} are outside --since and --until"
        ));
        is_good = false;
    }
    let left_out = log.late.saturating_add(log.ahead);
    if left_out > summary.requests.total {
        problem(&format!(
            "{left_out} of {} lines were left out, since they are later than --out-of-order allows; sort the log by time",
            log.lines
        ));
        is_good = false;
    }
    if reads_client && summary.requests.total > 0 && summary.clients.total == 0 {
        problem(
            "no request has a client, which the policy reads; use --map client=COLUMN or --assume client=ADDRESS",
        );
        is_good = false;
    }
    for damage in &log.damaged {
        problem(&format!(
            "{}: {}; the report covers the lines before it",
            damage.log, damage.message
        ));
    }
    for ConditionResult { condition, found, of, .. } in summary.fail_if.iter().filter(|c| c.fails) {
        problem(&format!("--fail-if {condition}: {found} of {of}"));
        is_good = false;
    }
    if is_good { Ok(()) } else { Err(CommandError::Problems) }
}

fn problem(message: &str) {
    let mut page = Page::default();
    page.push_styled(output::BAD, "problem:");
    page.push_str(&format!(" {message}\n"));
    page.err();
}

/// `access.log`, or `access.log and 3 more`.
fn names(inputs: &[Input]) -> String {
    match inputs {
        [] => String::new(),
        [one] => one.name.clone(),
        [first, others @ ..] => format!("{} and {} more", first.name, others.len()),
    }
}
