//! URLs as curl reads them.
//!
//! Invariant: the parts that are sent to a server are kept as written; only dots are resolved, as
//! curl does.

/// The parts of a URL that a request contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// With the port, unless it is the scheme's default.
    pub(crate) host: String,
    /// `user:password`
    pub(crate) user: Option<String>,
    path: String,
    query: Option<String>,
}

impl Url {
    /// Reads `http://user:password@host:8080/path?query#fragment`; the scheme may be left out.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None => ("http".to_owned(), text),
        };
        let port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Err(format!("{scheme} is not a scheme of HTTP")),
        };
        if text.contains(|c: char| c.is_ascii_control() || c == ' ') {
            return Err("a URL has no spaces and no control characters".to_owned());
        }
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, authority),
        };
        let host = host_and_port(host, port)?;
        if host.is_empty() {
            return Err("the URL has no host".to_owned());
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let path = if path.is_empty() { "/" } else { path }.to_owned();
        Ok(Self { host, user, path, query })
    }

    /// The path and the query.
    pub(crate) fn target(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", self.path)
    }

    /// The same without `.` and `..` in the path.
    pub(crate) fn without_dots(&self) -> Self {
        let mut kept: Vec<&str> = Vec::new();
        let mut segments = self.path.split('/').skip(1).peekable();
        while let Some(segment) = segments.next() {
            let plain = segment.replace("%2e", ".").replace("%2E", ".");
            let is_dots = matches!(plain.as_str(), "." | "..");
            if plain == ".." {
                kept.pop();
            }
            if !is_dots {
                kept.push(segment);
            } else if segments.peek().is_none() {
                kept.push("");
            }
        }
        let path = format!("/{}", kept.join("/"));
        let (host, user, query) = (self.host.clone(), self.user.clone(), self.query.clone());
        Self { host, user, path, query }
    }
}

/// The host of a request, with its port unless that is `own`. An empty port is no port, also for
/// curl.
fn host_and_port(text: &str, own: u16) -> Result<String, String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => return Ok(text.to_owned()),
    };
    if port.is_empty() {
        return Ok(host.to_owned());
    }
    let number = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse::<u16>().ok());
    let Some(number) = number.flatten() else {
        return Err(format!("{port} is not a port; use a number from 0 to 65535"));
    };
    Ok(if number == own { host.to_owned() } else { format!("{host}:{number}") })
}

/// curl makes several requests of `[1-8]` and `{a,b}`.
pub(crate) fn no_ranges(url: &str) -> Result<(), String> {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host_end = after_scheme.find(['/', '?']).unwrap_or(after_scheme.len());
    let (host, rest) = after_scheme.split_at(host_end);
    if rest.contains(['{', '[']) || host.contains('{') {
        return Err(
            "curl makes several requests of [...] and {...}; give one URL and --repeat".to_owned()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_of_16_bits_and_told_unless_it_is_the_schemes() {
        for (url, expected) in [
            ("http://a.example", "a.example"),
            ("http://a.example:80/b", "a.example"),
            ("http://a.example:0080/b", "a.example"),
            ("http://a.example:443", "a.example:443"),
            ("https://a.example:443", "a.example"),
            ("a.example:/", "a.example"),
            ("a.example:65535?x", "a.example:65535"),
            ("http://[2001:db8::1]", "[2001:db8::1]"),
            ("http://[2001:db8::1]:8080", "[2001:db8::1]:8080"),
            ("http://u:p@a.example:8080", "a.example:8080"),
        ] {
            assert_eq!(Url::parse(url).map(|url| url.host).as_deref(), Ok(expected), "{url}");
        }
        for (port, url) in [
            ("65536", "http://a.example:65536"),
            ("99999", "a.example:99999/b"),
            ("+80", "a.example:+80"),
            ("8x", "a.example:8x"),
            ("-1", "http://[::1]:-1"),
        ] {
            let expected = format!("{port} is not a port; use a number from 0 to 65535");
            assert_eq!(Url::parse(url), Err(expected), "{url}");
        }
        assert_eq!(Url::parse("http://:80/"), Err("the URL has no host".to_owned()));
    }
}
