//! Numbered frames: Ethernet with a local experimental type, the number of the run, the frame's number of 32 bits, and
//! bytes that follow from it. Control frames have the other experimental type.

/// Types of numbered and of control frames (IEEE 802, local experimental).
const NUMBERED: [u8; 2] = [0x88, 0xb5];
const CONTROL: [u8; 2] = [0x88, 0xb6];
/// Bytes before those that follow from the number.
const HEAD: usize = 20;
/// The number of a control frame that only shows where the sender is.
pub(crate) const ANNOUNCE: u32 = u32::MAX;

/// The headers of the frames of a role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub to: [u8; 6],
    pub from: [u8; 6],
    pub run: u16,
}

/// What a received frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A numbered frame of this run.
    Number(u32),
    /// A control frame of this run: the sender has sent so many frames, or [`ANNOUNCE`].
    Control(u32),
    /// A numbered frame with a wrong byte.
    Wrong,
    /// Anything else, such as a frame of a former run.
    Foreign,
}

impl Header {
    /// Writes a numbered frame; `frame` has 60 bytes at least.
    pub fn write(&self, frame: &mut [u8], number: u32) {
        self.fill(frame, NUMBERED, number);
    }

    /// Writes a control frame.
    pub fn control(&self, frame: &mut [u8], number: u32) {
        self.fill(frame, CONTROL, number);
    }

    fn fill(&self, frame: &mut [u8], kind: [u8; 2], number: u32) {
        if let Some((head, rest)) = frame.split_at_mut_checked(HEAD) {
            head[..6].copy_from_slice(&self.to);
            head[6..12].copy_from_slice(&self.from);
            head[12..14].copy_from_slice(&kind);
            head[14..16].copy_from_slice(&self.run.to_be_bytes());
            head[16..].copy_from_slice(&number.to_be_bytes());
            // By words: the image has no vector registers.
            let (words, bytes) = rest.as_chunks_mut::<8>();
            words.fill([number as u8; 8]);
            bytes.iter_mut().for_each(|byte| *byte = number as u8);
        }
    }
}

/// What a frame is for a guest of the run `run`.
pub(crate) fn content(frame: &[u8], run: u16) -> Content {
    let Some((head, rest)) = frame.split_at_checked(HEAD) else { return Content::Foreign };
    let number = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
    if head[14..16] != run.to_be_bytes() {
        return Content::Foreign;
    }
    if head[12..14] == CONTROL {
        return Content::Control(number);
    }
    if head[12..14] != NUMBERED {
        return Content::Foreign;
    }
    let (words, bytes) = rest.as_chunks::<8>();
    let expected = u64::from_ne_bytes([number as u8; 8]);
    let wrong = words.iter().fold(0, |all, word| all | (u64::from_ne_bytes(*word) ^ expected));
    match wrong == 0 && bytes.iter().all(|byte| *byte == number as u8) {
        true => Content::Number(number),
        false => Content::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { to: [1; 6], from: [2; 6], run: 7 };

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut frame = [0; 100];
        HEADER.write(&mut frame, 0x0102_0304);
        assert_eq!(content(&frame, 7), Content::Number(0x0102_0304));
        for at in [19, 20, 21, 91, 92, 99] {
            let mut wrong = frame;
            wrong[at] ^= 1;
            assert_eq!(content(&wrong, 7), Content::Wrong, "{at}");
        }
        for at in [12, 14, 15] {
            let mut foreign = frame;
            foreign[at] ^= 1;
            assert_eq!(content(&foreign, 7), Content::Foreign, "{at}");
        }
        assert_eq!(content(&frame[..19], 7), Content::Foreign);
        assert_eq!(content(&frame, 8), Content::Foreign, "another run");
        HEADER.control(&mut frame, 5);
        assert_eq!(content(&frame, 7), Content::Control(5));
    }
}
