//! `POST /check/settle`: a cost that differs from the charged one, by the id from `/check`.
//!
//! Invariant: an id is sealed. It cannot be made without the secret, and an id of another
//! deployment is invalid here. It contains everything that settling needs, so nothing is stored for
//! a request that may never be settled: the names of its counts, which are hashes under the same
//! secret, and a receipt of each (`pipeline/remote/request.rs` of the policy crate). Deliberately
//! absent: asking the counts, and the handling of a cost there.
//!
//! An id is Base64 for URLs of: 1, the format, which no other id has (`in_flight`); a random number
//! `u64`; when it was charged, nanoseconds `u64`; per count its name, 32 bytes, and its receipt
//! after its length `u16`; then HMAC-SHA-256 of all that, the first 16 bytes. Numbers are
//! little-endian. The key is HKDF-SHA-256 of the secret, with the deployment in `info`. Sources:
//! RFC 2104, RFC 4648 section 5, RFC 5869.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use base64ct::{Base64UrlUnpadded, Encoding};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use tollgate_core::{ALLOWED_SKEW, Timestamp};
use tollgate_language::DescribedSettlement;
use tollgate_policy::{Partition, Plan, Policy, Problem, Problems};
use tollgate_storage::Bytes;
use tollgate_storage::{SETTLE_WITHIN, Settlement};

use crate::api_response::ApiResponse;

/// The purpose in the derivation of the key.
const PURPOSE: &[u8] = b"tollgate settle 1";

/// The format of an id.
const FORMAT: u8 = 1;

/// Bytes of the seal.
const SEAL: usize = 16;

/// Makes ids, and recognises its own.
#[derive(Clone)]
pub struct Sealer([u8; 32]);

/// The counts that charged a request: the content of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipts {
    /// A random number of the request.
    pub number: u64,
    /// When it was charged, by the clock of a count.
    pub charged_at: Timestamp,
    /// The name of every count, and its receipt ([`Partition::write_receipt`]).
    pub counts: Vec<NamedReceipt>,
}

/// The name of a count, and its receipt.
pub type NamedReceipt = ([u8; 32], Vec<u8>);

/// A request to settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleRequest {
    /// The counts that charged it.
    pub receipts: Receipts,
    /// Its final cost, in quota units.
    pub cost: u64,
}

impl Sealer {
    /// A sealer from a secret, which is not empty, and from a name that distinguishes this
    /// deployment's counts from those of another one with the same secret.
    #[must_use]
    pub fn new(secret: &[u8], deployment: &[u8]) -> Option<Self> {
        let mut key = [0; 32];
        let derived = Hkdf::<Sha256>::new(None, secret)
            .expand_multi_info(&[PURPOSE, &[0], deployment], &mut key);
        (!secret.is_empty() && derived.is_ok()).then_some(Self(key))
    }

    /// The id of a request.
    #[must_use]
    pub fn id(&self, receipts: &Receipts) -> String {
        let Receipts { number, charged_at, counts } = receipts;
        self.sealed(FORMAT, &[*number, charged_at.as_nanos()], counts)
    }

    /// An id of this format: it contains these numbers, and the counts by their names.
    pub(crate) fn sealed(&self, format: u8, numbers: &[u64], counts: &[NamedReceipt]) -> String {
        let mut bytes = Vec::from([format]);
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        for (name, receipt) in counts {
            // 26 bytes and at most 16 quotas of 44 for each of at most 64 rules: 46 KB.
            let Ok(len) = u16::try_from(receipt.len()) else { continue };
            bytes.extend(name);
            bytes.extend(len.to_le_bytes());
            bytes.extend(receipt);
        }
        let seal = self.seal(&bytes).map(|seal| seal.finalize().into_bytes());
        bytes.extend(seal.iter().flatten().take(SEAL));
        Base64UrlUnpadded::encode_string(&bytes)
    }

    /// The content of an id; `None` when it is not an id of this deployment.
    #[must_use]
    pub fn open(&self, id: &str) -> Option<Receipts> {
        let ([number, charged_at], counts) = self.opened(FORMAT, id)?;
        Some(Receipts { number, charged_at: Timestamp::from_nanos(charged_at), counts })
    }

    /// The numbers and the counts of an id of this format; `None` when it is not an id of this
    /// deployment, or of another format.
    pub(crate) fn opened<const N: usize>(
        &self,
        format: u8,
        id: &str,
    ) -> Option<([u64; N], Vec<NamedReceipt>)> {
        let bytes = Base64UrlUnpadded::decode_vec(id).ok()?;
        let (content, seal) = bytes.split_last_chunk::<SEAL>()?;
        // In constant time.
        self.seal(content)?.verify_truncated_left(seal).ok()?;
        let mut rest = Bytes(content.strip_prefix(&[format])?);
        let (mut numbers, mut counts) = ([0; N], Vec::new());
        for number in &mut numbers {
            *number = rest.u64()?;
        }
        while !rest.0.is_empty() {
            counts.push((rest.array()?, rest.block()?.to_vec()));
        }
        Some((numbers, counts))
    }

    fn seal(&self, said: &[u8]) -> Option<Hmac<Sha256>> {
        Some(Hmac::<Sha256>::new_from_slice(&self.0).ok()?.chain_update(said))
    }
}

impl Receipts {
    /// The receipts of a decided request; `number` is random, `name_of` names the count of a
    /// partition. `None` where no charge can be settled later.
    #[must_use]
    pub fn of(
        plan: &Plan,
        policy: &Policy,
        number: u64,
        name_of: &dyn Fn(Partition<'_>) -> [u8; 32],
    ) -> Self {
        let (mut counts, mut charged_at) = (Vec::new(), None::<Timestamp>);
        for partition in plan.partitions() {
            let mut receipt = Vec::new();
            if partition.write_receipt(policy, &mut receipt) {
                let at = partition.decided_at();
                charged_at = Some(charged_at.map_or(at, |earliest| earliest.min(at)));
                counts.push((name_of(partition), receipt));
            }
        }
        Self { number, charged_at: charged_at.unwrap_or_default(), counts }
    }

    /// True when it was charged too long before `now` for any count to settle it, if no count's
    /// clock is behind `now`. The counts themselves decide to the nanosecond.
    fn are_too_old(&self, now: Timestamp) -> bool {
        now.since(self.charged_at) > SETTLE_WITHIN.saturating_add(ALLOWED_SKEW)
    }
}

/// The request to settle in `body`, at `now`.
///
/// # Errors
/// The response: it is wrong, or too old, or nothing is settled here.
pub fn request(
    sealer: Option<&Sealer>,
    body: &[u8],
    now: Timestamp,
) -> Result<SettleRequest, ApiResponse> {
    let Some(sealer) = sealer else {
        return Err(ApiResponse::problem(404, "Not Found", OFF));
    };
    let wrong = |problems: &Problems| ApiResponse::problems(400, "Bad Request", WRONG, problems);
    let described = DescribedSettlement::parse(body).map_err(|problems| wrong(&problems))?;
    let Some(receipts) = sealer.open(described.id()) else {
        let message = "is not an id that this deployment gave out".to_string();
        return Err(wrong(&Problems([Problem::new("id", message)].into())));
    };
    if receipts.are_too_old(now) && !receipts.counts.is_empty() {
        return Err(settled(described.cost(), Some(Settlement::TooOld)));
    }
    Ok(SettleRequest { receipts, cost: described.cost() })
}

/// The mistake of a request for an id where nothing is settled.
#[must_use]
pub fn off() -> Problems {
    Problems([Problem::new("settle", OFF.to_string())].into())
}

const OFF: &str = "this is off: it needs the secret HASH_KEY";

const WRONG: &str = "the settlement is wrong; see errors";

/// The response when every count has settled `cost`; `None` is a count that did not reply, so that
/// its result is unknown.
#[must_use]
pub fn answer(cost: u64, each: Vec<Option<Settlement>>) -> ApiResponse {
    let mut settlement = None::<Settlement>;
    for said in each {
        let Some(next) = said else {
            let detail = "a count does not answer; settle the same cost again";
            let answer = ApiResponse::problem(503, "Service Unavailable", detail);
            return answer.with("retry-after", "1");
        };
        settlement = Some(settlement.map_or(next, |it| it.and(next)));
    }
    settled(cost, settlement)
}

/// The response for the result `settlement` of `cost`, if there was anything to settle:
/// `{"result","cost","charged"}`.
fn settled(cost: u64, settlement: Option<Settlement>) -> ApiResponse {
    ApiResponse::json(match settlement {
        None => format!("{{\"result\":\"settled\",\"cost\":{cost},\"charged\":null}}"),
        Some(Settlement::Stands { charged }) => {
            format!("{{\"result\":\"settled\",\"cost\":{cost},\"charged\":{charged}}}")
        }
        Some(Settlement::Another { cost }) => {
            format!("{{\"result\":\"conflict\",\"cost\":{cost}}}")
        }
        Some(Settlement::TooOld) => "{\"result\":\"expired\"}".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn receipts() -> Receipts {
        let charged_at = Timestamp::from_millis(1_780_000_000_000);
        let counts = vec![([7; 32], vec![1, 2, 3]), ([8; 32], Vec::new())];
        Receipts { number: 42, charged_at, counts }
    }

    fn sealer(secret: &str, deployment: &str) -> Sealer {
        Sealer::new(secret.as_bytes(), deployment.as_bytes()).unwrap()
    }

    #[test]
    fn an_id_says_what_it_was_made_of() {
        let nothing = Receipts { counts: Vec::new(), ..receipts() };
        for receipts in [receipts(), nothing] {
            let id = sealer("s", "d").id(&receipts);
            assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{id}");
            assert_eq!(sealer("s", "d").open(&id), Some(receipts));
        }
    }

    // Python, hmac and hashlib: prk = H(bytes(32), b"s"), key = H(prk, b"tollgate settle 1\0d\1").
    #[test]
    fn an_id_stays_valid_across_versions() {
        assert_eq!(sealer("s", "d").id(&receipts()), GOLDEN);
    }

    const GOLDEN: &str = "ASoAAAAAAAAAAAAytJHUsxgHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwMAAQIDCAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgAANtuJJRlgaXMlrjIKShcaVE";

    #[test]
    fn nobody_else_makes_an_id() {
        let ours = sealer("s", "d");
        let id = ours.id(&receipts());
        for other in [sealer("t", "d"), sealer("s", "e"), sealer("sd", "x")] {
            assert_eq!(ours.open(&other.id(&receipts())), None);
        }
        assert!(Sealer::new(b"", b"d").is_none());
        // Any change of it, any part of it and any more of it.
        let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        for (i, was) in id.char_indices() {
            for digit in digits.chars().filter(|digit| *digit != was) {
                let forged: String =
                    id.char_indices().map(|(j, c)| if i == j { digit } else { c }).collect();
                assert_eq!(ours.open(&forged), None, "{forged}");
            }
            assert_eq!(ours.open(&id[..i]), None);
        }
        for forged in [format!("{id}A"), format!("{id}="), format!(" {id}"), id.to_lowercase()] {
            assert_eq!(ours.open(&forged), None, "{forged}");
        }
    }

    #[test]
    fn what_cannot_be_settled_says_why() {
        let (ours, others) = (sealer("s", "d"), sealer("t", "d"));
        let at = receipts().charged_at;
        let status =
            |sealer, body: &str| request(sealer, body.as_bytes(), at).map_err(|a| a.status);
        assert_eq!(status(None, "{}"), Err(404));
        let id = ours.id(&receipts());
        let good = format!("{{\"id\":\"{id}\",\"cost\":5}}");
        assert_eq!(status(Some(&ours), &good), Ok(SettleRequest { receipts: receipts(), cost: 5 }));
        assert_eq!(status(Some(&others), &good), Err(400));
        for wrong in ["", "{}", "[]", r#"{"id":"AA","cost":5}"#, &good.replace('5', "-5")] {
            assert_eq!(status(Some(&ours), wrong), Err(400), "{wrong}");
        }
    }

    #[test]
    fn counts_are_not_asked_about_what_is_long_over() {
        let after =
            |seconds| receipts().charged_at.saturating_add(tollgate_core::Span::from_secs(seconds));
        for (seconds, expected) in [(0, false), (600, false), (630, false), (631, true)] {
            assert_eq!(receipts().are_too_old(after(seconds)), expected, "{seconds}");
        }
        assert!(!receipts().are_too_old(Timestamp::ZERO));
    }
}
