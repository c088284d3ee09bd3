//! DPDK's virtio-user as front-end: against our fabric, and against DPDK's own back-end.

use crate::Failure;
use crate::entry::{Better, Entry};
use crate::harness::fabric::{Harness, listen, vhost_user};
use crate::harness::{LOAD, WORKER};
use crate::keys::Folder;
use crate::peer::Peer;
use crate::peer::testpmd::{Testpmd, back_end, front_end};
use crate::plan::Plan;
use ringway_spec::Poll;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(400);

/// With these options of virtio-user, and so many bytes a frame.
pub fn measure(plan: &Plan, options: &str, frame: u32) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let path = |name: &str| folder.path().join(name);
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let ours = [path("left"), path("right")];
    let listeners = [("left", listen(&ours[0])?), ("right", listen(&ours[1])?)];
    for (port, _) in &listeners {
        harness.add(port, vhost_user())?;
    }
    let near = {
        let mut accept = || harness.accept(&listeners);
        front_end(folder.path(), "near", [&ours[0], &ours[1]], LOAD, options, frame, &mut accept)?
    };
    let mut near = Front(near);
    near.begin()?;
    harness.serve_until(Duration::from_secs(5), Harness::is_up)?;
    near.0.run(false)?;
    let mut theirs = dpdk(folder.path(), options, frame).map_err(|error| error.to_string());
    let (mut worked, mut ran) = (0, Duration::ZERO);
    let slices = plan.pairs(
        SLICE,
        |time| {
            let (before, begin) = (harness.busy(), Instant::now());
            let rate = near.rate(time);
            worked += harness.busy() - before;
            ran += begin.elapsed();
            rate
        },
        |time| {
            let (back, far) = theirs.as_mut().map_err(|error| error.clone())?;
            back.run(true)?;
            let rate = far.rate(time);
            back.run(false)?;
            rate
        },
    )?;
    let share = near.busy()?;
    let detail = harness.fabric.state().ports.into_iter().next().map_or(String::new(), |port| port.detail);
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(1.2);
    let bursts = harness.sum(|counters| counters.bursts.load(Relaxed)).max(1);
    let taken = harness.sum(|counters| counters.tx_frames.load(Relaxed));
    let entry = entry.with("notifications", harness.notifications() as f64);
    let entry = entry.with("frames per burst, ours", taken as f64 / bursts as f64);
    let entry = entry.with("worker's busy share", worked as f64 / ran.as_nanos() as f64);
    let mut entry = entry.with("front-end's busy share, ours", share);
    if let Ok((back, far)) = &mut theirs {
        back.run(true)?;
        entry = entry.with("front-end's busy share, peer", far.busy()?);
    }
    Ok(entry.note(format!("agreed with us: {detail}; peer: DPDK testpmd, net_vhost")))
}

/// DPDK's back-end and front-end, stopped.
fn dpdk(folder: &Path, options: &str, frame: u32) -> Result<(Testpmd, Front), Failure> {
    let sockets = [folder.join("left.dpdk"), folder.join("right.dpdk")];
    let sockets = sockets.each_ref().map(PathBuf::as_path);
    let back = back_end(folder, sockets, WORKER)?;
    let mut far = Front(front_end(folder, "far", sockets, LOAD, options, frame, &mut || Ok(()))?);
    far.begin()?;
    far.0.run(false)?;
    back.run(false)?;
    Ok((back, far))
}

/// A virtio-user testpmd, stopped while the other side is measured.
struct Front(Testpmd);

impl Front {
    fn begin(&mut self) -> Result<(), Failure> {
        // Before forwarding begins, or the first count covers all time since the start.
        self.0.command("set record-core-cycles on")?;
        self.0.command("start tx_first 8")?;
        self.0.wait_for("mac packet forwarding - ports", 1, Duration::from_secs(5))
    }

    /// The share of its time spent on non-empty bursts.
    fn busy(&mut self) -> Result<f64, Failure> {
        self.0.run(true)?;
        let share = self.0.busy(|| {
            std::thread::sleep(SLICE);
            Ok(())
        });
        self.0.run(false)?;
        share
    }

    /// Millions of frames received a second.
    fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        self.0.run(true)?;
        std::thread::sleep(time / 10);
        let (before, begin) = (self.0.received()?, Instant::now());
        std::thread::sleep(time);
        let (after, end) = (self.0.received()?, Instant::now());
        self.0.run(false)?;
        if after <= before {
            return Err("no frame came".into());
        }
        Ok((after - before) as f64 / (end - begin).as_secs_f64() / 1e6)
    }
}
