//! The meaning of several values of one fact.
//!
//! Invariant: a header that is defined as a list is a list here, whatever the default.

/// The meaning of several values of a fact that is read as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// The value that all of them equal; a request whose values differ is denied with 400.
    Refuse,
    /// The first one.
    First,
    /// The last one.
    Last,
    /// All of them together, in their order.
    Join,
}

impl Repeated {
    /// In words, after the name of the fact.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Refuse => " (several are refused)",
            Self::First => " (the first of several)",
            Self::Last => " (the last of several)",
            Self::Join => " (several together)",
        }
    }

    /// The meaning of several values of the header `name`: its `own` setting, or else `Join` for a
    /// header that is defined as a list, or else the `default`.
    pub fn of_header(name: &str, own: Option<Self>, default: Self) -> Self {
        own.unwrap_or(if is_list(name) { Self::Join } else { default })
    }

    /// The same for a fact that needs one value and cannot be a list.
    pub fn of_one(own: Option<Self>, default: Self) -> Self {
        match own.unwrap_or(default) {
            Self::Join => Self::Refuse,
            one => one,
        }
    }
}

/// True for a header whose value is by definition a list, or contains commas: every honest request
/// would have several values.
fn is_list(name: &str) -> bool {
    const PREFIXES: [&str; 6] =
        ["accept", "access-control-request-", "if-", "sec-ch-", "sec-websocket-", "x-forwarded-"];
    const NAMES: [&str; 27] = [
        "baggage",
        "cache-control",
        "connection",
        "content-encoding",
        "content-language",
        "cookie",
        "date",
        "expires",
        "forwarded",
        "keep-alive",
        "last-modified",
        "link",
        "pragma",
        "prefer",
        "priority",
        "range",
        "referer",
        "signature",
        "signature-input",
        "te",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "warning",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
