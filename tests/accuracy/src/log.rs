//! The day of real traffic: read as `tollgate replay` reads it.
//!
//! Invariant: a host name is a client, lines are in the order of the file, and line `i` of the `n`
//! of a second comes at floor(1000 i / n) ms of it. An incomplete log is rejected, because its
//! figures would differ.

use crate::measure::Arrival;
use std::collections::HashMap;
use tollgate_access_log::{Bounds, Client, Field, Format, Limits, Order, Reader, Record, Wanted};
use tollgate_core::Timestamp;

/// The first line names the columns; the one of the client is called `host`.
const FORMAT: &str = "tsv:client=host";
/// The numbers of requests and clients of the day.
const WHOLE: (usize, usize) = (30_969, 2_365);

/// The requests of the day, in their order.
///
/// # Errors
/// A line cannot be parsed, or the log is of another day.
pub fn arrivals(bytes: &[u8]) -> Result<Vec<Arrival>, String> {
    let format = Format::parse(FORMAT).map_err(|error| error.to_string())?;
    let format = format.fit(bytes).map_err(|error| error.to_string())?;
    let wanted = Wanted::new([Field::Client]);
    let mut reader = Reader::new(&format, wanted.clone(), Limits::default())
        .map_err(|error| error.to_string())?;
    let mut order = Order::new(wanted, Bounds::default());
    let mut clients = Clients::default();
    let mut lines = |record: Record<'_>| order.push(&record, &mut |record| clients.add(&record));
    reader.feed(bytes, &mut lines).map_err(|error| error.to_string())?;
    reader.finish(&mut lines).map_err(|error| error.to_string())?;
    order.finish(&mut |record| clients.add(&record));
    let found = (clients.arrivals.len(), clients.numbers.len());
    if found != WHOLE {
        return Err(format!(
            "{} requests of {} clients, not {} of {}",
            found.0, found.1, WHOLE.0, WHOLE.1
        ));
    }
    Ok(clients.arrivals)
}

/// Requests, and the number of each client.
#[derive(Default)]
struct Clients {
    numbers: HashMap<Vec<u8>, u32>,
    arrivals: Vec<Arrival>,
}

impl Clients {
    fn add(&mut self, record: &Record<'_>) {
        let name = match record.client {
            Some(Client::Name(name)) => name.to_vec(),
            Some(Client::Address(address)) => address.to_string().into_bytes(),
            None => Vec::new(),
        };
        let next = u32::try_from(self.numbers.len()).expect("fewer clients than numbers");
        let client = *self.numbers.entry(name).or_insert(next);
        self.arrivals.push(Arrival { at: Timestamp::from_nanos(record.time.unix_ns), client });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_log_is_refused() {
        let log = b"host\tlogname\ttime\nexample.com\t-\t807256800\n192.0.2.1\t-\t807256800\n";
        let refused = arrivals(log).unwrap_err();
        assert_eq!(refused, "2 requests of 2 clients, not 30969 of 2365");
    }
}
