//! Hosts that stand still while time passes: paused guests, stopped processes, jumps of the clock.
#![allow(clippy::unwrap_used)]

use crate::common::{Line, Network, Pair, drain, fill};
use proptest::prelude::*;
use ringway_frame::Needs;
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{MS, Pacing, SECOND, Settings, TcpInfo};

const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr1, Algorithm::Bbr3, Algorithm::Dctcp];

/// A connection over a line of 20 Mb/s and 20 ms, whose first host sends.
fn connected(settings: &Settings, offloads: Needs) -> Pair {
    let line = Line { rate: 2_500_000, delay: 10 * MS, buffer: 100_000, ..Line::default() };
    Pair::new(Network::with_offloads(settings, line, 7, offloads), "10.0.0.2:80", 0)
}

impl Pair {
    fn info(&self, host: usize) -> TcpInfo {
        self.network.hosts[host].info(self.sockets[host]).unwrap()
    }

    /// Sends and reads for some time, or only goes on.
    fn flow(&mut self, time: u64, len: u64) {
        let until = self.network.now + time;
        loop {
            let now = self.network.now;
            if self.network.still[0] <= now {
                // Twice what the line and its buffer hold.
                let len = len.min(self.read + 300_000);
                self.sent = fill(&mut self.network.hosts[0], now, self.sockets[0], self.sent, len);
            }
            if self.network.still[1] <= now {
                self.read = drain(&mut self.network.hosts[1], now, self.sockets[1], self.read);
            }
            if !self.network.step(until) {
                break;
            }
        }
    }

    /// A host stands still, and then does what is due at that moment. Returns its state before and after that.
    fn stand_still(&mut self, host: usize, time: u64, len: u64) -> [TcpInfo; 2] {
        let end = self.network.now + time;
        self.network.still[host] = end;
        // The other one goes on.
        self.flow(time - 1, len);
        let before = self.info(host);
        self.flow(1, len);
        [before, self.info(host)]
    }
}

fn settings(algorithm: Algorithm, pacing: Pacing) -> Settings {
    let tcp_ecn = if matches!(algorithm, Algorithm::Dctcp) { 1 } else { 0 };
    Settings { tcp_congestion_control: algorithm, pacing, tcp_ecn, ..Settings::default() }
}

/// What may be sent at once: a millisecond's bytes in frames of some segments, and a segment again.
fn quantum(info: &TcpInfo) -> u64 {
    info.tcpi_pacing_rate / 500 + 8 * info.tcpi_snd_mss
}

#[test]
fn pacing_does_not_make_up_for_a_standstill() {
    for algorithm in ALGORITHMS {
        for offloads in [Needs::NONE, Needs::ALL] {
            let mut pair = connected(&settings(algorithm, Pacing::Always), offloads);
            pair.flow(2 * SECOND, u64::MAX);
            for time in [30 * MS, 6 * SECOND, 600 * SECOND] {
                let [before, after] = pair.stand_still(0, time, u64::MAX);
                let sent = after.tcpi_bytes_sent - before.tcpi_bytes_sent;
                assert!(sent <= quantum(&before), "{algorithm:?}: {sent} bytes after {time} ns");
                pair.flow(2 * SECOND, u64::MAX);
            }
        }
    }
}

#[test]
fn a_standstill_is_no_round_trip() {
    for algorithm in ALGORITHMS {
        for host in [0, 1] {
            let mut pair = connected(&settings(algorithm, Pacing::Required), Needs::NONE);
            pair.flow(2 * SECOND, u64::MAX);
            let rate = pair.read / 2;
            let [_, after] = pair.stand_still(host, 600 * SECOND, u64::MAX);
            pair.flow(5 * SECOND, u64::MAX);
            let own = (host == 0).then_some(after);
            for info in own.into_iter().chain([pair.info(0)]) {
                assert!(info.tcpi_rto < SECOND && info.tcpi_rtt < 200 * MS, "{algorithm:?}: {info:?}");
                assert!((10 * MS..100 * MS).contains(&info.tcpi_min_rtt), "{algorithm:?}: {info:?}");
            }
            // The stream goes on about as fast as before.
            let read = pair.read;
            pair.flow(5 * SECOND, u64::MAX);
            assert!(pair.read - read > 2 * rate, "{algorithm:?}: {} after {rate}", (pair.read - read) / 5);
        }
    }
}

/// Runs, then one host's standstill.
fn steps() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    let still = prop_oneof![1..500 * MS, SECOND..600 * SECOND];
    prop::collection::vec((0..400 * MS, 0..2_usize, still), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_is_overdue_is_done_once(
        which in 0..ALGORITHMS.len(), paced in any::<bool>(), segments in any::<bool>(), steps in steps(),
    ) {
        const LEN: u64 = 3_000_000;
        let pacing = if paced { Pacing::Always } else { Pacing::Required };
        let offloads = if segments { Needs::ALL } else { Needs::NONE };
        let mut pair = connected(&settings(ALGORITHMS[which], pacing), offloads);
        // The standstill of a peer can't be told from a long path.
        let only_own = steps.iter().all(|(_, host, _)| *host == 0);
        for (time, host, still) in steps {
            pair.flow(time, LEN);
            let [before, after] = pair.stand_still(host, still, LEN);
            prop_assert!(after.tcpi_total_rto <= before.tcpi_total_rto + 1);
            let resent = after.tcpi_total_retrans - before.tcpi_total_retrans;
            if host == 0 && after.tcpi_total_rto > before.tcpi_total_rto {
                prop_assert!(resent <= 2, "{} segments again", resent);
            }
            // One timeout doubles it, and less than what counts as a standstill is a part of a round trip.
            prop_assert!(host == 1 || after.tcpi_rto <= 2 * before.tcpi_rto + 2 * SECOND);
            if host == 0 && paced {
                prop_assert!(after.tcpi_bytes_sent - before.tcpi_bytes_sent <= quantum(&before));
            }
        }
        // Timeouts of a host whose peer stood still are two minutes apart at most, and a few may be needed.
        pair.flow(1500 * SECOND, LEN);
        prop_assert_eq!(pair.read, LEN);
        prop_assert!(!only_own || pair.info(0).tcpi_rto < 3 * SECOND);
        for host in 0..2 {
            prop_assert_eq!(pair.network.hosts[host].error(pair.sockets[host]), Ok(None));
        }
    }
}
