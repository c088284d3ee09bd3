//! The CRC of Ethernet (IEEE 802.3, 3.2.9), computed bytewise.

const POLYNOMIAL: u32 = 0xedb8_8320;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// Continues a CRC over further bytes, without the initial and final inversion.
pub(super) fn update(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32_matches_the_check_value() {
        assert_eq!(!super::update(u32::MAX, b"123456789"), 0xcbf4_3926);
    }
}
