//! Capture files and packed dumps that one configuration writes and another reads.
#![allow(clippy::unwrap_used)]

use ringway_click_driver::click::{self, Recorder};
use std::path::PathBuf;

/// Runs a configuration in which `$DIR` is a folder; returns its output.
fn run(folder: &std::path::Path, configuration: &str) -> String {
    let console = Recorder::default();
    let directory = format!("DIR={}", folder.display());
    let arguments = [directory, "--simtime".into(), "-e".into(), configuration.into()];
    let status = click::run(&arguments, console.clone());
    assert_eq!((status, console.chatter()), (0, String::new()));
    console.output()
}

/// A folder for a test's files, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ringway-dump-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn run(&self, configuration: &str) -> String {
        run(&self.0, configuration)
    }

    /// Writes a capture file PCAP with IP packets at these times.
    fn capture(&self, times: impl IntoIterator<Item = &'static str>, options: &str) {
        let lines = times.into_iter().map(|time| format!("{time} 1.0.0.1 2.0.0.2 U\n"));
        let dump = format!("!data timestamp src dst proto\n{}", lines.collect::<String>());
        std::fs::write(self.0.join("TIMES"), dump).unwrap();
        self.run(&format!("FromIPSummaryDump($DIR/TIMES, STOP true) -> ToDump($DIR/PCAP, {options})"));
    }

    /// The times of the packets that FromDump emits with these options, and the script's output.
    fn times(&self, options: &str, script: &str) -> String {
        self.run(&format!(
            "d :: FromDump($DIR/PCAP, {options}) -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp);
             c :: Counter; Idle -> c -> Discard; DriverManager(wait 1s, {script} stop)"
        ))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn parts_of_a_file_are_read() {
    let folder = Folder::new("parts");
    folder.capture(["10.0", "11.0", "12.5", "13.0", "14.0"], "ENCAP IP");
    for (options, expected) in [
        ("START 12.5", "12.500000\n13.000000\n14.000000\n"),
        ("START_AFTER 2.5s", "12.500000\n13.000000\n14.000000\n"),
        ("END 12.5", "10.000000\n11.000000\n"),
        ("END_AFTER 1", "10.000000\n"),
        ("START 11, INTERVAL 2", "11.000000\n12.500000\n"),
        ("START_AFTER 1, END_AFTER 3", "11.000000\n12.500000\n"),
        ("SAMPLE 0.0000000037", ""),
        ("FILEPOS 156", "13.000000\n14.000000\n"),
    ] {
        assert_eq!(folder.times(options, ""), expected, "{options}");
    }
    let script = "print d.active, print d.packet_filepos, write d.extend_interval 3, wait 1s, print d.count,";
    let expected = "10.000000\n11.000000\nfalse\n112\n13.000000\n14.000000\n4\n";
    assert_eq!(folder.times("END 12", script), expected);
    let script = "write d.filepos 200, write d.active true, wait 1s, print d.filesize,";
    assert_eq!(folder.times("END 11, END_CALL d.active false", script), "10.000000\n14.000000\n244\n");
    // A handler that leaves the element active does not end the file, and is called again at its end.
    let script = "print c.count,";
    let expected = "10.000000\n11.000000\n12.500000\n13.000000\n14.000000\n0\n";
    assert_eq!(folder.times("END 11, END_CALL c.reset", script), expected);
}

#[test]
fn a_capture_is_replayed_on_its_schedule_over_a_link() {
    let folder = Folder::new("schedule");
    folder.capture(["10.0", "10.1", "10.4"], "ENCAP IP");
    let output = folder.run(
        "FromDump($DIR/PCAP, TIMING true, STOP true) -> LinkEmulator(DELAY 50ms) -> SetTimestamp
            -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp);
         DriverManager(wait_stop, wait 1s)",
    );
    let times: Vec<f64> = output.lines().map(|line| line.parse().unwrap()).collect();
    let since_first: Vec<f64> = times.iter().map(|time| ((time - times[0]) * 1e3).round() / 1e3).collect();
    assert_eq!(since_first, [0.0, 0.1, 0.4]);
}

#[test]
fn the_link_type_is_kept_and_understood() {
    let folder = Folder::new("links");
    folder.capture(["1.000000001"], "ENCAP IP, NANO true, UNBUFFERED true");
    let sink = "ToIPSummaryDump(-, HEADER false, FIELDS ntimestamp dst)";
    for (encap, header) in [
        ("ETHER", "\\<00 00 00 00 00 00 00 00 00 00 00 00 08 00>"),
        ("SLL", "\\<00 00 00 01 00 06 00 00 00 00 00 00 00 00 08 00>"),
        ("NULL", "\\<02 00 00 00>"),
        ("PPP", "\\<ff 03 00 21>"),
        ("PPP_HDLC", "\\<ff 03 00 21>"),
        ("HDLC", "\\<0f 00 08 00>"),
        ("ATM", "\\<aa aa 03 00 00 00 08 00>"),
        ("FDDI", "\\<50 00 00 00 00 00 00 00 00 00 00 00 00 aa aa 03 00 00 00 08 00>"),
        (
            "802_11",
            "\\<08 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 \
              00 00 00 00 00 00 00 00 aa aa 03 00 00 00 08 00>",
        ),
    ] {
        let length = header.split(' ').count();
        let written = folder.run(&format!(
            "d :: FromDump($DIR/PCAP, STOP true) -> Unstrip({length}) -> StoreData(0, {header})
                -> ToDump($DIR/LINK, ENCAP {encap})"
        ));
        assert_eq!(written, "");
        let read = folder.run(&format!(
            "d :: FromDump($DIR/LINK, STOP true, FORCE_IP true) 
                -> t :: ToDump($DIR/COPY, USE_ENCAP_FROM d) -> {sink};
             DriverManager(pause, print d.encap)"
        ));
        assert_eq!(read, format!("1.000000001 2.0.0.2\n{encap}\n"));
        let same =
            std::fs::read(folder.0.join("LINK")).unwrap() == std::fs::read(folder.0.join("COPY")).unwrap();
        assert!(same, "{encap}");
    }
    let other = folder.run(
        "d :: FromDump($DIR/LINK, STOP true) -> ToDump($DIR/COPY, ENCAP #228, NANO false);
        DriverManager(pause)",
    );
    assert_eq!(other, "");
    let read = format!("d :: FromDump($DIR/COPY, STOP true) -> {sink}; DriverManager(pause, print d.encap)");
    assert_eq!(folder.run(&read), "1.000000 -\n#228\n");
}

#[test]
fn dumps_round_trip() {
    let folder = Folder::new("written");
    let dump = "!data timestamp src dst sport dport proto payload\n\
        1.500000 1.0.0.1 2.0.0.2 5 6 U \"hello\"\n2.250000 1.0.0.1 2.0.0.2 7 8 T \"\"\n";
    std::fs::write(folder.0.join("IN"), dump).unwrap();
    let fields = "timestamp src dst sport dport proto";
    let source = "FromIPSummaryDump($DIR/IN, STOP true, CHECKSUM true)";
    folder.run(&format!("{source} -> ToDump($DIR/PCAP, ENCAP IP)"));
    folder.run(&format!("{source} -> ToIPSummaryDump($DIR/PACKED, BINARY true, FIELDS {fields})"));
    let sink = format!("ToIPSummaryDump(-, HEADER false, FIELDS {fields})");
    let expected = "1.500000 1.0.0.1 2.0.0.2 5 6 U\n2.250000 1.0.0.1 2.0.0.2 7 8 T\n";
    let captured = folder.run(&format!("FromDump($DIR/PCAP, STOP true, FORCE_IP true) -> {sink}"));
    assert_eq!(captured, expected);
    let packed = folder.run(&format!("FromIPSummaryDump($DIR/PACKED, STOP true) -> Queue -> {sink}"));
    assert_eq!(packed, expected);
}

#[test]
fn flows_are_located_in_their_file() {
    let folder = Folder::new("flows");
    folder.capture(["10.0", "11.0"], "ENCAP IP");
    let configuration = "d :: FromDump($DIR/PCAP, STOP true) -> Unqueue
        -> AggregateIPFlows(TRACEINFO $DIR/TRACE, SOURCE d, UDP_TIMEOUT 0) -> Discard";
    folder.run(configuration);
    let trace = std::fs::read_to_string(folder.0.join("TRACE")).unwrap();
    assert!(trace.contains(&format!("<trace file='{}'>", folder.0.join("PCAP").display())), "{trace}");
    assert!(trace.contains("begin='10.000000000' duration='0.000000000' filepos='24'>"), "{trace}");
    assert!(trace.contains("begin='11.000000000' duration='0.000000000' filepos='68'>"), "{trace}");
}
