//! Tests of when a function on a worker needs another instance, in virtual time.

use super::Served;
use super::tests::{Bench, frame};
use crate::instances::{Ends, Instances, Place};
use crate::topology::Target;
use ringway_frame::BURST;
use ringway_host::EventFd;
use ringway_spec::InstanceEnd;
use std::sync::Arc;

const MS: u64 = 1_000_000;

/// Port 0, on worker 0, sends to the instances at ports 1 and 2 of a function, on these of three workers. They run
/// there if `by_worker`.
fn bench(workers: [usize; 2], by_worker: bool, half: Option<bool>) -> (Bench, Arc<Instances>) {
    let end =
        InstanceEnd { of: "fw".into(), number: 0, side: 0, flows: 64, idle: 60_000 * MS, drain: 60_000 * MS };
    let instances = Instances::new(&end, Arc::new(EventFd::new().unwrap()), 0);
    let all = instances.clone();
    let ends = move || {
        let ports = [(0, 1, Some(workers[0])), (1, 2, Some(workers[1]))];
        Ends::target(all.clone(), ports.into_iter(), 3)
    };
    let mut bench = Bench::with(3, |port| if port == 0 { ends() } else { Target::Nowhere });
    for number in 0..2 {
        let place = Place { instances: instances.clone(), number, side: 0 };
        bench.set_place(number + 1, place);
        bench.change(number + 1, |peer| peer.waiting = by_worker.then_some(0));
    }
    bench.change(0, |peer| peer.half = half);
    bench.now = 100 * MS;
    (bench, instances)
}

/// Bursts of `count` frames, one each `step` milliseconds; whether another instance was needed meanwhile.
fn load(bench: &mut Bench, instances: &Instances, (bursts, step): (u64, u64), count: usize) -> bool {
    for _ in 0..bursts {
        bench.now += step * MS;
        bench.send(0, &vec![frame(1, 0, 60); count]);
        bench.serve(0);
    }
    instances.take_news()
}

#[test]
fn frames_that_wait_at_their_source_press_a_function_on_its_worker() {
    let (mut bench, instances) = bench([0, 1], true, Some(true));
    assert!(!load(&mut bench, &instances, (6, 9), 4), "not for long enough");
    assert!(load(&mut bench, &instances, (1, 9), 4));
    bench.change(0, |peer| peer.half = Some(false));
    assert!(!load(&mut bench, &instances, (10, 9), 4), "it keeps up");
    assert!(instances.calm(bench.now) >= 80 * MS);
    bench.change(0, |peer| peer.half = Some(true));
    assert!(!load(&mut bench, &instances, (6, 9), 4), "that begins anew");
    assert!(load(&mut bench, &instances, (1, 9), 4));
}

#[test]
fn frames_must_wait_most_of_the_time() {
    const US: u64 = 1_000;
    for half in [Some(true), None] {
        // A burst each 200 us for 2 or for 6 ms; then the source is empty for the rest of 8 ms.
        for (bursts, is_pressed) in [(10, false), (30, true)] {
            let (mut own, instances) = bench([0, 1], true, half);
            for _ in 0..20 {
                for _ in 0..bursts {
                    own.send(0, &[frame(1, 0, 60); BURST]);
                    own.serve(0);
                    own.now += 200 * US;
                }
                for _ in bursts..40 {
                    assert_eq!(own.serve(0), Served::Idle);
                    own.now += 200 * US;
                }
            }
            assert_eq!((instances.take_news(), instances.calm(own.now) < 20 * MS), (is_pressed, is_pressed));
        }
    }
}

#[test]
fn an_instance_is_not_pressed_by_frames_that_wait_for_another() {
    for half in [Some(true), None] {
        let (mut own, instances) = bench([0, 1], true, half);
        instances.assign(0b11, 0b11, own.now);
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for flow in 0.. {
            let sent = frame(flow, 0, 60);
            own.send(0, &[sent]);
            own.serve(0);
            let mine = if own.got(1).is_empty() { &mut far } else { &mut near };
            mine.push(sent);
            if !near.is_empty() && !far.is_empty() {
                break;
            }
        }
        own.set_room(2, 0);
        for _ in 0..200 {
            own.now += MS;
            own.send(0, &[[near[0]; BURST - 1].as_slice(), &[far[0]]].concat());
            own.serve(0);
            // As many frames leave as come, in parts of a burst.
            own.set_room(2, 1);
            own.serve(0);
            own.set_room(2, 0);
        }
        assert_eq!(instances.calm(own.now), own.now);
    }
}

#[test]
fn instances_that_share_the_worker_do_not_help() {
    for (workers, helps) in [([0, 0], false), ([0, 1], true)] {
        let (mut own, instances) = bench(workers, true, Some(true));
        assert_eq!(load(&mut own, &instances, (40, 9), 4), helps);
    }
    // With two workers there is no place for a third instance.
    let (own, instances) = bench([0, 1], true, Some(true));
    instances.limit(2);
    instances.assign(0b11, 0b11, own.now);
    let press = || {
        for at in 0..60 {
            (0..2).for_each(|instance| instances.see(instance, 0, own.now + at * MS, true, None));
        }
        instances.take_news()
    };
    assert!(!press());
    instances.limit(3);
    assert!(press());
}

#[test]
fn what_counts_is_the_worker_of_the_source() {
    let (mut own, instances) = bench([1, 2], true, Some(true));
    assert!(!load(&mut own, &instances, (40, 9), 4));
    own.set_worker(0, 1);
    assert!(load(&mut own, &instances, (40, 9), 4));
}

#[test]
fn waiting_frames_are_another_cause_for_functions_elsewhere() {
    for (workers, by_worker) in [([1, 2], true), ([0, 1], false)] {
        let (mut bench, instances) = bench(workers, by_worker, Some(true));
        assert!(!load(&mut bench, &instances, (40, 9), 4), "{workers:?}, by a worker {by_worker}");
    }
}

#[test]
fn whole_bursts_count_where_the_queue_is_unknown() {
    let (mut own, instances) = bench([0, 1], true, None);
    assert!(!load(&mut own, &instances, (40, 9), BURST - 1));
    assert!(!load(&mut own, &instances, (6, 9), BURST));
    assert!(load(&mut own, &instances, (1, 9), BURST));
}

/// A function that is slow fills its own queue, for which frames wait where they come from.
#[test]
fn frames_that_wait_for_an_instance_of_the_same_worker_press_it() {
    let (mut own, instances) = bench([0, 1], true, None);
    own.send(0, &[frame(1, 0, 60); 4 * BURST]);
    for _ in 0..60 {
        own.set_room(1, 1);
        own.serve(0);
        own.now += MS;
    }
    assert!(instances.take_news());
}

/// A slow function empties its source into its own queue, and its turns are long.
#[test]
fn frames_that_wait_in_the_queue_of_an_instance_press_it() {
    for (waiting, is_pressed) in [(BURST, true), (BURST - 1, false)] {
        let (mut own, instances) = bench([0, 1], true, Some(false));
        own.change(1, |peer| peer.waiting = Some(waiting));
        for _ in 0..5 {
            own.send(0, &[frame(1, 0, 60); 4]);
            own.serve(0);
            assert_eq!(own.serve(0), Served::Idle);
            own.now += 30 * MS;
        }
        assert_eq!(instances.take_news(), is_pressed);
    }
}
