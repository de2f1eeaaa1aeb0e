//! Secrets that are still the placeholder of an example.
//!
//! Invariant: each is named without its value. A random secret is never taken for a placeholder: no
//! word here has fewer than eight letters.

use tollgate_policy::Problem;

use crate::config::settings::SECRETS;
use crate::config::sources::Sources;

/// Words that placeholders contain, in lower case and without the characters between words.
const WORDS: [&str; 9] = [
    "changeme",
    "replaceme",
    "replacethis",
    "putyourown",
    "ofyourown",
    "placeholder",
    "yourtoken",
    "yoursecret",
    "insertyour",
];

/// The first characters of a variable or a name in angle brackets that was not replaced.
const MARKS: [&str; 4] = ["<", "${", "$(", "{{"];

/// Every secret that is a placeholder.
pub(super) fn placeholders(sources: &Sources) -> Vec<Problem> {
    let given = SECRETS.iter().filter_map(|secret| sources.get(secret.name));
    given
        .filter(|given| is_placeholder(given.text.trim()))
        .map(|given| {
            let message = "is the placeholder of an example; use a value of your own, such as that of \
                           `openssl rand -hex 32`";
            Problem::new(&given.place, message.to_owned())
        })
        .collect()
}

fn is_placeholder(text: &str) -> bool {
    let letters = text.chars().filter(char::is_ascii_alphanumeric);
    let letters: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    MARKS.iter().any(|mark| text.starts_with(mark))
        || WORDS.iter().any(|word| letters.contains(word))
        || is_one_character(text)
}

/// `xxxxxxxx`, `********`.
fn is_one_character(text: &str) -> bool {
    let mut characters = text.chars();
    let first = characters.next();
    first.is_some() && characters.all(|c| Some(c) == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_known_however_it_is_spelt() {
        for text in [
            "replace-me-with-32-random-bytes",
            "CHANGEME",
            "change_me",
            "of-this-example-put-your-own-here",
            "and-another-one-of-your-own-here",
            "<your token>",
            "${CHECK_TOKEN}",
            "$(cat token)",
            "{{ .Values.token }}",
            "xxxxxxxxxxxxxxxxxxxx",
        ] {
            assert!(is_placeholder(text), "{text}");
        }
        for text in [
            "check-token-0123456789",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "tLk3J+Q9b6Z2x0Yv8sWqHnUe5dRgCfMaPi7oXkBjVh4=",
            "correct horse battery staple",
            "",
        ] {
            assert!(!is_placeholder(text), "{text}");
        }
    }
}
