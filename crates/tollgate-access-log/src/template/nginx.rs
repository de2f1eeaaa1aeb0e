//! `log_format` of nginx, and with it the combined and the common log format.
//!
//! Invariant: a variable that is not known has no field and is skipped, so any format can be read
//! whose variables have text between them.

use crate::draft::TimeForm;
use crate::escape::Escape;
use crate::field::Field;
use crate::source::{Ranked, Source};
use crate::template::{Template, Variable, push_literal, push_variable};

/// The combined log format, as nginx has it built in and Apache's `combined` writes it.
pub(crate) const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
/// The common log format; the second column is that of RFC 931, which is no longer used.
pub(crate) const COMMON: &str =
    r#"$remote_addr $logname $remote_user [$time_local] "$request" $status $body_bytes_sent"#;

/// Apache's combined format with the virtual host in front, as Debian configures it.
pub(crate) const VHOST: &str = r#"$vhost:$server_port $remote_addr $logname $remote_user [$time_local] "$request" $status $bytes_sent "$http_referer" "$http_user_agent""#;

/// Variables with a fixed name: their fields, with a rank.
fn known(name: &str) -> Ranked {
    let text = |field| (Source::Text(field), 1);
    match name {
        "msec" => (Source::Time(TimeForm::Epoch), 3),
        "time_iso8601" => (Source::Time(TimeForm::Iso), 2),
        "time_local" => (Source::Time(TimeForm::Common), 1),
        "remote_addr" => text(Field::Client),
        "realip_remote_addr" => text(Field::Peer),
        "remote_user" => text(Field::User),
        "request_method" => (Source::Text(Field::Method), 2),
        "request_uri" => (Source::Text(Field::Target), 3),
        "request" => (Source::Request, 2),
        "uri" | "document_uri" => (Source::Path, 1),
        "args" | "query_string" => (Source::Query, 1),
        "status" => (Source::Status, 1),
        "http_host" => (Source::Text(Field::Host), 2),
        "host" => text(Field::Host),
        "geoip_country_code" | "geoip2_data_country_code" => text(Field::Country),
        _ => named(name).map_or((Source::Other, 0), text),
    }
}

/// Variables whose name contains the name of a header, cookie or parameter: `$http_x_api_key`.
fn named(name: &str) -> Option<Field> {
    let (kind, of) = name.split_once('_').filter(|(_, of)| !of.is_empty())?;
    match kind {
        "http" => Some(Field::header(&of.replace('_', "-"))),
        "cookie" => Some(Field::Cookie(of.to_owned())),
        "arg" => Some(Field::Query(of.to_owned())),
        _ => None,
    }
}

/// Variables in which no client can have a space. A target can contain one in requests that were
/// rejected because of it, and before nginx 1.21. Variables about upstreams have spaces between
/// the values of several upstreams. `logname` is no longer used.
fn is_word(name: &str) -> bool {
    const WORDS: [&str; 36] = [
        "remote_addr",
        "realip_remote_addr",
        "remote_port",
        "time_iso8601",
        "msec",
        "status",
        "request_method",
        "request_id",
        "request_length",
        "request_time",
        "request_completion",
        "body_bytes_sent",
        "bytes_sent",
        "content_length",
        "connection",
        "connection_requests",
        "connection_time",
        "connections_active",
        "gzip_ratio",
        "hostname",
        "host",
        "vhost",
        "logname",
        "nginx_version",
        "pid",
        "pipe",
        "scheme",
        "https",
        "server_addr",
        "server_name",
        "server_port",
        "server_protocol",
        "ssl_protocol",
        "ssl_cipher",
        "ssl_session_reused",
        "geoip_country_code",
    ];
    WORDS.contains(&name)
}

/// A piece of a format string.
enum Part<'s> {
    Literal(&'s str),
    Variable(&'s str),
}

/// The pieces of a format string, in order.
fn parts(mut text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while let Some(dollar) = text.find('$') {
        let (before, rest) = text.split_at(dollar);
        let rest = rest.strip_prefix('$').unwrap_or(rest);
        let (name, after) = match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(braced) => braced,
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()))
            }
        };
        parts.push(Part::Literal(before));
        parts.push(Part::Variable(name));
        text = after;
    }
    parts.push(Part::Literal(text));
    parts
}

/// Reads a format string; the error gives the reason why it describes no lines.
pub(crate) fn parse(text: &str, escape: Escape) -> Result<Template, String> {
    let (lead, variables, times) = (Vec::new(), Vec::new(), Vec::new());
    let mut template = Template { lead, variables, escape, times };
    // Three variables that form a target when they follow each other.
    let text = text.replace("$uri$is_args$args", "$request_uri");
    for part in parts(&text) {
        match part {
            Part::Literal(literal) => push_literal(&mut template, literal),
            Part::Variable("") => {
                return Err("has a \"$\" without the name of a variable".to_owned());
            }
            Part::Variable(name) => {
                let (source, is_word) = (known(name), is_word(name));
                let (name, literal) = (name.to_owned(), Vec::new());
                push_variable(&mut template, Variable { name, source, is_word, literal })?;
            }
        }
    }
    if template.variables.is_empty() {
        return Err("has no variables, as in \"$remote_addr [$time_local] ...\"".to_owned());
    }
    Ok(template)
}
