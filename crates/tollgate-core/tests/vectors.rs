//! The vectors of `tests/vectors`, natively and as wasm in Node: the same rows on every surface.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod support;

use support::{format, replay};
use tollgate_core::Algorithm;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn every_row_holds() {
    let wrong: Vec<String> = format::all().iter().flat_map(replay::run).collect();
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_algorithm_has_rows() {
    let cases = format::all();
    for name in Algorithm::ALL.map(Algorithm::name) {
        let rows = cases.iter().filter(|case| case.quotas[0].algorithm == name);
        assert!(rows.map(|case| case.rows.len()).sum::<usize>() >= 10, "rows for {name}");
    }
}

#[test]
fn times_are_read_exactly() {
    assert_eq!(format::span_ns("1m30s"), Ok(90_000_000_000));
    assert_eq!(format::span_ns("1.9s"), Ok(1_900_000_000));
    assert_eq!(format::span_ns("0.000000001s"), Ok(1));
    assert_eq!(format::span_ns("18446744073709551615ns"), Ok(u64::MAX));
    for wrong in ["", "5", "s", "1.5ns", "-1s", "18446744073709551616ns"] {
        assert!(format::span_ns(wrong).is_err(), "{wrong}");
    }
}
