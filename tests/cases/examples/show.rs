//! Prints a case with the native responses of the reference: `cargo run -p tollgate-cases --example
//! show 5`.

fn main() {
    let number = std::env::args().nth(1).and_then(|text| text.parse().ok());
    match number {
        Some(number) => println!("{}", tollgate_cases::transcript(number)),
        None => println!("give the number of a case"),
    }
}
