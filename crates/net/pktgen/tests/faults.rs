//! Faults of a device are counted exactly.

use crate::virtual_line::{Fate, VirtualLine};
use proptest::prelude::*;
use ringway_pktgen::rfc2544::{Verdict, run_trial};
use ringway_pktgen::run::{Load, Sent, ping, receive, transmit};
use ringway_pktgen::{Checker, Flows, Generator, Rate, Sizes};

fn generator() -> Generator {
    Generator::new(&Sizes::imix(), &Flows::default()).unwrap()
}

fn load(rate: Rate, frames: u64) -> Load {
    Load { rate, first: 0, frames: Some(frames), time: None }
}

/// Late frames, or damaged ones: a late frame behind one whose number is not known is not known to be late.
fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let of = |other: BoxedStrategy<Fate>| {
        let fate = prop_oneof![
            20 => Just(Fate::Arrives),
            1 => Just(Fate::Lost),
            1 => Just(Fate::Twice),
            1 => other,
        ];
        prop::collection::vec(fate, 1..300)
    };
    prop_oneof![of(Just(Fate::Late).boxed()), of((0usize..480).prop_map(Fate::Damaged).boxed())]
}

proptest! {
    #[test]
    fn each_fault_is_counted_exactly(fates in fates()) {
        let frames = fates.len() as u64;
        // A late frame that no other follows is lost.
        let followed = |at: usize| {
            fates[at + 1..].iter().find(|fate| **fate != Fate::Lost).is_some_and(|fate| *fate != Fate::Late)
        };
        let count = |wanted: fn(&Fate) -> bool| fates.iter().filter(|fate| wanted(fate)).count() as u64;
        let late = fates.iter().enumerate().filter(|(_, fate)| **fate == Fate::Late);
        let reordered = late.filter(|(at, _)| followed(*at)).count() as u64;
        let lost = count(|fate| *fate == Fate::Lost);
        let damaged = count(|fate| matches!(fate, Fate::Damaged(_)));
        let lost = lost + count(|fate| *fate == Fate::Late) - reordered;
        let given = fates.clone();
        let fate = Box::new(move |number: u64| given[number as usize]);
        let mut line = VirtualLine { fate, ..VirtualLine::new(1e9) };
        let (flows, load) = (Flows::default(), load(Rate::Most, frames));
        let trial = run_trial(&mut line, &generator(), &flows, load, 1_000_000).unwrap();
        let received = &trial.received;
        prop_assert_eq!(trial.sent.frames, frames);
        prop_assert_eq!((received.lost, received.corrupted), (lost, damaged));
        let twice = count(|fate| *fate == Fate::Twice);
        prop_assert_eq!((received.reordered, received.duplicates), (reordered, twice));
        prop_assert_eq!((received.frames, received.foreign), (frames - lost - damaged, 0));
        prop_assert_eq!(trial.verdict == Verdict::Clean, lost + damaged == 0);
    }
}

#[test]
fn a_paced_sender_keeps_its_rate_in_frames_and_in_bits() {
    let generator = generator();
    for rate in [Rate::Frames(200_000.0), Rate::Bits(1e9)] {
        let mut line = VirtualLine::new(1e9);
        let load = Load { rate, first: 0, frames: None, time: Some(500_000_000) };
        let sent = transmit(&mut line, &generator, load, |_, _| true).unwrap();
        let Sent { skipped, refused, .. } = sent;
        let (is, asked) = match rate {
            Rate::Bits(bits) => (sent.bits(), bits),
            Rate::Frames(frames) => (sent.rate(), frames),
            Rate::Most => panic!("a rate"),
        };
        assert!((is / asked - 1.0).abs() < 0.001, "{is} of {asked}");
        assert_eq!((skipped, refused), (0, 0));
    }
}

#[test]
fn a_receiver_measures_latency_and_a_sender_with_a_limit_ends() {
    let generator = generator();
    let mut line = VirtualLine::new(1e9);
    let sent = transmit(&mut line, &generator, load(Rate::Frames(1e6), 5000), |_, _| true).unwrap();
    assert_eq!(sent.frames, 5000);
    let mut line = VirtualLine::new(1e9);
    transmit(&mut line, &generator, load(Rate::Most, 64), |_, _| true).unwrap();
    line.clock += line.delay + 10;
    let mut checker = Checker::new(9..=9);
    receive(&mut line, &mut checker, |checker, _| checker.frames() < 64).unwrap();
    let received = checker.received(None);
    assert_eq!((received.frames, received.lost, received.latency.frames), (64, 0, 64));
    // 64 frames of 20 ns, then the delay.
    assert_eq!((received.latency.min, received.latency.max), (6_290, 6_290));
}

#[test]
fn ping_counts_answers_and_their_times() {
    let fate = Box::new(|number| if number % 10 == 3 { Fate::Lost } else { Fate::Arrives });
    let mut line = VirtualLine { fate, ..VirtualLine::new(1e9) };
    let checker = Checker::of_answers(&Flows::default());
    let (pinged, mut latency) =
        ping(&mut line, &generator(), checker, load(Rate::Most, 100), 1_000_000, |_, _, _| true).unwrap();
    assert_eq!((pinged.sent, pinged.received, pinged.lost), (100, 90, 10));
    assert_eq!((pinged.latency.min, pinged.latency.frames), (5_021, 90));
    assert_eq!(latency.buckets().len(), 1);
    // Ten of them waited a millisecond.
    assert!(line.clock > 1_010_000_000 && line.clock < 1_012_000_000, "{}", line.clock);
}
