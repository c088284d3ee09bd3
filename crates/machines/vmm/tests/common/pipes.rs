//! Pipes between this process and a function in a guest.

use super::BOUND;
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::RingListener;
use ringway_ring::Geometry;
use ringway_ring_client::{PendingRing, Ring, RingOptions};
use std::path::PathBuf;
use std::time::Instant;

/// Ringway's own choice.
pub const SMALL: RingOptions =
    RingOptions { slots: [0; 2], slot_size: 0, extra: 0, offloads: false, largest: 0 };

/// A pipe at a path, for whoever comes; its end here.
pub fn pipe(name: &str, options: RingOptions) -> (PathBuf, RingListener, Pipe, PendingRing) {
    let path = std::env::temp_dir().join(format!("ringway-pipe-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = RingListener::bind(&path, Default::default()).unwrap();
    let coming = PendingRing::connect(&path, options).unwrap();
    (path, listener, Pipe::new(Geometry::default()), coming)
}

/// Attaches whoever comes, until both ends are taken.
pub fn joined(listener: &RingListener, pipe: &mut Pipe, coming: PendingRing) -> Ring {
    let end = Instant::now() + BOUND;
    while !pipe.is_joined() {
        assert!(Instant::now() < end, "nobody comes");
        let Some(mut newcomer) = listener.accept().unwrap() else { continue };
        let hello = loop {
            if let Some(hello) = newcomer.hello().unwrap() {
                break hello;
            }
        };
        pipe.join(newcomer, hello).unwrap();
    }
    coming.ring(Some(BOUND)).unwrap()
}

/// Sends a frame, and waits until it comes back.
pub fn exchange(ring: &mut Ring) {
    ring.tx.push(&[7; 60]).unwrap();
    ring.sync().unwrap();
    let (mut frame, end) = ([0; 2048], Instant::now() + BOUND);
    while ring.rx.pop(&mut frame).unwrap().is_none() {
        assert!(Instant::now() < end, "no frame comes back");
    }
    ring.rx.sync().unwrap();
}
