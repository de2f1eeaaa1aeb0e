//! The same report in every format, as committed files, so that a review shows every change.
//!
//! After an intended change: `TOLLGATE_BLESS=1 cargo test -p tollgate-report --test goldens`, and
//! look at the page in a browser, in both themes, at 1280 and 360 pixels.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod sample;

use std::path::Path;

use tollgate_report::{Axis, Plot, Series, Shape, Theme};
use tollgate_test_support::golden::assert_file;

fn golden(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    assert_file(path, made);
}

#[test]
fn a_report_in_every_format() {
    let report = sample::day();
    golden("day-80.txt", &report.to_text(80));
    golden("day-40.txt", &report.to_text(40));
    // Git may change the line ends of a text file.
    golden("day.csv", &report.to_csv().replace("\r\n", "\n"));
    golden("day.markdown", &report.to_markdown());
    golden("day.html", &report.to_html());
}

#[test]
fn a_picture_in_both_themes() {
    let points = (0..20).map(|x| (f64::from(x) * 0.5, f64::from(x * 7 % 11)));
    let plot = Plot::new(
        "count",
        "Requests in any minute",
        Axis::duration("time"),
        Axis::count("requests"),
    )
    .series(Series::new("true count", Shape::Step).points(points));
    golden("count-light.svg", &plot.to_svg(Theme::Light));
    golden("count-dark.svg", &plot.to_svg(Theme::Dark));
}
