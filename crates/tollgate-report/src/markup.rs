//! HTML and SVG as they are written: the one place where text becomes markup.
//!
//! Invariant: names of elements and attributes are literals of this crate (`&'static str`).
//! Everything else goes through [`visible`] and has `&`, `<`, `>`, `"` and `'` escaped, in text and
//! in attributes. Every element is closed. So untrusted text is text in every place, both for a
//! parser of HTML and for one of XML. Deliberately absent: a way to write markup that was made
//! elsewhere, and attributes with a destination or code (`href`, `src`, `on...`).

use std::fmt::Display;

use crate::visible::{visible, visible_line};

/// An attribute: its name and its value.
pub(crate) type Attribute<'a> = (&'static str, &'a dyn Display);

/// The markup written so far.
#[derive(Debug, Default)]
pub(crate) struct Markup {
    out: String,
    open: Vec<&'static str>,
}

impl Markup {
    /// Begins an element.
    pub(crate) fn open(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.tag(name, attributes);
        self.out.push('>');
        self.open.push(name);
    }

    /// Ends the element that was begun last.
    pub(crate) fn close(&mut self) {
        let name = self.open.pop();
        debug_assert!(name.is_some(), "nothing is open");
        if let Some(name) = name {
            self.out.push_str("</");
            self.out.push_str(name);
            self.out.push('>');
        }
    }

    /// Ends it, and the line.
    pub(crate) fn close_line(&mut self) {
        self.close();
        self.out.push('\n');
    }

    /// An element that holds a text.
    pub(crate) fn element(&mut self, name: &'static str, attributes: &[Attribute<'_>], text: &str) {
        self.open(name, attributes);
        self.text(text);
        self.close_line();
    }

    /// An element without content (`meta`, `path`).
    pub(crate) fn empty(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.tag(name, attributes);
        self.out.push_str("/>\n");
    }

    /// An untrusted text.
    pub(crate) fn text(&mut self, text: &str) {
        escape(&visible(text), &mut self.out);
    }

    /// Untrusted lines, in a `pre`.
    pub(crate) fn lines(&mut self, text: &str) {
        for line in text.lines() {
            escape(&visible_line(line), &mut self.out);
            self.out.push('\n');
        }
    }

    /// Our own style sheet. A `<` in it begins nothing for either parser.
    pub(crate) fn style(&mut self, sheet: &str) {
        debug_assert!(!sheet.contains(['<', '&']), "a style sheet with markup in it");
        self.open("style", &[]);
        self.out.extend(sheet.chars().filter(|c| !matches!(c, '<' | '&')));
        self.close_line();
    }

    /// `<!doctype html>`
    pub(crate) fn doctype(&mut self) {
        self.out.push_str("<!doctype html>\n");
    }

    /// The whole markup, every element closed.
    pub(crate) fn finish(mut self) -> String {
        debug_assert!(self.open.is_empty(), "still open: {:?}", self.open);
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }

    fn tag(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.out.push('<');
        self.out.push_str(name);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(&visible_line(&value.to_string()), &mut self.out);
            self.out.push('"');
        }
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            plain => out.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        let mut markup = Markup::default();
        markup.open("p", &[("title", &"\"><script>alert(1)</script>")]);
        markup.text("</p><img src=x onerror='y'>&amp;]]>\u{1b}\u{202e}");
        markup.close();
        assert_eq!(
            markup.finish(),
            "<p title=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\">\
             &lt;/p&gt;&lt;img src=x onerror=&#39;y&#39;&gt;&amp;amp;]]&gt;\\u{1b}\\u{202e}</p>"
        );
    }
}
