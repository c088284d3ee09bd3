//! MTU, rate, wire and delay.

use super::{MS, Note, after, drain, drops, link, send};
use crate::{Capacity, CoDelSettings, Delay, Link, Loss, Profile, ProfileError, Queue, Reason};
use alloc::sync::Arc;
use alloc::vec::Vec;
use proptest::prelude::*;

#[test]
fn frames_are_serialized_one_after_the_other_and_delayed() {
    // 1250 bytes at 10 Mb/s take 1 ms.
    let mut link = link(Profile { rate: Some(10_000_000), ..after(5 * MS) });
    (0..3).for_each(|number| link.send(Note::new(number, 1250), 0));
    link.send(Note::new(3, 1250), 100 * MS);
    let times: Vec<u64> = drain(&mut link).iter().map(|(_, at)| *at).collect();
    assert_eq!(times, [6 * MS, 7 * MS, 8 * MS, 106 * MS]);
}

#[test]
fn rounding_to_nanoseconds_does_not_add_up() {
    // 1000 bytes at 3 Gb/s take 2666 2/3 ns.
    let mut link = link(Profile { rate: Some(3_000_000_000), ..after(5 * MS) });
    (0..900).for_each(|number| link.send(Note::new(number, 1000), 0));
    let times: Vec<u64> = drain(&mut link).iter().map(|(_, at)| *at).collect();
    assert_eq!(times, (1..=900).map(|number| 5 * MS + number * 8000 / 3).collect::<Vec<u64>>());
}

#[test]
fn overhead_takes_time_on_the_wire() {
    let mut link = link(Profile { rate: Some(1_000_000_000), overhead: 24, ..Profile::default() });
    link.send(Note::new(0, 60), 0);
    assert_eq!(drain(&mut link)[0].1, 84 * 8);
}

#[test]
fn arrival_times_do_not_depend_on_when_one_looks() {
    let profile = Profile { rate: Some(1_000_000), ..after(3 * MS) };
    let run = |often: bool| {
        let mut link = link(profile.clone());
        let mut times = Vec::new();
        for number in 0..50 {
            link.send(Note::new(number, 100), number * MS / 2);
            if often {
                times.extend(core::iter::from_fn(|| link.receive(number * MS / 2)).map(|(_, at)| at));
            }
        }
        times.extend(drain(&mut link).iter().map(|(_, at)| *at));
        times
    };
    assert_eq!(run(true), run(false));
}

/// A process that was stopped, or a clock that jumped: what was under way arrives, and the line makes up for nothing.
#[test]
fn a_line_does_not_make_up_for_a_standstill() {
    let settings = CoDelSettings { target: 5 * MS, interval: 100 * MS, ecn: false };
    let limit = Capacity::Frames(100);
    for queue in [
        Queue::DropTail { limit, mark: None },
        Queue::CoDel { settings, limit },
        Queue::FqCoDel { settings, limit, flows: 1024, quantum: 1514 },
    ] {
        // 1250 bytes at 10 Mb/s take 1 ms.
        let mut link = link(Profile { rate: Some(10_000_000), queue, ..after(5 * MS) });
        send(&mut link, 10, MS / 2, 1250);
        let later = 600_000 * MS;
        let there: Vec<u64> =
            core::iter::from_fn(|| link.receive(later)).map(|(note, _)| note.number).collect();
        assert_eq!(there, (0..10).collect::<Vec<u64>>());
        (0..50).for_each(|number| link.send(Note::new(number, 1250), later));
        assert!(link.receive(later).is_none());
        let times: Vec<u64> = drain(&mut link).iter().map(|(_, at)| *at).collect();
        assert_eq!(times, (1..=50).map(|number| later + (5 + number) * MS).collect::<Vec<u64>>());
    }
}

#[test]
fn the_mtu_does_not_include_the_link_header() {
    let mut link = link(Profile { mtu: Some(1500), ..Profile::default() });
    link.send(Note::new(0, 1514), 0);
    link.send(Note::new(1, 1515), 0);
    assert_eq!((drain(&mut link).len(), drops(&link, Reason::Mtu)), (1, 1));
}

#[test]
fn random_losses_have_their_share() {
    let mut link = link(Profile { loss: Loss::Random(0.1), ..Profile::default() });
    send(&mut link, 100_000, 1, 100);
    assert!((9_700..10_300).contains(&drops(&link, Reason::Lost)), "{:?}", link.counters());
}

#[test]
fn bursts_of_losses_have_gilberts_length() {
    let loss = Loss::GilbertElliott { worse: 0.01, better: 0.25, good: 0.0, bad: 1.0 };
    let mut link = link(Profile { loss, ..Profile::default() });
    send(&mut link, 200_000, 1, 100);
    let numbers: Vec<u64> = drain(&mut link).iter().map(|(note, _)| note.number).collect();
    let gaps: Vec<u64> =
        numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
    let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
    assert!((3.8..4.2).contains(&mean), "a burst has 4 frames, not {mean}");
    let share = 1.0 - numbers.len() as f64 / 200_000.0;
    assert!((0.036..0.041).contains(&share), "worse / (worse + better), not {share}");
}

#[test]
fn traces_repeat() {
    let loss = Loss::Trace(Arc::from([false, true, false]));
    let delay = Delay::Trace(Arc::from([MS, 2 * MS]));
    let mut link = link(Profile { loss, delay, ..Profile::default() });
    send(&mut link, 6, 10 * MS, 100);
    let got: Vec<(u64, u64)> = drain(&mut link).iter().map(|(note, at)| (note.number, at / MS)).collect();
    assert_eq!(got, [(0, 1), (2, 22), (3, 31), (5, 52)]);
}

#[test]
fn delays_have_their_distributions() {
    let moments = |delay: Delay| {
        let mut link = link(Profile { delay, reorder: true, memory: usize::MAX, ..Profile::default() });
        send(&mut link, 50_000, 0, 100);
        let times: Vec<f64> = drain(&mut link).iter().map(|(_, at)| *at as f64 / MS as f64).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance =
            times.iter().map(|time| (time - mean) * (time - mean)).sum::<f64>() / times.len() as f64;
        (mean, variance, times[0], times[times.len() - 1])
    };
    let (mean, variance, least, most) = moments(Delay::Uniform { delay: 50 * MS, jitter: 10 * MS });
    assert!((49.8..50.2).contains(&mean) && (32.0..34.7).contains(&variance), "{mean} {variance}");
    assert!(least >= 40.0 && most <= 60.0);
    let (mean, variance, ..) = moments(Delay::Normal { delay: 50 * MS, jitter: 5 * MS });
    assert!((49.8..50.2).contains(&mean) && (24.0..26.0).contains(&variance), "{mean} {variance}");
    let (mean, _, least, most) = moments(Delay::Pareto { delay: 20 * MS, jitter: 10 * MS });
    assert!((29.0..31.0).contains(&mean) && least >= 20.0 && most > 100.0, "{mean} {least} {most}");
}

#[test]
fn jitter_keeps_the_order_unless_it_may_not() {
    let order = |reorder: bool| {
        let delay = Delay::Uniform { delay: 10 * MS, jitter: 9 * MS };
        let mut link = link(Profile { delay, reorder, ..Profile::default() });
        send(&mut link, 1000, MS, 100);
        let numbers: Vec<u64> = drain(&mut link).iter().map(|(note, _)| note.number).collect();
        assert_eq!(numbers.len(), 1000);
        (numbers.is_sorted(), link.counters().reordered > 0)
    };
    assert_eq!(order(false), (true, false));
    assert_eq!(order(true), (false, true));
}

/// The figures of the table in docs/link.md: what jitter without `reorder` does to the mean.
#[test]
fn jitter_in_order_moves_the_mean() {
    let moments = |interval: u64, reorder: bool| {
        let delay = Delay::Uniform { delay: 20 * MS, jitter: 5 * MS };
        let mut link = link(Profile { delay, reorder, memory: usize::MAX, ..Profile::default() });
        send(&mut link, 50_000, interval, 100);
        let delays: Vec<f64> = drain(&mut link)
            .iter()
            .map(|(note, at)| (at - note.number * interval) as f64 / MS as f64)
            .collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let squares = delays.iter().map(|delay| (delay - mean) * (delay - mean)).sum::<f64>();
        [mean, (squares / delays.len() as f64).sqrt()].map(|value| (value * 10.0).round() / 10.0)
    };
    let table = [10 * MS, 5 * MS, 2 * MS, MS, MS / 10].map(|interval| moments(interval, false));
    assert_eq!(table, [[20.0, 2.9], [20.2, 2.7], [21.0, 2.2], [21.9, 1.7], [23.8, 0.6]]);
    assert_eq!(moments(MS, true), [20.0, 2.9]);
}

#[test]
fn frames_are_corrupted_and_duplicated() {
    let mut link = link(Profile { corrupt: 0.5, duplicate: 0.25, ..Profile::default() });
    send(&mut link, 10_000, 1, 100);
    let arrived = drain(&mut link);
    let damaged = arrived.iter().filter(|(note, _)| note.damaged).count();
    assert!((12_300..12_700).contains(&arrived.len()), "{}", arrived.len());
    assert!((5_900..6_600).contains(&damaged), "{damaged}");
}

#[test]
fn capable_frames_are_marked_with_their_share() {
    let mut link = link(Profile { mark: 0.25, ..Profile::default() });
    let note = |number| Note { capable: number % 2 == 0, ..Note::new(number, 100) };
    (0..20_000).for_each(|number| link.send(note(number), number));
    let arrived = drain(&mut link);
    assert!(arrived.iter().all(|(note, _)| note.capable || !note.marked));
    let marked = arrived.iter().filter(|(note, _)| note.marked).count();
    assert!((2_350..2_650).contains(&marked) && link.counters().marked == marked as u64, "{marked}");
}

#[test]
fn memory_is_bounded() {
    let mut link = link(Profile { memory: 10_000, ..after(500 * MS) });
    send(&mut link, 100, 1, 800);
    assert_eq!(drops(&link, Reason::Memory), 90);
    assert_eq!(drain(&mut link).len(), 10);
}

#[test]
fn a_changed_profile_applies_to_what_is_not_under_way() {
    let mut link = link(Profile { rate: Some(8_000_000), ..after(10 * MS) });
    // 1000 bytes take 1 ms; at 2 ms one frame is on its way, one is being sent, one waits.
    (0..3).for_each(|number| link.send(Note::new(number, 1000), 0));
    assert_eq!(link.change(Profile { rate: Some(0), ..Profile::default() }, MS), Err(ProfileError::Rate));
    link.change(Profile { rate: Some(80_000_000), ..after(20 * MS) }, MS / 2).unwrap();
    let times: Vec<u64> = drain(&mut link).iter().map(|(_, at)| *at).collect();
    assert_eq!(times, [11 * MS, 21 * MS + MS / 10, 21 * MS + MS / 5]);
}

#[test]
fn impossible_profiles_are_refused() {
    let refused = |profile: Profile| Link::<Note>::new(profile, 0).err();
    let default = Profile::default;
    assert_eq!(refused(Profile { corrupt: 1.5, ..default() }), Some(ProfileError::Probability));
    assert_eq!(
        refused(Profile { loss: Loss::Random(f64::NAN), ..default() }),
        Some(ProfileError::Probability)
    );
    assert_eq!(refused(after(u64::MAX)), Some(ProfileError::Delay));
    assert_eq!(refused(Profile { loss: Loss::Trace(Arc::from([])), ..default() }), Some(ProfileError::Trace));
    let queue = Queue::DropTail { limit: Capacity::BandwidthDelay(1.0), mark: None };
    assert_eq!(refused(Profile { queue, ..default() }), Some(ProfileError::NoRate));
    let limit = Capacity::Frames(10);
    let queue = Queue::Red { min: 10, max: 10, probability: 0.1, limit, ecn: false };
    assert_eq!(refused(Profile { queue, ..default() }), Some(ProfileError::Thresholds));
}

proptest! {
    #[test]
    fn each_frame_arrives_or_is_dropped_with_a_reason(
        frames in prop::collection::vec((0..5_u64, 60..1600_usize, 0..4_u64), 1..200),
        loss in 0.0..0.5_f64,
        rate in prop::option::of(1_000_000..1_000_000_000_u64),
        jitter in 0..MS,
        reorder: bool,
        discipline in 0..4_usize,
        next in 0..4_usize,
        changed in 0..200_usize,
    ) {
        let limit = Capacity::Frames(20);
        let queue = |discipline| match discipline {
            0 => Queue::DropTail { limit, mark: Some(3000) },
            1 => Queue::Red { min: 2000, max: 8000, probability: 0.2, limit, ecn: true },
            2 => Queue::CoDel { settings: Default::default(), limit },
            _ => Queue::FqCoDel { settings: Default::default(), limit, flows: 3, quantum: 1514 },
        };
        let delay = Delay::Uniform { delay: MS, jitter };
        let (loss, mtu) = (Loss::Random(loss), Some(1500));
        let profile =
            Profile { rate, queue: queue(discipline), loss, delay, reorder, mtu, ..Profile::default() };
        let mut link = link(profile.clone());
        let (mut now, mut arrived) = (0, Vec::new());
        for (number, (pause, len, flow)) in frames.iter().enumerate() {
            now += pause * MS / 3;
            if number == changed {
                link.change(Profile { queue: queue(next), ..profile.clone() }, now).unwrap();
            }
            link.send(Note { flow: *flow, capable: number % 2 == 0, ..Note::new(number as u64, *len) }, now);
            arrived.extend(core::iter::from_fn(|| link.receive(now)));
            let counters = link.counters();
            let (waiting, _, flying) = link.backlog();
            let inside = (waiting + flying) as u64;
            prop_assert_eq!(
                counters.sent,
                counters.received + counters.drops.iter().sum::<u64>() + inside
            );
        }
        arrived.extend(drain(&mut link));
        let counters = *link.counters();
        prop_assert_eq!(link.backlog(), (0, 0, 0));
        prop_assert_eq!(counters.sent, frames.len() as u64);
        prop_assert_eq!(counters.received, arrived.len() as u64);
        prop_assert_eq!(counters.received + counters.drops.iter().sum::<u64>(), counters.sent);
        prop_assert!(arrived.is_sorted_by_key(|(_, at)| *at));
        if !reorder && discipline != 3 && next != 3 {
            prop_assert!(arrived.is_sorted_by_key(|(note, _)| note.number));
        }
    }
}
