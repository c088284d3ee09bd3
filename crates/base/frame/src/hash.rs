//! A hash that is the same everywhere.

/// The FNV-1a hash of some bytes, for seeds of names and fingerprints. Attack: it has no key, so tables that peers fill
/// need another.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    #[test]
    fn published_values() {
        // draft-eastlake-fnv, appendix C.
        let hash = |text: &str| super::fnv1a(text.bytes());
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!((hash("a"), hash("foobar")), (0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8));
    }
}
