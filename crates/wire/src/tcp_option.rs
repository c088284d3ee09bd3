//! TCP's options (RFC 9293 3.2, RFC 7323, RFC 2018).

use crate::WireError;
use crate::bytes::u32_at;

const NAME: &str = "TCP option";
/// Bytes that options may take.
pub const OPTIONS_LEN: usize = 40;
/// Blocks that one SACK option can hold.
pub const SACK_BLOCKS: usize = 4;

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Largest segment the sender takes, in bytes.
    MaxSegmentSize(u16),
    /// How far windows are shifted.
    WindowScale(u8),
    /// SACK may be used.
    SackPermitted,
    /// Blocks received out of order: 8 bytes each, left and right edge.
    Sack(&'a [u8]),
    /// Timestamps: value and echo reply.
    Timestamps(u32, u32),
    /// Any other: kind and contents.
    Unknown(u8, &'a [u8]),
}

/// The options in raw bytes: up to the end of the list, no-operations left out. Ends with an error at the
/// first that is broken.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// Reads `bytes`, of which only the first 40 can be options.
    pub fn new(bytes: &'a [u8]) -> TcpOptions<'a> {
        TcpOptions { rest: &bytes[..bytes.len().min(OPTIONS_LEN)] }
    }
}

fn parse(kind: u8, data: &[u8]) -> Result<TcpOption<'_>, WireError> {
    let illegal = WireError::Illegal { header: NAME, field: "length" };
    Ok(match (kind, data) {
        (2, &[a, b]) => TcpOption::MaxSegmentSize(u16::from_be_bytes([a, b])),
        // RFC 7323, 2.3: larger shifts are taken as 14.
        (3, &[shift]) => TcpOption::WindowScale(shift.min(14)),
        (4, &[]) => TcpOption::SackPermitted,
        (5, blocks) if !blocks.is_empty() && blocks.len().is_multiple_of(8) => TcpOption::Sack(blocks),
        (8, data) => {
            let data: &[u8; 8] = data.try_into().map_err(|_| illegal)?;
            TcpOption::Timestamps(u32_at(data, 0), u32_at(data, 4))
        }
        (2..=5, _) => return Err(illegal),
        (kind, data) => TcpOption::Unknown(kind, data),
    })
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, behind) = self.rest.split_first()?;
            match kind {
                0 => return None,
                1 => self.rest = behind,
                _ => {
                    let whole = behind.first().map_or(0, |&len| usize::from(len));
                    // Attack: an option of less than its own two bytes has its reader go in circles.
                    let option = match self.rest.get(2..whole) {
                        Some(data) => parse(kind, data),
                        None => Err(WireError::Illegal { header: NAME, field: "length" }),
                    };
                    self.rest = if option.is_ok() { &self.rest[whole..] } else { &[] };
                    return Some(option);
                }
            }
        }
    }
}

/// The options that TCP uses; unknown ones are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repr {
    /// Largest segment the sender takes, in bytes.
    pub max_segment_size: Option<u16>,
    /// How far windows are shifted, at most 14.
    pub window_scale: Option<u8>,
    /// SACK may be used.
    pub sack_permitted: bool,
    /// Blocks received out of order, left and right edge; the first `None` ends them.
    pub sack: [Option<(u32, u32)>; SACK_BLOCKS],
    /// Timestamps: value and echo reply.
    pub timestamps: Option<(u32, u32)>,
}

impl Repr {
    /// Reads raw options.
    pub fn parse(options: &[u8]) -> Result<Repr, WireError> {
        let mut repr = Repr::default();
        for option in TcpOptions::new(options) {
            match option? {
                TcpOption::MaxSegmentSize(size) => repr.max_segment_size = Some(size),
                TcpOption::WindowScale(shift) => repr.window_scale = Some(shift),
                TcpOption::SackPermitted => repr.sack_permitted = true,
                TcpOption::Sack(blocks) => {
                    repr.sack = [None; SACK_BLOCKS];
                    for (slot, block) in repr.sack.iter_mut().zip(blocks.as_chunks::<8>().0) {
                        *slot = Some((u32_at(block, 0), u32_at(block, 4)));
                    }
                }
                TcpOption::Timestamps(value, echo) => repr.timestamps = Some((value, echo)),
                TcpOption::Unknown(..) => (),
            }
        }
        Ok(repr)
    }

    fn blocks(&self) -> impl Iterator<Item = (u32, u32)> {
        self.sack.into_iter().map_while(|block| block)
    }

    /// Bytes that `emit` writes: a multiple of 4.
    pub fn len(&self) -> usize {
        let sack = match self.blocks().count() {
            0 => 0,
            count => 2 + 8 * count,
        };
        let len = self.max_segment_size.map_or(0, |_| 4)
            + self.window_scale.map_or(0, |_| 3)
            + if self.sack_permitted { 2 } else { 0 }
            + self.timestamps.map_or(0, |_| 10)
            + sack;
        len.next_multiple_of(4)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes them to the start of `out`, filled up with no-operations at the front.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), WireError> {
        let len = self.len();
        if len > OPTIONS_LEN {
            return Err(WireError::Illegal { header: NAME, field: "length" });
        }
        let out = out.get_mut(..len).ok_or(WireError::NoRoom { header: NAME })?;
        out.fill(1);
        let mut end = len;
        let mut put = |bytes: &[u8]| {
            // From the back, so that padding lies in front and what is aligned stays so.
            end -= bytes.len();
            out[end..end + bytes.len()].copy_from_slice(bytes);
        };
        let count = self.blocks().count();
        for (left, right) in self.sack[..count].iter().rev().flatten() {
            put(&right.to_be_bytes());
            put(&left.to_be_bytes());
        }
        if count > 0 {
            put(&[5, 2 + 8 * count as u8]);
        }
        if let Some((value, echo)) = self.timestamps {
            put(&echo.to_be_bytes());
            put(&value.to_be_bytes());
            put(&[8, 10]);
        }
        if self.sack_permitted {
            put(&[4, 2]);
        }
        if let Some(shift) = self.window_scale {
            put(&[3, 3, shift.min(14)]);
        }
        if let Some(size) = self.max_segment_size {
            put(&size.to_be_bytes());
            put(&[2, 4]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_of_a_syn() {
        let bytes = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        let repr = Repr::parse(&bytes).unwrap();
        let expected = Repr {
            max_segment_size: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some((1, 0)),
            ..Repr::default()
        };
        assert_eq!(repr, expected);
        assert_eq!(repr.len(), 20);
    }

    #[test]
    fn broken_lengths_end_the_list() {
        for broken in
            [&[2, 3, 0][..], &[2], &[2, 0], &[8, 10, 0], &[5, 2], &[5, 3, 1], &[3, 40, 0], &[4, 3, 0]]
        {
            let list: Vec<_> = TcpOptions::new(broken).collect();
            assert!(matches!(list[..], [Err(_)]), "{broken:?}");
        }
        let ended: Vec<_> = TcpOptions::new(&[1, 1, 254, 3, 9, 0, 2]).collect();
        assert_eq!(ended, [Ok(TcpOption::Unknown(254, &[9]))]);
    }

    proptest! {
        #[test]
        fn round_trip(
            max_segment_size: Option<u16>, window_scale in prop::option::of(0u8..15), sack_permitted: bool,
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..4), timestamps: Option<(u32, u32)>,
        ) {
            let mut sack = [None; SACK_BLOCKS];
            for (slot, block) in sack.iter_mut().zip(blocks) {
                *slot = Some(block);
            }
            let repr = Repr { max_segment_size, window_scale, sack_permitted, sack, timestamps };
            let mut out = [0xaa; 48];
            if repr.len() <= 40 {
                repr.emit(&mut out).unwrap();
                prop_assert_eq!(Repr::parse(&out[..repr.len()]), Ok(repr));
                prop_assert!(out[repr.len()..].iter().all(|&byte| byte == 0xaa));
            } else {
                prop_assert!(repr.emit(&mut out).is_err());
            }
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(0u8..12, 0..60)) {
            prop_assert!(TcpOptions::new(&bytes).count() <= 40);
        }
    }
}
