//! An attachment to a port: a ring that is requested, received, and requested again when it is lost.

use crate::connect::{Map, map_anywhere};
use crate::{PendingRing, Ring, RingError, RingKind, RingOptions};
use ringway_host::{PollFd, poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Delays in nanoseconds before a port is retried: the first one, and the largest.
pub(crate) const PAUSES: (u64, u64) = (10_000_000, 1_000_000_000);
/// Time limit for receiving a ring once the reply has begun.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The state of an attachment.
#[derive(Debug)]
pub enum State {
    /// There is none; `next` says when to ask for one.
    Away,
    /// The ring was requested.
    Requested(PendingRing),
    /// The ring can be used.
    Up(Ring),
}

/// A port's ring, or the request for one. It never blocks; times are nanoseconds of the caller's steady clock.
#[derive(Debug)]
pub struct Attachment {
    options: RingOptions,
    state: State,
    /// A pipe's end that waits for a new other end.
    kept: Option<PendingRing>,
    epoch: u64,
    next: u64,
    /// The last delay.
    pause: u64,
    /// Time at which the ring was received.
    since: u64,
    losses: u64,
    reason: String,
}

impl Default for Attachment {
    fn default() -> Attachment {
        Attachment {
            options: RingOptions::default(),
            state: State::Away,
            kept: None,
            epoch: 1,
            next: 0,
            pause: 0,
            since: 0,
            losses: 0,
            reason: "not asked for yet".into(),
        }
    }
}

impl Attachment {
    /// The attachment of a ring that was received at `now`, and that is requested with `options` when it is lost.
    pub fn of(ring: Ring, options: RingOptions, now: u64) -> Attachment {
        Attachment {
            options,
            state: State::Up(ring),
            since: now,
            reason: String::new(),
            ..Attachment::default()
        }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The ring, if it is here.
    pub fn ring(&mut self) -> Option<&mut Ring> {
        match &mut self.state {
            State::Up(ring) => Some(ring),
            _ => None,
        }
    }

    /// Counts state changes.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Time of the next attempt.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of lost rings.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Why the last ring was lost, or could not be received.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The descriptors that become readable when there is something to do.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.state {
            State::Away => Vec::new(),
            State::Requested(coming) => vec![coming.as_fd()],
            // The socket hangs up when the ring is revoked.
            State::Up(ring) => [ring.as_fd()].into_iter().chain(ring.socket()).collect(),
        }
    }

    fn become_as(&mut self, state: State) -> State {
        self.epoch += 1;
        std::mem::replace(&mut self.state, state)
    }

    /// Advances the state as far as possible without blocking; `connect` connects to the port.
    pub fn advance(&mut self, now: u64, connect: impl FnOnce() -> io::Result<UnixStream>) {
        self.tend_by(now, connect, &map_anywhere);
    }

    /// Advances the state as far as possible without blocking; `connect` connects to the port, `map` maps the ring's
    /// memory.
    pub fn tend_by(&mut self, now: u64, connect: impl FnOnce() -> io::Result<UnixStream>, map: Map<'_>) {
        if matches!(self.state, State::Away) && now >= self.next {
            let options = self.options;
            let ask = || PendingRing::over(connect().map_err(RingError::Unreachable)?, options);
            match self.kept.take().map_or_else(ask, Ok) {
                Ok(coming) => drop(self.become_as(State::Requested(coming))),
                Err(error) => self.lose(&error, now),
            }
        }
        if !matches!(&self.state, State::Requested(coming) if is_readable(coming.as_fd())) {
            return;
        }
        if let State::Requested(coming) = std::mem::replace(&mut self.state, State::Away) {
            match coming.ring_by(Some(TIMEOUT), map) {
                Ok(ring) => {
                    self.since = now;
                    self.become_as(State::Up(ring));
                }
                Err(error) => self.lose(&error, now),
            }
        }
    }

    /// The ring was lost, or could not be received.
    pub fn lose(&mut self, error: &RingError, now: u64) {
        let was_up = matches!(self.state, State::Up(_));
        self.losses += u64::from(was_up);
        // Attack: a port that closes each ring as soon as it is received.
        let lasted = was_up && now.saturating_sub(self.since) > PAUSES.1;
        self.pause = if lasted { PAUSES.0 } else { (self.pause * 2).clamp(PAUSES.0, PAUSES.1) };
        self.next = now.saturating_add(self.pause);
        self.reason = error.to_string();
        // A pipe's next program may already be connected to this end, which must not leave.
        self.kept = match (self.become_as(State::Away), error) {
            (State::Up(ring), RingError::Closed) if ring.kind() == RingKind::Pipe => ring.another(),
            _ => None,
        };
    }

    /// The ring is lost if its socket hung up.
    pub fn check_socket(&mut self, now: u64) {
        if matches!(&self.state, State::Up(ring) if ring.socket().is_some_and(is_readable)) {
            self.lose(&RingError::Closed, now);
        }
    }

    /// Sets whether the first ring accepts offloads; no effect once it was requested.
    pub fn prefer_offloads(&mut self, offloads: bool) {
        if matches!(self.state, State::Away) {
            self.options.offloads = offloads;
        }
    }

    /// Sets whether the ring accepts frames with checksums to fill and segmentation to do. Requests another ring if
    /// that changes.
    pub fn want_offloads(&mut self, offloads: bool, now: u64) {
        if self.options.offloads != offloads {
            self.options.offloads = offloads;
            self.kept = None;
            if !matches!(self.state, State::Away) {
                self.become_as(State::Away);
            }
            self.next = now;
        }
    }
}

pub(crate) fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let descriptor = socket.as_raw_fd();
    let mut poll_fds = [PollFd { descriptor, readable: true, writable: false }];
    poll(&mut poll_fds, Duration::ZERO);
    poll_fds[0].readable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_away_is_retried_after_growing_delays() {
        let mut attachment = Attachment::default();
        let mut tried = 0;
        let mut advance = |attachment: &mut Attachment, now| {
            attachment.advance(now, || {
                tried += 1;
                Err(io::ErrorKind::ConnectionRefused.into())
            });
            tried
        };
        assert_eq!(advance(&mut attachment, 0), 1);
        assert_eq!((attachment.next(), attachment.losses()), (PAUSES.0, 0));
        assert_eq!(advance(&mut attachment, PAUSES.0 - 1), 1, "not yet");
        assert_eq!(advance(&mut attachment, PAUSES.0), 2);
        assert_eq!(attachment.next(), 3 * PAUSES.0, "twice the delay");
        let (_peer, socket) = UnixStream::pair().unwrap();
        let epoch = attachment.epoch();
        attachment.advance(u64::MAX, || Ok(socket));
        assert!(matches!(attachment.state(), State::Requested(_)) && attachment.epoch() > epoch);
        attachment.want_offloads(true, 7);
        assert!(matches!(attachment.state(), State::Away) && attachment.next() == 7);
    }
}
