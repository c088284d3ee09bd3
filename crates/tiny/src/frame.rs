//! Numbered frames: Ethernet with a local experimental type, a number of 32 bits, and bytes that follow from it.

/// Type of the frames (IEEE 802, local experimental).
const TYPE: [u8; 2] = [0x88, 0xb5];

/// Writes the headers of all frames of a role; `frame` has 60 bytes at least.
pub(crate) fn write(frame: &mut [u8], to: [u8; 6], from: [u8; 6], number: u32) {
    if let Some((head, rest)) = frame.split_at_mut_checked(18) {
        head[..6].copy_from_slice(&to);
        head[6..12].copy_from_slice(&from);
        head[12..14].copy_from_slice(&TYPE);
        head[14..18].copy_from_slice(&number.to_be_bytes());
        rest.fill(number as u8);
    }
}

/// The number of a numbered frame; `None` if it isn't one, or if a byte is wrong.
pub(crate) fn number(frame: &[u8]) -> Option<u32> {
    let (head, rest) = frame.split_at_checked(18)?;
    let number = u32::from_be_bytes(head[14..].try_into().ok()?);
    // By words: the image has no vector registers.
    let (words, bytes) = rest.as_chunks::<8>();
    let is_whole =
        words.iter().all(|word| *word == [number as u8; 8]) && bytes.iter().all(|byte| *byte == number as u8);
    (head[12..14] == TYPE && is_whole).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut frame = [0; 100];
        write(&mut frame, [1; 6], [2; 6], 0x0102_0304);
        assert_eq!(number(&frame), Some(0x0102_0304));
        for at in [13, 17, 18, 99] {
            let mut wrong = frame;
            wrong[at] ^= 1;
            assert_eq!(number(&wrong), None, "{at}");
        }
        assert_eq!(number(&frame[..17]), None);
    }
}
