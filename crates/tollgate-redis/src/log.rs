//! Logs in the engine: entries that several servers append in turn, the same for all of them.
//!
//! Invariant: an entry is appended only by a server that knows all entries before it, and is never
//! changed.

use crate::commit::Fault;

use crate::engine::Engine;
use crate::resp::Value;

impl Engine {
    /// The engine's key of the log `name`.
    fn log_key(&self, name: &str) -> Vec<u8> {
        [self.transport().prefix.as_bytes(), name.as_bytes()].concat()
    }

    /// Entries of the log `name` from number `from` on, at most sixteen.
    ///
    /// # Errors
    /// The engine did not return them.
    pub async fn entries(&self, name: &str, from: u64) -> Result<Vec<Vec<u8>>, Fault> {
        let key = self.log_key(name);
        let to = from.saturating_add(15).to_string();
        let from = from.to_string();
        let arguments: [&[u8]; 4] = [b"LRANGE", &key, from.as_bytes(), to.as_bytes()];
        let value = self.command(&key, &arguments).await?;
        let entry = |value: &Value| value.bytes().map(<[u8]>::to_vec).ok_or(Fault::Nonsense);
        value.parts().ok_or(Fault::Nonsense)?.iter().map(entry).collect()
    }

    /// How many entries the log `name` has.
    ///
    /// # Errors
    /// The engine did not return it.
    pub async fn length(&self, name: &str) -> Result<u64, Fault> {
        let key = self.log_key(name);
        self.command(&key, &[b"LLEN", &key]).await?.number().ok_or(Fault::Nonsense)
    }

    /// Appends an entry to the log `name` if it has `length` entries; otherwise returns false.
    ///
    /// # Errors
    /// The engine rejected it, or it is unknown whether the entry was appended.
    pub async fn append(&self, name: &str, length: u64, entry: &[u8]) -> Result<bool, Fault> {
        let key = self.log_key(name);
        let length = length.to_string();
        let arguments: [&[u8]; 6] = [b"EVAL", APPEND, b"1", &key, length.as_bytes(), entry];
        self.command(&key, &arguments).await?.number().map(|done| done != 0).ok_or(Fault::Nonsense)
    }
}

/// Appends unless another server did. It has no arithmetic on quotas either.
const APPEND: &[u8] = b"if redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[1]) then return 0 end \
                        redis.call('RPUSH', KEYS[1], ARGV[2]) return 1";
