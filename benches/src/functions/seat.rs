//! A fabric with two programs and, between them, the two ports of a function.

use crate::Failure;
use crate::keys::Folder;
use crate::rig::WORKER;
use crate::rig::fabric::Rig;
use crate::rig::program::{OnPort, connected, welcome};
use ringway_client::RingOptions;
use ringway_fabric::proto::{Event, FunctionReport};
use ringway_host::send_with;
use ringway_port::ring::open::RingListener;
use ringway_spec::{Configuration, Function, Isolation, Kind, Poll, Port, To};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a start.
const PATIENCE: Duration = Duration::from_secs(60);

/// The fabric.
pub struct Seat {
    rig: Rig,
    folder: Folder,
    /// The program that sends.
    pub from: OnPort,
    /// The program that receives.
    pub to: OnPort,
    number: u64,
    /// Passes connections to the function's handlers.
    callers: Option<UnixStream>,
    process: Option<Child>,
    /// What keeps the rings of the function's process.
    programs: Vec<ringway_port::ring::open::Program>,
}

impl Seat {
    /// A fabric without a function.
    pub fn new() -> Result<Seat, Failure> {
        let mut rig = Rig::start(&[WORKER], 4, Poll::Adaptive)?;
        let port =
            |name: &str, peer: &str| Port::new(name, Kind::new("ring", &()), Some(To::Patch(peer.into())));
        let from = connected(&mut rig, port("load", "in"), RingOptions::default())?;
        let to = connected(&mut rig, port("sink", "out"), RingOptions::default())?;
        rig.add_port(port("in", "load"))?;
        rig.add_port(port("out", "sink"))?;
        let (number, folder) = (0, Folder::new()?);
        Ok(Seat { rig, folder, from, to, number, callers: None, process: None, programs: Vec::new() })
    }

    /// Starts a function on the worker; its configuration runs when this returns.
    pub fn start(&mut self, text: String) -> Result<(), Failure> {
        self.number += 1;
        let function = Function {
            name: "bench".into(),
            configuration: Configuration { file: None, text },
            isolation: Isolation::Worker,
            fallback: false,
            parameters: Vec::new(),
            ports: vec!["in".into(), "out".into()],
            chained: false,
            devices: Vec::new(),
            memory: 256 << 20,
            core: None,
            burst: 64,
            start: true,
        };
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        self.callers = Some(ours);
        self.rig.fabric.add_function(self.number, function, ("handlers".into(), theirs.into()))?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            for event in self.rig.fabric.check() {
                match event {
                    Event::Function { number, report } if number == self.number => match report {
                        FunctionReport::Up => return Ok(()),
                        FunctionReport::Wrong(why) | FunctionReport::Ended(why) => return Err(why.into()),
                    },
                    _ => {}
                }
            }
        }
        Err("the function does not start".into())
    }

    /// Ends the function on the worker.
    pub fn stop(&mut self) -> Result<(), Failure> {
        Ok(self.rig.fabric.remove_function(self.number)?)
    }

    /// Starts a function in a process of its own, as a program on both ports.
    pub fn start_process(&mut self, text: fn(&str, &str) -> String) -> Result<(), Failure> {
        let path = |name: &str| self.folder.path().join(name);
        let listen = |name: &str| RingListener::bind(&path(name), Default::default());
        let doors = [("in", listen("in")?), ("out", listen("out")?)];
        let [from, to] = ["in", "out"].map(|name| path(name).display().to_string());
        let file = path("function.click");
        std::fs::write(&file, text(&format!("FromPort({from})"), &format!("ToPort({to})")))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--function").arg(&file).stdin(Stdio::null());
        self.process = Some(command.spawn()?);
        let end = Instant::now() + PATIENCE;
        while self.programs.len() < doors.len() {
            for (name, door) in &doors {
                self.programs.extend(welcome(&mut self.rig, name, door)?);
            }
            if Instant::now() > end {
                return Err("the function's process does not connect".into());
            }
        }
        Ok(())
    }

    /// Asks the function on the worker for another configuration; the answer comes by the connection.
    pub fn change(&mut self, text: &str) -> Result<UnixStream, Failure> {
        let callers = self.callers.as_ref().ok_or("no function runs")?;
        let (mut ours, theirs) = UnixStream::pair()?;
        send_with(callers.as_fd(), &[0], &[theirs.as_fd()])?;
        ours.write_all(format!("WRITEDATA hotconfig {}\r\n{text}", text.len()).as_bytes())?;
        Ok(ours)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
