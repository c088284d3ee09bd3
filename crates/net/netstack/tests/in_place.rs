//! Segments of which only the headers are in the stack's memory.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_frame::{Needs, Offload};
use ringway_mem::Span;
use ringway_netstack::{Cidr, Frames, InterfaceConfig, MS, Reader, Settings, SocketId, Source, Stack};
use std::sync::Arc;

/// What a device copies of a frame: the headers of a TCP segment.
const HEAD: usize = 128;
const STREAM: usize = 300_000;

fn host(last: u8, v6: bool) -> Stack {
    let mut stack = Stack::new(Settings::default(), [u64::from(last), 7]);
    let address = match v6 {
        true => Cidr::new([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)], 64),
        false => Cidr::new([10, 0, 0, last], 24),
    };
    let (mac, offloads) = ([2, 0, 0, 0, 0, last].into(), Needs::ALL);
    stack.add_interface(InterfaceConfig { mac, mtu: 1500, addresses: vec![address], offloads });
    stack
}

/// Delivers a frame in pieces. Returns whether it was received in place.
fn deliver(
    now: u64,
    to: &mut Stack,
    frame: &[u8],
    offload: Offload,
    piece: usize,
    reader: Option<&mut Reader<'_>>,
) -> bool {
    let (head, rest) = frame.split_at(frame.len().min(HEAD));
    let rest: Vec<Span<'_>> = rest.chunks(piece).map(Span::of).collect();
    let in_place = to.receive_in_place(now, 0, head, &rest, offload, reader);
    if !in_place {
        to.receive(now, 0, frame, offload);
    }
    in_place
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn bytes_are_copied_once(
        v6: bool, shared: bool, piece in 100_usize..5000, lose in 5_usize..50, read in 0_usize..200_000,
    ) {
        let (mut client, mut server) = (host(1, v6), host(2, v6));
        let (any, remote) = if v6 { ("[::]:80", "[fd00::2]:80") } else { ("0.0.0.0:80", "10.0.0.2:80") };
        let listener = server.listen(any.parse().unwrap(), 16).unwrap();
        let socket = client.connect(0, remote.parse().unwrap()).unwrap();
        let stream: Vec<u8> = (0..STREAM).map(|at| (at * 7 % 251) as u8).collect();
        let source: Arc<dyn Source> = Arc::new(stream.clone());
        let (mut sent, mut received) = (0, Vec::new());
        let mut accepted: Option<SocketId> = None;
        let (mut large, mut in_place, mut data, mut direct) = (0, 0, 0, 0);
        for round in 0..2000 {
            let now = round * MS;
            loop {
                let result = match shared {
                    // Parts that are not joined.
                    true if sent % 3000 < 1000 => {
                        client.send(now, socket, &stream[sent..STREAM.min(sent + 500)])
                    }
                    true => client.send_shared(now, socket, &source, sent..STREAM.min(sent + 20_000)),
                    false => client.send(now, socket, &stream[sent..]),
                };
                let Ok(count @ 1..) = result else { break };
                sent += count;
            }
            for back in [false, true] {
                let (from, to) = if back { (&mut server, &mut client) } else { (&mut client, &mut server) };
                // The server's program waits with a buffer in every other round.
                let mut buffer = vec![0; if back || round % 2 == 0 { 0 } else { read }];
                let mut reader = accepted.map(|socket| Reader::new(socket, &mut buffer));
                let mut frames = Frames::default();
                from.expire(now);
                from.transmit(now, 0, &mut frames);
                for (frame, offload) in frames.iter() {
                    data += usize::from(!back && frame.len() > HEAD);
                    if !back && frame.len() > HEAD && data % lose == 0 {
                        continue;
                    }
                    let placed = deliver(now, to, frame, offload, piece, reader.as_mut());
                    if frame.len() > HEAD {
                        (large, in_place) = (large + 1, in_place + usize::from(placed));
                    }
                }
                let filled = reader.map_or(0, |reader| reader.filled());
                received.extend_from_slice(&buffer[..filled]);
                direct += filled;
            }
            accepted = accepted.or_else(|| server.accept(listener).ok().map(|accepted| accepted.socket));
            let Some(accepted) = accepted else { continue };
            let mut bytes = [0; 10_000];
            while let Ok(count @ 1..) = server.recv(now, accepted, &mut bytes) {
                received.extend_from_slice(&bytes[..count]);
            }
            if received.len() == STREAM {
                break;
            }
        }
        prop_assert!(received == stream, "{} of {STREAM} bytes", received.len());
        // The first bytes arrive with the handshake's last segment.
        prop_assert!(in_place + 1 >= large, "{in_place} of {large}");
        prop_assert!(server.statistics().in_place >= in_place as u64);
        prop_assert!(read < 2000 || direct > 0);
    }
}

#[test]
fn frames_that_need_a_check_are_refused() {
    let (mut client, mut server) = (host(1, false), host(2, false));
    server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    client.connect(0, "10.0.0.2:80".parse().unwrap()).unwrap();
    let mut frames = Frames::default();
    for _ in 0..2 {
        client.transmit(0, 0, &mut frames);
        for (frame, offload) in frames.iter() {
            // A question for an address, then a SYN: neither belongs to an open connection.
            assert!(!server.receive_in_place(0, 0, frame, &[], offload, None));
            server.receive(0, 0, frame, offload);
        }
        frames.clear();
        server.transmit(0, 0, &mut frames);
        for (frame, _) in frames.iter() {
            // Without metadata the checksum must be verified.
            assert!(!client.receive_in_place(0, 0, frame, &[], Offload::default(), None));
            client.receive(0, 0, frame, Offload::default());
        }
        frames.clear();
    }
    assert_eq!((client.statistics().in_place, server.statistics().in_place), (0, 0));
}
