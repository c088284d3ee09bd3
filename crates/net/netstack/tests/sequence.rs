//! Initial sequence numbers (RFC 6528).
#![allow(clippy::unwrap_used)]

use ringway_frame::Needs;
use ringway_netstack::{Cidr, Frames, InterfaceConfig, Settings, Stack};
use ringway_wire::tcp::Flags;
use ringway_wire::{Ethernet, Header, Tcp, ipv4};
use std::collections::BTreeSet;

const SECOND: u64 = 1_000_000_000;
/// The clock of RFC 9293, 3.4.1.
const TICK: u64 = 4000;

fn stack(last: u8, secret: u64) -> Stack {
    let mut stack = Stack::new(Settings::default(), [secret, 7]);
    stack.add_interface(InterfaceConfig {
        mac: [2, 0, 0, 0, 0, last].into(),
        mtu: 1500,
        addresses: vec![Cidr::new([10, 0, 0, last], 24)],
        offloads: Needs::NONE,
    });
    stack
}

/// The sequence number of the SYN with which a connection between two ports begins at `now`.
fn initial(secret: u64, now: u64, ports: [u16; 2]) -> u32 {
    let (mut client, mut server) = (stack(1, secret), stack(2, 1));
    let [local, remote] = [([10, 0, 0, 1], ports[0]), ([10, 0, 0, 2], ports[1])];
    client.connect_from(now, local.into(), remote.into()).unwrap();
    let mut found = None;
    // A question for the address of the peer, its answer, the SYN.
    for _ in 0..2 {
        let mut frames = Frames::default();
        client.transmit(now, 0, &mut frames);
        frames.iter().for_each(|(frame, offload)| {
            let packet = ipv4::Packet::parse(&frame[Ethernet::LEN..]);
            let tcp = packet.and_then(|packet| Tcp::of(packet.payload).copied());
            found =
                tcp.filter(|tcp| tcp.flags.has(Flags::SYN)).map(|tcp| tcp.sequence_number.get()).or(found);
            server.receive(now, 0, frame, offload);
        });
        frames.clear();
        server.transmit(now, 0, &mut frames);
        frames.iter().for_each(|(frame, offload)| client.receive(now, 0, frame, offload));
    }
    found.unwrap()
}

#[test]
fn they_follow_a_clock_of_four_microseconds() {
    let first = initial(1, 0, [5000, 80]);
    for later in [TICK, SECOND, 3600 * SECOND] {
        assert_eq!(initial(1, later, [5000, 80]).wrapping_sub(first), (later / TICK) as u32);
    }
}

#[test]
fn those_of_other_connections_and_other_secrets_tell_nothing() {
    let all: BTreeSet<u32> = (1..=20)
        .flat_map(|secret| [[5000, 80], [5001, 80], [5000, 81]].map(|ports| initial(secret, 0, ports)))
        .collect();
    assert_eq!(all.len(), 60);
    // Offsets of adjacent ports are far from each other: what one connection tells does not help to guess another.
    let distances = (5000..5020).map(|port| {
        let of = |port| initial(1, 0, [port, 80]);
        of(port + 1).wrapping_sub(of(port)).cast_signed().unsigned_abs()
    });
    assert!(distances.min().unwrap() > 1 << 20);
}
