//! The fabric of the soak: its ports, the paths between programs, and guests that send back what they get.

use super::Program;
use crate::data_kills::reflect;
use crate::lab::{Lab, until};
use std::fmt::Write;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

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
    /// Whether it leads through a function in a process, `mirror` and the path's number.
    pub has_function: bool,
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

/// The path with a number: each kind in turn.
fn flow(number: usize) -> Flow {
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
    };
    match number % 7 {
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
        4 => {
            let (port, function) = (name("f"), name("mirror"));
            let click = format!("FromPort({port}) -> Counter -> ToPort({port});");
            let patch = format!("[patch.{a}]\nports = [\"{a}\", \"{port}\"]\n");
            let function = format!(
                "[function.{function}]\nisolation = \"process\"\nport = \"{port}\"\nclick = \"{click}\"\n"
            );
            Flow {
                text: ring(a, "") + &ring(port, "") + &patch + &function,
                ports: ports(&[a, port]),
                ends: vec![Program::new(a, at, at)],
                has_function: true,
                ..own
            }
        }
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

/// So many paths.
pub(super) fn flows(paths: usize) -> Vec<Flow> {
    (0..paths).map(flow).collect()
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
