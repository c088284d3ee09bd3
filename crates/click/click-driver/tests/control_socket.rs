//! Programs that connect to a ControlSocket: more than its limit of connections, and programs that make
//! arbitrary calls.
#![allow(clippy::unwrap_used)]

use crate::configuration::configuration;
use proptest::prelude::*;
use ringway_click::{Options, Recorder, Router};
use ringway_click_driver::click::registry;
use ringway_click_lang::{Anything, Source};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The limit of a ControlSocket.
const MOST: usize = 64;
const GREETING: &str = "Click::ControlSocket/1.3\r\n";
const ANSWER: &str = "200 Read handler 's.class' OK\r\nDATA 13\r\nControlSocket";

/// A router with a ControlSocket, whose time advances by an hour each turn.
struct Lab {
    place: PathBuf,
    router: Router,
}

impl Lab {
    fn new(name: &str) -> Self {
        Self::beside(name, "").unwrap()
    }

    /// A router with a control socket and the elements `more`; `None` if they can't be created.
    fn beside(name: &str, more: &str) -> Option<Self> {
        let place = std::env::temp_dir().join(format!("ringway-{name}-{}", std::process::id()));
        let text = format!(
            "s :: ControlSocket(UNIX, {}); Script(label again, wait 3600s, goto again); {more}",
            place.display()
        );
        let options = Options::simulated(1, Recorder::default(), &text);
        let graph = Source::new(&text, "config").read(&mut Anything).graph;
        Some(Self { place, router: Router::build(graph, &registry(), options).ok()? })
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.place).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Lets the element process all connections, including new ones.
    fn serve(&mut self) {
        for _ in 0..3 {
            let descriptors: Vec<i32> = self.router.interests().iter().map(|it| it.descriptor).collect();
            descriptors.iter().for_each(|descriptor| self.router.selected(*descriptor, true, true));
        }
    }

    /// The answer to a command, and whether the connection is then closed.
    fn asked(&mut self, program: &mut UnixStream, command: &str) -> (String, bool) {
        // Writing to a closed connection fails.
        let _ = program.write_all(command.as_bytes());
        self.serve();
        let mut output = Vec::new();
        let ended = match program.read_to_end(&mut output) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        (String::from_utf8(output).unwrap(), ended)
    }
}

#[test]
fn the_longest_idle_connection_is_closed_for_a_new_one() {
    let mut lab = Lab::new("idle");
    let mut idle: Vec<UnixStream> = (0..MOST).map(|_| lab.connect()).collect();
    lab.serve();
    assert_eq!(lab.asked(&mut idle[0], "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
    let mut another = lab.connect();
    assert_eq!(lab.asked(&mut another, "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
    // The first connection has been active since; so the second was closed.
    assert_eq!(lab.asked(&mut idle[1], ""), (GREETING.into(), true));
    assert_eq!(lab.asked(&mut idle[0], "READ s.class\n"), (ANSWER.into(), false));
    assert_eq!(lab.asked(&mut idle[2], "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
}

#[test]
fn busy_connections_are_kept_for_a_while() {
    let mut lab = Lab::new("busy");
    let mut busy: Vec<UnixStream> = (0..MOST).map(|_| lab.connect()).collect();
    for program in &mut busy {
        program.write_all(b"WRITEDATA s.class 100\n").unwrap();
    }
    lab.serve();
    let mut another = lab.connect();
    assert_eq!(lab.asked(&mut another, "READ s.class\n"), (String::new(), true));
    assert_eq!(lab.asked(&mut busy[0], ""), (GREETING.into(), false));
    for _ in 0..3 {
        lab.router.turn();
    }
    busy[0].write_all(b"more").unwrap();
    lab.serve();
    let mut another = lab.connect();
    assert_eq!(lab.asked(&mut another, "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
    assert_eq!(lab.asked(&mut busy[0], "and more"), (String::new(), false));
    assert_eq!(lab.asked(&mut busy[1], ""), (GREETING.into(), true));
}

#[test]
fn a_started_command_completes_after_its_client_disconnects() {
    let mut lab = Lab::beside("gone", "Idle -> r :: RadixIPLookup -> Discard").unwrap();
    let watched = lab.router.interests().len();
    let lines: String = (0..2000).map(|at| format!("add 10.0.{}.{}/32 0\n", at / 256, at % 256)).collect();
    let mut program = lab.connect();
    lab.serve();
    program.write_all(format!("READ s.class\nWRITEDATA r.ctrl {}\n{lines}", lines.len()).as_bytes()).unwrap();
    drop(program);
    lab.serve();
    let done = |router: &mut Router| router.read("r.table").unwrap().lines().count();
    assert!((1..2000).contains(&done(&mut lab.router)), "it is in the middle");
    assert!((0..1000).any(|_| {
        lab.router.turn();
        lab.router.interests().len() == watched && done(&mut lab.router) == 2000
    }));
    for _ in 0..=MOST {
        let mut another = lab.connect();
        assert_eq!(lab.asked(&mut another, "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
    }
}

/// An `LLRPC` with its announced data, usually of element `e`.
fn call() -> impl Strategy<Value = Vec<u8>> {
    let element = prop_oneof![4 => Just("e"), 1 => Just("no/such"), 1 => Just("")];
    // A remotely callable number contains the size of its data, and a bit that says so.
    let made =
        (1..4u32, 0..6u32, 0..64u32).prop_map(|(way, size, own)| way << 30 | size << 16 | 0x4000 | own);
    let number = prop_oneof![made.prop_map(|it| format!("{it:x}")), "[0-9a-fxG#-]{0,12}"];
    let length = prop_oneof![4 => (0..8usize).prop_map(Some), 1 => Just(Some(0xfff)), 1 => Just(None)];
    (element, number, length, any::<u8>(), "|-1| 99999999999999999999| x").prop_map(
        |(element, number, length, byte, wrong)| {
            let mut line = format!("LLRPC {element}#{number}").into_bytes();
            match length {
                Some(length) => {
                    line.extend(format!(" {length}\n").into_bytes());
                    line.extend(vec![byte; length]);
                }
                None => line.extend(format!("{wrong}\n").into_bytes()),
            }
            line
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn no_handler_call_causes_a_panic(calls in prop::collection::vec(call(), 1..12)) {
        let registry = registry();
        for class in registry.iter() {
            let frames = [vec![0; 60]];
            let texts = [false, true].map(|pull| configuration(class, pull, true, &frames));
            let Some(mut lab) = texts.iter().find_map(|text| Lab::beside("calls", text)) else { continue };
            let mut program = lab.connect();
            let commands: Vec<u8> = calls.iter().flatten().copied().chain(*b"READ s.class\n").collect();
            let _ = program.write_all(&commands);
            let (output, ended) = lab.asked(&mut program, "");
            prop_assert!(!ended && output.ends_with(ANSWER), "{}: {output}", class.name);
        }
    }
}
