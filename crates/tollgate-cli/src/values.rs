//! Parsers for argument values of several commands.
//!
//! Invariant: a message about a rejected value contains the allowed values.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tollgate_core::Span;
use tollgate_policy::Surface;

pub(crate) fn surface_parser() -> impl TypedValueParser<Value = Surface> {
    let names = PossibleValuesParser::new(Surface::ALL.map(Surface::name));
    names.try_map(|name| Surface::parse(&name).ok_or("no surface"))
}

pub(crate) fn span(text: &str) -> Result<Span, String> {
    const WANTED: &str = "use a whole number and a unit, such as 500ms, 2s, 1m, 1h or 1d";
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or(WANTED)?;
    let micros: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(WANTED.to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| WANTED)?;
    Ok(Span::from_nanos(number.saturating_mul(micros).saturating_mul(1_000)))
}
