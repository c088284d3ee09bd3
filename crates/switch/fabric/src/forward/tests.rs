//! Tests of forwarding between queues that are plain lists.

mod overload;

use super::wait::{LOCK_HOLD, PEER_HOLD};
use super::*;
use crate::capture::{CaptureBuffer, CapturePoint};
use crate::mirror::{MirrorRule, MirrorTarget};
use crate::policy::PortPolicy;
use crate::topology::{Steer, Switch};
use proptest::prelude::*;
use ringway_frame::{Caps, Lost, Needs, Offload, Reason, RxQueue};
use ringway_mem::{Reader, Span};
use ringway_spec as spec;
use ringway_switch::snooping::Snooping;
use ringway_switch::{Learning, Table};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

pub(super) const HOLD: u64 = 100_000;

/// Frames have static lifetime, so that spans of them are valid during the whole test.
pub(super) fn frame(to: u8, from: u8, len: usize) -> &'static [u8] {
    let mut bytes = vec![0xa5; len.max(14)];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0]);
    if to == 0xff {
        bytes[..6].fill(0xff);
    }
    bytes.truncate(len);
    Box::leak(bytes.into_boxed_slice())
}

#[derive(Default)]
pub(super) struct Peer {
    sends: VecDeque<&'static [u8]>,
    got: Vec<Vec<u8>>,
    polls: usize,
    room: usize,
    /// Whether room depends on an outstanding request.
    asks: bool,
    away: bool,
    published: usize,
    /// Whether it can delay notifications until the end of a turn; whether it does now, and the number of turns that
    /// ended.
    can_hold: bool,
    held: bool,
    ended: usize,
    /// The undeliverable frames that each `put` reports.
    lost: Lost,
    /// Metadata of the frames it sends.
    pub(super) offload: Offload,
    /// Offloads that it takes, and metadata of the frames that it got.
    pub(super) takes: Needs,
    pub(super) got_offloads: Vec<Offload>,
    /// Whether half of its queue is full, if that is known.
    pub(super) half: Option<bool>,
    /// Number of frames that wait, if it is a function on a worker.
    pub(super) waiting: Option<usize>,
    /// Bytes of its longest frame that are no packet's, unless as usual.
    pub(super) framing: Option<u32>,
    /// Its room at the next times that somebody reserves some.
    pub(super) rooms: VecDeque<usize>,
    /// The length from which on it refuses frames, and which of the reserved ones it refuses.
    pub(super) refuses: Option<u32>,
    refused: Vec<bool>,
}

impl Peer {
    pub(super) fn set_away(&mut self, is_away: bool) {
        self.away = is_away;
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Peer>>);

impl TxQueue for Shared {
    fn take<'t>(&mut self, _turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let mut peer = self.0.lock().unwrap();
        peer.polls += 1;
        for bytes in &peer.sends {
            if burst.push(peer.offload, Span::of(bytes)).is_err() {
                break;
            }
        }
    }

    fn release(&mut self, _turn: &Turn<'_>, frames: usize) {
        self.0.lock().unwrap().sends.drain(..frames);
    }

    fn arm(&mut self, _turn: &Turn<'_>) -> bool {
        self.0.lock().unwrap().sends.is_empty()
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {}

    fn is_half_full(&mut self, _turn: &Turn<'_>) -> Option<bool> {
        self.0.lock().unwrap().half
    }
}

impl RxQueue for Shared {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        let peer = self.0.lock().unwrap();
        (!peer.away).then_some(Caps { offloads: peer.takes, largest: 9000 })
    }

    fn framing(&self) -> u32 {
        self.0.lock().unwrap().framing.unwrap_or(22)
    }

    fn wants_joined(&self) -> bool {
        true
    }

    fn reserve(&mut self, _turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize {
        let mut peer = self.0.lock().unwrap();
        let most = peer.refuses.unwrap_or(u32::MAX);
        peer.refused = which.iter().map(|frame| burst.meta(usize::from(*frame)).len > most).collect();
        peer.room = peer.rooms.pop_front().unwrap_or(peer.room);
        peer.room.min(which.len())
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        self.0.lock().unwrap().refused.get(place).is_some_and(|refused| *refused).then_some(Reason::Long)
    }

    fn put(&mut self, _turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let mut peer = self.0.lock().unwrap();
        assert!(which.len() <= peer.room, "more was put than was reserved");
        peer.room -= which.len();
        for &index in which {
            let mut bytes = vec![0; burst.meta(usize::from(index)).len as usize];
            burst.read(usize::from(index), 0, &mut bytes);
            peer.got.push(bytes);
            peer.got_offloads.push(burst.meta(usize::from(index)).offload);
        }
        peer.lost
    }

    fn publish(&mut self, _turn: &Turn<'_>) {
        let mut peer = self.0.lock().unwrap();
        peer.published += 1;
        peer.held = peer.can_hold;
    }

    fn waiting(&self) -> Option<usize> {
        self.0.lock().unwrap().waiting
    }

    fn awaits_translation(&self) -> bool {
        self.0.lock().unwrap().asks
    }

    fn defers_signal(&self) -> bool {
        self.0.lock().unwrap().held
    }

    fn end_turn(&mut self, _turn: &Turn<'_>) {
        let mut peer = self.0.lock().unwrap();
        peer.held = false;
        peer.ended += 1;
    }

    fn next_due(&self) -> Option<u64> {
        self.0.lock().unwrap().held.then_some(u64::MAX)
    }
}

pub(super) struct Bench {
    peers: Vec<Shared>,
    topology: Topology,
    sources: Vec<Source>,
    forwarder: Forwarder,
    reader: Reader,
    pub(super) now: u64,
    /// The number of the captures.
    epoch: u64,
}

impl Bench {
    /// Ports 0.. on one learning switch.
    pub(super) fn new(ports: u16) -> Bench {
        let lookup = Arc::new(Learning::new(Table::new(64, 16, 300, 64, 11), false));
        let switch =
            Arc::new(Switch { lookup, members: (0..ports).collect(), has_policies: false, snooping: None });
        Bench::with(ports, |_| Target::Switch(switch.clone()))
    }

    pub(super) fn with(ports: u16, target: impl Fn(u16) -> Target) -> Bench {
        let peers: Vec<Shared> = (0..ports).map(|_| Shared::default()).collect();
        let mut topology = Topology::default();
        let mut sources = Vec::new();
        for (id, peer) in (0..ports).zip(&peers) {
            peer.0.lock().unwrap().room = usize::MAX;
            let counters = CountersRef::private();
            topology.rx.push(Arc::new(RxSlot::new(Box::new(peer.clone()), id, counters.clone(), None)));
            let steer: Option<Arc<Steer>> = None;
            let port = Port {
                name: id.to_string().into(),
                target: target(id),
                first: u32::from(id),
                queues: 1,
                hold: HOLD,
                held: None,
                steer,
                budget: None,
                is_suspect: false,
                place: None,
                policy: None,
                captures: None,
                mirrors: None,
                reassembly: None,
            };
            topology.ports.push(Some(Arc::new(port)));
            sources.push(Source::new(Box::new(peer.clone()), id, 0, counters));
        }
        let reader = Reader::register().expect("tests take few slots");
        let meter = Meter::new(Default::default());
        let forwarder = Forwarder::new(FlowHash::new(1), meter);
        Bench { peers, topology, sources, forwarder, reader, now: 1, epoch: 0 }
    }

    pub(super) fn send(&self, port: usize, frames: &[&'static [u8]]) {
        self.peers[port].0.lock().unwrap().sends.extend(frames);
    }

    pub(super) fn serve(&mut self, port: usize) -> Served {
        let turn = self.reader.turn(self.now);
        let served = self.forwarder.serve(&turn, &self.topology, &mut self.sources[port]);
        // At the end of the turn.
        self.forwarder.deliver_mirrored(&turn, 0);
        served
    }

    pub(super) fn change(&self, port: usize, change: impl FnOnce(&mut Peer)) {
        change(&mut self.peers[port].0.lock().unwrap());
    }

    pub(super) fn set_place(&mut self, port: usize, place: crate::instances::InstanceSide) {
        if let Some(slot) = Arc::get_mut(&mut self.topology.rx[port]) {
            slot.place = Some(place);
        }
    }

    pub(super) fn set_worker(&mut self, port: usize, worker: usize) {
        self.sources[port].worker = worker;
    }

    /// Makes these the captures of all ports.
    pub(super) fn capture(&mut self, buffers: &[Arc<CaptureBuffer>]) {
        if !self.topology.has_captures {
            self.epoch += 1;
        }
        self.topology.has_captures = !buffers.is_empty();
        self.topology.is_observed |= self.topology.has_captures;
        for (id, port) in self.topology.ports.iter_mut().enumerate() {
            let list = buffers.iter().map(|buffer| (buffer.clone(), id as u16)).collect();
            let all = CapturePoint { epoch: self.epoch, list };
            let captures = (!buffers.is_empty()).then(|| Arc::new(all));
            port.as_mut().and_then(Arc::get_mut).unwrap().captures = captures;
        }
    }

    /// Makes a port get copies of frames from other ports, and to them.
    pub(super) fn mirror(
        &mut self,
        by: usize,
        ports: &[usize],
        (from, to): (bool, bool),
        change: impl FnOnce(&mut MirrorTarget),
    ) {
        let own = self.topology.port(by as u16).unwrap();
        let mut target = MirrorTarget {
            port: by as u16,
            slots: vec![self.topology.rx[by].clone()],
            steer: None,
            policy: own.policy.clone(),
            captures: own.captures.clone(),
            vlans: None,
            snap: u32::MAX,
            tag: None,
        };
        change(&mut target);
        let rule = MirrorRule { from, to, target: Arc::new(target) };
        self.topology.is_observed = true;
        for port in ports {
            let port = self.topology.ports[*port].as_mut().and_then(Arc::get_mut).unwrap();
            let before = port.mirrors.as_deref().unwrap_or_default();
            port.mirrors = Some(before.iter().chain([&rule]).cloned().collect());
        }
    }

    /// Says whether segments for a port are joined.
    pub(super) fn set_reassembly(&mut self, port: usize, reassembly: Option<bool>) {
        let port = self.topology.ports[port].as_mut().and_then(Arc::get_mut).unwrap();
        port.reassembly = reassembly;
    }

    /// Lets all ports get copies that flow tables make.
    pub(super) fn receive_flown(&mut self) {
        let target = |id: usize| MirrorTarget {
            port: id as u16,
            slots: vec![self.topology.rx[id].clone()],
            steer: None,
            policy: None,
            captures: None,
            vlans: None,
            snap: u32::MAX,
            tag: None,
        };
        let receivers = self.ports().map(|id| Some(Arc::new(target(id)))).collect();
        self.topology.receivers = receivers;
    }

    /// A port's RX queue.
    pub(super) fn slot(&self, port: usize) -> Arc<RxSlot> {
        self.topology.rx[port].clone()
    }

    /// Ends a turn; when the next one is due.
    pub(super) fn end_turn(&mut self) -> Option<u64> {
        let turn = self.reader.turn(self.now);
        if self.forwarder.is_done() { None } else { self.forwarder.publish_due(&turn) }
    }

    pub(super) fn counters(&self, port: usize) -> CountersRef {
        self.sources[port].counters.clone()
    }

    pub(super) fn got(&self, port: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.peers[port].0.lock().unwrap().got)
    }

    pub(super) fn set_room(&self, port: usize, room: usize) {
        self.peers[port].0.lock().unwrap().room = room;
    }

    fn rx_drops(&self, port: usize, reason: Reason) -> u64 {
        self.topology.rx[port].counters.rx_drops_of(reason).load(Relaxed)
    }

    fn tx_drops(&self, port: usize, reason: Reason) -> u64 {
        self.sources[port].counters.tx_drops_of(reason).load(Relaxed)
    }

    pub(super) fn set_hold(&mut self, hold: u64) {
        for port in &mut self.topology.ports {
            port.as_mut().and_then(Arc::get_mut).unwrap().hold = hold;
        }
    }

    /// The numbers of all ports.
    pub(super) fn ports(&self) -> std::ops::Range<usize> {
        0..self.peers.len()
    }

    /// Number of addresses that the switch knows.
    pub(super) fn known(&self) -> usize {
        match self.topology.port(0).map(|port| &port.target) {
            Some(Target::Switch(switch)) => switch.lookup.entries(self.now).len(),
            _ => 0,
        }
    }

    /// Sends a frame from every port's station in one of its VLANs: the native one, or the first that it carries.
    pub(super) fn teach_vlans(&mut self) {
        for port in self.ports() {
            let policy = self.topology.port(port as u16).and_then(|port| port.policy.clone());
            let rules = policy.as_ref().and_then(|policy| policy.vlans.as_ref());
            let mut bytes = frame(0xff, port as u8, 60).to_vec();
            if let Some(vlan) = rules
                .filter(|rules| rules.arriving(None).is_none())
                .and_then(|rules| (1..4095).find(|vlan| rules.carries(*vlan)))
            {
                bytes.splice(12..12, [0x81, 0].into_iter().chain(vlan.to_be_bytes()));
            }
            self.send(port, &[Box::leak(bytes.into_boxed_slice())]);
            assert_eq!(self.serve(port), Served::Moved(1));
        }
        self.ports().for_each(|port| drop(self.got(port)));
    }

    /// Makes the switch snoop.
    pub(super) fn snoop(&mut self) {
        // All ports have the same switch.
        let mut shared = None;
        for port in &mut self.topology.ports {
            let port = port.as_mut().and_then(Arc::get_mut).unwrap();
            if let Target::Switch(switch) = &mut port.target {
                let (lookup, members) = (switch.lookup.clone(), switch.members.clone());
                let (has_policies, snooping) = (switch.has_policies, Some(Arc::new(Snooping::new(false))));
                let new = || Arc::new(Switch { lookup, members, has_policies, snooping });
                *switch = shared.get_or_insert_with(new).clone();
            }
        }
    }

    /// Gives ports policies.
    pub(super) fn set_policies(&mut self, policies: &[spec::Policy]) {
        let policies: Vec<_> = policies.iter().map(PortPolicy::of).collect();
        let has_policies = policies.iter().any(Option::is_some);
        // All ports have the same switch.
        let mut shared = None;
        for (port, policy) in self.topology.ports.iter_mut().zip(policies) {
            let port = port.as_mut().and_then(Arc::get_mut).unwrap();
            port.policy = policy;
            if let Target::Switch(switch) = &mut port.target {
                let (lookup, members) = (switch.lookup.clone(), switch.members.clone());
                let snooping = switch.snooping.clone();
                let new = || Arc::new(Switch { lookup, members, has_policies, snooping });
                *switch = shared.get_or_insert_with(new).clone();
            }
        }
    }

    /// What would become of a frame.
    pub(super) fn trace(&mut self, port: usize, frame: &[u8]) -> Traced {
        self.trace_with(port, frame, Offload::default())
    }

    pub(super) fn trace_with(&mut self, port: usize, frame: &[u8], offload: Offload) -> Traced {
        let turn = self.reader.turn(self.now);
        self.forwarder.trace(&turn, &self.topology, port as u16, (frame, offload), &[])
    }

    /// Sends a frame in the place of a port's peer; whether it left.
    pub(super) fn inject(&mut self, port: usize, frame: &[u8]) -> bool {
        let queue = Box::new(OneFrame::new(frame.to_vec(), Offload::default()));
        let mut source = Source::new(queue, port as u16, 0, self.counters(port));
        let turn = self.reader.turn(self.now);
        let mut served = || self.forwarder.serve(&turn, &self.topology, &mut source);
        (0..OneFrame::SERVED).any(|_| matches!(served(), Served::Moved(_)))
    }

    /// The counters of all ports, as words.
    pub(super) fn all_counters(&self) -> Vec<Vec<u64>> {
        let words = |source: &Source| {
            let own = &source.counters;
            let drops = own.all_tx_drops().chain(own.all_rx_drops());
            let other = [&own.tx_frames, &own.rx_frames, &own.bursts, &own.moved];
            drops.chain(other).map(|count| count.load(Relaxed)).collect()
        };
        self.sources.iter().map(words).collect()
    }

    /// Where frames were dropped, and why, since the counters were these.
    pub(super) fn drops_since(&self, before: &[Vec<u64>]) -> Vec<(usize, Reason)> {
        let mut drops = Vec::new();
        for (port, (now, before)) in self.all_counters().iter().zip(before).enumerate() {
            for (at, (now, before)) in now.iter().zip(before).enumerate().take(2 * Reason::COUNT) {
                drops.extend((*before..*now).map(|_| (port, Reason::ALL[at % Reason::COUNT])));
            }
        }
        drops
    }

    /// Sends a frame from every port's station, so that the switch learns all of them.
    pub(super) fn teach(&mut self) {
        for port in 0..self.peers.len() {
            self.send(port, &[frame(0xff, port as u8, 60)]);
            assert_eq!(self.serve(port), Served::Moved(1));
        }
        (0..self.peers.len()).for_each(|port| drop(self.got(port)));
    }
}

#[test]
fn only_unknown_addresses_are_flooded() {
    let mut bench = Bench::new(3);
    bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Moved(1));
    assert_eq!((bench.got(0).len(), bench.got(1).len(), bench.got(2).len()), (0, 1, 1));
    bench.send(1, &[frame(0, 1, 1514), frame(0, 1, 60)]);
    assert_eq!(bench.serve(1), Served::Moved(2));
    assert_eq!(bench.got(0), [frame(0, 1, 1514), frame(0, 1, 60)]);
    assert!(bench.got(2).is_empty());
    assert_eq!(bench.serve(1), Served::Idle);
}

#[test]
fn frames_without_room_wait_in_their_ring_and_are_dropped_after_hold() {
    let mut bench = Bench::new(2);
    bench.teach();
    bench.set_room(1, 2);
    bench.send(0, &[frame(1, 0, 60); 5]);
    assert_eq!(bench.serve(0), Served::Moved(2));
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.now += HOLD - 1;
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.set_room(1, 1);
    assert_eq!(bench.serve(0), Served::Moved(1), "room came in time");
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.now += HOLD;
    assert_eq!(bench.serve(0), Served::Waiting, "the destination is now known to be stalled");
    assert_eq!(bench.serve(0), Served::Moved(2));
    assert_eq!((bench.got(1).len(), bench.rx_drops(1, Reason::Full)), (3, 2));
    bench.send(0, &[frame(1, 0, 60)]);
    bench.set_room(1, 1);
    assert_eq!(bench.serve(0), Served::Moved(1), "it takes frames again");
    bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Moved(1), "but it is not yet waited for");
    assert_eq!(bench.rx_drops(1, Reason::Full), 3);
    bench.now += 20 * HOLD;
    bench.send(0, &[frame(1, 0, 60)]);
    bench.set_room(1, 1);
    assert_eq!(bench.serve(0), Served::Moved(1));
    bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Waiting, "now it is");
}

#[test]
fn an_outstanding_translation_extends_the_wait_within_bounds() {
    let mut bench = Bench::new(3);
    bench.teach();
    bench.set_room(1, 0);
    bench.peers[1].0.lock().unwrap().asks = true;
    bench.send(0, &[frame(1, 0, 60); 5]);
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.now += PEER_HOLD - 1;
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.set_room(1, 5);
    assert_eq!(bench.serve(0), Served::Moved(5), "the answer came in time");
    assert_eq!((bench.got(1).len(), bench.rx_drops(1, Reason::Full)), (5, 0));
    // Room that never comes, with frames for other destinations behind.
    bench.set_room(1, 0);
    bench.send(0, &[frame(1, 0, 60), frame(2, 0, 60)]);
    let begin = bench.now;
    while bench.got(2).is_empty() {
        bench.serve(0);
        bench.now += 1000;
    }
    assert!(bench.now - begin <= PEER_HOLD + 2000, "{}", bench.now - begin);
    assert_eq!(bench.rx_drops(1, Reason::Full), 1);
    bench.send(0, &[frame(1, 0, 60), frame(2, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Moved(2), "nobody waits for it a second time");
    // With `hold` 0, frames do not wait.
    Arc::get_mut(bench.topology.ports[0].as_mut().unwrap()).unwrap().hold = 0;
    bench.now += 1000 * PEER_HOLD;
    bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Moved(1));
}

#[test]
fn no_frame_is_taken_from_a_port_at_rest() {
    let mut bench = Bench::new(3);
    bench.teach();
    bench.send(0, &[frame(1, 0, 60)]);
    let mut hold = |held: Option<Arc<crate::topology::Held>>| {
        let port = bench.topology.ports[0].as_mut().and_then(Arc::get_mut).unwrap();
        port.held = held;
        let before = bench.peers[0].0.lock().unwrap().polls;
        let served = bench.serve(0);
        (served, bench.peers[0].0.lock().unwrap().polls - before)
    };
    assert_eq!(hold(Some(crate::topology::Held::new(None))), (Served::Idle, 0));
    let watched = crate::topology::Held::new(Some(Arc::new(ringway_host::EventFd::new().unwrap())));
    assert_eq!(hold(Some(watched)), (Served::Waiting, 1), "its first frame is waited for");
    assert_eq!(hold(None), (Served::Moved(1), 1));
    assert_eq!(bench.got(1).len(), 1);
}

#[test]
fn the_wait_for_a_queue_held_by_another_worker_is_bounded() {
    let mut bench = Bench::new(3);
    bench.teach();
    let slot = bench.topology.rx[1].clone();
    let other = slot.queue.lock().unwrap();
    bench.send(0, &[frame(1, 0, 60), frame(2, 0, 60), frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.now += LOCK_HOLD - 1;
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.now += 1;
    assert_eq!(bench.serve(0), Served::Waiting, "the worker is no longer waited for");
    assert_eq!(bench.serve(0), Served::Moved(3));
    assert_eq!((bench.got(2).len(), bench.tx_drops(0, Reason::Busy)), (1, 2));
    drop(other);
    bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!((bench.serve(0), bench.got(1).len()), (Served::Moved(1), 1));
    let _other = slot.queue.lock().unwrap();
    bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Waiting, "another time it is waited for again");
}

#[test]
fn a_flooded_frame_is_retried_once_for_a_queue_held_by_another_worker() {
    let mut bench = Bench::new(4);
    bench.teach();
    let slot = bench.topology.rx[1].clone();
    let other = slot.queue.lock().unwrap();
    bench.send(0, &[frame(0xff, 0, 60), frame(0xff, 0, 61)]);
    assert_eq!(bench.serve(0), Served::Waiting);
    assert_eq!((bench.got(2).len(), bench.got(3).len()), (2, 2), "nobody else waits");
    drop(other);
    assert_eq!(bench.serve(0), Served::Moved(2));
    assert_eq!((bench.got(1).len(), bench.got(2).len(), bench.got(3).len()), (2, 0, 0));
    let _other = slot.queue.lock().unwrap();
    bench.send(0, &[frame(0xff, 0, 60)]);
    assert_eq!((bench.serve(0), bench.serve(0)), (Served::Waiting, Served::Moved(1)));
    assert_eq!((bench.got(2).len(), bench.tx_drops(0, Reason::Busy)), (1, 1));
}

#[test]
fn a_full_port_delays_no_other_port() {
    let mut bench = Bench::new(4);
    bench.teach();
    bench.set_room(1, 0);
    bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.send(3, &[frame(2, 3, 60); 3]);
    assert_eq!(bench.serve(3), Served::Moved(3));
    assert_eq!(bench.got(2).len(), 3);
}

#[test]
fn a_slow_destination_does_not_slow_frames_to_other_ports() {
    let mut bench = Bench::new(3);
    bench.teach();
    bench.set_room(1, 0);
    let (mut delivered, mut turns) = (0, 0);
    while delivered < 20_000 {
        if bench.peers[0].0.lock().unwrap().sends.len() < 64 {
            bench.send(0, &[frame(1, 0, 60), frame(2, 0, 60)]);
        }
        if turns % 90 == 0 {
            bench.set_room(1, 1);
        }
        bench.serve(0);
        delivered += bench.got(2).len();
        bench.now += 1000;
        turns += 1;
    }
    // One frame per turn, except in the part of the time for which port 1 may delay them.
    assert!(turns < 20_000 * 9 / 8, "{turns}");
    assert!(bench.got(1).len() > 200, "it still gets what it has room for");
}

#[test]
fn a_port_slower_than_its_only_sender_loses_no_frames() {
    let mut bench = Bench::new(2);
    bench.teach();
    bench.send(0, &[frame(1, 0, 60); 1000]);
    for turn in 0..100_000 {
        bench.set_room(1, usize::from(turn % 90 == 0));
        bench.serve(0);
        bench.now += 1000;
    }
    assert_eq!((bench.got(1).len(), bench.rx_drops(1, Reason::Full)), (1000, 0));
}

#[test]
fn a_large_flood_takes_several_turns() {
    let mut bench = Bench::new(300);
    bench.teach();
    let long = frame(0xff, 0, 9000);
    bench.send(0, &[long, long, frame(0xff, 0, 60), frame(0xff, 0, 60)]);
    let mut turns = 0;
    while bench.serve(0) != Served::Idle {
        let bytes: usize = (1..300).flat_map(|port| bench.got(port)).map(|frame| frame.len()).sum();
        assert!(bytes <= 2 << 20);
        turns += 1;
    }
    assert_eq!(turns, 5, "two for each long frame, one for the rest");
    let counts: Vec<u64> =
        bench.topology.rx.iter().map(|slot| slot.counters.rx_frames.load(Relaxed)).collect();
    let taught = 299;
    assert_eq!(counts[0], taught);
    assert!(counts[1..].iter().all(|&count| count == taught + 4), "each has each frame once: {counts:?}");
    assert_eq!(bench.sources[0].counters.tx_frames.load(Relaxed), 5);
}

#[test]
fn notifications_of_several_sources_are_combined_at_the_end_of_the_turn() {
    let mut bench = Bench::new(4);
    bench.teach();
    bench.peers[1].0.lock().unwrap().can_hold = true;
    for port in [0, 2, 3] {
        bench.send(port, &[frame(1, port as u8, 60)]);
        bench.serve(port);
    }
    let ended = |bench: &Bench| bench.peers[1].0.lock().unwrap().ended;
    assert_eq!((ended(&bench), bench.forwarder.due.len()), (0, 1));
    let turn = bench.reader.turn(bench.now);
    assert_eq!(bench.forwarder.publish_due(&turn), None);
    assert_eq!((ended(&bench), bench.forwarder.due.len()), (1, 0));
}

#[test]
fn frames_dropped_by_the_queue_are_not_counted_as_delivered() {
    let mut bench = Bench::new(2);
    bench.teach();
    bench.peers[1].0.lock().unwrap().lost = Lost { frames: 1, bytes: 60 };
    let frames = |bench: &Bench| {
        let counters = &bench.topology.rx[1].counters;
        (counters.rx_frames.load(Relaxed), counters.rx_bytes.load(Relaxed))
    };
    let before = frames(&bench);
    bench.send(0, &[frame(1, 0, 60), frame(1, 0, 100), frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Moved(3));
    assert_eq!(frames(&bench), (before.0 + 2, before.1 + 160));
}

#[test]
fn broken_frames_are_dropped_and_counted() {
    let mut bench = Bench::new(2);
    bench.teach();
    let mut group_source = frame(1, 0, 60).to_vec();
    group_source[6] = 3;
    let group_source: &'static [u8] = Box::leak(group_source.into_boxed_slice());
    bench.send(0, &[frame(1, 0, 13), group_source, frame(0, 0, 60), frame(1, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Moved(4));
    assert_eq!(bench.got(1).len(), 1);
    let drops = [Reason::Short, Reason::BadSource, Reason::Hairpin].map(|reason| bench.tx_drops(0, reason));
    assert_eq!(drops, [1, 1, 1]);
}

#[test]
fn a_disconnected_peer_delays_nobody() {
    let mut bench = Bench::new(2);
    bench.teach();
    bench.peers[1].0.lock().unwrap().away = true;
    bench.send(0, &[frame(1, 0, 60), frame(0xff, 0, 60)]);
    assert_eq!(bench.serve(0), Served::Moved(2));
    assert_eq!(bench.rx_drops(1, Reason::Down), 2);
}

#[test]
fn a_frame_too_long_for_its_destination_is_dropped() {
    let mut bench = Bench::new(3);
    bench.teach();
    bench.send(0, &[frame(1, 0, 9001), frame(1, 0, 9000), frame(0xff, 0, 9001)]);
    while bench.serve(0) != Served::Idle {}
    assert_eq!((bench.got(1).len(), bench.got(2).len()), (1, 0));
    assert_eq!((bench.rx_drops(1, Reason::Long), bench.rx_drops(2, Reason::Long)), (2, 1));
}

#[test]
fn a_frame_that_never_fits_is_dropped_after_hold() {
    let mut bench = Bench::new(2);
    bench.teach();
    // IPv4 and TCP with 4000 bytes in segments of 1000, for a destination that has room for two of the four.
    let mut bytes = frame(1, 0, 54 + 4000).to_vec();
    bytes[14..34].copy_from_slice(&[0x45, 0, 15, 200, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[34..54].copy_from_slice(&[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bench.peers[0].0.lock().unwrap().offload =
        Offload { gso_type: 1, gso_size: 1000, ..Offload::checksum(34, 16) };
    bench.set_room(1, 2);
    bench.send(0, &[Box::leak(bytes.into_boxed_slice())]);
    assert_eq!(bench.serve(0), Served::Waiting);
    bench.now += HOLD;
    assert_eq!(bench.serve(0), Served::Waiting, "the destination is now known to be stalled");
    assert_eq!(bench.serve(0), Served::Moved(1));
    assert_eq!((bench.got(1).len(), bench.rx_drops(1, Reason::Full)), (0, 1));
}

proptest! {
    /// Each frame arrives at the right destination once and in order, or is counted as dropped.
    #[test]
    fn frames_are_conserved_and_kept_in_order(
        sends in prop::collection::vec((prop::sample::select(vec![1, 2, 3, 9, 0xff]), 60usize..1514), 1..200),
        rooms in prop::collection::vec(0usize..40, 3..60),
    ) {
        let mut bench = Bench::new(4);
        bench.teach();
        let frames: Vec<_> = sends.iter().map(|&(to, len)| frame(to, 0, len)).collect();
        bench.send(0, &frames);
        let mut got = vec![Vec::new(); 4];
        let mut rooms = rooms.iter().cycle();
        for _ in 0..10_000 {
            (1..4).for_each(|port| bench.set_room(port, *rooms.next().unwrap()));
            if bench.serve(0) == Served::Idle {
                break;
            }
            bench.now += HOLD / 3;
            (1..4).for_each(|port| got[port].append(&mut bench.got(port)));
        }
        prop_assert!(bench.peers[0].0.lock().unwrap().sends.is_empty());
        for port in 1..4u8 {
            let wanted = frames.iter().filter(|frame| [port, 9, 0xff].contains(&frame[5]));
            let wanted: Vec<Vec<u8>> = wanted.map(|frame| frame.to_vec()).collect();
            let got = &got[usize::from(port)];
            let dropped = bench.rx_drops(usize::from(port), Reason::Full) as usize;
            prop_assert_eq!(got.len() + dropped, wanted.len());
            // The received frames are the sent ones, with gaps for drops.
            let mut rest = wanted.iter();
            prop_assert!(got.iter().all(|frame| rest.any(|sent| sent == frame)));
        }
    }
}
