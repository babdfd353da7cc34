#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weft_system_tests::fuzzing::run("inspect", bytes));
