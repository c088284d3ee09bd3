//! The image in several processes.

use crate::lab::{Lab, byte, drain, fill};
use ringway_direct::LockError;
use ringway_host::Clock;
use ringway_netstack::{ConnectionError, Frames, SECOND, SocketError, SocketId, Stack};
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::Duration;

/// A lab whose time is that of the processes.
pub fn lab() -> (Lab, Clock) {
    let (mut lab, clock) = (Lab::new(), Clock::new());
    lab.now = clock.now();
    (lab, clock)
}

/// One turn of the agent, of its peer, and of the process that runs the image's timers, at the clock's time.
pub fn turn(lab: &mut Lab, clock: &Clock) -> bool {
    lab.now = lab.now.max(clock.now());
    lab.image.lock().unwrap().run(lab.now);
    let any = lab.agent_wire.pass(lab.now, &mut lab.agent);
    lab.far_wire.pass(lab.now, &mut lab.far) | any
}

/// The peer sends streams of `len` bytes on these sockets, and reads them when they return, with turns of the agent and
/// of the peer.
pub fn exchange_by(
    lab: &mut Lab,
    clock: &Clock,
    sockets: &[SocketId],
    len: u64,
    turn: impl Fn(&mut Lab, &Clock) -> bool,
) {
    let mut counts = vec![(0, 0); sockets.len()];
    // A limit that ends a test which would never end.
    let until = clock.now() + 120 * SECOND;
    while counts.iter().any(|(_, read)| *read < len) {
        for (socket, (sent, read)) in sockets.iter().zip(&mut counts) {
            let now = lab.now;
            *sent = fill(*sent, len, |bytes| lab.far.send(now, *socket, bytes).ok());
            *read = drain(*read, |out| lab.far.recv(now, *socket, out).ok());
        }
        if !turn(lab, clock) {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(clock.now() < until, "the streams stop at {counts:?}");
    }
}

fn exchange(lab: &mut Lab, clock: &Clock, sockets: &[SocketId], len: u64) {
    exchange_by(lab, clock, sockets, len, turn);
}

/// Waits until a process says its word.
pub fn said(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().into()
}

#[test]
fn processes_run_one_stack_in_turns() {
    let (mut lab, clock) = lab();
    let ends = lab.connect(4);
    let moved: Vec<SocketId> = ends[..3].iter().map(|(near, _)| lab.move_in(*near)).collect();
    let mut echoes = [lab.spawn("echo", moved[0]), lab.spawn("echo", moved[1])];
    // A process that is killed outside of its turn harms nobody.
    let mut idle = lab.spawn("idle", moved[2]);
    assert_eq!(said(&mut idle), "idle");
    idle.kill().unwrap();
    idle.wait().unwrap();
    exchange(&mut lab, &clock, &[ends[0].1, ends[1].1], 2_000_000);
    // The agent's own connection goes on beside them.
    lab.agent.send(lab.now, ends[3].0, &[byte(0)]).unwrap();
    let mut read = 0;
    while read == 0 {
        turn(&mut lab, &clock);
        read = drain(0, |out| lab.far.recv(lab.now, ends[3].1, out).ok());
    }
    for (_, far) in &ends[..2] {
        lab.far.shutdown(lab.now, *far).unwrap();
    }
    for (echo, (_, far)) in echoes.iter_mut().zip(&ends) {
        let status = loop {
            turn(&mut lab, &clock);
            if let Some(status) = echo.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success(), "{status}");
        while lab.far.recv(lab.now, *far, &mut [0; 9]) != Ok(0) {
            turn(&mut lab, &clock);
        }
    }
    // What the killed one had is still there, for whoever looks after it.
    assert!(lab.image.lock().unwrap().close(lab.now, moved[2]).0.is_ok());
}

/// Passes frames between two stacks, which have a line of their own, until there are none.
fn connect_directly(now: u64, stacks: [&mut Stack; 2]) {
    let [one, two] = stacks;
    let mut frames = Frames::default();
    loop {
        let mut any = false;
        for from_one in [true, false] {
            let (from, to) = if from_one { (&mut *one, &mut *two) } else { (&mut *two, &mut *one) };
            from.expire(now);
            from.transmit(now, 0, &mut frames);
            any |= frames.iter().next().is_some();
            frames.iter().for_each(|(frame, offload)| to.receive(now, 0, frame, offload));
            frames.clear();
        }
        if !any {
            break;
        }
    }
}

#[test]
fn all_see_that_a_process_was_killed_within_its_turn() {
    let (mut lab, clock) = lab();
    let ends = lab.connect(3);
    let moved: Vec<SocketId> = ends[..2].iter().map(|(near, _)| lab.move_in(*near)).collect();
    let mut echo = lab.spawn("echo", moved[0]);
    exchange(&mut lab, &clock, &[ends[0].1], 100_000);
    let mut holder = lab.spawn("hold", moved[1]);
    assert_eq!(said(&mut holder), "held");
    holder.kill().unwrap();
    // The other process ends, and this one sees it too.
    assert_eq!(echo.wait().unwrap().code(), Some(3));
    holder.wait().unwrap();
    assert!(matches!(lab.image.lock().err(), Some(LockError::Lost)));

    // The agent, with a new way to its peer, resets what moved, and its own connection goes on.
    let Lab { agent, far, now, .. } = &mut lab;
    let now = (*now).max(clock.now());
    for (near, _) in &ends[..2] {
        agent.lose(now, *near).unwrap();
    }
    agent.send(now, ends[2].0, b"hello").unwrap();
    connect_directly(now, [agent, far]);
    for (_, socket) in &ends[..2] {
        let reset = SocketError::Connection(ConnectionError::Reset);
        assert_eq!(far.error(*socket), Ok(Some(ConnectionError::Reset)));
        assert_eq!(far.send(now, *socket, b"more"), Err(reset));
    }
    assert_eq!(far.recv(now, ends[2].1, &mut [0; 9]), Ok(5));
}
