#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringway_fuzz::pcap_replay::run(data));
