//! FromDevice and ToDevice on two connected interfaces in a network namespace. The test runs itself again
//! within one, which needs root or unprivileged user namespaces.

#[path = "../../../switch/port/tests/namespace/mod.rs"]
mod namespace;

use ringway_click_driver::click::{self, Recorder};
use std::net::UdpSocket;
use std::process::Command;

/// A frame of an experimental Ethernet type passes; a datagram from the kernel arrives with its checksum
/// filled, and a VLAN tag is restored.
const CONFIGURATION: &str = "
    InfiniteSource(DATA \\<020000000002 020000000001 88b5 0102030405060708>, LENGTH 60, LIMIT 5)
        -> Queue -> to :: ToDevice(v0);
    InfiniteSource(DATA \\<020000000002 020000000001 8100 0007 88b6 0102030405060708>, LENGTH 60, LIMIT 5)
        -> ToDevice(v0);
    from :: FromDevice(v1) -> kind :: Classifier(12/88b5, 12/8100 14/0007 16/88b6, 12/0800 23/11 36/1e61, -);
    kind[0] -> own :: Counter -> Discard;
    kind[1] -> tagged :: Counter -> Discard;
    kind[2] -> Strip(14) -> CheckIPHeader -> CheckUDPHeader -> datagrams :: Counter -> Discard;
    kind[3] -> Discard;
    Script(wait 20s, print late, stop);
    DriverManager(label again, wait 20ms,
        goto again $(or $(lt $(own.count) 5) $(lt $(tagged.count) 5) $(lt $(datagrams.count) 1)),
        print $(own.count) $(tagged.count) $(datagrams.count) $(to.count) $(to.drops) $(from.drops), stop);
";

fn main() {
    namespace::within(within);
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status();
    assert!(status.expect("ip, of iproute2, runs").success(), "ip {arguments}");
}

fn within() {
    ip("link add v0 address 02:00:00:00:00:01 type veth peer name v1 address 02:00:00:00:00:02");
    ip("address add 10.98.0.1/24 dev v0");
    ip("link set v0 up");
    ip("link set v1 up");
    ip("neigh add 10.98.0.2 lladdr 02:00:00:00:00:02 dev v0");
    let sender = std::thread::spawn(|| {
        let socket = UdpSocket::bind("10.98.0.1:7776").expect("the interface has its address");
        // Frames are lost until the configuration runs.
        for _ in 0..200 {
            let _ =
                socket.send_to(b"a datagram whose checksum is left to whoever sends it on", "10.98.0.2:7777");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let console = Recorder::default();
    let status = click::run(&["-e".to_string(), CONFIGURATION.to_string()], console.clone());
    let (output, chatter) = (console.output(), console.chatter());
    assert_eq!(status, 0, "{output}{chatter}");
    let counts: Vec<u64> = output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Datagrams may be more than the one that is waited for.
    assert!(counts.len() == 6 && counts[2] >= 1 && !output.contains("late"), "{output}{chatter}");
    assert_eq!([counts[0], counts[1], counts[3], counts[4], counts[5]], [5, 5, 5, 0, 0], "{output}{chatter}");
    let nowhere = ["-e".to_string(), "FromDevice(nowhere) -> Discard".to_string()];
    let console = Recorder::default();
    assert_eq!(click::run(&nowhere, console.clone()), 1);
    assert!(
        console.chatter().contains("nowhere: opening a packet socket: No such device"),
        "{}",
        console.chatter()
    );
    drop(sender);
}
