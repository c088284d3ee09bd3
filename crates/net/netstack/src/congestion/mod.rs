//! Congestion controllers: one file each, named after the algorithm, and a row in [`Algorithm`].
//!
//! A controller sees the connection through [`Window`] and changes `cwnd`, `ssthresh` and `pacing_rate` there.
//! Its events are those of Linux's `tcp_congestion_ops`. All sizes are bytes, rates bytes a second, and times
//! nanoseconds.

mod bbr1;
mod bbr3;
mod cubic;
mod dctcp;
mod hystart;
mod pacing;
mod policer;
mod reno;

use crate::codec::{
    BYTES, BYTES_OR_NONE, Bound, Field, Reader, SPAN, SPAN_OR_NONE, STREAM, fields, variants,
};
pub use crate::connection::rate::RateSample;
use alloc::boxed::Box;
use alloc::vec::Vec;
pub use bbr1::Bbr1;
pub use bbr3::Bbr3;
use core::fmt::Debug;
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use reno::Reno;

/// States of loss recovery (`TCP_CA_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No loss is suspected.
    #[default]
    Open,
    /// Some segments were acknowledged out of order.
    Disorder,
    /// The window is being reduced because of ECN or a tail loss.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// The connection as a controller sees it.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Congestion window.
    pub cwnd: u64,
    /// Slow-start threshold.
    pub ssthresh: u64,
    /// Rate at which segments are released; `u64::MAX`: not paced.
    pub pacing_rate: u64,
    /// Upper bound of `pacing_rate` (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: u64,
    /// Payload of a full segment.
    pub mss: u64,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: u64,
    /// Smoothed round-trip time; 0 if there is no sample.
    pub srtt: u64,
    /// Minimum round-trip time, if there is a sample.
    pub min_rtt: Option<u64>,
    /// `cwnd` before the current reduction.
    pub prior_cwnd: u64,
    /// Total of delivered bytes.
    pub delivered: u64,
    /// Total of bytes marked lost.
    pub lost: u64,
    /// Whether the window, not the application, limits what is sent.
    pub cwnd_limited: bool,
    /// State of loss recovery.
    pub state: State,
    /// Bytes of a full frame with pending segmentation, at the current rate.
    pub tso_goal: u64,
    /// Initial window in bytes.
    pub initial: u64,
    /// When pacing permits the next segment.
    pub release_at: u64,
    /// Whether delivery-rate samples are limited by the application. A controller sets it if it limits them
    /// itself.
    pub app_limited: bool,
}

impl Window {
    /// Whether the connection is in slow start.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start (RFC 5681, 3.1); returns the acknowledged bytes beyond the threshold.
    pub fn slow_start(&mut self, acked: u64) -> u64 {
        let grown = (self.cwnd + acked).min(self.ssthresh);
        let rest = acked - (grown - self.cwnd).min(acked);
        self.cwnd = grown;
        rest
    }
}

/// A congestion controller of one connection.
pub trait Congestion: Debug + Send {
    /// Its name in `TCP_CONGESTION`.
    fn name(&self) -> &'static str;

    /// Appends its state, for a connection that moves to another stack.
    fn save(&self, to: &mut Vec<u8>);

    /// The state that traces show.
    fn mode(&self, window: &Window) -> &'static str {
        if window.in_slow_start() { "slow_start" } else { "congestion_avoidance" }
    }

    /// The handshake is complete.
    fn init(&mut self, _now: u64, _window: &mut Window) {}

    /// The slow-start threshold after a loss or an ECN echo. Called once for each reduction, before it.
    fn ssthresh(&mut self, now: u64, window: &Window) -> u64;

    /// An acknowledgment. If [`Congestion::controls_cwnd`], every one; otherwise those that may increase the
    /// window.
    fn on_ack(&mut self, now: u64, window: &mut Window, sample: &RateSample);

    /// Every acknowledgment, before [`Congestion::on_ack`]; `ece` if it had an ECN echo.
    fn on_every_ack(&mut self, _now: u64, _window: &mut Window, _sample: &RateSample, _ece: bool) {}

    /// Loss recovery changes its state; `window.state` is still the old one.
    fn on_state(&mut self, _now: u64, _window: &mut Window, _new: State) {}

    /// The application sends again after everything was acknowledged, and nothing was sent for `idle`.
    fn on_restart(&mut self, _now: u64, _window: &mut Window, _idle: u64) {}

    /// Nobody called the stack for some time until `now`.
    fn on_standstill(&mut self, _now: u64, _time: u64) {}

    /// The window after a reduction turned out to be unnecessary.
    fn undo_cwnd(&mut self, window: &Window) -> u64 {
        window.cwnd.max(window.prior_cwnd)
    }

    /// Whether it sets window and rate itself, also during recovery, and requires pacing.
    fn controls_cwnd(&self) -> bool {
        false
    }

    /// Least number of segments of a frame with pending segmentation; `None`: `tcp_min_tso_segs`.
    fn min_tso_segs(&self, _window: &Window) -> Option<u64> {
        None
    }

    /// Whether it requires ECN, and echoes of each CE mark (RFC 8257).
    fn wants_ecn(&self) -> bool {
        false
    }
}

/// Every controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 1.
    Bbr1,
    /// BBR, version 3.
    Bbr3,
    /// DCTCP (RFC 8257).
    Dctcp,
}

impl Algorithm {
    /// All of them.
    pub const ALL: &[Algorithm] =
        &[Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr1, Algorithm::Bbr3, Algorithm::Dctcp];

    /// Its name in `tcp_congestion_control`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Reno => "reno",
            Algorithm::Cubic => "cubic",
            Algorithm::Bbr1 => "bbr1",
            Algorithm::Bbr3 => "bbr3",
            Algorithm::Dctcp => "dctcp",
        }
    }

    /// The algorithm of this name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.iter().copied().find(|algorithm| algorithm.name() == name)
    }

    /// Its name in Linux, which has one `bbr`, the first version.
    pub fn linux_name(self) -> &'static str {
        if self == Algorithm::Bbr1 { "bbr" } else { self.name() }
    }

    /// The algorithm of one of Linux's names, or of those of [`Algorithm::name`].
    pub fn from_linux_name(name: &str) -> Option<Algorithm> {
        if name == "bbr" { Some(Algorithm::Bbr1) } else { Algorithm::from_name(name) }
    }

    /// A controller with the state that [`Congestion::save`] wrote.
    pub(crate) fn restore(self, from: &mut Reader<'_>) -> Option<Box<dyn Congestion>> {
        fn take<T: Congestion + Field + 'static>(from: &mut Reader<'_>) -> Option<Box<dyn Congestion>> {
            Some(Box::new(T::take(from, Bound::Any)?))
        }
        match self {
            Algorithm::Reno => take::<Reno>(from),
            Algorithm::Cubic => take::<Cubic>(from),
            Algorithm::Bbr1 => take::<Bbr1>(from),
            Algorithm::Bbr3 => take::<Bbr3>(from),
            Algorithm::Dctcp => take::<Dctcp>(from),
        }
    }

    /// A controller for a new connection; `seed` is random.
    pub fn build(self, seed: u64) -> Box<dyn Congestion> {
        match self {
            Algorithm::Reno => Box::new(Reno::default()),
            Algorithm::Cubic => Box::new(Cubic::default()),
            Algorithm::Bbr1 => Box::new(Bbr1::new(seed)),
            Algorithm::Bbr3 => Box::new(Bbr3::new(seed)),
            Algorithm::Dctcp => Box::new(Dctcp::default()),
        }
    }
}

variants!(State { Open, Disorder, Cwr, Recovery, Loss });
variants!(Algorithm { Reno, Cubic, Bbr1, Bbr3, Dctcp });
fields!(Window {
    cwnd: Bound::Positive(1 << 40),
    ssthresh: BYTES_OR_NONE,
    pacing_rate: Bound::Any,
    max_pacing_rate: Bound::Any,
    mss: Bound::Positive(1 << 16),
    in_flight: BYTES,
    srtt: SPAN,
    min_rtt: SPAN_OR_NONE,
    prior_cwnd: BYTES,
    delivered: STREAM,
    lost: STREAM,
    cwnd_limited: Bound::Any,
    state: Bound::Any,
    tso_goal: Bound::Positive(1 << 20),
    initial: BYTES,
    release_at: Bound::Deadline,
    app_limited: Bound::Any,
});

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A window of `cwnd` bytes that limits the connection, with segments of 1000 bytes.
    pub(crate) fn window(cwnd: u64) -> Window {
        Window {
            cwnd,
            ssthresh: u64::MAX,
            pacing_rate: u64::MAX,
            max_pacing_rate: u64::MAX,
            mss: 1000,
            in_flight: cwnd,
            srtt: 0,
            min_rtt: None,
            prior_cwnd: 0,
            delivered: 0,
            lost: 0,
            cwnd_limited: true,
            state: State::Open,
            tso_goal: 2000,
            initial: 10_000,
            release_at: 0,
            app_limited: false,
        }
    }

    #[test]
    fn names_select_algorithms() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(algorithm.name()), Some(*algorithm));
            assert_eq!(algorithm.build(1).name(), algorithm.name());
        }
    }
}
