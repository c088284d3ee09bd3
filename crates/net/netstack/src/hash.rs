//! A keyed hash for demultiplexing, sequence numbers and cookies; a generator for everything that only has to
//! differ.

use crate::codec::{Bound, Field, Reader};
use alloc::vec::Vec;
use core::hash::Hasher;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use siphasher::sip::SipHasher24;

/// The key of SipHash-2-4 (Aumasson and Bernstein, 2012), a pseudo-random function of short messages. Attack:
/// a peer that could predict it would choose ports that share a bucket, or guess sequence numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret(pub [u64; 2]);

impl Secret {
    /// The hash of a message of whole 64-bit words.
    pub(crate) fn hash(&self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        words.iter().for_each(|word| hasher.write(&word.to_le_bytes()));
        hasher.finish()
    }
}

/// Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Pcg64Mcg::seed_from_u64(seed))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

/// The state is encoded as the next number, so that the copy makes other numbers.
impl Field for Random {
    fn put(&self, to: &mut Vec<u8>) {
        self.clone().next().put(to);
    }

    fn take(from: &mut Reader<'_>, _: Bound) -> Option<Random> {
        Some(Random::new(u64::take(from, Bound::Any)?))
    }
}
