//! What goes between isolates and the objects of tenants' entries.
//!
//! Invariant: whatever bytes come are a request or none. All numbers are little-endian. A request
//! begins with a tag: 0 asks a tenant's object for its entry; 1 hands an entry on to it, as a
//! [`Kept`]; 2 is for the list, the name of the tenant's object (64 digits) and a [`StoreCall`].

use tollgate_service::{StoreCall, TenantCall};

const GET: u8 = 0;
const TAKE: u8 = 1;
const LIST: u8 = 2;
/// Bytes of an object's name.
const NAME_LEN: usize = 64;

/// What an object of this class is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// A tenant's object: its entry, as a [`Kept`].
    Get,
    /// A tenant's object: keep this.
    Take(Kept),
    /// The list: carry this out.
    Of {
        call: TenantCall,
        /// The object of the tenant that the call names.
        object: &'a str,
    },
}

impl<'a> Request<'a> {
    /// Reads what `get` and `of`, or a [`Delivery`], wrote.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&GET, []) => Some(Self::Get),
            (&TAKE, rest) => Kept::read(rest).map(Self::Take),
            (&LIST, rest) => {
                let (object, json) = rest.split_first_chunk::<NAME_LEN>()?;
                let StoreCall::Tenants(call) = StoreCall::from_json(json)? else { return None };
                Some(Self::Of { call, object: str::from_utf8(object).ok()? })
            }
            _ => None,
        }
    }

    /// Asks a tenant's object for its entry.
    pub(crate) const fn get() -> &'static [u8] {
        &[GET]
    }

    /// Asks the list to carry out `call`. A call that names no tenant has any `object`.
    pub(crate) fn of(call: &TenantCall, object: &str) -> Vec<u8> {
        let mut bytes = vec![LIST];
        bytes.extend_from_slice(object.as_bytes());
        bytes.extend_from_slice(StoreCall::Tenants(call.clone()).to_json().as_bytes());
        bytes
    }
}

/// What a tenant's object keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Grows with each write; 0 when there was none.
    pub(crate) revision: u64,
    /// None when it was removed.
    pub(crate) entry: Option<String>,
}

impl Kept {
    /// `revision`, then 1 and the entry, or 0.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.revision.to_le_bytes().to_vec();
        bytes.push(self.entry.is_some().into());
        bytes.extend_from_slice(self.entry.as_deref().unwrap_or_default().as_bytes());
        bytes
    }

    /// Reads it; `None` for other bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (revision, rest) = bytes.split_first_chunk()?;
        let revision = u64::from_le_bytes(*revision);
        let entry = match rest.split_first()? {
            (0, []) => None,
            (1, entry) => Some(str::from_utf8(entry).ok()?.to_owned()),
            _ => return None,
        };
        Some(Self { revision, entry })
    }
}

/// An entry that the list hands on: the name of the tenant's object, then a request for it.
pub(crate) struct Delivery<'a> {
    pub(crate) object: &'a str,
    pub(crate) kept: &'a Kept,
}

impl Delivery<'_> {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.object.as_bytes().to_vec();
        bytes.push(TAKE);
        bytes.extend(self.kept.to_bytes());
        bytes
    }

    /// The revision of what was handed on.
    pub(crate) fn revision(bytes: &[u8]) -> Option<u64> {
        let (_, request) = bytes.split_at_checked(NAME_LEN)?;
        match Request::read(request)? {
            Request::Take(kept) => Some(kept.revision),
            Request::Get | Request::Of { .. } => None,
        }
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
        let expected = Request::Of { call: call.clone(), object: &name };
        assert_eq!(Request::read(&Request::of(&call, &name)), Some(expected));
        for entry in [None, Some(String::new()), Some("{\"note\": \"ü\"}".to_owned())] {
            let kept = Kept { revision: 1 << 52, entry };
            assert_eq!(Kept::read(&kept.to_bytes()), Some(kept.clone()));
            let delivery = Delivery { object: &name, kept: &kept }.to_bytes();
            assert_eq!(Delivery::revision(&delivery), Some(1 << 52));
            assert_eq!(delivery.split_at(NAME_LEN).0, name.as_bytes());
            assert_eq!(Request::read(&delivery[NAME_LEN..]), Some(Request::Take(kept)));
        }
    }

    #[test]
    fn other_bytes_are_no_request() {
        for bytes in [&b""[..], &[0, 0], &[1], &[1, 0, 0, 0, 0, 0, 0, 0, 0], &[2], &[3], b"{}"] {
            assert_eq!(Request::read(bytes), None, "{bytes:?}");
        }
        let mut kept = Kept { revision: 7, entry: Some("a".into()) }.to_bytes();
        kept.push(0xff);
        assert_eq!(Kept::read(&kept), None);
        kept = Kept::default().to_bytes();
        kept.push(b'a');
        assert_eq!(Kept::read(&kept), None);
    }
}
