//! Makes untrusted text visible: the one place through which all text of a report goes.
//!
//! Invariant: the result is one line, moves no cursor, changes no direction of writing, hides
//! nothing, is valid in XML, and takes as many columns as [`width`] returns. Markup is not handled
//! here: each format escapes its own characters in addition.

use unicode_width::UnicodeWidthChar as _;

/// Marks above and below one character; more of them would cover the adjacent lines.
const MOST_MARKS: usize = 4;
/// Characters of one text. A request line may have megabytes; they are useless in a report.
const MOST_CHARS: usize = 1_000;
/// Characters of a line to be copied, and of an attribute: a drawn line has many.
const MOST_OF_LINE: usize = 1 << 20;

/// True for a text that is shown as it is.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    visible(text) == text
}

/// The text with every character that is not visible as such written as `\u{1b}`: control
/// characters (line ends, too), characters that change the direction of writing, those without a
/// width of their own or a meaning, and the fifth and further marks on one character. A text of
/// more than 1,000 characters is cut, and `...` and its length are appended. Never fails.
#[must_use]
pub fn visible(text: &str) -> String {
    visible_within(text, MOST_CHARS)
}

/// As [`visible`], for a line to be copied: it is cut much later.
pub(crate) fn visible_line(line: &str) -> String {
    visible_within(line, MOST_OF_LINE)
}

fn visible_within(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len().min(most));
    let mut marks = 0_usize;
    for (index, c) in text.chars().enumerate() {
        if index >= most {
            out.push_str(&format!("... ({} characters)", text.chars().count()));
            break;
        }
        marks = if c.width() == Some(0) { marks.saturating_add(1) } else { 0 };
        if is_hidden(c) || marks > MOST_MARKS {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Columns of a terminal that a visible text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().fold(0, |sum, c| sum.saturating_add(c.width().unwrap_or(0)))
}

/// The text in at most `most` columns; `…` marks a text that was cut at its end.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let (mut out, mut left) = (String::new(), most.saturating_sub(1));
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left = left.saturating_sub(columns);
        out.push(c);
    }
    out.push('…');
    out
}

/// Controls, invisible formats, separators of lines, and code points that are not characters in
/// XML.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{3164}')
        || matches!(c, '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{ffa0}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}')
        || matches!(c, '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        || matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hides_or_steers() {
        for plain in ["", "GET /a?b=c&d", "é 日本 😀", "e\u{301}", "'\"<>&"] {
            assert_eq!(visible(plain), plain);
            assert!(is_plain(plain));
        }
        for (hostile, shown) in [
            ("\u{1b}[2J", r"\u{1b}[2J"),
            ("a\r\n\tb\0", r"a\u{d}\u{a}\u{9}b\u{0}"),
            ("\u{9b}31m\u{7f}", r"\u{9b}31m\u{7f}"),
            ("\u{202e}exe\u{2066}", r"\u{202e}exe\u{2066}"),
            ("a\u{200b}b\u{feff}\u{ad}", r"a\u{200b}b\u{feff}\u{ad}"),
            ("\u{fffe}\u{ffff}\u{1fffe}", r"\u{fffe}\u{ffff}\u{1fffe}"),
            ("\u{2028}\u{e0041}", r"\u{2028}\u{e0041}"),
        ] {
            assert_eq!(visible(hostile), shown);
            assert!(!is_plain(hostile));
        }
    }

    #[test]
    fn marks_do_not_pile_up() {
        let tower = format!("a{}b", "\u{301}".repeat(6));
        assert_eq!(visible(&tower), format!("a{}{}b", "\u{301}".repeat(4), r"\u{301}".repeat(2)));
        assert_eq!(width(&visible(&tower)), 1 + 14 + 1);
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(visible(&"x".repeat(1_000)), "x".repeat(1_000));
        let long = visible(&"x".repeat(10_000_000));
        assert_eq!(long, format!("{}... (10000000 characters)", "x".repeat(1_000)));
    }

    #[test]
    fn width_is_of_the_terminal() {
        assert_eq!((width("abc"), width("日本"), width("e\u{301}")), (3, 4, 1));
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        // A wide character that does not fit leaves its column free.
        assert_eq!((cut("日本語", 4).as_str(), width(&cut("日本語", 4))), ("日…", 3));
    }
}
