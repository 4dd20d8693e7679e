//! The binary; everything is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: larder::Allocator = larder::Allocator;

fn main() -> ExitCode {
    larder::cli::main()
}
