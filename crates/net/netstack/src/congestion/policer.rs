//! Detection of traffic policers, for BBR version 1: two intervals with high loss and nearly the same rate. The
//! constants are those of Linux's `net/ipv4/tcp_bbr.c` (`bbr_lt_...`).

use super::{RateSample, Window};
use crate::codec::{Bound, COUNT, RATE, STREAM, fields};
use crate::settings::MS;

/// Rounds of an interval: at least, at most (`bbr_lt_intvl_min_rtts`, and four times as many).
const ROUNDS: (u32, u32) = (4, 16);
/// Loss that means policing, in 256ths of what is delivered (`bbr_lt_loss_thresh`).
const LOSS: u64 = 50;
/// Rates are nearly the same if they differ by an eighth or by 4 kb/s (`bbr_lt_bw_ratio`, `bbr_lt_bw_diff`).
const RATIO: u64 = 8;
const DIFFERENCE: u64 = 4000 / 8;
/// Rounds for which a rate is used (`bbr_lt_bw_max_rtts`).
const USED: u32 = 48;

/// The detector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    sampling: bool,
    used: bool,
    rate: u64,
    rounds: u32,
    since: u64,
    delivered: u64,
    lost: u64,
}

impl Policer {
    /// The policer's rate, if one was found.
    pub(super) fn rate(&self) -> Option<u64> {
        self.used.then_some(self.rate)
    }

    fn begin(&mut self, now: u64, window: &Window) {
        (self.since, self.delivered, self.lost, self.rounds) = (now, window.delivered, window.lost, 0);
    }

    /// Adds an acknowledgment. `true`: the rate was used long enough, and probing begins again.
    pub(super) fn sample(
        &mut self,
        now: u64,
        window: &Window,
        sample: &RateSample,
        round_start: bool,
        probing: bool,
    ) -> bool {
        if self.used {
            self.rounds += u32::from(probing && round_start);
            let done = probing && round_start && self.rounds >= USED;
            if done {
                *self = Policer::default();
            }
            return done;
        }
        if !self.sampling {
            if sample.losses == 0 {
                return false;
            }
            self.begin(now, window);
            self.sampling = true;
        }
        if sample.is_app_limited {
            *self = Policer::default();
            return false;
        }
        self.rounds += u32::from(round_start);
        if self.rounds > ROUNDS.1 {
            *self = Policer::default();
            return false;
        }
        if self.rounds < ROUNDS.0 || sample.losses == 0 {
            return false;
        }
        let lost = window.lost.saturating_sub(self.lost);
        let delivered = window.delivered.saturating_sub(self.delivered);
        let time = now.saturating_sub(self.since);
        if delivered == 0 || lost * 256 < LOSS * delivered || time < MS {
            return false;
        }
        let rate = super::pacing::rate(delivered, time);
        let difference = rate.abs_diff(self.rate);
        if self.rate > 0 && (difference * RATIO <= self.rate || difference <= DIFFERENCE) {
            (self.rate, self.used, self.rounds) = ((rate + self.rate) / 2, true, 0);
        } else {
            self.rate = rate;
            self.begin(now, window);
        }
        false
    }
}

fields!(Policer {
    sampling: Bound::Any,
    used: Bound::Any,
    rate: RATE,
    rounds: COUNT,
    since: Bound::Past,
    delivered: STREAM,
    lost: STREAM,
});
