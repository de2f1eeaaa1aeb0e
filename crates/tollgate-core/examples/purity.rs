//! The core alone as a WebAssembly module, to prove that it imports nothing: no clock, no memory,
//! no host.
//!
//! ```text
//! cargo build -p tollgate-core --example purity --target wasm32-unknown-unknown --release
//! ```
//!
//! makes `target/wasm32-unknown-unknown/release/examples/purity.wasm`, whose import section must be
//! empty. Every algorithm and every operation is reachable from the one exported function, so none
//! of them can hide an import. On other targets it is an empty library.
#![cfg_attr(target_arch = "wasm32", no_std)]

#[cfg(target_arch = "wasm32")]
mod wasm {
    use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};

    /// Checks, refunds and peeks one cost on a state never seen, and returns the remaining units;
    /// `u64::MAX` for an impossible quota.
    #[unsafe(no_mangle)]
    pub extern "C" fn decide(
        algorithm: u32,
        limit: u64,
        window_ns: u64,
        now_ns: u64,
        cost: u64,
    ) -> u64 {
        let index = usize::try_from(algorithm).unwrap_or(usize::MAX);
        let Some(algorithm) = Algorithm::ALL.get(index) else { return u64::MAX };
        let quota = Quota::new(limit, Span::from_nanos(window_ns));
        let Ok(Ok(limiter)) = quota.map(|quota| Limiter::new(*algorithm, quota)) else {
            return u64::MAX;
        };
        let mut bytes = [0; 8_200];
        let Some(state) = bytes.get_mut(..limiter.state_len()) else { return u64::MAX };
        let now = Timestamp::from_nanos(now_ns);
        let decision = limiter.check(state, now, cost);
        if let Some(charge) = decision.charge(now, cost) {
            limiter.refund(state, charge, limiter.idle_at(state));
        }
        limiter.peek(state, now, cost).remaining
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }
}
