//! Output waiting to be sent.
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Size in bytes from which a part is not extended, and a value not copied: copying megabytes would delay packets.
const WHOLE: usize = 1 << 14;

/// Bytes to send, in parts.
#[derive(Debug, Default)]
pub(super) struct Output {
    parts: VecDeque<Vec<u8>>,
    /// Number of bytes of the first part already sent.
    at: usize,
    waiting: usize,
}

impl Output {
    /// Number of waiting bytes.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// The next bytes to send; empty if there are none.
    pub(super) fn first(&self) -> &[u8] {
        self.parts.front().and_then(|part| part.get(self.at..)).unwrap_or_default()
    }

    /// Adds bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.waiting += bytes.len();
        match self.parts.back_mut().filter(|last| last.len() < WHOLE) {
            Some(last) => last.extend_from_slice(bytes),
            None if bytes.is_empty() => {}
            None => self.parts.push_back(bytes.to_vec()),
        }
    }

    /// As `add`, without a copy of long values.
    pub(super) fn add_whole(&mut self, bytes: Vec<u8>) {
        if bytes.len() < WHOLE {
            return self.add(&bytes);
        }
        self.waiting += bytes.len();
        self.parts.push_back(bytes);
    }

    /// Adds output of which nothing was sent, without a copy; takes time only for the parts already here.
    pub(super) fn append(&mut self, mut more: Self) {
        while let Some(part) = self.parts.pop_back() {
            more.parts.push_front(part);
        }
        self.waiting += more.waiting;
        self.parts = more.parts;
    }

    /// Records that this many bytes of the first part were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        let left = self.first().len();
        let bytes = bytes.min(left);
        self.waiting -= bytes;
        self.at += bytes;
        if bytes == left {
            self.parts.pop_front();
            self.at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn output_is_written_in_order(
            lengths in prop::collection::vec(prop_oneof![0..100_usize, WHOLE - 2..WHOLE + 2], 0..20),
            steps in prop::collection::vec(1..40_000_usize, 1..5),
        ) {
            let (mut output, mut expected, mut got) = (Output::default(), Vec::new(), Vec::new());
            for (number, length) in lengths.into_iter().enumerate() {
                let bytes = vec![number as u8; length];
                expected.extend_from_slice(&bytes);
                match number % 3 {
                    0 => output.add(&bytes),
                    1 => output.add_whole(bytes),
                    _ => {
                        let mut more = Output::default();
                        bytes.chunks(100).for_each(|bytes| more.add(bytes));
                        output.append(more);
                    }
                }
                // Some of it is sent meanwhile.
                let sent = output.first().len().min(number);
                got.extend_from_slice(&output.first()[..sent]);
                output.sent(sent);
            }
            for step in steps.into_iter().cycle() {
                prop_assert_eq!(output.len(), expected.len() - got.len());
                let step = step.min(output.first().len());
                if step == 0 {
                    break;
                }
                got.extend_from_slice(&output.first()[..step]);
                output.sent(step);
            }
            prop_assert_eq!(got, expected);
        }
    }
}
