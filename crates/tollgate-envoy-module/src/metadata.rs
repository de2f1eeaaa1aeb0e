//! A value that another filter has set in the metadata of a stream, with its type.
//!
//! Envoy has a function for each type, and logs an error when the value has another one. So the
//! type that a value had last on this thread is tried first; the purpose of an unknown one is a
//! hint.
//!
//! Invariant: the order does not change the result, because a value has one type. A list, an object
//! and null have none of the three, as in the wasm module. Not here: longer paths, which Envoy does
//! not show.

use std::cell::RefCell;

use tollgate_filter::request::facts::Purpose;
use tollgate_filter::wire::metadata::Value;

use crate::abi::Stream;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Text,
    Number,
    Truth,
}

impl Type {
    const ALL: [Self; 3] = [Self::Text, Self::Number, Self::Truth];

    fn read(self, stream: Stream, filter: &str, name: &str) -> Option<Value<'static>> {
        match self {
            Self::Text => Some(Value::Text(stream.metadata_text(filter, name)?.into())),
            Self::Number => Some(Value::Number(stream.metadata_number(filter, name)?)),
            Self::Truth => Some(Value::Truth(stream.metadata_truth(filter, name)?)),
        }
    }
}

/// The type of the last value at a path.
struct Known {
    filter: Box<str>,
    name: Box<str>,
    last: Type,
}

/// More paths than a policy is expected to have. After that many all are forgotten, so that paths
/// of replaced policies do not stay.
const MAX_KNOWN: usize = 64;

thread_local! {
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// The value of this name at the top of what a filter has set.
pub(crate) fn value(
    stream: Stream,
    filter: &str,
    name: &str,
    purpose: Purpose,
) -> Option<Value<'static>> {
    let is_it = |it: &Known| *it.name == *name && *it.filter == *filter;
    let known = KNOWN.with_borrow(|all| all.iter().find(|it| is_it(it)).map(|it| it.last));
    let first = known.unwrap_or(match purpose {
        Purpose::Text => Type::Text,
        Purpose::Number => Type::Number,
    });
    let others = Type::ALL.into_iter().filter(|it| *it != first);
    let (found, value) = core::iter::once(first)
        .chain(others)
        .find_map(|it| Some((it, it.read(stream, filter, name)?)))?;
    if known != Some(found) {
        KNOWN.with_borrow_mut(|all| {
            all.retain(|it| !is_it(it));
            if all.len() >= MAX_KNOWN {
                all.clear();
            }
            all.push(Known { filter: filter.into(), name: name.into(), last: found });
        });
    }
    Some(value)
}
