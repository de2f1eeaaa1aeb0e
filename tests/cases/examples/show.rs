//! Prints a case as the reference answers it: `cargo run -p tollgate-cases --example show 5 20`.

use tollgate_cases::{Case, Reference};
use tollgate_policy::Surface;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a number"));
    let case = Case::new(numbers.next().expect("the number of a case"));
    let last = numbers.next().unwrap_or(u32::MAX) as usize;
    println!("{:#}", case.policy);
    for (index, expected) in
        Reference::new(&case, Surface::Envoy, [7; 16]).enumerate().take(last + 1)
    {
        let request = &case.events[index].request;
        println!("\n{index} at {} ms: {request:?}", expected.at_ms);
        println!("{:?}\n{}", expected.rules, expected.seen);
    }
}
