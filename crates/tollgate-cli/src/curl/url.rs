//! URLs as curl reads them.
//!
//! Invariant: what a server is sent is taken as it is written; only dots are resolved, as curl
//! does.

/// The parts of a URL that a request tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// With the port, unless it is the scheme's own.
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
            "http" => ":80",
            "https" => ":443",
            _ => return Err(format!("{scheme} is no scheme of HTTP")),
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
        if host.is_empty() {
            return Err("the URL has no host".to_owned());
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let path = if path.is_empty() { "/" } else { path }.to_owned();
        let host = host.strip_suffix(port).unwrap_or(host).to_owned();
        Ok(Self { host, user, path, query })
    }

    /// Adds a file's name to a path that ends in a slash.
    pub(crate) fn complete(&mut self, name: &str) {
        if self.path.ends_with('/') {
            self.path.push_str(&escape(name));
        }
    }

    /// Adds to the query.
    pub(crate) fn add_query(&mut self, text: &str) {
        let before = self.query.take().filter(|query| !query.is_empty());
        self.query = Some(before.map_or(text.to_owned(), |query| format!("{query}&{text}")));
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

/// curl makes several requests of `[1-8]` and `{a,b}`.
pub(crate) fn no_ranges(url: &str) -> Result<(), String> {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host_end = after_scheme.find(['/', '?']).unwrap_or(after_scheme.len());
    let (host, rest) = after_scheme.split_at(host_end);
    if rest.contains(['{', '[']) || host.contains('{') {
        return Err("curl makes several requests of [...] and {...}; give one URL and --repeat, or curl's -g".to_owned());
    }
    Ok(())
}

/// As in a query, a space as `%20`.
pub(crate) fn escape(text: &str) -> String {
    let escape = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(escape).collect()
}
