//! The roles of a guest.

use crate::frame::{ANNOUNCE, Content, Header, content};
use crate::net_device::{NetDevice, NetDeviceError};
use crate::settings::{LONGEST, Role, Settings};
use core::fmt::{self, Write};

/// What the guest's machine can do.
pub trait Machine: Write {
    /// Ticks of the clock.
    fn ticks(&self) -> u64;
    /// Sleeps until the other side notifies this one, or for some microseconds.
    fn park(&mut self, microseconds: u32);
    /// Lets the monitor take a snapshot; returns which machine then resumes.
    fn snapshot(&mut self) -> Resumed {
        Resumed::Same
    }
}

/// Which machine resumes after a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The machine of which the snapshot was taken.
    Same,
    /// Another machine, in place of the first.
    Moved,
    /// A copy beside the first one and others, of this generation: a number that no other copy has, as of Microsoft's
    /// VM Generation ID.
    Clone(u64),
}

/// Longest sleep in microseconds.
const SLEEP: u32 = 100_000;
/// Longest sleep in microseconds of a guest whose time has expired.
const LATE: u32 = 1000;
/// How long a sender waits for its last frames to be taken, in milliseconds.
const DRAIN: u64 = 2000;
/// How often a sender says that it has ended: a bridge may lose frames.
const ENDS: u32 = 4;
/// Microseconds between two of these frames.
const BETWEEN_ENDS: u32 = 500;
/// Longest report.
const LINE: usize = 768;
/// Shortest frame.
const SHORTEST: usize = 60;

/// Counts of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    sent: u64,
    received: u64,
    /// Received numbered frames with a wrong byte.
    wrong: u64,
    /// Received frames whose number is lower than that of one before them.
    late: u64,
    /// Numbered frames that did not arrive.
    lost: u64,
    /// Received frames that are not of this run.
    foreign: u64,
    kicks: u64,
    parks: u64,
    /// Ticks that pings took, and the shortest.
    waited: u64,
    shortest: u64,
    /// Ticks when frames were received first and last, and the number of those received first.
    first: u64,
    last: u64,
    opening: u64,
}

/// What a receiver knows of the numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Sequence {
    next: u32,
    wrong: u64,
    late: u64,
    foreign: u64,
    received: u64,
    /// The number of frames that were sent, which the sender told.
    total: Option<u32>,
}

impl Sequence {
    fn record(&mut self, content: Content) {
        match content {
            Content::Number(number) if number < self.next => {
                self.late += 1;
                self.received += 1;
            }
            Content::Number(number) => {
                self.next = number.wrapping_add(1);
                self.received += 1;
            }
            Content::Wrong => self.wrong += 1,
            Content::Foreign | Content::Control(ANNOUNCE) => self.foreign += 1,
            Content::Control(total) => self.total = Some(total),
        }
    }

    /// Numbered frames that did not arrive, as far as it is known.
    fn lost(&self) -> u64 {
        u64::from(self.total.unwrap_or(self.next)).saturating_sub(self.received)
    }
}

struct Run<'a, M> {
    machine: &'a mut M,
    link: &'a mut dyn NetDevice,
    settings: &'a Settings,
    counts: Counts,
    idle: u32,
    /// The tick at which the guest ends.
    end: u64,
}

/// Plays the role, and reports.
pub fn run<M: Machine>(
    machine: &mut M,
    link: &mut dyn NetDevice,
    settings: &Settings,
) -> Result<(), NetDeviceError> {
    let begin = machine.ticks();
    let ticks = settings.time.saturating_mul(settings.tsc / 1000);
    let end = if settings.time == 0 { u64::MAX } else { begin.saturating_add(ticks) };
    let counts = Counts { shortest: u64::MAX, ..Counts::default() };
    let mut run = Run { machine, link, settings, counts, idle: 0, end };
    let result = match settings.role {
        Role::Hello => Ok(()),
        Role::Send => run.send(),
        Role::Receive => run.receive(),
        Role::Echo => run.echo(),
        Role::Ping => run.ping(),
    };
    let Run { counts, .. } = run;
    let ticks = machine.ticks().wrapping_sub(begin);
    let mut line = Line { text: [0; LINE], len: 0 };
    // A line has room for all figures, and a console accepts all text.
    let _ = report(&mut line, settings, counts, ticks);
    let _ = machine.write_str(line.text());
    result
}

/// A line of the report: a console takes it at once, so that other guests are not disturbed for long.
struct Line {
    text: [u8; LINE],
    len: usize,
}

impl Line {
    fn text(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len]).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.text.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

fn report(out: &mut Line, settings: &Settings, counts: Counts, ticks: u64) -> fmt::Result {
    let nanoseconds = |ticks: u64| u128::from(ticks) * 1_000_000_000 / u128::from(settings.tsc);
    let Counts { sent, received, wrong, late, lost, foreign, kicks, parks, .. } = counts;
    let Counts { waited, shortest, first, last, opening, .. } = counts;
    write!(out, "tiny: sent={sent} received={received} wrong={wrong} late={late} lost={lost} ")?;
    write!(out, "foreign={foreign} kicks={kicks} parks={parks} ")?;
    if settings.role == Role::Ping && received > 0 {
        write!(out, "rtt={} best={} ", nanoseconds(waited / received), nanoseconds(shortest))?;
        write!(out, "waited={} ", nanoseconds(waited))?;
    }
    writeln!(out, "opening={opening} active={} ns={}", nanoseconds(last - first), nanoseconds(ticks))
}

impl<M: Machine> Run<'_, M> {
    /// Whether `done` frames or the time end the role.
    fn ends(&self, done: u64) -> bool {
        self.settings.count != 0 && done >= self.settings.count || self.machine.ticks() >= self.end
    }

    fn header(&self) -> Header {
        let &Settings { to, mac, run, .. } = self.settings;
        Header { to, from: mac, run }
    }

    fn publish(&mut self) {
        self.counts.kicks += u64::from(self.link.publish());
    }

    /// After an empty poll: sleeps if there were many.
    fn idle(&mut self, room: bool) -> Result<(), NetDeviceError> {
        self.publish();
        self.idle += 1;
        core::hint::spin_loop();
        if self.idle > self.settings.polls && self.link.arm(room)? {
            self.counts.parks += 1;
            let left = self.end.saturating_sub(self.machine.ticks()) / (self.settings.tsc / 1_000_000).max(1);
            // Beyond its time, a guest waits for its last frames only.
            self.machine.park(if left == 0 { LATE } else { left.min(SLEEP.into()) as u32 });
        }
        Ok(())
    }

    /// Waits until the other side has taken all frames: those in a device that is closed are lost.
    fn drain(&mut self) -> Result<(), NetDeviceError> {
        while self.link.pending()? > 0 && self.machine.ticks() < self.end {
            self.skip()?;
            self.idle(true)?;
        }
        Ok(())
    }

    /// Takes frames that are of no use to a sender: they would fill the ring.
    fn skip(&mut self) -> Result<(), NetDeviceError> {
        let received = self.link.receive(self.settings.batch, &mut |_| {})?;
        self.counts.foreign += u64::from(received);
        Ok(())
    }

    /// Sends all frames, then tells the receiver that it has ended and how many there were.
    fn finish(&mut self) -> Result<(), NetDeviceError> {
        if !self.settings.drain {
            return Ok(());
        }
        self.end = self.end.saturating_add(DRAIN * (self.settings.tsc / 1000));
        self.drain()?;
        let (header, total) = (self.header(), self.counts.sent as u32);
        for number in 0..ENDS {
            if number > 0 {
                self.machine.park(BETWEEN_ENDS);
            }
            self.link.send(1, SHORTEST, &mut |_, bytes| header.control(bytes, total))?;
            self.publish();
        }
        self.machine.park(BETWEEN_ENDS);
        Ok(())
    }

    /// Queues a part of a message: frames of `len` bytes; returns how many had room.
    fn queue(&mut self, count: u32, len: usize) -> Result<u32, NetDeviceError> {
        let (header, first) = (self.header(), self.counts.sent as u32);
        let fill = &mut |position: u32, bytes: &mut [u8]| header.write(bytes, first.wrapping_add(position));
        let sent = self.link.send(count, len, fill)?;
        self.counts.sent += u64::from(sent);
        Ok(sent)
    }

    /// Queues `count` frames, however long it takes.
    fn queue_all(&mut self, mut count: u32, len: usize) -> Result<(), NetDeviceError> {
        while count > 0 && self.machine.ticks() < self.end {
            let sent = self.queue(count.min(self.settings.batch), len)?;
            count -= sent;
            match sent {
                0 => {
                    self.skip()?;
                    self.idle(true)?;
                }
                _ => self.idle = 0,
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), NetDeviceError> {
        let &Settings { size, batch, count, data, .. } = self.settings;
        while data > 0 && !self.ends(self.counts.sent) {
            // The last frame of a message has the rest.
            self.queue_all((data / size) as u32, size)?;
            if !data.is_multiple_of(size) {
                self.queue_all(1, (data % size).max(SHORTEST))?;
            }
            self.publish();
        }
        while !self.ends(self.counts.sent) {
            let left = if count == 0 { u64::MAX } else { count - self.counts.sent };
            let sent = self.queue(left.min(batch.into()) as u32, size)?;
            self.publish();
            match sent {
                0 => {
                    self.skip()?;
                    self.idle(true)?;
                }
                _ => self.idle = 0,
            }
        }
        self.finish()
    }

    /// Sends a frame to all, so that a switch learns where the guest is.
    fn announce(&mut self) -> Result<(), NetDeviceError> {
        let header = Header { to: [0xff; 6], ..self.header() };
        self.link.send(1, SHORTEST, &mut |_, bytes| header.control(bytes, ANNOUNCE))?;
        self.publish();
        Ok(())
    }

    fn receive(&mut self) -> Result<(), NetDeviceError> {
        self.announce()?;
        let (mut sequence, run) = (Sequence::default(), self.settings.run);
        while sequence.total.is_none() && !self.ends(sequence.received) {
            let before = sequence.received;
            let taken =
                self.link.receive(self.settings.batch, &mut |bytes| sequence.record(content(bytes, run)))?;
            if taken == 0 {
                self.idle(false)?;
                continue;
            }
            self.idle = 0;
            if sequence.received > before {
                self.counts.last = self.machine.ticks();
                if self.counts.first == 0 {
                    (self.counts.first, self.counts.opening) = (self.counts.last, sequence.received);
                }
            }
            self.publish();
        }
        let Sequence { wrong, late, foreign, received, .. } = sequence;
        self.counts = Counts { wrong, late, foreign, received, lost: sequence.lost(), ..self.counts };
        Ok(())
    }

    fn echo(&mut self) -> Result<(), NetDeviceError> {
        self.announce()?;
        let (mut held, mut len, run) = ([0; LONGEST], 0, self.settings.run);
        while !self.ends(self.counts.sent) {
            let mut found = Content::Foreign;
            let taken = self.link.receive(1, &mut |bytes| {
                found = content(bytes, run);
                len = bytes.len().min(LONGEST);
                held[..len].copy_from_slice(&bytes[..len]);
            })?;
            if taken == 0 {
                self.idle(false)?;
                continue;
            }
            self.idle = 0;
            match found {
                Content::Number(_) => {}
                Content::Control(number) if number != ANNOUNCE => break,
                other => {
                    self.counts.wrong += u64::from(other == Content::Wrong);
                    self.counts.foreign += u64::from(other != Content::Wrong);
                    continue;
                }
            }
            self.counts.received += 1;
            held.copy_within(6..12, 0);
            held[6..12].copy_from_slice(&self.settings.mac);
            while self.link.send(1, len, &mut |_, bytes| bytes.copy_from_slice(&held[..bytes.len()]))? == 0 {
                if self.ends(self.counts.sent) {
                    return Ok(());
                }
                self.idle(true)?;
            }
            self.counts.sent += 1;
            self.publish();
        }
        self.drain()
    }

    fn ping(&mut self) -> Result<(), NetDeviceError> {
        let (size, run) = (self.settings.size, self.settings.run);
        'all: while !self.ends(self.counts.received) {
            let begin = self.machine.ticks();
            let number = self.counts.sent as u32;
            while self.queue(1, size)? == 0 {
                if self.ends(self.counts.received) {
                    break 'all;
                }
                self.idle(true)?;
            }
            self.publish();
            let mut answered = false;
            // The last one is waited for, too.
            let until = self.end.saturating_add(DRAIN * (self.settings.tsc / 1000));
            while !answered {
                if self.machine.ticks() >= until {
                    break 'all;
                }
                let Counts { mut wrong, mut late, mut foreign, .. } = self.counts;
                let taken = self.link.receive(1, &mut |bytes| match content(bytes, run) {
                    Content::Number(found) if found == number => answered = true,
                    Content::Number(_) => late += 1,
                    Content::Wrong => wrong += 1,
                    Content::Control(_) | Content::Foreign => foreign += 1,
                })?;
                self.counts = Counts { wrong, late, foreign, ..self.counts };
                if taken == 0 {
                    self.idle(false)?;
                }
            }
            self.idle = 0;
            let waited = self.machine.ticks().wrapping_sub(begin);
            self.counts.received += 1;
            self.counts.waited += waited;
            self.counts.shortest = self.counts.shortest.min(waited);
        }
        self.counts.lost = self.counts.sent - self.counts.received;
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_late_or_wrong_are_counted() {
        let mut sequence = Sequence::default();
        let frames = [0, 1, 4, 2, 5].map(Content::Number);
        frames.into_iter().for_each(|frame| sequence.record(frame));
        assert_eq!((sequence.received, sequence.late, sequence.lost()), (5, 1, 1));
        sequence.record(Content::Wrong);
        sequence.record(Content::Foreign);
        sequence.record(Content::Control(ANNOUNCE));
        assert_eq!((sequence.wrong, sequence.foreign, sequence.total), (1, 2, None));
        sequence.record(Content::Control(10));
        assert_eq!((sequence.received, sequence.lost(), sequence.total), (5, 5, Some(10)));
    }

    #[test]
    fn a_report_has_room_for_the_largest_figures() {
        let mut line = Line { text: [0; LINE], len: 0 };
        let most = u64::MAX;
        let [sent, received, wrong, late, lost, foreign, kicks, parks, waited, shortest] = [most; 10];
        let (first, last, opening) = (0, most, most);
        let counts = Counts {
            sent,
            received,
            wrong,
            late,
            lost,
            foreign,
            kicks,
            parks,
            waited,
            shortest,
            first,
            last,
            opening,
        };
        let settings = Settings { role: Role::Ping, tsc: 1, ..Settings::default() };
        report(&mut line, &settings, counts, most).unwrap();
        assert!(line.text().ends_with('\n'));
    }
}
