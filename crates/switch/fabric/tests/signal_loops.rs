//! Clients whose descriptors signal each other: they use a bounded part of the session thread's time.
#![allow(clippy::unwrap_used)]

use ringway_fabric::Fabric;
use ringway_fabric::session_limit::{EACH, MOST, TICK};
use ringway_frame::Counters;
use ringway_host::{Clock, EventFd, receive_with, send_with, wait_readable};
use ringway_port::e1000;
use ringway_spec::{Kind, MacAddress, Poll, Port, Switch, To, Worker};
use ringway_switch::learning;
use ringway_vfio_user::{Client, IrqAction, IrqData, Packet, SetIrqs, Transport, pci};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const ICS: u64 = 0xc8;
const IMS: u64 = 0xd0;

struct Stream(UnixStream);

impl Transport for Stream {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        send_with(self.0.as_fd(), &packet.bytes, &fds).map(drop).map_err(io::Error::other)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

/// Serves the fabric once, and counts how often each port's session woke the thread.
fn serve(fabric: &mut Fabric, woken: &mut BTreeMap<u16, u64>) {
    let (ids, sockets): (Vec<_>, Vec<_>) = fabric.sessions().map(|(id, fd)| (id, fd.as_fd())).unzip();
    let ready = wait_readable(&sockets, Some(TICK)).unwrap();
    drop(sockets);
    for (id, _) in ids.into_iter().zip(ready).filter(|(_, ready)| *ready) {
        *woken.entry(id).or_default() += 1;
        assert!(fabric.serve(id).is_none_or(|event| format!("{event:?}").starts_with("Changed")));
    }
}

/// Runs `peer` on another thread, and serves the fabric until it ends.
fn served<R: Send>(fabric: &mut Fabric, peer: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let peer = scope.spawn(peer);
        while !peer.is_finished() {
            serve(fabric, &mut BTreeMap::new());
        }
        peer.join().unwrap()
    })
}

fn fabric(page: &Arc<Vec<Counters>>, names: &[&str]) -> Fabric {
    let name = "w0".to_string();
    let worker = Worker { name, core: None, poll: Poll::Adaptive, spin: 20_000, hold: 100_000 };
    let mut fabric = Fabric::start(&[worker], page.clone(), 42, &[]).unwrap();
    let lookup = Kind::new("learning", &learning::Settings { ageing: 300, entries: 64 });
    fabric.add_switch(Switch { name: "s".into(), lookup, forward_reserved: false }).unwrap();
    for (counters, name) in (0..).zip(names) {
        let mac = Some(MacAddress([2, 0, 0, 0, 0, counters as u8]));
        let (model, memory, techniques) = ("82540em".into(), e1000::MEMORY, e1000::Techniques::default());
        let card = e1000::Settings { model, mac, mtu: None, memory, carrier: true, techniques };
        let port = Port::new(name, Kind::new("e1000", &card), Some(To::Switch("s".into())));
        fabric.add_port(port, counters).unwrap();
    }
    fabric
}

/// A card's client that has its pin signal `call`, and unmasks it by `unmask`.
fn client(fabric: &mut Fabric, port: &str, call: &EventFd, unmask: &EventFd) -> Client<Stream> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    fabric.attach(port, vec![theirs.into()]).unwrap();
    let eventfds = |action, event: &EventFd| {
        let data = IrqData::Eventfds(vec![event.as_fd().try_clone_to_owned().unwrap()]);
        SetIrqs { index: pci::INTX, start: 0, count: 1, action, data }
    };
    let irqs = [eventfds(IrqAction::Trigger, call), eventfds(IrqAction::Unmask, unmask)];
    served(fabric, move || {
        let mut client = Client::negotiate(Stream(ours)).unwrap();
        // Memory accesses, bus master.
        client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
        irqs.into_iter().for_each(|irqs| client.set_irqs(irqs).unwrap());
        client.write(pci::BAR0, IMS, &[0xff, 0, 0, 0]).unwrap();
        client
    })
}

/// Lets the signals of `loops` clients go round until each of their sessions paused often. Another client is served
/// meanwhile, and no session causes more wake-ups than permitted.
fn are_bounded(fabric: &mut Fabric, page: &[Counters], loops: usize, other: &mut Client<Stream>) {
    let (clock, mut woken) = (Clock::new(), BTreeMap::new());
    let (began, limit) = (clock.now(), Instant::now() + Duration::from_secs(60));
    let pauses = |port: usize| page[port].session_pauses.load(Relaxed);
    while (0..loops).any(|port| pauses(port) < 20) {
        assert!(Instant::now() < limit, "{woken:?}: the signals do not go round");
        serve(fabric, &mut woken);
    }
    let most = u64::from(MOST) + u64::from(EACH) * ((clock.now() - began) / TICK + 2);
    assert!(woken.values().all(|count| *count <= most), "{woken:?} wake-ups, not {most}");
    let answered = served(fabric, || {
        let mut status = [0; 4];
        (0..50).all(|_| other.read(pci::BAR0, 8, &mut status).is_ok())
    });
    assert!(answered);
    assert_eq!(pauses(loops), 0, "a session with messages never pauses");
}

#[test]
fn an_interrupt_that_unmasks_itself_is_bounded() {
    let page: Arc<Vec<Counters>> = Arc::new((0..2).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page, &["a", "other"]);
    let [event, quiet] = [(); 2].map(|()| EventFd::new().unwrap());
    let mut idle = client(&mut fabric, "a", &event, &event);
    let mut other = client(&mut fabric, "other", &quiet, &quiet);
    served(&mut fabric, || idle.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap());
    event.signal();
    are_bounded(&mut fabric, &page, 1, &mut other);
}

#[test]
fn interrupts_of_two_ports_that_unmask_each_other_are_bounded() {
    let page: Arc<Vec<Counters>> = Arc::new((0..3).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page, &["a", "b", "other"]);
    let [forth, back, quiet] = [(); 3].map(|()| EventFd::new().unwrap());
    let mut a = client(&mut fabric, "a", &forth, &back);
    let mut b = client(&mut fabric, "b", &back, &forth);
    let mut other = client(&mut fabric, "other", &quiet, &quiet);
    served(&mut fabric, || {
        a.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
        b.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
    });
    forth.signal();
    are_bounded(&mut fabric, &page, 2, &mut other);
}
