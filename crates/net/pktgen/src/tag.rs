//! What a generated frame carries behind its headers: number, time, a check of both and of the headers, and a pattern.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 5 | the frame's number, modulo 2^40 |
//! | 5 | when it was sent, in nanoseconds of the sender's monotonic clock, modulo 2^40 (18 minutes) |
//! | 2 | check of number and time |
//! | 2 | check of the headers before them |
//! | rest | a pattern that depends on the number, so that bytes of another frame are noticed |

/// Bytes of a tag.
pub const TAG: usize = 14;
/// Numbers and times have 40 bits.
pub const MASK: u64 = (1 << 40) - 1;

/// Odd constants without 16 equal bits in a row: a changed bit changes the highest 16 bits of a sum of products. A test
/// flips each bit.
const NUMBER: u64 = 0x9e37_79b9_7f4a_7c15;
const TIME: u64 = 0xc2b2_ae3d_27d4_eb4f;
const WORDS: [u64; 6] = [
    0xff51_afd7_ed55_8ccd,
    0xc4ce_b9fe_1a85_ec53,
    0x87c3_7b91_1142_53d5,
    0x4cf5_ad43_2745_937f,
    0x52dc_e729_da3d_d2eb,
    0x38b3_4ae5_a1e3_8b93,
];
/// Distance of two words of the pattern.
const STEP: u64 = 0x9fb2_1c65_1e98_df25;

/// A frame's number and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Modulo 2^40.
    pub number: u64,
    /// Modulo 2^40.
    pub time: u64,
}

#[inline]
fn fold(sum: u64) -> u16 {
    (sum >> 48) as u16
}

impl Tag {
    #[inline]
    fn check(self) -> u16 {
        fold(self.number.wrapping_mul(TIME).wrapping_add(self.time.wrapping_mul(STEP)).wrapping_add(1))
    }

    /// The bytes of the tag behind headers with the check `headers`.
    #[inline]
    pub fn to_bytes(self, headers: u16) -> [u8; TAG] {
        let mut bytes = [0; TAG];
        bytes[..5].copy_from_slice(&self.number.to_le_bytes()[..5]);
        bytes[5..10].copy_from_slice(&self.time.to_le_bytes()[..5]);
        bytes[10..12].copy_from_slice(&self.check().to_le_bytes());
        bytes[12..].copy_from_slice(&headers.to_le_bytes());
        bytes
    }

    /// The tag, and the check of the headers; `None` if number and time are not as they were sent.
    #[inline]
    pub fn from_bytes(bytes: &[u8; TAG]) -> Option<(Tag, u16)> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *bytes;
        let number = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        let time = u64::from_le_bytes([f, g, h, i, j, 0, 0, 0]);
        let tag = Tag { number, time };
        (u16::from_le_bytes([k, l]) == tag.check()).then_some((tag, u16::from_le_bytes([m, n])))
    }
}

/// The check of headers of 34 to 48 bytes.
#[inline]
pub fn headers_check(headers: &[u8]) -> u16 {
    let mut sum = headers.len() as u64;
    let (words, rest) = headers.as_chunks::<8>();
    for (word, factor) in words.iter().zip(WORDS) {
        sum = sum.wrapping_add(u64::from_le_bytes(*word).wrapping_mul(factor));
    }
    // A few bytes: a call of the C library would take longer.
    let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte));
    fold(sum.wrapping_add(last.wrapping_mul(WORDS[5])))
}

#[inline]
fn first_word(number: u64) -> u64 {
    let mixed = (number & MASK).wrapping_mul(NUMBER);
    mixed ^ mixed >> 31
}

/// Writes the pattern of a frame.
#[inline]
pub fn fill(out: &mut [u8], number: u64) {
    let mut word = first_word(number);
    let (words, rest) = out.as_chunks_mut::<8>();
    for place in words {
        *place = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    // The smallest frame has four.
    let rest = match rest.split_first_chunk_mut() {
        Some((four, rest)) => {
            *four = (word as u32).to_le_bytes();
            word >>= 32;
            rest
        }
        None => rest,
    };
    rest.iter_mut().zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte);
}

/// Whether bytes are the pattern of a frame.
#[inline]
pub fn is_filled(bytes: &[u8], number: u64) -> bool {
    let mut word = first_word(number);
    let mut differ = 0;
    let (words, rest) = bytes.as_chunks::<8>();
    for place in words {
        differ |= u64::from_le_bytes(*place) ^ word;
        word = word.wrapping_add(STEP);
    }
    let rest = match rest.split_first_chunk() {
        Some((four, rest)) => {
            differ |= u64::from(u32::from_le_bytes(*four) ^ word as u32);
            word >>= 32;
            rest
        }
        None => rest,
    };
    differ == 0 && rest.iter().zip(word.to_le_bytes()).all(|(place, byte)| *place == byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_changed_bit_of_a_tag_is_noticed(number in 0..=MASK, time in 0..=MASK, headers: u16) {
            let tag = Tag { number, time };
            let bytes = tag.to_bytes(headers);
            prop_assert_eq!(Tag::from_bytes(&bytes), Some((tag, headers)));
            for bit in 0..8 * TAG {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                // The last two bytes are the check of the headers, which then does not agree with them.
                let expected = (bit >= 96).then_some(tag);
                prop_assert_eq!(Tag::from_bytes(&changed).map(|(tag, _)| tag), expected, "bit {}", bit);
            }
        }

        #[test]
        fn every_changed_bit_of_headers_is_noticed(headers in prop::collection::vec(any::<u8>(), 42..=46)) {
            let check = headers_check(&headers);
            for bit in 0..8 * headers.len() {
                let mut changed = headers.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                prop_assert_ne!(headers_check(&changed), check, "bit {}", bit);
            }
        }

        #[test]
        fn a_pattern_is_that_of_its_number(number in 0..=MASK, other in 0..=MASK, len in 8..1500usize) {
            let mut bytes = vec![0; len];
            fill(&mut bytes, number);
            prop_assert!(is_filled(&bytes, number) && (number == other || !is_filled(&bytes, other)));
            bytes[len / 2] ^= 0x10;
            prop_assert!(!is_filled(&bytes, number));
        }
    }
}
