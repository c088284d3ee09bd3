//! Streams of iperf3 through the shaper have at most its rates; voice passes beside them.
use super::{fabric, read};
use crate::lab::net::{can_create_taps, namespace, shell, within};
use crate::lab::{Running, at_once, until};
use serde_json::Value;
use std::process::Stdio;

/// The bits a second that come of a TCP stream.
fn stream([client, server]: [&str; 2], bytes: u32, words: &str) -> f64 {
    // A server of its own: one that has just served another is busy for a moment.
    let mut iperf = shell(server, "exec iperf3 --server --one-off --bind 10.0.0.2");
    let _server = Running(iperf.stdout(Stdio::null()).spawn().unwrap());
    // Port 5201.
    let listens = "grep -q ':1451 00000000:0000 0A' /proc/net/tcp";
    until("the server listens", || shell(server, listens).status().unwrap().success());
    let report = within(client, &format!("iperf3 --client 10.0.0.2 --bytes {bytes} --json {words}"));
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert!(report["error"].is_null(), "{report}");
    report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap()
}

#[test]
fn streams_have_the_rates() {
    if !can_create_taps() {
        return;
    }
    at_once(|isolation| {
        let ((_one, client), (_two, server)) = (namespace(), namespace());
        let lab = fabric("shaper", isolation, [&client, &server], ["10.0.0.1/24", "10.0.0.2/24"]);
        for (words, bytes, rate) in [("", 300_000, 1e6), ("--reverse", 1_000_000, 8e6)] {
            let speed = stream([&client, &server], bytes, words);
            // Without a shaper it is a thousand times as much. How little it is depends on the machine.
            assert!(speed > 0.0 && speed < 1.5 * rate, "{isolation}: {speed}");
        }
        // The stream has filled the queue of the rest, and voice does not wait there.
        let longest = |queue: &str| read(&lab, "shaper", &format!("{queue}.highwater_length"));
        assert_ne!(longest("up/rest"), "0", "{isolation}");
        assert_eq!(longest("up/voice"), "0", "{isolation}");
        within(&client, "ping -Q 0xb8 -c 1 -W 20 10.0.0.2");
        assert_eq!((longest("up/voice"), longest("down/voice")), ("1".into(), "1".into()), "{isolation}");
        assert_eq!(read(&lab, "shaper", "up/voice.drops"), "0", "{isolation}");
    });
}
