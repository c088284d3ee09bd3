//! The addresses that a switch knows go with their port's peer.
#![allow(clippy::unwrap_used)]

mod front_end;

use front_end::{RINGS, SIZE, set_up, start, transmitter};
use ringway_fabric::Fabric;
use ringway_frame::Counters;
use ringway_host::{map_region, memfd, wait_readable};
use ringway_mem::Memory;
use ringway_port::{source, vhost_user};
use ringway_spec::{Kind, MacAddress, Port, To};
use ringway_virtq::Buffer;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn fabric(page: &Arc<Vec<Counters>>) -> Fabric {
    let guest = vhost_user::Settings::default();
    let ports = [("guest", Kind::new("vhost-user", &guest), "s"), ("null", Kind::new("null", &()), "s")];
    start(page, &["s"], ports)
}

/// Serves the fabric until `done`.
fn serve(fabric: &mut Fabric, what: &str, mut done: impl FnMut(&mut Fabric) -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !done(fabric) {
        assert!(Instant::now() < limit, "{what}: {:?}", fabric.table("s"));
        let (ids, mut sockets): (Vec<_>, Vec<_>) = fabric.sessions().map(|(id, fd)| (id, fd.as_fd())).unzip();
        sockets.insert(0, fabric.wakeup().as_fd());
        let ready = wait_readable(&sockets, Some(1_000_000)).unwrap();
        drop(sockets);
        let ids = ids.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready);
        ids.for_each(|(id, _)| _ = fabric.serve(id));
        fabric.check();
    }
}

/// Whether the switch knows the guest's address at this port.
fn knows(fabric: &Fabric, port: &str) -> bool {
    let known =
        |entry: &ringway_fabric::proto::TableEntry| entry.mac == MacAddress(GUEST) && entry.port == port;
    fabric.table("s").unwrap().iter().any(known)
}

#[test]
fn addresses_go_when_rings_stop_or_their_peer_leaves_and_a_move_is_counted() {
    let page: Arc<Vec<Counters>> = Arc::new((0..3).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page);
    for stops in [true, false] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        fabric.attach("guest", vec![ours.into()]).unwrap();
        let (go, may_go) = channel();
        std::thread::scope(|scope| {
            let front = scope.spawn(move || {
                let file = memfd("guest", SIZE).unwrap();
                let mut front = set_up(theirs, &file);
                let memory = Memory::new(vec![map_region(&file, 0, SIZE as u64, 0, 0).unwrap()]).unwrap();
                // An offload header, then a broadcast.
                let frame = [&[0; 12][..], &[0xff; 6], &GUEST, &[8, 0], &[0; 46]].concat();
                memory.user_span(RINGS as u64, frame.len() as u32).unwrap().write(&frame);
                let mut tx = transmitter(&memory);
                let buffer = Buffer { address: RINGS as u64, len: frame.len() as u32, write: false };
                tx.add(&[buffer], None).unwrap();
                tx.publish();
                may_go.recv().unwrap();
                if stops {
                    // As a monitor does when its guest has moved to another one.
                    [0, 1].into_iter().for_each(|ring| _ = front.stop(ring).unwrap());
                    may_go.recv().unwrap();
                }
            });
            serve(&mut fabric, "the address is learned", |fabric| knows(fabric, "guest"));
            go.send(()).unwrap();
            serve(&mut fabric, "the address goes", |fabric| fabric.table("s").unwrap().is_empty());
            assert!(!stops || !front.is_finished(), "the front-end is still connected");
            if stops {
                go.send(()).unwrap();
                serve(&mut fabric, "the front-end ends", |_| front.is_finished());
            }
        });
    }
    let moved = |counters: usize| page[counters].moved.load(Relaxed);
    assert_eq!(moved(0), 0);
    // Two ports send from one address.
    for (counters, name) in [(1, "b"), (2, "c")] {
        let (to, from) = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress(GUEST));
        let load = source::Settings { size: 64, to, from, rate: Some(1000) };
        if name == "b" {
            fabric.remove_port("null").unwrap();
        }
        fabric
            .add_port(Port::new(name, Kind::new("source", &load), Some(To::Switch("s".into()))), counters)
            .unwrap();
    }
    serve(&mut fabric, "the address moves to and fro", |_| moved(1) > 10 && moved(2) > 10);
}
