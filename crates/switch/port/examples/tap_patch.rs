//! Connects two TAP interfaces: frames sent by one side's stack are received by the other's.
//!
//! `tap_patch NAMESPACE,NAME,ADDRESS/PREFIX NAMESPACE,NAME,ADDRESS/PREFIX [MTU]` creates both interfaces; one thread
//! moves frames, polls while there are any, and sleeps when there are none.
#![allow(clippy::print_stdout)]

use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::{Clock, Epoll};
use ringway_mem::{Reader, Turn};
use ringway_port::tap::{Config, Settings, TapPort, open};
use ringway_port::{Doorbell, Queue};
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// How long an empty queue is polled, in nanoseconds.
const SPIN: u64 = 20_000;

struct Line {
    epoll: Arc<Epoll>,
    watched: Mutex<Option<Arc<OwnedFd>>>,
}

impl Line {
    fn replace(&self, fd: Option<Arc<OwnedFd>>) {
        let Ok(mut watched) = self.watched.lock() else { return };
        if let Some(old) = watched.take() {
            let _ = self.epoll.delete(old.as_fd());
        }
        if let Some(new) = &fd {
            let _ = self.epoll.add_edge(new.as_fd(), 0);
        }
        *watched = fd;
    }
}

impl Doorbell for Line {
    fn wake(&self) {}

    fn watch(&self, kick: Arc<OwnedFd>) {
        self.replace(Some(kick));
    }

    fn unwatch(&self) {
        self.replace(None);
    }
}

fn side(text: &str, mtu: u16, epoll: &Arc<Epoll>) -> Result<(TapPort, Queue), Box<dyn Error>> {
    let [namespace, name, address]: [&str; 3] = text
        .split(',')
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "NAMESPACE,NAME,ADDRESS/PREFIX is needed")?;
    let offloads = std::env::var_os("NO_OFFLOADS").is_none();
    let interface = Settings {
        interface: name.into(),
        mac: None,
        mtu,
        offloads,
        namespace: Some(namespace.into()),
        host: None,
        addresses: vec![address.parse()?],
        gateways: Vec::new(),
    };
    let descriptors = open(&interface, 1)?;
    let line = Arc::new(Line { epoll: epoll.clone(), watched: Mutex::new(None) });
    let counters = [CountersRef::private()];
    let lost: ringway_port::tap::Lost = Arc::new(|| println!("an interface is gone"));
    let (mut port, mut queues) = TapPort::new(Config { mtu, offloads }, vec![line], &counters, &lost)?;
    port.attach(descriptors)?;
    Ok((port, queues.pop().ok_or("a port has a queue")?))
}

fn forward(turn: &Turn<'_>, storage: &mut Storage, which: &[u16], from: &mut Queue, to: &mut Queue) -> usize {
    let mut burst = Burst::begin(storage);
    from.tx.take(turn, &mut burst);
    let count = burst.len();
    if count > 0 {
        let which = &which[..count];
        if to.rx.caps(turn).is_some() {
            let fits = to.rx.reserve(turn, &burst, which);
            to.rx.put(turn, &burst, &which[..fits]);
        }
        from.tx.release(turn, count);
        to.rx.publish(turn);
    }
    count
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [left, right, rest @ ..] = arguments.as_slice() else {
        return Err("two interfaces are needed".into());
    };
    let mtu = rest.first().map_or(Ok(1500), |mtu| mtu.parse())?;
    let epoll = Arc::new(Epoll::new()?);
    let (_left_port, mut left) = side(left, mtu, &epoll)?;
    let (_right_port, mut right) = side(right, mtu, &epoll)?;
    println!("ready");
    let mut reader = Reader::register().ok_or("no place for a reader")?;
    let (clock, mut storage) = (Clock::new(), Storage::default());
    let which: Vec<u16> = (0..ringway_frame::BURST as u16).collect();
    let mut last = clock.now();
    loop {
        let now = clock.now();
        let turn = reader.turn(now);
        let moved = forward(&turn, &mut storage, &which, &mut left, &mut right)
            + forward(&turn, &mut storage, &which, &mut right, &mut left);
        if moved > 0 {
            last = now;
        } else if now - last > SPIN && left.tx.arm(&turn) && right.tx.arm(&turn) {
            reader.rest();
            epoll.wait(None, |_| {});
            let turn = reader.turn(now);
            left.tx.disarm(&turn);
            right.tx.disarm(&turn);
            last = clock.now();
        }
    }
}
