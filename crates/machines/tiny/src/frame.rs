//! Numbered frames: Ethernet with a local experimental type, the number of the run, the frame's number of 32 bits, and
//! bytes that follow from it. Control frames have the other experimental type.

/// Types of numbered and of control frames (IEEE 802, local experimental).
const NUMBERED: [u8; 2] = [0x88, 0xb5];
const CONTROL: [u8; 2] = [0x88, 0xb6];
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

/// Eight times the byte that follows from a number.
fn pattern(number: u32) -> u64 {
    u64::from_ne_bytes([number as u8; 8])
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

    /// Only whole aligned words, as frames are copied and read: a load of bytes that several stores wrote waits until
    /// they have left the processor's store buffer.
    fn fill(&self, frame: &mut [u8], [k0, k1]: [u8; 2], number: u32) {
        let ([t0, t1, t2, t3, t4, t5], [f0, f1, f2, f3, f4, f5]) = (self.to, self.from);
        let [r0, r1] = self.run.to_be_bytes();
        let [n0, n1, n2, n3] = number.to_be_bytes();
        let byte = number as u8;
        let (words, bytes) = frame.as_chunks_mut::<8>();
        if let [first, second, third, rest @ ..] = words {
            *first = [t0, t1, t2, t3, t4, t5, f0, f1];
            *second = [f2, f3, f4, f5, k0, k1, r0, r1];
            *third = [n0, n1, n2, n3, byte, byte, byte, byte];
            rest.fill(pattern(number).to_ne_bytes());
            bytes.iter_mut().for_each(|place| *place = byte);
        }
    }
}

/// What a frame is for a guest of the run `run`.
pub(crate) fn content(frame: &[u8], run: u16) -> Content {
    let (words, bytes) = frame.as_chunks::<8>();
    let [_, second, third, rest @ ..] = words else { return Content::Foreign };
    let (second, third) = (u64::from_le_bytes(*second), u64::from_le_bytes(*third));
    let number = (third as u32).swap_bytes();
    if (second >> 48) as u16 != run.swap_bytes() {
        return Content::Foreign;
    }
    match ((second >> 32) as u16).to_le_bytes() {
        CONTROL => return Content::Control(number),
        NUMBERED => {}
        _ => return Content::Foreign,
    }
    let expected = pattern(number);
    let wrong =
        rest.iter().fold((third ^ expected) >> 32, |all, word| all | (u64::from_ne_bytes(*word) ^ expected));
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
        assert_eq!(frame[..20], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x88, 0xb5, 0, 7, 1, 2, 3, 4]);
        for at in [19, 20, 21, 23, 24, 91, 92, 99] {
            let mut wrong = frame;
            wrong[at] ^= 1;
            assert_eq!(content(&wrong, 7), Content::Wrong, "{at}");
        }
        for at in [12, 14, 15] {
            let mut foreign = frame;
            foreign[at] ^= 1;
            assert_eq!(content(&foreign, 7), Content::Foreign, "{at}");
        }
        assert_eq!(content(&frame[..23], 7), Content::Foreign);
        assert_eq!(content(&frame, 8), Content::Foreign, "another run");
        HEADER.control(&mut frame, 5);
        assert_eq!(content(&frame, 7), Content::Control(5));
    }
}
