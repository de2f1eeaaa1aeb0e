//! The functions that the playground's page calls, as wasm in worker threads: the policy's own
//! compiler for the editor, the simulator for the lanes, and the replay for an access log.
//!
//! Invariant: nothing is decided here, and nothing leaves the page. Arguments are texts, results
//! are JSON whose fields the types of this crate name; places in a text are offsets as JavaScript
//! counts them, in UTF-16 units. Deliberately absent: the page itself, which is `web/`.
//!
//! The features are modules of their own in the page: `lanes` is loaded at the start, `logs` is
//! fetched when the user opens a log.
//!
//! The modules are in import order: each imports only modules declared below it.
#![forbid(unsafe_code)]

#[cfg(feature = "logs")]
mod log;
#[cfg(feature = "lanes")]
mod lane;
#[cfg(feature = "lanes")]
mod request_details;
#[cfg(feature = "lanes")]
mod watch;
#[cfg(feature = "lanes")]
mod bins;
#[cfg(feature = "lanes")]
mod check;
#[cfg(feature = "lanes")]
mod complete;
#[cfg(feature = "lanes")]
mod context;
#[cfg(feature = "lanes")]
mod schema;
#[cfg(feature = "lanes")]
mod locate;
#[cfg(feature = "lanes")]
mod outline;
#[cfg(feature = "lanes")]
mod tokens;
#[cfg(feature = "lanes")]
mod units;

#[cfg(feature = "lanes")]
use lane::LaneRun;
#[cfg(feature = "lanes")]
use tollgate_core::Span;
#[cfg(any(feature = "lanes", feature = "logs"))]
use wasm_bindgen::prelude::{JsError, wasm_bindgen};

/// The compiler's report on a policy for a surface (`envoy`, `worker`, `library`, `server`), as the
/// JSON of `check::Checked`.
///
/// Never fails: an invalid text or surface name is among the problems.
#[cfg(feature = "lanes")]
#[wasm_bindgen]
#[must_use]
pub fn check(text: &str, surface: &str) -> String {
    json(&check::check(text, surface))
}

/// The completions at `offset`, in UTF-16 units, of a policy that may be incomplete: the JSON of a
/// list of `complete::Completion`, the most likely first.
///
/// Never fails: an offset beyond the text means its end.
#[cfg(feature = "lanes")]
#[wasm_bindgen]
#[must_use]
pub fn complete(text: &str, offset: usize) -> String {
    json(&complete::complete(text, offset))
}

/// A policy under simulated traffic.
#[cfg(feature = "lanes")]
#[wasm_bindgen]
#[derive(Debug)]
pub struct Lane(LaneRun);

#[cfg(feature = "lanes")]
#[wasm_bindgen]
impl Lane {
    /// A lane at its beginning: the policy, the traffic document of `tollgate simulate`, and the
    /// random seed.
    ///
    /// # Errors
    /// The mistakes in the policy or the traffic, in words, one per line.
    #[wasm_bindgen(constructor)]
    pub fn new(policy: &str, traffic: &str, seed: u64) -> Result<Self, JsError> {
        LaneRun::new(policy, traffic, seed).map(Self).map_err(|why| JsError::new(&why))
    }

    /// Continues for at most `budget` decisions: `{done, offered, at_ms, length_ms}`.
    pub fn step(&mut self, budget: u32) -> String {
        json(&self.0.step(budget.into()))
    }

    /// The results so far: the output of `tollgate simulate --json`.
    pub fn table(&mut self) -> String {
        json(&self.0.table())
    }

    /// The key whose state the series show:
    /// `{rule, tier, quota, algorithm, limit, window_ms, burst, client}`, or null when no rule
    /// counts the traffic.
    #[must_use]
    pub fn watched(&self) -> String {
        json(&self.0.watch().watched)
    }

    /// A series over the whole run in `buckets` equal parts, 1 to 7200. `offered`, `admitted` (at
    /// once), `delayed` and `denied` are counts. `true_count` (in the true window that ends there),
    /// `estimate` (the usage that the algorithm assumes), `wait` (ms) and `whole_after` (ms until
    /// the key's state is as if never used) are the greatest of a part, `remaining` the least. NaN
    /// where there is no value.
    ///
    /// # Errors
    /// For an unknown name, and for another number of parts.
    pub fn series(&self, name: &str, buckets: usize) -> Result<Vec<f64>, JsError> {
        let series = self.0.watch().bins.series(name, buckets);
        series.ok_or_else(|| JsError::new("there is no such series"))
    }

    /// The number of the last request that came at most `at_ms` milliseconds after the beginning,
    /// or of the first one.
    #[must_use]
    pub fn near(&self, at_ms: f64) -> Option<u32> {
        self.0.near(nanos(at_ms)).and_then(|number| u32::try_from(number).ok())
    }

    /// All data of the request with this number, as `RequestDetails`; null when there is none.
    pub fn at(&mut self, number: u32) -> String {
        json(&self.0.request_details(number.into()))
    }
}

/// Milliseconds with a fraction; zero for a negative value or NaN.
#[cfg(feature = "lanes")]
#[expect(clippy::as_conversions, reason = "a float to integer cast saturates: it cannot fail")]
#[expect(clippy::float_arithmetic, reason = "a place on a plot: nothing is decided by it")]
const fn nanos(at_ms: f64) -> Span {
    Span::from_nanos((at_ms * 1e6).round() as u64)
}

/// An access log, replayed through a policy.
#[cfg(feature = "logs")]
#[wasm_bindgen]
#[derive(Debug)]
pub struct Log(Option<log::LogRun>);

#[cfg(feature = "logs")]
#[wasm_bindgen]
impl Log {
    /// A replay at its beginning. `asked` is JSON; its fields are the flags of `tollgate replay`:
    /// `format`, `map`, `assume`, `include_refused`, `private`, `suggest`, `touch` and
    /// `private_key`.
    ///
    /// # Errors
    /// The mistakes in either, in words, one per line.
    #[wasm_bindgen(constructor)]
    pub fn new(policy: &str, asked: &str) -> Result<Self, JsError> {
        log::LogRun::new(policy, asked).map(|run| Self(Some(run))).map_err(|why| JsError::new(&why))
    }

    /// Reads the next bytes of the log, which are not packed.
    ///
    /// # Errors
    /// Data that the policy needs and the log does not have, or an unknown format, in words.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), JsError> {
        let run = self.0.as_mut().ok_or_else(|| JsError::new(ENDED))?;
        run.push(bytes).map_err(|why| JsError::new(&why))
    }

    /// Starts reading the log a second time from its beginning, to try the suggested limits. Once.
    ///
    /// # Errors
    /// As `push`, for a short log; or no limits were requested.
    pub fn again(&mut self) -> Result<(), JsError> {
        let run = self.0.take().ok_or_else(|| JsError::new(ENDED))?;
        self.0 = Some(run.again().map_err(|why| JsError::new(&why))?);
        Ok(())
    }

    /// The result: the output of `tollgate replay --json`. Once.
    ///
    /// # Errors
    /// As `push`, for a short log.
    pub fn finish(&mut self) -> Result<String, JsError> {
        let run = self.0.take().ok_or_else(|| JsError::new(ENDED))?;
        run.finish().map(|summary| json(&summary)).map_err(|why| JsError::new(&why))
    }
}

#[cfg(feature = "logs")]
const ENDED: &str = "the log has ended";

/// Our own types always become JSON: none of their maps has keys that are not texts.
#[cfg(any(feature = "lanes", feature = "logs"))]
fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
