//! The clocks of the process, and its random bytes.
//!
//! Invariant: a clock that the system does not have is a value. Not here: the choice of the offset
//! between the two; that is the filter's.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::{Span, Timestamp};
use tollgate_filter::host::Seed;

static BEGIN: OnceLock<Instant> = OnceLock::new();
/// Nanoseconds. All threads count in one map, so they have one offset.
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// Since [`BEFORE`] the first call: no count outlives the process. A clock that a test sets may go
/// back behind that call.
pub(crate) fn monotonic() -> Option<Timestamp> {
    let (begin, now) = (*BEGIN.get_or_init(Instant::now), Instant::now());
    let since = match now.checked_duration_since(begin) {
        Some(later) => BEFORE.checked_add(later)?,
        None => BEFORE.checked_sub(begin.duration_since(now))?,
    };
    u64::try_from(since.as_nanos()).ok().map(Timestamp::from_nanos)
}

/// A year: far more than a clock can go back, and far less than the time since 1970, to which the
/// filter's offset leads.
const BEFORE: Duration = Duration::from_secs(365 * 86_400);

/// Since 1970.
pub(crate) fn wall() -> Option<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok().map(Timestamp::from_nanos)
}

/// The offset that is added to the monotonic clock.
pub(crate) fn offset() -> Span {
    Span::from_nanos(OFFSET.load(Ordering::Relaxed))
}

/// Sets it.
pub(crate) fn set_offset(offset: Span) {
    OFFSET.store(offset.as_nanos(), Ordering::Relaxed);
}

/// Random bytes that no client can guess.
pub(crate) fn random_seed() -> Option<Seed> {
    // Opened once, so that a process without free descriptors still has it.
    static SOURCE: OnceLock<Option<File>> = OnceLock::new();
    let source = SOURCE.get_or_init(|| File::open("/dev/urandom").ok());
    let mut seed = Seed::default();
    source.as_ref()?.read_exact(&mut seed).ok()?;
    Some(seed)
}
