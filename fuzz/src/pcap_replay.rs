//! Capture files that a port replays.

use ringway_port::pcap::Image;

/// Reads `data` as a file; what is read has the frames that it counts.
pub fn run(data: &[u8]) {
    if let Ok(Image { bytes, frames, .. }) = Image::of(data) {
        assert!(frames > 0 && bytes.len().is_multiple_of(8));
        let mut at = 16;
        for _ in 0..frames {
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
            at += 16 + (word(at + 8) as usize).next_multiple_of(8);
        }
        assert_eq!(at, bytes.len());
    }
}

/// Files of both formats.
pub fn seeds() -> Vec<Vec<u8>> {
    crate::pcap::seeds().into_iter().chain(crate::pcapng::seeds()).collect()
}
