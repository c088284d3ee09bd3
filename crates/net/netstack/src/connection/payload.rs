//! The bytes of a received segment, where they are: in memory of ours, and in memory that a peer may change.

use ringway_mem::Span;

/// The bytes of a segment. They are copied once, to the receive buffer, and never looked at before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Payload<'a> {
    first: &'a [u8],
    rest: &'a [Span<'a>],
    /// Bytes at the begin that are not wanted, and the number of those that are.
    skip: usize,
    len: usize,
}

impl<'a> Payload<'a> {
    /// `first`, and what follows.
    pub(crate) fn new(first: &'a [u8], rest: &'a [Span<'a>]) -> Payload<'a> {
        let len = first.len() + rest.iter().map(|span| span.len()).sum::<usize>();
        Payload { first, rest, skip: 0, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first `len` bytes.
    pub(crate) fn cut(self, len: usize) -> Payload<'a> {
        Payload { len: len.min(self.len), ..self }
    }

    /// Its bytes from `count` on.
    pub(crate) fn from(self, count: usize) -> Payload<'a> {
        let count = count.min(self.len);
        Payload { skip: self.skip + count, len: self.len - count, ..self }
    }

    /// Its bytes in order.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Span<'a>> {
        let (mut skip, mut left) = (self.skip, self.len);
        core::iter::once(Span::of(self.first)).chain(self.rest.iter().copied()).filter_map(move |piece| {
            let passed = skip.min(piece.len());
            skip -= passed;
            let piece = piece.split(passed).1;
            let piece = piece.split(left.min(piece.len())).0;
            left -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload::new(bytes, &[])
    }
}

#[cfg(test)]
impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Payload<'a> {
        Payload::new(bytes, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_those_of_the_whole(
            lens in prop::collection::vec(0usize..20, 1..6), from in 0usize..60, cut in 0usize..60,
        ) {
            let part = |(part, len): (usize, &usize)| (0..*len).map(|at| (16 * part + at) as u8).collect();
            let parts: Vec<Vec<u8>> = lens.iter().enumerate().map(part).collect();
            let rest: Vec<Span<'_>> = parts[1..].iter().map(|part| Span::of(part)).collect();
            let payload = Payload::new(&parts[0], &rest);
            let whole = parts.concat();
            prop_assert_eq!(payload.len(), whole.len());
            let part = payload.from(from).cut(cut);
            let mut bytes = Vec::new();
            for piece in part.pieces() {
                let mut out = vec![0; piece.len()];
                piece.read(&mut out);
                bytes.extend(out);
            }
            let begin = from.min(whole.len());
            prop_assert_eq!(part.len(), bytes.len());
            prop_assert_eq!(&bytes[..], &whole[begin..(begin + cut).min(whole.len())]);
        }
    }
}
