#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dyno_engine_postgres::fuzz::script(data));
