//! The fabric of the soak: its ports, the paths between programs, and guests that send back what they get.

use super::Program;
use crate::data_kills::reflect;
use crate::lab::net::{namespace, within};
use crate::lab::{Lab, Running, isolations, until};
use std::fmt::Write;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

/// Whose end a path goes on after with no more loss than bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Survives {
    /// That of any process.
    Every,
    /// Not that of `control`: functions on workers are started again.
    Data,
    /// None: ports of these kinds begin again, with another program too.
    None,
}

/// A path between two programs, or from a program to a guest or a function and back.
pub(super) struct Flow {
    pub ends: Vec<Program>,
    /// The ports whose drops are those of the path.
    pub ports: Vec<String>,
    /// The file's text about it; `{delay}` stands for a link's delay.
    text: String,
    /// Whether each drop is that of a frame of the path: frames of others don't come there.
    pub is_exact: bool,
    /// Whether its guest has packed rings, if there is one.
    pub guest: Option<bool>,
    /// Whether it leads through a function, `mirror` and the path's number. Frames for which its port has no room are
    /// dropped by the element `to`.
    pub has_function: bool,
    pub survives: Survives,
}

impl Flow {
    /// Frames that were sent, received, and that came twice.
    pub fn counts(&self) -> (u64, u64, u64) {
        let sum = |count: fn(&Program) -> u64| self.ends.iter().map(count).sum();
        (sum(|end| end.sent), sum(|end| end.received), sum(|end| end.twice))
    }

    /// Begins to count anew.
    pub fn restart(&mut self) {
        self.ends.iter_mut().for_each(|end| (end.sent, end.received, end.twice) = (0, 0, 0));
    }
}

fn ring(name: &str, more: &str) -> String {
    format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n{more}")
}

fn wire(name: &str, [own, other]: [u16; 2]) -> String {
    format!(
        "[port.{name}]\nkind = \"wire\"\nencapsulation = \"vxlan\"\nvni = 7\nlocal = \"127.0.0.1\"\n\
         local-port = {own}\npeer = \"127.0.0.1\"\nport = {other}\n"
    )
}

/// A function that sends back what it gets from the ring port of a program.
fn mirror(number: usize, isolation: &str, own: Flow) -> Flow {
    let (a, port) = (own.ends[0].port, format!("f{number}"));
    let click = format!("FromPort({port}) -> Counter -> to :: ToPort({port});");
    let patch = format!("[patch.{a}]\nports = [\"{a}\", \"{port}\"]\n");
    let function = format!(
        "[function.mirror{number}]\nisolation = \"{isolation}\"\nport = \"{port}\"\nclick = \"{click}\"\n"
    );
    let address = own.ends[0].address;
    Flow {
        text: ring(a, "") + &ring(&port, "") + &patch + &function,
        ports: vec![a.into(), port],
        ends: vec![Program::new(a, address, address)],
        has_function: true,
        survives: if isolation == "worker" { Survives::Data } else { Survives::Every },
        ..own
    }
}

/// Ports on interfaces of a namespace. `tap`: the host's side of a TAP, by packet sockets; else both ends of a cable,
/// one by AF_XDP, the other one by packet sockets.
fn interfaces(number: usize, tap: bool, namespace: &str, own: Flow) -> Flow {
    let [near, far] = ["near", "far"].map(|what| format!("{what}{number}"));
    let [a, b] = [own.ends[0].port, own.ends[1].port];
    let interface = if tap { &near } else { &far };
    if !tap {
        within(
            namespace,
            &format!(
                "ip link add {near} type veth peer name {far}; ip link set {near} up; ip link set {far} up"
            ),
        );
    }
    let port = |name: &str, kind: &str, interface: &str| {
        format!(
            "[port.{name}]\nkind = \"{kind}\"\ninterface = \"{interface}\"\nnamespace = \"{namespace}\"\n"
        )
    };
    let joined = |port: &str, to: &str| format!("[patch.{port}]\nports = [\"{port}\", \"{to}\"]\n");
    Flow {
        text: ring(a, "")
            + &ring(b, "")
            + &port(&near, if tap { "tap" } else { "xdp" }, &near)
            + &port(&far, "packet", interface)
            + &joined(a, &near)
            + &joined(b, &far),
        ports: vec![a.into(), b.into(), near, far],
        survives: if tap { Survives::Every } else { Survives::None },
        ..own
    }
}

/// A program whose frames are written to a file.
fn recorder(number: usize, own: Flow) -> Flow {
    let (a, port) = (own.ends[0].port, format!("rec{number}"));
    let path = std::env::temp_dir().join(format!("ringway-soak-{}-{number}.pcapng", std::process::id()));
    let port_text = format!("[port.{port}]\nkind = \"pcap\"\nrecord = \"{}\"\n", path.display());
    let [mut from, mut to] = <[Program; 2]>::try_from(own.ends).ok().unwrap();
    from.is_silent = true;
    to.recording = Some(Recording { path, at: 0 });
    Flow {
        text: ring(a, "") + &port_text + &format!("[patch.{a}]\nports = [\"{a}\", \"{port}\"]\n"),
        ports: vec![a.into(), port],
        ends: vec![from, to],
        survives: Survives::None,
        ..own
    }
}

/// What a `pcap` port records.
pub(super) struct Recording {
    path: PathBuf,
    /// Bytes that were read.
    at: u64,
}

impl Recording {
    /// The numbers of the frames that were recorded since the last call.
    pub fn read(&mut self) -> Vec<u64> {
        let Ok(mut file) = File::open(&self.path) else { return Vec::new() };
        if file.metadata().unwrap().len() < self.at {
            // Another process began it again.
            self.at = 0;
        }
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        file.seek(SeekFrom::Start(self.at)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        while rest.len() >= 12
            && let length @ 12.. = word(rest, 4) as usize
            && rest.len() >= length
        {
            // An enhanced packet block has its frame behind 28 bytes.
            if word(rest, 0) == 6 {
                numbers.push(u64::from_be_bytes(rest[28 + 14..28 + 22].try_into().unwrap()));
            }
            rest = &rest[length..];
            self.at += length as u64;
        }
        numbers
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Further kinds of paths: what this machine has for them.
#[derive(Clone, Copy, Debug)]
enum Further {
    Worker,
    Vm,
    Tap,
    Xdp,
    Record,
}

fn further(has_namespace: bool) -> Vec<Further> {
    let vm = isolations().contains(&"vm").then_some(Further::Vm);
    let interfaces = [Further::Tap, Further::Xdp].into_iter().filter(|_| has_namespace);
    [Further::Worker, Further::Record].into_iter().chain(vm).chain(interfaces).collect()
}

/// The path with a number: each kind in turn.
fn flow(number: usize, namespace: Option<&str>) -> Flow {
    // They live as long as the test.
    let name = |what: &str| -> &'static str { format!("{what}{number}").leak() };
    let (a, b) = (name("a"), name("b"));
    let at = (2 * number) as u8 + 1;
    let two = || vec![Program::new(a, at, at + 1), Program::new(b, at + 1, at)];
    let ports = |all: &[&str]| all.iter().map(|name| name.to_string()).collect();
    let both = ring(a, "") + &ring(b, "");
    let own = Flow {
        ends: two(),
        ports: ports(&[a, b]),
        text: String::new(),
        is_exact: false,
        guest: None,
        has_function: false,
        survives: Survives::Every,
    };
    let more = further(namespace.is_some());
    let kind = number % (KINDS + more.len());
    if let Some(kind) = kind.checked_sub(KINDS) {
        let namespace = namespace.unwrap_or_default();
        return match more[kind] {
            Further::Worker => mirror(number, "worker", own),
            Further::Vm => mirror(number, "vm", own),
            Further::Tap => interfaces(number, true, namespace, own),
            Further::Xdp => interfaces(number, false, namespace, own),
            Further::Record => recorder(number, own),
        };
    }
    match kind {
        0 => {
            Flow { text: both + &format!("[patch.{a}]\nports = [\"{a}\", \"{b}\"]\n"), is_exact: true, ..own }
        }
        1 => Flow { text: ring(a, "switch = \"main\"\n") + &ring(b, "switch = \"main\"\n"), ..own },
        2 => Flow {
            text: both + &format!("[link.{a}]\nports = [\"{a}\", \"{b}\"]\ndelay = \"{{delay}}ms\"\n"),
            ports: ports(&[a, b, &format!("{a}/{a}"), &format!("{a}/{b}")]),
            ..own
        },
        3 => {
            let (near, far) = (name("near"), name("far"));
            // Both are free now.
            let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            let [one, two] = sockets.map(|socket| socket.local_addr().unwrap().port());
            let joined = |port: &str, to: &str| format!("[patch.{port}]\nports = [\"{port}\", \"{to}\"]\n");
            let wires = wire(near, [one, two]) + &wire(far, [two, one]) + &joined(a, near) + &joined(b, far);
            Flow { text: both + &wires, ports: ports(&[a, b, near, far]), ..own }
        }
        4 => mirror(number, "process", own),
        kind => {
            let vm = name("vm");
            let port = format!("[port.{vm}]\nkind = \"vhost-user\"\nsocket = \"{vm}.sock\"\n");
            Flow {
                text: ring(a, "") + &port + &format!("[patch.{a}]\nports = [\"{a}\", \"{vm}\"]\n"),
                ports: ports(&[a, vm]),
                // It gets its own frames again.
                ends: vec![Program::new(a, at, at)],
                guest: Some(kind == 6),
                is_exact: true,
                ..own
            }
        }
    }
}

/// Kinds of paths that are everywhere.
const KINDS: usize = 7;

/// So many paths, or one of each kind; and the namespace of their interfaces.
pub(super) fn flows(paths: Option<usize>) -> (Vec<Flow>, Option<Running>) {
    let is_root = rustix::process::geteuid().is_root();
    let (keeper, path) = if is_root { Some(namespace()) } else { None }.unzip();
    let paths = paths.unwrap_or(KINDS + further(is_root).len());
    ((0..paths).map(|number| flow(number, path.as_deref())).collect(), keeper)
}

/// The fabric's file, with those of eight further ports that `extra` has a bit for, and this delay of links in
/// milliseconds.
pub(super) fn file(flows: &[Flow], extra: u8, delay: u64) -> String {
    let mut text = String::from("[switch.main]\n[switch.extra]\n");
    for flow in flows {
        text += &flow.text.replace("{delay}", &delay.to_string());
    }
    for number in (0..8).filter(|number| extra >> number & 1 == 1) {
        let name = format!("extra{number}");
        let kind = match number % 4 {
            0 => "kind = \"null\"\n".to_string(),
            1 => "kind = \"source\"\nrate = \"100pps\"\nto = \"02:00:00:00:00:01\"\n\
                  from = \"02:00:00:00:00:02\"\n"
                .into(),
            2 => format!("kind = \"ring\"\nsocket = \"{name}.sock\"\n"),
            _ => format!("kind = \"vhost-user\"\nsocket = \"{name}.sock\"\n"),
        };
        let _ = write!(text, "[port.{name}]\n{kind}switch = \"extra\"\n");
    }
    text
}

/// A guest at the end of a path.
pub(super) struct Guest {
    pub path: usize,
    packed: bool,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Guest {
    pub fn new(lab: &Lab, path: usize, packed: bool) -> Guest {
        let mut guest = Guest { path, packed, stop: Arc::default(), thread: None };
        guest.start(lab);
        guest
    }

    fn start(&mut self, lab: &Lab) {
        let port = format!("vm{}", self.path);
        let socket = UnixStream::connect(lab.socket(&format!("{port}.sock"))).unwrap();
        let (stop, packed) = (Arc::new(AtomicBool::new(false)), self.packed);
        self.stop = stop.clone();
        self.thread = Some(std::thread::spawn(move || reflect(socket, packed, &stop)));
        until("the guest is up", || lab.state(&port) == "up");
    }

    /// Its front-end ends, and another one connects.
    pub fn restart(&mut self, lab: &Lab) {
        self.end();
        let port = format!("vm{}", self.path);
        until("the port waits", || lab.state(&port) == "waiting");
        self.start(lab);
    }

    fn end(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the guest has failed");
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}
