//! An access log, replayed piece by piece as the browser reads it.
//!
//! Invariant: the replay is the command line's, with its defaults, so its result is the output of
//! `tollgate replay --json`. If the log lacks required data, that is reported before anything is
//! counted, and then nothing is counted. Limits are suggested where the page reads the log twice.
//! Deliberately absent: decompression, which the browser does, and storing anything: a log stays in
//! its page.

use std::sync::Arc;

use serde::Deserialize;
use tollgate_access_log::{Bounds, Format, FormatError};
use tollgate_lab::replay::suggest::{Bounds as SuggestBounds, SecondPass, Share, Suggest};
use tollgate_lab::replay::{
    AssumedValues, CountedRequest, LogCounts, Observer, Options, Replay, Source, Summary, defaults,
    needs, wanted,
};
use tollgate_policy::{Policy, Surface};

/// Bytes in which the format is detected, as on the command line.
const HEAD: usize = 64 * 1024;

/// The options; each is the flag of `tollgate replay` with that name.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ReplayOptions {
    format: String,
    map: Vec<String>,
    assume: Vec<String>,
    include_refused: bool,
    private: bool,
    suggest: bool,
    /// Per cent; empty for the usual shares.
    touch: String,
    /// 32 hexadecimal digits that are unknown to the log's author.
    private_key: String,
}

/// A replay under way.
#[derive(Debug)]
pub(crate) struct LogRun {
    policy: Arc<Policy>,
    assumed: AssumedValues,
    options: Options,
    format: Option<Format>,
    map: String,
    /// The first bytes, until there are enough of them to detect the format.
    head: Vec<u8>,
    /// The observer of the reading that is to begin.
    pass: Pass,
    reading: Option<Reading>,
    /// The result of the first of two readings.
    first: Option<Summary>,
}

/// The current reading, where limits are suggested.
#[derive(Debug)]
enum Pass {
    Only,
    First(Suggest),
    Second(SecondPass),
}

/// The state that was created from the first bytes.
#[derive(Debug)]
struct Reading {
    source: Source,
    replay: Replay<Pass>,
    /// Notes on facts that the log lacks.
    defaults: Vec<String>,
}

impl Observer for Pass {
    fn counted(&mut self, request: CountedRequest) {
        match self {
            Self::Only => {}
            Self::First(suggest) => suggest.counted(request),
            Self::Second(second) => second.counted(request),
        }
    }

    fn wants_label(&self, quota_set: usize, key: u64) -> bool {
        matches!(self, Self::Second(second) if second.wants_label(quota_set, key))
    }

    fn labelled(&mut self, quota_set: usize, key: u64, label: String) {
        if let Self::Second(second) = self {
            second.labelled(quota_set, key, label);
        }
    }
}

impl LogRun {
    /// A replay through `policy`; `chosen` is the JSON of the options.
    ///
    /// # Errors
    /// The mistakes in either, in words, one per line.
    pub(crate) fn new(policy: &str, chosen: &str) -> Result<Self, String> {
        let mut policy =
            tollgate_language::compile(policy, Surface::Envoy).map_err(|all| all.to_string())?;
        // The share of keys is needed, not their identity.
        policy.set_hash_key([0; 16]);
        let chosen: ReplayOptions =
            serde_json::from_str(chosen).map_err(|error| format!("the options: {error}"))?;
        let mut assumed = AssumedValues::default();
        for text in &chosen.assume {
            assumed.assume(text).map_err(|error| format!("assume {text}: {error}"))?;
        }
        for map in &chosen.map {
            let field =
                map.split_once('=').ok_or_else(|| format!("map {map}: use FIELD=COLUMN"))?;
            // Some names of columns are not fields that a policy reads.
            if let Ok(field) = tollgate_lab::replay::field(field.0) {
                assumed.mapped(&field);
            }
        }
        let format = match chosen.format.trim() {
            "" => None,
            name => Some(Format::parse(name).map_err(|error| error.to_string())?),
        };
        let options = Options {
            include_refused: chosen.include_refused,
            is_private: chosen.private,
            secret: secret(&chosen.private_key)?,
            ..Options::default()
        };
        let map = chosen.map.join(",");
        let policy = Arc::new(policy);
        let pass = if chosen.suggest { first_pass(&policy, &chosen.touch)? } else { Pass::Only };
        let (head, reading, first) = (Vec::new(), None, None);
        Ok(Self { policy, assumed, options, format, map, head, pass, reading, first })
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// The log has no known format, or lacks data that the policy needs, in words.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.reading.is_some() {
            return self.feed(bytes);
        }
        self.head.extend_from_slice(bytes);
        if self.head.len() < HEAD { Ok(()) } else { self.begin() }
    }

    /// Ends the first reading of the log: it must be read a second time, to try the suggested
    /// limits.
    ///
    /// # Errors
    /// As [`LogRun::push`], when the log is short; or no limits were requested.
    pub(crate) fn again(mut self) -> Result<Self, String> {
        let (summary, Pass::First(suggest)) = self.end()? else {
            return Err("a log is read again for limits that are suggested".to_owned());
        };
        Ok(Self { pass: Pass::Second(suggest.second_pass()), first: Some(summary), ..self })
    }

    /// Ends the log, and returns the result.
    ///
    /// # Errors
    /// As [`LogRun::push`], when the log is short.
    pub(crate) fn finish(mut self) -> Result<Summary, String> {
        let (summary, pass) = self.end()?;
        let suggestions = match pass {
            Pass::Only => None,
            Pass::First(suggest) => Some(suggest.second_pass().leave_out()),
            Pass::Second(second) => Some(second.finish()),
        };
        // The second reading tries limits; the figures are the first one's.
        Ok(Summary { suggestions, ..self.first.unwrap_or(summary) })
    }

    /// Ends this reading.
    fn end(&mut self) -> Result<(Summary, Pass), String> {
        if self.reading.is_none() {
            self.begin()?;
        }
        let Some(Reading { mut source, mut replay, defaults }) = self.reading.take() else {
            return Err("no log was started".to_owned());
        };
        source.finish(&mut |record| replay.push(record)).map_err(|error| error.to_string())?;
        let mut counts = LogCounts::default();
        source.count(&mut counts);
        let (mut summary, pass) = replay.finish(&counts);
        summary.notes.extend(defaults);
        Ok((summary, pass))
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(Reading { source, replay, .. }) = &mut self.reading else { return Ok(()) };
        source.feed(bytes, &mut |record| replay.push(record)).map_err(|error| error.to_string())
    }

    /// Detects the format from the first bytes, and reads them.
    fn begin(&mut self) -> Result<(), String> {
        let head = std::mem::take(&mut self.head);
        let format = self.format_of(&head)?;
        let contains = |field: &_| format.contains(field);
        let missing = needs(&self.policy, &self.assumed, contains);
        if !missing.is_empty() {
            let lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
            return Err(lines.join("\n"));
        }
        let fields = wanted(&self.policy, &self.assumed, contains);
        let source = Source::new(&format, fields, Bounds::default());
        let source = source.map_err(|error| error.to_string())?;
        let policy = Arc::clone(&self.policy);
        let pass = std::mem::replace(&mut self.pass, Pass::Only);
        let replay = Replay::observed(policy, self.assumed.clone(), self.options.clone(), pass);
        let defaults = defaults(&self.policy, &self.assumed, contains);
        self.reading = Some(Reading { source, replay, defaults });
        self.feed(&head)
    }

    fn format_of(&self, head: &[u8]) -> Result<Format, String> {
        let words = |error: FormatError| error.to_string();
        let format = match &self.format {
            Some(format) => format.clone(),
            // An empty file has no lines that could be read wrongly.
            None if head.trim_ascii().is_empty() => Format::parse("combined").map_err(words)?,
            None => Format::detect(head)
                .ok_or_else(|| "the first lines match no known format; choose it".to_owned())?,
        };
        let mapped = if self.map.is_empty() { Ok(format) } else { format.with_map(&self.map) };
        mapped.and_then(|format| format.fit(head)).map_err(words)
    }
}

fn first_pass(policy: &Policy, touch: &str) -> Result<Pass, String> {
    let suggest = Suggest::new(policy, SuggestBounds::default());
    Ok(Pass::First(match touch.trim() {
        "" => suggest,
        share => suggest.touching(Share::parse(share).map_err(|error| format!("touch: {error}"))?),
    }))
}

fn secret(digits: &str) -> Result<[u8; 16], String> {
    if digits.is_empty() {
        return Ok([0; 16]);
    }
    let number = u128::from_str_radix(digits, 16)
        .ok()
        .filter(|_| digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    number.map(u128::to_be_bytes).ok_or_else(|| "private_key: use 32 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"{"version": 1, "rules": [
        {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 2, "window": "1m"}]}]}"#;

    fn log(lines: usize) -> String {
        let line = |i: usize| {
            format!(
                "192.0.2.{} - - [01/Jan/2026:00:{:02}:{:02} +0000] \"GET /<b> HTTP/1.1\" 200 1 \"-\" \"x\"\n",
                i % 3,
                i / 60 % 60,
                i % 60
            )
        };
        (0..lines).map(line).collect()
    }

    fn replayed(options: &str, text: &str, piece: usize) -> Result<Summary, String> {
        let mut run = LogRun::new(POLICY, options)?;
        text.as_bytes().chunks(piece.max(1)).try_for_each(|piece| run.push(piece))?;
        run.finish()
    }

    #[test]
    fn however_a_log_is_cut_the_same_comes_of_it() {
        let text = log(2_000);
        let whole = serde_json::to_string(&replayed("{}", &text, text.len()).unwrap()).unwrap();
        for piece in [7, 1_000, 65_536] {
            let found = serde_json::to_string(&replayed("{}", &text, piece).unwrap()).unwrap();
            assert_eq!(found, whole, "{piece}");
        }
        let found: serde_json::Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(
            (&found["requests"]["total"], &found["log"]["lines"]),
            (&2_000.into(), &2_000.into())
        );
        assert!(found["requests"]["denied"].as_u64().unwrap() > 1_000, "{found}");
    }

    #[test]
    fn limits_are_suggested_of_a_log_that_is_read_twice() {
        let text = log(2_000);
        let mut run = LogRun::new(POLICY, r#"{"suggest": true, "touch": "50%"}"#).unwrap();
        for reading in 0..2 {
            text.as_bytes().chunks(1_000).try_for_each(|piece| run.push(piece)).unwrap();
            run = if reading == 0 { run.again().unwrap() } else { run };
        }
        let mut found = run.finish().unwrap();
        let [suggestion] = &found.suggestions.take().unwrap()[..] else { panic!("one quota") };
        assert_eq!((suggestion.clients, suggestion.greatest.max), (3, 20));
        assert!(suggestion.limits.iter().all(|limit| limit.replayed.is_some()), "they were tried");
        assert!(suggestion.limits.iter().any(|limit| limit.wished_percent == "50"));
        assert_eq!(suggestion.heaviest.len(), 3, "limited or not");
        let json = |summary| serde_json::to_string(&summary).unwrap();
        let alone = json(replayed("{}", &text, 1_000).unwrap());
        assert_eq!(json(found), alone, "and all else is as without them");
        assert!(LogRun::new(POLICY, "{}").unwrap().again().is_err());
        assert!(LogRun::new(POLICY, r#"{"suggest": true, "touch": "many"}"#).is_err());
    }

    #[test]
    fn a_missing_fact_is_an_error_and_nothing_is_counted() {
        let policy = POLICY.replace("client_ip", "country");
        let error = LogRun::new(&policy, "{}").unwrap_err();
        assert!(error.contains("geo.country_header"), "{error}");
        let policy = POLICY.replace("\"client_ip\"", "{\"header\": \"x-api-key\"}");
        let mut run = LogRun::new(&policy, "{}").unwrap();
        run.push(log(2).as_bytes()).unwrap();
        let error = run.finish().unwrap_err();
        assert!(error.contains("x-api-key") && error.contains("each"), "{error}");
    }

    #[test]
    fn what_is_asked_for_is_understood_or_refused() {
        assert_eq!(replayed("{}", "", 1).unwrap().log.lines, 0);
        assert!(replayed("{}", "what is this\n", 1).unwrap_err().contains("no known format"));
        let forced = replayed(r#"{"format": "combined"}"#, "what is this\n", 1).unwrap();
        assert_eq!((forced.log.lines, forced.log.unparsable), (1, 1));
        for wrong in [r#"{"format": "moon"}"#, r#"{"other": 1}"#, r#"{"private_key": "1"}"#] {
            assert!(LogRun::new(POLICY, wrong).is_err(), "{wrong}");
        }
        assert!(LogRun::new("{", "{}").unwrap_err().starts_with("not JSON"));
    }
}
