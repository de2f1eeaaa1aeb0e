//! Checks the statements of docs/logs.md on formats: its names are known, its examples are read.

use std::path::Path;

use tollgate_access_log::{Cause, Field, Format, FormatError, Limits, Reader, Wanted};

/// The text below a heading of the document.
fn section(heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/logs.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap().split("\n### ").next().unwrap().to_owned()
}

/// The cells of the table's rows, without its head.
fn rows(section: &str) -> Vec<Vec<String>> {
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let row = row.trim_matches('|').split('|');
        row.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn every_field_is_a_field() {
    let mut count = 0;
    for row in rows(&section("## Fields")) {
        for name in row[0].split(", ") {
            assert!(Field::parse(name.trim_matches('`')).is_some(), "{name}");
            count += 1;
        }
    }
    assert_eq!(count, 26);
}

/// Each name is tested in a header line that has it, together with the time unless it is the time.
#[test]
fn every_name_is_known() {
    let told = |names: &str, field: &Field| {
        let format = Format::parse("tsv").unwrap();
        format.fit(names.replace(' ', "\t").as_bytes()).unwrap().contains(field)
    };
    let mut count = 0;
    for row in rows(&section("### Names")) {
        let fields: Vec<Field> = match row[0].as_str() {
            "method and target" => vec![Field::Method, Field::Target],
            "`client` or `host`" => {
                assert!(
                    told("host logname", &Field::Client) && !told("host logname", &Field::Host)
                );
                assert!(told("host", &Field::Host) && !told("host", &Field::Client));
                assert!(told("host logname ip", &Field::Host));
                continue;
            }
            "headers" => {
                for name in row[1].split(", ") {
                    let name = name.replace("NAME", "x_a");
                    let headers = [
                        "user-agent",
                        "referer",
                        "x-forwarded-for",
                        "x-request-id",
                        "x-a",
                        "accept-language",
                    ];
                    assert!(
                        headers.iter().any(|header| told(&name, &Field::header(header))),
                        "{name}"
                    );
                    count += 1;
                }
                continue;
            }
            fields => {
                fields.split(", ").map(|f| Field::parse(f.trim_matches('`')).unwrap()).collect()
            }
        };
        let names = row[1].split("; where ").next().unwrap();
        for (place, names) in names.split("; ").enumerate() {
            for name in names.split(", ") {
                let field = if fields.len() > 1 && row[0].contains(", ") {
                    &fields[place..=place]
                } else {
                    &fields
                };
                assert!(field.iter().all(|field| told(name, field)), "{name} tells {field:?}");
                count += 1;
            }
        }
    }
    assert!(count > 75, "{count}");
}

/// The lines of the first table; each must have all fields that its last column names.
#[test]
fn the_examples_are_read() {
    let mut count = 0;
    for row in rows(&section("## Formats")) {
        let spec = row[0].trim_matches('`');
        if spec.contains(':') || spec.contains(',') {
            continue;
        }
        let format = Format::parse(spec).unwrap();
        let fields: &[&str] = match spec {
            "common" => &["client", "user", "method", "target", "status"],
            "combined" | "vhost" => &[
                "client",
                "user",
                "method",
                "target",
                "status",
                "header.referer",
                "header.user-agent",
            ],
            "envoy" => &[
                "method",
                "target",
                "status",
                "host",
                "header.x-forwarded-for",
                "header.user-agent",
                "header.x-request-id",
            ],
            "envoy-json" => &[
                "client",
                "method",
                "target",
                "host",
                "status",
                "route",
                "header.x-forwarded-for",
                "header.user-agent",
                "header.x-request-id",
            ],
            other => panic!("{other} has no row here"),
        };
        for name in fields {
            let field = Field::parse(name).unwrap();
            assert!(format.contains(&field), "{spec}: {name}");
            let is_said =
                row[2].contains("the same") || row[2].contains(name) || name.starts_with("header");
            assert!(is_said, "{spec}: {name}");
        }
        assert_eq!(format.contains(&Field::Client), spec != "envoy");
        if let Some(line) = row[1].split('`').nth(1).filter(|_| spec == "combined") {
            let mut reader =
                Reader::new(&format, Wanted::new([Field::Client]), Limits::default()).unwrap();
            reader.feed(line.as_bytes(), &mut |_| {}).unwrap();
            reader.finish(&mut |_| count += 1).unwrap();
        }
    }
    assert_eq!(count, 1);
}

/// The `--format` of the blocks, with `--map` where it follows.
#[test]
fn the_formats_of_the_examples_are_formats() {
    let (mut count, mut specs) = (0, vec![]);
    for heading in ["## Formats", "### nginx", "### Envoy", "## Maps"] {
        for line in section(heading).lines().filter(|line| line.starts_with("--format ")) {
            let unquoted = line.replace('\'', "");
            let words = unquoted.strip_prefix("--format ").unwrap();
            let (spec, map) = words.split_once(" --map ").unwrap_or((words, ""));
            let format = Format::parse(spec).and_then(|format| format.with_map(map));
            assert!(format.is_ok(), "{line}: {format:?}");
            specs.push(spec.to_owned());
            count += 1;
        }
    }
    assert_eq!(count, 5, "{specs:?}");
}

#[test]
fn every_cause_has_a_row() {
    let told: Vec<String> = rows(&section("## Lines that cannot be read"))
        .into_iter()
        .map(|row| row[0].trim_matches('`').to_owned())
        .collect();
    let causes = [
        Cause::TooLong,
        Cause::Form,
        Cause::Ambiguous,
        Cause::Json,
        Cause::TooDeep,
        Cause::OpenQuote,
        Cause::Time,
        Cause::TimeOutOfRange,
        Cause::NoRequest,
    ];
    assert_eq!(told, causes.map(Cause::name));
}

/// The messages for common typing mistakes, word for word.
#[test]
fn mistakes_are_told_in_words() {
    let fit = |spec: &str, head: &str| {
        Format::parse(spec).and_then(|format| format.fit(head.as_bytes())).map(|_| ())
    };
    let rows: [(Result<(), FormatError>, &str); 12] = [
        (
            fit("apache", ""),
            "\"apache\" is not a format; use combined, common, vhost, nginx:FORMAT, nginx-json:FORMAT, nginx-none:FORMAT, envoy[:FORMAT], envoy-json[:OBJECT], json[:MAP], csv[:MAP], tsv[:MAP]",
        ),
        (
            fit("nginx:x", ""),
            "\"nginx:x\" has no variables, as in \"$remote_addr [$time_local] ...\"",
        ),
        (fit("nginx:$a $", ""), "\"nginx:$a $\" has a \"$\" without the name of a variable"),
        (
            fit("nginx:$msec$status", ""),
            "\"nginx:$msec$status\" has no text between msec and status, so the end of each is unknown",
        ),
        (
            fit("envoy:50% of", ""),
            "\"envoy:50% of\" has a \"%\" that does not begin an operator; a percent sign is \"%%\"",
        ),
        (
            fit("envoy:%START_TIME(%H)%", ""),
            "\"envoy:%START_TIME(%H)%\" has the time \"%H\", which lacks the day or the second",
        ),
        (fit("envoy-json:[]", ""), "\"envoy-json:[]\" is not a JSON object of format strings"),
        (
            fit("csv:ip", ""),
            "\"csv:ip\" \"ip\" is not a pair; use FIELD=NAME, as in client=remote_ip",
        ),
        (
            fit("csv:who=ip", ""),
            "\"csv:who=ip\" \"who\" is not a field; use time, client, peer, method, target, host, status, actual, duration, route, user, country, asn, header.NAME, cookie.NAME, query.NAME, claim.NAME, metadata.FILTER/NAME, certificate.NAME, cf.NAME, request, path or query",
        ),
        (
            fit("csv:client=ip", "time,addr\n"),
            "the first line has no column \"ip\", but time, addr",
        ),
        (
            fit("json:client=ip", "{\"time\":1,\"addr\":\"\\u001b\"}"),
            "the first lines have no key \"ip\", but time, addr",
        ),
        (
            fit("json:client=a.b.c.d.e.f.g", ""),
            "\"json:client=a.b.c.d.e.f.g\" has the path \"a.b.c.d.e.f.g\"; use at most 6 parts",
        ),
    ];
    for (found, expected) in rows {
        assert_eq!(found.unwrap_err().to_string(), expected);
    }
    // The last mapping of a name counts.
    let format = Format::parse("tsv:[time,a],client=a").unwrap().with_map("header.k=a").unwrap();
    assert!(format.contains(&Field::header("k")) && !format.contains(&Field::Client));
    let mapped = Format::parse("combined").unwrap().with_map("client=x");
    let why = mapped.unwrap_err().to_string();
    assert!(why.starts_with("\"combined\" has no variable \"x\", but remote_addr, "), "{why}");
}
