//! The tokens of a JSON text that is still being written.
//!
//! Invariant: every byte except white space belongs to one token, tokens are in order, and every
//! text has tokens. A string that is not closed ends with its line, so that the lines below it keep
//! their meaning.

/// A piece of the text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenObject,
    CloseObject,
    OpenList,
    CloseList,
    Colon,
    Comma,
    Text {
        is_closed: bool,
    },
    /// A number, `true`, or the beginning of text without quotes.
    Word,
}

/// All tokens of `text`.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut all = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((from, first)) = rest.next() {
        let kind = match first {
            '{' => Kind::OpenObject,
            '}' => Kind::CloseObject,
            '[' => Kind::OpenList,
            ']' => Kind::CloseList,
            ':' => Kind::Colon,
            ',' => Kind::Comma,
            '"' => Kind::Text { is_closed: skip_text(&mut rest) },
            _ if is_white(first) => continue,
            _ => {
                while rest.next_if(|(_, next)| !ends_word(*next)).is_some() {}
                Kind::Word
            }
        };
        let to = rest.peek().map_or(text.len(), |(at, _)| *at);
        all.push(Token { kind, from, to });
    }
    all
}

/// Moves past the closing quote, or to the end of the line; returns whether there was a quote.
fn skip_text(rest: &mut core::iter::Peekable<core::str::CharIndices<'_>>) -> bool {
    while let Some((_, next)) = rest.next_if(|(_, next)| !matches!(next, '\n' | '\r')) {
        match next {
            '"' => return true,
            '\\' => {
                rest.next_if(|(_, next)| !matches!(next, '\n' | '\r'));
            }
            _ => {}
        }
    }
    false
}

const fn is_white(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\u{feff}'
}

const fn ends_word(character: char) -> bool {
    is_white(character) || matches!(character, '{' | '}' | '[' | ']' | ':' | ',' | '"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| &text[token.from..token.to]).collect()
    }

    #[test]
    fn what_is_whole_is_cut_into_its_tokens() {
        let text = "{ \"a\\\"é\" : [1.5e3,true] }";
        assert_eq!(shown(text), ["{", "\"a\\\"é\"", ":", "[", "1.5e3", ",", "true", "]", "}"]);
    }

    #[test]
    fn a_string_that_is_not_closed_ends_with_its_line() {
        assert_eq!(shown("{\"na\n\"x\": 1"), ["{", "\"na", "\"x\"", ":", "1"]);
        assert_eq!(shown("\"a\\"), ["\"a\\"]);
        assert_eq!(tokens("\"a\\\n").first().unwrap().kind, Kind::Text { is_closed: false });
        assert_eq!(shown("nam: tru\"e"), ["nam", ":", "tru", "\"e"]);
    }
}
