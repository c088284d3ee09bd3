//! The generator over real rings: the two ends of a pipe.

use ringway_pktgen::run::{Load, ping, pong, receive, transmit};
use ringway_pktgen::{Checker, Flows, Generator, Line, Rate, Rest, RingLine, Sizes};
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::RingListener;
use ringway_ring::Geometry;
use ringway_ring_client::{Ring, RingOptions};
use ringway_wire::MacAddress;
use std::time::Duration;

const BOUND: Option<Duration> = Some(Duration::from_secs(20));

/// A pipe and its two ends.
fn pipe(name: &str) -> (RingLine, RingLine, Pipe) {
    let path = std::env::temp_dir().join(format!("ringway-pktgen-test-{}-{name}", std::process::id()));
    let listener = RingListener::bind(&path, Default::default()).unwrap();
    let mut pipe = Pipe::new(Geometry::default());
    let ends = [0, 1].map(|_| {
        let path = path.clone();
        std::thread::spawn(move || Ring::connect_with(&path, RingOptions::default(), BOUND).unwrap())
    });
    for _ in 0..2 {
        let (newcomer, hello) = listener.wait(None).unwrap();
        pipe.join(newcomer, hello).unwrap();
    }
    let [one, two] = ends.map(|end| RingLine::new(end.join().unwrap(), None));
    (one, two, pipe)
}

#[test]
fn every_frame_of_a_sender_comes_to_a_receiver() {
    let (mut one, mut two, _pipe) = pipe("frames");
    let generator = Generator::new(&Sizes::imix(), &Flows::default()).unwrap();
    let receiver = std::thread::spawn(move || {
        let mut checker = Checker::new(9..=9).starting_at(0, 0);
        receive(&mut two, &mut checker, |checker, _| checker.frames() < 50_000).unwrap();
        checker.received(Some(50_000))
    });
    let load = Load { rate: Rate::Most, first: 0, frames: Some(50_000), time: None };
    let sent = transmit(&mut one, &generator, load, |_, _| true).unwrap();
    let received = receiver.join().unwrap();
    assert_eq!((received.frames, received.bytes, received.lost), (sent.frames, sent.bytes, 0));
    assert_eq!((received.corrupted, received.reordered, received.duplicates, received.foreign), (0, 0, 0, 0));
    assert!(received.latency.frames == 50_000 && received.latency.max > 0);
}

#[test]
fn pings_are_answered_and_a_closed_pipe_ends_both() {
    let (mut one, mut two, pipe) = pipe("pings");
    let generator = Generator::new(&Sizes::all(60).unwrap(), &Flows::default()).unwrap();
    let answers =
        std::thread::spawn(move || pong(&mut two, MacAddress([2, 0, 0, 0, 0, 2]), |_, _, _| true).map(drop));
    let checker = Checker::of_answers(&Flows::default());
    let load = Load { rate: Rate::Frames(10_000.0), first: 0, frames: Some(200), time: None };
    let (pinged, _) = ping(&mut one, &generator, checker, load, 20_000_000_000, |_, _, _| true).unwrap();
    assert_eq!((pinged.sent, pinged.received, pinged.lost), (200, 200, 0));
    assert!(pinged.latency.min > 0);
    drop((one, pipe));
    assert!(answers.join().unwrap().is_err(), "the ring is closed");
}

#[test]
fn a_line_that_polls_notices_that_it_is_closed() {
    let (one, mut two, _pipe) = pipe("closed");
    let mut one = one.polling();
    let now = one.now();
    one.rest(Rest::Frames, now + 1_000_000_000).unwrap();
    drop(_pipe);
    let closes = |line: &mut RingLine| {
        let now = line.now();
        (0..1_000_000).any(|_| line.rest(Rest::Frames, now + 1_000_000).is_err())
    };
    assert!(closes(&mut two));
}
