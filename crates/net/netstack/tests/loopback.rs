//! A stack's connections to itself (RFC 1122, 3.2.1.3).
#![allow(clippy::unwrap_used)]

use crate::common::{drain, fill, host};
use ringway_frame::{Needs, Offload};
use ringway_netstack::{Frames, MS, Settings, SocketError, Stack};
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Protocol, U16, U32, Udp};

/// Lets the stack work without a network; no frame leaves it.
fn alone(stack: &mut Stack, now: u64) {
    let mut frames = Frames::default();
    stack.expire(now);
    stack.transmit(now, 0, &mut frames);
    assert!(frames.is_empty());
}

#[test]
fn a_stream_to_an_own_address_does_not_leave_the_stack() {
    const LEN: u64 = 1_000_000;
    for offloads in [Needs::NONE, Needs::ALL] {
        for address in ["10.0.0.1:80", "127.0.0.1:80", "[fd00::1]:80", "[::1]:80"] {
            let mut stack = host(1, Settings::default(), offloads);
            let any = if address.starts_with('[') { "[::]:80" } else { "0.0.0.0:80" };
            let listener = stack.listen(any.parse().unwrap(), 1).unwrap();
            let client = stack.connect(0, address.parse().unwrap()).unwrap();
            alone(&mut stack, 0);
            let server = stack.accept(listener).unwrap();
            assert_eq!(
                server.peer.ip().to_string(),
                stack.addresses(server.socket).unwrap().0.ip().to_string()
            );
            let (mut now, mut sent, mut read) = (0, 0, 0);
            while read < LEN {
                sent = fill(&mut stack, now, client, sent, LEN);
                read = drain(&mut stack, now, server.socket, read);
                alone(&mut stack, now);
                now += MS;
                assert!(now < 10_000 * MS, "{address}: {read} of {LEN}");
            }
        }
    }
}

#[test]
fn own_addresses_are_not_believed_from_outside() {
    let mut stack = host(1, Settings::default(), Needs::NONE);
    let socket = stack.bind("0.0.0.0:53".parse().unwrap()).unwrap();
    stack.send_to(0, socket, b"inside", "127.0.0.1:53".parse().unwrap()).unwrap();
    alone(&mut stack, 0);
    assert_eq!(stack.recv_from(socket), Ok((b"inside".to_vec(), "127.0.0.1:53".parse().unwrap())));
    for (source, destination) in [([10, 0, 0, 1], [10, 0, 0, 1]), ([127, 0, 0, 1], [10, 0, 0, 1])] {
        let ethernet = Ethernet {
            destination: [2, 0, 0, 0, 0, 1].into(),
            source: [2, 0, 0, 0, 0, 2].into(),
            ethertype: EtherType::IPV4,
        };
        let udp = Udp { destination_port: U16::new(53), length: U16::new(8), ..Udp::default() };
        let mut ip = Ipv4 {
            total_length: U16::new(28),
            ttl: 64,
            protocol: Protocol::UDP,
            source: U32::from_bytes(source),
            destination: U32::from_bytes(destination),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        stack.receive(0, 0, &[ethernet.bytes(), ip.bytes(), udp.bytes()].concat(), Offload::default());
        assert_eq!(stack.recv_from(socket), Err(SocketError::WouldBlock));
    }
    let local = stack.bind("127.0.0.1:54".parse().unwrap()).unwrap();
    let outside = stack.send_to(0, local, b"x", "10.0.0.2:53".parse().unwrap());
    assert_eq!(outside, Err(SocketError::Unreachable));
}
