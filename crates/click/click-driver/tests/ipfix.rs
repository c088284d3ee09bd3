//! IPFIX messages of FlowMonitor, read back by tshark.
#![allow(clippy::unwrap_used)]

use ringway_click_driver::click::{self, Recorder};
use std::process::Command;

const FLOWS: &str = "\
!data timestamp src sport dst dport proto ip_len tcp_flags
1 10.0.0.1 1000 192.0.2.2 53 U 100 -
2 10.0.0.1 1000 192.0.2.2 53 U 150 -
3 192.0.2.2 443 10.0.0.9 2000 T 1500 PA
";

#[test]
fn tshark_reads_the_messages_of_a_flow_monitor() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("not run: there is no tshark");
        return;
    }
    let folder = std::env::temp_dir().join(format!("ringway-ipfix-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("flows"), FLOWS).unwrap();
    let configuration = "FromIPSummaryDump($DIR/flows, CHECKSUM true, TIMING true)
            -> m :: FlowMonitor(100, IDLE_TIMEOUT 2s, DOMAIN 7) -> Discard;
        m[1] -> UDPIPEncap(192.0.2.1, 4739, 192.0.2.9, 4739) -> ToDump($DIR/messages, ENCAP IP);
        InfiniteSource(\\<60000000 000c 11 40 20010db8000000000000000000000001
            20010db8000000000000000000000002
            1234 0035 000c 0000 61626364>, LIMIT 3) -> MarkIP6Header -> m;
        DriverManager(wait 9s, stop)";
    let words = [&format!("DIR={}", folder.display()), "--simtime", "-e", configuration];
    let console = Recorder::default();
    let status = click::run(&words.map(String::from), console.clone());
    assert_eq!((status, &*console.chatter()), (0, ""));

    let mut tshark = Command::new("tshark");
    tshark.args(["-d", "udp.port==4739,cflow", "-T", "fields", "-E", "separator= ", "-r"]);
    tshark.arg(folder.join("messages"));
    for field in ["version", "od_id", "srcaddr", "srcaddrv6", "dstport", "protocol", "packets", "octets"] {
        tshark.args(["-e", &format!("cflow.{field}")]);
    }
    let output = tshark.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    let expected =
        ["10 7 10.0.0.1 53 17 2 250", "10 7 192.0.2.2 2000 6 1 1500", "10 7 2001:db8::1 53 17 3 156"];
    assert_eq!(lines, expected, "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}
