//! Tests of a running fabric with ports that need no peer.
#![allow(clippy::unwrap_used)]

use ringway_fabric::{Fabric, FabricError};
use ringway_frame::{Counters, CountersPage, Reason};
use ringway_port::e1000;
use ringway_port::source::Settings;
use ringway_spec::{Kind, MacAddress, Poll, Port, Switch, To, Worker};
use ringway_switch::{fixed, hash, learning};
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
                node: None,
                poll: Poll::Adaptive,
                spin: 20_000,
                hold: 100_000,
            })
            .collect();
        let shared: Arc<dyn CountersPage> = page.clone();
        Bench { fabric: Fabric::start(&workers, shared, 42, &[]).unwrap(), page, next: 0 }
    }

    fn switch(&mut self, name: &str, lookup: Kind) {
        self.fabric
            .add_switch(Switch { name: name.into(), lookup, forward_reserved: false, snooping: None })
            .unwrap();
    }

    fn port(&mut self, name: &str, kind: Kind, to: To) -> usize {
        let counters = self.next;
        self.fabric.add_port(Port::new(name, kind, Some(to)), counters).unwrap();
        self.next += 1;
        counters as usize
    }

    fn rx_frames(&self, counters: usize) -> u64 {
        self.page[counters].rx_frames.load(Relaxed)
    }
}

fn learning() -> Kind {
    Kind::new("learning", &learning::Settings { ageing: 300, entries: 1024, refuse_moves: false })
}

fn source(to: u8, from: u8) -> Kind {
    let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
    Kind::new("source", &Settings { size: 64, to: mac(to), from: mac(from), rate: None })
}

fn null() -> Kind {
    Kind::new("null", &())
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
fn frames_reach_the_learned_port_and_stop_with_their_source() {
    let mut bench = Bench::new(2);
    bench.switch("s", learning());
    let a = bench.port("a", source(2, 1), on("s"));
    let b = bench.port("b", source(1, 2), on("s"));
    let c = bench.port("c", null(), on("s"));
    until("traffic both ways", || bench.rx_frames(a) > 10_000 && bench.rx_frames(b) > 10_000);
    let flooded = bench.rx_frames(c);
    until("more traffic", || bench.rx_frames(b) > 100_000);
    assert!(bench.rx_frames(c) <= flooded + 128, "known addresses are not flooded");
    let table = bench.fabric.table("s").unwrap();
    let rows: Vec<_> = table.iter().map(|entry| (entry.mac.0[5], entry.port.as_str())).collect();
    assert_eq!(rows, [(1, "a"), (2, "b")]);

    bench.fabric.remove_port("a").unwrap();
    assert_eq!(bench.fabric.table("s").unwrap().len(), 1, "its addresses are forgotten");
    until("flooding", || bench.rx_frames(c) > flooded + 10_000);
    bench.fabric.remove_port("b").unwrap();
    bench.fabric.remove_port("c").unwrap();
    bench.fabric.remove_switch("s").unwrap();
}

#[test]
fn frames_for_a_port_with_a_receiver_go_to_that() {
    let mut bench = Bench::new(2);
    bench.switch("s", learning());
    // Its receiver does not exist yet: neither floods nor learned addresses reach it, and nothing comes back.
    let end = Port { receiver: Some("way-back".into()), ..Port::new("end", source(2, 1), Some(on("s"))) };
    let ends = bench.next as usize;
    bench.fabric.add_port(end, bench.next).unwrap();
    bench.next += 1;
    let a = bench.port("a", source(1, 2), on("s"));
    let dropped = |bench: &Bench| bench.page[ends].tx_drops[Reason::NoPort as usize].load(Relaxed);
    until("frames without a port", || dropped(&bench) > 1000);
    let back = bench.port("way-back", null(), To::Patch("nobody".into()));
    until("frames both ways", || bench.rx_frames(a) > 10_000 && bench.rx_frames(back) > 10_000);
    assert_eq!(bench.rx_frames(ends), 0);
    let table = bench.fabric.table("s").unwrap();
    let rows: Vec<_> = table.iter().map(|entry| (entry.mac.0[5], entry.port.as_str())).collect();
    assert_eq!(rows, [(1, "end"), (2, "a")], "the switch knows the port, not its receiver");
    bench.fabric.remove_port("way-back").unwrap();
    let before = bench.rx_frames(a);
    let drops = dropped(&bench);
    until("frames without a port again", || dropped(&bench) > drops + 1000);
    assert!(bench.rx_frames(a) >= before && bench.rx_frames(ends) == 0);
    bench.fabric.remove_port("end").unwrap();
}

#[test]
fn an_idle_worker_sleeps_and_a_patch_carries_frames() {
    let mut bench = Bench::new(1);
    bench.port("a", null(), To::Patch("b".into()));
    let b = bench.port("b", null(), To::Patch("a".into()));
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
    let entries = vec![(MacAddress([2, 0, 0, 0, 0, 2]), "b".into())];
    bench.switch("fixed", Kind::new("static", &fixed::Settings { entries }));
    let a = bench.port("a", source(2, 1), on("fixed"));
    let drops = |bench: &Bench| bench.page[a].tx_drops[Reason::NoPort as usize].load(Relaxed);
    until("drops, as the port isn't there yet", || drops(&bench) > 0);
    let b = bench.port("b", null(), on("fixed"));
    until("traffic", || bench.rx_frames(b) > 1000);

    bench.switch(
        "spread",
        Kind::new("hash", &hash::Settings { members: vec!["m".into()], uplink: "up".into() }),
    );
    let m = bench.port("m", null(), on("spread"));
    bench.port("up", source(2, 1), on("spread"));
    until("traffic to the member", || bench.rx_frames(m) > 1000);
}

#[test]
fn invalid_changes_are_refused_without_effect() {
    let mut bench = Bench::new(1);
    bench.switch("s", learning());
    bench.port("a", null(), on("s"));
    let port = |name: &str, to: To| Port::new(name, null(), Some(to));
    let fabric = &mut bench.fabric;
    assert!(matches!(fabric.add_port(port("a", on("s")), 9), Err(FabricError::Exists("port", _))));
    assert!(matches!(fabric.add_port(port("b", on("t")), 9), Err(FabricError::Unknown("switch", _))));
    assert!(matches!(fabric.add_port(port("b", on("s")), 256), Err(FabricError::Limit(_))));
    let strange = Port { kind: Kind::new("strange", &()), ..port("b", on("s")) };
    assert!(matches!(fabric.add_port(strange, 9), Err(FabricError::Unknown("kind", _))));
    let nobody = Port { worker: Some("w9".into()), ..port("b", on("s")) };
    assert!(matches!(fabric.add_port(nobody, 9), Err(FabricError::Unknown("worker", _))));
    assert!(matches!(fabric.remove_switch("s"), Err(FabricError::InUse(_))));
    assert!(matches!(fabric.remove_port("b"), Err(FabricError::Unknown("port", _))));
    assert!(matches!(fabric.attach("a", Vec::new()), Err(FabricError::Port(..))));
    assert!(matches!(fabric.table("t"), Err(FabricError::Unknown("switch", _))));
    assert_eq!(fabric.state().ports.len(), 1);
}

#[test]
fn a_moved_port_continues_and_no_other_is_affected() {
    let mut bench = Bench::new(2);
    bench.switch("s", learning());
    bench.port("a", source(2, 1), on("s"));
    let b = bench.port("b", null(), on("s"));
    let workers = |bench: &Bench| {
        let ports = bench.fabric.state().ports;
        ports.into_iter().map(|port| port.worker).collect::<Vec<_>>()
    };
    assert_eq!(workers(&bench), ["w0", "w1"]);
    for (worker, found) in [("w1", "w1"), ("w0", "w0")] {
        bench.fabric.move_port("a", Some(worker)).unwrap();
        assert_eq!(workers(&bench), [found, "w1"]);
        let before = bench.rx_frames(b);
        until("traffic", || bench.rx_frames(b) > before + 10_000);
    }
    assert!(matches!(bench.fabric.move_port("a", Some("w9")), Err(FabricError::Unknown("worker", _))));
    bench.fabric.move_port("a", None).unwrap();
    bench.fabric.remove_port("a").unwrap();
    bench.fabric.remove_port("b").unwrap();
}

#[test]
fn a_cards_techniques_change_while_its_client_stays() {
    let mut bench = Bench::new(1);
    let settings = |techniques: e1000::Techniques| {
        let (mac, memory) = (Some(MacAddress([2, 0, 0, 0, 0, 1])), e1000::MEMORY);
        let (model, mtu, carrier) = ("82574l".into(), None, true);
        Kind::new("e1000", &e1000::Settings { model, mac, mtu, memory, carrier, techniques })
    };
    bench.port("a", settings(e1000::Techniques::default()), To::Patch("b".into()));
    bench.port("b", null(), To::Patch("a".into()));
    let (socket, _client) = std::os::unix::net::UnixStream::pair().unwrap();
    bench.fabric.attach("a", vec![socket.into()]).unwrap();
    let shown = |bench: &Bench| {
        let port = bench.fabric.state().ports.swap_remove(0);
        (port.state, port.detail)
    };
    assert_eq!(shown(&bench), ("attached".into(), "82574l".into()));
    let new = e1000::Techniques { moderate: 50_000, csb: true, ..e1000::Techniques::default() };
    let port = |name: &str, kind| Port::new(name, kind, Some(To::Patch("b".into())));
    bench.fabric.change_port(port("a", settings(new))).unwrap();
    assert_eq!(shown(&bench), ("attached".into(), "82574l csb moderate=50us".into()));
    assert_eq!(bench.fabric.exits("a").unwrap(), Some(ringway_port::Exits::default()));
    assert_eq!(bench.fabric.exits("b").unwrap(), None);
    assert!(matches!(bench.fabric.exits("c"), Err(FabricError::Unknown("port", _))));
    assert!(matches!(bench.fabric.change_port(port("b", null())), Err(FabricError::Port(..))));
}
