//! What `ringway pktgen` shows.

use crate::text::{self, Table, cell, short};
use ringway_pktgen::rfc2544::{Report, SizeReport, Trial, Verdict};
use ringway_pktgen::run::{Pinged, Sent, per_second};
use ringway_pktgen::{LatencySummary, Received};
use ringway_ring_client::{Ring, Wait};
use serde::Serialize;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;

/// A result that is printed as text, or as JSON.
pub trait Output: Serialize {
    /// For people.
    fn show(&self);
}

/// Prints it.
pub fn print(what: &impl Output, json: bool) {
    if json { text::json(what) } else { what.show() }
}

/// Prints rates, a line a second.
pub struct Meter {
    is_silent: bool,
    shown: Option<(u64, [u64; 2])>,
}

impl Meter {
    /// A meter; with `json` it shows nothing.
    pub fn new(json: bool) -> Meter {
        Meter { is_silent: json, shown: None }
    }

    /// Shows frames and bytes so far, if a second has passed, and `more`.
    #[inline]
    pub fn show(&mut self, now: u64, counts: [u64; 2], more: impl FnOnce() -> String) {
        let (then, before) = *self.shown.get_or_insert((now, counts));
        let time = now.saturating_sub(then);
        if !self.is_silent && time >= SECOND {
            let rate = |which: usize| per_second(counts[which] - before[which], time);
            let bits = if counts[1] == 0 { String::new() } else { format!("  {:9.3} Gb/s", rate(1) * 8e-9) };
            println!("{:9.3} Mpps{bits}{}", rate(0) / 1e6, more());
            self.shown = Some((now, counts));
        }
    }
}

/// Waits until the port took what is in the ring, at most a second.
pub fn settled(ring: &mut Ring) {
    let end = Instant::now() + Duration::from_secs(1);
    let all = Wait { rx: 0, tx: ring.tx.slots() };
    // A port that went away takes nothing.
    while Instant::now() < end && matches!(ring.wait(all, Some(Duration::from_millis(100))), Ok(false)) {}
}

/// Microseconds with so many digits as matter.
fn micros(nanoseconds: u64) -> String {
    match nanoseconds as f64 / 1000.0 {
        time @ 100.0.. => format!("{time:.0}"),
        time @ 10.0.. => format!("{time:.1}"),
        time => format!("{time:.2}"),
    }
}

/// Percentiles in a line.
pub fn times(latency: &LatencySummary) -> String {
    let LatencySummary { min, p50, p90, p99, p999, max, .. } = latency;
    let [min, p50, p90, p99, p999, max] = [min, p50, p90, p99, p999, max].map(|time| micros(*time));
    format!("  us: min {min}  p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p999}  max {max}")
}

#[derive(Serialize)]
struct SentView<'a> {
    #[serde(flatten)]
    sent: &'a Sent,
    frames_per_second: f64,
    bits_per_second: f64,
}

impl Output for SentView<'_> {
    fn show(&self) {
        let Sent { frames, bytes, time, skipped, .. } = self.sent;
        let (seconds, rate, bits) =
            (*time as f64 / 1e9, short(self.frames_per_second), short(self.bits_per_second));
        let late = if *skipped == 0 { String::new() } else { format!("; {skipped} skipped") };
        println!("{frames} frames, {bytes} B sent in {seconds:.3} s: {rate}pps, {bits}b/s{late}");
    }
}

/// Shows what was sent.
pub fn sent(sent: &Sent, json: bool) {
    let (frames_per_second, bits_per_second) = (sent.rate(), sent.bits());
    print(&SentView { sent, frames_per_second, bits_per_second }, json);
}

#[derive(Serialize)]
struct ReceivedView<'a> {
    #[serde(flatten)]
    received: &'a Received,
    /// From the first frame to the last one, in nanoseconds.
    time: u64,
    frames_per_second: f64,
    bits_per_second: f64,
    /// Latencies in nanoseconds, with their numbers of frames.
    histogram: &'a [(u64, u64)],
}

impl Output for ReceivedView<'_> {
    fn show(&self) {
        let received = self.received;
        let mut table = Table::new(&["FRAMES", ">COUNT"]);
        for (name, count) in [
            ("received", received.frames),
            ("lost", received.lost),
            ("reordered", received.reordered),
            ("duplicates", received.duplicates),
            ("corrupted", received.corrupted),
            ("of others", received.foreign),
            ("too late to tell", received.old),
            ("sender's restarts", received.restarts),
        ] {
            // Those of exceptions only if there are some.
            if count > 0 || !matches!(name, "of others" | "too late to tell" | "sender's restarts") {
                table.row(vec![cell(name), cell(count)]);
            }
        }
        table.print();
        let (rate, bits) = (short(self.frames_per_second), short(self.bits_per_second));
        println!("{:.3} s: {rate}pps, {bits}b/s", self.time as f64 / 1e9);
        if received.latency.frames > 0 {
            println!("latency,{}", times(&received.latency));
        }
    }
}

/// Shows what was received in `time` nanoseconds.
pub fn received(received: &Received, time: u64, histogram: &[(u64, u64)], json: bool) {
    let frames_per_second = per_second(received.frames, time);
    let bits_per_second = per_second(8 * received.bytes, time);
    print(&ReceivedView { received, time, frames_per_second, bits_per_second, histogram }, json);
}

#[derive(Serialize)]
struct PingedView<'a> {
    #[serde(flatten)]
    pinged: &'a Pinged,
    /// Round-trip times in nanoseconds, with their numbers of frames.
    histogram: &'a [(u64, u64)],
}

impl Output for PingedView<'_> {
    fn show(&self) {
        let Pinged { sent, received, lost, latency } = self.pinged;
        println!("{sent} sent, {received} received, {lost} lost");
        if latency.frames > 0 {
            println!("round trip,{}", times(latency));
        }
    }
}

/// Shows what came back.
pub fn pinged(pinged: &Pinged, histogram: &[(u64, u64)], json: bool) {
    print(&PingedView { pinged, histogram }, json);
}

/// The result of `pong`.
#[derive(Serialize)]
pub struct ReturnedView {
    /// Frames that it sent back.
    pub returned: u64,
}

impl Output for ReturnedView {
    fn show(&self) {
        println!("{} frames returned", self.returned);
    }
}

/// A trial in a line.
pub fn trial(frame: usize, trial: &Trial) -> String {
    let asked = if trial.rate == 0.0 { "as fast as possible, ".into() } else { String::new() };
    let rate = short(if trial.rate == 0.0 { trial.sent_rate } else { trial.rate });
    let what = match trial.verdict {
        Verdict::Clean => "clean".into(),
        Verdict::Loss => format!("{:.4}% lost", 100.0 * trial.loss),
        Verdict::Refused => format!("refused, {}pps taken", short(trial.sent_rate)),
        Verdict::Missed => format!("no result: the generator sent {}pps", short(trial.sent_rate)),
    };
    format!("{frame} B, {asked}{rate}pps: {what}")
}

/// The result of a measurement.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Rfc2544View<'a>(pub &'a Report);

impl Output for Rfc2544View<'_> {
    fn show(&self) {
        let mut table = Table::new(&[
            ">FRAME B",
            ">NDR PPS",
            ">NDR BIT/S",
            ">PDR PPS",
            ">BURST",
            ">LOAD %",
            ">P50 US",
            ">P99 US",
            "BOUND",
        ]);
        self.0.sizes.iter().for_each(|size| rows(&mut table, size));
        table.print();
    }
}

fn rows(table: &mut Table, size: &SizeReport) {
    let or_none = |value: Option<f64>| cell(value.map_or("-".into(), short));
    let burst = size.back_to_back.as_ref().map_or("-".into(), |burst| {
        format!("{}{}", if burst.is_longest { ">=" } else { "" }, short(burst.frames))
    });
    let first = vec![
        cell(size.frame),
        or_none(size.ndr.rate),
        or_none(size.ndr.bits),
        or_none(size.pdr.rate),
        cell(burst),
    ];
    let mut loads = size.latency.iter().map(|at| {
        let [p50, p99] = match at.is_clean {
            true => [at.latency.p50, at.latency.p99].map(micros),
            false => ["-".into(), "-".into()],
        };
        [format!("{:.0}", 100.0 * at.load), p50, p99].map(cell)
    });
    let none = || ["-", "-", "-"].map(cell);
    let mut row = first;
    row.extend(loads.next().unwrap_or_else(none));
    row.push(cell(&size.ndr.why));
    table.row(row);
    for load in loads {
        let mut row = vec![cell(""); 5];
        row.extend(load);
        row.push(cell(""));
        table.row(row);
    }
}
