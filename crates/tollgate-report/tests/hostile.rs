//! Untrusted text stays text, in every place of every format.
//!
//! A page is read by html5ever, an SVG file by quick-xml; neither is ours. A report with hostile
//! text everywhere must have exactly the elements and attributes that one with harmless text has.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects)]

mod sample;

use html5ever::tendril::TendrilSink as _;
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use quick_xml::events::Event;
use tollgate_report::{Shape, Theme};

use sample::{everything, plot};

fn hostile() -> Vec<String> {
    let texts = [
        "<script>alert(1)</script>",
        "</title><script>alert(1)</script>",
        "</style><script>alert(1)</script>",
        "</textarea></svg></table></p><img src=x onerror=alert(1)>",
        "\"><svg onload=alert(1)>",
        "' onmouseover='alert(1)",
        "\" style=\"background:url(https://evil.example)\" x=\"",
        "]]><!-- --><![CDATA[ <b> ]]>",
        "<!-- ",
        "--><script>alert(1)</script>",
        "&lt;script&gt; &#60;b&#62; &#x0; &unknown; &",
        "<?php echo 1 ?><?xml version=\"1.0\"?>",
        "\0\u{1}\u{1b}[2J\u{7f}\u{9b}31m",
        "\r\n\r\n\t\u{b}\u{c}\u{85}\u{2028}\u{2029}",
        "\u{202e}gpj.exe\u{2066}\u{2069}\u{200f}",
        "\u{fffe}\u{ffff}\u{fdd0}\u{feff}",
        "=cmd|' /C calc'!A0",
        "{{7*7}} ${7*7} `x` [a](javascript:alert(1)) | a |",
        "url(#x) var(--s0) }*{display:none}",
        "#p1w-1",
        "",
        " ",
    ];
    let mut all: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    all.push(texts.concat());
    all.push("<b>".repeat(100_000));
    all.push("x".repeat(3_000_000));
    all.push("\u{301}".repeat(10_000));
    all
}

/// The elements of a page with the names of their attributes, in their order.
fn elements(node: &Handle, out: &mut Vec<String>) {
    match &node.data {
        NodeData::Element { name, attrs, .. } => {
            let names: Vec<String> =
                attrs.borrow().iter().map(|attr| attr.name.local.to_string()).collect();
            out.push(format!("{} {}", name.local, names.join(" ")));
        }
        NodeData::Comment { .. } => out.push("comment".to_owned()),
        NodeData::ProcessingInstruction { .. } => out.push("instruction".to_owned()),
        NodeData::Document | NodeData::Doctype { .. } | NodeData::Text { .. } => {}
    }
    node.children.borrow().iter().for_each(|child| elements(child, out));
}

fn structure(page: &str) -> Vec<String> {
    let dom = html5ever::parse_document(RcDom::default(), Default::default()).one(page);
    assert_eq!(*dom.errors.borrow(), Vec::<String>::new());
    let mut out = Vec::new();
    elements(&dom.document, &mut out);
    out
}

/// The same of an XML file, which must be well-formed.
fn xml_structure(text: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut out = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) | Event::Empty(start) => {
                let mut element = start.name().0.to_owned();
                for attribute in start.attributes() {
                    let attribute = attribute.unwrap();
                    element += " ";
                    element += attribute.key.0;
                    assert!(!attribute.value.contains('<'));
                }
                out.push(element);
            }
            Event::End(_) | Event::Text(_) | Event::GeneralRef(_) => {}
            Event::Eof => return out,
            other => panic!("no text and no element: {other:?}"),
        }
    }
}

#[test]
fn a_page_has_no_markup_of_others() {
    let expected = structure(&everything("harmless").to_html());
    assert!(expected.len() > 300 && !expected.iter().any(|element| element.starts_with("script")));
    for text in hostile() {
        let shown: String = text.chars().take(80).collect();
        let page = everything(&text).to_html();
        // A text without length is not drawn, and some of its elements are left out.
        if text.is_empty() {
            assert!(structure(&page).len() <= expected.len());
        } else {
            assert_eq!(structure(&page), expected, "{shown:?}");
        }
        assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(page.len() < 1 << 25, "{shown:?}: {} bytes", page.len());
    }
}

#[test]
fn an_element_from_a_text_would_be_seen() {
    let page = everything("harmless").to_html();
    let with = page.replacen("harmless", "<b>harmless</b>", 2);
    let dom = html5ever::parse_document(RcDom::default(), Default::default()).one(with.as_str());
    let mut seen = Vec::new();
    elements(&dom.document, &mut seen);
    assert_ne!(seen, structure(&page));
}

#[test]
fn a_picture_has_no_markup_of_others() {
    for shape in [Shape::Line, Shape::Step, Shape::Area, Shape::Bars] {
        for theme in [Theme::Light, Theme::Dark] {
            let expected = xml_structure(&plot("harmless", shape).to_svg(theme));
            for text in hostile() {
                let picture = plot(&text, shape).to_svg(theme);
                assert_eq!(xml_structure(&picture), expected, "{text:.80?}");
                assert!(picture.chars().all(|c| c == '\n' || !c.is_control()));
            }
        }
    }
}

/// The policy is the page's second line of defence: nothing is loaded and no script runs.
#[test]
fn a_page_may_load_nothing() {
    let page = everything("harmless").to_html();
    let policy = "<meta http-equiv=\"Content-Security-Policy\" \
                  content=\"default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;\"/>";
    assert!(page.contains(policy));
    let before = page.split(policy).next().unwrap();
    assert!(!before.contains("<style") && !before.contains("<title"), "it stands first");
    for word in ["<script", "href=", "src=", "@import", "http:", "https:", "url(http"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn every_text_is_one_line_in_text_and_one_field_in_csv() {
    for text in hostile() {
        let report = everything(&text);
        let plain = report.to_text(80);
        assert!(plain.chars().all(|c| c == '\n' || !c.is_control()), "{text:.80?}");
        let csv = report.to_csv();
        let widths: Vec<usize> = csv.split_terminator("\r\n").map(fields).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text:.80?}: {widths:?}");
        assert_eq!(widths.len(), csv_records("harmless"), "{text:.80?}");
        let markdown = report.to_markdown();
        assert!(markdown.chars().all(|c| c == '\n' || !c.is_control()));
    }
}

fn csv_records(text: &str) -> usize {
    everything(text).to_csv().split_terminator("\r\n").count()
}

/// The fields of a record of RFC 4180, 2.
fn fields(line: &str) -> usize {
    let (mut count, mut is_quoted) = (1, false);
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => count += 1,
            _ => {}
        }
    }
    assert!(!is_quoted, "an open quote: {line:.80}");
    count
}
