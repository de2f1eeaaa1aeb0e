//! One self-contained page: no script, no request, light and dark.
//!
//! Invariant: its policy (`default-src 'none'`) lets the page load nothing and run nothing, even if
//! an escape were ever missed. The table beneath a plot contains the plot's data.

use crate::frame::Size;
use crate::markup::Markup;
use crate::model::{Block, Figures, Report};
use crate::palette::{SERIES, Theme};
use crate::plot::Plot;
use crate::svg::{Dress, draw, sheet_of_series};
use crate::table::Table;
use crate::visible::width;

/// Columns of a text that is not broken in a table: mostly names of hosts and paths.
const MOST_UNBROKEN: usize = 40;

/// The browser's permissions for this page: apply the one style in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The mark within the first kilobyte of every page.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"tollgate\"/>";

impl Report {
    /// The report as one HTML page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut page = Page { markup: Markup::default(), plots: 0, boxes: 0 };
        page.head(&self.title);
        page.markup.open("body", &[]);
        page.markup.open("main", &[]);
        page.markup.element("h1", &[], &self.title);
        for section in &self.sections {
            page.markup.open("section", &[]);
            if !section.heading.is_empty() {
                page.markup.element("h2", &[], &section.heading);
            }
            section.blocks.iter().for_each(|block| page.block(block));
            page.markup.close_line();
        }
        if !self.footer.is_empty() {
            page.markup.element("footer", &[], &self.footer);
        }
        page.markup.close_line();
        page.markup.close_line();
        page.markup.close_line();
        page.markup.finish()
    }
}

struct Page {
    markup: Markup,
    /// The number of plots so far: their identities are numbers, never names.
    plots: u32,
    boxes: u32,
}

impl Page {
    fn head(&mut self, title: &str) {
        let markup = &mut self.markup;
        markup.doctype();
        markup.open("html", &[("lang", &"en")]);
        markup.open("head", &[]);
        markup.empty("meta", &[("charset", &"utf-8")]);
        markup.empty("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
        let view = "width=device-width, initial-scale=1";
        markup.empty("meta", &[("name", &"viewport"), ("content", &view)]);
        markup.empty("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
        markup.empty("meta", &[("name", &"referrer"), ("content", &"no-referrer")]);
        markup.empty("meta", &[("name", &"generator"), ("content", &"tollgate")]);
        markup.element("title", &[], title);
        markup.style(&sheet());
        markup.close_line();
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Text(text) => self.markup.element("p", &[], text),
            Block::Code(code) => {
                self.markup.open("pre", &[("tabindex", &"0")]);
                self.markup.lines(code);
                self.markup.close_line();
            }
            Block::Figures(figures) => self.figures(figures),
            Block::Table(table) => self.table(table),
            Block::Plot(plot) => self.plot(plot),
        }
    }

    fn figures(&mut self, Figures { figures, .. }: &Figures) {
        let markup = &mut self.markup;
        markup.open("dl", &[]);
        for figure in figures {
            markup.open("div", &[]);
            markup.element("dt", &[], &figure.label);
            markup.element("dd", &[("class", &"v")], &figure.value.words(2));
            if !figure.note.is_empty() {
                markup.element("dd", &[("class", &"q")], &figure.note);
            }
            markup.close_line();
        }
        markup.close_line();
    }

    /// A table in a box of its own, which scrolls when the window is too narrow, also by keyboard.
    fn table(&mut self, table: &Table) {
        self.boxes = self.boxes.saturating_add(1);
        let id = format!("t{}", self.boxes);
        let markup = &mut self.markup;
        let attributes: [(&'static str, &dyn std::fmt::Display); 4] =
            [("class", &"x"), ("role", &"region"), ("tabindex", &"0"), ("aria-labelledby", &id)];
        markup.open("div", &attributes);
        markup.open("table", &[]);
        let caption = if table.caption.is_empty() { &table.name } else { &table.caption };
        // As wide as the window at most, however wide the table is.
        markup.open("caption", &[("id", &id)]);
        markup.element("span", &[], caption);
        markup.close_line();
        markup.open("thead", &[]);
        markup.open("tr", &[]);
        for column in &table.columns {
            let class = if column.is_right() { "n" } else { "k" };
            // An empty column name gets no heading: a screen reader would say "blank".
            if column.name.is_empty() {
                markup.element("td", &[("class", &class)], "");
            } else {
                markup.element("th", &[("scope", &"col"), ("class", &class)], &column.name);
            }
        }
        markup.close_line();
        markup.close_line();
        markup.open("tbody", &[]);
        for row in &table.rows {
            markup.open("tr", &[]);
            for (index, (column, words)) in table.words(row).enumerate() {
                let class = match () {
                    () if column.is_right() => "n",
                    () if width(&words) <= MOST_UNBROKEN => "k",
                    () => "a",
                };
                if index == 0 {
                    markup.element("th", &[("scope", &"row"), ("class", &class)], &words);
                } else {
                    markup.element("td", &[("class", &class)], &words);
                }
            }
            markup.close_line();
        }
        markup.close_line();
        markup.close_line();
        markup.close_line();
        if let Some(more) = table.more() {
            markup.element("p", &[("class", &"q")], &more);
        }
    }

    /// The picture for wide windows and the one for narrow ones; one of them is shown at a time.
    fn plot(&mut self, plot: &Plot) {
        self.plots = self.plots.saturating_add(1);
        let (wide, narrow) = (format!("p{}w", self.plots), format!("p{}n", self.plots));
        self.markup.open("figure", &[]);
        self.markup.open("figcaption", &[]);
        self.markup.element("strong", &[], &plot.title);
        if !plot.description.is_empty() {
            self.markup.element("span", &[("class", &"q")], &plot.description);
        }
        self.markup.close_line();
        draw(&mut self.markup, plot, Size::Wide, Dress::Page { id: &wide, class: "wide" });
        draw(&mut self.markup, plot, Size::Narrow, Dress::Page { id: &narrow, class: "narrow" });
        self.markup.open("details", &[]);
        self.markup.element("summary", &[], "The plot as a table");
        self.table(&plot.to_table());
        self.markup.close_line();
        self.markup.close_line();
    }
}

/// The style of the page: its colours as variables, then its rules.
fn sheet() -> String {
    let colors = |theme: Theme| {
        let palette = theme.palette();
        let mut rules = format!(
            "--ground:{};--text:{};--quiet:{};--hair:{}",
            palette.ground, palette.text, palette.quiet, palette.hair
        );
        for (index, color) in palette.series.iter().enumerate().take(SERIES) {
            rules.push_str(&format!(";--s{index}:{color}"));
        }
        rules
    };
    format!(
        ":root{{color-scheme:light dark;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{{light}}}}}\n{series}\n{RULES}",
        light = colors(Theme::Light),
        dark = colors(Theme::Dark),
        series = sheet_of_series(|index| format!("var(--s{index})")),
    )
}

/// Little ink: no boxes, no stripes; numbers right-aligned and of one width; a line only as a
/// separator.
const RULES: &str = "\
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}
main{max-width:47rem;margin:0 auto;padding:2rem 1rem 3rem}
h1{font-size:1.6rem;line-height:1.25;font-weight:600;margin:0 0 1.25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;line-height:1.3;font-weight:600;margin:2.5rem 0 .75rem;overflow-wrap:anywhere}
p{max-width:40rem;margin:.75rem 0;overflow-wrap:anywhere}
footer,.q{color:var(--quiet)}
footer{margin-top:3rem;font-size:.85rem;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:1.25rem 1.5rem;margin:1.25rem 0}
dl div{display:flex;flex-direction:column;min-width:0}
dt{color:var(--quiet);font-size:.85rem;overflow-wrap:anywhere}
dd{margin:0;font-size:.85rem;overflow-wrap:anywhere}
dd.v{font-size:1.4rem;line-height:1.3;font-variant-numeric:tabular-nums}
.x{overflow-x:auto;margin:1.25rem 0}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;line-height:1.4}
caption{text-align:left;font-weight:600;padding-bottom:.4rem;caption-side:top}
caption span{display:block;position:sticky;left:0;max-width:min(40rem,calc(100vw - 2rem))}
th,td{padding:.2rem 1.25rem .2rem 0;vertical-align:top;font-weight:400}
tr>:last-child{padding-right:0}
.x+.q{margin-top:-.75rem;font-size:.875rem}
thead th{color:var(--quiet);vertical-align:bottom;border-bottom:1px solid var(--hair)}
.n{text-align:right;white-space:nowrap}
thead .n{white-space:normal}
.a{text-align:left;min-width:14rem;max-width:24rem;overflow-wrap:anywhere}
.k{text-align:left;white-space:nowrap}
pre{overflow-x:auto;margin:1rem 0;padding:.6rem .8rem;border-left:2px solid var(--hair);font:.85rem/1.5 ui-monospace,'SF Mono',Menlo,Consolas,monospace}
figure{margin:2rem 0}
figcaption{margin-bottom:.5rem;overflow-wrap:anywhere}
figcaption .q{display:block;font-size:.875rem;max-width:40rem}
svg{display:block;max-width:100%;height:auto;font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;font-variant-numeric:tabular-nums;overflow:visible}
svg text{fill:var(--text)}
svg .q{fill:var(--quiet)}
.o{paint-order:stroke;stroke:var(--ground);stroke-width:4px;stroke-linejoin:round}
.g{stroke:var(--hair)}
.m{stroke:var(--quiet);stroke-dasharray:2 3}
.w{fill:var(--ground)}
svg.narrow{display:none}
details{margin-top:.5rem;font-size:.875rem}
summary{color:var(--quiet);cursor:pointer;width:fit-content}
summary:focus-visible,.x:focus-visible,pre:focus-visible{outline:2px solid var(--s0);outline-offset:2px}
@media (max-width:40rem){main{padding-top:1.25rem}svg.wide{display:none}svg.narrow{display:block}h1{font-size:1.35rem}th,td{padding-right:.9rem}dl{grid-template-columns:repeat(auto-fill,minmax(7.5rem,1fr))}}
@media print{main{max-width:none;padding:0}.x{overflow:visible}figure,dl div,tr{break-inside:avoid}h2{break-after:avoid}details::details-content{content-visibility:visible;height:auto}}
";
