//! The messages between isolates and the objects of tenants' entries.
//!
//! Invariant: any bytes are parsed as a request or rejected. All numbers are little-endian. A
//! request begins with a tag. 0 asks a tenant's object for its entry. 1 delivers an entry, as a
//! [`TenantRecord`]. 2 is for the list: the places of the entry that is meant ([`Places`]) and a
//! [`StoreCall`]. 3 asks the list whether all entries are stored next to the counts of a tenancy
//! `u64`; the reply is 1 or 0.

use tollgate_service::{StoreCall, TenantCall};
use tollgate_storage::Bytes;

const GET: u8 = 0;
const TAKE: u8 = 1;
const LIST: u8 = 2;
const ARE_BESIDE: u8 = 3;
/// Bytes of an object's name.
const NAME_LEN: usize = 64;

/// A request to an object of this class.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A tenant's object: its entry, as a [`TenantRecord`].
    Get,
    /// A tenant's object: keep this.
    Take(TenantRecord),
    /// The list: carry this out.
    Of {
        call: TenantCall,
        /// Where the entry that the call names is stored.
        places: Places,
    },
    /// The list: is every entry stored next to the counts of this tenancy?
    AreBeside(u64),
}

/// The objects that have a tenant's entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The tenant's own.
    pub(crate) object: String,
    /// Identifies the keys under which tenants are counted alone
    /// ([`Tenants::identity`](tollgate_policy::Tenants::identity)).
    pub(crate) tenancy: u64,
    /// The objects that count the tenant alone, which have the entry, too: their names,
    /// concatenated.
    pub(crate) counts: String,
}

/// The names in `names`, which are concatenated.
pub(crate) fn names(names: &str) -> impl Iterator<Item = &str> {
    names.as_bytes().chunks_exact(NAME_LEN).filter_map(|name| str::from_utf8(name).ok())
}

impl Places {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.object.as_bytes());
        out.extend(self.tenancy.to_le_bytes());
        out.push(u8::try_from(names(&self.counts).count()).unwrap_or(u8::MAX));
        out.extend_from_slice(self.counts.as_bytes());
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let text = |bytes: &[u8]| str::from_utf8(bytes).ok().map(str::to_owned);
        let mut rest = Bytes(bytes);
        let (object, tenancy) = (text(rest.take(NAME_LEN)?)?, rest.u64()?);
        let len = NAME_LEN.checked_mul(rest.u8()?.into())?;
        let counts = text(rest.take(len)?)?;
        Some((Self { object, tenancy, counts }, rest.0))
    }
}

impl Request {
    /// Reads the bytes that `get`, `take`, `of` and `are_beside` wrote.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&GET, []) => Some(Self::Get),
            (&TAKE, rest) => TenantRecord::read(rest).map(Self::Take),
            (&LIST, rest) => {
                let (places, json) = Places::read(rest)?;
                let StoreCall::Tenants(call) = StoreCall::from_json(json)? else { return None };
                Some(Self::Of { call, places })
            }
            (&ARE_BESIDE, rest) => Some(Self::AreBeside(u64::from_le_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }

    /// Asks a tenant's object for its entry.
    pub(crate) const fn get() -> &'static [u8] {
        &[GET]
    }

    /// Hands `kept` on to a tenant's object.
    pub(crate) fn take(kept: &TenantRecord) -> Vec<u8> {
        let mut bytes = vec![TAKE];
        bytes.extend(kept.to_bytes());
        bytes
    }

    /// Asks the list to carry out `call`. For a call that names no tenant, `places` is ignored.
    pub(crate) fn of(call: &TenantCall, places: &Places) -> Vec<u8> {
        let mut bytes = vec![LIST];
        places.write(&mut bytes);
        bytes.extend_from_slice(StoreCall::Tenants(call.clone()).to_json().as_bytes());
        bytes
    }

    /// Asks the list whether every entry is stored next to the counts of `tenancy`.
    pub(crate) fn are_beside(tenancy: u64) -> Vec<u8> {
        let mut bytes = vec![ARE_BESIDE];
        bytes.extend(tenancy.to_le_bytes());
        bytes
    }
}

/// The content of a tenant's object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TenantRecord {
    /// Grows with each write; 0 when there was none.
    pub(crate) revision: u64,
    /// None when it was removed.
    pub(crate) entry: Option<String>,
}

impl TenantRecord {
    /// The revision of the existing entry; 0 for none, also for one that was removed.
    pub(crate) fn in_force(&self) -> u64 {
        if self.entry.is_some() { self.revision } else { 0 }
    }

    /// `revision`, then 1 and the entry, or 0.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.revision.to_le_bytes().to_vec();
        bytes.push(self.entry.is_some().into());
        bytes.extend_from_slice(self.entry.as_deref().unwrap_or_default().as_bytes());
        bytes
    }

    /// Reads it; `None` for other bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let revision = rest.u64()?;
        let entry = match rest.0.split_first()? {
            (0, []) => None,
            (1, entry) => Some(str::from_utf8(entry).ok()?.to_owned()),
            _ => return None,
        };
        Some(Self { revision, entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let name = "0123456789abcdef".repeat(4);
        assert_eq!(Request::read(Request::get()), Some(Request::Get));
        let call = TenantCall::Get { id: "ä\"".into() };
        for counts in [String::new(), name.clone(), name.repeat(3)] {
            let places = Places { object: name.clone(), tenancy: 1 << 63, counts };
            let expected = Request::Of { call: call.clone(), places: places.clone() };
            assert_eq!(Request::read(&Request::of(&call, &places)), Some(expected));
            assert!(names(&places.counts).all(|one| one == name));
            assert_eq!(names(&places.counts).count() * NAME_LEN, places.counts.len());
        }
        assert_eq!(Request::read(&Request::are_beside(7)), Some(Request::AreBeside(7)));
        for entry in [None, Some(String::new()), Some("{\"note\": \"ü\"}".to_owned())] {
            let kept = TenantRecord { revision: 1 << 52, entry };
            assert_eq!(TenantRecord::read(&kept.to_bytes()), Some(kept.clone()));
            assert_eq!(Request::read(&Request::take(&kept)), Some(Request::Take(kept)));
        }
    }

    #[test]
    fn other_bytes_are_no_request() {
        for bytes in [
            &b""[..],
            &[0, 0],
            &[1],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2],
            &[3],
            &[3, 0, 0],
            &[4],
            b"{}",
        ] {
            assert_eq!(Request::read(bytes), None, "{bytes:?}");
        }
        let mut kept = TenantRecord { revision: 7, entry: Some("a".into()) }.to_bytes();
        kept.push(0xff);
        assert_eq!(TenantRecord::read(&kept), None);
        kept = TenantRecord::default().to_bytes();
        kept.push(b'a');
        assert_eq!(TenantRecord::read(&kept), None);
    }
}
