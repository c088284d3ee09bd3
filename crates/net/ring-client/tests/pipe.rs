//! Two programs on a pipe that connect and disconnect.

#![allow(clippy::unwrap_used)]

use ringway_port::pipe::Pipe;
use ringway_port::ring::open::RingListener;
use ringway_ring::Geometry;
use ringway_ring_client::{Ring, RingError, RingOptions, Wait};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

const BOUND: Option<Duration> = Some(Duration::from_secs(20));

struct Control {
    listener: RingListener,
    pipe: Pipe,
}

impl Control {
    fn new(name: &str) -> Control {
        let path =
            std::env::temp_dir().join(format!("ringway-ring-client-test-{}-{name}", std::process::id()));
        Control {
            listener: RingListener::bind(&path, Default::default()).unwrap(),
            pipe: Pipe::new(Geometry::default()),
        }
    }

    /// Starts a program that connects.
    fn program(&mut self) -> JoinHandle<Result<Ring, RingError>> {
        let path = PathBuf::from(self.listener.path());
        let options = RingOptions { slots: [64, 64], slot_size: 256, ..RingOptions::default() };
        let program = std::thread::spawn(move || Ring::connect_with(&path, options, BOUND));
        let (newcomer, hello) = self.listener.wait(None).unwrap();
        self.pipe.join(newcomer, hello).unwrap();
        program
    }
}

#[test]
fn a_renewal_ends_when_the_port_refuses_such_a_ring_for_good() {
    let path = std::env::temp_dir().join(format!("ringway-ring-client-test-{}-good", std::process::id()));
    let listener = RingListener::bind(&path, Default::default()).unwrap();
    let options = RingOptions { extra: 20_000, ..RingOptions::default() };
    let program = std::thread::spawn(move || {
        let mut ring = Ring::connect_with(&path, options, BOUND).unwrap();
        assert!(matches!(ring.wait(Wait::RX, BOUND), Err(RingError::Closed)));
        ring.renew(None).map(drop)
    });
    let geometry = |slot_size| Geometry { slot_size, ..Geometry::default() };
    let (newcomer, hello) = listener.wait(None).unwrap();
    drop(newcomer.welcome(&hello, &geometry(64)).unwrap());
    // What may pass is asked for again.
    listener.wait(None).unwrap().0.refuse("no ring could be made");
    let (newcomer, hello) = listener.wait(None).unwrap();
    assert!(newcomer.welcome(&hello, &geometry(32_768)).is_err());
    let error = program.join().unwrap().unwrap_err();
    assert!(matches!(error, RingError::Unsuitable(_)), "{error}");
}

#[test]
fn frames_pass_both_ways_and_wake_a_sleeping_end() {
    let mut control = Control::new("frames");
    let ends = [control.program(), control.program()];
    let [mut one, mut two] = ends.map(|end| end.join().unwrap().unwrap());
    let echo = std::thread::spawn(move || -> Result<Ring, RingError> {
        let mut out = [0; 2000];
        for _ in 0..200 {
            assert!(two.wait(Wait::RX, BOUND)?);
            while let Some(received) = two.rx.pop(&mut out)? {
                assert!(two.tx.push_with(&out[..received.len], received.offload)?);
            }
            two.sync()?;
        }
        Ok(two)
    });
    let mut out = [0; 2000];
    for round in 0..200usize {
        let frame: Vec<u8> = (0..60 + round * 9).map(|at| (at + round) as u8).collect();
        assert!(one.tx.push_with(&frame, [round as u8; 10]).unwrap());
        assert!(one.wait(Wait::RX, BOUND).unwrap());
        let received = one.rx.pop(&mut out).unwrap().unwrap();
        assert_eq!((received.whole, received.offload), (frame.len(), [round as u8; 10]));
        assert_eq!(&out[..received.len], &frame[..]);
        one.rx.sync().unwrap();
    }
    echo.join().unwrap().unwrap();
    assert!(matches!(one.tx.push(&[0; 256 * 64 + 1]), Err(RingError::TooLong { .. })));
}

#[test]
fn a_full_ring_has_no_room_until_the_other_end_reads() {
    let mut control = Control::new("full");
    let ends = [control.program(), control.program()];
    let [mut one, mut two] = ends.map(|end| end.join().unwrap().unwrap());
    assert_eq!(one.tx.send(&[&[1u8; 60][..]; 100]).unwrap(), 64);
    assert!(!one.wait(Wait::TX, Some(Duration::ZERO)).unwrap());
    let mut out = [0; 60];
    while two.rx.pop(&mut out).unwrap().is_some() {}
    two.rx.sync().unwrap();
    assert!(one.wait(Wait::TX, BOUND).unwrap());
    assert_eq!(one.tx.room(64).unwrap(), 64);
}

#[test]
fn the_remaining_end_is_told_and_continues_with_the_next_peer() {
    let mut control = Control::new("stays");
    let ends = [control.program(), control.program()];
    let [one, mut two] = ends.map(|end| end.join().unwrap().unwrap());
    drop(one);
    while !control.pipe.sweep() {
        std::thread::yield_now();
    }
    assert!(matches!(two.wait(Wait::RX, BOUND), Err(RingError::Closed)));
    let three = control.program();
    let mut two = two.renew(BOUND).unwrap();
    let mut three = three.join().unwrap().unwrap();
    assert_eq!(three.tx.send(&[&[7u8; 60][..]]).unwrap(), 1);
    assert!(two.wait(Wait::RX, BOUND).unwrap());
    assert_eq!(two.rx.pop(&mut [0; 60]).unwrap().unwrap().len, 60);
}
