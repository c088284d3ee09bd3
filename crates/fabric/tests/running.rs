//! A fabric that runs, with ports that need no peer.
#![allow(clippy::unwrap_used)]

use ringway_fabric::proto::{Kind, Lookup, Poll, Port, To, Worker};
use ringway_fabric::{Fabric, FabricError};
use ringway_frame::{Counters, CountersPage, Reason};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

struct Bench {
    fabric: Fabric,
    page: Arc<Vec<Counters>>,
    next: u32,
}

impl Bench {
    fn new(workers: usize) -> Bench {
        let page: Arc<Vec<Counters>> = Arc::new((0..256).map(|_| Counters::default()).collect());
        let workers: Vec<Worker> = (0..workers)
            .map(|number| Worker {
                name: format!("w{number}"),
                core: None,
                poll: Poll::Adaptive,
                spin: 20_000,
                hold: 100_000,
            })
            .collect();
        let shared: Arc<dyn CountersPage> = page.clone();
        Bench { fabric: Fabric::start(&workers, shared, 42).unwrap(), page, next: 0 }
    }

    fn switch(&mut self, name: &str, lookup: Lookup) {
        self.fabric.add_switch(name.into(), lookup).unwrap();
    }

    fn port(&mut self, name: &str, kind: Kind, to: To) -> usize {
        let (counters, queues) = (self.next, u32::from(kind.queues()));
        let port = Port {
            name: name.into(),
            kind,
            to,
            worker: None,
            hold: None,
            notify: Default::default(),
            counters,
        };
        self.fabric.add_port(port).unwrap();
        self.next += queues;
        counters as usize
    }

    fn rx_frames(&self, counters: usize) -> u64 {
        self.page[counters].rx_frames.load(Relaxed)
    }
}

fn learning() -> Lookup {
    Lookup::Learning { ageing: 300, entries: 1024 }
}

fn source(to: u8, from: u8) -> Kind {
    let mac = |last| format!("02:00:00:00:00:{last:02x}");
    Kind::Source { size: 64, to: mac(to), from: mac(from), rate: None }
}

fn on(switch: &str) -> To {
    To::Switch(switch.into())
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn frames_reach_the_port_that_was_learnt_and_stop_when_their_source_goes() {
    let mut bench = Bench::new(2);
    bench.switch("s", learning());
    let a = bench.port("a", source(2, 1), on("s"));
    let b = bench.port("b", source(1, 2), on("s"));
    let c = bench.port("c", Kind::Null, on("s"));
    until("traffic both ways", || bench.rx_frames(a) > 10_000 && bench.rx_frames(b) > 10_000);
    let flooded = bench.rx_frames(c);
    until("more traffic", || bench.rx_frames(b) > 100_000);
    assert!(bench.rx_frames(c) <= flooded + 128, "known addresses are not flooded");
    let table = bench.fabric.table("s").unwrap();
    let rows: Vec<_> = table.iter().map(|entry| (entry.mac.as_str(), entry.port.as_str())).collect();
    assert_eq!(rows, [("02:00:00:00:00:01", "a"), ("02:00:00:00:00:02", "b")]);

    bench.fabric.remove_port("a").unwrap();
    assert_eq!(bench.fabric.table("s").unwrap().len(), 1, "its addresses are forgotten");
    until("flooding", || bench.rx_frames(c) > flooded + 10_000);
    bench.fabric.remove_port("b").unwrap();
    bench.fabric.remove_port("c").unwrap();
    bench.fabric.remove_switch("s").unwrap();
}

#[test]
fn an_idle_worker_sleeps_and_a_patch_carries_frames() {
    let mut bench = Bench::new(1);
    bench.port("a", Kind::Null, To::Patch("b".into()));
    let b = bench.port("b", Kind::Null, To::Patch("a".into()));
    until("sleep", || {
        bench.fabric.state().workers[0].active == 0 && bench.fabric.state().workers[0].sleeps > 0
    });
    bench.fabric.remove_port("a").unwrap();
    bench.port("a", source(2, 1), To::Patch("b".into()));
    until("frames over the patch", || bench.rx_frames(b) > 1000);
}

#[test]
fn static_and_hash_lookups_follow_their_ports() {
    let mut bench = Bench::new(1);
    let entries = vec![("02:00:00:00:00:02".into(), "b".into())];
    bench.switch("fixed", Lookup::Static { entries });
    let a = bench.port("a", source(2, 1), on("fixed"));
    let drops = |bench: &Bench| bench.page[a].tx_drops[Reason::NoPort as usize].load(Relaxed);
    until("drops, as the port isn't there yet", || drops(&bench) > 0);
    let b = bench.port("b", Kind::Null, on("fixed"));
    until("traffic", || bench.rx_frames(b) > 1000);

    bench.switch("spread", Lookup::Hash { members: vec!["m".into()], uplink: "up".into() });
    let m = bench.port("m", Kind::Null, on("spread"));
    bench.port("up", source(2, 1), on("spread"));
    until("traffic to the member", || bench.rx_frames(m) > 1000);
}

#[test]
fn wrong_changes_are_refused_and_change_nothing() {
    let mut bench = Bench::new(1);
    bench.switch("s", learning());
    bench.port("a", Kind::Null, on("s"));
    let port = |name: &str, to: To| Port {
        name: name.into(),
        kind: Kind::Null,
        to,
        worker: None,
        hold: Some(0),
        notify: Default::default(),
        counters: 9,
    };
    let fabric = &mut bench.fabric;
    assert!(matches!(fabric.add_port(port("a", on("s"))), Err(FabricError::Exists("port", _))));
    assert!(matches!(fabric.add_port(port("b", on("t"))), Err(FabricError::Unknown("switch", _))));
    let far = Port { counters: 256, ..port("b", on("s")) };
    assert!(matches!(fabric.add_port(far), Err(FabricError::Limit(_))));
    let nobody = Port { worker: Some("w9".into()), ..port("b", on("s")) };
    assert!(matches!(fabric.add_port(nobody), Err(FabricError::Unknown("worker", _))));
    assert!(matches!(fabric.remove_switch("s"), Err(FabricError::InUse(_))));
    assert!(matches!(fabric.remove_port("b"), Err(FabricError::Unknown("port", _))));
    assert!(matches!(fabric.attach("a", Vec::new()), Err(FabricError::Port(..))));
    assert!(matches!(fabric.table("t"), Err(FabricError::Unknown("switch", _))));
    assert_eq!(fabric.state().ports.len(), 1);
}
