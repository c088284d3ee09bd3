//! A stack that answers in place of all hosts behind it.
#![allow(clippy::unwrap_used)]

use crate::common::host;
use ringway_frame::{Needs, Offload};
use ringway_netstack::{Cidr, ConnectionError, Frames, Settings, Stack};

/// A program's host, and its gateway.
fn hosts() -> [Stack; 2] {
    let mut hosts = [1, 2].map(|last| host(last, Settings::default(), Needs::NONE));
    hosts[0].add_route(Cidr::new([0, 0, 0, 0], 0), [10, 0, 0, 2].into(), 0);
    hosts
}

/// Carries all frames, but those that the gateway rejects.
fn carry(now: &mut u64, hosts: &mut [Stack; 2], rejects: impl Fn(&[u8]) -> bool) {
    let mut frames = Frames::default();
    for _ in 0..20 {
        for from in 0..2 {
            hosts[from].expire(*now);
            hosts[from].transmit(*now, 0, &mut frames);
            for (frame, offload) in frames.iter() {
                if from == 0 && rejects(frame) {
                    hosts[1].reject(*now, 0, frame);
                } else {
                    hosts[1 - from].receive(*now, 0, frame, offload);
                }
            }
            frames.clear();
        }
        *now += 1000;
    }
}

#[test]
fn connections_and_datagrams_to_any_host_reach_its_sockets() {
    let mut hosts = hosts();
    let mut now = 0;
    let (to, datagrams_to) = ("192.0.2.7:80".parse().unwrap(), "192.0.2.8:53".parse().unwrap());
    let any = hosts[1].listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let bound = hosts[1].bind(datagrams_to).unwrap();
    let udp = hosts[0].bind("10.0.0.1:5000".parse().unwrap()).unwrap();
    // Before it serves all, it is a host as any other.
    let ignored = hosts[0].connect(now, to).unwrap();
    hosts[0].send_to(now, udp, b"lost", datagrams_to).unwrap();
    carry(&mut now, &mut hosts, |_| false);
    assert!(hosts[1].accept(any).is_err() && hosts[1].recv_from(bound).is_err());
    hosts[0].abort(now, ignored).unwrap();

    hosts[1].serve_all_addresses(0);
    let socket = hosts[0].connect(now, to).unwrap();
    hosts[0].send(now, socket, b"hello").unwrap();
    hosts[0].send_to(now, udp, b"question", datagrams_to).unwrap();
    carry(&mut now, &mut hosts, |_| false);
    let accepted = hosts[1].accept(any).unwrap().socket;
    assert_eq!(hosts[1].addresses(accepted).unwrap().0, to);
    let mut bytes = [0; 9];
    assert_eq!(hosts[1].recv(now, accepted, &mut bytes), Ok(5));
    hosts[1].send(now, accepted, b"answer").unwrap();
    let (question, from) = hosts[1].recv_from(bound).unwrap();
    assert_eq!((&question[..], from), (&b"question"[..], "10.0.0.1:5000".parse().unwrap()));
    hosts[1].send_to(now, bound, b"reply", from).unwrap();
    carry(&mut now, &mut hosts, |_| false);
    assert_eq!(hosts[0].recv(now, socket, &mut bytes), Ok(6));
    assert_eq!(hosts[0].recv_from(udp).unwrap(), (b"reply".to_vec(), datagrams_to));
}

#[test]
fn it_answers_nothing_else_for_other_hosts() {
    let mut hosts = hosts();
    hosts[1].serve_all_addresses(0);
    let mut now = 0;
    // Nobody listens: refused, as by the host itself.
    let refused = hosts[0].connect(now, "192.0.2.7:80".parse().unwrap()).unwrap();
    carry(&mut now, &mut hosts, |_| false);
    assert_eq!(hosts[0].error(refused).unwrap(), Some(ConnectionError::Refused));
    // Neither groups nor broadcasts are hosts.
    let before = hosts[1].statistics().datagrams_in;
    let udp = hosts[0].bind("10.0.0.1:5000".parse().unwrap()).unwrap();
    let at_all = hosts[1].bind("0.0.0.0:7".parse().unwrap()).unwrap();
    hosts[0].send_to(now, udp, b"x", "10.0.0.2:7".parse().unwrap()).unwrap();
    carry(&mut now, &mut hosts, |_| false);
    assert_eq!(hosts[1].statistics().datagrams_in, before + 1);
    assert!(hosts[1].recv_from(at_all).is_ok());
    // An echo request to another host is none of ours.
    let [mut frames, mut echoes] = [Frames::default(), Frames::default()];
    hosts[0].send_to(now, udp, b"12345678", "192.0.2.7:7".parse().unwrap()).unwrap();
    hosts[0].transmit(now, 0, &mut frames);
    let (frame, _) = frames.iter().next().unwrap();
    let mut echo = frame.to_vec();
    echo[23] = 1;
    echo[34..].fill(0);
    (echo[34], echo[36]) = (8, 0xf7);
    echo[37] = 0xff;
    // The checksum of the header, with another protocol.
    echo[24..26].fill(0);
    let sum: u32 =
        echo[14..34].as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    echo[24..26].copy_from_slice(&sum.to_be_bytes());
    let not_for_us = hosts[1].statistics().not_for_us;
    hosts[1].receive(now, 0, &echo, Offload::default());
    hosts[1].transmit(now, 0, &mut echoes);
    assert_eq!((hosts[1].statistics().not_for_us, echoes.is_empty()), (not_for_us + 1, true));
}

#[test]
fn a_rejected_connection_is_told_that_the_host_is_unreachable() {
    let mut hosts = hosts();
    hosts[1].serve_all_addresses(0);
    let mut now = 0;
    let socket = hosts[0].connect(now, "192.0.2.7:80".parse().unwrap()).unwrap();
    // TCP to 192.0.2.7.
    carry(&mut now, &mut hosts, |frame| frame.get(23) == Some(&6) && frame.get(30) == Some(&192));
    assert_eq!(hosts[0].error(socket).unwrap(), Some(ConnectionError::Unreachable));
    hosts[1].reject(now, 0, b"no frame");
}

#[test]
fn frames_that_no_socket_would_get_are_not_admitted() {
    let mut hosts = hosts();
    let mut now = 0;
    hosts[1].serve_all_addresses(0);
    let udp = hosts[0].bind("10.0.0.1:5000".parse().unwrap()).unwrap();
    let send = |now: u64, hosts: &mut [Stack; 2], to: &str| {
        hosts[0].send_to(now, udp, b"question", to.parse().unwrap()).unwrap();
        let mut frames = Frames::default();
        hosts[0].transmit(now, 0, &mut frames);
        let all: Vec<_> = frames.iter().map(|(frame, offload)| (frame.to_vec(), offload)).collect();
        all
    };
    // Until the gateway's link-layer address is known.
    hosts[0].connect(now, "192.0.2.7:80".parse().unwrap()).unwrap();
    carry(&mut now, &mut hosts, |_| false);
    for (to, admits) in [("192.0.2.7:53", true), ("10.0.0.2:53", true)] {
        let (frame, offload) = send(now, &mut hosts, to).pop().unwrap();
        assert_eq!(hosts[1].admits(0, &frame, offload), admits, "{to}");
        // Another host's link-layer address, a group's as the source, no host as the source, and a wrong checksum.
        for (at, bits) in [(5, 0xff), (6, 1), (26, 10 ^ 127), (frame.len() - 1, 1)] {
            let mut wrong = frame.clone();
            wrong[at] ^= bits;
            assert!(!hosts[1].admits(0, &wrong, offload), "{to} {at}");
        }
        for len in 0..frame.len() {
            assert!(!hosts[1].admits(0, &frame[..len], offload), "{len}");
        }
    }
}
