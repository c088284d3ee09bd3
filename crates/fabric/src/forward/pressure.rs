//! Tests of when a function on a worker needs another instance, in virtual time.

use super::tests::{Bench, frame};
use crate::instances::{Ends, Instances, Place};
use crate::world::Target;
use ringway_frame::BURST;
use ringway_host::EventFd;
use ringway_spec::InstanceEnd;
use std::sync::Arc;

const MS: u64 = 1_000_000;

/// Port 0 sends to the instances at ports 1 and 2 of a function; the first is `near` the source, and `by_worker`.
fn bench(near: bool, by_worker: bool, half: Option<bool>) -> (Bench, Arc<Instances>) {
    let end =
        InstanceEnd { of: "fw".into(), number: 0, side: 0, flows: 64, idle: 60_000 * MS, drain: 60_000 * MS };
    let instances = Instances::new(&end, Arc::new(EventFd::new().unwrap()), 0);
    let all = instances.clone();
    let ends = move || Ends::target(all.clone(), [(0, 1, near), (1, 2, false)].into_iter());
    let mut bench = Bench::with(3, |port| if port == 0 { ends() } else { Target::Nowhere });
    for number in 0..2 {
        let place = Place { instances: instances.clone(), number, side: 0 };
        bench.set_place(number + 1, place);
        bench.change(number + 1, |peer| peer.by_worker = by_worker);
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
    let (mut bench, instances) = bench(true, true, Some(true));
    assert!(!load(&mut bench, &instances, (5, 9), 4), "not for long enough");
    assert!(load(&mut bench, &instances, (1, 9), 4));
    bench.change(0, |peer| peer.half = Some(false));
    assert!(!load(&mut bench, &instances, (10, 9), 4), "it keeps up");
    assert!(instances.calm(bench.now) >= 90 * MS);
    bench.change(0, |peer| peer.half = Some(true));
    assert!(!load(&mut bench, &instances, (5, 9), 4), "that begins anew");
    assert!(load(&mut bench, &instances, (2, 9), 4));
}

#[test]
fn waiting_frames_are_another_cause_for_functions_elsewhere() {
    for (near, by_worker) in [(false, true), (true, false)] {
        let (mut bench, instances) = bench(near, by_worker, Some(true));
        assert!(!load(&mut bench, &instances, (20, 9), 4), "near {near}, by a worker {by_worker}");
    }
}

#[test]
fn full_bursts_in_a_row_count_where_the_queue_is_unknown() {
    let (mut own, instances) = bench(true, true, None);
    assert!(!load(&mut own, &instances, (15, 9), BURST), "as many as one ring holds");
    assert!(load(&mut own, &instances, (7, 9), BURST));
    let (mut own, instances) = bench(true, true, None);
    for _ in 0..10 {
        let full = load(&mut own, &instances, (10, 9), BURST);
        assert!(!full & !load(&mut own, &instances, (1, 9), BURST - 1), "it was empty meanwhile");
    }
}
