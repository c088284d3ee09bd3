//! A single guest on a port, with a back-end that sends frames, receives them, or both: with and without an
//! IOMMU, ours and DPDK's.

use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::bare::{Bare, Work};
use crate::harness::front::Stream;
use crate::harness::guest::{Addresses, Busy, Iommu, Shape};
use crate::harness::memory::GuestMemory;
use crate::harness::monitor::Inline;
use crate::harness::single_guest::Passing;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::keys::Folder;
use crate::keys::iommu::{SLICE, SLICES};
use crate::machine;
use crate::peer::Peer;
use crate::peer::testpmd::{self, Testpmd};
use crate::plan::Plan;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A guest's memory.
type Home = (GuestMemory, Addresses);

/// One back-end with its guest.
trait Side {
    /// Millions of frames a second in a slice during which the other side is stopped.
    fn slice(&mut self, time: Duration) -> Result<f64, Failure>;

    /// Busy shares of the back-end and of the guest.
    fn busy(&mut self) -> Result<[f64; 2], Failure>;
}

struct Ours<'m> {
    bare: Bare,
    guest: Passing<'m, Inline>,
}

impl<'m> Ours<'m> {
    fn new(home: &'m Home, shape: &Shape, work: Work) -> Result<Ours<'m>, Failure> {
        let (bare, wire) = Bare::start(work, shape.frame)?;
        let guest = Passing::new(wire, home, shape, work)?;
        Ok(Ours { bare, guest })
    }
}

impl Side for Ours<'_> {
    fn slice(&mut self, time: Duration) -> Result<f64, Failure> {
        self.bare.run(true);
        let rate = self.guest.rate(time);
        self.bare.run(false);
        rate
    }

    fn busy(&mut self) -> Result<[f64; 2], Failure> {
        Ok([self.bare.busy().share(), self.guest.busy.share()])
    }
}

struct Theirs<'m> {
    testpmd: Testpmd,
    guest: Passing<'m, Stream>,
    /// The back-end's busy share, measured over a longer time without stops.
    busy: f64,
}

impl<'m> Theirs<'m> {
    fn new(folder: &Path, home: &'m Home, shape: &Shape, work: Work) -> Result<Theirs<'m>, Failure> {
        let name = if shape.iommu == Iommu::Off { "off" } else { "on" };
        let path = folder.join(name);
        let support = if shape.iommu == Iommu::Off { 0 } else { 1 };
        let mut devices = vec![format!("net_vhost0,iface={},iommu-support={support}", path.display())];
        // A device that sends frames endlessly and discards received ones, or one that only discards.
        match work {
            Work::In | Work::Through => devices.push(format!("net_null0,size={}", shape.frame)),
            Work::Out => devices.push("net_null0,no-rx=1".into()),
            Work::Loop => {}
        }
        let more: &[&str] = if work == Work::Loop { &["--port-topology=loop"] } else { &[] };
        let mut testpmd = testpmd::forwarding("io", folder, name, devices, WORKER, more)?;
        let mut guest = Passing::new(Stream::from(UnixStream::connect(&path)?), home, shape, work)?;
        let word = "now ready for processing";
        testpmd.wait_with(word, 1, Duration::from_secs(5), &mut || guest.monitor.answer().map(drop))?;
        guest.run(SLICE)?;
        let busy = testpmd.busy(|| guest.run(10 * SLICE).map(drop))?;
        testpmd.run(false)?;
        guest.busy = Busy::default();
        Ok(Theirs { testpmd, guest, busy })
    }
}

impl Side for Theirs<'_> {
    fn slice(&mut self, time: Duration) -> Result<f64, Failure> {
        self.testpmd.run(true)?;
        let rate = self.guest.rate(time);
        self.testpmd.run(false)?;
        rate.map_err(|error| format!("{error}; testpmd printed {}", self.testpmd.last()).into())
    }

    fn busy(&mut self) -> Result<[f64; 2], Failure> {
        Ok([self.busy, self.guest.busy.share()])
    }
}

/// Measures the four sides in turn.
pub fn measure(plan: &Plan, work: Work, on: &Shape) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let off = Shape { iommu: Iommu::Off, ..*on };
    let homes = [Addresses::new(on)?, Addresses::new(&off)?, Addresses::new(on)?, Addresses::new(&off)?];
    // Started before this thread is pinned, which they would inherit.
    let theirs = Theirs::new(folder.path(), &homes[2], on, work)
        .and_then(|with| Ok([with, Theirs::new(folder.path(), &homes[3], &off, work)?]));
    let mut sides: Vec<(&str, Box<dyn Side + '_>)> = vec![
        ("ours, on", Box::new(Ours::new(&homes[0], on, work)?)),
        ("ours, off", Box::new(Ours::new(&homes[1], &off, work)?)),
    ];
    let missing = match theirs {
        Ok([with, without]) => {
            sides.push(("DPDK's, on", Box::new(with)));
            sides.push(("DPDK's, off", Box::new(without)));
            None
        }
        Err(error) => Some(format!("no peer: {error}")),
    };
    let pinned = Pinned::to(LOAD)?;
    let count = plan.slices(SLICE * sides.len() as u32).max(SLICES);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
    for _ in 0..count {
        machine::sample();
        for ((name, side), rates) in sides.iter_mut().zip(&mut rates) {
            rates.push(side.slice(SLICE).map_err(|error| format!("{name}: {error}"))?);
        }
    }
    drop(pinned);
    let mut entry = Slices::of(&rates[0], &rates[1]).entry("Mpps", Better::More);
    for ((name, side), rates) in sides.iter_mut().zip(&rates) {
        let [back, guest] = side.busy()?;
        let rate = median(rates).unwrap_or(f64::NAN);
        let figures = [("Mpps", rate), ("busy, back-end", back), ("busy, guest", guest)];
        entry = entry.step(*name, &figures);
    }
    if let [ours, _, on, off] = &rates[..] {
        let theirs = Slices::of(on, off).entry("Mpps", Better::More);
        let both = Slices::of(ours, on).entry("Mpps", Better::More);
        entry = entry.with("DPDK's, on over off", theirs.ratio.unwrap_or(f64::NAN));
        entry = entry.with("ours over DPDK's, both on", both.ratio.unwrap_or(f64::NAN));
    }
    let entry = entry.note("on over off, ours; a port alone, without a switch");
    Ok(match missing {
        Some(missing) => entry.note(missing),
        None => entry,
    })
}
