//! Capture files and packed dumps that one configuration writes and another reads.
#![allow(clippy::unwrap_used)]

use ringway_function::click::{self, Recorder};

/// Runs a configuration in which `$DIR` is a folder; returns its output.
fn run(folder: &std::path::Path, configuration: &str) -> String {
    let console = Recorder::default();
    let directory = format!("DIR={}", folder.display());
    let arguments = [directory, "--simtime".into(), "-e".into(), configuration.into()];
    let status = click::run(&arguments, console.clone());
    assert_eq!((status, console.chatter()), (0, String::new()));
    console.output()
}

#[test]
fn dumps_round_trip() {
    let folder = std::env::temp_dir().join(format!("ringway-dump-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let dump = "!data timestamp src dst sport dport proto payload\n\
        1.500000 1.0.0.1 2.0.0.2 5 6 U \"hello\"\n2.250000 1.0.0.1 2.0.0.2 7 8 T \"\"\n";
    std::fs::write(folder.join("IN"), dump).unwrap();
    let fields = "timestamp src dst sport dport proto";
    let source = "FromIPSummaryDump($DIR/IN, STOP true, CHECKSUM true)";
    run(&folder, &format!("{source} -> ToDump($DIR/PCAP, ENCAP IP)"));
    run(&folder, &format!("{source} -> ToIPSummaryDump($DIR/PACKED, BINARY true, FIELDS {fields})"));
    let sink = format!("ToIPSummaryDump(-, HEADER false, FIELDS {fields})");
    let expected = "1.500000 1.0.0.1 2.0.0.2 5 6 U\n2.250000 1.0.0.1 2.0.0.2 7 8 T\n";
    let captured = run(&folder, &format!("FromDump($DIR/PCAP, STOP true, FORCE_IP true) -> {sink}"));
    assert_eq!(captured, expected);
    let packed = run(&folder, &format!("FromIPSummaryDump($DIR/PACKED, STOP true) -> Queue -> {sink}"));
    assert_eq!(packed, expected);
    std::fs::remove_dir_all(&folder).unwrap();
}
