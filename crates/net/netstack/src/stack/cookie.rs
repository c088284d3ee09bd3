//! SYN cookies (RFC 4987, 3.6): the state of a half-open connection in the sequence number and the timestamp
//! of its SYN-ACK.

use super::{Socket, Stack};
use crate::connection::options::Options;
use crate::connection::{Connection, Segment};
use crate::demux::Tuple;
use crate::settings::{MS, SECOND};
use ringway_wire::tcp::Flags;

/// Segment sizes that a cookie can say.
const SIZES: [u16; 8] = [216, 536, 1220, 1300, 1400, 1440, 1460, 8940];
/// How long a cookie's period lasts, and how many periods it counts (Linux: two minutes in all).
const PERIOD: u64 = 64 * SECOND;
const PERIODS: u64 = 2;
/// Bits of a timestamp that carry options: window scale (15: none), SACK, ECN.
const OPTION_BITS: u32 = 6;
const NO_SCALE: u32 = 15;

impl Stack {
    /// Eight bits of the period, three of the segment size, both hidden; the rest is a hash.
    fn cookie(&self, tuple: &Tuple, peer: u32, period: u64, size: u32) -> u32 {
        let [a, b, c, d, e] = tuple.words();
        let low = self.secret.hash(&[a, b, c, d, e, 6, period]) as u32;
        let high = self.secret.hash(&[a, b, c, d, e, 7]) as u32;
        let hidden = low.wrapping_add(size) & 0xff_ffff;
        high.wrapping_add(peer).wrapping_add((period as u32) << 24).wrapping_add(hidden)
    }

    /// The segment size that a valid cookie carries.
    fn read_cookie(&self, tuple: &Tuple, peer: u32, cookie: u32) -> Option<u16> {
        let now = self.now / PERIOD;
        let periods = (0..PERIODS).filter_map(|age| now.checked_sub(age));
        periods.flat_map(|period| (0..SIZES.len()).map(move |size| (period, size))).find_map(
            |(period, size)| (self.cookie(tuple, peer, period, size as u32) == cookie).then_some(SIZES[size]),
        )
    }

    /// Whether a segment with these numbers acknowledges a cookie of a listener.
    pub(super) fn acknowledges_cookie(&self, listener: u32, tuple: &Tuple, (seq, ack): (u32, u32)) -> bool {
        let is_expected = self.listener(listener).is_some_and(|listener| listener.cookies_until > self.now);
        is_expected && self.read_cookie(tuple, seq.wrapping_sub(1), ack.wrapping_sub(1)).is_some()
    }

    /// Answers a SYN and stores nothing.
    pub(super) fn send_cookie(&mut self, listener: u32, tuple: Tuple, segment: &Segment<'_>) {
        let announced = segment.options.mss.unwrap_or(crate::connection::DEFAULT_MSS);
        let size = SIZES.partition_point(|size| *size <= announced).max(1) as u32 - 1;
        let Some(mut opening) = self.opening(tuple, self.settings.tcp_congestion_control) else { return };
        opening.iss = self.cookie(&tuple, segment.seq, self.now / PERIOD, size);
        let ecn = segment.flags.has(Flags::ECE) && segment.flags.has(Flags::CWR);
        let mut options = segment.options.clone();
        if options.timestamps.is_some() {
            let ecn = ecn && self.settings.tcp_ecn != 0;
            let bits = u32::from(options.window_scale.unwrap_or(NO_SCALE as u8))
                | u32::from(options.sack_permitted) << 4
                | u32::from(ecn) << 5;
            let clock = (self.now / MS) as u32;
            let value = clock.wrapping_add(opening.ts_offset);
            // Not after the current time, so that later timestamps are not older (RFC 7323, 5.3).
            let marked = value.wrapping_sub(1 << OPTION_BITS) >> OPTION_BITS << OPTION_BITS | bits;
            opening.ts_offset = marked.wrapping_sub(clock);
        } else {
            (options.window_scale, options.sack_permitted) = (None, false);
        }
        let ecn = ecn && options.timestamps.is_some();
        let mut connection =
            Connection::accept(&opening, self.now, &self.settings, segment.seq, &options, ecn);
        self.answer_unstored(&mut connection);
        self.statistics.syn_cookies_sent += 1;
        let until = self.now + PERIOD * PERIODS;
        if let Some(listener) = self.listener_mut(listener) {
            listener.cookies_until = until;
        }
    }

    /// Makes the connection of a segment that acknowledges a cookie. `false`: it does not.
    pub(super) fn accept_cookie(&mut self, listener: u32, tuple: Tuple, segment: &Segment<'_>) -> bool {
        let now = self.now;
        let Some(parent) = self.listener_mut(listener) else { return false };
        if parent.cookies_until <= now || segment.flags.has(Flags::SYN) {
            return false;
        }
        let full = parent.is_full();
        let (peer, cookie) = (segment.seq.wrapping_sub(1), segment.ack.wrapping_sub(1));
        let Some(mss) = self.read_cookie(&tuple, peer, cookie) else {
            self.statistics.syn_cookies_failed += 1;
            return false;
        };
        if full {
            self.statistics.listen_overflows += 1;
            return true;
        }
        let mut options = Options { mss: Some(mss), ..Options::default() };
        let mut ecn = false;
        if let Some((val, ecr)) = segment.options.timestamps {
            options.timestamps = Some((val, 0));
            options.window_scale = Some(ecr & 15).filter(|bits| *bits != NO_SCALE).map(|bits| bits as u8);
            options.sack_permitted = ecr >> 4 & 1 != 0;
            ecn = ecr >> 5 & 1 != 0;
        }
        let Some(mut opening) = self.opening(tuple, self.settings.tcp_congestion_control) else {
            return false;
        };
        opening.iss = cookie;
        let mut connection = Connection::accept(&opening, now, &self.settings, peer, &options, ecn);
        connection.sent_cookie();
        let Some(index) = self.add_embryo(listener, tuple, connection) else { return true };
        self.statistics.syn_cookies_accepted += 1;
        if let Some(Socket::Tcp(_)) = &self.slots[index as usize].socket {
            self.with(index, |connection, cx| connection.segment(cx, segment));
        }
        true
    }
}
