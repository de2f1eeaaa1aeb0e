//! The fields of a YAML object, as the service reads them: with merge keys, each with a type.
//!
//! Invariant: reading never stops at the first mistake; a `None` is either reported or absent.

use super::finding::{self, Findings, Place, shown};
use tollgate_yaml::{Field, Form, Kind, Node, Reading, Scalar, Value};

/// Fields that the service accepts in every object, and reads in one kind of object.
const ANYWHERE: [&str; 2] = ["name", "quota_mode"];

/// The fields of one object.
pub(super) struct Fields<'n> {
    fields: Vec<(&'n str, Place, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Opens an object that may have these fields; other fields and duplicate fields are problems.
    pub(super) fn open(
        node: &'n Node,
        what: &str,
        known: &[&str],
        findings: &mut Findings,
    ) -> Option<Self> {
        let Kind::Object(own) = &node.kind else {
            findings.problem(Place::from(node), format!("{what} is an object of names and values"));
            return None;
        };
        let mut fields: Vec<(&str, Place, &Node)> = Vec::new();
        for Field { name, line, column, value } in own.iter().filter(|field| field.name != "<<") {
            let place = Place { line: *line, column: *column };
            if fields.iter().any(|(earlier, ..)| earlier == name) {
                findings.problem(place, format!("{} is given twice; give it once", shown(name)));
            } else if known.contains(&name.as_str()) {
                fields.push((name, place, value));
            } else if ANYWHERE.contains(&name.as_str()) {
                let message = format!("{name:?} has no effect on {what}");
                findings.note(finding::Kind::Ignored, place, message);
            } else {
                let known = known.join(", ");
                findings.problem(
                    place,
                    format!("{} is not a field of {what}, which has {known}", shown(name)),
                );
            }
        }
        for merged in own.iter().filter(|field| field.name == "<<") {
            merge(&merged.value, known, &mut fields);
        }
        Some(Self { fields })
    }

    /// The position of a field.
    pub(super) fn place(&self, name: &str) -> Option<Place> {
        self.find(name).map(|(place, _)| place)
    }

    /// The value of a field, unless it is empty.
    pub(super) fn node(&self, name: &str) -> Option<&'n Node> {
        self.find(name).map(|(_, node)| node)
    }

    fn find(&self, name: &str) -> Option<(Place, &'n Node)> {
        let found = self.fields.iter().find(|(field, ..)| *field == name);
        let found = found.map(|(_, place, node)| (*place, *node));
        found.filter(|(_, node)| !node.is_null(Reading::Policy))
    }

    /// The items of a list; none when the list is absent.
    pub(super) fn list(&self, name: &str, findings: &mut Findings) -> &'n [Node] {
        match self.node(name) {
            None => &[],
            Some(Node { kind: Kind::List(items), .. }) => items,
            Some(other) => {
                findings.problem(Place::from(other), format!("{name:?} is a list"));
                &[]
            }
        }
    }

    /// A text. Numbers and booleans without quotes are read as their text; fractions are rejected,
    /// as in the service.
    pub(super) fn text(&self, name: &str, findings: &mut Findings) -> Option<&'n str> {
        let node = self.node(name)?;
        let scalar = match &node.kind {
            Kind::Scalar(scalar) => scalar,
            Kind::List(_) | Kind::Object(_) => {
                findings.problem(Place::from(node), format!("{name:?} is a text"));
                return None;
            }
        };
        if is_fraction(scalar) {
            let text = shown(&scalar.text);
            let message =
                format!("{text} without quotes is a fraction, which the service refuses; quote it");
            findings.problem(Place::from(node), message);
            return None;
        }
        Some(&scalar.text)
    }

    /// A boolean; false when it is absent.
    pub(super) fn truth(&self, name: &str, findings: &mut Findings) -> bool {
        let Some(node) = self.node(name) else { return false };
        let scalar = match &node.kind {
            Kind::Scalar(scalar) => Some(Reading::Policy.value(scalar)),
            Kind::List(_) | Kind::Object(_) => None,
        };
        match scalar {
            Some(Value::Bool(truth)) => truth,
            _ => {
                findings.problem(Place::from(node), format!("{name:?} is true or false"));
                false
            }
        }
    }

    /// An integer of 32 bits; 0 when it is absent, as in the service.
    pub(super) fn number(&self, name: &str, findings: &mut Findings) -> u32 {
        let Some(node) = self.node(name) else { return 0 };
        let number = match &node.kind {
            Kind::Scalar(scalar) => match Reading::Policy.value(scalar) {
                Value::Whole(number) => u32::try_from(number).ok(),
                // YAML 1.1 allows digit groups.
                Value::Text(text) if scalar.form == Form::Plain => grouped(text),
                _ => None,
            },
            Kind::List(_) | Kind::Object(_) => None,
        };
        number.unwrap_or_else(|| {
            let message =
                format!("{name:?} is a whole number from 0 to {}, without quotes", u32::MAX);
            findings.problem(Place::from(node), message);
            0
        })
    }
}

/// Adds merged fields that are not yet present. Mistakes in them are reported at their own
/// position.
fn merge<'n>(from: &'n Node, known: &[&str], fields: &mut Vec<(&'n str, Place, &'n Node)>) {
    for item in from.items() {
        merge(item, known, fields);
    }
    for Field { name, line, column, value } in from.fields() {
        if name == "<<" {
            merge(value, known, fields);
        } else if known.contains(&name.as_str()) && fields.iter().all(|(own, ..)| own != name) {
            fields.push((name, Place { line: *line, column: *column }, value));
        }
    }
}

/// `1_000`
fn grouped(text: &str) -> Option<u32> {
    let is_grouped = text.starts_with(|c: char| ('1'..='9').contains(&c))
        && text.chars().all(|c| c.is_ascii_digit() || c == '_');
    is_grouped.then(|| text.replace('_', "").parse().ok())?
}

/// True for a number without quotes that is not an integer.
fn is_fraction(scalar: &Scalar) -> bool {
    let text = &scalar.text;
    scalar.form == Form::Plain
        && text.contains('.')
        && text.parse::<f64>().is_ok()
        && text.contains(|c: char| c.is_ascii_digit())
}
