//! Common names of columns and keys, and the fields that they mean.
//!
//! Invariant: a name means the same in every format that has names. Case, `-`, `.` and a leading
//! `@` make no difference, so `User-Agent` and `user_agent` are one name.

use crate::draft::TimeForm;
use crate::field::Field;
use crate::source::{MAPPED, Ranked, Source};

/// The field in the column or at the key `name`.
pub(crate) fn known(name: &str) -> Ranked {
    let name = name.trim().trim_start_matches('@').to_ascii_lowercase().replace(['-', '.'], "_");
    let text = |field, rank| (Source::Text(field), rank);
    match name.as_str() {
        "start_time" | "startutc" | "edgestarttimestamp" => (Source::Time(TimeForm::Any), 4),
        "time" | "timestamp" | "ts" | "datetime" | "date_time" => (Source::Time(TimeForm::Any), 3),
        "msec" | "time_iso8601" => (Source::Time(TimeForm::Any), 2),
        "time_local" | "date" => (Source::Time(TimeForm::Any), 1),
        "client" | "client_ip" | "clientip" | "client_address" => text(Field::Client, 4),
        "remote_addr" | "remote_ip" | "remote_address" | "source_ip" => text(Field::Client, 3),
        "downstream_remote_address_without_port" | "downstream_remote_address" => {
            text(Field::Client, 3)
        }
        "request_client_ip" | "clienthost" => text(Field::Client, 4),
        "request_remote_ip" | "clientaddr" => text(Field::Client, 3),
        "ip" | "ip_address" | "remote_host" => text(Field::Client, 2),
        "downstream_direct_remote_address" | "realip_remote_addr" => text(Field::Peer, 1),
        "user" | "remote_user" => text(Field::User, 1),
        "request" | "request_line" => (Source::Request, 1),
        "method"
        | "request_method"
        | "http_method"
        | "verb"
        | "httpmethod"
        | "requestmethod"
        | "clientrequestmethod" => text(Field::Method, 2),
        "target" | "request_uri" | "request_target" | "clientrequesturi" => text(Field::Target, 5),
        "url" | "uri" | "original_path" => text(Field::Target, 4),
        "clientrequestpath" | "uri_path" => (Source::Path, 1),
        "path" | "request_path" | "requestpath" => text(Field::Target, 3),
        "authority" | "http_host" => text(Field::Host, 3),
        "request_host" | "vhost" | "requesthost" | "clientrequesthost" => text(Field::Host, 2),
        "host" => text(Field::Host, 1),
        "status" | "response_code" | "status_code" | "http_status" | "response" | "code"
        | "downstreamstatus" | "edgeresponsestatus" => (Source::Status, 1),
        "route" | "route_name" | "routername" => text(Field::Route, 1),
        "country" | "country_code" | "clientcountry" => text(Field::Country, 1),
        "asn" | "clientasn" => text(Field::Asn, 1),
        "useragent" | "clientrequestuseragent" => text(Field::header("user-agent"), 1),
        "user_agent" | "referer" | "x_forwarded_for" | "x_request_id" | "accept_language" => {
            text(Field::header(&name.replace('_', "-")), 1)
        }
        "request_id" => text(Field::header("x-request-id"), 1),
        "referrer" | "clientrequestreferer" => text(Field::header("referer"), 1),
        other => match other.strip_prefix("http_").or(other.strip_prefix("request_headers_")) {
            Some(header) if !header.is_empty() => text(Field::header(&header.replace('_', "-")), 1),
            _ => (Source::Other, 0),
        },
    }
}

/// The field in each of these columns or at each of these keys. A name may have another meaning
/// next to others: `host` is the client next to `logname`, as in the common log format, and a path
/// has no query where the query has a column of its own.
pub(crate) fn all_known<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Ranked> {
    let names: Vec<&str> = names.collect();
    let mut sources: Vec<Ranked> = names.iter().map(|name| known(name)).collect();
    let is_one_of = |name: &str, of: &[&str]| of.iter().any(|of| name.eq_ignore_ascii_case(of));
    let has = |of: &[&str]| names.iter().any(|name| is_one_of(name.trim(), of));
    let is_client = |(source, _): &Ranked| *source == Source::Text(Field::Client);
    let host_is_client = has(&["logname", "ident", "rfc931"]) && !sources.iter().any(is_client);
    let has_query = has(QUERIES);
    for (name, source) in names.iter().zip(&mut sources) {
        if host_is_client && is_one_of(name.trim(), &["host"]) {
            *source = (Source::Text(Field::Client), 1);
        }
        if has_query && is_one_of(name.trim(), QUERIES) {
            *source = (Source::Query, 1);
        }
        if has_query && is_one_of(name.trim(), &["path", "request_path", "uri", "url", "uri_path"])
        {
            *source = (Source::Path, source.1);
        }
    }
    sources
}

/// Names of a query that is separate from its path.
const QUERIES: &[&str] = &["query", "query_string", "querystring", "args"];

/// A user's mapping of names: `client=ip, header.x-api-key=key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    /// In their order, a name once.
    pub(crate) pairs: Vec<(Source, String)>,
}

impl Map {
    /// Adds the pairs of `text`; a name that has a meaning gets the new one.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((field, name)) = pair.split_once('=') else {
                return Err(format!(
                    "{pair:?} is not a pair; use FIELD=NAME, as in client=remote_ip"
                ));
            };
            let (field, name) = (field.trim(), name.trim());
            let Some(source) = Source::parse(field) else {
                return Err(format!(
                    "{field:?} is not a field; use time, client, peer, method, target, host, status, actual, \
                     duration, route, user, country, asn, header.NAME, cookie.NAME, query.NAME, claim.NAME, \
                     metadata.FILTER/NAME, certificate.NAME, cf.NAME, \
                     request, path or query"
                ));
            };
            if name.is_empty() {
                return Err(format!("{pair:?} has no name after the ="));
            }
            self.pairs.retain(|(_, before)| before != name);
            self.pairs.push((source, name.to_owned()));
        }
        Ok(())
    }

    /// The field to which `name` is mapped.
    pub(crate) fn get(&self, name: &str) -> Option<Ranked> {
        let pair = self.pairs.iter().find(|(_, mapped)| mapped == name.trim());
        pair.map(|(source, _)| (source.clone(), MAPPED))
    }

    /// The first mapped name that is not in `names`.
    pub(crate) fn unknown<'m>(&'m self, names: &[String]) -> Option<&'m str> {
        let is_unknown = |name: &&str| !names.iter().any(|known| known.trim() == *name);
        self.pairs.iter().map(|(_, name)| name.as_str()).find(is_unknown)
    }
}
