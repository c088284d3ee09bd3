//! BBR, version 3 (draft-ietf-ccwg-bbr). Unlike version 1 it reacts to loss: a long-term bound of what may be in
//! flight, and short-term bounds of rate and flight. Gains are in units of 1/256; bandwidth is in bytes a second.
//!
//! Each constant names its source: the draft, and google/bbr's `net/ipv4/tcp_bbr.c` in its version 3 (`bbr_...`).

use super::pacing::{self, Pacing, UNIT, rate};
use super::{Congestion, RateSample, State, Window};
use crate::codec::{
    BYTES, BYTES_OR_NONE, Bound, COUNT, Field, RATE, RATE_OR_NONE, SPAN, SPAN_OR_NONE, STREAM, fields,
    variants,
};
use crate::hash::Random;
use crate::minmax::MinMax;
use crate::settings::{MS, SECOND};
use alloc::vec::Vec;

/// `StartupPacingGain`, 2.77 (`bbr_startup_pacing_gain`), and the draft's `DrainPacingGain`, 0.5; google/bbr's
/// `bbr_drain_gain` is 0.35.
const STARTUP_GAIN: u64 = UNIT * 277 / 100;
const DRAIN_GAIN: u64 = UNIT / 2;
/// Pacing gains of DOWN and UP; those of CRUISE and REFILL are 1 (`bbr_pacing_gain`).
const DOWN_GAIN: u64 = UNIT * 91 / 100;
const UP_GAIN: u64 = UNIT * 5 / 4;
/// Window gains, in UP and elsewhere (the draft's 2.25 and 2; `bbr_bw_probe_cwnd_gain`, `bbr_cwnd_gain`).
const CWND_GAIN_UP: u64 = UNIT * 9 / 4;
const CWND_GAIN: u64 = UNIT * 2;
/// `LossThresh`, in percent (`bbr_loss_thresh`).
const LOSS_THRESHOLD: u64 = 2;
/// `Beta` and `1 - Headroom`, in percent (1 - `bbr_beta`, 1 - `bbr_inflight_headroom`).
const BETA: u64 = 70;
const HEADROOM_KEPT: u64 = 85;
/// `MinPipeCwnd`, in segments (`bbr_cwnd_min_target`).
const MIN_CWND: u64 = 4;
/// `MinRTTFilterLen`, `ProbeRTTInterval` and `ProbeRTTDuration` (`bbr_min_rtt_win_sec`, `bbr_probe_rtt_win_ms`,
/// `bbr_probe_rtt_mode_ms`).
const MIN_RTT_WINDOW: u64 = 10 * SECOND;
const PROBE_RTT_INTERVAL: u64 = 5 * SECOND;
const PROBE_RTT_TIME: u64 = 200 * MS;
/// Loss events that end STARTUP (`StartupFullLossCnt`; `bbr_full_loss_cnt`).
const FULL_LOSS_EVENTS: u32 = 6;
/// Growth of the bandwidth, and rounds without it, by which the pipe is full (`bbr_full_bw_thresh`,
/// `bbr_full_bw_cnt`).
const FULL_BW_THRESHOLD: u64 = UNIT * 5 / 4;
const FULL_BW_ROUNDS: u32 = 3;
/// Rounds between probes, at most: what Reno needs to reach such a window (`bbr_bw_probe_max_rounds`).
const RENO_ROUNDS: u64 = 63;
/// Rounds over which aggregation counts (`ExtraAckedFilterLen`; twice `bbr_extra_acked_win_rtts`).
const EXTRA_ACKED_ROUNDS: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// Which part of a probe the acknowledgments now are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Feedback,
    Stopping,
    Refilling,
}

/// The controller.
#[derive(Debug)]
pub struct Bbr3 {
    mode: Mode,
    phase: Phase,
    random: Random,
    max_bw: MinMax,
    cycles: u64,
    rounds: u64,
    round_start: bool,
    round_end: u64,
    /// Rounds in which losses are counted.
    loss_round_start: bool,
    loss_round_end: u64,
    loss_in_round: bool,
    loss_events: u32,
    bw_latest: u64,
    in_flight_latest: u64,
    bw_short: u64,
    in_flight_short: u64,
    in_flight_long: u64,
    full_bw: u64,
    full_bw_rounds: u32,
    full_bw_now: bool,
    full_bw_reached: bool,
    min_rtt: u64,
    min_rtt_at: u64,
    probe_rtt_min: u64,
    probe_rtt_min_at: u64,
    probe_rtt_done: Option<u64>,
    probe_rtt_round_done: bool,
    cycle_at: u64,
    probe_wait: u64,
    rounds_since_probe: u64,
    probe_samples: bool,
    up_rounds: u32,
    up_acked: u64,
    up_count: u64,
    extra_acked: MinMax,
    extra_since: u64,
    extra: u64,
    prior_cwnd: u64,
    previous: State,
    idle_restart: bool,
    pacing: Pacing,
}

impl Bbr3 {
    /// A controller; `seed` varies the time between its probes.
    pub fn new(seed: u64) -> Bbr3 {
        Bbr3 {
            mode: Mode::Startup,
            phase: Phase::Stopping,
            random: Random::new(seed),
            max_bw: MinMax::default(),
            cycles: 0,
            rounds: 0,
            round_start: false,
            round_end: 0,
            loss_round_start: false,
            loss_round_end: 0,
            loss_in_round: false,
            loss_events: 0,
            bw_latest: 0,
            in_flight_latest: 0,
            bw_short: u64::MAX,
            in_flight_short: u64::MAX,
            in_flight_long: u64::MAX,
            full_bw: 0,
            full_bw_rounds: 0,
            full_bw_now: false,
            full_bw_reached: false,
            min_rtt: u64::MAX,
            min_rtt_at: 0,
            probe_rtt_min: u64::MAX,
            probe_rtt_min_at: 0,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            cycle_at: 0,
            probe_wait: 0,
            rounds_since_probe: 0,
            probe_samples: false,
            up_rounds: 0,
            up_acked: 0,
            up_count: u64::MAX,
            extra_acked: MinMax::default(),
            extra_since: 0,
            extra: 0,
            prior_cwnd: 0,
            previous: State::Open,
            idle_restart: false,
            pacing: Pacing::new(STARTUP_GAIN),
        }
    }

    fn bandwidth(&self) -> u64 {
        self.max_bw.get().min(self.bw_short)
    }

    fn probes_bandwidth(&self) -> bool {
        matches!(self.mode, Mode::Down | Mode::Cruise | Mode::Refill | Mode::Up)
    }

    fn bdp(&self, window: &Window, gain: u64) -> u64 {
        if self.min_rtt == u64::MAX {
            return window.initial;
        }
        let product = u128::from(self.bandwidth()) * u128::from(self.min_rtt) * u128::from(gain);
        product.div_ceil(u128::from(UNIT * SECOND)) as u64
    }

    /// The product with room for large frames at both ends.
    fn inflight(&self, window: &Window, gain: u64) -> u64 {
        let budget = (self.bdp(window, gain) + 3 * window.tso_goal).max(MIN_CWND * window.mss);
        budget + if self.mode == Mode::Up { 2 * window.mss } else { 0 }
    }

    fn with_headroom(&self, window: &Window) -> u64 {
        if self.in_flight_long == u64::MAX {
            return u64::MAX;
        }
        let kept = self.in_flight_long / 100 * HEADROOM_KEPT;
        kept.min(self.in_flight_long - window.mss.min(self.in_flight_long)).max(MIN_CWND * window.mss)
    }

    fn start_round(&mut self, window: &Window) {
        self.round_end = window.delivered;
    }

    /// The newest sample, and the bounds that follow from losses.
    fn update_signals(&mut self, window: &Window, sample: &RateSample) -> u64 {
        (self.round_start, self.loss_round_start) = (false, false);
        self.loss_in_round |= sample.losses > 0;
        self.loss_events += u32::from(sample.losses > 0);
        if sample.interval == 0 {
            return 0;
        }
        let bw = rate(sample.delivered, sample.interval);
        if sample.prior_delivered >= self.round_end {
            self.start_round(window);
            self.rounds += 1;
            self.rounds_since_probe += 1;
            self.round_start = true;
        }
        if sample.prior_delivered >= self.loss_round_end {
            self.loss_round_end = window.delivered;
            self.loss_round_start = true;
        }
        self.bw_latest = self.bw_latest.max(bw);
        self.in_flight_latest = self.in_flight_latest.max(sample.delivered);
        if !sample.is_app_limited || bw >= self.max_bw.get() {
            // The bandwidth of the last two cycles.
            self.max_bw.max(1, self.cycles, bw);
        }
        if self.loss_round_start {
            self.adapt_short_term(window);
        }
        bw
    }

    fn adapt_short_term(&mut self, window: &Window) {
        let probing = matches!(self.mode, Mode::Startup | Mode::Refill | Mode::Up);
        if self.loss_in_round && !probing {
            let bw = if self.bw_short == u64::MAX { self.max_bw.get() } else { self.bw_short };
            let flight = if self.in_flight_short == u64::MAX { window.cwnd } else { self.in_flight_short };
            self.bw_short = self.bw_latest.max(bw / 100 * BETA);
            self.in_flight_short = self.in_flight_latest.max(flight / 100 * BETA);
        }
    }

    fn reset_short_term(&mut self) {
        (self.bw_short, self.in_flight_short) = (u64::MAX, u64::MAX);
    }

    fn update_aggregation(&mut self, now: u64, window: &Window, sample: &RateSample) {
        let time = now.saturating_sub(self.extra_since);
        let mut expected = (u128::from(self.bandwidth()) * u128::from(time) / u128::from(SECOND)) as u64;
        if self.extra <= expected {
            (self.extra, self.extra_since, expected) = (0, now, 0);
        }
        self.extra += sample.acked_sacked;
        let extra = self.extra.saturating_sub(expected).min(window.cwnd);
        let most = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
        self.extra_acked.max(most, self.rounds, extra);
    }

    fn reset_full_bandwidth(&mut self, bw: u64) {
        (self.full_bw, self.full_bw_rounds, self.full_bw_now) = (bw, 0, false);
    }

    fn check_full_bandwidth(&mut self, sample: &RateSample, bw: u64) {
        if self.full_bw_now || !self.round_start || sample.is_app_limited {
            return;
        }
        if bw >= self.full_bw * FULL_BW_THRESHOLD / UNIT {
            return self.reset_full_bandwidth(bw);
        }
        self.full_bw_rounds += 1;
        self.full_bw_now = self.full_bw_rounds >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// Ends STARTUP and DRAIN.
    fn check_startup(&mut self, now: u64, window: &Window, sample: &RateSample) {
        if self.mode == Mode::Startup {
            let high = self.loss_round_start
                && self.loss_events >= FULL_LOSS_EVENTS
                && window.state == State::Recovery
                && is_too_high(sample);
            if high {
                self.full_bw_reached = true;
                self.in_flight_long = self.bdp(window, UNIT).max(self.in_flight_latest);
            }
            if self.full_bw_reached {
                self.mode = Mode::Drain;
            }
        }
        if self.loss_round_start {
            self.loss_events = 0;
        }
        if self.mode == Mode::Drain && window.in_flight <= self.inflight(window, UNIT) {
            self.start_down(now, window);
        }
    }

    fn start_down(&mut self, now: u64, window: &Window) {
        (self.loss_in_round, self.bw_latest, self.in_flight_latest) = (false, 0, 0);
        self.up_count = u64::MAX;
        self.rounds_since_probe = self.random.below(2);
        // `bbr_bw_probe_base_us` and `bbr_bw_probe_rand_us`.
        self.probe_wait = 2 * SECOND + self.random.below(SECOND);
        (self.cycle_at, self.phase, self.mode) = (now, Phase::Stopping, Mode::Down);
        self.start_round(window);
    }

    fn start_refill(&mut self, window: &Window) {
        self.reset_short_term();
        (self.up_rounds, self.up_acked) = (0, 0);
        (self.phase, self.mode) = (Phase::Refilling, Mode::Refill);
        self.start_round(window);
    }

    fn start_up(&mut self, now: u64, window: &Window, bw: u64) {
        (self.phase, self.mode, self.cycle_at) = (Phase::Starting, Mode::Up, now);
        self.start_round(window);
        self.reset_full_bandwidth(bw);
        self.raise_slope(window);
    }

    /// Doubles in each round by how much the long-term bound grows.
    fn raise_slope(&mut self, window: &Window) {
        let growth = window.mss << self.up_rounds.min(30);
        self.up_rounds = (self.up_rounds + 1).min(30);
        self.up_count = (window.cwnd / (growth / window.mss).max(1)).max(window.mss);
    }

    fn update_cycle(&mut self, now: u64, window: &Window, sample: &RateSample, bw: u64) {
        if !self.full_bw_reached {
            return;
        }
        self.adapt_long_term(now, window, sample);
        match self.mode {
            Mode::Down | Mode::Cruise if self.is_time_to_probe(now, window) => self.start_refill(window),
            Mode::Down => {
                let low = window.in_flight <= self.with_headroom(window);
                if low && window.in_flight <= self.inflight(window, UNIT) {
                    self.mode = Mode::Cruise;
                }
            }
            Mode::Refill if self.round_start => {
                self.probe_samples = true;
                self.start_up(now, window, bw);
            }
            Mode::Up => {
                if window.cwnd_limited && window.cwnd >= self.in_flight_long {
                    self.reset_full_bandwidth(bw);
                } else if self.full_bw_now {
                    self.start_down(now, window);
                }
            }
            Mode::Startup | Mode::Drain | Mode::Cruise | Mode::Refill | Mode::ProbeRtt => {}
        }
    }

    fn is_time_to_probe(&self, now: u64, window: &Window) -> bool {
        let reno = (self.bdp(window, UNIT).min(window.cwnd) / window.mss).min(RENO_ROUNDS);
        now.saturating_sub(self.cycle_at) > self.probe_wait || self.rounds_since_probe >= reno.max(1)
    }

    /// The long-term bound falls if too much was lost, and grows while probing.
    fn adapt_long_term(&mut self, now: u64, window: &Window, sample: &RateSample) {
        if self.round_start {
            match self.phase {
                Phase::Starting => self.phase = Phase::Feedback,
                Phase::Stopping if self.probes_bandwidth() && !sample.is_app_limited => self.cycles += 1,
                Phase::Stopping | Phase::Feedback | Phase::Refilling => {}
            }
        }
        if is_too_high(sample) {
            if !core::mem::take(&mut self.probe_samples) {
                return;
            }
            if !sample.is_app_limited {
                let target = self.bdp(window, UNIT).min(window.cwnd) / 100 * BETA;
                self.in_flight_long = sample.tx_in_flight.max(target);
            }
            if self.mode == Mode::Up {
                self.start_down(now, window);
            }
            return;
        }
        if self.in_flight_long == u64::MAX {
            return;
        }
        self.in_flight_long = self.in_flight_long.max(sample.tx_in_flight);
        if self.mode == Mode::Up && window.cwnd_limited && window.cwnd >= self.in_flight_long {
            self.up_acked += sample.acked_sacked;
            let segments = self.up_acked / self.up_count;
            self.up_acked -= segments * self.up_count;
            self.in_flight_long += segments * window.mss;
            if self.round_start {
                self.raise_slope(window);
            }
        }
    }

    fn update_min_rtt(&mut self, now: u64, window: &mut Window, sample: &RateSample) {
        let expired = now > self.probe_rtt_min_at.saturating_add(PROBE_RTT_INTERVAL);
        if let Some(rtt) = sample.rtt.filter(|&rtt| rtt <= self.probe_rtt_min || expired) {
            (self.probe_rtt_min, self.probe_rtt_min_at) = (rtt, now);
        }
        let old = now > self.min_rtt_at.saturating_add(MIN_RTT_WINDOW);
        if self.probe_rtt_min <= self.min_rtt || old {
            (self.min_rtt, self.min_rtt_at) = (self.probe_rtt_min, self.probe_rtt_min_at);
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.save_cwnd(window);
            (self.mode, self.phase, self.probe_rtt_done) = (Mode::ProbeRtt, Phase::Stopping, None);
            self.start_round(window);
        }
        if self.mode == Mode::ProbeRtt {
            window.app_limited = true;
            match self.probe_rtt_done {
                None if window.in_flight <= self.probe_rtt_cwnd(window) => {
                    self.probe_rtt_done = Some(now + PROBE_RTT_TIME);
                    self.probe_rtt_round_done = false;
                    self.start_round(window);
                }
                None => {}
                Some(done) => {
                    self.probe_rtt_round_done |= self.round_start;
                    if self.probe_rtt_round_done && now > done {
                        self.leave_probe_rtt(now, window);
                    }
                }
            }
        }
        self.idle_restart &= sample.delivered == 0;
    }

    fn leave_probe_rtt(&mut self, now: u64, window: &mut Window) {
        self.probe_rtt_min_at = now;
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        self.reset_short_term();
        if self.full_bw_reached {
            self.start_down(now, window);
            self.mode = Mode::Cruise;
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn probe_rtt_cwnd(&self, window: &Window) -> u64 {
        self.bdp(window, UNIT / 2).max(MIN_CWND * window.mss)
    }

    fn save_cwnd(&mut self, window: &Window) {
        let fresh = self.previous < State::Recovery && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if fresh { window.cwnd } else { self.prior_cwnd.max(window.cwnd) };
    }

    fn set_pacing_rate(&mut self, window: &mut Window) {
        let gain = match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::Down => DOWN_GAIN,
            Mode::Up => UP_GAIN,
            Mode::Cruise | Mode::Refill | Mode::ProbeRtt => UNIT,
        };
        let bandwidth = self.bandwidth();
        self.pacing.set(window, bandwidth, gain, self.full_bw_reached);
    }

    fn set_cwnd(&mut self, window: &mut Window, sample: &RateSample) {
        let (before, state) = (self.previous, window.state);
        if before >= State::Recovery && state < State::Recovery {
            window.cwnd = window.cwnd.max(self.prior_cwnd);
        }
        self.previous = state;
        let gain = if self.mode == Mode::Up { CWND_GAIN_UP } else { CWND_GAIN };
        let most = self.inflight(window, gain) + self.extra_acked.get();
        if self.full_bw_reached {
            window.cwnd = (window.cwnd + sample.acked_sacked).min(most);
        } else if window.cwnd < most || window.delivered < window.initial {
            window.cwnd += sample.acked_sacked;
        }
        let bound = match self.mode {
            Mode::ProbeRtt => self.with_headroom(window).min(self.probe_rtt_cwnd(window)),
            Mode::Cruise => self.with_headroom(window),
            Mode::Startup | Mode::Drain => u64::MAX,
            Mode::Down | Mode::Refill | Mode::Up => self.in_flight_long,
        };
        let bound = bound.min(self.in_flight_short);
        window.cwnd = window.cwnd.min(bound).max(MIN_CWND * window.mss);
    }
}

impl Congestion for Bbr3 {
    fn name(&self) -> &'static str {
        "bbr3"
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    fn mode(&self, _window: &Window) -> &'static str {
        match self.mode {
            Mode::Startup => "startup",
            Mode::Drain => "drain",
            Mode::Down => "probe_bw_down",
            Mode::Cruise => "probe_bw_cruise",
            Mode::Refill => "probe_bw_refill",
            Mode::Up => "probe_bw_up",
            Mode::ProbeRtt => "probe_rtt",
        }
    }

    fn init(&mut self, now: u64, window: &mut Window) {
        self.min_rtt = window.min_rtt.unwrap_or(u64::MAX);
        self.probe_rtt_min = self.min_rtt;
        (self.min_rtt_at, self.probe_rtt_min_at) = (now, now);
        (self.cycle_at, self.extra_since) = (now, now);
        self.pacing.init(window);
    }

    fn ssthresh(&mut self, _now: u64, window: &Window) -> u64 {
        self.save_cwnd(window);
        window.ssthresh
    }

    fn on_ack(&mut self, now: u64, window: &mut Window, sample: &RateSample) {
        let bw = self.update_signals(window, sample);
        self.update_aggregation(now, window, sample);
        self.check_full_bandwidth(sample, bw);
        self.check_startup(now, window, sample);
        self.update_cycle(now, window, sample, bw);
        self.update_min_rtt(now, window, sample);
        if self.loss_round_start {
            (self.loss_in_round, self.bw_latest, self.in_flight_latest) = (false, bw, sample.delivered);
        }
        self.set_pacing_rate(window);
        self.set_cwnd(window, sample);
    }

    fn on_state(&mut self, _now: u64, _window: &mut Window, new: State) {
        if new == State::Loss {
            self.previous = State::Loss;
            self.reset_full_bandwidth(0);
        }
    }

    fn on_restart(&mut self, now: u64, window: &mut Window, _idle: u64) {
        if !window.app_limited {
            return;
        }
        self.idle_restart = true;
        (self.extra, self.extra_since) = (0, now);
        if self.mode == Mode::ProbeRtt && self.probe_rtt_done.is_some_and(|done| now > done) {
            self.leave_probe_rtt(now, window);
        }
    }

    fn undo_cwnd(&mut self, window: &Window) -> u64 {
        self.reset_full_bandwidth(0);
        self.reset_short_term();
        window.cwnd.max(self.prior_cwnd)
    }

    fn controls_cwnd(&self) -> bool {
        true
    }

    fn min_tso_segs(&self, window: &Window) -> Option<u64> {
        Some(pacing::min_tso_segs(window))
    }
}

/// Whether more was lost of what was in flight than [`LOSS_THRESHOLD`].
fn is_too_high(sample: &RateSample) -> bool {
    sample.lost * 100 > sample.tx_in_flight * LOSS_THRESHOLD
}

variants!(Mode { Startup, Drain, Down, Cruise, Refill, Up, ProbeRtt });
variants!(Phase { Starting, Feedback, Stopping, Refilling });
fields!(Bbr3 {
    mode: Bound::Any,
    phase: Bound::Any,
    random: Bound::Any,
    max_bw: RATE,
    cycles: STREAM,
    rounds: STREAM,
    round_start: Bound::Any,
    round_end: STREAM,
    loss_round_start: Bound::Any,
    loss_round_end: STREAM,
    loss_in_round: Bound::Any,
    loss_events: COUNT,
    bw_latest: RATE,
    in_flight_latest: BYTES,
    bw_short: RATE_OR_NONE,
    in_flight_short: BYTES_OR_NONE,
    in_flight_long: BYTES_OR_NONE,
    full_bw: RATE,
    full_bw_rounds: COUNT,
    full_bw_now: Bound::Any,
    full_bw_reached: Bound::Any,
    min_rtt: SPAN_OR_NONE,
    min_rtt_at: Bound::Past,
    probe_rtt_min: SPAN_OR_NONE,
    probe_rtt_min_at: Bound::Past,
    probe_rtt_done: Bound::Deadline,
    probe_rtt_round_done: Bound::Any,
    cycle_at: Bound::Past,
    probe_wait: SPAN,
    rounds_since_probe: STREAM,
    probe_samples: Bound::Any,
    up_rounds: Bound::Most(30),
    up_acked: BYTES,
    up_count: Bound::OrNone(&Bound::Positive(1 << 40)),
    extra_acked: BYTES,
    extra_since: Bound::Past,
    extra: BYTES,
    prior_cwnd: BYTES,
    previous: Bound::Any,
    idle_restart: Bound::Any,
    pacing: Bound::Any,
});
