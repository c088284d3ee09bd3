//! Flows between two hosts pass the monitor, whose reports nfcapd collects; nfdump reads them back.
use super::{fabric, read, says};
use crate::lab::net::{Script, can_create_taps, namespace6, shell, within};
use crate::lab::{Lab, Running, every_isolation, until};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Answers every second datagram by half of it.
const SERVER: &str = r#"
import socket, sys, threading
def serve(family, address):
    own = socket.socket(family, socket.SOCK_DGRAM)
    own.bind((address, 6000))
    sys.stdout.write("ready\n")
    while True:
        data, peer = own.recvfrom(2000)
        if data[0] % 2 == 0:
            own.sendto(data[:50], peer)
for each in ((socket.AF_INET, "10.0.0.2"), (socket.AF_INET6, "2001:db8::2")):
    threading.Thread(target=serve, args=each).start()
"#;

/// Sends seven datagrams of 100 bytes to an address, and prints its port once the answers to all have come.
const CLIENT: &str = r#"
import socket, sys
for line in sys.stdin:
    family = socket.AF_INET6 if ":" in line else socket.AF_INET
    own = socket.socket(family, socket.SOCK_DGRAM)
    own.settimeout(20)
    for number in range(7):
        own.sendto(bytes([number]) * 100, (line.strip(), 6000))
    for _ in range(4):
        own.recv(100)
    print(own.getsockname()[1])
"#;

/// nfcapd on the collector's address in a namespace, and the folder of what it collects.
struct Collector {
    process: Running,
    folder: PathBuf,
}

impl Collector {
    fn start(lab: &Lab, namespace: &str) -> Option<Collector> {
        if Command::new("nfcapd").arg("-V").output().is_err() {
            eprintln!("the collector is left out: nfdump is not installed");
            return None;
        }
        let folder = lab.folder.join("flows");
        std::fs::create_dir_all(&folder).unwrap();
        let script = format!("exec nfcapd -b 192.0.2.9 -p 4739 -t 3600 -l {}", folder.display());
        let process = shell(namespace, &script).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Port 4739.
        let listens = "grep -q :1283 /proc/net/udp";
        until("nfcapd listens", || shell(namespace, listens).status().unwrap().success());
        Some(Collector { process: Running(process), folder })
    }

    /// The flows: addresses, ports, protocol, packets and bytes.
    fn flows(mut self) -> Vec<String> {
        kill_process(Pid::from_child(&self.process.0), Signal::TERM).unwrap();
        self.process.0.wait().unwrap();
        let mut nfdump = Command::new("nfdump");
        nfdump.args(["-q", "-N", "-6", "-o", "fmt:%sa %sp %da %dp %pr %pkt %byt", "-R"]).arg(&self.folder);
        let output = nfdump.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}

/// Datagrams over IPv4 that programs of a namespace have received.
fn received(namespace: &str) -> u64 {
    says(namespace, "awk '/^Udp: [0-9]/ { print $2 }' /proc/net/snmp").trim().parse().unwrap()
}

#[test]
fn nfdump_reads_the_flows_of_two_hosts() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let ((_one, client), (_two, server)) = (namespace6(), namespace6());
        let lab = fabric("flowmon", isolation, [&client, &server], ["10.0.0.1/24", "10.0.0.2/24"]);
        within(&client, "ip addr add 2001:db8::1/64 dev client nodad");
        within(
            &server,
            "ip link set server address 02:00:00:00:00:09; ip addr add 192.0.2.9/24 dev server; \
             ip addr add 2001:db8::2/64 dev server nodad",
        );
        let collector = Collector::start(&lab, &server);
        let mut far = Script::start(&server, &lab.folder, SERVER, &[]);
        assert_eq!((far.line(), far.line()), ("ready".into(), "ready".into()));
        let mut near = Script::start(&client, &lab.folder, CLIENT, &[]);
        let (four, six) = (near.ask("10.0.0.2"), near.ask("2001:db8::2"));
        within(&client, "ping -c 3 -i 0.01 -W 20 -s 56 10.0.0.2");

        // Headers count: 28 bytes for IPv4 and UDP, 48 for IPv6 and UDP.
        let expected = [
            format!("10.0.0.1 {four} 10.0.0.2 6000 17 7 896"),
            format!("10.0.0.2 6000 10.0.0.1 {four} 17 4 312"),
            format!("2001:db8::1 {six} 2001:db8::2 6000 17 7 1036"),
            format!("2001:db8::2 6000 2001:db8::1 {six} 17 4 392"),
        ];
        let table = read(&lab, "flowmon", "flows.table");
        for flow in &expected {
            assert!(table.lines().any(|line| line == flow), "{isolation}: {flow}: {table}");
        }
        let top = read(&lab, "flowmon", "flows.top 1");
        assert!(top.contains("2001:db8::1") && top.contains(" 1036"), "{isolation}: {top}");

        lab.ok(&["function", "write", "flowmon", "flows.flush"]);
        // Messages leave before their flows are forgotten. Others, of neighbor discovery, may begin meanwhile.
        until("all are reported", || {
            let table = read(&lab, "flowmon", "flows.table");
            !table.contains(" 6000 ") && !table.contains("10.0.0.1")
        });
        let Some(collector) = collector else { continue };
        let reports: u64 = read(&lab, "flowmon", "exported.count").parse().unwrap();
        // The other seven are the program's.
        until("nfcapd has the reports", || received(&server) >= 7 + reports);
        let flows = collector.flows();
        for flow in &expected {
            assert!(flows.contains(flow), "{isolation}: {flow}: {flows:#?}");
        }
        for (from, to) in [("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")] {
            let flow = |line: &String| {
                let fields: Vec<&str> = line.split(' ').collect();
                fields[0] == from && fields[2] == to && fields[4..] == ["1", "3", "252"]
            };
            assert!(flows.iter().any(flow), "{isolation}: pings from {from}: {flows:#?}");
        }
    }
}
