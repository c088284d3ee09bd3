//! The Internet checksum (RFC 1071), its incremental update (RFC 1624) and pseudo headers (RFC 9293 3.1,
//! RFC 8200 8.1).

use core::net::{Ipv4Addr, Ipv6Addr};

/// A running sum over any number of pieces. After a piece of odd length, the next one begins in the middle of
/// a 16-bit word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    // In the machine's byte order: a ones' complement sum may be byte-swapped at the end (RFC 1071, 2(B)).
    total: u64,
    odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    #[inline]
    pub const fn new() -> Sum {
        Sum { total: 0, odd: false }
    }

    /// The sum of the IPv4 pseudo header; `len` is the length of the payload, upper-layer header included.
    #[inline]
    pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u16) -> Sum {
        let mut sum = Sum::new();
        sum.add_u32(source.to_bits());
        sum.add_u32(destination.to_bits());
        sum.add_u16(u16::from(protocol));
        sum.add_u16(len);
        sum
    }

    /// The sum of the IPv6 pseudo header; `destination` is the final destination, even with a routing header.
    #[inline]
    pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u32) -> Sum {
        let mut sum = Sum::new();
        sum.add(&source.octets());
        sum.add(&destination.octets());
        sum.add_u16(u16::from(protocol));
        sum.add_u32(len);
        sum
    }

    /// Adds bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let folded = fold(native_sum(bytes));
        self.total += u64::from(if self.odd { folded.swap_bytes() } else { folded });
        self.odd ^= !bytes.len().is_multiple_of(2);
    }

    /// Adds a 16-bit word. Not permitted after a piece of odd length.
    #[inline]
    pub fn add_u16(&mut self, word: u16) {
        debug_assert!(!self.odd, "a word never begins at an odd offset");
        self.total += u64::from(word.to_be());
    }

    /// Adds two 16-bit words, given as one integer. Not permitted after a piece of odd length.
    #[inline]
    pub fn add_u32(&mut self, words: u32) {
        debug_assert!(!self.odd, "a word never begins at an odd offset");
        self.total += u64::from(words.to_be());
    }

    /// The ones' complement sum: of a pseudo header, the content of a checksum field whose checksum is
    /// pending.
    #[inline]
    pub fn value(self) -> u16 {
        u16::from_be(fold(self.total))
    }

    /// The checksum: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.value()
    }

    /// The checksum, with 0 replaced by 0xffff: both are equal in ones' complement, and in UDP 0 means no
    /// checksum (RFC 768).
    #[inline]
    pub fn finish_nonzero(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether the checksum is valid, if the sum includes the checksum field.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.value() == 0xffff
    }
}

/// The checksum of `bytes`.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum.finish()
}

/// Whether the checksum of a header without options is valid. The length is constant, so the compiler unrolls
/// the loop.
#[inline(always)]
pub(crate) fn is_valid<const N: usize>(header: &[u8; N]) -> bool {
    let (words, rest) = header.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mut total = u64::from_ne_bytes(last);
    for word in words {
        let (sum, carry) = total.overflowing_add(u64::from_ne_bytes(*word));
        // End-around carry. It can't overflow: after a carry, the sum is not all ones.
        total = sum + u64::from(carry);
    }
    // 2^16 is 1 modulo 2^16 - 1, so folding would not change the remainder.
    total != 0 && total.is_multiple_of(0xffff)
}

/// Changes of words that checksums cover. Applied at once, they give the same checksum as one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change(u64);

impl Change {
    /// A word changed.
    #[inline]
    pub fn add_u16(&mut self, old: u16, new: u16) {
        self.0 += u64::from(!old) + u64::from(new);
    }

    /// Two adjacent words changed, such as an IPv4 address.
    #[inline]
    pub fn add_u32(&mut self, old: u32, new: u32) {
        let halves = |word: u32| u64::from(word >> 16) + u64::from(word & 0xffff);
        self.0 += halves(!old) + halves(new);
    }

    /// A checksum after the changes (RFC 1624, equation 3).
    #[inline]
    pub fn of(self, checksum: u16) -> u16 {
        !fold(u64::from(!checksum) + self.0)
    }
}

/// The checksum after a covered word changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let total = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    !fold(total)
}

/// The checksum after two adjacent covered words changed, such as an IPv4 address.
#[inline]
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let halves = |word: u32| u64::from(word >> 16) + u64::from(word & 0xffff);
    !fold(u64::from(!checksum) + halves(!old) + halves(new))
}

/// The checksum after eight adjacent covered words changed, such as an IPv6 address.
#[inline]
pub fn update_u128(checksum: u16, old: u128, new: u128) -> u16 {
    [96, 64, 32, 0]
        .into_iter()
        .fold(checksum, |sum, at| update_u32(sum, (old >> at) as u32, (new >> at) as u32))
}

/// The sum of the 16-bit words, in the machine's byte order, not folded.
#[inline]
fn native_sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<64>();
    // Adds 32-bit words in independent 64-bit lanes, so that the compiler uses vector instructions. A lane
    // doesn't overflow before 2^31 blocks.
    let mut lanes = [0u64; 8];
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, pair) in lanes.iter_mut().zip(words.as_chunks::<2>().0) {
            *lane += u64::from(u32::from_ne_bytes(pair[0])) + u64::from(u32::from_ne_bytes(pair[1]));
        }
    }
    let mut total = 0u64;
    for lane in lanes {
        total += (lane >> 32) + (lane & 0xffff_ffff);
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    let (pairs, rest) = rest.as_chunks::<2>();
    for pair in pairs {
        total += u64::from(u16::from_ne_bytes(*pair));
    }
    if let [last] = rest {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    total
}

/// Ones' complement addition of the four words of `total`.
#[inline]
fn fold(total: u64) -> u16 {
    let total = (total >> 32) + (total & 0xffff_ffff);
    let total = (total >> 16) + (total & 0xffff);
    let total = (total >> 16) + (total & 0xffff);
    ((total >> 16) + (total & 0xffff)) as u16
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071's definition, word by word.
    pub(crate) fn slow(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xffff) + (total >> 16);
        }
        !(total as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let mut sum = Sum::new();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.value(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_sum_of_nothing_but_ones_does_not_overflow() {
        let bytes = alloc::vec![0xff; 1 << 20];
        assert_eq!(checksum(&bytes), 0);
    }

    #[test]
    fn an_all_zero_header_is_invalid() {
        assert!(!is_valid(&[0; 20]) && is_valid(&[0xff; 20]));
    }

    proptest! {
        #[test]
        fn a_header_of_known_length_is_valid_if_its_checksum_is(
            mut header in any::<[u8; 20]>(),
            right in any::<bool>(),
        ) {
            if right {
                [header[10], header[11]] = [0; 2];
                let sum = slow(&header);
                [header[10], header[11]] = sum.to_be_bytes();
            }
            prop_assert_eq!(is_valid(&header), slow(&header) == 0 && header != [0; 20]);
        }

        #[test]
        fn changes_at_once_give_the_same_checksum_as_one_after_the_other(
            checksum in any::<u16>(),
            words in any::<[[u16; 2]; 2]>(),
            pairs in any::<[[u32; 2]; 2]>(),
        ) {
            let (mut change, mut expected) = (Change::default(), checksum);
            for [old, new] in words {
                change.add_u16(old, new);
                expected = update(expected, old, new);
            }
            for [old, new] in pairs {
                change.add_u32(old, new);
                expected = update_u32(expected, old, new);
            }
            prop_assert_eq!(change.of(checksum), expected);
        }

        #[test]
        fn equals_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            prop_assert_eq!(checksum(&bytes), slow(&bytes));
        }

        #[test]
        fn pieces_of_any_length_sum_as_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..700),
            cuts in prop::collection::vec(0usize..50, 0..30),
        ) {
            let mut sum = Sum::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                sum.add(piece);
                rest = behind;
            }
            sum.add(rest);
            prop_assert_eq!(sum.finish(), slow(&bytes));
        }

        #[test]
        fn an_update_equals_a_new_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 8..60), at: prop::sample::Index, new: u32,
        ) {
            // RFC 1624: the two agree unless all covered bytes are zero, which is never the case for a
            // header.
            bytes[0] = 0x45;
            let words = (bytes.len() - 4) / 2;
            let at = 2 + 2 * at.index(words);
            prop_assume!(at + 4 <= bytes.len());
            let before = checksum(&bytes);
            let old = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update_u32(before, old, new), slow(&bytes));
            let high = update(before, (old >> 16) as u16, (new >> 16) as u16);
            let halves = update(high, old as u16, new as u16);
            prop_assert_eq!(halves, slow(&bytes));
        }

        #[test]
        fn pseudo_headers_are_their_bytes(a: u32, b: u32, c: u128, d: u128, protocol: u8, len: u16) {
            let (a, b, c, d) = (Ipv4Addr::from(a), Ipv4Addr::from(b), Ipv6Addr::from(c), Ipv6Addr::from(d));
            let [l0, l1] = len.to_be_bytes();
            let four = [&a.octets()[..], &b.octets(), &[0, protocol, l0, l1]].concat();
            prop_assert_eq!(Sum::pseudo_v4(a, b, protocol, len).finish(), slow(&four));
            let six = [&c.octets()[..], &d.octets(), &[0, 0, l0, l1, 0, 0, 0, protocol]].concat();
            prop_assert_eq!(Sum::pseudo_v6(c, d, protocol, u32::from(len)).finish(), slow(&six));
        }
    }
}
