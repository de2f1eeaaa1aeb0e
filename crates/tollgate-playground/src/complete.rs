//! The completions at the cursor of a policy.
//!
//! Invariant: names, values and their descriptions are those of the schema. The first text for a
//! place (a window of `1m`) is an example, which the compiler accepts. The offers are already
//! filtered by the text at the cursor, so an editor shows them as they are.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::context::{Context, ExpectedSyntax, context};
use crate::outline::outline;
use crate::schema::{self, alternatives};
use crate::tokens::tokens;
use crate::units::{Units, bytes};

/// One completion.
#[derive(Debug, Serialize)]
pub(crate) struct Completion {
    /// The label: the name, the value, or `{"header": ...}`.
    pub(crate) label: String,
    /// The description; may be empty.
    pub(crate) detail: &'static str,
    /// The text that replaces `from..to`: a template of CodeMirror, with a `${...}` for each place
    /// to fill.
    pub(crate) insert: String,
    /// UTF-16 units of the text.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Example values where the schema alone would leave a place empty, by the field's name.
const EXAMPLES: [(&str, &str); 8] = [
    ("version", "1"),
    ("name", "\"${each-client}\""),
    ("key", "[\"${client_ip}\"]"),
    ("limit", "${1:100}"), // digits alone would be the place's rank, not text
    ("window", "\"${1m}\""),
    ("max", "\"${30s}\""),
    ("paths", "[\"${/login}\"]"),
    ("methods", "[\"${POST}\"]"),
];

/// How deep a template goes: a rule, its quotas, a quota.
const TEMPLATE_DEPTH: usize = 4;

/// The completions at `offset`, in UTF-16 units.
pub(crate) fn complete(text: &str, offset: usize) -> Vec<Completion> {
    let tokens = tokens(text);
    let root = outline(text, &tokens);
    let Some(context) = context(text, &tokens, root.as_ref(), bytes(text, offset)) else {
        return Vec::new();
    };
    let mut offers = Offers::new(text, &context);
    let schemas = schema::at(&context.path);
    match &context.wanted {
        ExpectedSyntax::Name { taken, has_value } => {
            for (name, field) in missing(&schemas, taken) {
                offers.name(name, field, *has_value);
            }
        }
        ExpectedSyntax::Value { .. } => schemas.into_iter().for_each(|schema| offers.value(schema)),
    }
    offers.in_order()
}

/// The fields that are not used yet, of the alternatives that allow all used ones; required fields
/// come first.
fn missing(
    schemas: &[&'static Map<String, Value>],
    taken: &[String],
) -> Vec<(&'static str, &'static Value)> {
    let allows = |schema: &&&'static Map<String, Value>| {
        taken.iter().all(|name| schema::field(schema, name).is_some())
    };
    let mut fitting: Vec<_> = schemas.iter().filter(allows).collect();
    if fitting.is_empty() {
        fitting = schemas.iter().collect();
    }
    let mut all: Vec<(bool, &str, &Value)> = Vec::new();
    for schema in fitting {
        let required: Vec<&str> = schema::required(schema).collect();
        for (name, field) in schema::fields(schema) {
            let is_new = all.iter().all(|(_, other, _)| *other != name);
            if is_new && !taken.iter().any(|taken| taken == name) {
                all.push((required.contains(&name), name, field));
            }
        }
    }
    all.sort_by_key(|(is_required, ..)| !is_required); // stable
    all.into_iter().map(|(_, name, field)| (name, field)).collect()
}

/// The offers at one place.
struct Offers {
    from: usize,
    to: usize,
    written: String,
    comma: &'static str,
    all: Vec<Completion>,
}

impl Offers {
    fn new(text: &str, context: &Context) -> Self {
        let mut units = Units::new(text);
        Self {
            from: units.of(context.replaced.start),
            to: units.of(context.replaced.end),
            written: context.written.to_ascii_lowercase(),
            comma: if context.needs_comma { "," } else { "" },
            all: Vec::new(),
        }
    }

    fn push(&mut self, label: String, detail: &'static str, insert: String) {
        let is_new = self.all.iter().all(|other| other.label != label);
        if is_new && label.to_ascii_lowercase().contains(&self.written) {
            let insert = format!("{insert}{}", self.comma);
            self.all.push(Completion { label, detail, insert, from: self.from, to: self.to });
        }
    }

    fn name(&mut self, name: &str, schema: &'static Value, has_value: bool) {
        let value = if has_value { String::new() } else { template(name, schema, 0) };
        let colon = if has_value { "" } else { ": " };
        let insert = format!("\"{name}\"{colon}{value}");
        self.push(name.to_owned(), schema::description(schema), insert);
    }

    fn value(&mut self, schema: &'static Map<String, Value>) {
        for (value, description) in schema::constants(schema) {
            let label = value.trim_matches('"').to_owned();
            self.push(label, description, value);
        }
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return;
        }
        if schema::required(schema).next().is_some() {
            let names: Vec<&str> = schema::required(schema).collect();
            let label = format!("{{{}}}", names.join(", "));
            self.push(label, description_of(schema), object(schema, 0));
            return;
        }
        // One of its fields defines which kind it is; a field that only qualifies another one has
        // constants, or is true or false.
        for (name, field) in schema::fields(schema) {
            let is_flag =
                |schema: &Map<String, Value>| schema.get("type") == Some(&"boolean".into());
            let qualifies = |schema: &'static Map<String, Value>| {
                schema.contains_key("const") || is_flag(schema)
            };
            if !alternatives(field).into_iter().all(qualifies) {
                let insert = format!("{{\"{name}\": {}}}", template(name, field, 1));
                self.push(format!("{{{name}}}"), schema::description(field), insert);
            }
        }
    }

    /// Labels that begin with the written text come before those that only contain it.
    fn in_order(mut self) -> Vec<Completion> {
        let written = self.written;
        self.all.sort_by_key(|one| !one.label.to_ascii_lowercase().starts_with(&written)); // stable
        self.all
    }
}

fn description_of(schema: &'static Map<String, Value>) -> &'static str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// The first value offered for the field `name`.
fn template(name: &str, schema: &'static Value, depth: usize) -> String {
    if let Some((_, example)) = EXAMPLES.iter().find(|(example, _)| *example == name) {
        return (*example).to_owned();
    }
    let Some(first) = alternatives(schema).into_iter().next() else { return "${}".to_owned() };
    if depth >= TEMPLATE_DEPTH || !schema::constants(first).is_empty() {
        return "${}".to_owned();
    }
    match first.get("type").and_then(Value::as_str) {
        Some("string") => "\"${}\"".to_owned(),
        Some("array") => format!("[{}]", items(first, depth)),
        Some("object") => object(first, depth),
        _ => "${}".to_owned(),
    }
}

/// The first item of a list, when it is an object that must have fields.
fn items(schema: &'static Map<String, Value>, depth: usize) -> String {
    let item = schema.get("items").map(alternatives).unwrap_or_default().into_iter().next();
    let item = item.filter(|item| schema::required(item).next().is_some());
    item.map_or_else(|| "${}".to_owned(), |item| object(item, depth.saturating_add(1)))
}

/// An object with its required fields.
fn object(schema: &'static Map<String, Value>, depth: usize) -> String {
    // Without a window a quota has to have the limit 0.
    let is_quota = schema::required(schema).eq(["limit"]);
    let window = is_quota.then_some("window");
    let fields = schema::required(schema).chain(window).filter_map(|name| {
        let field = schema::field(schema, name)?;
        Some(format!("\"{name}\": {}", template(name, field, depth.saturating_add(1))))
    });
    let fields: Vec<String> = fields.collect();
    if fields.is_empty() { "{${}}".to_owned() } else { format!("{{{}}}", fields.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::Surface;

    /// The offers at `|`.
    fn at(marked: &str) -> Vec<Completion> {
        let offset = marked.split('|').next().unwrap().encode_utf16().count();
        complete(&marked.replace('|', ""), offset)
    }

    fn labels(marked: &str) -> Vec<String> {
        at(marked).into_iter().map(|one| one.label).collect()
    }

    /// The text that CodeMirror writes for a place: digits alone, or before a colon, are its rank.
    fn example(place: &str) -> &str {
        let rest = place.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(':') {
            Some(text) if rest.len() < place.len() => text,
            None if rest.is_empty() => "",
            _ => place,
        }
    }

    /// The text with the first offer of this label taken, its places filled with their examples.
    fn taken(marked: &str, label: &str) -> String {
        let offers = at(marked);
        let offer = offers.iter().find(|one| one.label == label);
        let offer = offer.unwrap_or_else(|| panic!("{label} is not offered: {offers:?}"));
        let units: Vec<u16> = marked.replace('|', "").encode_utf16().collect();
        let text = |range: &[u16]| String::from_utf16(range).unwrap();
        let mut insert = String::new();
        for (i, part) in offer.insert.split("${").enumerate() {
            let (place, rest) = part.split_once('}').filter(|_| i > 0).unwrap_or(("", part));
            insert.push_str(example(place));
            insert.push_str(rest);
        }
        format!("{}{insert}{}", text(&units[..offer.from]), text(&units[offer.to..]))
    }

    #[test]
    fn names_come_with_what_must_be_there_first() {
        assert_eq!(labels("{|")[..2], ["rules", "version"]);
        assert_eq!(labels("{\"rules\": [{\"name\": \"a\", |}]}")[..2], ["key", "quotas"]);
        assert!(!labels("{\"version\": 1, \"|\"}").contains(&"version".to_owned()));
    }

    #[test]
    fn what_is_written_chooses() {
        let quota =
            |written: &str| format!("{{\"rules\": [{{\"quotas\": [{{\"algorithm\": {written}|");
        assert_eq!(labels(&quota("\"gc")), ["gcra"]);
        assert_eq!(labels(&quota("sliding")), ["sliding-window", "sliding-buckets", "sliding-log"]);
        assert_eq!(labels(&quota("buck"))[0], "token-bucket");
        assert_eq!(labels(&quota("")).len(), 8);
        assert!(labels(&quota("\"nothing")).is_empty());
    }

    #[test]
    fn kinds_of_one_thing_are_offered_side_by_side() {
        let key = labels("{\"rules\": [{\"key\": [|");
        assert!(key.contains(&"client_ip".to_owned()) && key.contains(&"{header}".to_owned()));
        assert!(!key.contains(&"{repeated}".to_owned()) && !key.contains(&"{lower}".to_owned()));
        let mode = labels("{\"rules\": [{\"mode\": |");
        assert_eq!(mode, ["enforce", "shadow", "{enforce_percent}"]);
        // Of several kinds of objects, the one that the text begins.
        assert_eq!(labels("{\"rules\": [{\"cost\": {\"header\": \"x\", |")[..1], ["max"]);
    }

    /// Guards: offers that the compiler rejects.
    #[test]
    fn a_policy_written_by_completions_alone_compiles() {
        let text = taken("{|}", "rules");
        let text = taken(&text.replacen('{', "{|", 1), "version");
        let policy = tollgate_language::compile(&text, Surface::Envoy).unwrap();
        assert_eq!(policy.rules().len(), 1, "{text}");
        for (label, way) in [("when", "paths"), ("unless", "methods"), ("action", "")] {
            let text = taken(&text.replacen("{\"name\"", "{|\"name\"", 1), label);
            let text = match way {
                "" => taken(&text.replacen("\"action\": ", "\"action\": |", 1), "{delay}"),
                way => taken(
                    &text.replacen(&format!("\"{label}\": {{"), &format!("\"{label}\": {{|"), 1),
                    way,
                ),
            };
            tollgate_language::compile(&text, Surface::Envoy)
                .unwrap_or_else(|why| panic!("{text}: {why}"));
        }
    }

    #[test]
    fn places_are_counted_as_javascript_does() {
        let offers = at("{\"version\": 1, \"rules\": [{\"name\": \"😀é\", \"qu|\"");
        assert_eq!((offers[0].label.as_str(), offers[0].from, offers[0].to), ("quotas", 41, 45));
    }
}
