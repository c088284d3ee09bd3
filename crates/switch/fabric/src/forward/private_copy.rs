//! A copy of a burst in our own memory.

use ringway_frame::{BURST, BURST_BYTES, Burst, LARGEST, Storage};
use ringway_mem::Span;

/// Our own memory, into which frames are copied before delivery, so that delivering them does not touch their source's
/// memory.
#[derive(Default)]
pub struct PrivateCopy {
    storage: Storage,
    bytes: Vec<u8>,
}

impl PrivateCopy {
    /// Copies the frames of `burst`.
    #[cold]
    pub fn copy<'o>(&'o mut self, burst: &Burst<'_>) -> Burst<'o> {
        let PrivateCopy { storage, bytes } = self;
        bytes.resize(BURST_BYTES + LARGEST as usize, 0);
        let (mut copy, mut rest) = (Burst::begin(storage), &mut bytes[..]);
        for index in 0..burst.len().min(BURST) {
            let meta = burst.meta(index);
            let Some((frame, behind)) = rest.split_at_mut_checked(meta.len as usize) else { break };
            burst.read(index, 0, frame);
            if copy.push(meta.offload, Span::of(frame)).is_err() {
                break;
            }
            rest = behind;
        }
        copy
    }
}
