//! TCP options (RFC 9293 3.1, RFC 7323, RFC 2018), as numbers.

use arrayvec::ArrayVec;
use ringway_wire::{ip, tcp::option};

/// Largest length of the options of a header.
pub(crate) const OPTIONS: usize = 40;

/// The kind of experimental options (RFC 4727), and the identifier of Fast Open's.
const EXPERIMENT: u8 = 254;
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// A cookie of Fast Open.
pub(crate) type Cookie = ArrayVec<u8, 16>;

/// The options of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    pub sack: ArrayVec<(u32, u32), 4>,
    /// A cookie of Fast Open; an empty one requests a cookie (RFC 7413, 4.1.1).
    pub fast_open: Option<Cookie>,
    /// Whether the cookie is in the experimental option (RFC 7413, A.3).
    pub fast_open_experimental: bool,
}

impl Options {
    /// Parses options; invalid ones end the list (RFC 9293, 3.1: they must not crash the receiver).
    pub(crate) fn parse(bytes: &[u8]) -> Options {
        let mut found = Options::default();
        for one in ip::options(bytes).map_while(|option| option) {
            match *one {
                [option::MAX_SEGMENT_SIZE, 4, a, b] => found.mss = Some(u16::from_be_bytes([a, b])),
                // RFC 7323, 2.3: a larger shift counts as 14.
                [option::WINDOW_SCALE, 3, shift] => found.window_scale = Some(shift.min(14)),
                [option::SACK_PERMITTED, 2] => found.sack_permitted = true,
                [option::TIMESTAMPS, 10, a, b, c, d, e, f, g, h] => {
                    let [val, ecr] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
                    found.timestamps = Some((val, ecr));
                }
                [option::SACK, _, ref blocks @ ..] => {
                    let (words, _) = blocks.as_chunks::<4>();
                    let (pairs, _) = words.as_chunks::<2>();
                    found.sack = pairs
                        .iter()
                        .take(4)
                        .map(|[start, end]| (u32::from_be_bytes(*start), u32::from_be_bytes(*end)))
                        .collect();
                }
                [option::FAST_OPEN, 2 | 6..=18, ref cookie @ ..] if cookie.len().is_multiple_of(2) => {
                    (found.fast_open, found.fast_open_experimental) = (cookie.try_into().ok(), false);
                }
                [EXPERIMENT, 4 | 8..=20, a, b, ref cookie @ ..]
                    if [a, b] == FAST_OPEN_EXPERIMENT && cookie.len().is_multiple_of(2) =>
                {
                    (found.fast_open, found.fast_open_experimental) = (cookie.try_into().ok(), true);
                }
                _ => {}
            }
        }
        found
    }

    /// Writes the options, padded to words; returns their length.
    pub(crate) fn emit(&self, out: &mut [u8; OPTIONS]) -> usize {
        let mut bytes: ArrayVec<u8, OPTIONS> = ArrayVec::new();
        let mut put = |more: &[u8]| bytes.try_extend_from_slice(more).is_ok();
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            put(&[option::MAX_SEGMENT_SIZE, 4, a, b]);
        }
        match (self.sack_permitted, self.timestamps) {
            (true, Some(_)) => put(&[option::SACK_PERMITTED, 2]),
            (true, None) => put(&[option::NOP, option::NOP, option::SACK_PERMITTED, 2]),
            (false, Some(_)) => put(&[option::NOP, option::NOP]),
            (false, None) => true,
        };
        if let Some((val, ecr)) = self.timestamps {
            put(&[option::TIMESTAMPS, 10]);
            put(&val.to_be_bytes());
            put(&ecr.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[option::NOP, option::WINDOW_SCALE, 3, shift]);
        }
        if let Some(cookie) = &self.fast_open {
            let len = self.fast_open_len(cookie);
            if self.fast_open_experimental {
                put(&[EXPERIMENT, len as u8]);
                put(&FAST_OPEN_EXPERIMENT);
            } else {
                put(&[option::FAST_OPEN, len as u8]);
            }
            put(cookie);
            put(&[option::NOP; 3][..len.next_multiple_of(4) - len]);
        }
        // Every part is a whole number of words, so what remains is one too; SACK needs one for its head.
        let room = (OPTIONS - self.base_len()).saturating_sub(4) / 8;
        let blocks = &self.sack[..self.sack.len().min(room)];
        if !blocks.is_empty() {
            put(&[option::NOP, option::NOP, option::SACK, 2 + 8 * blocks.len() as u8]);
            for (start, end) in blocks {
                put(&start.to_be_bytes());
                put(&end.to_be_bytes());
            }
        }
        out[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    }

    /// The length of all options except SACK.
    fn base_len(&self) -> usize {
        let words = usize::from(self.mss.is_some())
            + usize::from(self.window_scale.is_some())
            + 3 * usize::from(self.timestamps.is_some())
            + usize::from(self.sack_permitted && self.timestamps.is_none());
        let fast_open = self.fast_open.as_ref().map_or(0, |cookie| self.fast_open_len(cookie));
        4 * words + fast_open.next_multiple_of(4)
    }

    fn fast_open_len(&self, cookie: &Cookie) -> usize {
        cookie.len() + if self.fast_open_experimental { 4 } else { 2 }
    }

    /// The length of all options.
    pub(crate) fn emitted_len(&self) -> usize {
        let base = self.base_len();
        let room = (OPTIONS - base).saturating_sub(4) / 8;
        match self.sack.len().min(room) {
            0 => base,
            blocks => base + 4 + 8 * blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn options()(
            mss: Option<u16>, shift in prop::option::of(0u8..15), sack_permitted: bool,
            timestamps: Option<(u32, u32)>, sack in prop::collection::vec(any::<(u32, u32)>(), 0..4),
            cookie in prop::option::of(prop::collection::vec(any::<[u8; 2]>(), 0..9)), experimental: bool,
        ) -> Options {
            let sack = sack.into_iter().collect();
            let cookie = cookie.filter(|pairs| pairs.len() != 1);
            let fast_open: Option<Cookie> = cookie.map(|pairs| pairs.into_iter().flatten().collect());
            let fast_open_experimental = experimental && fast_open.is_some();
            Options {
                mss, window_scale: shift, sack_permitted, timestamps, sack, fast_open, fast_open_experimental,
            }
        }
    }

    proptest! {
        #[test]
        fn emitted_options_parse_again(options in options()) {
            let mut bytes = [0; OPTIONS];
            let len = options.emit(&mut bytes);
            prop_assert_eq!((len, len % 4), (options.emitted_len(), 0));
            let again = Options::parse(&bytes[..len]);
            prop_assert!(options.sack.starts_with(&again.sack));
            prop_assert_eq!(Options { sack: options.sack.clone(), ..again }, options);
        }

        #[test]
        fn any_bytes_parse(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Options::parse(&bytes);
        }
    }
}
