//! A report with everything in it, and `text` in every place that can hold a text.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::arithmetic_side_effects, clippy::float_arithmetic, reason = "numbers to look at")]

use tollgate_report::{Axis, Cell, Column, Figures, Mark, Plot, Report, Series, Shape, Table};

/// Each kind of block and of column, each way to draw, with `text` in every place for text.
pub fn everything(text: &str) -> Report {
    let mut report = Report::new(text);
    report.section("").text(text).figures(
        Figures::new(text).figure(text, Cell::text(text), text).figure(
            "denied",
            Cell::Count(1_027),
            "of 61,000 requests",
        ),
    );
    let mut table = Table::new(text, text)
        .column(Column::text(text))
        .column(Column::count(text))
        .column(Column::share(text))
        .column(Column::duration(text));
    table.push([Cell::text(text), Cell::Count(3), Cell::share(1, 8), Cell::Duration(1_500_000)]);
    table.push([Cell::text(text), Cell::Empty, Cell::Empty, Cell::Empty]);
    let section = report.section(text).table(table.and_omitted(12)).code(text);
    section.plot(plot(text, Shape::Line)).plot(plot(text, Shape::Step));
    section.plot(plot(text, Shape::Area).stacked()).plot(plot(text, Shape::Bars));
    section.plot(plot(text, Shape::Bars).stacked());
    section.plot(Plot::new(text, text, Axis::time(text), Axis::share(text)));
    report.footer(text);
    report
}

/// A plot of two series with two marks.
pub fn plot(text: &str, shape: Shape) -> Plot {
    let points = |top: f64| (0..9).map(move |x| (f64::from(x) * 60_000.0, f64::from(x) * top));
    Plot::new(text, text, Axis::time(text), Axis::count(text))
        .describe(text)
        .series(Series::new(text, shape).points(points(1.0)))
        .series(Series::new(text, shape).points(points(0.5)))
        .mark(Mark::level(text, 6.0))
        .mark(Mark::at(text, 120_000.0))
}

/// A page as a user would get it: a replay of one day.
pub fn day() -> Report {
    let mut report = Report::new("Replay of access.log against policy.json");
    report
        .section("")
        .text(
            "1 August 1995, one rule: 10 requests per minute for each client, gcra. The policy would \
             have refused 178 of 61,000 requests and touched 40 of 2,582 clients.",
        )
        .figures(
            Figures::new("summary")
                .figure("requests", Cell::Count(61_000), "")
                .figure("denied", Cell::Count(178), "0.29 % of requests")
                .figure("clients", Cell::Count(2_582), "")
                .figure("limited clients", Cell::share(40, 2_582), "40 of 2,582")
                .figure("first", Cell::Time(807_241_207_000), "")
                .figure("wait, p99", Cell::Duration(1_250_000_000), "before a retry passes"),
        );
    // Up and down in a parabola: the last digit of a sine differs between machines.
    let arch = |x: u32, length: u32| f64::from(x % length * (length - x % length));
    let wave = |x: u32| 5.0 + arch(x + 20, 150) / 140.0 + f64::from(x * 7919 % 13);
    let start = 807_235_200_000.0;
    let at = move |x: u32| start + f64::from(x) * 600_000.0;
    let peak = |x: u32| if x == 90 { 14.0 } else { f64::from(x % 5) * 0.8 };
    let line = Plot::new(
        "timeline",
        "Requests of ten minutes",
        Axis::time("time (UTC)"),
        Axis::count("requests"),
    )
    .describe("Most refusals fall into ten minutes after three in the afternoon.")
    .series(Series::new("admitted", Shape::Bars).points((0..144).map(|x| (at(x), wave(x)))))
    .series(Series::new("denied", Shape::Bars).points((0..144).map(|x| (at(x), peak(x)))))
    .stacked();
    let state = Plot::new(
        "state",
        "Estimate and true count of one client",
        Axis::duration("time since the first request"),
        Axis::number("requests in the last minute"),
    )
    .series(
        Series::new("true count", Shape::Step)
            .points((0..200).map(|x| (f64::from(x) * 1.5, (arch(x, 50) / 70.0).floor()))),
    )
    .series(
        Series::new("estimate", Shape::Line)
            .points((0..200).map(|x| (f64::from(x) * 1.5, arch(x + 6, 50) / 80.0))),
    )
    .mark(Mark::level("limit", 10.0))
    .mark(Mark::at("clock set back", 170.0));
    let waits = Plot::new(
        "waits",
        "How long the refused would have had to wait",
        Axis::duration("Retry-After"),
        Axis::count("refusals"),
    )
    .histogram("refusals", &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0], &[12, 40, 61, 30, 25, 10]);
    let false_allow = [("gcra", 0.0), ("sliding-window", 0.3), ("fixed-window", 1.9)];
    let compared = false_allow.into_iter().fold(
        Plot::new(
            "limits",
            "Clients that a limit touches",
            Axis::number("limit per minute"),
            Axis::share("clients"),
        ),
        |plot, (name, more)| {
            let points = [5.0, 10.0, 20.0, 40.0, 60.0].map(|x| (x, (0.2 + more * 0.1) / x));
            plot.series(Series::new(name, Shape::Line).points(points))
        },
    );
    report
        .section("When")
        .text("Whole seconds of the log are spread evenly over the second.")
        .plot(line)
        .plot(state)
        .plot(waits)
        .plot(compared);
    let mut keys = Table::new("keys", "Who would have been limited most")
        .column(Column::text("client"))
        .column(Column::count("requests"))
        .column(Column::count("denied"))
        .column(Column::share("of its requests"))
        .column(Column::time("first denied (UTC)"))
        .column(Column::duration("longest wait"));
    for (name, requests, denied) in [
        ("edams.ksc.nasa.example", 1_530, 61),
        ("piweba4y.prodigy.example", 1_112, 40),
        ("192.0.2.17", 420, 31),
        ("2001:db8::/64", 99, 30),
        ("a-very-long-host-name.of.somebody.who.names.machines.by.sentences.example", 64, 16),
    ] {
        keys.push([
            Cell::text(name),
            Cell::Count(requests),
            Cell::Count(denied),
            Cell::share(denied, requests),
            Cell::Time(807_241_207_000 + i64::try_from(requests).unwrap_or(0) * 61_250),
            Cell::Duration(denied * 97_000_000),
        ]);
    }
    report.section("Who").table(keys.and_omitted(35));
    report
        .section("A quota to start from")
        .code("{ \"limit\": 24, \"window\": \"1m\", \"algorithm\": \"gcra\" }");
    report.footer("tollgate replay 0.1.0");
    report
}
