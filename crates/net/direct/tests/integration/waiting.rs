//! Processes that sleep until their connections are ready.

use crate::lab::Lab;
use crate::processes::{exchange_by, lab, said};
use ringway_direct::{LockError, Member};
use ringway_host::Clock;
use ringway_netstack::{SECOND, SocketId};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One turn of the agent and of its peer. The processes run the image.
fn outer_turn(lab: &mut Lab, clock: &Clock) -> bool {
    lab.now = lab.now.max(clock.now());
    let any = lab.agent_wire.pass(lab.now, &mut lab.agent);
    lab.far_wire.pass(lab.now, &mut lab.far) | any
}

fn exchange(lab: &mut Lab, clock: &Clock, sockets: &[SocketId], len: u64) {
    exchange_by(lab, clock, sockets, len, outer_turn);
}

/// Processes that return what they receive, and sleep while there is nothing; the peer's sockets.
fn waiters(lab: &mut Lab, count: usize) -> (Vec<Child>, Vec<SocketId>) {
    let ends = lab.connect(count);
    let moved: Vec<SocketId> = ends.iter().map(|(near, _)| lab.move_in(*near)).collect();
    // Every other one has an event loop.
    let roles = ["wait", "watch"].into_iter().cycle();
    (
        moved.iter().zip(roles).map(|(socket, role)| lab.spawn(role, *socket)).collect(),
        ends.iter().map(|end| end.1).collect(),
    )
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Runs an attendant in this process while something is done.
fn attended(lab: &mut Lab, act: impl FnOnce(&mut Lab, &Member)) {
    let member = Member::new(lab.image.clone(), lab.notifiers(), Clock::new());
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| member.attend(&stops));
        act(lab, &member);
        stops.store(true, Ordering::SeqCst);
        member.call_attendant();
        attendant.join().unwrap().unwrap();
    });
}

#[test]
fn processes_that_sleep_are_woken_by_one_of_them() {
    let (mut lab, clock) = lab();
    let (children, sockets) = waiters(&mut lab, 3);
    exchange(&mut lab, &clock, &sockets, 500_000);
    // Each exchange begins when all sleep, or are about to, without an attendant.
    for round in 0..60 {
        exchange(&mut lab, &clock, &sockets[round % 3..], 1 + round as u64 * 50);
    }
    for socket in &sockets {
        lab.far.shutdown(lab.now, *socket).unwrap();
    }
    for mut child in children {
        while child.try_wait().unwrap().is_none() {
            outer_turn(&mut lab, &clock);
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn others_lead_when_the_one_that_led_is_killed() {
    let (mut lab, clock) = lab();
    let (mut children, sockets) = waiters(&mut lab, 3);
    attended(&mut lab, |lab, member| {
        for left in (1..=3).rev() {
            exchange(lab, &clock, &sockets[3 - left..], 20_000);
            // All sleep then, or are about to: each of them may be the one that leads.
            std::thread::sleep(Duration::from_millis(2));
            // The kernel lets no process end within its turn here: the lock would be lost, which another test shows.
            let locked = lab.image.lock().unwrap();
            let mut child = children.remove(0);
            child.kill().unwrap();
            drop(locked);
            child.wait().unwrap();
            member.handle_process_end().unwrap();
        }
    });
}

#[test]
fn the_attendant_finishes_what_a_process_began() {
    let (mut lab, clock) = lab();
    let ends = lab.connect(2);
    let moved = [0, 1].map(|at| lab.move_in(ends[at].0));
    let mut waiter = lab.spawn("wait", moved[1]);
    attended(&mut lab, |lab, _| {
        let mut sender = lab.spawn("send", moved[0]);
        let (mut read, mut out) = (0, vec![0; 100_000]);
        let until = clock.now() + 120 * SECOND;
        while read < 1_000_000 {
            outer_turn(lab, &clock);
            read += lab.far.recv(lab.now, ends[0].1, &mut out).unwrap_or(0);
            assert!(clock.now() < until, "{read} bytes came");
        }
        assert_eq!(said(&mut sender), "idle");
        kill(&mut sender);
        // Beside it, another process waits and leads, and the attendant sleeps.
        exchange(lab, &clock, &[ends[1].1], 200_000);
    });
    kill(&mut waiter);
}

#[test]
fn processes_that_sleep_see_that_the_stack_is_lost() {
    let (mut lab, clock) = lab();
    let (mut children, sockets) = waiters(&mut lab, 2);
    exchange(&mut lab, &clock, &sockets, 20_000);
    let member = Member::new(lab.image.clone(), lab.notifiers(), Clock::new());
    let mut holder = lab.spawn("hold", SocketId::from_bits(0));
    assert_eq!(said(&mut holder), "held");
    kill(&mut holder);
    assert_eq!(member.handle_process_end(), Err(LockError::Lost));
    for child in &mut children {
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
}
