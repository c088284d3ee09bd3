//! Programs that connect to a ControlSocket, more of them than it has connections.
#![allow(clippy::unwrap_used)]

use ringway_click::{Options, Recorder, Router};
use ringway_click_lang::{Anything, Source};
use ringway_function::click::registry;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// As many as a ControlSocket has.
const MOST: usize = 64;
const GREETING: &str = "Click::ControlSocket/1.3\r\n";
const ANSWER: &str = "200 Read handler 's.class' OK\r\nDATA 13\r\nControlSocket";

/// A router with a ControlSocket, whose time jumps by an hour at each turn.
struct Lab {
    place: PathBuf,
    router: Router,
}

impl Lab {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("ringway-{name}-{}", std::process::id()));
        let text = format!(
            "s :: ControlSocket(UNIX, {}); Script(label again, wait 3600s, goto again)",
            place.display()
        );
        let options = Options::simulated(1, Recorder::default(), &text);
        let graph = Source::new(&text, "config").read(&mut Anything).graph;
        Self { place, router: Router::build(graph, &registry(), options).unwrap() }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.place).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Lets the element see to all its connections, and to those that it gets thereby.
    fn serve(&mut self) {
        for _ in 0..3 {
            let descriptors: Vec<i32> = self.router.interests().iter().map(|it| it.descriptor).collect();
            descriptors.iter().for_each(|descriptor| self.router.selected(*descriptor, true, true));
        }
    }

    /// What is said to a program that asks, and whether its connection is ended then.
    fn asked(&mut self, program: &mut UnixStream, command: &str) -> (String, bool) {
        // A connection that has been ended can't be written to.
        let _ = program.write_all(command.as_bytes());
        self.serve();
        let mut said = Vec::new();
        let ended = match program.read_to_end(&mut said) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        (String::from_utf8(said).unwrap(), ended)
    }
}

#[test]
fn who_has_been_idle_longest_makes_room() {
    let mut lab = Lab::new("idle");
    let mut idle: Vec<UnixStream> = (0..MOST).map(|_| lab.connect()).collect();
    lab.serve();
    assert_eq!(lab.asked(&mut idle[0], "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
    let mut another = lab.connect();
    assert_eq!(lab.asked(&mut another, "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
    // The first has asked since; so it was the second.
    assert_eq!(lab.asked(&mut idle[1], ""), (GREETING.into(), true));
    assert_eq!(lab.asked(&mut idle[0], "READ s.class\n"), (ANSWER.into(), false));
    assert_eq!(lab.asked(&mut idle[2], "READ s.class\n"), (format!("{GREETING}{ANSWER}"), false));
}

#[test]
fn who_is_at_work_stays_for_a_while() {
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
