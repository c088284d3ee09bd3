//! Many functions at the same time, and their memory.

use super::piped_function::{MEMORY, PipedFunction, Plan as Order, Side, TIMEOUT};
use super::{MIRROR, boot, stages};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::keys::Rows;
use crate::machine;
use crate::plan::Plan;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Functions that are started at once.
const MANY: usize = 1000;
/// Functions that must be alive at the same time.
const DENSE: usize = 2000;
/// The host's memory that must stay free, in KB.
const FREE: u64 = 2 << 20;
/// Time after which a function has given back what only its start needed.
const SETTLED: Duration = Duration::from_millis(200);
/// Functions that may have been started without having returned a frame.
const UNDER_WAY: usize = 16;

/// A function on one pipe, which returns frames; it goes on from a snapshot if there is one.
fn mirror(side: Side, snapshot: Option<&(String, OwnedFd)>) -> Result<PipedFunction, Failure> {
    PipedFunction::start(&Order {
        side,
        text: &MIRROR,
        memory: MEMORY,
        core: None,
        slots: 64,
        single: true,
        snapshot,
        spare: false,
    })
}

/// Functions, and which of them have returned their first frame.
struct ManyFunctions {
    seats: Vec<PipedFunction>,
    /// The snapshot from which all go on.
    snapshot: Option<(String, OwnedFd)>,
    waiting: Vec<usize>,
}

impl ManyFunctions {
    fn new() -> ManyFunctions {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // Where that fails, fewer functions can be started, as the row then shows.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        ManyFunctions { seats: Vec::new(), snapshot: None, waiting: Vec::new() }
    }

    fn start(&mut self, side: Side) -> Result<(), Failure> {
        self.waiting.push(self.seats.len());
        self.seats.push(mirror(side, self.snapshot.as_ref())?);
        Ok(())
    }

    /// Serves those that have not returned a frame.
    fn serve(&mut self) -> Result<(), Failure> {
        let mut failed = Ok(());
        self.waiting.retain(|&number| {
            let function = &mut self.seats[number];
            let step = |function: &mut PipedFunction| {
                let was = !function.attached.is_zero();
                if !function.serve()? {
                    return if function.begun.elapsed() > TIMEOUT {
                        Err("no ring".into())
                    } else {
                        Ok(false)
                    };
                }
                let came = function.exchange(!was)?;
                if came {
                    function.rest();
                }
                if function.begun.elapsed() > TIMEOUT { Err("no frame comes back".into()) } else { Ok(came) }
            };
            match step(function) {
                Ok(came) => !came,
                Err(error) => {
                    let error: Failure = error;
                    failed = Err(format!("function {number}: {error}; {}", function.why()).into());
                    false
                }
            }
        });
        failed
    }

    /// Starts up to `count` functions, a few at a time; stops early if the host's memory is used up.
    fn grow(&mut self, side: Side, count: usize) -> Result<(), Failure> {
        while self.seats.len() < count || !self.waiting.is_empty() {
            if self.seats.len() < count && self.waiting.len() < UNDER_WAY {
                if available()? < FREE {
                    return Ok(());
                }
                self.start(side)?;
            }
            self.serve()?;
        }
        Ok(())
    }

    /// Sends a frame to each; the number that return it.
    fn visit(&mut self) -> Result<usize, Failure> {
        let mut came = vec![false; self.seats.len()];
        for (function, came) in self.seats.iter_mut().zip(&mut came) {
            *came = function.exchange(true)?;
        }
        let end = Instant::now() + TIMEOUT;
        while came.contains(&false) && Instant::now() < end {
            for (function, came) in self.seats.iter_mut().zip(&mut came) {
                *came = *came || function.exchange(false)?;
            }
            std::thread::yield_now();
        }
        Ok(came.iter().filter(|came| **came).count())
    }
}

/// Available memory of the host in KB.
fn available() -> Result<u64, Failure> {
    Ok(field(&std::fs::read_to_string("/proc/meminfo")?, "MemAvailable:"))
}

/// The number behind a name.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Proportional and anonymous memory of processes in KB, on average.
fn memory(pids: &[u32]) -> Result<[f64; 2], Failure> {
    let mut sums = [0; 2];
    for pid in pids {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        sums[0] += field(&text, "Pss:");
        sums[1] += field(&text, "Private_Dirty:");
    }
    Ok(sums.map(|sum| sum as f64 / pids.len().max(1) as f64))
}

/// Memory of one VM and of one process.
pub fn alone(plan: &Plan) -> Result<Entry, Failure> {
    let (mut slices, mut own) = (Slices::default(), Slices::default());
    for _ in 0..plan.slices(Duration::from_millis(500)) {
        let vm = boot::once(Side::Vm)?.0;
        std::thread::sleep(SETTLED);
        let [pss, private] = memory(&[vm.pid()])?;
        drop(vm);
        slices.ours.push(pss / 1024.0);
        own.ours.push(private / 1024.0);
        let process = boot::once(Side::Process)?.0;
        std::thread::sleep(SETTLED);
        slices.peer.push(memory(&[process.pid()])?[0] / 1024.0);
    }
    let image = ringway_vmm::click().size() as f64 / f64::from(1 << 20);
    let own = own.entry("MB", Better::Less).ours.unwrap_or(f64::NAN);
    let contained = boot::once(Side::Container)?.0;
    std::thread::sleep(SETTLED);
    let inner = child_of(contained.pid()).ok_or("the container has no process")?;
    let container = memory(&[inner])?[0] / 1024.0;
    drop(contained);
    let row = slices.entry("MB", Better::Less).at_most(3.0).with("image, MB", image);
    let row = row.mark("image <= 2 MB", image <= 2.0).with("private, MB", own);
    let row = row.step("a container by unshare", &[("PSS, MB", container)]);
    let row = match stages::microvm_process(|pid| Ok(memory(&[pid])?[0] / 1024.0)) {
        Ok(qemu) => row.step("QEMU microvm with a guest of 32 MB", &[("PSS, MB", qemu)]),
        Err(error) => row.note(format!("no QEMU microvm: {error}")),
    };
    Ok(row.note(
        "PSS of the monitor with its guest and its rings, pages of the program included; ClickOS: 6 MB",
    ))
}

/// The process in a container's `unshare`.
fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Memory of each of 1,000 clones, which have returned a frame.
pub fn clones(_: &Plan) -> Result<Entry, Failure> {
    let mut original = mirror(Side::Vm, None)?;
    original.first()?;
    let (state, file) = original.snapshot()?;
    // Blocks of 512 bytes (stat(2)).
    let size = rustix::fs::fstat(&file)?.st_blocks as f64 * 512.0 / f64::from(1 << 20);
    let mut crowd = ManyFunctions { snapshot: Some((state, file)), ..ManyFunctions::new() };
    let begin = Instant::now();
    crowd.grow(Side::Vm, MANY)?;
    let time = begin.elapsed().as_secs_f64();
    std::thread::sleep(SETTLED);
    let pids: Vec<u32> = crowd.seats.iter().map(PipedFunction::pid).collect();
    let [pss, private] = memory(&pids)?.map(|kb| kb / 1024.0);
    let last = pids.last().map(|pid| memory(&[*pid])).transpose()?.unwrap_or([f64::NAN; 2]);
    let row = Slices::of(&[pss], &[]).entry("MB", Better::Less).with("clones", pids.len() as f64);
    let row = row.with("private, MB", private).with("the last one's private, MB", last[1] / 1024.0);
    let row = row.with("snapshot, MB", size).with("started in, s", time);
    Ok(row.note("PSS, mean of all alive; private: pages that a clone and its monitor wrote"))
}

/// Times of a start in milliseconds while 399 others are alive, for some seconds.
pub fn four_hundredth(side: Side, seconds: f64) -> Result<Vec<f64>, Failure> {
    let (mut crowd, mut figures) = (ManyFunctions::new(), Vec::new());
    crowd.grow(side, 399)?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while figures.len() < 10 || Instant::now() < end {
        machine::sample();
        figures.push(boot::once(side)?.1[3]);
    }
    Ok(figures)
}

/// The start of a VM while 399 others are alive.
pub fn among(plan: &Plan) -> Result<Entry, Failure> {
    let time = plan.seconds / 2.0;
    let slices = Slices::of(&four_hundredth(Side::Vm, time)?, &four_hundredth(Side::Process, time)?);
    let row = slices.entry("ms", Better::Less).best_at_most(10.0);
    Ok(row.note("peer: a process with 399 others; ClickOS: 219 ms"))
}

/// Starts 1,000 at once. Returns the proportional and anonymous memory of each in KB, and the time in seconds.
pub fn thousand(side: Side) -> Result<([f64; 2], f64), Failure> {
    let mut crowd = ManyFunctions::new();
    let begin = Instant::now();
    for _ in 0..MANY {
        crowd.start(side)?;
    }
    while !crowd.waiting.is_empty() {
        crowd.serve()?;
    }
    let time = begin.elapsed().as_secs_f64();
    let pids: Vec<u32> = crowd.seats.iter().map(PipedFunction::pid).collect();
    Ok((memory(&pids)?, time))
}

/// The time of 1,000 at once in seconds, and the memory of each in MB.
pub fn at_once(_: &Plan) -> Rows {
    let ((vm, time), (process, other)) = (thousand(Side::Vm)?, thousand(Side::Process)?);
    let time = Slices::of(&[time], &[other]).entry("s", Better::Less);
    let held = time.best.is_some_and(|best| best <= 15.0);
    let time = time.mark("<= 15 s", held).note("all are asked for before the first is awaited");
    let [pss, private] = vm.map(|kb| kb / 1024.0);
    let memory = Slices::of(&[pss], &[process[0] / 1024.0]).entry("MB", Better::Less);
    let memory = memory.mark("<= 1 MB", pss <= 1.0).with("private, MB", private);
    Ok(vec![time, memory.note("PSS, mean of 1,000 alive; ClickOS: 5 MB")])
}

/// VMs that are alive at the same time, each of which returns frames.
pub fn density(_: &Plan) -> Result<Entry, Failure> {
    let mut crowd = ManyFunctions::new();
    let begin = Instant::now();
    crowd.grow(Side::Vm, DENSE)?;
    let time = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let alive = crowd.visit()?;
    let visit = begin.elapsed().as_secs_f64();
    let row = Slices::of(&[alive as f64], &[]).entry("VMs", Better::More);
    let row = row.mark(">= 2000", alive >= DENSE).with("started in, s", time);
    Ok(row.with("a frame to each and back, s", visit).note("not more than 2,000 are tried"))
}
