//! The prices of the Worker's platform, and the cost of a given usage.
//!
//! Invariant: the prices are in this file and nowhere else, with the date at which they were read;
//! money is whole millionths of a dollar, rounded up. The usage that a plan includes is not
//! subtracted: it is per month and not per request.

use crate::words::count;

/// When the prices were read.
pub const PRICES_READ_ON: &str = "2026-11-22";

/// One price of the platform's paid plan, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// The item that is charged.
    pub what: &'static str,
    /// The quantity that the price is for: a million, or one.
    pub unit: &'static str,
    /// Millionths of a dollar for that quantity.
    pub micro_dollars: u64,
    /// The usage that the plan includes per month.
    pub included: &'static str,
}

const fn price(
    what: &'static str,
    unit: &'static str,
    micro_dollars: u64,
    included: &'static str,
) -> Price {
    Price { what, unit, micro_dollars, included }
}

const REQUESTS: Price = price("requests to the Worker", "million", 300_000, "10 million");
const CPU: Price = price("CPU time", "million ms", 20_000, "30 million ms");
const CALLS: Price = price("calls of objects, with alarms", "million", 150_000, "1 million");
const DURATION: Price =
    price("time that objects are active", "million GB-s", 12_500_000, "400,000 GB-s");
const ROWS_WRITTEN: Price =
    price("rows written, with alarms set", "million", 1_000_000, "50 million");
const ROWS_READ: Price = price("rows read", "million", 1_000, "25,000 million");
const STORAGE: Price = price("storage of objects", "GB-month", 200_000, "5 GB-month");

/// All prices that a limiter pays.
pub const PRICES: [Price; 7] = [REQUESTS, CPU, CALLS, DURATION, ROWS_WRITTEN, ROWS_READ, STORAGE];

/// The memory for which an active object is charged, in MB.
const OBJECT_MB: u128 = 128;

/// Microseconds of CPU of a request for which no object is called, as `cargo xtask bench worker`
/// measured on one machine; the platform's own differ, and it is a small part of the bill.
pub const CPU_US_PER_REQUEST: u64 = 103;

/// The same for each call of an object that writes, including the Worker's work for it.
pub const CPU_US_PER_CALL: u64 = 314;

/// How long an object is awake for a call: assumed, because only the platform can measure it.
pub const ACTIVE_US_PER_CALL: u64 = 5_000;

/// Rows written for a key that is used once: its counts, two of SQLite's own for the table, the
/// alarm, and the deletion when that rings.
pub const ROWS_OF_A_NEW_KEY: u64 = 5;

/// An amount of use of the platform, without storage, which is paid by the month.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests to the Worker.
    pub requests: u64,
    /// The CPU time of all of them, in the Worker and in objects.
    pub cpu_us: u64,
    /// Calls of objects.
    pub calls: u64,
    /// Alarms that rang.
    pub alarms: u64,
    /// Rows written, including alarms that were set.
    pub rows_written: u64,
    /// Rows read.
    pub rows_read: u64,
    /// Milliseconds that objects were active and could not sleep.
    pub active_ms: u64,
}

impl Usage {
    /// The cost, in millionths of a dollar, rounded up.
    #[must_use]
    pub fn micro_dollars(&self) -> u64 {
        // In units of 10^-12 of a millionth of a dollar: the finest is a ms of 1 MB.
        const MILLION: u128 = 1_000_000;
        let of = |count: u64, price: Price, scale: u128| {
            let product = u128::from(count).saturating_mul(price.micro_dollars.into());
            product.saturating_mul(scale)
        };
        let parts = [
            of(self.requests, REQUESTS, MILLION),
            of(self.cpu_us, CPU, 1000),
            of(self.calls.saturating_add(self.alarms), CALLS, MILLION),
            of(self.rows_written, ROWS_WRITTEN, MILLION),
            of(self.rows_read, ROWS_READ, MILLION),
            of(self.active_ms, DURATION, OBJECT_MB),
        ];
        let sum = parts.into_iter().fold(0, u128::saturating_add);
        u64::try_from(sum.div_ceil(MILLION.saturating_mul(MILLION))).unwrap_or(u64::MAX)
    }
}

/// `$1,234.57`: dollars and cents, rounded up to a cent.
#[must_use]
pub fn dollars(micro_dollars: u64) -> String {
    let cents = micro_dollars.div_ceil(10_000);
    format!("${}.{:02}", count(cents.div_euclid(100)), cents.rem_euclid(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The platform's own example: 100 objects active for a second per minute, a month long, are
    // 4,320,000 s of 128 MB, which is 552,960 GB-s.
    #[test]
    fn an_active_object_is_charged_for_its_memory() {
        let usage = Usage { active_ms: 4_320_000_000, ..Usage::default() };
        assert_eq!(usage.micro_dollars(), 6_912_000);
    }

    #[test]
    fn a_million_of_each_costs_its_price() {
        let none = Usage::default();
        assert_eq!(none.micro_dollars(), 0);
        let million = 1_000_000;
        for (usage, micro_dollars) in [
            (Usage { requests: million, ..none }, 300_000),
            (Usage { cpu_us: 1000 * million, ..none }, 20_000),
            (Usage { calls: million, ..none }, 150_000),
            (Usage { alarms: million, ..none }, 150_000),
            (Usage { rows_written: million, ..none }, 1_000_000),
            (Usage { rows_read: million, ..none }, 1_000),
            (Usage { rows_read: 1, ..none }, 1),
        ] {
            assert_eq!(usage.micro_dollars(), micro_dollars, "{usage:?}");
        }
        let most = Usage { rows_written: u64::MAX, active_ms: u64::MAX, ..none };
        assert_eq!(most.micro_dollars(), u64::MAX);
    }

    #[test]
    fn money_is_rounded_up_to_a_cent() {
        for (micro_dollars, text) in [
            (0, "$0.00"),
            (1, "$0.01"),
            (10_000, "$0.01"),
            (10_001, "$0.02"),
            (1_450_000, "$1.45"),
            (1_234_567_890_000, "$1,234,567.89"),
        ] {
            assert_eq!(dollars(micro_dollars), text);
        }
    }
}
