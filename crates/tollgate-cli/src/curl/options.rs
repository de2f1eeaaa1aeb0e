//! The options of curl that are read, and how they change a request.
//!
//! Invariant: another option is rejected by name, because it may change the request.

/// The effect of an option on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Method,
    Header,
    Data,
    DataRaw,
    User,
    Cookie,
    Agent,
    Compressed,
}

/// A part of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word<'w> {
    Url(&'w str),
    /// The option as it was written, its effect, and its value or an empty text.
    Option(String, Effect, &'w str),
}

/// Long name, short name, effect.
const OPTIONS: [(&str, Option<char>, Effect); 12] = [
    ("request", Some('X'), Effect::Method),
    ("header", Some('H'), Effect::Header),
    ("data", Some('d'), Effect::Data),
    ("data-raw", None, Effect::DataRaw),
    ("user", Some('u'), Effect::User),
    ("cookie", Some('b'), Effect::Cookie),
    ("user-agent", Some('A'), Effect::Agent),
    ("compressed", None, Effect::Compressed),
    ("silent", Some('s'), Effect::None),
    ("include", Some('i'), Effect::None),
    ("insecure", Some('k'), Effect::None),
    ("location", Some('L'), Effect::None),
];

impl Effect {
    const fn has_value(self) -> bool {
        !matches!(self, Self::None | Self::Compressed)
    }
}

/// Parses the words of a command line after `curl`.
pub(super) fn words(words: &[String]) -> Result<Vec<Word<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if let Some(name) = word.strip_prefix("--") {
            let effect = find(word, |(long, ..)| *long == name)?;
            let value = if effect.has_value() { rest.next() } else { Some("") };
            let value = value.ok_or_else(|| no_value(word))?;
            out.push(Word::Option(word.to_owned(), effect, value));
        } else if let Some(shorts) = word.strip_prefix('-').filter(|shorts| !shorts.is_empty()) {
            let mut letters = shorts.chars();
            while let Some(letter) = letters.next() {
                let written = format!("-{letter}");
                let effect = find(&written, |(_, short, _)| *short == Some(letter))?;
                let value = match (effect.has_value(), letters.as_str()) {
                    (false, _) => "",
                    (true, "") => rest.next().ok_or_else(|| no_value(&written))?,
                    (true, value) => value,
                };
                out.push(Word::Option(written, effect, value));
                if effect.has_value() {
                    break;
                }
            }
        } else {
            out.push(Word::Url(word));
        }
    }
    Ok(out)
}

fn find(
    written: &str,
    is_it: impl Fn(&&(&str, Option<char>, Effect)) -> bool,
) -> Result<Effect, String> {
    OPTIONS.iter().find(is_it).map(|(.., effect)| *effect).ok_or_else(|| {
        format!(
            "the option {written} is not read; leave it out if it does not change the request, \
             and give headers with -H"
        )
    })
}

fn no_value(option: &str) -> String {
    format!("{option} needs a value")
}
