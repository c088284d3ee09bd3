//! Programs on a fabric's ring ports and on pipes, connected over sockets like any program.

use crate::Failure;
use crate::harness::fabric::{Harness, SWITCH};
use crate::keys::Folder;
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_ring::{Geometry, Hello};
use ringway_ring_client::{Ring, RingOptions};
use ringway_spec::{Kind, Port, To};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// A program's ring and connection.
pub struct OnPort {
    /// The program's side.
    pub ring: Ring,
    /// Ringway's side of the connection.
    pub program: Program,
}

fn newcomer(listener: &RingListener) -> Result<(Newcomer, Hello), Failure> {
    loop {
        if let Some(newcomer) = listener.accept()? {
            return greeted(newcomer);
        }
        std::thread::yield_now();
    }
}

/// Waits for a connection's hello message.
fn greeted(mut newcomer: Newcomer) -> Result<(Newcomer, Hello), Failure> {
    loop {
        if let Some(hello) = newcomer.hello()? {
            return Ok((newcomer, hello));
        }
        std::thread::yield_now();
    }
}

/// Accepts a program that waits at a ring port's socket, if there is one, and gives it a ring.
pub fn welcome(
    harness: &mut Harness,
    name: &str,
    listener: &RingListener,
) -> Result<Option<Program>, Failure> {
    let Some(newcomer) = listener.accept()? else { return Ok(None) };
    let (newcomer, hello) = greeted(newcomer)?;
    let program = newcomer.welcome(&hello, &Geometry::default())?;
    attach(harness, name, &program)?;
    Ok(Some(program))
}

/// Passes a program's ring to the fabric.
fn attach(harness: &mut Harness, name: &str, program: &Program) -> Result<(), Failure> {
    let descriptors = program.descriptors().map(|descriptor| descriptor.try_clone_to_owned());
    let descriptors: Vec<OwnedFd> = descriptors.into_iter().collect::<std::io::Result<_>>()?;
    harness.attach(name, descriptors)
}

fn connect(path: &Path, options: RingOptions) -> JoinHandle<Result<Ring, String>> {
    let path = path.to_path_buf();
    std::thread::spawn(move || {
        Ring::connect_with(&path, options, Some(Duration::from_secs(10))).map_err(|error| error.to_string())
    })
}

/// Adds a ring port to the fabric's switch, and connects a program with rings of `slots` slots.
pub fn on_port(harness: &mut Harness, name: &str, slots: u32) -> Result<OnPort, Failure> {
    on_worker(harness, name, slots, None)
}

/// As [`on_port`], served by the named worker.
pub fn on_worker(
    harness: &mut Harness,
    name: &str,
    slots: u32,
    worker: Option<String>,
) -> Result<OnPort, Failure> {
    let port = Port::new(name, Kind::new("ring", &()), Some(To::Switch(SWITCH.into())));
    connected(harness, Port { worker, ..port }, RingOptions { slots: [slots; 2], ..RingOptions::default() })
}

/// Adds a ring port to the fabric, and connects a program.
pub fn connected(harness: &mut Harness, port: Port, options: RingOptions) -> Result<OnPort, Failure> {
    let name = port.name.clone();
    let program = with_ring(options)?;
    harness.add_port(port)?;
    attach(harness, &name, &program.program)?;
    Ok(program)
}

/// A program with a ring that no port has yet.
pub fn with_ring(options: RingOptions) -> Result<OnPort, Failure> {
    let folder = Folder::new()?;
    let path = folder.path().join("ring");
    let listener = RingListener::bind(&path, Default::default())?;
    let ring = connect(&path, options);
    let (newcomer, hello) = newcomer(&listener)?;
    let program = newcomer.welcome(&hello, &Geometry::default())?;
    Ok(OnPort { ring: ring.join().map_err(|_| "a thread failed")??, program })
}

/// A pipe and its two ends.
pub fn pipe(slots: u32) -> Result<(Ring, Ring, Pipe), Failure> {
    let folder = Folder::new()?;
    let path = folder.path().join("pipe");
    let listener = RingListener::bind(&path, Default::default())?;
    let mut pipe = Pipe::new(Geometry::default());
    let options = RingOptions { slots: [slots; 2], ..RingOptions::default() };
    let ends = [0, 1].map(|_| connect(&path, options));
    join(&mut pipe, &listener)?;
    let [one, two] = ends.map(|end| end.join().map_err(|_| "a thread failed"));
    Ok((one??, two??, pipe))
}

/// Joins the two programs that come.
pub fn join(pipe: &mut Pipe, listener: &RingListener) -> Result<(), Failure> {
    for _ in 0..2 {
        let (newcomer, hello) = newcomer(listener)?;
        pipe.join(newcomer, hello)?;
    }
    Ok(())
}
