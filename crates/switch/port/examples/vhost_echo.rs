//! Connects the guests on two vhost-user sockets: frames sent by one are received by the other.
//!
//! `vhost_echo SOCKET SOCKET [without FEATURE,FEATURE...]` listens on both sockets; one thread serves them, another
//! moves frames and polls continuously.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::listener::{Access, Listener};
use ringway_host::{Clock, wait_readable};
use ringway_mem::Reader;
use ringway_port::vhost_user::{self, Backend, Config, Without};
use ringway_port::{Doorbell, Queue, Silent};
use std::error::Error;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Nanoseconds after which guests are checked even without events.
const ROUND: u64 = 500_000_000;

struct Side {
    listener: Listener,
    backend: Backend,
    counters: Vec<CountersRef>,
    state: ringway_port::State,
}

fn side(path: &str, config: Config) -> Result<(Side, Vec<Queue>), Box<dyn Error>> {
    let listener = Listener::bind(Path::new(path), Access { mode: Some(0o666), ..Access::default() })?;
    let counters: Vec<_> = (0..config.queues).map(|_| CountersRef::private()).collect();
    let doorbells = counters.iter().map(|_| Arc::new(Silent) as Arc<dyn Doorbell>).collect();
    let (backend, queues) = vhost_user::new(config, doorbells, counters.clone());
    Ok((Side { listener, backend, counters, state: ringway_port::State::Waiting }, queues))
}

/// Moves frames from one queue to another; returns their number.
fn forward(
    turn: &ringway_mem::Turn<'_>,
    storage: &mut Storage,
    which: &[u16],
    from: &mut Queue,
    to: &mut Queue,
) -> usize {
    let mut burst = Burst::begin(storage);
    from.tx.take(turn, &mut burst);
    let count = burst.len();
    if count == 0 {
        return 0;
    }
    let which = &which[..count];
    let fits = match to.rx.caps(turn) {
        Some(_) => to.rx.reserve(turn, &burst, which),
        None => 0,
    };
    if fits > 0 {
        to.rx.put(turn, &burst, &which[..fits]);
    }
    // Frames that don't fit are dropped: this is a wire, not a switch.
    from.tx.release(turn, count);
    if fits > 0 {
        to.rx.publish(turn);
    }
    count
}

fn poll(mut left: Vec<Queue>, mut right: Vec<Queue>) {
    let Some(mut reader) = Reader::register() else { return };
    let clock = Clock::new();
    let mut storage = Storage::default();
    let which: Vec<u16> = (0..ringway_frame::BURST as u16).collect();
    loop {
        let turn = reader.turn(clock.now());
        let mut moved = 0;
        for (left, right) in left.iter_mut().zip(&mut right) {
            moved += forward(&turn, &mut storage, &which, left, right);
            moved += forward(&turn, &mut storage, &which, right, left);
        }
        if moved == 0 {
            std::hint::spin_loop();
        }
    }
}

fn serve(name: usize, side: &mut Side, listening: bool) -> Result<(), Box<dyn Error>> {
    if let Err(error) = side.backend.readable() {
        let counters = &side.counters[0];
        println!("{name}: {error}; {counters:?}");
    }
    if let Some(refused) = side.backend.refused() {
        println!("{name}: refused: {refused}");
    }
    if listening && let Some(stream) = side.listener.accept()? {
        side.backend.connect(stream)?;
    }
    let state = side.backend.state();
    if state != side.state {
        side.state = state;
        let frames = side.counters[0].tx_frames.load(Relaxed);
        println!("{name}: {state:?}, {}; {frames} frames sent so far", side.backend.detail());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, second, rest @ ..] = arguments.as_slice() else {
        return Err("two socket paths are needed".into());
    };
    let names = rest.iter().flat_map(|names| names.split(',')).filter(|name| *name != "without");
    let (numbers, names): (Vec<&str>, Vec<&str>) = names.partition(|name| name.parse::<u16>().is_ok());
    let without = Without::named(names).map_err(|name| format!("there is no feature `{name}`"))?;
    let queues = numbers.first().map_or(Ok(1), |number| number.parse())?;
    let mac = |last| Some([2, 0, 0, 0, 0x77, last]);
    let plain = Config::default();
    let (left, left_queues) = side(first, Config { mac: mac(1), queues, without, ..plain })?;
    let (right, right_queues) = side(second, Config { mac: mac(2), queues, without, ..plain })?;
    std::thread::spawn(move || poll(left_queues, right_queues));
    let mut sides = [left, right];
    ringway_host::catch_sigbus()?;
    loop {
        let mut fds = vec![sides[0].listener.as_fd(), sides[1].listener.as_fd()];
        fds.extend(sides.iter().filter_map(|side| side.backend.fd()));
        let ready = wait_readable(&fds, Some(ROUND))?;
        drop(fds);
        for (index, side) in sides.iter_mut().enumerate() {
            serve(index, side, ready[index])?;
        }
    }
}
