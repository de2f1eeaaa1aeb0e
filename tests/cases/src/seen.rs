//! Everything that a client and the origin see of one request, as text.
//!
//! Invariant: it contains every byte that Tollgate adds, so two surfaces that differ anywhere
//! differ here.

use std::fmt;

/// The observable effects of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The response's status.
    pub status: u16,
    /// Each wait of the request, in milliseconds.
    pub waits_ms: Vec<u64>,
    /// The fields that Tollgate added to the response, in their order; names in lower case.
    pub fields: Vec<(String, String)>,
    /// The headers that the origin got instead of the client's; names in lower case.
    pub marks: Vec<(String, String)>,
    /// The body of a denial; `None` when the request was allowed.
    pub body: Option<String>,
}

impl Seen {
    /// The field `name`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The fields sorted by name, for a server that does not keep their order.
    pub fn sorted(mut self) -> Self {
        self.fields.sort();
        self
    }

    /// True when the origin got the request.
    pub const fn passed(&self) -> bool {
        self.body.is_none()
    }

    /// True when it was denied because it cannot be read.
    pub fn is_malformed(&self) -> bool {
        self.status == 400 || self.field("grpc-status") == Some("3")
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {:?} ms", self.status, self.waits_ms)?;
        self.fields.iter().try_for_each(|(name, value)| writeln!(f, "{name}: {value}"))?;
        self.marks
            .iter()
            .try_for_each(|(name, value)| writeln!(f, "to the origin: {name}: {value}"))?;
        match &self.body {
            Some(body) => writeln!(f, "refused: {body:?}"),
            None => writeln!(f, "passed"),
        }
    }
}

/// A digest of everything written to it: FNV-1a, 64 bits. It need not withstand an adversary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds bytes.
    pub fn add(&mut self, bytes: impl AsRef<[u8]>) {
        for byte in bytes.as_ref() {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Twelve bits of it, to find the first place where two differ.
    pub fn two_letters(self) -> String {
        const LETTERS: &[u8; 64] =
            b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
        let letter = |bits: u64| char::from(LETTERS[usize::try_from(bits & 63).expect("6 bits")]);
        [letter(self.0 >> 32), letter(self.0 >> 38)].iter().collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// `text` with every `pk` replaced by its index in `known`: for a surface whose hash key is not
/// known. Equal hashes must still be equal and others differ.
pub fn hidden_keys(text: &str, known: &mut Vec<String>) -> String {
    let mut parts = text.split(";pk=:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (key, rest) = part.split_once(':').unwrap_or((part, ""));
        let place = known.iter().position(|other| other == key).unwrap_or_else(|| {
            known.push(key.to_owned());
            known.len() - 1
        });
        out.push_str(&format!(";pk=:{place}:{rest}"));
    }
    out
}
