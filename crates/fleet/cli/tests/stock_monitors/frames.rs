//! Frames that pass a machine, and that it answers.

use super::{BOUND, Machine, program};
use crate::lab::Lab;
use ringway_ring_client::{Ring, Wait};
use std::time::{Duration, Instant};

/// Frames in each direction.
const FRAMES: usize = 400;

/// The next frame; none within a time.
fn next(ring: &mut Ring, bound: Duration) -> Option<Vec<u8>> {
    let (end, mut frame) = (Instant::now() + bound, [0; 2048]);
    loop {
        if let Some(received) = ring.rx.pop(&mut frame).unwrap() {
            ring.rx.sync().unwrap();
            return Some(frame[..received.len].to_vec());
        }
        let left = end.checked_duration_since(Instant::now())?;
        ring.wait(Wait::RX, Some(left.min(Duration::from_millis(100)))).unwrap();
    }
}

fn send(ring: &mut Ring, frame: &[u8]) {
    ring.tx.push(frame).unwrap();
    ring.sync().unwrap();
}

/// A frame of some length with its number.
fn numbered(number: usize, direction: u8) -> Vec<u8> {
    let len = 60 + number * 37 % 1455;
    let mut frame: Vec<u8> = (0..len).map(|at| (at * 11 + number * 3) as u8).collect();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, direction]);
    frame[12..16].copy_from_slice(&[0x88, 0xb5, (number >> 8) as u8, number as u8]);
    frame
}

/// Sends frames until the first comes through, then all of them.
pub fn passes(from: &mut Ring, to: &mut Ring, direction: u8) {
    let end = Instant::now() + BOUND;
    let hello = numbered(0xffff, direction);
    loop {
        assert!(Instant::now() < end, "no frame comes through");
        send(from, &hello);
        if next(to, Duration::from_millis(200)).is_some_and(|frame| frame == hello) {
            break;
        }
    }
    while next(to, Duration::from_millis(300)).is_some_and(|frame| frame == hello) {}
    for burst in (0..FRAMES).step_by(50) {
        for number in burst..burst + 50 {
            from.tx.push(&numbered(number, direction)).unwrap();
        }
        from.sync().unwrap();
        for number in burst..burst + 50 {
            let frame = next(to, BOUND).unwrap_or_default();
            assert_eq!(frame, numbered(number, direction), "frame {number}");
        }
    }
}

/// The Internet checksum's sum of a header or message.
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// An ARP packet of this operation.
fn arp(operation: u8, [from, to]: [[u8; 6]; 2], target: [u8; 6], [own, other]: [[u8; 4]; 2]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend([from.as_slice(), &own, &target, &other].concat());
    frame.resize(60, 0);
    frame
}

/// An echo request or its reply, in an IP packet; the responder sends replies with another time to live.
fn icmp(kind: u8, [from, to]: [[u8; 6]; 2], [own, other]: [[u8; 4]; 2], number: u8) -> Vec<u8> {
    let ttl = if kind == 0 { 255 } else { 64 };
    let payload: Vec<u8> = (0..56).map(|at| at ^ number).collect();
    let mut message = [&[kind, 0, 0, 0, 0x12, 0x34, 0, number], payload.as_slice()].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut header = [&[0x45, 0, 0, 84, 0, 0, 0, 0, ttl, 1, 0, 0], own.as_slice(), &other].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [to.as_slice(), &from, &[8, 0], &header, &message].concat()
}

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GUEST: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 9]];
/// Answers ARP requests and pings: the documentation's example.
pub const PINGS: &str = "\
FromDevice(eth0) -> kind :: Classifier(12/0806 20/0001, 12/0800, -);
kind[0] -> ARPResponder(10.0.0.9 $MAC) -> out :: ToDevice(eth0);
kind[1] -> CheckIPHeader(14) -> IPClassifier(dst host 10.0.0.9 and icmp type echo) -> Strip(14)
  -> ICMPPingResponder -> Unstrip(14) -> EtherMirror -> out;
kind[2] -> Discard;
";

/// Whether a frame is the answer of a stack to this ping: from its address, with the same bytes.
fn is_reply(frame: &[u8], number: u8) -> bool {
    let [own, guest] = ADDRESSES;
    let expected = icmp(0, [GUEST, OWN], [guest, own], number);
    // The identification, the time to live and so the header's checksum are the stack's own.
    let parts = [0..18, 23..24, 26..34, 34..expected.len()];
    parts.into_iter().all(|part| frame.get(part.clone()) == expected.get(part))
}

/// A program's stack answers for its address, also after the machine has slept; what else it sends is left aside.
pub fn stack_answers_pings(lab: &Lab, machine: &mut Machine) {
    machine.says("running");
    let mut ring = program(lab, "net");
    let [own, guest] = ADDRESSES;
    let end = Instant::now() + BOUND;
    let mut until = |frame: &[u8], is_answer: &dyn Fn(&[u8]) -> bool| loop {
        assert!(Instant::now() < end, "no answer:\n{}", machine.all());
        send(&mut ring, frame);
        while let Some(found) = next(&mut ring, Duration::from_millis(500)) {
            if is_answer(&found) {
                return;
            }
        }
    };
    let answered = arp(2, [GUEST, OWN], OWN, [guest, own]);
    until(&arp(1, [OWN, [0xff; 6]], [0; 6], ADDRESSES), &|frame| frame.starts_with(&answered[..42]));
    for number in 0..20 {
        std::thread::sleep(Duration::from_millis(if number % 5 == 0 { 30 } else { 0 }));
        until(&icmp(8, [OWN, GUEST], [own, guest], number), &|frame| is_reply(frame, number));
    }
}

/// The machine answers for its address, also after it has slept.
pub fn answers_pings(lab: &Lab, machine: &mut Machine) {
    machine.says("running: ");
    let mut ring = program(lab, "net");
    let asked = arp(1, [OWN, [0xff; 6]], [0; 6], ADDRESSES);
    let [own, guest] = ADDRESSES;
    let answered = arp(2, [GUEST, OWN], OWN, [guest, own]);
    let end = Instant::now() + BOUND;
    loop {
        assert!(Instant::now() < end, "no answer:\n{}", machine.all());
        send(&mut ring, &asked);
        if let Some(mut answer) = next(&mut ring, Duration::from_millis(500)) {
            answer.resize(60, 0);
            assert_eq!(answer, answered);
            break;
        }
    }
    while next(&mut ring, Duration::from_millis(300)).is_some() {}
    for number in 0..20 {
        // The machine sleeps between some of them.
        std::thread::sleep(Duration::from_millis(if number % 5 == 0 { 30 } else { 0 }));
        send(&mut ring, &icmp(8, [OWN, GUEST], [own, guest], number));
        let reply = next(&mut ring, BOUND).unwrap_or_default();
        assert_eq!(reply, icmp(0, [GUEST, OWN], [guest, own], number), "ping {number}");
    }
}
