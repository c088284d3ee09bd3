//! A function with a scripted monitor: each sleep of the guest is a step of the script, and time is a counter.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::{FunctionEnd, Host, Monitor as Messages, run};
use crate::channel::{Channel, RingPlace, ToGuest, ToMonitor};
use crate::role::Machine;
use crate::start::FunctionStart;
use ringway_mem::Region;
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::string::{String, ToString};
use std::vec::Vec;

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static MEMORY: RefCell<Vec<Region>> = const { RefCell::new(Vec::new()) };
}

/// A counter that advances by 100 ns with each look.
fn ticks() -> u64 {
    NOW.with(|now| now.replace(now.get() + 100))
}

/// Addresses are numbers of regions.
fn map(address: u64, _: u64) -> Option<Region> {
    MEMORY.with_borrow(|memory| memory.get(address as usize).cloned())
}

fn memory(bytes: u64) -> (u64, Region) {
    MEMORY.with_borrow_mut(|memory| {
        let region = Region::private(0, 0, bytes as usize);
        memory.push(region.clone());
        (memory.len() as u64 - 1, region)
    })
}

/// The fabric's side of a port's ring.
struct Port {
    place: RingPlace,
    memory: RingMemory,
    to_guest: Producer,
    from_guest: Consumer,
}

impl Port {
    fn new() -> Port {
        let geometry = Geometry { slots: [64, 64], ..Geometry::default() };
        let (address, region) = memory(geometry.header().unwrap().bytes);
        let place = RingPlace { address, len: region.len, doorbell: memory(4096).0, is_second: false };
        let memory = RingMemory::create(region, &geometry).unwrap();
        let (to_guest, from_guest) = (Producer::new(&memory, RX), Consumer::new(&memory, TX));
        Port { place, memory, to_guest, from_guest }
    }

    fn send(&mut self, frame: &[u8]) {
        assert!(self.to_guest.push(&self.memory, frame, [0; 10]).unwrap());
        self.to_guest.publish(&self.memory);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut frame = [0; 2048];
        let received = self.from_guest.pop(&self.memory, &mut frame).unwrap()?;
        self.from_guest.publish(&self.memory);
        Some(frame[..received.len].to_vec())
    }
}

/// The monitor's side, and what it got.
struct Monitor {
    channel: Channel,
    /// Messages other than bytes of connections, as text.
    said: Vec<String>,
    /// Bytes of the connection.
    answer: String,
}

impl Monitor {
    fn tell(&mut self, message: &ToGuest<'_>) {
        self.channel.send(message.to_bytes());
        self.channel.flush().unwrap();
    }

    fn listen(&mut self) {
        while let Some(message) = self.channel.receive().unwrap() {
            match ToMonitor::from_bytes(message).unwrap() {
                ToMonitor::Data(_, bytes) => self.answer.push_str(core::str::from_utf8(bytes).unwrap()),
                ToMonitor::Taken(..) => {}
                ToMonitor::Print(_, line) => self.said.push(String::from_utf8_lossy(line).into_owned()),
                ToMonitor::Wrong(_, why) => self.said.push(String::from_utf8_lossy(why).into_owned()),
                ToMonitor::Released(port, why) => {
                    self.said.push(std::format!("released {port}: {}", String::from_utf8_lossy(why)));
                }
                other => self.said.push(std::format!("{other:?}")),
            }
        }
        self.channel.flush().unwrap();
    }
}

/// A step of the script; `true`: it is done.
type Step = Box<dyn FnMut(&mut Monitor) -> bool>;

struct Scripted {
    monitor: Rc<RefCell<Monitor>>,
    steps: Vec<Step>,
    sleeps: u32,
}

impl fmt::Write for Scripted {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

impl Machine for Scripted {
    fn ticks(&self) -> u64 {
        ticks()
    }

    fn park(&mut self, microseconds: u32) {
        self.sleeps += 1;
        assert!(self.sleeps < 1000, "step {} from the end waits for ever", self.steps.len());
        NOW.with(|now| now.set(now.get() + u64::from(microseconds) * 1000));
        let mut monitor = self.monitor.borrow_mut();
        monitor.listen();
        if self.steps.first_mut().is_some_and(|step| step(&mut monitor)) {
            drop(self.steps.remove(0));
        }
    }
}

fn start(text: &str) -> FunctionStart {
    FunctionStart {
        text: text.into(),
        title: "f.click".into(),
        ports: ["a", "b"].map(ToString::to_string).into(),
        handlers: "/f.sock".into(),
        burst: 32,
        hz: 1_000_000_000,
        wall: 7,
        ..FunctionStart::default()
    }
}

fn play(text: &str, steps: Vec<Step>) -> (FunctionEnd, Rc<RefCell<Monitor>>) {
    let (_, region) = memory(Channel::bytes().unwrap());
    let channel = Channel::create(region.clone()).unwrap();
    let monitor = Monitor { channel, said: Vec::new(), answer: String::new() };
    let monitor = Rc::new(RefCell::new(monitor));
    let machine = Scripted { monitor: monitor.clone(), steps, sleeps: 0 };
    let host = Host { machine, notify: Box::new(|| ()), ticks, map };
    let messages = Messages::Channel(Channel::attach(region).unwrap());
    let end = run(host, messages, Vec::new(), start(text), &[]);
    monitor.borrow_mut().listen();
    (end, monitor)
}

const WIRE: &str = "FromPort(a) -> c :: Counter -> ToPort(b);";

/// Sends a line to the guest's ControlSocket; done once the answer ends with `until`.
fn ask(line: String, until: &'static str) -> Step {
    let mut asked = false;
    Box::new(move |monitor| {
        if !std::mem::replace(&mut asked, true) {
            monitor.answer.clear();
            monitor.tell(&ToGuest::Data(0, line.as_bytes()));
            return false;
        }
        monitor.answer.contains(until)
    })
}

#[test]
fn frames_pass_and_handlers_answer_until_the_configuration_stops() {
    let ports = Rc::new(RefCell::new([Port::new(), Port::new()]));
    let [given, sending, closing, last] = [(); 4].map(|()| ports.clone());
    let mut sent = false;
    let longer = "FromPort(a) -> c :: Counter -> d :: Counter -> ToPort(b);";
    let steps: Vec<Step> = std::vec![
        Box::new(move |monitor| {
            let wanted = ["Up(", "Wanted(0, false)", "Wanted(1, false)"];
            assert!(wanted.iter().all(|want| monitor.said.iter().any(|said| said.starts_with(want))));
            for (number, port) in (0..).zip(&*given.borrow()) {
                monitor.tell(&ToGuest::PortUp(number, port.place));
            }
            monitor.tell(&ToGuest::Opened(0));
            true
        }),
        Box::new(move |_| {
            let [a, b] = &mut *sending.borrow_mut();
            if !std::mem::replace(&mut sent, true) {
                (0..10).for_each(|number| a.send(&[number; 60]));
                return false;
            }
            (0..10).for_each(|number| assert_eq!(b.next(), Some([number; 60].to_vec())));
            assert_eq!(b.next(), None);
            true
        }),
        ask("READ c.count\n".into(), "DATA 2\r\n10"),
        ask("READ c.nothing\n".into(), "511 No handler"),
        ask(
            std::format!("WRITEDATA hotconfig {}\n{longer}", longer.len()),
            "200 Write handler 'hotconfig' OK"
        ),
        ask("READ c.count\n".into(), "DATA 2\r\n10"),
        ask("READ d.count\n".into(), "DATA 1\r\n0"),
        ask("WRITEDATA hotconfig 6\nIdle;\n".into(), "no FromPort or ToPort of port 'a'"),
        // The fabric takes the ring back: the guest releases it, and asks no more before it is given another.
        Box::new(move |monitor| {
            closing.borrow_mut()[0].memory.close();
            closing.borrow_mut()[0].send(&[0; 60]);
            monitor.said.clear();
            true
        }),
        Box::new(move |monitor| monitor
            .said
            .iter()
            .any(|said| said.starts_with("released 0: the ring was closed"))),
        ask("READ list\n".into(), "ControlSocket"),
        Box::new(move |monitor| {
            let new = Port::new();
            monitor.tell(&ToGuest::PortUp(0, new.place));
            last.borrow_mut()[0] = new;
            last.borrow_mut()[0].send(&[9; 60]);
            true
        }),
        Box::new(move |_| ports.borrow_mut()[1].next() == Some([9; 60].to_vec())),
        ask("WRITE stop\n".into(), "200"),
    ];
    let (end, _) = play(WIRE, steps);
    assert_eq!(end, FunctionEnd::Stopped);
}

#[test]
fn frames_wait_until_every_port_is_up() {
    let ports = Rc::new(RefCell::new([Port::new(), Port::new()]));
    let [first, second] = [(); 2].map(|()| ports.clone());
    let steps: Vec<Step> = std::vec![
        Box::new(move |monitor| {
            let [a, _] = &mut *first.borrow_mut();
            (0..10).for_each(|number| a.send(&[number; 60]));
            monitor.tell(&ToGuest::PortUp(0, a.place));
            true
        }),
        Box::new(move |monitor| {
            monitor.tell(&ToGuest::PortUp(1, second.borrow()[1].place));
            true
        }),
        Box::new(move |_| {
            let [_, b] = &mut *ports.borrow_mut();
            (0..10).for_each(|number| assert_eq!(b.next(), Some([number; 60].to_vec())));
            true
        }),
        Box::new(|monitor| {
            monitor.tell(&ToGuest::Opened(0));
            true
        }),
        ask("WRITE stop\n".into(), "200"),
    ];
    let (end, _) = play(WIRE, steps);
    assert_eq!(end, FunctionEnd::Stopped);
}

#[test]
fn a_wrong_configuration_is_reported() {
    let (end, monitor) = play("FromPort(a) ->\n Nonsense -> ToPort(b);", Vec::new());
    assert_eq!(end, FunctionEnd::Wrong);
    let said = monitor.borrow().said.concat();
    assert!(said.contains("f.click:2:2: ") && said.contains("Nonsense"), "{said}");
    let (_, monitor) = play(&std::format!("FromPort(a) -> N{};", "o".repeat(5000)), Vec::new());
    assert!(monitor.borrow().said.concat().len() > 4096, "in several parts");
    let (_, monitor) = play(&std::format!("{WIRE} ControlSocket(TCP, 80);"), Vec::new());
    assert!(monitor.borrow().said.concat().contains("has no sockets of its own"));
}

#[test]
fn lines_are_printed_by_the_monitor() {
    let long = "x".repeat(3000);
    let text = std::format!("{WIRE} Script(print \"{long}\", print \"short\", stop);");
    let (end, monitor) = play(&text, Vec::new());
    assert_eq!(end, FunctionEnd::Stopped);
    assert!(monitor.borrow().said.concat().contains(&std::format!("{long}short")));
}
