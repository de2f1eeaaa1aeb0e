//! The primitives under the state that threads share. `tables` and `shared_map` import them from
//! here, so `tests/model` can replace them and run both files unchanged in every order of threads.

pub(crate) use std::hash::RandomState;
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
pub(crate) use std::thread_local;
