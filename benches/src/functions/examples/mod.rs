//! The configurations of `examples/functions/` themselves, between two programs that are hosts: they answer ARP and
//! neighbor solicitations, accept TCP connections and open sessions of PPP over Ethernet.

mod ends;
mod opening;
mod seen;
mod sites;
mod subscribers;

use super::fabric_function::FabricFunction;
use super::load::Load;
use super::{LENGTHS, SLICE, beside, cores, marked, row};
use crate::Failure;
use crate::click::frames::{Frames, Length};
use crate::entry::Entry;
use crate::harness::{LOAD, Pinned};
use crate::keys::{Group, Key, QUIET};
use crate::plan::Plan;
use ends::Ends;
use seen::Seen;
pub use sites::EXAMPLES;
use sites::{Traffic, Way};

/// Received frames whose addresses are compared, before frames are counted and afterwards.
const SAMPLE: usize = 4096;
/// The ports of all examples.
const PORTS: [&str; 2] = ["inside", "outside"];

/// An example.
pub struct Example {
    /// Its name, and its file's.
    pub name: &'static str,
    text: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    way: Way,
    traffic: Traffic,
    /// Whether a frame that has passed has the right addresses.
    is_right: fn(&Seen) -> bool,
    /// What opens before frames are counted.
    note: &'static str,
}

/// The keys of examples.
macro_rules! examples {
    ($($name:literal: $what:literal;)*) => {
        &[$(
            Key::new(
                concat!("example.", $name, ".worker.64"),
                concat!("examples/functions/", $name, ".click on a worker, ", $what, ", 64 B"),
                |plan| worker(plan, $name, 0),
            ),
            Key::new(concat!("example.", $name, ".worker.1500"), "the same, 1500 B", |plan| {
                worker(plan, $name, 1)
            }),
            Key::new(concat!("example.", $name, ".worker.imix"), "the same, IMIX", |plan| {
                worker(plan, $name, 2)
            }),
            Key::new(
                concat!("example.", $name, ".process.64"),
                "the same in a process, 64 B; on a worker",
                |plan| process(plan, $name),
            ),
        )*]
    };
}

/// The group of all keys.
pub const GROUP: Group = Group {
    name: "examples",
    keys: examples! {
        "wire": "one way";
        "mirror": "back to the sender";
        "router": "200 next hops";
        "router6": "200 next hops";
        "firewall": "50,000 open connections";
        "nat": "50,000 open connections";
        "cgnat": "30,000 open connections of 60 subscribers";
        "bras": "4,000 open sessions, frames from subscribers";
        "lb": "50,000 open connections, frames from clients";
        "flowmon": "32,768 known flows";
        "ids": "a segment of text a frame";
    },
    setup: 120.0,
    ..QUIET
};

/// An example that runs.
struct Site {
    example: &'static Example,
    function: FabricFunction,
    length: Length,
}

impl Site {
    fn start(example: &'static Example, length: Length, process: bool) -> Result<Site, Failure> {
        let mut function = FabricFunction::between(PORTS)?;
        // The mirror has one.
        let is_used = |port: &&str| example.text.contains(&format!("({port})"));
        let ports: Vec<&str> = PORTS.into_iter().filter(is_used).collect();
        if process {
            function.start_process_with(example.text, &ports, example.parameters)?;
        } else {
            function.start_with(example.text, &ports, example.parameters)?;
        }
        Ok(Site { example, function, length })
    }

    /// Opens what frames need, sends each frame once and compares the addresses of a sample of those that pass.
    fn open(&mut self) -> Result<Load<'_>, Failure> {
        let (inside, outside) = (&mut self.function.from.ring, &mut self.function.to.ring);
        let (near, mut far) = match self.example.way {
            Way::Out => (inside, Some(outside)),
            Way::In => (outside, Some(inside)),
            Way::Back => (inside, None),
        };
        let traffic = &self.example.traffic;
        let mut ends = Ends { near: &mut *near, far: far.as_deref_mut() };
        let frames: Frames = traffic.open(&mut ends, self.length)?;
        let load = match far {
            Some(far) => Load::between(near, far, frames),
            None => Load::back(near, frames),
        };
        let mut load = if traffic.is_stream() { load.with_sequence_numbers() } else { load };
        load.send_each_once()?;
        self.example.inspect(&mut load, self.length)?;
        Ok(load)
    }
}

impl Example {
    fn of(name: &str) -> Result<&'static Example, Failure> {
        Ok(EXAMPLES.iter().find(|example| example.name == name).ok_or("no such example")?)
    }

    /// Compares the addresses of a sample.
    fn inspect(&self, load: &mut Load<'_>, length: Length) -> Result<(), Failure> {
        // The others' ends are not written, and of streams not the checksum.
        let has_checksum = length == Length::Fixed(64) && !self.traffic.is_stream();
        let mut compared = 0;
        load.inspect(SAMPLE, &mut |frame| {
            // Such as an ARP request of the example.
            let Some(seen) = Seen::of(frame) else { return Ok(()) };
            compared += 1;
            let is_right = (self.is_right)(&seen) && seen.is_sound && (seen.is_whole || !has_checksum);
            if is_right { Ok(()) } else { Err(format!("a wrong frame comes: {seen:x?}").into()) }
        })?;
        if compared < SAMPLE / 2 {
            return Err(format!("{compared} of {SAMPLE} frames have addresses to compare").into());
        }
        Ok(())
    }
}

/// Millions of frames a second through an example on a worker.
fn worker(plan: &Plan, name: &str, length: usize) -> Result<Entry, Failure> {
    let (example, (size, length)) = (Example::of(name)?, LENGTHS[length]);
    let mut site = Site::start(example, length, false)?;
    let _pinned = Pinned::to(LOAD)?;
    let mut load = site.open()?;
    let slices = plan.alone(SLICE, |time| Ok(load.rate(time)? / 1e6))?;
    example.inspect(&mut load, length)?;
    Ok(marked(row(&slices, length, load.lost()).note(example.note), name, size))
}

/// Millions of frames a second through an example in a process, in alternation with a worker.
fn process(plan: &Plan, name: &str) -> Result<Entry, Failure> {
    let (example, length) = (Example::of(name)?, Length::Fixed(64));
    let mut own = Site::start(example, length, true)?;
    let mut peer = Site::start(example, length, false)?;
    let cores = cores();
    let _pinned = Pinned::to(LOAD)?;
    let (mut own, mut peer) = (own.open()?, peer.open()?);
    let entry = beside(plan, [&mut own, &mut peer], length, cores)?;
    example.inspect(&mut own, length)?;
    Ok(entry.note(example.note))
}
