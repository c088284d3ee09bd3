//! Receivers that are offered more than they take (receive livelock).

use super::*;

/// Frames that the receiver takes in a step, and slots of its ring.
const TAKES: usize = 8;
const SLOTS: usize = 64;
/// Slots of a sender's ring: what it would send beyond stays with it.
const SENDS: usize = 256;
const STEPS: usize = 200;

/// What happened in so many steps.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Frames that the receiver got.
    goodput: usize,
    /// Frames of another sender to another receiver.
    others: usize,
    /// Bursts that were taken, a measure of the worker's time.
    bursts: u64,
}

/// Port 0 offers `offered` frames a step to port 1, which takes `TAKES`; port 2 sends one a step to port 3.
fn offer(offered: usize, hold: u64) -> Outcome {
    let mut bench = Bench::new(4);
    bench.teach();
    bench.set_hold(hold);
    bench.set_room(1, SLOTS);
    let bursts = |bench: &Bench| bench.counters(0).bursts.load(Relaxed);
    let before = bursts(&bench);
    let (mut goodput, mut others) = (0, 0);
    for _ in 0..STEPS {
        bench.now += HOLD / 4;
        bench.change(0, |peer| {
            let more = offered.min(SENDS - peer.sends.len());
            peer.sends.extend(std::iter::repeat_n(frame(1, 0, 60), more));
        });
        bench.send(2, &[frame(3, 2, 60)]);
        // Each source once a turn, as a worker serves them, until both rest.
        for _ in 0..SENDS / BURST {
            bench.serve(0);
            bench.serve(2);
        }
        goodput += bench.got(1).len();
        others += bench.got(3).len();
        bench.change(1, |peer| peer.room = (peer.room + TAKES).min(SLOTS));
    }
    Outcome { goodput, others, bursts: bursts(&bench) - before }
}

#[test]
fn goodput_does_not_fall_with_offered_load() {
    for hold in [0, HOLD, 100 * HOLD] {
        let best = offer(TAKES, hold);
        assert_eq!((best.goodput, best.others), (STEPS * TAKES, STEPS));
        for times in [2, 5, 10, 100] {
            let more = offer(times * TAKES, hold);
            // What is in the receiver's ring at first comes on top.
            assert_eq!(more.goodput, (STEPS - 1) * TAKES + SLOTS, "{times} times, hold {hold}");
            assert_eq!(more.others, STEPS, "other ports lose nothing");
            let most = (STEPS * SENDS / BURST) as u64;
            assert!(more.bursts <= most, "{} bursts", more.bursts);
        }
    }
}
