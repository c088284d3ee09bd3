//! Drivers that sleep until they are notified: a lost notification makes them sleep forever.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_tests::fabric::{Fabric, port};
use ringway_tests::folder::Folder;
use ringway_tests::sleeper::{Failure, Machine, Sleeper};
use ringway_tests::{eventually, rounds};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than any notification takes.
const BOUND: Duration = Duration::from_secs(20);

/// Number of frames of a round, and the idle time after it, which vary so that frames meet all sides awake, asleep,
/// and in between.
fn round(number: usize) -> (u32, Duration) {
    let frames = [1, 1, 2, 1, 3, 24, 1, 7][number % 8];
    (frames, Duration::from_micros((number % 13) as u64 * 7))
}

fn ask(mut driver: Sleeper<'_>, rounds: usize) -> Result<(), Failure> {
    for number in 0..rounds {
        let (frames, pause) = round(number);
        for _ in 0..frames {
            driver.send(2, BOUND)?;
        }
        let mut left = frames;
        while left > 0 {
            let count =
                driver.receive(BOUND).map_err(|error| format!("round {number}, {left} left: {error}"))?;
            left = left.checked_sub(count).ok_or("more answers than questions")?;
        }
        let until = Instant::now() + pause;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Answers until `over`, so that the last frames are still received.
fn answer(mut driver: Sleeper<'_>, rounds: usize, over: &AtomicBool) -> Result<(), Failure> {
    let mut left = (0..rounds).map(|number| round(number).0).sum::<u32>();
    while left > 0 {
        let count = driver.receive(BOUND)?;
        for _ in 0..count {
            driver.send(1, BOUND)?;
        }
        left = left.checked_sub(count).ok_or("more questions than were asked")?;
    }
    eventually(2 * BOUND, || over.load(Ordering::Relaxed));
    Ok(())
}

fn none_is_lost(name: &str, packed: [bool; 2]) {
    let folder = Folder::new(name).unwrap();
    let text = format!("[switch.main]\n{}{}", port("left", ""), port("right", ""));
    let fabric = Fabric::up(folder.path(), name, &text).unwrap();
    let (rounds, over) = (10_000 * rounds(1), AtomicBool::new(false));
    let left = Machine::connect(&fabric.socket("left.sock"), packed[0]).unwrap();
    let right = Machine::connect(&fabric.socket("right.sock"), packed[1]).unwrap();
    // Both post buffers before any frame is sent.
    let (sender, answering) = (left.start(1).unwrap(), right.start(2).unwrap());
    let results = std::thread::scope(|scope| {
        let answers = scope.spawn(|| answer(answering, rounds, &over));
        let asked = ask(sender, rounds);
        over.store(true, Ordering::Relaxed);
        [asked, answers.join().unwrap()]
    });
    for (who, result) in ["left", "right"].into_iter().zip(results) {
        result.unwrap_or_else(|error| panic!("{who}: {error}"));
    }
}

#[test]
fn no_notification_is_lost_between_split_rings() {
    none_is_lost("split", [false, false]);
}

#[test]
fn no_notification_is_lost_between_packed_rings() {
    none_is_lost("packed", [true, true]);
}

#[test]
fn no_notification_is_lost_between_split_and_packed_rings() {
    none_is_lost("mixed", [false, true]);
}
