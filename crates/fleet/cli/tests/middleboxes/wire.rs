//! Frames of every length pass the wire, and come back from the mirror, unchanged; a long transfer passes the wire.
use super::{alone, fabric, fetches, read};
use crate::lab::net::{Script, can_create_taps, namespace};
use crate::lab::{Lab, every_isolation};

/// `send FIRST LAST SEED` sends a frame of each length. `take FIRST LAST SEED` compares those that come with them,
/// `back` instead of `take` with swapped addresses; it prints the lengths of those that differ, or `same`.
const PEER: &str = r#"
import random, socket, sys
KIND, SO_RCVBUFFORCE = 0x88b5, 33
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(KIND))
own.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 23)
own.bind((sys.argv[1], KIND))
own.settimeout(20)
def frame(size, seed, back):
    data = random.Random(seed * 10000 + size).randbytes(size)
    to, by = b"\x02" + data[1:6], b"\x02" + data[7:12]
    return (by + to if back else to + by) + KIND.to_bytes(2, "big") + data[14:]
for line in sys.stdin:
    word, first, last, seed = line.split()
    sizes, seed = range(int(first), int(last) + 1), int(seed)
    if word == "send":
        for size in sizes:
            own.send(frame(size, seed, False))
        print("sent")
    else:
        wrong = [size for size in sizes if own.recv(4096) != frame(size, seed, word == "back")]
        print(wrong or "same")
"#;

/// The lengths of frames without VLAN tags, some at a time: fewer than a ring holds.
fn lengths() -> impl Iterator<Item = (usize, usize)> {
    (60..=1514).step_by(200).map(|first| (first, 1514.min(first + 199)))
}

fn peer(lab: &Lab, namespace: &str, interface: &str) -> Script {
    let mut peer = Script::start(namespace, &lab.folder, PEER, &[interface]);
    // The server listens once it answers.
    assert_eq!(peer.ask("take 1 0 0"), "same");
    peer
}

#[test]
fn frames_of_every_length_and_a_long_transfer_pass_the_wire() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let ((_one, client), (_two, server)) = (namespace(), namespace());
        let lab = fabric("wire", isolation, [&client, &server], ["10.0.0.1/24", "10.0.0.2/24"]);
        let (mut one, mut two) = (peer(&lab, &client, "client"), peer(&lab, &server, "server"));
        for (first, last) in lengths() {
            assert_eq!(one.ask(&format!("send {first} {last} 1")), "sent");
            assert_eq!(two.ask(&format!("take {first} {last} 1")), "same", "{isolation}");
            assert_eq!(two.ask(&format!("send {first} {last} 2")), "sent");
            assert_eq!(one.ask(&format!("take {first} {last} 2")), "same", "{isolation}");
        }
        for counter in ["out.count", "in.count"] {
            assert_eq!(read(&lab, "wire", counter), "1455", "{isolation}");
        }
        fetches(&lab, [&client, &server], "10.0.0.2", "http://10.0.0.2", 8_000_000);
    }
}

#[test]
fn frames_of_every_length_come_back_from_the_mirror() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let (_keeper, client) = namespace();
        let lab = alone("mirror", isolation, &client, "10.0.0.1/24");
        let mut peer = peer(&lab, &client, "client");
        for (first, last) in lengths() {
            assert_eq!(peer.ask(&format!("send {first} {last} 1")), "sent");
            assert_eq!(peer.ask(&format!("back {first} {last} 1")), "same", "{isolation}");
        }
        assert_eq!(read(&lab, "mirror", "mirrored.count"), "1455", "{isolation}");
    }
}
