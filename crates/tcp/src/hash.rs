//! A keyed hash for demultiplexing, sequence numbers and cookies; a generator for everything that only has to
//! differ.

/// The key of SipHash-2-4 (Aumasson and Bernstein, 2012), a pseudo-random function of short messages. Attack:
/// a peer that could predict it would choose ports that share a bucket, or guess sequence numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret(pub [u64; 2]);

impl Secret {
    /// The hash of a message of whole 64-bit words.
    pub(crate) fn hash(&self, words: &[u64]) -> u64 {
        let [k0, k1] = self.0;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        for word in words.iter().copied().chain([(words.len() as u64 * 8) << 56]) {
            v[3] ^= word;
            round(&mut v);
            round(&mut v);
            v[0] ^= word;
        }
        v[2] ^= 0xff;
        for _ in 0..4 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

/// SplitMix64: not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference vectors for the key 00 01 .. 0f and messages of 0 and 8 bytes.
    #[test]
    fn reference_vectors_of_siphash() {
        let key = Secret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        assert_eq!(key.hash(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(key.hash(&[0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn numbers_are_below_their_limit() {
        let mut random = Random(1);
        assert!((1..1000).all(|limit| random.below(limit) < limit));
    }
}
