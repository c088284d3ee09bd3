//! Bytes that all clients of a server hold together: bodies of requests and answers that are not sent yet.

use axum::body::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that may be held.
#[derive(Clone, Debug)]
pub(crate) struct SharedBytes(Arc<AtomicUsize>);

impl SharedBytes {
    pub fn new(bytes: usize) -> SharedBytes {
        SharedBytes(Arc::new(AtomicUsize::new(bytes)))
    }

    /// A share of no bytes.
    pub fn none(&self) -> Share {
        Share { of: self.clone(), bytes: 0 }
    }

    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A part of the bytes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: SharedBytes,
    bytes: usize,
}

impl Share {
    /// Takes more; `false` if not as many are left.
    pub fn grow(&mut self, more: usize) -> bool {
        let take = |free: usize| free.checked_sub(more);
        let taken = self.of.0.try_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        self.bytes += if taken { more } else { 0 };
        taken
    }

    /// Bytes that count until the last reference to them is dropped: those of an answer while its client reads them.
    pub fn hold(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

struct Held<B> {
    bytes: B,
    _share: Share,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back_when_nobody_refers_to_them() {
        let all = SharedBytes::new(100);
        let (mut one, mut other) = (all.none(), all.none());
        assert!(one.grow(60) && !other.grow(41) && other.grow(40) && !one.grow(1));
        drop(other);
        let bytes = one.hold(vec![7; 60]);
        let part = bytes.slice(50..);
        drop(bytes);
        assert_eq!((all.free(), part[0]), (40, 7));
        drop(part);
        assert_eq!(all.free(), 100);
    }
}
