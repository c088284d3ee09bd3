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

/// Passes frames between two stacks until none is left.
fn pass(now: u64, stacks: [&mut Stack; 2]) {
    let [one, other] = stacks;
    let mut frames = Frames::default();
    for _ in 0..8 {
        one.transmit(now, 0, &mut frames);
        frames.iter().for_each(|(frame, offload)| other.receive(now, 0, frame, offload));
        frames.clear();
        other.transmit(now, 0, &mut frames);
        frames.iter().for_each(|(frame, offload)| one.receive(now, 0, frame, offload));
        frames.clear();
    }
}

/// Whether a connection of a new host at the address and port of a former one, whose connection is in TIME-WAIT at the
/// server, is accepted at once. `shared`: both hosts have the same secret.
fn successor_is_accepted(number: u64, shared: bool) -> bool {
    let mut server = stack(2, 1);
    let listener = server.listen(([10, 0, 0, 2], 80).into(), 16).unwrap();
    let (from, to) = (([10, 0, 0, 1], 5000).into(), ([10, 0, 0, 2], 80).into());
    let mut connect = |now: u64, seed: u64| {
        let mut client = stack(1, seed);
        if shared {
            client.set_sequence_secret([number, number + 1]);
        }
        let socket = client.connect_from(now, from, to).unwrap();
        pass(now, [&mut client, &mut server]);
        let accepted = server.accept(listener).ok().map(|accepted| accepted.socket);
        if let Some(accepted) = accepted {
            // The server closes first, and so waits.
            server.close(now, accepted).unwrap();
            pass(now, [&mut client, &mut server]);
            client.close(now, socket).unwrap();
            pass(now, [&mut client, &mut server]);
        }
        accepted.is_some()
    };
    assert!(connect(SECOND, number + 10));
    connect(2 * SECOND, number + 1000)
}

#[test]
fn a_successor_with_the_same_secret_is_accepted_in_time_wait() {
    assert!((0..50).all(|number| successor_is_accepted(number, true)));
    // Otherwise it depends on chance (RFC 6191).
    let accepted = (0..50).filter(|number| successor_is_accepted(*number, false)).count();
    assert!((1..50).contains(&accepted), "{accepted}");
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
