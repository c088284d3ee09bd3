//! One trial: frames at one rate, and what came.

use crate::pace::BURST;
use crate::run::{BUFFER, Load, Sender, Sent, Step, drain};
use crate::{Checker, Flows, Generator, Line, LineError, Rate, Received, Rest};
use serde::Serialize;

/// Least part of the frames that a generator in time sends.
const REACHED: f64 = 0.999;
/// Bursts that are received between two that are sent.
const DRAINED: usize = 4;

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Each frame came.
    Clean,
    /// Frames were lost, or damaged.
    Loss,
    /// The device took fewer frames than it was offered: it makes the sender wait.
    Refused,
    /// The generator sent fewer frames than it should, though the device had room: this is no result.
    Missed,
}

/// A trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Frames a second that were to be sent; 0: as many as possible.
    pub rate: f64,
    /// What was sent.
    pub sent: Sent,
    /// Frames a second that were sent.
    pub sent_rate: f64,
    /// What came.
    pub received: Received,
    /// The share of frames that did not come well.
    pub loss: f64,
    /// How it ended.
    pub verdict: Verdict,
}

impl Trial {
    /// Whether the device took all frames and lost no larger share than this.
    pub fn passes(&self, loss: f64) -> bool {
        matches!(self.verdict, Verdict::Clean | Verdict::Loss) && self.loss <= loss
    }
}

/// Runs a trial; waits at most `settle` nanoseconds for frames after the last one was sent.
pub fn run_trial(
    line: &mut impl Line,
    generator: &Generator,
    flows: &Flows,
    load: Load,
    settle: u64,
) -> Result<Trial, LineError> {
    for frame in flows.announcements() {
        line.announce(&frame)?;
    }
    let mut out = [0; BUFFER];
    // What others sent before is no part of it.
    let mut before = Checker::new(flows.ports());
    while drain(line, &mut before, &mut out)? > 0 {}
    let began = line.now();
    let mut checker = Checker::new(flows.ports()).starting_at(load.first, began);
    let mut sender = Sender::new(generator, load, began);
    loop {
        let step = sender.step(line)?;
        let mut came = 0;
        for _ in 0..DRAINED {
            let burst = drain(line, &mut checker, &mut out)?;
            came += burst;
            if burst < BURST {
                break;
            }
        }
        match step {
            Step::Over => break,
            Step::Early(until) if came == 0 => line.rest(Rest::Frames, until)?,
            Step::Full if came == 0 => {
                let now = line.now();
                line.rest(Rest::Room, now + 1_000_000)?;
            }
            _ => {}
        }
    }
    let sent = sender.sent();
    let end = line.now().saturating_add(settle);
    while checker.known() < sent.frames {
        let came = drain(line, &mut checker, &mut out)?;
        let now = line.now();
        if now >= end {
            break;
        }
        if came == 0 {
            line.rest(Rest::Frames, end.min(now + 1_000_000))?;
        }
    }
    let received = checker.received(Some(load.first + sent.frames));
    Ok(judged(load, sent, received))
}

fn judged(load: Load, sent: Sent, received: Received) -> Trial {
    let missing = sent.frames.saturating_sub(received.frames);
    let loss = if sent.frames == 0 { 0.0 } else { missing as f64 / sent.frames as f64 };
    let rate = match load.rate {
        Rate::Frames(rate) => rate,
        Rate::Most | Rate::Bits(_) => 0.0,
    };
    let wanted = match (load.frames, load.time) {
        (Some(frames), _) => frames as f64,
        (None, time) => rate * time.unwrap_or(0) as f64 / 1e9,
    };
    // At low rates a single frame is more than that part.
    let is_reached = rate == 0.0 || sent.frames as f64 + 1.0 >= wanted * REACHED;
    let verdict = match (is_reached, sent.refused > 0) {
        (false, true) => Verdict::Refused,
        (false, false) => Verdict::Missed,
        (true, _) if missing > 0 => Verdict::Loss,
        (true, _) => Verdict::Clean,
    };
    Trial { rate, sent_rate: sent.rate(), sent, received, loss, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_missed_its_rate_is_no_result() {
        let load = Load { rate: Rate::Frames(1e6), first: 0, frames: None, time: Some(1_000_000_000) };
        let of = |frames, refused, received| {
            let sent = Sent { frames, refused, time: 1_000_000_000, ..Sent::default() };
            judged(load, sent, Received { frames: received, ..Received::default() })
        };
        assert_eq!(of(1_000_000, 0, 1_000_000).verdict, Verdict::Clean);
        assert_eq!(of(999_500, 7, 999_500).verdict, Verdict::Clean);
        assert_eq!(of(998_000, 0, 998_000).verdict, Verdict::Missed);
        assert_eq!(of(998_000, 7, 998_000).verdict, Verdict::Refused);
        let lost = of(1_000_000, 0, 997_000);
        assert_eq!((lost.verdict, lost.passes(0.0), lost.passes(0.005)), (Verdict::Loss, false, true));
        assert!(!of(998_000, 0, 998_000).passes(1.0));
    }
}
