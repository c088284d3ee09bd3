//! State as bytes, for connections that move to another stack (see [`crate::Stack::detach`]). Each field of a
//! structure is named once, with what its value may be.
//!
//! Attack: bytes that another process wrote. A number outside its bounds is refused; the bounds are chosen so that
//! sums and products of what is accepted don't overflow. What must hold between several numbers is checked by
//! `connection/repair.rs`. Nothing is longer than the bytes that say so.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a number may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Any,
    /// At most this.
    Most(u64),
    /// At least 1, and at most this.
    Positive(u64),
    /// A time that is not in the future. One between now and the writer's time is taken as now.
    Past,
    /// A time that is not too far in the future.
    Deadline,
    /// What the inner bound permits, or the largest number, which stands for none.
    OrNone(&'static Bound),
}

/// Offsets and totals: 36 PB.
pub(crate) const STREAM: Bound = Bound::Most(1 << 55);
/// Bytes of a window or of a round trip.
pub(crate) const BYTES: Bound = Bound::Most(1 << 40);
/// Bytes a second.
pub(crate) const RATE: Bound = Bound::Most(1 << 50);
/// Nanoseconds of a round trip or a timeout: 36 minutes.
pub(crate) const SPAN: Bound = Bound::Most(1 << 41);
/// Rounds, probes, tries.
pub(crate) const COUNT: Bound = Bound::Most(1 << 30);
/// Bounds of numbers that may be missing.
pub(crate) const BYTES_OR_NONE: Bound = Bound::OrNone(&BYTES);
pub(crate) const RATE_OR_NONE: Bound = Bound::OrNone(&RATE);
pub(crate) const SPAN_OR_NONE: Bound = Bound::OrNone(&SPAN);
/// How far the clock of one processor, or of one process, may be ahead of another's.
const AHEAD: u64 = 10_000_000;
/// How far in the future a deadline may be: 13 days.
const FAR: u64 = 1 << 50;

/// Bytes to read from.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    now: u64,
    /// The writer's time, if it is ahead.
    latest: u64,
}

impl<'a> Reader<'a> {
    /// `now`: times after it are in the future.
    pub(crate) fn new(bytes: &'a [u8], now: u64) -> Reader<'a> {
        Reader { rest: bytes, now, latest: now }
    }

    /// Reads the time at which the bytes were written; `None`: it is more than [`AHEAD`] after now.
    pub(crate) fn writer_time(&mut self) -> Option<()> {
        let most = Bound::Most(self.now.saturating_add(AHEAD));
        self.latest = u64::take(self, most)?.max(self.now);
        Some(())
    }

    /// Whether all was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*first)
    }

    /// Bytes after their length, which is at most `most`.
    pub(crate) fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let len = usize::take(self, Bound::Most(most as u64))?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    /// The number as it is taken; `None`: it is outside of its bound.
    fn check(&self, value: u64, bound: Bound) -> Option<u64> {
        let holds = match bound {
            Bound::Any => true,
            Bound::Most(most) => value <= most,
            Bound::Positive(most) => (1..=most).contains(&value),
            Bound::Past => return (value <= self.latest).then_some(value.min(self.now)),
            Bound::Deadline => value <= self.now.saturating_add(FAR),
            Bound::OrNone(_) if value == u64::MAX => true,
            Bound::OrNone(inner) => return self.check(value, *inner),
        };
        holds.then_some(value)
    }
}

/// Writes bytes after their length.
pub(crate) fn put_bytes<'a>(to: &mut Vec<u8>, len: usize, pieces: impl Iterator<Item = &'a [u8]>) {
    len.put(to);
    pieces.for_each(|piece| to.extend_from_slice(piece));
}

/// A value that is written and read. `bound` is that of its numbers; structures have their own.
pub(crate) trait Field: Sized {
    fn put(&self, to: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>, bound: Bound) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>, bound: Bound) -> Option<$type> {
                let value = <$type>::from_le_bytes(from.array()?);
                <$type>::try_from(from.check(u64::try_from(value).ok()?, bound)?).ok()
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64);

impl Field for usize {
    fn put(&self, to: &mut Vec<u8>) {
        (*self as u64).put(to);
    }

    fn take(from: &mut Reader<'_>, bound: Bound) -> Option<usize> {
        usize::try_from(u64::take(from, bound)?).ok()
    }
}

/// The bound is that of its distance from 0.
impl Field for i64 {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_le_bytes());
    }

    fn take(from: &mut Reader<'_>, bound: Bound) -> Option<i64> {
        let value = i64::from_le_bytes(from.array()?);
        from.check(value.unsigned_abs(), bound)?;
        Some(value)
    }
}

impl Field for bool {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn take(from: &mut Reader<'_>, _: Bound) -> Option<bool> {
        Some(u8::take(from, Bound::Most(1))? == 1)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut Reader<'_>, bound: Bound) -> Option<Option<T>> {
        Some(if bool::take(from, Bound::Any)? { Some(T::take(from, bound)?) } else { None })
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut Reader<'_>, bound: Bound) -> Option<(A, B)> {
        Some((A::take(from, bound)?, B::take(from, bound)?))
    }
}

impl<T: Field, const N: usize> Field for [T; N] {
    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut Reader<'_>, bound: Bound) -> Option<[T; N]> {
        let values: Vec<T> = (0..N).map(|_| T::take(from, bound)).collect::<Option<_>>()?;
        values.try_into().ok()
    }
}

impl Field for IpAddr {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            IpAddr::V4(address) => (4u8, address.octets()).put(to),
            IpAddr::V6(address) => (6u8, address.octets()).put(to),
        }
    }

    fn take(from: &mut Reader<'_>, _: Bound) -> Option<IpAddr> {
        match u8::take(from, Bound::Any)? {
            4 => Some(IpAddr::V4(Ipv4Addr::from(from.array::<4>()?))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(from.array::<16>()?))),
            _ => None,
        }
    }
}

impl Field for SocketAddr {
    fn put(&self, to: &mut Vec<u8>) {
        self.ip().put(to);
        self.port().put(to);
    }

    fn take(from: &mut Reader<'_>, _: Bound) -> Option<SocketAddr> {
        let address = IpAddr::take(from, Bound::Any)?;
        Some(SocketAddr::new(address, u16::take(from, Bound::Positive(u64::MAX))?))
    }
}

/// The fields of a structure, in the order in which they are written.
macro_rules! fields {
    ($type:ident { $($name:ident: $bound:expr),* $(,)? }) => {
        impl $crate::codec::Field for $type {
            fn put(&self, to: &mut alloc::vec::Vec<u8>) {
                let $type { $($name),* } = self;
                $($name.put(to);)*
            }

            fn take(from: &mut $crate::codec::Reader<'_>, _: $crate::codec::Bound) -> Option<$type> {
                Some($type { $($name: $crate::codec::Field::take(from, $bound)?),* })
            }
        }
    };
}

/// An enumeration without fields.
macro_rules! variants {
    ($type:ident { $($name:ident),* $(,)? }) => {
        impl $crate::codec::Field for $type {
            fn put(&self, to: &mut alloc::vec::Vec<u8>) {
                let all = [$($type::$name),*];
                let place = all.iter().position(|one| one == self);
                to.push(place.map_or(u8::MAX, |place| place as u8));
            }

            fn take(from: &mut $crate::codec::Reader<'_>, _: $crate::codec::Bound) -> Option<$type> {
                let all = [$($type::$name),*];
                let place = <u8 as $crate::codec::Field>::take(from, $crate::codec::Bound::Any)?;
                all.get(usize::from(place)).copied()
            }
        }
    };
}

pub(crate) use {fields, variants};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Color {
        Red,
        Blue,
    }
    variants!(Color { Red, Blue });

    #[derive(Clone, Debug, PartialEq)]
    struct Sample {
        at: u64,
        change: i64,
        color: Color,
        pair: Option<(u32, bool)>,
        three: [usize; 3],
        address: SocketAddr,
    }
    fields!(Sample {
        at: Bound::Past,
        change: BYTES,
        color: Bound::Any,
        pair: COUNT,
        three: BYTES_OR_NONE,
        address: Bound::Any,
    });

    proptest! {
        #[test]
        fn what_was_written_is_read(
            at in 0u64..100, change in -1000i64..1000, blue: bool, pair: Option<(u8, bool)>, three: [u32; 3],
            port in 1u16.., v6: Option<[u8; 16]>, end in 0usize..100,
        ) {
            let ip = v6.map_or(IpAddr::from([10, 0, 0, 1]), IpAddr::from);
            let sample = Sample {
                at,
                change,
                color: if blue { Color::Blue } else { Color::Red },
                pair: pair.map(|(number, flag)| (u32::from(number), flag)),
                three: three.map(|number| number as usize),
                address: SocketAddr::new(ip, port),
            };
            let mut bytes = Vec::new();
            sample.put(&mut bytes);
            let mut reader = Reader::new(&bytes, 100);
            prop_assert_eq!(Sample::take(&mut reader, Bound::Any), Some(sample));
            prop_assert!(reader.is_empty());
            let short = &bytes[..end.min(bytes.len() - 1)];
            prop_assert_eq!(Sample::take(&mut Reader::new(short, 100), Bound::Any), None);
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let _ = Sample::take(&mut Reader::new(&bytes, 100), Bound::Any);
            let _ = Reader::new(&bytes, 0).bytes(50);
        }
    }

    #[test]
    fn times_of_a_writer_that_is_ahead_are_now() {
        let mut bytes = Vec::new();
        [1400u64, 900, 1300, 1400, 1401].iter().for_each(|time| time.put(&mut bytes));
        let mut reader = Reader::new(&bytes, 1000);
        reader.writer_time().unwrap();
        let mut past = || u64::take(&mut reader, Bound::Past);
        assert_eq!([past(), past(), past(), past()], [Some(900), Some(1000), Some(1000), None]);
        let mut bytes = Vec::new();
        (1001 + AHEAD).put(&mut bytes);
        assert_eq!(Reader::new(&bytes, 1000).writer_time(), None);
    }

    #[test]
    fn numbers_outside_their_bounds_are_refused() {
        let taken = |value: u64, bound| {
            let mut bytes = Vec::new();
            value.put(&mut bytes);
            u64::take(&mut Reader::new(&bytes, 1000), bound).is_some()
        };
        let most = [(Bound::Most(5), 5), (Bound::Positive(7), 7), (Bound::Past, 1000)];
        for (bound, most) in most.into_iter().chain([(Bound::Deadline, 1000 + FAR), (BYTES_OR_NONE, 1 << 40)])
        {
            assert!(taken(most, bound) && !taken(most + 1, bound), "{bound:?}");
        }
        assert!(!taken(0, Bound::Positive(7)) && taken(u64::MAX, SPAN_OR_NONE) && !taken(u64::MAX, SPAN));
    }
}
