//! Sending, receiving, and both, over a [`Line`].

use crate::pace::BURST;
use crate::{Checker, Generator, LARGEST, Latency, LatencySummary, Line, LineError, Pacer, Rate, Rest};
use ringway_wire::MacAddress;
use serde::Serialize;

/// How long a sender or receiver rests before it looks whether it must end, in nanoseconds.
const LOOK: u64 = 100_000_000;
/// Largest frame that is received as a whole.
pub const BUFFER: usize = LARGEST + 64;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How fast.
    pub rate: Rate,
    /// The number of the first frame.
    pub first: u64,
    /// So many frames at most.
    pub frames: Option<u64>,
    /// So many nanoseconds at most.
    pub time: Option<u64>,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long, in nanoseconds.
    pub time: u64,
    /// Frames that were not sent since the sender was late by more than a millisecond.
    pub skipped: u64,
    /// How often the device had no room.
    pub refused: u64,
}

impl Sent {
    /// Frames a second.
    pub fn rate(&self) -> f64 {
        per_second(self.frames, self.time)
    }

    /// Bits a second.
    pub fn bits(&self) -> f64 {
        per_second(8 * self.bytes, self.time)
    }
}

/// So many in a time, for a second.
pub fn per_second(count: u64, time: u64) -> f64 {
    if time == 0 { 0.0 } else { count as f64 * 1e9 / time as f64 }
}

/// A sender over a line, step by step.
pub struct Sender<'g> {
    generator: &'g Generator,
    load: Load,
    pacer: Pacer,
    began: u64,
    sent: Sent,
    frame: [u8; BUFFER],
}

/// What a step of a sender did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sent a burst.
    Sent,
    /// The next frame is due then.
    Early(u64),
    /// The device has no room.
    Full,
    /// All is sent.
    Over,
}

impl<'g> Sender<'g> {
    /// A sender that begins at `now`.
    pub fn new(generator: &'g Generator, load: Load, now: u64) -> Sender<'g> {
        let (pacer, sent) = (Pacer::new(load.rate, now), Sent::default());
        Sender { generator, load, pacer, began: now, sent, frame: [0; BUFFER] }
    }

    /// Sends what is due, a burst at most.
    #[inline]
    pub fn step(&mut self, line: &mut impl Line) -> Result<Step, LineError> {
        let now = line.now();
        let left = self.load.frames.map_or(BURST, |frames| frames - self.sent.frames);
        if left == 0 || self.load.time.is_some_and(|time| now >= self.began.saturating_add(time)) {
            return Ok(Step::Over);
        }
        let next = self.load.first + self.sent.frames;
        let due = self.pacer.due(now, self.generator.size(next)).min(left);
        if due == 0 {
            let next = self.pacer.next();
            let end = self.load.time.map_or(u64::MAX, |time| self.began.saturating_add(time));
            return Ok(Step::Early(next.min(end)));
        }
        for number in next..next + due {
            let size = self.generator.write(number, now, &mut self.frame);
            if !line.send(&self.frame[..size])? {
                self.sent.refused += 1;
                break;
            }
            self.pacer.sent(size);
            self.sent.frames += 1;
            self.sent.bytes += size as u64;
        }
        line.flush()?;
        self.sent.time = line.now().saturating_sub(self.began);
        Ok(if self.load.first + self.sent.frames == next { Step::Full } else { Step::Sent })
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        let mean =
            if self.sent.frames == 0 { 60.0 } else { self.sent.bytes as f64 / self.sent.frames as f64 };
        Sent { skipped: self.pacer.skipped(mean), ..self.sent }
    }
}

/// Sends until all is sent, or `goes_on`, which is asked after each burst, says no.
pub fn transmit(
    line: &mut impl Line,
    generator: &Generator,
    load: Load,
    mut goes_on: impl FnMut(&Sent, u64) -> bool,
) -> Result<Sent, LineError> {
    let mut sender = Sender::new(generator, load, line.now());
    loop {
        let step = sender.step(line)?;
        let now = line.now();
        match step {
            Step::Over => break,
            Step::Early(until) => line.rest(Rest::Moment, until.min(now.saturating_add(LOOK)))?,
            Step::Full => line.rest(Rest::Room, now.saturating_add(LOOK))?,
            Step::Sent => {}
        }
        if !goes_on(&sender.sent, now) {
            break;
        }
    }
    let mut sent = sender.sent();
    // The time of a paced load is that which was asked for: it ends before its last frame's time is over.
    sent.time = line.now().saturating_sub(sender.began).max(sent.time);
    Ok(sent)
}

/// Takes a burst of frames, and checks them; how many came.
#[inline]
pub fn drain(line: &mut impl Line, checker: &mut Checker, out: &mut [u8; BUFFER]) -> Result<u64, LineError> {
    let mut came = 0;
    let mut now = 0;
    while came < BURST
        && let Some(len) = line.receive(out)?
    {
        if came == 0 {
            now = line.now();
        }
        checker.see(&out[..len], now);
        came += 1;
    }
    if came > 0 {
        line.release()?;
    }
    Ok(came)
}

/// Receives until `goes_on`, which is asked after each burst and at least ten times a second, says no.
pub fn receive(
    line: &mut impl Line,
    checker: &mut Checker,
    mut goes_on: impl FnMut(&Checker, u64) -> bool,
) -> Result<(), LineError> {
    let mut out = [0; BUFFER];
    loop {
        let came = drain(line, checker, &mut out)?;
        let now = line.now();
        if !goes_on(checker, now) {
            return Ok(());
        }
        if came == 0 {
            line.rest(Rest::Frames, now.saturating_add(LOOK))?;
        }
    }
}

/// What came back of single frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pinged {
    /// Frames sent.
    pub sent: u64,
    /// Frames that came back unchanged behind their headers.
    pub received: u64,
    /// Frames that did not come back in time.
    pub lost: u64,
    /// Round-trip times in nanoseconds.
    pub latency: LatencySummary,
}

/// Sends one frame after another has come back, or `timeout` nanoseconds later, and at `load.rate` at most, until
/// `goes_on` says no.
pub fn ping(
    line: &mut impl Line,
    generator: &Generator,
    checker: Checker,
    load: Load,
    timeout: u64,
    mut goes_on: impl FnMut(&Pinged, &mut Latency, u64) -> bool,
) -> Result<(Pinged, Latency), LineError> {
    let began = line.now();
    let mut checker = checker.starting_at(load.first, began);
    let mut pinged = Pinged::default();
    let (mut sender, mut out) = (Sender::new(generator, Load { frames: None, ..load }, began), [0; BUFFER]);
    let over = |sent: u64| load.frames.is_some_and(|frames| sent >= frames);
    while !over(pinged.sent) {
        // One more.
        sender.load.frames = Some(pinged.sent + 1);
        match sender.step(line)? {
            Step::Over => break,
            Step::Early(until) => line.rest(Rest::Moment, until)?,
            Step::Full => {
                let now = line.now();
                line.rest(Rest::Room, now.saturating_add(LOOK))?;
            }
            Step::Sent => {
                pinged.sent += 1;
                let (before, end) = (checker.frames(), line.now().saturating_add(timeout));
                loop {
                    drain(line, &mut checker, &mut out)?;
                    let now = line.now();
                    if checker.frames() > before || now >= end {
                        break;
                    }
                    line.rest(Rest::Frames, end.min(now.saturating_add(LOOK)))?;
                }
                pinged.received = checker.frames();
                pinged.lost = pinged.sent - pinged.received.min(pinged.sent);
            }
        }
        let now = line.now();
        if !goes_on(&pinged, checker.latency(), now) {
            break;
        }
    }
    pinged.latency = checker.latency().summary();
    Ok((pinged, checker.latency().clone()))
}

/// Sends each frame back to its sender, with `own` as the sender's address, until `goes_on`, which gets the number of
/// frames and of bytes, says no. Addresses of IPv4 and ports of UDP are exchanged too.
pub fn pong(
    line: &mut impl Line,
    own: MacAddress,
    mut goes_on: impl FnMut(u64, u64, u64) -> bool,
) -> Result<u64, LineError> {
    let (mut returned, mut bytes, mut out) = (0, 0, [0; BUFFER]);
    loop {
        let mut came = 0;
        while came < BURST
            && let Some(len) = line.receive(&mut out)?
        {
            came += 1;
            if !turn_back(&mut out[..len], own) {
                continue;
            }
            while !line.send(&out[..len])? {
                line.flush()?;
                let now = line.now();
                line.rest(Rest::Room, now.saturating_add(LOOK))?;
                if !goes_on(returned, bytes, now) {
                    return Ok(returned);
                }
            }
            (returned, bytes) = (returned + 1, bytes + len as u64);
        }
        line.flush()?;
        line.release()?;
        let now = line.now();
        if !goes_on(returned, bytes, now) {
            return Ok(returned);
        }
        if came == 0 {
            line.rest(Rest::Frames, now.saturating_add(LOOK))?;
        }
    }
}

/// Exchanges the addresses of a frame; `false`: it is too short, or was sent by `own`.
fn turn_back(frame: &mut [u8], own: MacAddress) -> bool {
    if frame.len() < 14 || frame[6..12] == own.0 {
        return false;
    }
    frame.copy_within(6..12, 0);
    frame[6..12].copy_from_slice(&own.0);
    let ip = match frame[12..14] {
        [0x08, 0x00] => 14,
        [0x81, 0x00] => 18,
        _ => return true,
    };
    // IPv4 without options, with UDP: neither checksum changes by an exchange.
    if frame.len() >= ip + 28 && frame[ip] == 0x45 && frame[ip + 9] == 17 {
        let (from, to) = frame[ip + 12..ip + 20].split_at_mut(4);
        from.swap_with_slice(to);
        let (from, to) = frame[ip + 20..ip + 24].split_at_mut(2);
        from.swap_with_slice(to);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flows, Sizes};

    #[test]
    fn a_frame_is_turned_back_with_all_its_addresses() {
        let flows = Flows { vlan: Some(5), ..Flows::default() };
        let generator = Generator::new(&Sizes::all(80).unwrap(), &flows).unwrap();
        let mut frame = [0; 80];
        generator.write(0, 0, &mut frame);
        let sent = frame;
        let own = MacAddress([2, 0, 0, 0, 0, 2]);
        assert!(turn_back(&mut frame, own));
        assert_eq!((&frame[..6], &frame[6..12]), (&sent[6..12], &own.0[..]));
        assert_eq!((&frame[30..34], &frame[34..38]), (&sent[34..38], &sent[30..34]));
        assert_eq!(
            (&frame[38..40], &frame[40..42], &frame[42..]),
            (&sent[40..42], &sent[38..40], &sent[42..])
        );
        assert!(!turn_back(&mut frame[..], own), "its own frame");
        assert!(!turn_back(&mut frame[..13], own), "too short");
        assert_eq!(ringway_wire::checksum::checksum(&frame[18..38]), 0);
    }
}
