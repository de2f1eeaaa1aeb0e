//! Where in the world objects are made: the settings `LOCATION_HINT` and `JURISDICTION`, for all
//! classes.
//!
//! Invariant: a value that the platform does not have is rejected and never passed on: an object
//! stays where it was made first. Deliberately absent: moving objects; that is impossible. A
//! jurisdiction is a part of an object's identity, so a deployment that changes it starts with
//! other, empty objects.

pub(crate) const LOCATION_HINT: &str = "LOCATION_HINT";
pub(crate) const JURISDICTION: &str = "JURISDICTION";

/// The values that the platform has, in its own order (developers.cloudflare.com/durable-objects,
/// "Data location"; `DurableObjectLocationHint` of the runtime's types).
const HINTS: [&str; 11] =
    ["wnam", "enam", "sam", "weur", "eeur", "apac", "apac-ne", "apac-se", "oc", "afr", "me"];
/// `DurableObjectJurisdiction` there.
const JURISDICTIONS: [&str; 4] = ["eu", "fedramp", "fedramp-high", "us"];

/// Where objects are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Near here, if the platform can; else near the first request for the object.
    pub(crate) hint: Option<&'static str>,
    /// Only here.
    pub(crate) jurisdiction: Option<&'static str>,
}

impl Placement {
    /// Reads both settings, as far as they are given.
    pub(crate) fn read(
        hint: Option<&str>,
        jurisdiction: Option<&str>,
        problem: &mut impl FnMut(&str, String),
    ) -> Self {
        Self {
            hint: hint.and_then(|value| one_of(&HINTS, LOCATION_HINT, value, problem)),
            jurisdiction: jurisdiction
                .and_then(|value| one_of(&JURISDICTIONS, JURISDICTION, value, problem)),
        }
    }
}

fn one_of(
    known: &[&'static str],
    name: &str,
    value: &str,
    problem: &mut impl FnMut(&str, String),
) -> Option<&'static str> {
    let found = known.iter().copied().find(|one| *one == value);
    if found.is_none() {
        problem(name, format!("is none that the platform has; use one of {}", known.join(", ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(hint: Option<&str>, jurisdiction: Option<&str>) -> (Placement, Vec<String>) {
        let mut problems = Vec::new();
        let placement = Placement::read(hint, jurisdiction, &mut |name: &str, message| {
            problems.push(format!("{name}: {message}"));
        });
        (placement, problems)
    }

    #[test]
    fn a_place_is_one_of_the_platforms() {
        for hint in HINTS {
            let placement = Placement { hint: Some(hint), jurisdiction: None };
            assert_eq!(read(Some(hint), None), (placement, vec![]));
        }
        for jurisdiction in JURISDICTIONS {
            let placement = Placement { hint: None, jurisdiction: Some(jurisdiction) };
            assert_eq!(read(None, Some(jurisdiction)), (placement, vec![]));
        }
        assert_eq!(read(None, None), (Placement::default(), vec![]));
    }

    #[test]
    fn another_place_is_refused_with_those_that_there_are() {
        for wrong in ["", "WEUR", "weur ", "europe", "eu", "weur,eeur"] {
            let problem = "LOCATION_HINT: is none that the platform has; use one of wnam, enam, \
                           sam, weur, eeur, apac, apac-ne, apac-se, oc, afr, me";
            assert_eq!(read(Some(wrong), None), (Placement::default(), vec![problem.into()]));
        }
        for wrong in ["", "EU", "weur", "de"] {
            let problem = "JURISDICTION: is none that the platform has; use one of eu, fedramp, \
                           fedramp-high, us";
            assert_eq!(read(None, Some(wrong)), (Placement::default(), vec![problem.into()]));
        }
    }
}
