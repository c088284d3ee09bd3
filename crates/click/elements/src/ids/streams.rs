//! The last bytes of TCP connections, to find patterns that span two segments.
use crate::flow::connection::{Connection6, Headers};
use crate::flow::table::FlowTable;
use ringway_click::prelude::*;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Tcp};

/// Maximum bytes kept of one direction of a connection. Attack: patterns so long that a connection would take a page.
pub(super) const TAIL: usize = 255;
const END: Flags = Flags::FIN.with(Flags::RST);

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The sequence number after the tail.
    next: u32,
    length: u8,
    tail: [u8; TAIL],
}

impl Default for Stream {
    fn default() -> Self {
        Self { next: 0, length: 0, tail: [0; TAIL] }
    }
}

impl Stream {
    fn tail(&self) -> &[u8] {
        &self.tail[..usize::from(self.length)]
    }

    /// Keeps the last `keep` bytes of the tail and the payload together.
    fn append(&mut self, payload: &[u8], keep: usize) {
        let keep = keep.min(TAIL);
        let old = self.tail().len().min(keep.saturating_sub(payload.len()));
        let from = self.tail().len() - old;
        self.tail.copy_within(from..from + old, 0);
        let new = &payload[payload.len() - payload.len().min(keep - old)..];
        self.tail[old..old + new.len()].copy_from_slice(new);
        self.length = (old + new.len()) as u8;
    }
}

#[derive(Debug)]
pub(super) struct Streams {
    table: FlowTable<Connection6, Stream>,
    /// Bytes to keep: one less than the length of the longest pattern.
    keep: usize,
    /// Buffer in which a tail and the next payload are joined.
    joint: Vec<u8>,
    gaps: u64,
}

impl Streams {
    /// An empty table with this capacity, for patterns of at most `longest` bytes.
    pub(super) fn new(capacity: u32, seed: u64, longest: usize) -> Self {
        let keep = longest.saturating_sub(1).min(TAIL);
        Self { table: FlowTable::new(capacity, seed), keep, joint: Vec::with_capacity(2 * TAIL), gaps: 0 }
    }

    /// An empty table with this capacity and the router's seed, for patterns of at most `longest` bytes.
    pub(super) fn seeded(capacity: u32, longest: usize, cx: &mut Context<'_>) -> Self {
        Self::new(capacity, cx.own_seed(), longest)
    }

    /// Hashes all keys by another seed of the router's.
    pub(super) fn reseed(&mut self, cx: &mut Context<'_>) {
        self.table.reseed(cx.own_seed());
    }

    /// The handlers of an element that follows connections.
    pub(super) fn handlers<E: Element>(streams: fn(&E) -> Option<&Self>) -> [Handler; 3] {
        [
            Handler::read("flows", move |e: &E| streams(e).map_or(0, Self::len)),
            Handler::read("evictions", move |e: &E| streams(e).map_or(0, Self::evictions)),
            Handler::read("gaps", move |e: &E| streams(e).map_or(0, Self::gaps)),
        ]
    }

    fn len(&self) -> u32 {
        self.table.len()
    }

    fn evictions(&self) -> u64 {
        self.table.evictions()
    }

    /// Segments that began after the expected sequence number, so that data before them was missed.
    fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Processes a segment, its header included; returns the bytes across its border with the preceding segment, if
    /// contiguous.
    pub(super) fn take(&mut self, headers: &Headers<Connection6>, segment: &[u8], now: u64) -> Option<&[u8]> {
        let tcp = Tcp::of(segment)?;
        let payload = segment.get(tcp.header_len().max(Tcp::LEN)..)?;
        let (sequence, opens) = (tcp.sequence_number.get(), headers.flags.has(Flags::SYN));
        let hash = self.table.approach(headers.connection);
        let found = self.table.find(hash, headers.connection);
        if headers.flags.has(END) && payload.is_empty() {
            found.and_then(|number| self.table.remove(number));
            return None;
        }
        let end = sequence.wrapping_add(payload.len() as u32).wrapping_add(u32::from(opens));
        let keep = self.keep;
        let Some(number) = found else {
            let mut stream = Stream { next: end, ..Stream::default() };
            stream.append(payload, keep);
            self.table.add(hash, headers.connection, stream, now);
            return None;
        };
        let stream = self.table.touch(number, now)?;
        let ahead = sequence.wrapping_sub(stream.next) as i32;
        let new = end.wrapping_sub(stream.next) as i32;
        if opens || ahead > 0 {
            self.gaps += u64::from(!opens);
            *stream = Stream { next: end, ..Stream::default() };
            stream.append(payload, keep);
            return None;
        }
        // A retransmission, or no payload.
        if new <= 0 {
            return None;
        }
        let payload = payload.get(ahead.unsigned_abs() as usize..)?;
        self.joint.clear();
        self.joint.extend_from_slice(stream.tail());
        self.joint.extend_from_slice(&payload[..payload.len().min(keep)]);
        let across = stream.length > 0;
        stream.append(payload, keep);
        stream.next = end;
        if headers.flags.has(END) {
            self.table.remove(number);
        }
        across.then_some(self.joint.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_wire::Protocol;

    fn segment(sequence: u32, payload: &[u8]) -> Vec<u8> {
        [Tcp { sequence_number: sequence.into(), ..Tcp::EMPTY }.bytes(), payload].concat()
    }

    fn headers(port: u16, flags: Flags) -> Headers<Connection6> {
        let connection = Connection6 { source_port: port, protocol: Protocol::TCP, ..Connection6::default() };
        Headers { connection, length: 0, tos: 0, flags, transport: 40, has_ports: true }
    }

    #[test]
    fn segment_borders_are_returned_for_consecutive_segments() {
        let mut streams = Streams::new(2, 1, 4);
        const NONE: Flags = Flags(0);
        let mut take = |port, flags, sequence: u32, payload: &[u8]| {
            streams.take(&headers(port, flags), &segment(sequence, payload), 0).map(<[u8]>::to_vec)
        };
        assert_eq!(take(1, Flags::SYN, u32::MAX, b""), None);
        assert_eq!(take(1, NONE, 0, b"abcdef"), None);
        assert_eq!(take(1, NONE, 6, b"gh"), Some(b"defgh".to_vec()));
        // Again, in part again, out of order.
        assert_eq!(take(1, NONE, 0, b"abcdef"), None);
        assert_eq!(take(1, NONE, 6, b"ghi"), Some(b"fghi".to_vec()));
        assert_eq!(take(1, NONE, 20, b"uvw"), None);
        assert_eq!(take(1, Flags::FIN, 23, b"x"), Some(b"uvwx".to_vec()));
        assert_eq!(take(1, NONE, 24, b"y"), None);
        for port in 2..5 {
            assert_eq!(take(port, NONE, 0, b"z"), None);
        }
        assert_eq!((streams.len(), streams.evictions(), streams.gaps()), (2, 2, 1));
    }

    proptest! {
        /// However a stream is cut, each sequence of four bytes is within a segment or across a border.
        #[test]
        fn matches_across_segments_are_covered(cuts in prop::collection::vec(1usize..9, 1..20)) {
            let stream: Vec<u8> = (0..cuts.iter().sum::<usize>()).map(|at| at as u8).collect();
            let (mut streams, mut seen, mut at) = (Streams::new(9, 1, 4), Vec::new(), 0);
            for length in cuts {
                let piece = &stream[at..at + length];
                seen.push(piece.to_vec());
                let across = streams.take(&headers(1, Flags::default()), &segment(at as u32, piece), 0);
                seen.extend(across.map(<[u8]>::to_vec));
                at += length;
            }
            for window in stream.windows(4) {
                prop_assert!(seen.iter().any(|text| text.windows(4).any(|own| own == window)));
            }
        }
    }
}
