//! What several values of one thing mean.
//!
//! Invariant: a header that is a list by its definition is one here, whatever the default.

/// What is meant by several values of something that is read as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeated {
    /// The one that all of them are; a request whose values differ is refused with 400.
    Refuse,
    /// The first one.
    First,
    /// The last one.
    Last,
    /// All of them together, in their order.
    Join,
}

impl Repeated {
    /// In words, behind what it is about.
    #[cfg(feature = "explain")]
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Refuse => " (several are refused)",
            Self::First => " (the first of several)",
            Self::Last => " (the last of several)",
            Self::Join => " (several together)",
        }
    }

    /// What several values of the header `name` mean: the place's `own` word, or else the list that
    /// it is by nature, or else the `default`.
    pub(crate) fn of_header(name: &str, own: Option<Self>, default: Self) -> Self {
        own.unwrap_or(if is_list(name) { Self::Join } else { default })
    }

    /// The same where one value is wanted and a list is none.
    pub(crate) fn of_one(own: Option<Self>, default: Self) -> Self {
        match own.unwrap_or(default) {
            Self::Join => Self::Refuse,
            one => one,
        }
    }
}

/// True for a header whose value is a list, or holds commas, by its definition: every honest
/// request would have several values.
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
