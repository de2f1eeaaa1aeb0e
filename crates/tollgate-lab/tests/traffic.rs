//! Simulated traffic: the times of requests, their clients, and documents that are rejected.

use tollgate_core::{Span, Timestamp};
use tollgate_lab::simulator::{ClientResponse, Request, Requests, START, Traffic};
use tollgate_policy::Facts;

fn traffic(sources: &str) -> Traffic {
    let document = format!(r#"{{"length": "10s", "sources": [{sources}]}}"#);
    Traffic::parse(&document).expect(&document)
}

/// The times of requests, in milliseconds after the beginning.
fn times(sources: &str) -> Vec<u64> {
    let mut requests = Requests::new(&traffic(sources), 1);
    let since = |request: Request| request.at.since(START).as_nanos() / 1_000_000;
    std::iter::from_fn(|| requests.next_request()).map(since).collect()
}

/// A client that would retry while a million others are pending gives up, and is counted.
#[test]
fn beyond_a_million_who_come_again_others_give_up() {
    let half = r#"{"arrivals": {"bursts": {"size": 500002, "every": "30m"}}, "to": "1s",
        "retry": {"attempts": 1, "wait": {"fixed": "1m"}}}"#;
    let traffic = format!(r#"{{"length": "1h", "sources": [{half}, {half}]}}"#);
    let traffic = Traffic::parse(&traffic).unwrap();
    let mut requests = Requests::new(&traffic, 1);
    let refused = ClientResponse { is_refused: true, ..ClientResponse::default() };
    let (mut first, mut again) = (0, 0);
    while let Some(request) = requests.next_request() {
        first += u64::from(request.attempt == 0);
        again += request.attempt;
        requests.record_response(&request, &refused, request.at);
    }
    assert_eq!((first, again, requests.given_up()), (1_000_004, 1_000_000, 4));
}

#[test]
fn each_model_has_its_times() {
    let steady = times(r#"{"arrivals": {"steady": {"rate": "3/1s"}}, "to": "2s"}"#);
    assert_eq!(steady, [0, 333, 666, 1_000, 1_333, 1_666]);
    let on_off =
        r#"{"arrivals": {"on_off": {"rate": "2/s", "on": "1s", "off": "3s"}}, "from": "1s"}"#;
    assert_eq!(times(on_off), [1_000, 1_500, 5_000, 5_500, 9_000, 9_500]);
    let bursts = r#"{"arrivals": {"bursts": {"size": 2, "every": "4s"}}}"#;
    assert_eq!(times(bursts), [0, 0, 4_000, 4_000, 8_000, 8_000]);
    let spaced = r#"{"arrivals": {"spaced": {"size": 3, "wait": "200ms"}}}"#;
    assert_eq!(times(spaced), [0, 200, 400]);
    let spaced =
        times(r#"{"arrivals": {"spaced": {"size": 90, "wait": "20ms", "jitter": "9ms"}}}"#);
    let gaps: Vec<u64> = spaced.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(spaced.len() == 90 && gaps.iter().all(|gap| (20..=29).contains(gap)), "{gaps:?}");
    assert!(gaps.contains(&21) && gaps.contains(&27), "{gaps:?}");
    let edge = r#"{"arrivals": {"edge": {"window": "4s", "size": 2, "gap": "20ms"}}}"#;
    assert_eq!(times(edge), [3_980, 3_990, 4_000, 4_000, 7_980, 7_990, 8_000, 8_000]);
    let counts = r#"{"arrivals": {"counts": {"bin": "1s", "counts": [2, 0, 0, 4]}}}"#;
    assert_eq!(times(counts), [0, 500, 3_000, 3_250, 3_500, 3_750]);
    let instants = r#"{"arrivals": {"instants": {"at": ["5ms", "5ms", "3s", "11s"]}}}"#;
    assert_eq!(times(instants), [5, 5, 3_000]);
    let ramp = times(r#"{"arrivals": {"ramp": {"from": "0/s", "to": "20/s"}}}"#);
    let first_half = ramp.iter().filter(|at| **at < 5_000).count();
    assert_eq!((ramp.len(), first_half), (100, 25));
    let poisson = times(r#"{"arrivals": {"poisson": {"rate": "100/s"}}}"#);
    assert!((900..1_100).contains(&poisson.len()), "{}", poisson.len());
    assert!(poisson.windows(2).all(|pair| pair[0] <= pair[1]));
    assert!(times(r#"{"arrivals": {"steady": {"rate": "0/s"}}}"#).is_empty());
}

#[test]
fn sources_are_merged_by_time_and_do_not_disturb_each_other() {
    let poisson = r#"{"arrivals": {"poisson": {"rate": "20/s"}}}"#;
    let steady = r#"{"arrivals": {"steady": {"rate": "7/s"}}, "clients": {"count": 3}}"#;
    let mut both = Requests::new(&traffic(&format!("{poisson}, {steady}")), 5);
    let both: Vec<Request> = std::iter::from_fn(|| both.next_request()).collect();
    assert!(both.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let mut alone = Requests::new(&traffic(poisson), 5);
    let alone: Vec<Request> = std::iter::from_fn(|| alone.next_request()).collect();
    let first: Vec<Request> = both.iter().filter(|request| request.source == 0).copied().collect();
    assert_eq!(first, alone);
    // Each source has clients of its own.
    assert!(both.iter().all(|request| (request.source == 0) == (request.client == 0)));
}

#[test]
fn another_seed_is_another_traffic() {
    let of = |seed| {
        let poisson = traffic(r#"{"arrivals": {"poisson": {"rate": "20/s"}}}"#);
        Requests::new(&poisson, seed).next_request().unwrap().at
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn clients_of_their_own_fresh_ones_and_few_that_ask_most() {
    let each =
        r#"{"arrivals": {"steady": {"rate": "1/5s"}}, "clients": {"count": 3}, "each": true}"#;
    assert_eq!(times(each), [0, 0, 0, 5_000, 5_000, 5_000]);
    let spray = r#"{"arrivals": {"steady": {"rate": "5/s"}}, "clients": {"fresh": true}}"#;
    let mut requests = Requests::new(&traffic(spray), 1);
    let mut seen: Vec<_> =
        std::iter::from_fn(|| requests.next_request()).map(|r| r.address()).collect();
    seen.dedup();
    assert_eq!(seen.len(), 50);
    let zipf =
        r#"{"arrivals": {"steady": {"rate": "100/s"}}, "clients": {"count": 100, "zipf": 1}}"#;
    let mut requests = Requests::new(&traffic(zipf), 1);
    let of_first = std::iter::from_fn(|| requests.next_request()).filter(|r| r.client == 0).count();
    assert!((150..240).contains(&of_first), "{of_first} of 1,000; 193 are expected");
}

#[test]
fn a_request_is_what_the_document_says() {
    let shape = r#"{"arrivals": {"instants": {"at": ["0s", "0s"]}}, "clients": {"count": 300},
        "request": {"method": "POST", "path": "/c/{client}?n={n}", "host": "a.example",
            "headers": {"X-Forwarded-For": "{address}", "x-none": "{other}"},
            "domain": "d", "descriptor": [{"plan": "gold"}, {"user": "{client}"}]}}"#;
    let mut requests = Requests::new(&traffic(shape), 1);
    requests.next_request().unwrap();
    let request = requests.next_request().unwrap();
    let facts = requests.facts(request).unwrap();
    let text = |value: Option<std::borrow::Cow<'_, [u8]>>| {
        String::from_utf8(value.unwrap().into()).unwrap()
    };
    assert_eq!(text(Some(facts.method())), "POST");
    assert_eq!(text(Some(facts.target())), format!("/c/{}?n=1", request.client));
    assert_eq!(
        (text(Some(facts.host())), text(facts.header("host"))),
        ("a.example".into(), "a.example".into())
    );
    assert_eq!(text(facts.header("x-forwarded-for")), request.address().to_string());
    assert_eq!((text(facts.header("x-none")), facts.header("x")), ("{other}".into(), None));
    assert_eq!(facts.peer(), Some(request.address()));
    let entry = |index| facts.entry(index).map(|e| (text(Some(e.key)), text(Some(e.value))));
    assert_eq!(text(facts.domain()), "d");
    assert_eq!(entry(0), Some(("plan".into(), "gold".into())));
    assert_eq!(entry(1), Some(("user".into(), request.client.to_string())));
    assert_eq!(entry(2), None);
}

/// The requests of one client that is denied `refusals` times.
fn comes_again(retry: &str, told: &ClientResponse, refusals: u64) -> Vec<u64> {
    let source = format!(r#"{{"arrivals": {{"instants": {{"at": ["0s"]}}}}, "retry": {retry}}}"#);
    let mut requests = Requests::new(&traffic(&source), 1);
    let mut at = Vec::new();
    while let Some(request) = requests.next_request() {
        at.push(request.at.since(START).as_nanos() / 1_000_000);
        let told = ClientResponse { is_refused: request.attempt < refusals, ..*told };
        requests.record_response(&request, &told, request.at);
    }
    at
}

#[test]
fn refused_clients_come_again_as_they_are_told_to() {
    let told =
        ClientResponse { retry_after: Some(Span::from_secs(2)), ..ClientResponse::default() };
    let asks = |retry, refusals| comes_again(retry, &told, refusals);
    assert_eq!(asks(r#"{"attempts": 9, "wait": "retry_after"}"#, 2), [0, 2_000, 4_000]);
    assert_eq!(asks(r#"{"attempts": 3, "wait": {"fixed": "100ms"}}"#, 99), [0, 100, 200, 300]);
    let backoff = r#"{"attempts": 99, "wait": {"backoff": {"first": "1s", "most": "4s"}}}"#;
    assert_eq!(asks(backoff, 99), [0, 1_000, 3_000, 7_000]); // 11 s is after the end
    let jitter = asks(r#"{"wait": {"fixed": "1s"}, "jitter": "2s"}"#, 1);
    assert!((1_000..3_000).contains(&jitter[1]) && jitter[1] != 1_000, "{jitter:?}");
    let untold = comes_again(r#"{"wait": "retry_after"}"#, &ClientResponse::default(), 9);
    assert_eq!(untold, [0]);
}

#[test]
fn paced_clients_hold_back_for_as_long_as_one_request_takes() {
    let source = r#"{"arrivals": {"steady": {"rate": "10/s"}}, "to": "1s", "paced": true}"#;
    let mut requests = Requests::new(&traffic(source), 1);
    let mut at = Vec::new();
    while let Some(request) = requests.next_request() {
        at.push(request.at.since(START).as_nanos() / 1_000_000);
        let told =
            ClientResponse { pace: Some(Span::from_millis(250)), ..ClientResponse::default() };
        requests.record_response(&request, &told, request.at);
    }
    assert_eq!(at, [0, 250, 500, 750, 1_000, 1_250, 1_500, 1_750, 2_000, 2_250]);
}

#[test]
fn what_comes_after_the_end_is_left_out() {
    let mut requests = Requests::new(
        &traffic(
            r#"{"arrivals": {"steady": {"rate": "1/s"}}, "retry": {"wait": {"fixed": "1s"}}}"#,
        ),
        1,
    );
    let last = std::iter::from_fn(|| {
        let request = requests.next_request()?;
        requests.record_response(
            &request,
            &ClientResponse { is_refused: true, ..ClientResponse::default() },
            request.at,
        );
        Some(request.at)
    });
    assert!(last.last().unwrap() < START.saturating_add(Span::from_secs(10)));
    assert_eq!((requests.next_at(), requests.is_cut_short()), (None, false));
}

#[test]
fn a_document_survives_being_written() {
    let all = r#"{"arrivals": {"on_off": {"rate": "2/1500ms", "on": "90s", "off": "0s"}}, "name": "a",
        "clients": {"count": 7, "zipf": 0.5}, "retry": {"wait": {"backoff": {"first": "1us", "most": "2h"}}}}"#;
    let first = traffic(all);
    let json = first.to_json();
    assert_eq!(Traffic::parse(&json).unwrap().to_json(), json);
    assert!(json.contains(r#""rate":"2/1500ms","on":"90s","off":"0s""#), "{json}");
    assert_eq!(first.sources().collect::<Vec<_>>(), ["a"]);
    assert_eq!(first.length(), Span::from_secs(10));
}

#[test]
fn every_mistake_names_its_place_and_what_is_allowed() {
    let said = |document: &str| Traffic::parse(document).expect_err(document).to_string();
    let source = |source: &str| said(&format!(r#"{{"length": "10s", "sources": [{source}]}}"#));
    assert_eq!(said("{}"), "missing field `length` at line 1 column 2");
    assert_eq!(
        source(r#"{"arrivals": {"steady": {"rate": "ten"}}}"#),
        "sources[0].arrivals.steady.rate: invalid value: string \"ten\", expected a rate; use 0 to \
         1000000 in a time, such as \"10/1s\" or \"5/2m\" at line 1 column 69"
    );
    assert_eq!(
        source(r#"{"arrivals": {"stedy": {}}}"#),
        "sources[0].arrivals: unknown variant `stedy`, expected one of `steady`, `poisson`, \
         `on_off`, `bursts`, `ramp`, `edge`, `counts`, `spaced`, `instants` at line 1 column 51"
    );
    assert_eq!(
        source(r#"{"arrivals": {"steady": {"rate": "1/s"}}, "clients": {"count": 0}}"#),
        "sources[0].clients.count: invalid value: integer `0`, expected a whole number from 1 to \
         1000000 at line 1 column 94"
    );
    assert_eq!(
        source(r#"{"arrivals": {"steady": {"rate": "1/s"}}, "from": "20s"}"#),
        "sources[0]: has no duration; `from` must be before `to` and `length`"
    );
    assert_eq!(
        source(r#"{"arrivals": {"steady": {"rate": "1/s"}, "poisson": {"rate": "1/s"}}}"#),
        "sources[0].arrivals: contains more than one kind; use one of them at line 1 column 69"
    );
    let broken = source(r#"{"arrivals": }"#);
    assert!(broken.contains("expected value"), "{broken}");
    for (arrivals, is) in
        [("\"steady\"", "a kind alone, "), (r#"{"steady": "1/s"}"#, "string \"1/s\", ")]
    {
        let message = source(&format!(r#"{{"arrivals": {arrivals}}}"#));
        let place = "sources[0].arrivals.steady: invalid type: ";
        assert!(message.starts_with(&format!("{place}{is}expected an object")), "{message}");
    }
    for (document, what) in
        [("[]", "an object with"), (r#"{"length": "1s", "sources": {}}"#, "a list")]
    {
        assert!(said(document).contains(&format!("expected {what}")), "{}", said(document));
    }
    assert_eq!(said(r#"{"length": "0s", "sources": []}"#), "length: must be more than 0s");
    assert_eq!(said(r#"{"length": "1s", "sources": []}"#), "sources: use 1 to 64 sources");
    assert_eq!(said(&" ".repeat((1 << 20) + 1)), "the traffic is longer than 1 MiB");
    let control = said(r#"{"length": "1s", "\u001b[31m\u202e": 1}"#);
    assert!(control.contains("unknown field `\\u{1b}[31m\\u{202e}`, expected one of"), "{control}");
    assert_eq!(said(&format!(r#"{{"{}": 1}}"#, "x".repeat(9_999))).len(), 808);
    let each = |count| {
        format!(
            r#"{{"arrivals": {{"steady": {{"rate": "1/s"}}}}, "clients": {{"count": {count}}}, "each": true}}"#
        )
    };
    assert_eq!(
        source(&each(100_001)),
        "sources: at most 100000 clients can have separate arrivals"
    );
    let paced =
        r#"{"arrivals": {"steady": {"rate": "1/s"}}, "clients": {"count": 500001}, "paced": true}"#;
    assert_eq!(
        source(&format!("{paced}, {paced}")),
        "sources: at most 1000000 clients can be paced"
    );
    assert!(said(r#"{"length": "1s", "sources": []} x"#).starts_with("trailing characters"));
    let deep = "[".repeat(100_000);
    assert!(said(&deep).contains("invalid type") || said(&deep).contains("recursion"));
}

#[test]
fn numbers_are_bounded_at_their_edges() {
    let read = |field: &str, value: &str| {
        let source =
            format!(r#"{{"arrivals": {{"steady": {{"rate": "1/s"}}}}, {field}: {value}}}"#);
        Traffic::parse(&format!(r#"{{"length": "10s", "sources": [{source}]}}"#)).is_ok()
    };
    for (field, good, bad) in [
        ("\"status\"", "599", "600"),
        ("\"clients\"", r#"{"count": 1000000}"#, r#"{"count": 1000001}"#),
        ("\"clients\"", r#"{"zipf": 4}"#, r#"{"zipf": 4.1}"#),
        ("\"to\"", "\"366d\"", "\"367d\""),
        ("\"to\"", "\"1us\"", "\"1ns\""),
    ] {
        assert!(read(field, good) && !read(field, bad), "{field}: {good}, {bad}");
    }
    let far = Traffic::parse(
        r#"{"length": "366d", "sources": [{"arrivals": {"bursts": {"size": 1000000, "every": "366d"}}}]}"#,
    );
    assert_eq!(Requests::new(&far.unwrap(), 1).next_request().unwrap().at, START);
    assert!(START > Timestamp::ZERO);
}
