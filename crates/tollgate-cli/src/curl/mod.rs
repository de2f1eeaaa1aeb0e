//! A command line of curl as a request.
//!
//! Invariant: an option that may change the request is either understood or rejected by name;
//! nothing is guessed, no file is read. Facts that the command line leaves open (the length of a
//! body that comes from a file) are reported.

mod options;
mod url;

use base64ct::{Base64, Encoding as _};

use crate::args;
use options::{Effect, Word};
pub(crate) use url::Url;

/// The request that curl would send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path and the query.
    pub(crate) target: String,
    pub(crate) host: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The unknown facts, in words.
    pub(crate) unknown: Vec<String>,
}

/// The options read so far.
#[derive(Debug, Default)]
struct Line {
    method: Option<String>,
    url: Option<String>,
    /// As given with -H: a header that removes curl's own has no value.
    headers: Vec<(String, Option<String>)>,
    /// Headers that come from other options.
    own: Vec<(&'static str, String)>,
    cookies: Vec<String>,
    body: Option<Body>,
}

/// The form that -d sends.
#[derive(Debug)]
enum Body {
    Text(String),
    /// A part of it is in a file.
    File,
}

/// Splits a command line that was pasted as one word, as a shell does.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    if line.split_ascii_whitespace().any(|word| word.starts_with("$'")) {
        return Err("$'...' is the shell's own: give the command line after -- instead".to_owned());
    }
    // A prompt is often copied, too.
    let line = line.trim_start().trim_start_matches("$ ");
    shlex::split(&joined(line)?).ok_or_else(|| "a quote is not closed".to_owned())
}

/// Joins lines that end in a backslash: `shlex` would find an empty word there.
///
/// # Errors
/// A shell would replace a part of the line.
fn joined(line: &str) -> Result<String, String> {
    let mut out = String::with_capacity(line.len());
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => {
                let after = rest.as_str().trim_start_matches('\r');
                if quote.is_none() && after.starts_with('\n') {
                    rest = after.chars();
                } else {
                    out.push(c);
                    out.extend(rest.next());
                }
                continue;
            }
            ('\'' | '"', None) => quote = Some(c),
            (_, Some(open)) if open == c => quote = None,
            ('$' | '`', None | Some('"')) if is_replaced(c, rest.as_str()) => {
                return Err(format!(
                    "{c}{} would be replaced by the shell: give the command line after -- instead, \
                     or put it in single quotes",
                    rest.as_str().chars().take(12).collect::<String>()
                ));
            }
            _ => {}
        }
        out.push(c);
    }
    Ok(out)
}

/// True for the start of `` `command` ``, `$(command)`, `$name` and `${name}`.
fn is_replaced(first: char, rest: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '{' | '(');
    first == '`' || rest.starts_with(is_name)
}

/// Reads the request of a command line, which begins with `curl`.
pub(crate) fn request(words: &[String]) -> Result<Request, String> {
    let (first, words) = words.split_first().ok_or("the command line is empty")?;
    if !matches!(first.rsplit('/').next(), Some("curl" | "curl.exe")) {
        return Err(format!("a command line of curl begins with curl, not with {first:?}"));
    }
    let mut line = Line::default();
    for word in options::words(words)? {
        match word {
            Word::Url(url) if line.url.is_some() => {
                return Err(format!("one request at a time: {url:?} is a second URL"));
            }
            Word::Url(url) => line.url = Some(url.to_owned()),
            Word::Option(name, effect, value) => {
                line.option(effect, value).map_err(|error| format!("{name}: {error}"))?;
            }
        }
    }
    line.request()
}

impl Line {
    fn option(&mut self, effect: Effect, value: &str) -> Result<(), String> {
        match effect {
            Effect::None => {}
            Effect::Method => self.method = Some(args::token(value)?),
            Effect::Header => self.headers.push(custom_header(value)?),
            Effect::Data if value.starts_with('@') => self.body = Some(Body::File),
            Effect::Data | Effect::DataRaw => {
                self.body = Some(match self.body.take() {
                    None => Body::Text(value.to_owned()),
                    Some(Body::Text(before)) => Body::Text(format!("{before}&{value}")),
                    Some(Body::File) => Body::File,
                });
            }
            Effect::Cookie if !value.contains('=') => {
                return Err("cookies of a file are not read; give name=value".to_owned());
            }
            Effect::Cookie => self.cookies.push(value.to_owned()),
            Effect::User => self.own.push(("authorization", basic(value)?)),
            Effect::Agent => self.own.push(("user-agent", value.to_owned())),
            Effect::Compressed => {
                self.own.push(("accept-encoding", "deflate, gzip, br, zstd".to_owned()));
            }
        }
        Ok(())
    }

    fn request(mut self) -> Result<Request, String> {
        let url = self.url.take().ok_or("the command line has no URL")?;
        url::no_ranges(&url)?;
        let url = Url::parse(&url)?;
        if let Some(user) = &url.user {
            self.own.insert(0, ("authorization", basic(user)?));
        }
        let default = if self.body.is_some() { "POST" } else { "GET" };
        let method = self.method.take().unwrap_or_else(|| default.to_owned());
        let mut unknown = Vec::new();
        let has_length = self.headers.iter().any(|(name, _)| name == "content-length");
        if matches!(self.body, Some(Body::File)) && !has_length {
            unknown.push(
                "the body is in a file, which is not read, so the request has no content-length"
                    .to_owned(),
            );
        }
        let target = url.without_dots().target();
        let mut headers = self.headers(url.host);
        let host = headers.iter().position(|(name, _)| name == "host");
        let host = host.map(|at| headers.remove(at).1).unwrap_or_default();
        Ok(Request { method, target, host, headers, unknown })
    }

    /// The headers that curl sends by default and for its options, unless -H changes them, and
    /// those of -H.
    fn headers(self, host: String) -> Vec<(String, String)> {
        let mut own: Vec<(&str, String)> =
            vec![("host", host), ("user-agent", "curl/8".to_owned()), ("accept", "*/*".to_owned())];
        own.extend(self.own);
        if !self.cookies.is_empty() {
            own.push(("cookie", self.cookies.join("; ")));
        }
        if let Some(body) = self.body {
            own.push(("content-type", "application/x-www-form-urlencoded".to_owned()));
            if let Body::Text(text) = body {
                own.push(("content-length", text.len().to_string()));
            }
        }
        // Of its own headers curl sends the last: `-A` replaces its name.
        let mut sent: Vec<(String, String)> = Vec::new();
        for (name, value) in own {
            sent.retain(|(earlier, _)| earlier != name);
            let is_given = self.headers.iter().any(|(given, _)| given == name);
            let is_none = name == "user-agent" && value.is_empty();
            if !is_given && !is_none {
                sent.push((name.to_owned(), value));
            }
        }
        let given = self.headers.into_iter();
        sent.extend(given.filter_map(|(name, value)| Some((name, value?))));
        sent
    }
}

/// Reads `Name: value`, `Name:` for no header, `Name;` for an empty one.
fn custom_header(text: &str) -> Result<(String, Option<String>), String> {
    if text.starts_with('@') {
        return Err("headers in a file are not read; give each with -H".to_owned());
    }
    if let Some(name) = text.strip_suffix(';').filter(|name| !name.contains(':')) {
        return Ok((args::token(name)?.to_ascii_lowercase(), Some(String::new())));
    }
    let (name, value) = args::header(text)?;
    Ok((name, Some(value).filter(|value| !value.is_empty())))
}

fn basic(user: &str) -> Result<String, String> {
    if !user.contains(':') {
        return Err("curl would ask for the password; give user:password".to_owned());
    }
    Ok(format!("Basic {}", Base64::encode_string(user.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request line, the headers that curl does not add to every request, and the unknown
    /// facts.
    fn sent(line: &str) -> String {
        let words = split(line).unwrap();
        let Request { method, target, host, headers, unknown } = match request(&words) {
            Ok(request) => request,
            Err(error) => return format!("refused: {error}"),
        };
        let usual = |(name, value): &&(String, String)| {
            !matches!((name.as_str(), value.as_str()), ("user-agent", "curl/8") | ("accept", "*/*"))
        };
        let headers = headers.iter().filter(usual);
        let headers: String = headers.map(|(name, value)| format!(" | {name}: {value}")).collect();
        let unknown = if unknown.is_empty() { "" } else { " | and a file" };
        format!("{method} {target} at {host}{headers}{unknown}")
    }

    #[test]
    fn a_command_line_is_the_request_that_curl_sends() {
        let rows = [
            ("curl example.com", "GET / at example.com"),
            ("$ curl https://example.com:443/a?b=c#d", "GET /a?b=c at example.com"),
            ("/usr/bin/curl http://example.com:443", "GET / at example.com:443"),
            ("curl 'https://[::1]:8080?x'", "GET /?x at [::1]:8080"),
            ("curl -X PATCH x.y/z", "PATCH /z at x.y"),
            ("curl -XPUT x.y", "PUT / at x.y"),
            ("curl x.y -H 'A-B:  c ' -H 'd;' -H 'accept:'", "GET / at x.y | a-b: c | d: "),
            ("curl x.y -H 'Host: other'", "GET / at other"),
            ("curl x.y -A ''", "GET / at x.y"),
            ("curl x.y -b a=b -b 'c=d'", "GET / at x.y | cookie: a=b; c=d"),
            ("curl -u me:it x.y", "GET / at x.y | authorization: Basic bWU6aXQ="),
            ("curl http://me:it@x.y", "GET / at x.y | authorization: Basic bWU6aXQ="),
            ("curl x.y/a/./b/%2e%2E/c/..", "GET /a/ at x.y"),
            ("curl -sikL x.y", "GET / at x.y"),
            ("curl -A me x.y", "GET / at x.y | user-agent: me"),
            (
                "curl -b a=b --data-raw c -X PUT x.y --compressed",
                "PUT / at x.y | accept-encoding: deflate, gzip, br, zstd | cookie: a=b | content-type: application/x-www-form-urlencoded | content-length: 1",
            ),
            ("curl \\\n  x.y \\\n  --silent", "GET / at x.y"),
        ];
        for (line, expected) in rows {
            assert_eq!(sent(line), expected, "{line}");
        }
    }

    #[test]
    fn a_body_announces_its_length() {
        let form = "content-type: application/x-www-form-urlencoded";
        let rows = [
            ("curl x.y -d a -d b", format!("POST / at x.y | {form} | content-length: 3")),
            ("curl x.y --data-raw @a", format!("POST / at x.y | {form} | content-length: 2")),
            ("curl x.y -d @a -d b", format!("POST / at x.y | {form} | and a file")),
            (
                "curl x.y -d @a -H 'content-length: 9'",
                format!("POST / at x.y | {form} | content-length: 9"),
            ),
            (
                "curl x.y -X PUT -d é -H 'content-type: t'",
                "PUT / at x.y | content-length: 2 | content-type: t".to_owned(),
            ),
        ];
        for (line, expected) in rows {
            assert_eq!(sent(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_name() {
        let rows = [
            ("wget x.y", "begins with curl"),
            ("curl", "has no URL"),
            ("curl x.y --frobnicate 7", "the option --frobnicate is not read"),
            ("curl x.y -s?", "the option -? is not read"),
            ("curl x.y -X", "-X needs a value"),
            ("curl x.y --header", "--header needs a value"),
            ("curl x.y --json {}", "the option --json is not read"),
            ("curl x.y -G", "the option -G is not read"),
            ("curl x.y z.y", "one request at a time"),
            ("curl x.y -b jar.txt", "-b: cookies of a file are not read"),
            ("curl x.y -u me", "-u: curl would ask for the password"),
            ("curl x.y -H @file", "-H: headers in a file are not read"),
            ("curl x.y -H a", "-H: use 'name: value'"),
            ("curl x.y -X 'GE T'", "-X: use letters, digits"),
            ("curl 'x.y/?[1-8]'", "several requests"),
            ("curl '{a,b}.y'", "several requests"),
            ("curl ftp://x.y", "ftp is not a scheme"),
            ("curl 'x.y/a b'", "no spaces"),
            ("curl http:///a", "no host"),
        ];
        for (line, expected) in rows {
            let message = sent(line);
            assert!(
                message.starts_with("refused: ") && message.contains(expected),
                "{line}: {message}"
            );
        }
        assert!(split("curl $'a'").unwrap_err().contains("after --"));
        for shell in ["`id`", "$(id)", "$HOME", "\"a: $1\"", "\"a: ${TOKEN}\"", "a\\\\$HOME"] {
            let message = split(&format!("curl x.y -H {shell}")).unwrap_err();
            assert!(message.contains("would be replaced by the shell"), "{shell}: {message}");
        }
        for plain in ["'$(id) `id`'", "\\$HOME", "\"\\$HOME \\`id\\`\"", "a$", "\"$ a\"", "$.a"] {
            assert!(split(&format!("$ curl x.y -H {plain}")).is_ok(), "{plain}");
        }
        assert!(split("curl 'a").unwrap_err().contains("not closed"));
    }
}
