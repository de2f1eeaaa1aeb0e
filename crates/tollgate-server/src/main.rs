//! The program `tollgate-server`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_server::program::main()
}
