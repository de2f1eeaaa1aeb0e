//! A copy of a log that can be read only once, for a second pass.
//!
//! Invariant: the copy contains the bytes as they came, still packed. Its file has no name once it
//! is open (where the system allows that) and is never longer than its bound. An incomplete copy is
//! never read: it is dropped as soon as the bound is exceeded or a write fails.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A copy in the making, shared with the thread that reads.
#[derive(Debug)]
pub(crate) struct Spool(Arc<Mutex<SpoolState>>);

#[derive(Debug)]
enum SpoolState {
    Kept { copy: Copy, left: u64 },
    None(NoCopyReason),
}

/// Why there is no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoCopyReason {
    /// It would be longer than allowed.
    TooLong,
    /// It could not be written.
    Failed(String),
}

/// A file that exists only as long as it is needed.
#[derive(Debug)]
struct Copy {
    file: File,
    path: PathBuf,
}

impl Spool {
    /// A copy of at most `limit` bytes, among the system's temporary files.
    pub(crate) fn new(limit: u64) -> Self {
        let state = match Copy::create() {
            _ if limit == 0 => SpoolState::None(NoCopyReason::TooLong),
            Ok(copy) => SpoolState::Kept { copy, left: limit },
            Err(error) => SpoolState::None(NoCopyReason::Failed(error.to_string())),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Reads `from`, and copies its bytes.
    pub(crate) fn tee<R: Read>(&self, from: R) -> Tee<R> {
        Tee { from, state: Arc::clone(&self.0) }
    }

    /// The copy, from its beginning.
    ///
    /// # Errors
    /// There is no copy.
    pub(crate) fn again(&self) -> Result<File, NoCopyReason> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            SpoolState::Kept { copy, .. } => {
                copy.rewound().map_err(|e| NoCopyReason::Failed(e.to_string()))
            }
            SpoolState::None(why) => Err(why.clone()),
        }
    }
}

impl SpoolState {
    fn keep(&mut self, bytes: &[u8]) {
        let Self::Kept { copy, left } = self else { return };
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        *self = match left.checked_sub(len) {
            None => Self::None(NoCopyReason::TooLong),
            Some(rest) => match copy.file.write_all(bytes) {
                Ok(()) => {
                    *left = rest;
                    return;
                }
                Err(error) => Self::None(NoCopyReason::Failed(error.to_string())),
            },
        };
    }
}

impl Copy {
    fn create() -> io::Result<Self> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(|error| io::Error::other(error.to_string()))?;
        let name = format!("tollgate-replay-{:032x}", u128::from_ne_bytes(name));
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        // A log shows which client requested what, so no other user may read it.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        #[cfg(unix)]
        std::fs::remove_file(&path)?;
        Ok(Self { file, path })
    }

    fn rewound(&mut self) -> io::Result<File> {
        self.file.rewind()?;
        self.file.try_clone()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if cfg!(not(unix)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A reader that also copies.
#[derive(Debug)]
pub(crate) struct Tee<R> {
    from: R,
    state: Arc<Mutex<SpoolState>>,
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(buffer)?;
        let read = buffer.get(..len).unwrap_or_default();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).keep(read);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(bytes: &[u8], limit: u64) -> Result<Vec<u8>, NoCopyReason> {
        let spool = Spool::new(limit);
        let mut through = Vec::new();
        spool.tee(bytes).read_to_end(&mut through).unwrap();
        assert_eq!(through, bytes, "what is read is what came");
        let mut again = Vec::new();
        for _ in 0..2 {
            again.clear();
            spool.again()?.read_to_end(&mut again).unwrap();
        }
        Ok(again)
    }

    #[test]
    fn up_to_its_bound_it_is_read_again_as_it_came() {
        let log = b"one line\n".repeat(20_000);
        assert_eq!(copied(&log, 180_000), Ok(log.clone()));
        assert_eq!(copied(&log, 179_999), Err(NoCopyReason::TooLong));
        assert_eq!(copied(&log, 0), Err(NoCopyReason::TooLong));
        assert_eq!(copied(b"", 1), Ok(vec![]));
    }
}
