#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringway_fuzz::nic_rtl8139::run(data));
