//! The roles of a guest.

use crate::frame;
use crate::link::{Link, LinkError};
use crate::settings::{LONGEST, Role, Settings};
use core::fmt::{self, Write};

/// What the guest's machine can do.
pub trait Machine: Write {
    /// Ticks of the clock.
    fn ticks(&self) -> u64;
    /// Sleeps until the other side notifies this one, or for some microseconds.
    fn park(&mut self, microseconds: u32);
}

/// Longest sleep in microseconds.
const SLEEP: u32 = 100_000;

/// Counts of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    sent: u64,
    received: u64,
    /// Received frames that are no numbered frames, or arrived out of order.
    wrong: u64,
    kicks: u64,
    parks: u64,
    /// Ticks that pings took, and the shortest.
    waited: u64,
    shortest: u64,
    /// Ticks when frames were received first and last.
    first: u64,
    last: u64,
}

struct Run<'a, M> {
    machine: &'a mut M,
    link: &'a mut dyn Link,
    settings: &'a Settings,
    counts: Counts,
    idle: u32,
    /// The tick at which the guest ends.
    end: u64,
}

/// Plays the role, and reports.
pub fn run<M: Machine>(machine: &mut M, link: &mut dyn Link, settings: &Settings) -> Result<(), LinkError> {
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
    // A console accepts all text.
    let _ = report(machine, settings, counts, ticks);
    result
}

fn report(out: &mut impl Write, settings: &Settings, counts: Counts, ticks: u64) -> fmt::Result {
    let nanoseconds = |ticks: u64| u128::from(ticks) * 1_000_000_000 / u128::from(settings.tsc);
    let Counts { sent, received, wrong, kicks, parks, waited, shortest, first, last } = counts;
    write!(out, "tiny: sent={sent} received={received} wrong={wrong} kicks={kicks} parks={parks} ")?;
    if settings.role == Role::Ping && received > 0 {
        write!(out, "rtt={} best={} ", nanoseconds(waited / received), nanoseconds(shortest))?;
    }
    writeln!(out, "active={} ns={}", nanoseconds(last - first), nanoseconds(ticks))
}

impl<M: Machine> Run<'_, M> {
    /// Whether `done` frames or the time end the role.
    fn ends(&self, done: u64) -> bool {
        self.settings.count != 0 && done >= self.settings.count || self.machine.ticks() >= self.end
    }

    fn publish(&mut self) {
        self.counts.kicks += u64::from(self.link.publish());
    }

    /// After an empty poll: sleeps if there were many.
    fn idle(&mut self, room: bool) -> Result<(), LinkError> {
        self.publish();
        self.idle += 1;
        core::hint::spin_loop();
        if self.idle > self.settings.polls && self.link.arm(room)? {
            self.counts.parks += 1;
            let left = self.end.saturating_sub(self.machine.ticks()) / (self.settings.tsc / 1_000_000).max(1);
            self.machine.park(left.min(SLEEP.into()) as u32);
        }
        Ok(())
    }

    /// Waits until the other side has taken all frames: those in a device that is closed are lost.
    fn drain(&mut self) -> Result<(), LinkError> {
        while self.link.pending()? > 0 && self.machine.ticks() < self.end {
            self.idle(true)?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), LinkError> {
        let &Settings { size, to, mac, batch, count, .. } = self.settings;
        while !self.ends(self.counts.sent) {
            let left = if count == 0 { u64::MAX } else { count - self.counts.sent };
            let burst = left.min(batch.into()) as u32;
            let first = self.counts.sent as u32;
            let fill = &mut |position: u32, bytes: &mut [u8]| {
                frame::write(bytes, to, mac, first.wrapping_add(position));
            };
            let sent = self.link.send(burst, size, fill)?;
            self.counts.sent += u64::from(sent);
            self.publish();
            match sent {
                0 => {
                    // Frames that nobody takes would fill the ring.
                    let received = self.link.receive(batch, &mut |_| {})?;
                    self.counts.received += u64::from(received);
                    self.idle(true)?;
                }
                _ => self.idle = 0,
            }
        }
        self.drain()
    }

    /// Sends a frame to all, so that a switch learns where the guest is.
    fn announce(&mut self) -> Result<(), LinkError> {
        let mac = self.settings.mac;
        self.link.send(1, 60, &mut |_, bytes| frame::write(bytes, [0xff; 6], mac, u32::MAX))?;
        self.publish();
        Ok(())
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        self.announce()?;
        let mut next = 0_u32;
        while !self.ends(self.counts.received) {
            let mut wrong = 0;
            let received = self.link.receive(self.settings.batch, &mut |bytes| {
                let number = frame::number(bytes);
                wrong += u64::from(number != Some(next));
                next = number.unwrap_or(next).wrapping_add(1);
            })?;
            self.counts.received += u64::from(received);
            self.counts.wrong += wrong;
            match received {
                0 => self.idle(false)?,
                _ => {
                    self.idle = 0;
                    self.counts.last = self.machine.ticks();
                    if self.counts.first == 0 {
                        self.counts.first = self.counts.last;
                    }
                    self.publish();
                }
            }
        }
        Ok(())
    }

    fn echo(&mut self) -> Result<(), LinkError> {
        self.announce()?;
        let (mut held, mut len) = ([0; LONGEST], 0);
        while !self.ends(self.counts.sent) {
            let received = self.link.receive(1, &mut |bytes| {
                len = bytes.len().min(LONGEST);
                held[..len].copy_from_slice(&bytes[..len]);
            })?;
            if received == 0 || len < 14 {
                self.idle(false)?;
                continue;
            }
            self.idle = 0;
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

    fn ping(&mut self) -> Result<(), LinkError> {
        let &Settings { size, to, mac, .. } = self.settings;
        while !self.ends(self.counts.received) {
            let begin = self.machine.ticks();
            let number = self.counts.sent as u32;
            while self.link.send(1, size, &mut |_, bytes| frame::write(bytes, to, mac, number))? == 0 {
                if self.ends(self.counts.received) {
                    return Ok(());
                }
                self.idle(true)?;
            }
            self.counts.sent += 1;
            self.publish();
            let mut answered = false;
            while !answered {
                if self.machine.ticks() >= self.end {
                    return Ok(());
                }
                if self.link.receive(1, &mut |bytes| answered = frame::number(bytes) == Some(number))? == 0 {
                    self.idle(false)?;
                }
            }
            self.idle = 0;
            let waited = self.machine.ticks().wrapping_sub(begin);
            self.counts.received += 1;
            self.counts.waited += waited;
            self.counts.shortest = self.counts.shortest.min(waited);
        }
        Ok(())
    }
}
