//! KernelTun, KernelTap, FromHost, ToHost, ToHostSniffers and RawSocket with this host's kernel, in a network
//! namespace. The test runs itself again within one, which needs root or unprivileged user namespaces.

#[path = "../../../switch/port/tests/namespace/mod.rs"]
mod namespace;

use ringway_click_driver::click::{self, Recorder};
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

/// Datagrams are returned to the sender; so are frames, after ARP.
const CONFIGURATION: &str = "
    elementclass Back { input -> EtherMirror -> MarkIPHeader(14) -> IPMirror -> output }
    elementclass Kinds { $net |
        input -> kinds :: Classifier(12/0806 20/0001, 12/0800 23/11, -);
        kinds[0] -> ARPResponder($net 02:00:00:00:00:99) -> [0] output;
        kinds[1] -> Back -> [0] output;
        kinds[2] -> Discard;
    }
    tun :: KernelTun(10.91.0.1/24, DEVNAME ctun0) -> udp :: IPClassifier(udp, -);
    tun[1] -> Discard;
    udp[0] -> IPMirror -> Queue -> tun;
    udp[1] -> Discard;
    tap :: KernelTap(10.92.0.1/24, DEVNAME ctap0, ETHER 02:00:00:00:00:01) -> Kinds(10.92.0.0/24) -> tap;
    FromHost(chost0, 10.93.0.1/24) -> Kinds(10.93.0.0/24) -> to :: ToHost(chost0);
    InfiniteSource(DATA \\<01020304>, LIMIT 3)
        -> UDPIPEncap(127.0.0.1, 7771, 127.0.0.1, 7772) -> Queue -> raw :: RawSocket(UDP, 7772)
        -> IPClassifier(dst udp port 7772) -> CheckIPHeader -> CheckUDPHeader -> got :: Counter -> Discard;
    InfiniteSource(DATA \\<ffffffffffff 020000000098 1234 0102>, LIMIT 3) -> shown :: ToHostSniffers(cshow0);
    FromDevice(cshow0, OUTBOUND true) -> ours :: Classifier(12/1234, -) -> seen :: Counter -> Discard;
    ours[1] -> Discard;
    DriverManager(set tries 0, label again, set tries $(add $tries 1), wait 20ms,
        goto again $(and $(lt $tries 1000) $(or $(lt $(tun.packets) 3) $(lt $(tap.packets) 3)
            $(lt $(got.count) 3) $(lt $(seen.count) 3))),
        wait 200ms, print $(raw.count) $(raw.drops) $(got.count) $(to.drops) $(tun.dev_name) $(shown.count)
            $(seen.count), stop);
";

fn main() {
    namespace::within(within);
}

/// Sends datagrams to an address until one returns; returns whether one did.
fn asks(to: &str) -> bool {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("it is no zero");
    let mut answer = [0; 16];
    (0..200).any(|_| {
        let sent = socket.send_to(b"there and back", to).is_ok();
        let came = sent && socket.recv_from(&mut answer).is_ok();
        if !sent {
            std::thread::sleep(Duration::from_millis(20));
        }
        came && answer.starts_with(b"there and back")
    })
}

fn within() {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(status.expect("ip, of iproute2, runs").success());
    let senders =
        ["10.91.0.2:7", "10.92.0.2:7", "10.93.0.2:7"].map(|to| std::thread::spawn(move || (to, asks(to))));
    let console = Recorder::default();
    let arguments = ["-e".to_string(), CONFIGURATION.replace("tun.packets) 3", "tun.packets) 1")];
    let status = click::run(&arguments, console.clone());
    let (output, chatter) = (console.output(), console.chatter());
    assert_eq!(status, 0, "{output}{chatter}");
    let words: Vec<&str> = output.split_whitespace().collect();
    assert_eq!(words, ["3", "0", "3", "0", "ctun0", "3", "3"], "{chatter}");
    for thread in senders {
        let (to, answered) = thread.join().expect("it does not panic");
        assert!(answered, "{to}: {output}{chatter}");
    }
    refuses("KernelTun(10.91.0.1/24, 10.99.0.1) -> Discard", "bad GATEWAY");
    refuses("KernelTap(10.91.0.1/24, MTU 19) -> Discard", "MTU must be greater than 20");
    refuses("KernelTun(10.91.0.1/24, DEVNAME aVeryLongInterfaceName) -> Discard", "aVeryLongInterfaceName");
    refuses("Idle -> ToHost(nowhere)", "requires an initialized FromHost with the same dev_name");
}

fn refuses(configuration: &str, text: &str) {
    let console = Recorder::default();
    assert_eq!(click::run(&["-e".to_string(), configuration.to_string()], console.clone()), 1);
    assert!(console.chatter().contains(text), "{}", console.chatter());
}
