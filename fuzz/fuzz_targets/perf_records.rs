#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dyno_profile::fuzz::perf_records(data));
