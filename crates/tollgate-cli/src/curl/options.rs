//! The options of curl: which of them take a value, and how they change a request.
//!
//! Invariant: an unlisted option is rejected, because it is unknown whether it takes a value.

/// The effect of an option on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Nothing,
    Refuse(&'static str),
    Method,
    Header,
    Url,
    Target,
    Data,
    DataRaw,
    DataUrlEncode,
    Json,
    Form,
    Upload,
    Query,
    Cookie,
    User,
    Bearer,
    Agent,
    Referer,
    Range,
    Compressed,
    Head,
    Get,
    NoGlob,
    KeepDots,
}

/// A part of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word<'w> {
    Url(&'w str),
    /// The option as it was written, its effect, and its value or an empty text.
    Option(String, Does, &'w str),
}

const ONE: &str = "one request at a time";
const CONFIG: &str = "a file of options is not read; give them on the command line";
const AUTHENTICATION: &str =
    "the server's answer decides what is sent then; give the header with -H";

/// Options with a value: long name, short name, effect.
const VALUED: &[(&str, char, Does)] = &[
    ("request", 'X', Does::Method),
    ("header", 'H', Does::Header),
    ("url", ' ', Does::Url),
    ("request-target", ' ', Does::Target),
    ("data", 'd', Does::Data),
    ("data-ascii", ' ', Does::Data),
    ("data-binary", ' ', Does::Data),
    ("data-raw", ' ', Does::DataRaw),
    ("data-urlencode", ' ', Does::DataUrlEncode),
    ("json", ' ', Does::Json),
    ("form", 'F', Does::Form),
    ("form-string", ' ', Does::Form),
    ("upload-file", 'T', Does::Upload),
    ("url-query", ' ', Does::Query),
    ("cookie", 'b', Does::Cookie),
    ("user", 'u', Does::User),
    ("oauth2-bearer", ' ', Does::Bearer),
    ("user-agent", 'A', Does::Agent),
    ("referer", 'e', Does::Referer),
    ("range", 'r', Does::Range),
    ("config", 'K', Does::Refuse(CONFIG)),
    ("aws-sigv4", ' ', Does::Refuse(AUTHENTICATION)),
    ("time-cond", 'z', Does::Refuse("give If-Modified-Since with -H")),
];

/// Options whose value does not change the request.
const IDLE_VALUED: &[(&str, char)] = &[
    ("output", 'o'),
    ("output-dir", ' '),
    ("write-out", 'w'),
    ("max-time", 'm'),
    ("connect-timeout", ' '),
    ("expect100-timeout", ' '),
    ("retry", ' '),
    ("retry-delay", ' '),
    ("retry-max-time", ' '),
    ("max-redirs", ' '),
    ("max-filesize", ' '),
    ("proxy", 'x'),
    ("proxy-user", 'U'),
    ("proxy-header", ' '),
    ("noproxy", ' '),
    ("resolve", ' '),
    ("connect-to", ' '),
    ("cert", 'E'),
    ("cert-type", ' '),
    ("key", ' '),
    ("key-type", ' '),
    ("pass", ' '),
    ("cacert", ' '),
    ("capath", ' '),
    ("ciphers", ' '),
    ("tls13-ciphers", ' '),
    ("tls-max", ' '),
    ("curves", ' '),
    ("pinnedpubkey", ' '),
    ("cookie-jar", 'c'),
    ("dump-header", 'D'),
    ("trace", ' '),
    ("trace-ascii", ' '),
    ("stderr", ' '),
    ("limit-rate", ' '),
    ("rate", ' '),
    ("interface", ' '),
    ("local-port", ' '),
    ("keepalive-time", ' '),
    ("unix-socket", ' '),
    ("abstract-unix-socket", ' '),
    ("dns-servers", ' '),
    ("doh-url", ' '),
    ("speed-limit", 'Y'),
    ("speed-time", 'y'),
];

/// Options without a value that change the request.
const BARE: &[(&str, char, Does)] = &[
    ("head", 'I', Does::Head),
    ("get", 'G', Does::Get),
    ("globoff", 'g', Does::NoGlob),
    ("path-as-is", ' ', Does::KeepDots),
    ("compressed", ' ', Does::Compressed),
    ("next", ':', Does::Refuse(ONE)),
    ("digest", ' ', Does::Refuse(AUTHENTICATION)),
    ("ntlm", ' ', Does::Refuse(AUTHENTICATION)),
    ("negotiate", ' ', Does::Refuse(AUTHENTICATION)),
    ("anyauth", ' ', Does::Refuse(AUTHENTICATION)),
    ("netrc", 'n', Does::Refuse(CONFIG)),
    ("netrc-optional", ' ', Does::Refuse(CONFIG)),
];

/// Options without a value that do not change the request.
const IDLE: &[(&str, char)] = &[
    ("silent", 's'),
    ("show-error", 'S'),
    ("include", 'i'),
    ("show-headers", ' '),
    ("verbose", 'v'),
    ("insecure", 'k'),
    ("location", 'L'),
    ("location-trusted", ' '),
    ("fail", 'f'),
    ("fail-with-body", ' '),
    ("fail-early", ' '),
    ("progress-bar", '#'),
    ("progress-meter", ' '),
    ("buffer", 'N'),
    ("remote-name", 'O'),
    ("remote-header-name", 'J'),
    ("remote-time", 'R'),
    ("create-dirs", ' '),
    ("ipv4", '4'),
    ("ipv6", '6'),
    ("http0.9", ' '),
    ("http1.0", '0'),
    ("http1.1", ' '),
    ("http2", ' '),
    ("http2-prior-knowledge", ' '),
    ("http3", ' '),
    ("http3-only", ' '),
    ("tlsv1", '1'),
    ("tlsv1.0", ' '),
    ("tlsv1.1", ' '),
    ("tlsv1.2", ' '),
    ("tlsv1.3", ' '),
    ("ssl-no-revoke", ' '),
    ("ssl-reqd", ' '),
    ("tcp-nodelay", ' '),
    ("tcp-fastopen", ' '),
    ("keepalive", ' '),
    ("alpn", ' '),
    ("npn", ' '),
    ("sessionid", ' '),
    ("basic", ' '),
    ("disable", 'q'),
    ("parallel", 'Z'),
    ("proxytunnel", 'p'),
    ("junk-session-cookies", 'j'),
    ("retry-all-errors", ' '),
    ("retry-connrefused", ' '),
    ("styled-output", ' '),
    ("trace-time", ' '),
    ("raw", ' '),
    ("post301", ' '),
    ("post302", ' '),
    ("post303", ' '),
];

/// Parses the words of a command line after `curl`.
pub(super) fn words(words: &[String]) -> Result<Vec<Word<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if let Some(name) = word.strip_prefix("--") {
            let (does, is_valued) = long(name).ok_or_else(|| unknown(word))?;
            let value = if is_valued { rest.next().ok_or_else(|| lacks(word))? } else { "" };
            out.push(Word::Option(word.to_owned(), does, value));
        } else if let Some(shorts) = word.strip_prefix('-').filter(|shorts| !shorts.is_empty()) {
            let mut letters = shorts.chars();
            while let Some(letter) = letters.next() {
                let written = format!("-{letter}");
                let (does, is_valued) = short(letter).ok_or_else(|| unknown(&written))?;
                let value = match (is_valued, letters.as_str()) {
                    (false, _) => "",
                    (true, "") => rest.next().ok_or_else(|| lacks(&written))?,
                    (true, value) => value,
                };
                out.push(Word::Option(written, does, value));
                if is_valued {
                    break;
                }
            }
        } else {
            out.push(Word::Url(word));
        }
    }
    Ok(out)
}

fn unknown(option: &str) -> String {
    format!("the option {option} is not known here; leave it out if the server does not see it")
}

fn lacks(option: &str) -> String {
    format!("{option} lacks its value")
}

/// The effect of a long option, and whether it takes a value.
fn long(name: &str) -> Option<(Does, bool)> {
    let bare = name.strip_prefix("no-").unwrap_or(name);
    find(|(long, _)| long == name).or_else(|| {
        find(|(long, _)| long == bare).filter(|(does, valued)| !valued && *does == Does::Nothing)
    })
}

fn short(letter: char) -> Option<(Does, bool)> {
    find(|(_, short)| short == letter && letter != ' ')
}

fn find(is_it: impl Fn((&str, char)) -> bool) -> Option<(Does, bool)> {
    let named = |table: &[(&'static str, char, Does)]| {
        table.iter().find(|(long, short, _)| is_it((long, *short))).map(|(.., does)| *does)
    };
    let idle = |table: &[(&str, char)]| table.iter().any(|(long, short)| is_it((long, *short)));
    let valued = named(VALUED).or_else(|| idle(IDLE_VALUED).then_some(Does::Nothing));
    let bare = || named(BARE).or_else(|| idle(IDLE).then_some(Does::Nothing));
    valued.map(|does| (does, true)).or_else(|| bare().map(|does| (does, false)))
}
