#![no_main]
#[allow(dead_code)]
#[path = "../../crates/larder-wire/tests/all/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::h3::control(bytes));
