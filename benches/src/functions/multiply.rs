//! How fast a function multiplies: from the first frame of a load to the first one that its second instance passes on.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::keys::Folder;
use crate::machine;
use crate::plan::Plan;
use ringway_ring_client::Ring;
use ringway_tests::fabric::Fabric;
use std::time::{Duration, Instant};

/// Milliseconds within which the second instance must pass on frames.
const MARK: f64 = 100.0;
/// Fewest slices: those of which the median has an interval.
const FEWEST: usize = 6;
/// Frames under way: more than half of what a ring holds, and fewer than it holds.
const UNDER_WAY: u64 = 400;
/// Frames of a flow; then the next one begins.
const FLOW: u64 = 8;
/// The byte in which each instance writes its number.
const MARKED: usize = 50;
/// How long the function may take to shrink to one instance, and to get a second one.
const INSTANCES_TIMEOUT: Duration = Duration::from_secs(30);

/// A function that is busy with each frame, and shrinks soon.
fn file(isolation: &str) -> String {
    let busy = "set n $(add 1 2), ".repeat(20);
    format!(
        "[port.one]\nkind = \"ring\"\nsocket = \"one.sock\"\nhold = \"10s\"\n\
         [port.two]\nkind = \"ring\"\nsocket = \"two.sock\"\n[worker.a]\n[worker.b]\n\
         [chain.web]\nports = [\"one\", \"two\"]\nfunctions = [\"fw\"]\n\
         [function.fw]\nports = [\"outside\", \"inside\"]\nisolation = \"{isolation}\"\n\
         instances = {{ max = 2, idle = \"1s\", shrink = \"100ms\", drain = \"1s\" }}\nclick = \"\"\"\n\
         FromPort(outside) -> Script(TYPE PACKET, {busy}return 0) -> StoreData({MARKED}, $INSTANCE) \
         -> ToPort(inside);\nFromPort(inside) -> ToPort(outside);\"\"\"\n"
    )
}

/// Milliseconds; frames that were lost meanwhile are in the row, too.
pub fn multiply(plan: &Plan, isolation: &str) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let fabric = Fabric::up(folder.path(), "multiply", &file(isolation))?;
    let program = |port: &str| Ring::connect(&fabric.socket(&format!("{port}.sock")));
    let (mut one, mut two) = (program("one")?, program("two")?);
    let (mut slices, mut lost) = (Slices::default(), 0);
    let end = Instant::now() + Duration::from_secs_f64(plan.seconds);
    while slices.ours.len() < FEWEST || Instant::now() < end {
        machine::sample();
        wait(&fabric)?;
        let mut load = Load { sent: 0, came: 0, begun: Instant::now() };
        slices.ours.push(load.until_second(&mut one, &mut two)?.as_secs_f64() * 1e3);
        lost += load.finish(&mut two)?;
    }
    let row = slices.entry("ms", Better::Less).at_most(MARK).with("frames lost", lost as f64);
    Ok(row.note("40 ms of these are the time for which all instances must have too much to do"))
}

/// Waits until only the first instance runs.
fn wait(fabric: &Fabric) -> Result<(), Failure> {
    let end = Instant::now() + INSTANCES_TIMEOUT;
    loop {
        let list = fabric.ask(&["function", "list", "--json"])?;
        let state = |at: usize| list[at]["state"].as_str().unwrap_or_default().to_string();
        if (state(0).as_str(), state(1).as_str()) == ("running", "dormant") {
            // Its ports are there soon after.
            std::thread::sleep(Duration::from_millis(100));
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("the function does not shrink: {list}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Load {
    sent: u64,
    came: u64,
    begun: Instant,
}

impl Load {
    /// Keeps frames under way until one has the second instance's mark.
    fn until_second(&mut self, one: &mut Ring, two: &mut Ring) -> Result<Duration, Failure> {
        while self.begun.elapsed() < INSTANCES_TIMEOUT {
            while self.sent < self.came + UNDER_WAY && one.tx.push(&frame(self.sent / FLOW))? {
                self.sent += 1;
            }
            one.sync()?;
            if self.take(two)? {
                return Ok(self.begun.elapsed());
            }
        }
        Err("no second instance passes frames on".into())
    }

    /// Takes frames; whether one of them has passed the second instance.
    fn take(&mut self, two: &mut Ring) -> Result<bool, Failure> {
        let (mut out, mut is_second) = ([0; 60], false);
        while two.rx.pop(&mut out)?.is_some() {
            self.came += 1;
            is_second |= out[MARKED] == b'2';
        }
        two.rx.sync()?;
        Ok(is_second)
    }

    /// Waits for the frames that are under way; the number of those that do not come.
    fn finish(&mut self, two: &mut Ring) -> Result<u64, Failure> {
        let end = Instant::now() + Duration::from_secs(2);
        while self.came < self.sent && Instant::now() < end {
            self.take(two)?;
        }
        Ok(self.sent - self.came)
    }
}

/// UDP over IPv4.
fn frame(flow: u64) -> [u8; 60] {
    let mut frame = [2; 60];
    frame[12..34]
        .copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..38].copy_from_slice(&[(flow >> 8) as u8, flow as u8, 0, 53]);
    frame[38..42].copy_from_slice(&[0, 26, 0, 0]);
    frame
}
