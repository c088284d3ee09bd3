//! A link port in virtual time.

use super::{Now, Settings, peer::open_at};
use crate::{Context, Doorbell, Peer, Queue, Silent};
use proptest::prelude::*;
use ringway_frame::{Burst, CountersRef, Offload, Reason, Storage};
use ringway_host::EventFd;
use ringway_link::{Capacity, CoDelSettings, Delay, Loss, Queue as Discipline};
use ringway_mem::{Reader, Span};
use ringway_spec::{Kind, Port};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    Settings(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
}

fn port(pairs: &[(&str, &str)]) -> Port {
    Port::new("wan/a", Kind::new("link", &settings(pairs)), None)
}

/// A port in turns that take no time.
fn open(pairs: &[(&str, &str)]) -> (Box<dyn Peer>, Queue, CountersRef) {
    open_with(&port(pairs), Box::new(|| 0))
}

fn open_with(port: &Port, now: Now) -> (Box<dyn Peer>, Queue, CountersRef) {
    let (check, counters) = (Arc::new(EventFd::new().unwrap()), CountersRef::private());
    let doorbells: Vec<Arc<dyn Doorbell>> = vec![Arc::new(Silent)];
    let context =
        Context { port, doorbells, counters: std::slice::from_ref(&counters), check: &check, keeper: None };
    let (peer, mut queues) = open_at(context, now).unwrap();
    (peer, queues.pop().unwrap(), counters)
}

fn send(reader: &mut Reader, queue: &mut Queue, now: u64, frames: &[&[u8]]) {
    let turn = reader.turn(now);
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    frames.iter().for_each(|frame| burst.push(Offload::default(), Span::of(frame)).unwrap());
    let which: Vec<u16> = (0..frames.len() as u16).collect();
    assert_eq!(queue.rx.reserve(&turn, &burst, &which), frames.len());
    assert_eq!(queue.rx.put(&turn, &burst, &which).frames, 0);
    queue.rx.publish(&turn);
}

/// Frames that leave at `now`, of which `release` are released.
fn receive(reader: &mut Reader, queue: &mut Queue, now: u64, release: usize) -> Vec<Vec<u8>> {
    let turn = reader.turn(now);
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(&turn, &mut burst);
    let read = |index| {
        let mut bytes = vec![0; burst.meta(index).len as usize];
        burst.read(index, 0, &mut bytes);
        bytes
    };
    let frames = (0..burst.len()).map(read).collect();
    queue.tx.release(&turn, release);
    frames
}

const MS: u64 = 1_000_000;

#[test]
fn frames_leave_when_they_are_due_and_unreleased_ones_again() {
    let mut reader = Reader::register().unwrap();
    let (_peer, mut queue, _) = open(&[("delay", "10ms"), ("rate", "8Mbit")]);
    send(&mut reader, &mut queue, MS, &[&[1; 1000], &[2; 500]]);
    assert!(receive(&mut reader, &mut queue, 12 * MS - 1, 9).is_empty());
    assert!(queue.tx.arm(&reader.turn(12 * MS - 81_000)));
    assert_eq!(queue.tx.next_due(), Some(12 * MS - 80_000));
    assert!(!queue.tx.arm(&reader.turn(12 * MS - 80_000)), "polled shortly before a frame is due");
    assert_eq!(receive(&mut reader, &mut queue, 12 * MS, 0), [vec![1; 1000]]);
    assert_eq!(receive(&mut reader, &mut queue, 12 * MS + MS / 2, 2), [vec![1; 1000], vec![2; 500]]);
    assert!(receive(&mut reader, &mut queue, 20 * MS, 9).is_empty());
    assert!(queue.tx.arm(&reader.turn(20 * MS)));
    assert_eq!(queue.tx.next_due(), None);
}

#[test]
fn drops_are_counted_by_reason() {
    let mut reader = Reader::register().unwrap();
    let (peer, mut queue, counters) =
        open(&[("rate", "8Mbit"), ("limit", "2"), ("loss-trace", "01"), ("mtu", "1000")]);
    send(&mut reader, &mut queue, MS, &[&[0; 1015], &[1; 1000], &[2; 1000], &[3; 1000], &[4; 1000]]);
    assert_eq!(receive(&mut reader, &mut queue, 9 * MS, 2), [vec![1; 1000], vec![3; 1000]]);
    let count = |reason: Reason| counters.tx_drops[reason as usize].load(Relaxed);
    assert_eq!([count(Reason::Long), count(Reason::Full), count(Reason::Lost)], [1, 1, 1]);
    assert_eq!(peer.gauges()["queued"], 0);
}

#[test]
fn settings_change_while_frames_are_under_way() {
    let mut reader = Reader::register().unwrap();
    let (mut peer, mut queue, _) = open(&[("delay", "10ms")]);
    send(&mut reader, &mut queue, MS, &[&[1; 60]]);
    assert!(receive(&mut reader, &mut queue, MS, 0).is_empty());
    assert_eq!(peer.gauges()["in-flight"], 1);
    peer.change(&port(&[("delay", "20ms")])).unwrap();
    assert!(!queue.tx.arm(&reader.turn(2 * MS)), "the change is made in the next turn");
    assert!(receive(&mut reader, &mut queue, 3 * MS, 0).is_empty());
    send(&mut reader, &mut queue, 4 * MS, &[&[2; 60]]);
    assert_eq!(receive(&mut reader, &mut queue, 11 * MS, 1), [vec![1; 60]]);
    assert!(receive(&mut reader, &mut queue, 24 * MS - 1, 1).is_empty());
    assert_eq!(receive(&mut reader, &mut queue, 24 * MS, 1), [vec![2; 60]]);
    assert!(peer.change(&port(&[("delay", "soon")])).is_err());
}

/// Which of 200 frames arrive, and their delays.
fn pattern(name: &str, pairs: &[(&str, &str)]) -> (Vec<u8>, Vec<u64>) {
    let mut reader = Reader::register().unwrap();
    let port = Port { name: name.into(), ..port(pairs) };
    let (_peer, mut queue, _) = open_with(&port, Box::new(|| 0));
    let (mut arrived, mut delays) = (Vec::new(), Vec::new());
    for number in 0..200_u8 {
        let now = MS + u64::from(number) * 100 * MS;
        send(&mut reader, &mut queue, now, &[&[number; 60]]);
        for delay in (0..80).map(|half| half * MS / 2) {
            let frames = receive(&mut reader, &mut queue, now + delay, 9);
            delays.extend(frames.iter().map(|_| delay));
            arrived.extend(frames.iter().map(|frame| frame[0]));
        }
    }
    (arrived, delays)
}

#[test]
fn links_and_their_directions_have_different_random_numbers() {
    let pairs = [("loss", "20%"), ("delay", "20ms"), ("jitter", "15ms")];
    let seeded = [&pairs[..], &[("seed", "7")]].concat();
    let all = [
        pattern("wan/a", &pairs),
        pattern("wan/b", &pairs),
        pattern("lan/a", &pairs),
        pattern("wan/a", &seeded),
        pattern("wan/b", &seeded),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!((130..190).contains(&one.0.len()), "{}", one.0.len());
        for other in &all[..index] {
            assert!(one.0 != other.0 && one.1 != other.1, "{index}");
            // Independent losses of 20% both spare a frame with 64%, equal ones with 80%.
            let both = one.0.iter().filter(|number| other.0.contains(number)).count();
            assert!((100..150).contains(&both), "{index}: {both}");
        }
    }
    assert_eq!(all[0], pattern("wan/a", &pairs), "the same link is the same again");
    assert_eq!(all[4], pattern("wan/b", &seeded));
}

proptest! {
    /// A worker loses its core inside its turn, while frames are sent: no frame leaves before its delay has expired.
    #[test]
    fn no_frame_is_early(
        turns in prop::collection::vec((0..3 * MS, 0..9 * MS, 0.0..1.0_f64, 0..9 * MS), 1..60),
        jitter in 0..5_u64,
        reorder: bool,
    ) {
        const LEAST: u64 = 5;
        let clock = Arc::new(AtomicU64::new(MS));
        let shown = clock.clone();
        let mut reader = Reader::register().unwrap();
        let (jitter, reorder) = (format!("{jitter}ms"), reorder.to_string());
        let delay = format!("{}ms", LEAST + 5);
        let pairs = [("delay", &*delay), ("jitter", &*jitter), ("reorder", &*reorder)];
        let (peer, mut queue, _) = open_with(&port(&pairs), Box::new(move || shown.load(Relaxed)));
        let (mut sent, mut received) = (Vec::new(), 0);
        let rests = std::iter::repeat_n((MS, 0, 0.0, 0), 40);
        for (number, (pause, lost, part, rest)) in turns.iter().copied().chain(rests).enumerate() {
            // The source's worker, which takes the frame some time after its turn began.
            let began = clock.fetch_add(pause, Relaxed) + pause;
            clock.fetch_add(lost, Relaxed);
            if number < turns.len() {
                sent.push(began + (lost as f64 * part) as u64);
                send(&mut reader, &mut queue, began, &[&[number as u8; 60]]);
            }
            // The link's worker.
            let now = clock.load(Relaxed);
            clock.fetch_add(rest, Relaxed);
            for frame in receive(&mut reader, &mut queue, now, usize::MAX) {
                let left = clock.load(Relaxed);
                prop_assert!(left - sent[usize::from(frame[0])] >= LEAST * MS);
                received += 1;
            }
        }
        prop_assert_eq!(received, sent.len());
        let gauges = peer.gauges();
        prop_assert_eq!((gauges["carried"], gauges["lost"]), (sent.len() as u64, 0));
        prop_assert!(gauges["delay-mean"] >= LEAST * MS);
        prop_assert_eq!(gauges["late"] > 0, gauges["latest"] > super::observed::LATE);
    }
}

#[test]
fn what_is_observed_begins_again_with_new_settings() {
    let mut reader = Reader::register().unwrap();
    let (mut peer, mut queue, _) = open(&[("delay", "10ms"), ("loss-trace", "01")]);
    send(&mut reader, &mut queue, MS, &[&[1; 60], &[2; 60], &[3; 60]]);
    assert_eq!(receive(&mut reader, &mut queue, 14 * MS, 9).len(), 2);
    let seen = |peer: &dyn Peer| {
        let gauges = peer.gauges();
        ["delay-mean", "delay-sd", "carried", "lost", "late", "latest", "last-late"].map(|name| gauges[name])
    };
    assert_eq!(seen(&*peer), [13 * MS, 0, 3, 1, 2, 3 * MS, 14 * MS], "3 ms late");
    send(&mut reader, &mut queue, 15 * MS, &[&[4; 60]]);
    peer.change(&port(&[("delay", "2ms")])).unwrap();
    assert!(receive(&mut reader, &mut queue, 16 * MS, 9).is_empty());
    assert_eq!(seen(&*peer), [0; 7], "lateness is that of the new settings too");
    send(&mut reader, &mut queue, 30 * MS, &[&[5; 60], &[6; 60]]);
    assert!(receive(&mut reader, &mut queue, 30 * MS, 9).is_empty());
    assert_eq!(receive(&mut reader, &mut queue, 32 * MS, 9).len(), 2);
    assert_eq!(seen(&*peer), [2 * MS, 0, 2, 0, 0, 0, 0]);
}

#[test]
fn values_are_read_with_their_units_and_errors_name_their_key() {
    let all = settings(&[
        ("rate", "2.5Gbit"),
        ("delay", "50ms"),
        ("jitter", "5ms"),
        ("distribution", "pareto"),
        ("loss", "gemodel 1% 20% 90%"),
        ("queue", "red 30KB 90KB 10%"),
        ("limit", "1.5BDP"),
        ("ecn", "false"),
        ("seed", "7"),
    ]);
    let (profile, seed) = all.profile().unwrap();
    assert_eq!((profile.rate, seed), (Some(2_500_000_000), 7));
    for (key, value) in [
        ("rate", "100"),
        ("rate", "-1Mbit"),
        ("delay", "50"),
        ("delay", "1000s"),
        ("distribution", "flat"),
        ("delay-trace", ""),
        ("loss", "101%"),
        ("loss", "gemodel 1%"),
        ("loss-trace", "012"),
        ("loss-trace", ""),
        ("mark", "2"),
        ("queue", "red"),
        ("queue", "lifo"),
        ("limit", "0"),
        ("rate", "10Mbps"),
        ("mtu", "67"),
        ("memory", "1KB"),
        ("reorder", "yes"),
        ("seed", "-1"),
    ] {
        let wrong = settings(&[(key, value)]).profile().unwrap_err();
        assert_eq!(wrong.key, key, "{value}");
    }
    assert_eq!(settings(&[("limit", "1BDP")]).profile().unwrap_err().key, "limit", "no rate");
    let both = settings(&[("delay", "1ms"), ("delay-trace", "1ms 2ms")]);
    assert_eq!(both.profile().unwrap_err().what, "`delay-trace` and `delay` are both set");
}

#[test]
fn every_model_of_the_emulator_has_a_setting() {
    let one = |key: &str, value: &str| settings(&[(key, value)]).profile().unwrap().0;
    let jitter = |distribution| {
        let all = [("delay", "5ms"), ("jitter", "1ms"), ("distribution", distribution)];
        settings(&all).profile().unwrap().0.delay
    };
    assert_eq!(one("delay", "5ms").delay, Delay::Constant(5 * MS));
    assert_eq!(jitter("uniform"), Delay::Uniform { delay: 5 * MS, jitter: MS });
    assert_eq!(jitter("normal"), Delay::Normal { delay: 5 * MS, jitter: MS });
    assert_eq!(jitter("pareto"), Delay::Pareto { delay: 5 * MS, jitter: MS });
    assert_eq!(one("delay-trace", "1ms\n2ms\n").delay, Delay::Trace([MS, 2 * MS].into()));
    assert_eq!(one("loss", "1%").loss, Loss::Random(0.01));
    let bursts = Loss::GilbertElliott { worse: 0.01, better: 0.25, good: 0.0, bad: 0.5 };
    assert_eq!(one("loss", "gemodel 1% 25% 50%").loss, bursts);
    assert_eq!(one("loss-trace", "01\n1").loss, Loss::Trace([false, true, true].into()));
    let (mark, limit) = (Some(30 << 10), Capacity::Frames(1000));
    assert_eq!(one("queue", "droptail mark 30KB").queue, Discipline::DropTail { limit, mark });
    let coarse = CoDelSettings { target: 10 * MS, interval: 200 * MS, ecn: true };
    assert_eq!(one("queue", "codel 10ms 200ms").queue, Discipline::CoDel { settings: coarse, limit });
    let (settings, limit) = (CoDelSettings::default(), Capacity::Frames(10_240));
    assert_eq!(
        one("queue", "fq-codel").queue,
        Discipline::FqCoDel { settings, limit, flows: 1024, quantum: 1514 }
    );
    assert_eq!(one("queue", "fq_codel").queue, one("queue", "fq-codel").queue);
    assert_eq!(one("loss", "random 1%").loss, Loss::Random(0.01));
    assert_eq!(
        (one("rate", "100mbit").rate, one("rate", "10mbps").rate),
        (Some(100_000_000), Some(80_000_000))
    );
    assert_eq!((one("mark", "0.5").mark, one("corrupt", "1%").corrupt), (0.5, 0.01));
    assert_eq!((one("duplicate", "1%").duplicate, one("reorder", "true").reorder), (0.01, true));
    assert_eq!((one("mtu", "1500").mtu, one("overhead", "24").overhead), (Some(1500), 24));
}
