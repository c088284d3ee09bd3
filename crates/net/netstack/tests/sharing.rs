//! Two stacks with the same address: what each of them takes, and what it leaves to the other.
#![allow(clippy::unwrap_used)]

use crate::common::host;
use ringway_frame::{Needs, Offload};
use ringway_netstack::{
    Diverted, Frames, MS, RepairError, SECOND, Settings, SocketError, SocketId, Stack, State,
};
use std::net::SocketAddr;

/// The stack with connections, another one with its address, and their peer.
struct Twins {
    now: u64,
    shared: Stack,
    agent: Stack,
    far: Stack,
}

/// What became of the frames of the peer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Passed {
    shared: usize,
    agent: usize,
}

impl Twins {
    fn new(settings: &Settings) -> Twins {
        let [shared, agent, far] = [1, 1, 2].map(|last| host(last, settings.clone(), Needs::NONE));
        let mut twins = Twins { now: MS, shared, agent, far };
        twins.agent.divert_strays(true);
        twins
    }

    /// Passes a frame of the peer to the stack that takes it, and strays of the agent's to the other one.
    fn give(&mut self, frame: &[u8], passed: &mut Passed) {
        let now = self.now;
        // An answer of ARP, which either may have asked for.
        if frame[12..14] == [8, 6] && frame[21] == 2 {
            self.shared.receive(now, 0, frame, Offload::default());
        }
        if self.shared.takes(now, 0, frame, 0) {
            self.shared.receive(now, 0, frame, Offload::default());
            passed.shared += 1;
        } else {
            self.agent.receive(now, 0, frame, Offload::default());
            passed.agent += 1;
        }
        while let Some(diverted) = self.agent.next_diverted() {
            assert!(diverted.is_stray());
            let bytes = diverted.to_bytes();
            self.shared.receive_stray(now, 0, &Diverted::from_bytes(&bytes).unwrap());
        }
    }

    fn frames(stack: &mut Stack, now: u64) -> Vec<Vec<u8>> {
        stack.expire(now);
        let mut sent = Frames::default();
        stack.transmit(now, 0, &mut sent);
        sent.iter().map(|(frame, _)| frame.to_vec()).collect()
    }

    /// Passes frames until there are none; those of the peer have been changed by `change`.
    fn pass(&mut self, change: impl Fn(Vec<u8>) -> Vec<Vec<u8>>) -> Passed {
        let mut passed = Passed::default();
        loop {
            let mut any = false;
            for frame in Twins::frames(&mut self.far, self.now).into_iter().flat_map(&change) {
                any = true;
                self.give(&frame, &mut passed);
            }
            for near in [&mut self.shared, &mut self.agent] {
                for frame in Twins::frames(near, self.now) {
                    any = true;
                    self.far.receive(self.now, 0, &frame, Offload::default());
                }
            }
            if !any {
                return passed;
            }
        }
    }

    fn whole(&mut self) -> Passed {
        self.pass(|frame| vec![frame])
    }

    /// A connection of the peer to a listener of the first stack, and its ends.
    fn connect(&mut self, listener: SocketId) -> (SocketId, SocketId) {
        let far = self.far.connect(self.now, at(80)).unwrap();
        self.whole();
        (self.shared.accept(listener).unwrap().socket, far)
    }
}

fn at(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

/// A frame with bytes behind its packet, as cards make of those that are too short.
fn pad(mut frame: Vec<u8>) -> Vec<Vec<u8>> {
    frame.resize(frame.len().max(60) + 4, 0xa5);
    vec![frame]
}

/// The two fragments of a frame with TCP; others stay whole.
fn cut(frame: Vec<u8>) -> Vec<Vec<u8>> {
    if frame[12..14] != [8, 0] || frame.len() < 14 + 20 + 16 {
        return vec![frame];
    }
    let (head, payload) = frame[14..].split_at(20);
    let fragment = |at: usize, part: &[u8], more: bool| {
        let mut ip = head.to_vec();
        ip[2..4].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&((at as u16 / 8) | if more { 0x2000 } else { 0 }).to_be_bytes());
        ip[10..12].copy_from_slice(&[0, 0]);
        let words = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        [&frame[..14], &ip, part].concat()
    };
    vec![fragment(0, &payload[..8], true), fragment(8, &payload[8..], false)]
}

#[test]
fn padded_and_divided_segments_reach_their_connection() {
    for change in [pad, cut] {
        let mut twins = Twins::new(&Settings::default());
        let listener = twins.shared.listen(at(80), 9).unwrap();
        twins.agent.listen(at(80), 9).unwrap();
        let (near, far) = twins.connect(listener);
        for round in 0..5 {
            twins.far.send(twins.now, far, b"hello").unwrap();
            twins.pass(change);
            assert_eq!(twins.shared.recv(twins.now, near, &mut [0; 9]), Ok(5), "{round}");
            twins.shared.send(twins.now, near, b"hi").unwrap();
            // The acknowledgment has no bytes.
            twins.now += 100 * MS;
            twins.pass(change);
            assert_eq!(twins.far.recv(twins.now, far, &mut [0; 9]), Ok(2), "{round}");
        }
        twins.far.close(twins.now, far).unwrap();
        twins.pass(change);
        assert!(twins.shared.is_finished(near).unwrap());
        for stack in [&twins.shared, &twins.agent, &twins.far] {
            assert_eq!(stack.statistics().resets_sent, 0);
        }
    }
}

#[test]
fn segments_of_no_connection_are_reset_once() {
    let mut twins = Twins::new(&Settings::default());
    // Neither has a listener.
    let far = twins.far.connect(twins.now, at(81)).unwrap();
    twins.whole();
    assert!(twins.far.error(far).unwrap().is_some());
    let resets = [&twins.shared, &twins.agent].map(|stack| stack.statistics().resets_sent);
    assert_eq!(resets, [1, 0]);
    // One that the agent has is its own.
    let listener = twins.agent.listen(at(81), 9).unwrap();
    twins.far.connect(twins.now, at(81)).unwrap();
    twins.whole();
    assert!(twins.agent.accept(listener).is_ok());
}

#[test]
fn cookies_are_acknowledged_where_they_were_made() {
    let settings = Settings { tcp_syncookies: 2, ..Settings::default() };
    for has_shared in [false, true] {
        let mut twins = Twins::new(&settings);
        let own = twins.agent.listen(at(80), 9).unwrap();
        let listener = twins.shared.listen(at(80), 9).unwrap();
        if !has_shared {
            twins.shared.stop_admitting(listener).unwrap();
        }
        // All know their neighbours: without that, a cookie is sent for the second SYN only.
        twins.far.listen(([10, 0, 0, 2], 9).into(), 9).unwrap();
        for (near, port) in [(&mut twins.shared, 1000), (&mut twins.agent, 1001)] {
            near.connect_from(twins.now, at(port), ([10, 0, 0, 2], 9).into()).unwrap();
        }
        twins.whole();
        twins.far.connect(twins.now, at(80)).unwrap();
        let frames = Twins::frames(&mut twins.far, twins.now);
        frames.iter().for_each(|frame| twins.give(frame, &mut Passed::default()));
        let stacks = [&mut twins.shared, &mut twins.agent];
        let answers: Vec<_> = stacks.into_iter().flat_map(|stack| Twins::frames(stack, twins.now)).collect();
        answers.iter().for_each(|frame| twins.far.receive(twins.now, 0, frame, Offload::default()));
        assert_eq!((frames.len(), answers.len()), (1, 1));
        assert_eq!(twins.shared.expects_cookies(listener), Ok(has_shared));
        // A listener that takes no more still accepts what acknowledges its cookies.
        twins.shared.stop_admitting(listener).unwrap();
        twins.whole();
        let has = [twins.shared.has_connections(listener), twins.agent.has_connections(own)];
        assert_eq!(has, [has_shared, !has_shared]);
        assert_eq!(twins.far.statistics().resets_sent, 0);
    }
}

/// A SYN that the peer, or an attacker, sends again does not begin a second connection.
#[test]
fn listeners_leave_reserved_addresses_alone() {
    let mut twins = Twins::new(&Settings::default());
    let own = twins.agent.listen(at(80), 9).unwrap();
    let far = twins.far.connect(twins.now, at(80)).unwrap();
    let mut syns = Vec::new();
    for _ in 0..2 {
        for frame in Twins::frames(&mut twins.far, twins.now) {
            twins.give(&frame, &mut Passed::default());
            syns.push(frame);
        }
        for frame in Twins::frames(&mut twins.agent, twins.now) {
            twins.far.receive(twins.now, 0, &frame, Offload::default());
        }
    }
    twins.whole();
    let near = twins.agent.accept(own).unwrap().socket;
    let (local, remote) = twins.agent.addresses(near).unwrap();
    twins.shared.listen(at(80), 9).unwrap();
    let syn = syns.pop().unwrap();
    assert!(twins.shared.is_for_listener(0, &syn, 0));
    twins.shared.reserve(local, remote).unwrap();
    assert!(!twins.shared.is_for_listener(0, &syn, 0));
    twins.give(&syn, &mut Passed::default());
    twins.whole();
    twins.far.send(twins.now, far, b"hello").unwrap();
    assert_eq!(twins.whole().shared, 0);
    assert_eq!(twins.agent.recv(twins.now, near, &mut [0; 9]), Ok(5));
    // When it has ended, its addresses are anybody's.
    assert!(twins.agent.is_in_use(local, remote));
    twins.shared.unreserve(local, remote);
    assert!(twins.shared.is_for_listener(0, &syn, 0));
    twins.agent.abort(twins.now, near).unwrap();
    assert!(!twins.agent.is_in_use(local, remote));
}

#[test]
fn only_addresses_that_a_connection_can_have_are_reserved() {
    let mut stack = host(1, Settings::default(), Needs::NONE);
    let of = |text: &str| text.parse::<SocketAddr>().unwrap();
    let [unavailable, unreachable] = [SocketError::AddressNotAvailable, SocketError::Unreachable];
    for (local, remote, error) in [
        ("10.0.0.1:80", "[fd00::2]:1", unavailable),
        ("[fd00::1]:80", "10.0.0.2:1", unavailable),
        ("10.0.0.3:80", "10.0.0.2:1", unavailable),
        ("10.0.0.1:0", "10.0.0.2:1", unavailable),
        ("10.0.0.1:80", "10.0.0.2:0", unreachable),
        ("10.0.0.1:80", "10.0.0.1:9", unreachable),
        ("10.0.0.1:80", "10.0.0.255:9", unreachable),
        ("10.0.0.1:80", "224.0.0.1:9", unreachable),
        ("10.0.0.1:80", "127.0.0.1:9", unreachable),
        ("[fd00::1]:80", "[ff02::1]:9", unreachable),
    ] {
        assert_eq!(stack.reserve(of(local), of(remote)), Err(error), "{local} {remote}");
    }
    for (local, remote) in [("10.0.0.1:80", "10.0.0.2:1"), ("[fd00::1]:80", "[fd00::2]:1")] {
        let id = stack.reserve(of(local), of(remote)).unwrap();
        assert_eq!(stack.lose(MS, id), Ok(()), "{local} {remote}");
    }
}

#[test]
fn a_connection_that_moves_is_not_reset_meanwhile() {
    let mut twins = Twins::new(&Settings::default());
    let listener = twins.shared.listen(at(80), 9).unwrap();
    let (near, far) = twins.connect(listener);
    let bytes = twins.shared.detach(twins.now, near).unwrap();
    let ends = twins.agent.addresses_of(&bytes).unwrap();
    assert_eq!((ends.0, twins.agent.addresses_of(&bytes[1..])), (at(80), None));
    // Nobody has it at this moment.
    twins.far.send(twins.now, far, b"hello").unwrap();
    assert_eq!(twins.whole(), Passed { shared: 0, agent: 1 });
    let moved = twins.agent.attach(twins.now, &bytes).unwrap();
    twins.now += SECOND;
    twins.whole();
    assert_eq!(twins.agent.recv(twins.now, moved, &mut [0; 9]), Ok(5));
    // It may come back.
    let bytes = twins.agent.detach(twins.now, moved).unwrap();
    assert_eq!(twins.shared.attach(twins.now, &bytes), Ok(near));
    assert_eq!(twins.shared.attach(twins.now, &bytes), Err(RepairError::Socket(SocketError::AddressInUse)));
    for stack in [&twins.shared, &twins.agent, &twins.far] {
        assert_eq!(stack.statistics().resets_sent, 0);
    }
}

#[test]
fn a_time_wait_ends_for_a_connection_to_the_other_stack() {
    for keeps in [false, true] {
        let mut twins = Twins::new(&Settings::default());
        let own = twins.agent.listen(at(80), 9).unwrap();
        let listener = twins.shared.listen(at(80), 9).unwrap();
        let (near, far) = twins.connect(listener);
        let (from, _) = twins.far.addresses(far).unwrap();
        twins.shared.shutdown(twins.now, near).unwrap();
        twins.whole();
        twins.far.close(twins.now, far).unwrap();
        twins.whole();
        assert_eq!(twins.shared.info(near).unwrap().tcpi_state, State::TimeWait);
        if !keeps {
            twins.shared.close(twins.now, near).unwrap();
        }
        twins.shared.stop_admitting(listener).unwrap();
        twins.now += SECOND;
        twins.far.connect_from(twins.now, from, at(80)).unwrap();
        twins.whole();
        assert!(twins.agent.has_connections(own), "{keeps}");
        assert_eq!(twins.shared.statistics().resets_sent + twins.far.statistics().resets_sent, 0);
    }
}
