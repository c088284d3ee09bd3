//! BBR, version 1, as Linux's `tcp_bbr.c` has it: a model of the path's bandwidth and round-trip time sets the
//! pacing rate and the window. Gains are in units of 1/256; bandwidth is in bytes a second.

use super::pacing::{self, Pacing, UNIT, rate};
use super::policer::Policer;
use super::{Congestion, RateSample, State, Window};
use crate::codec::{BYTES, Bound, COUNT, Field, RATE, SPAN_OR_NONE, STREAM, fields, variants};
use crate::hash::Random;
use crate::minmax::MinMax;
use crate::settings::{MS, SECOND};
use alloc::vec::Vec;

/// `2 / ln 2`: doubles the rate in each round; and its inverse, which drains the queue that this made.
const HIGH_GAIN: u64 = UNIT * 2885 / 1000 + 1;
const DRAIN_GAIN: u64 = UNIT * 1000 / 2885;
/// Gain of the window while probing for bandwidth: room for delayed and aggregated acknowledgments.
const CWND_GAIN: u64 = UNIT * 2;
/// Gains of the pacing rate while probing: more, then less, then the estimate.
const CYCLE: [u64; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// Rounds over which the largest bandwidth counts.
const BW_ROUNDS: u64 = CYCLE.len() as u64 + 2;
/// How long a smallest round-trip time counts, and how long the window is small to measure it again.
const MIN_RTT_WINDOW: u64 = 10 * SECOND;
const PROBE_RTT_TIME: u64 = 200 * MS;
/// The smallest window in segments.
const MIN_CWND: u64 = 4;
/// The pipe is full if the bandwidth grows by less than a quarter in three rounds.
const FULL_BW_THRESHOLD: u64 = UNIT * 5 / 4;
const FULL_BW_ROUNDS: u32 = 3;
/// Rounds over which aggregation is measured, and the largest that is allowed for.
const EXTRA_ACKED_ROUNDS: u32 = 5;
const EXTRA_ACKED_TIME: u64 = 100 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// The controller.
#[derive(Debug)]
pub struct Bbr1 {
    mode: Mode,
    pacing_gain: u64,
    cwnd_gain: u64,
    random: Random,
    /// Largest bandwidth of the last rounds.
    bw: MinMax,
    rounds: u64,
    round_start: bool,
    /// Delivered bytes at the end of this round.
    round_end: u64,
    min_rtt: u64,
    min_rtt_at: u64,
    probe_rtt_done: Option<u64>,
    probe_rtt_round_done: bool,
    full_bw: u64,
    full_bw_rounds: u32,
    full_bw_reached: bool,
    cycle: usize,
    cycle_at: u64,
    pacing: Pacing,
    idle_restart: bool,
    prior_cwnd: u64,
    previous: State,
    packet_conservation: bool,
    policer: Policer,
    aggregation: Aggregation,
}

/// Bytes acknowledged beyond what the bandwidth explains.
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    since: u64,
    acked: u64,
    extra: [u64; 2],
    slot: usize,
    rounds: u32,
}

impl Bbr1 {
    /// A controller; `seed` chooses where its cycle begins.
    pub fn new(seed: u64) -> Bbr1 {
        Bbr1 {
            mode: Mode::Startup,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            random: Random::new(seed),
            bw: MinMax::default(),
            rounds: 0,
            round_start: false,
            round_end: 0,
            min_rtt: u64::MAX,
            min_rtt_at: 0,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            full_bw: 0,
            full_bw_rounds: 0,
            full_bw_reached: false,
            cycle: 0,
            cycle_at: 0,
            pacing: Pacing::new(HIGH_GAIN),
            idle_restart: false,
            prior_cwnd: 0,
            previous: State::Open,
            packet_conservation: false,
            policer: Policer::default(),
            aggregation: Aggregation::default(),
        }
    }

    /// The bandwidth to use.
    fn bandwidth(&self) -> u64 {
        self.policer.rate().unwrap_or(self.bw.get())
    }

    /// The bandwidth-delay product times `gain`.
    fn bdp(&self, window: &Window, bw: u64, gain: u64) -> u64 {
        if self.min_rtt == u64::MAX {
            return window.initial;
        }
        let product = u128::from(bw) * u128::from(self.min_rtt) * u128::from(gain);
        product.div_ceil(u128::from(UNIT * SECOND)) as u64
    }

    /// Room for frames that the sender and the receiver hold back to build large ones; even in segments.
    fn quantize(&self, window: &Window, cwnd: u64) -> u64 {
        let segments = (cwnd + 3 * window.tso_goal).div_ceil(window.mss);
        let probing = self.mode == Mode::ProbeBw && self.cycle == 0;
        (segments.next_multiple_of(2) + if probing { 2 } else { 0 }) * window.mss
    }

    fn inflight(&self, window: &Window, bw: u64, gain: u64) -> u64 {
        self.quantize(window, self.bdp(window, bw, gain))
    }

    /// What will be in the network when the next segment may be sent.
    fn in_flight_at_release(&self, now: u64, window: &Window, in_flight: u64) -> u64 {
        let until = window.release_at.saturating_sub(now);
        let delivered = (u128::from(self.bandwidth()) * u128::from(until) / u128::from(SECOND)) as u64;
        let more = if self.pacing_gain > UNIT { window.tso_goal } else { 0 };
        (in_flight + more).saturating_sub(delivered)
    }

    fn save_cwnd(&mut self, window: &Window) {
        if self.previous < State::Recovery && self.mode != Mode::ProbeRtt {
            self.prior_cwnd = window.cwnd;
        } else {
            self.prior_cwnd = self.prior_cwnd.max(window.cwnd);
        }
    }

    fn update_bandwidth(&mut self, window: &Window, sample: &RateSample, now: u64) {
        self.round_start = false;
        if sample.interval == 0 {
            return;
        }
        if sample.prior_delivered >= self.round_end {
            self.round_end = window.delivered;
            self.rounds += 1;
            self.round_start = true;
            self.packet_conservation = false;
        }
        let probing = self.mode == Mode::ProbeBw;
        if self.policer.sample(now, window, sample, self.round_start, probing) {
            self.probe_bandwidth(now);
        }
        let bw = rate(sample.delivered, sample.interval);
        if !sample.is_app_limited || bw >= self.bw.get() {
            self.bw.max(BW_ROUNDS, self.rounds, bw);
        }
    }

    fn update_aggregation(&mut self, now: u64, window: &Window, sample: &RateSample) {
        if sample.interval == 0 || sample.acked_sacked == 0 {
            return;
        }
        let bw = self.bandwidth();
        let most = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
        let seen = &mut self.aggregation;
        if self.round_start {
            seen.rounds += 1;
            if seen.rounds >= most {
                (seen.rounds, seen.slot) = (0, 1 - seen.slot);
                seen.extra[seen.slot] = 0;
            }
        }
        let time = now.saturating_sub(seen.since);
        let mut expected = (u128::from(bw) * u128::from(time) / u128::from(SECOND)) as u64;
        if seen.acked <= expected {
            (seen.acked, seen.since, expected) = (0, now, 0);
        }
        seen.acked += sample.acked_sacked;
        let extra = (seen.acked - expected.min(seen.acked)).min(window.cwnd);
        seen.extra[seen.slot] = seen.extra[seen.slot].max(extra);
    }

    fn aggregation_cwnd(&self) -> u64 {
        if !self.full_bw_reached {
            return 0;
        }
        let most = u128::from(self.bandwidth()) * u128::from(EXTRA_ACKED_TIME) / u128::from(SECOND);
        let [a, b] = self.aggregation.extra;
        a.max(b).min(most as u64)
    }

    /// Goes to the next phase of the cycle once this one has had its effect.
    fn update_cycle(&mut self, now: u64, window: &Window, sample: &RateSample) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let long = now.saturating_sub(self.cycle_at) > self.min_rtt;
        let in_flight = self.in_flight_at_release(now, window, sample.prior_in_flight);
        let bw = self.bw.get();
        let next = match self.pacing_gain {
            UNIT => long,
            gain if gain > UNIT => {
                long && (sample.losses > 0 || in_flight >= self.inflight(window, bw, gain))
            }
            _ => long || in_flight <= self.inflight(window, bw, UNIT),
        };
        if next {
            self.next_phase(now);
        }
    }

    fn next_phase(&mut self, now: u64) {
        self.cycle = (self.cycle + 1) % CYCLE.len();
        self.cycle_at = now;
    }

    /// Begins to probe for bandwidth, at a random phase, but not at the one that drains.
    fn probe_bandwidth(&mut self, now: u64) {
        self.mode = Mode::ProbeBw;
        self.cycle = CYCLE.len() - 1 - self.random.below(CYCLE.len() as u64 - 1) as usize;
        self.next_phase(now);
    }

    fn check_full_bandwidth(&mut self, sample: &RateSample) {
        if self.full_bw_reached || !self.round_start || sample.is_app_limited {
            return;
        }
        let bw = self.bw.get();
        if bw >= self.full_bw * FULL_BW_THRESHOLD / UNIT {
            (self.full_bw, self.full_bw_rounds) = (bw, 0);
            return;
        }
        self.full_bw_rounds += 1;
        self.full_bw_reached = self.full_bw_rounds >= FULL_BW_ROUNDS;
    }

    fn check_drain(&mut self, now: u64, window: &mut Window) {
        if self.mode == Mode::Startup && self.full_bw_reached {
            self.mode = Mode::Drain;
            window.ssthresh = self.inflight(window, self.bw.get(), UNIT);
        }
        if self.mode == Mode::Drain {
            let in_flight = self.in_flight_at_release(now, window, window.in_flight);
            if in_flight <= self.inflight(window, self.bw.get(), UNIT) {
                self.probe_bandwidth(now);
            }
        }
    }

    fn update_min_rtt(&mut self, now: u64, window: &mut Window, sample: &RateSample) {
        let expired = now > self.min_rtt_at.saturating_add(MIN_RTT_WINDOW);
        if let Some(rtt) = sample.rtt.filter(|&rtt| rtt <= self.min_rtt || expired) {
            (self.min_rtt, self.min_rtt_at) = (rtt, now);
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.save_cwnd(window);
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            // What is delivered now says nothing about the bandwidth.
            window.app_limited = true;
            match self.probe_rtt_done {
                None if window.in_flight <= MIN_CWND * window.mss => {
                    self.probe_rtt_done = Some(now + PROBE_RTT_TIME);
                    self.probe_rtt_round_done = false;
                    self.round_end = window.delivered;
                }
                None => {}
                Some(_) => {
                    self.probe_rtt_round_done |= self.round_start;
                    if self.probe_rtt_round_done {
                        self.check_probe_rtt_done(now, window);
                    }
                }
            }
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn check_probe_rtt_done(&mut self, now: u64, window: &mut Window) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.min_rtt_at = now;
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        if self.full_bw_reached { self.probe_bandwidth(now) } else { self.mode = Mode::Startup }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw if self.policer.rate().is_some() => (UNIT, CWND_GAIN),
            Mode::ProbeBw => (CYCLE[self.cycle], CWND_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    fn set_pacing_rate(&mut self, window: &mut Window, gain: u64) {
        let bandwidth = self.bandwidth();
        self.pacing.set(window, bandwidth, gain, self.full_bw_reached);
    }

    /// In recovery: sends what is acknowledged for a round; afterwards restores the window. The window, and
    /// whether it is final.
    fn recover(&mut self, window: &Window, sample: &RateSample) -> (u64, bool) {
        let acked = sample.acked_sacked;
        let mut cwnd = window.cwnd;
        if sample.losses > 0 {
            cwnd = cwnd.saturating_sub(sample.losses).max(window.mss);
        }
        let (before, state) = (self.previous, window.state);
        if state == State::Recovery && before != State::Recovery {
            self.packet_conservation = true;
            self.round_end = window.delivered;
            cwnd = window.in_flight + acked;
        } else if before >= State::Recovery && state < State::Recovery {
            cwnd = cwnd.max(self.prior_cwnd);
            self.packet_conservation = false;
        }
        self.previous = state;
        if self.packet_conservation {
            return (cwnd.max(window.in_flight + acked), true);
        }
        (cwnd, false)
    }

    fn set_cwnd(&mut self, window: &mut Window, sample: &RateSample) {
        let acked = sample.acked_sacked;
        if acked > 0 {
            let (mut cwnd, is_final) = self.recover(window, sample);
            if !is_final {
                let target = self.bdp(window, self.bandwidth(), self.cwnd_gain) + self.aggregation_cwnd();
                let target = self.quantize(window, target);
                if self.full_bw_reached {
                    cwnd = (cwnd + acked).min(target);
                } else if cwnd < target || window.delivered < window.initial {
                    cwnd += acked;
                }
                cwnd = cwnd.max(MIN_CWND * window.mss);
            }
            window.cwnd = cwnd;
        }
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(MIN_CWND * window.mss);
        }
    }
}

impl Congestion for Bbr1 {
    fn name(&self) -> &'static str {
        "bbr1"
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    fn mode(&self, _window: &Window) -> &'static str {
        match self.mode {
            Mode::Startup => "startup",
            Mode::Drain => "drain",
            Mode::ProbeBw => "probe_bw",
            Mode::ProbeRtt => "probe_rtt",
        }
    }

    fn init(&mut self, now: u64, window: &mut Window) {
        self.min_rtt = window.min_rtt.unwrap_or(u64::MAX);
        (self.min_rtt_at, self.cycle_at, self.aggregation.since) = (now, now, now);
        self.pacing.init(window);
    }

    fn ssthresh(&mut self, _now: u64, window: &Window) -> u64 {
        self.save_cwnd(window);
        window.ssthresh
    }

    fn on_ack(&mut self, now: u64, window: &mut Window, sample: &RateSample) {
        self.update_bandwidth(window, sample, now);
        self.update_aggregation(now, window, sample);
        self.update_cycle(now, window, sample);
        self.check_full_bandwidth(sample);
        self.check_drain(now, window);
        self.update_min_rtt(now, window, sample);
        self.update_gains();
        self.set_pacing_rate(window, self.pacing_gain);
        self.set_cwnd(window, sample);
    }

    fn on_state(&mut self, now: u64, window: &mut Window, new: State) {
        if new == State::Loss {
            self.previous = State::Loss;
            self.full_bw = 0;
            self.round_start = true;
            let mut lost = RateSample::default();
            lost.losses = 1;
            self.policer.sample(now, window, &lost, true, false);
        }
    }

    fn on_restart(&mut self, now: u64, window: &mut Window, _idle: u64) {
        if !window.app_limited {
            return;
        }
        self.idle_restart = true;
        (self.aggregation.since, self.aggregation.acked) = (now, 0);
        match self.mode {
            Mode::ProbeBw => self.set_pacing_rate(window, UNIT),
            Mode::ProbeRtt => self.check_probe_rtt_done(now, window),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn undo_cwnd(&mut self, window: &Window) -> u64 {
        (self.full_bw, self.full_bw_rounds) = (0, 0);
        self.policer = Policer::default();
        window.cwnd
    }

    fn controls_cwnd(&self) -> bool {
        true
    }

    fn min_tso_segs(&self, window: &Window) -> Option<u64> {
        Some(pacing::min_tso_segs(window))
    }
}

variants!(Mode { Startup, Drain, ProbeBw, ProbeRtt });
fields!(Aggregation { since: Bound::Past, acked: BYTES, extra: BYTES, slot: Bound::Most(1), rounds: COUNT });
fields!(Bbr1 {
    mode: Bound::Any,
    pacing_gain: Bound::Most(16 * UNIT),
    cwnd_gain: Bound::Most(HIGH_GAIN),
    random: Bound::Any,
    bw: RATE,
    rounds: STREAM,
    round_start: Bound::Any,
    round_end: STREAM,
    min_rtt: SPAN_OR_NONE,
    min_rtt_at: Bound::Past,
    probe_rtt_done: Bound::Deadline,
    probe_rtt_round_done: Bound::Any,
    full_bw: RATE,
    full_bw_rounds: COUNT,
    full_bw_reached: Bound::Any,
    cycle: Bound::Most(CYCLE.len() as u64 - 1),
    cycle_at: Bound::Past,
    pacing: Bound::Any,
    idle_restart: Bound::Any,
    prior_cwnd: BYTES,
    previous: Bound::Any,
    packet_conservation: Bound::Any,
    policer: Bound::Any,
    aggregation: Bound::Any,
});
