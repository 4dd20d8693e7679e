#![no_main]
#[allow(dead_code)]
#[path = "../../crates/larder-people/tests/all/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::texts(bytes));
