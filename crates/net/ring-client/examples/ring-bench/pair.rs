//! Programs' rings and the queues at the other end, created as `control` and `data` do.

use ringway_frame::CountersRef;
use ringway_host::Mapping;
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_port::ring::{Config, RingPort};
use ringway_port::{Queue, Silent};
use ringway_ring::{Geometry, Hello, RingMemory};
use ringway_ring_client::{Ring, RingOptions};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A port with a program on it.
pub struct Side {
    pub ring: Ring,
    pub queue: Queue,
    pub program: Program,
    _port: RingPort,
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ringway-bench-{}-{name}", std::process::id()))
}

fn newcomer(listener: &RingListener) -> Result<(Newcomer, Hello), Box<dyn Error>> {
    loop {
        if let Some(mut newcomer) = listener.accept()? {
            loop {
                if let Some(hello) = newcomer.hello()? {
                    return Ok((newcomer, hello));
                }
                std::thread::yield_now();
            }
        }
        std::thread::yield_now();
    }
}

fn connect(path: &Path, options: RingOptions) -> std::thread::JoinHandle<Result<Ring, String>> {
    let path = path.to_path_buf();
    std::thread::spawn(move || {
        let timeout = Some(Duration::from_secs(10));
        Ring::connect_with(&path, options, timeout).map_err(|error| error.to_string())
    })
}

/// A port whose rings have `slots` slots.
pub fn port(name: &str, slots: u32) -> Result<Side, Box<dyn Error>> {
    let path = socket(name);
    let listener = RingListener::bind(&path, Default::default())?;
    let program = connect(&path, RingOptions { slots: [slots; 2], ..RingOptions::default() });
    let (newcomer, hello) = newcomer(&listener)?;
    let handed = newcomer.welcome(&hello, &Geometry::default())?;
    let ring = program.join().map_err(|_| "a thread died")??;
    let config = Config {
        counters: CountersRef::private(),
        doorbell: Arc::new(Silent),
        policy: Default::default(),
        broken: Arc::new(|fault| eprintln!("{fault}")),
    };
    let (mut port, queues) = RingPort::new(config);
    let [memory, kick, call] = handed.descriptors().map(|descriptor| descriptor.try_clone_to_owned());
    port.attach(RingMemory::attach(Mapping::sealed(&memory?)?.region())?, kick?, call?)?;
    let queue = queues.into_iter().next().ok_or("a port has a queue")?;
    Ok(Side { ring, queue, program: handed, _port: port })
}

/// Both ends of a pipe.
pub fn pipe(slots: u32) -> Result<(Ring, Ring, Pipe), Box<dyn Error>> {
    let path = socket("pipe");
    let listener = RingListener::bind(&path, Default::default())?;
    let mut pipe = Pipe::new(Geometry::default());
    let ends = [0, 1].map(|_| connect(&path, RingOptions { slots: [slots; 2], ..RingOptions::default() }));
    for _ in 0..2 {
        let (newcomer, hello) = newcomer(&listener)?;
        pipe.join(newcomer, hello)?;
    }
    let [one, two] = ends.map(|end| end.join().map_err(|_| "a thread died"));
    Ok((one??, two??, pipe))
}
