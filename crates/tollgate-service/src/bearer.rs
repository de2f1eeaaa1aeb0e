//! A token: read from `authorization`, and compared.
//!
//! Invariant: the time of a comparison reveals nothing about the token. Source: RFC 6750 section
//! 2.1.

use sha2::{Digest, Sha256};

/// A token that is only ever compared: its hash.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// Remembers `token`.
    #[must_use]
    pub fn new(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// True when `given` is this token. The time reveals nothing about where they differ: hashes
    /// are compared, all of each.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.iter().zip(given).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
    }

    /// True when `authorization` is `Bearer` and this token (RFC 6750 section 2.1).
    #[must_use]
    pub fn authorizes(&self, authorization: Option<&str>) -> bool {
        let Some((scheme, given)) =
            authorization.and_then(|value| value.trim().split_once([' ', '\t']))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case("bearer") && self.is(given.trim().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_authorizes() {
        let token = Token::new(b"t0ken");
        assert!(token.authorizes(Some("Bearer t0ken")));
        assert!(token.authorizes(Some("bearer t0ken")));
        assert!(token.authorizes(Some("BEARER   t0ken ")));
        assert!(token.authorizes(Some(" Bearer\t t0ken ")));
        let odd =
            ["Bearer t0ken, Bearer t0ken", "Bearer t0ken t0ken", "Bearer", "Bearer ", "t0ken", ""];
        let odd = odd.into_iter().chain(["Bearer,t0ken", "Bearer=t0ken"]);
        for wrong in odd.map(Some).chain([None, Some("Basic t0ken"), Some("Bearer t0ke")]) {
            assert!(!token.authorizes(wrong), "{wrong:?}");
        }
    }
}
