//! `POST /check/renew` and `POST /check/done`: the caller of an allowed request reports that it
//! still runs, or has ended, by the id from `/check`.
//!
//! Invariant: an id is sealed as that of a cost is (`settle`), in a format of its own, so that none
//! is accepted in place of the other. It contains everything that a report needs, and nothing is
//! stored for a request: the names of its counts, and a receipt of each
//! (`pipeline/remote/request.rs` of the policy crate). Each count carries out a report on its own,
//! and a repeated report makes no difference: a count that did not reply is reported to again. A
//! confirmation gives a new id, because the receipts contain the time of the last one; earlier ids
//! of the request stay valid for `max_age`. Deliberately absent: how a count is asked.
//!
//! An id is Base64 for URLs of: 2, the format; a random number `u64`; per count its name, its
//! receipt and the seal, as in `settle`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_language::DescribedInFlight;
use tollgate_policy::{CONFIRMED_AFTER, Partition, Plan, Policy, Problem, Problems};
use tollgate_storage::max_age_of;

use crate::api_response::ApiResponse;
use crate::settle::{NamedReceipt, Sealer};

/// The format of an id.
const FORMAT: u8 = 2;

/// A request in flight: the content of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// A random number of the request, the same in all its ids.
    pub number: u64,
    /// The name of every count, and its receipt ([`Partition::write_in_flight`]).
    pub counts: Vec<NamedReceipt>,
}

/// An id, as the response to a caller contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightId {
    /// The id.
    pub id: String,
    /// When the caller should confirm that the request still runs, in milliseconds from now: a
    /// third of the shortest `max_age`. An attempt that fails can be repeated once in time.
    pub renew_after_ms: u64,
}

/// The requests in the body of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InFlightRequests {
    /// One.
    One(InFlight),
    /// Several in their order, each of which may be wrong.
    Many(Vec<Result<InFlight, Problems>>),
}

impl InFlight {
    /// The request of a decided plan; `number` is random, `name_of` names the count of a partition.
    /// `None` when nothing counts it while it is in flight.
    #[must_use]
    pub fn of(
        plan: &Plan,
        policy: &Policy,
        number: u64,
        name_of: &dyn Fn(Partition<'_>) -> [u8; 32],
    ) -> Option<Self> {
        let mut counts = Vec::new();
        for partition in plan.partitions() {
            let mut receipt = Vec::new();
            if partition.write_in_flight(policy, &mut receipt) {
                counts.push((name_of(partition), receipt));
            }
        }
        (!counts.is_empty()).then_some(Self { number, counts })
    }

    /// Its id.
    #[must_use]
    pub fn seal(&self, sealer: &Sealer) -> InFlightId {
        let id = sealer.sealed(FORMAT, &[self.number], &self.counts);
        InFlightId { id, renew_after_ms: self.renew_after_ms() }
    }

    /// When it should be confirmed, in milliseconds from now.
    #[must_use]
    pub fn renew_after_ms(&self) -> u64 {
        let max_age = self.counts.iter().filter_map(|(_, receipt)| max_age_of(receipt)).min();
        let max_age_ms = max_age.map_or(0, |age| age.as_nanos() / 1_000_000);
        max_age_ms.checked_div(CONFIRMED_AFTER).unwrap_or(0)
    }

    /// The content of an id; `None` when it is not such an id of this deployment.
    #[must_use]
    pub fn open(sealer: &Sealer, id: &str) -> Option<Self> {
        let ([number], counts) = sealer.opened(FORMAT, id)?;
        Some(Self { number, counts })
    }
}

/// The requests that `body` names.
///
/// # Errors
/// The response: the body or the one id is wrong, or no ids are given out here.
pub fn requests(
    sealer: Option<&Sealer>,
    body: &[u8],
    most: usize,
) -> Result<InFlightRequests, ApiResponse> {
    let Some(sealer) = sealer else {
        return Err(ApiResponse::problem(404, "Not Found", OFF));
    };
    let described = DescribedInFlight::parse(body, most).map_err(|problems| refused(&problems))?;
    let open = |id: &str, at: &str| {
        let unknown = || Problems([Problem::new(at, UNKNOWN.to_string())].into());
        InFlight::open(sealer, id).ok_or_else(unknown)
    };
    Ok(match described {
        DescribedInFlight::One(id) => {
            InFlightRequests::One(open(&id, "id").map_err(|problems| refused(&problems))?)
        }
        DescribedInFlight::Many(ids) => {
            let each = ids.into_iter().enumerate();
            let each = each.map(|(i, id)| open(&id?, &format!("requests[{i}].id")));
            InFlightRequests::Many(each.collect())
        }
    })
}

/// The response to a report that is wrong.
#[must_use]
pub fn refused(problems: &Problems) -> ApiResponse {
    ApiResponse::problems(400, "Bad Request", "the report is wrong; see errors", problems)
}

/// The mistake of a request that rules would count while it is in flight, where its caller gets no
/// id to end it.
#[must_use]
pub fn off() -> Problems {
    Problems([Problem::new("", OFF.to_string())].into())
}

const OFF: &str = "reports about requests in flight are off: they need the secret hash_key, in the Worker HASH_KEY";

const UNKNOWN: &str = "is not an id of a request in flight that this deployment gave out";

/// Where a count did not reply, a request is confirmed again after this part of the usual time.
pub const AGAIN_AFTER: u64 = 4;

/// The result of a confirmation in every count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// These counts still count it.
    Counted(InFlight),
    /// Nothing counts it any more, because it was confirmed too late.
    Expired,
    /// Some counts did not reply. Those that did still count it by these receipts, which are to be
    /// confirmed soon; the others have their earlier ones.
    Partly(InFlight),
    /// No count replied.
    Silent,
}

impl Renewal {
    /// The result of confirming `in_flight`: for each of its counts the receipt of what is still
    /// counted there, empty when nothing is; `None` is a count that did not reply.
    #[must_use]
    pub fn of(in_flight: &InFlight, each: Vec<Option<Vec<u8>>>) -> Self {
        let silent = each.iter().filter(|reply| reply.is_none()).count();
        if silent == each.len() {
            return Self::Silent;
        }
        let replies = in_flight.counts.iter().zip(each);
        let newest =
            replies.map(|((name, before), reply)| (*name, reply.unwrap_or_else(|| before.clone())));
        let counts: Vec<_> = newest.filter(|(_, receipt)| !receipt.is_empty()).collect();
        if counts.is_empty() {
            return Self::Expired;
        }
        let renewed = InFlight { number: in_flight.number, counts };
        if silent > 0 { Self::Partly(renewed) } else { Self::Counted(renewed) }
    }

    /// The response: `{"result","id","renew_after_ms"}`.
    #[must_use]
    pub fn answer(&self, sealer: &Sealer) -> ApiResponse {
        let renewed = |in_flight: &InFlight, sooner: u64| {
            let InFlightId { id, renew_after_ms: after } = in_flight.seal(sealer);
            let after = after.checked_div(sooner).unwrap_or(after);
            ApiResponse::json(format!(
                "{{\"result\":\"renewed\",\"id\":\"{id}\",\"renew_after_ms\":{after}}}"
            ))
        };
        match self {
            Self::Counted(in_flight) => renewed(in_flight, 1),
            Self::Partly(in_flight) => renewed(in_flight, AGAIN_AFTER),
            Self::Expired => ApiResponse::json("{\"result\":\"expired\"}".to_string()),
            Self::Silent => silent("a count does not answer; renew again with the same id"),
        }
    }
}

/// The response when every count has released the request; false when one did not reply.
#[must_use]
pub fn done(is_whole: bool) -> ApiResponse {
    if !is_whole {
        return silent("a count does not answer; report the end again with the same id");
    }
    ApiResponse::json("{\"result\":\"done\"}".to_string())
}

fn silent(detail: &str) -> ApiResponse {
    ApiResponse::problem(503, "Service Unavailable", detail).with("retry-after", "1")
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use tollgate_core::Timestamp;
    use tollgate_storage::{Counts, InFlightReport};

    use super::*;
    use crate::settle::Receipts;

    /// The receipt of a request by a limit with this `max_age`.
    fn receipt(seconds: u64) -> Vec<u8> {
        let document = format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": [],
                "concurrency": {{"limit": 1, "max_age": "{seconds}s"}}}}]}}"#
        );
        let policy =
            tollgate_language::compile(&document, tollgate_policy::Surface::Library).unwrap();
        let facts = br#"{"method": "GET", "path": "/"}"#;
        let facts = tollgate_language::DescribedRequest::parse(facts).unwrap();
        let (mut plan, mut request) = (Plan::new(), Vec::new());
        policy.plan(&facts, &mut plan);
        plan.partition(0).unwrap().request(&policy, &mut request);
        let now = Timestamp::from_millis(1_780_000_000_000);
        let reply = Counts::default().answer(&request, now).unwrap().reply;
        plan.partition_mut(0).unwrap().accept(&policy, &reply).unwrap();
        let named = InFlight::of(&plan, &policy, 7, &|_| [7; 32]).unwrap();
        assert_eq!((named.number, named.counts.len(), named.counts[0].0), (7, 1, [7; 32]));
        named.counts[0].1.clone()
    }

    fn in_flight() -> InFlight {
        let counts = vec![([7; 32], receipt(60)), ([8; 32], receipt(10))];
        InFlight { number: 42, counts }
    }

    fn sealer(secret: &str) -> Sealer {
        Sealer::new(secret.as_bytes(), b"d").unwrap()
    }

    #[test]
    fn an_id_is_of_one_purpose_and_one_deployment() {
        let ours = sealer("s");
        let InFlightId { id, renew_after_ms } = in_flight().seal(&ours);
        assert_eq!(InFlight::open(&ours, &id), Some(in_flight()));
        assert_eq!(renew_after_ms, 3_333, "a third of the shortest max_age");
        assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{id}");
        // Neither opens what is the other's, though the bytes could be read as it.
        let charged_at = Timestamp::from_millis(1_780_000_000_000);
        let settled = Receipts { number: 42, charged_at, counts: in_flight().counts };
        assert_eq!(InFlight::open(&ours, &ours.id(&settled)), None);
        assert_eq!(
            InFlight::open(&ours, &ours.id(&Receipts { counts: Vec::new(), ..settled })),
            None
        );
        assert_eq!(ours.open(&id), None);
        assert_eq!(InFlight::open(&sealer("t"), &id), None);
        for i in 0..id.len() {
            let digit = if id.as_bytes()[i] == b'A' { "B" } else { "A" };
            let forged = format!("{}{digit}{}", &id[..i], &id[i + 1..]);
            assert_eq!(InFlight::open(&ours, &forged), None, "{forged}");
            assert_eq!(InFlight::open(&ours, &id[..i]), None);
        }
    }

    #[test]
    fn a_report_names_one_or_several() {
        let ours = sealer("s");
        let id = in_flight().seal(&ours).id;
        let read = |sealer: Option<&Sealer>, body: &str| {
            requests(sealer, body.as_bytes(), 2).map_err(|answer| answer.status)
        };
        let one = format!("{{\"id\":\"{id}\"}}");
        assert_eq!(read(Some(&ours), &one), Ok(InFlightRequests::One(in_flight())));
        assert_eq!(read(None, &one), Err(404));
        assert_eq!(read(Some(&sealer("t")), &one), Err(400));
        for wrong in ["", "{}", "[]", r#"{"id": "AA"}"#, r#"{"requests": []}"#] {
            assert_eq!(read(Some(&ours), wrong), Err(400), "{wrong}");
        }
        let several = format!("{{\"requests\":[{one},{{\"id\":\"AA\"}}]}}");
        let Ok(InFlightRequests::Many(each)) = read(Some(&ours), &several) else {
            panic!("several");
        };
        assert_eq!(each[0], Ok(in_flight()));
        let problems = each[1].as_ref().unwrap_err().to_string();
        assert_eq!(problems, format!("requests[1].id: {UNKNOWN}"));
    }

    #[test]
    fn a_confirmation_names_what_is_still_counted() {
        let (ours, sent) = (sealer("s"), in_flight());
        let of = |each: [Option<&[u8]>; 2]| {
            Renewal::of(&sent, each.map(|it| it.map(<[u8]>::to_vec)).into())
        };
        let receipt = &*sent.counts[0].1;
        let rest = InFlight { number: 42, counts: vec![([7; 32], receipt.to_vec())] };
        assert_eq!(of([Some(receipt), Some(b"")]), Renewal::Counted(rest.clone()));
        let InFlightId { id, .. } = rest.seal(&ours);
        assert_eq!(
            of([Some(receipt), Some(b"")]).answer(&ours).body,
            format!("{{\"result\":\"renewed\",\"id\":\"{id}\",\"renew_after_ms\":20000}}")
        );
        assert_eq!(of([Some(b""), Some(b"")]).answer(&ours).body, r#"{"result":"expired"}"#);
        // A count that does not reply keeps its receipt, and does not cost the others theirs.
        let [first, last] = [0, 1].map(|i| sent.counts[i].clone());
        let newer = receipt.iter().rev().copied().collect::<Vec<_>>();
        let partly = |counts| Renewal::Partly(InFlight { number: 42, counts });
        assert_eq!(of([None, Some(&newer)]), partly(vec![first, ([8; 32], newer.clone())]));
        assert_eq!(of([Some(b""), None]), partly(vec![last]));
        let InFlightId { id, .. } = rest.seal(&ours);
        let answer = partly(rest.counts).answer(&ours).body;
        let soon = format!("{{\"result\":\"renewed\",\"id\":\"{id}\",\"renew_after_ms\":5000}}");
        assert_eq!(answer, soon);
        let answer = of([None, None]).answer(&ours);
        assert_eq!((answer.status, answer.fields.get("retry-after")), (503, Some("1")));
        assert_eq!((done(true).status, done(false).status), (200, 503));
        // The counts read what the id contains.
        let report = InFlightReport::Ended.request(42, receipt);
        let now = Timestamp::from_millis(1_780_000_000_001);
        assert!(!Counts::default().report_in_flight(&report, now).unwrap().is_changed);
    }
}
