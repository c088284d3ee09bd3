//! MAC addresses (IEEE 802-2014, 8.2).

use core::fmt;
use core::str::FromStr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 48-bit MAC address, in the order of transmission.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

/// The text is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: write six pairs of hexadecimal digits, as in 52:54:00:12:34:56")]
pub struct MacAddressError;

impl MacAddress {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Whether this is a group address (multicast or broadcast).
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this address is locally administered.
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// Whether this is the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == MacAddress::BROADCAST
    }

    /// Whether this is a valid station address: neither a group address nor zero.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }

    /// The address as a number below 2^48, in big-endian order.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The reverse of [`MacAddress::to_u64`]; the upper 16 bits are ignored.
    #[inline]
    pub const fn from_u64(number: u64) -> MacAddress {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        MacAddress([a, b, c, d, e, f])
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(bytes: [u8; 6]) -> MacAddress {
        MacAddress(bytes)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    /// Parses six pairs of hexadecimal digits, separated by colons or hyphens.
    fn from_str(text: &str) -> Result<MacAddress, MacAddressError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacAddressError)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacAddressError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacAddressError)?;
        }
        if parts.next().is_some() { Err(MacAddressError) } else { Ok(MacAddress(bytes)) }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for MacAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for MacAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<MacAddress, D::Error> {
        let text = alloc::string::String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn displayed_addresses_parse_again(bytes: [u8; 6]) {
            let address = MacAddress(bytes);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            prop_assert_eq!(address.to_string().replace(':', "-").to_uppercase().parse(), Ok(address));
            prop_assert_eq!(MacAddress::from_u64(address.to_u64()), address);
        }

        #[test]
        fn any_text_gives_an_address_or_an_error(text in "[0-9a-fA-F:+-]{0,20}") {
            if let Ok(address) = text.parse::<MacAddress>() {
                let digits = text.to_lowercase().replace([':', '-'], "");
                prop_assert_eq!(address.to_string().replace(':', ""), digits);
            }
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "52:54:00:12:34:5",
            "+1:00:00:00:00:00",
            "52-54:00-12:34-56",
            "525400123456",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(MacAddressError), "{text}");
        }
    }

    #[test]
    fn group_and_local_bits() {
        let multicast = MacAddress([0x01, 0, 0x5e, 0, 0, 1]);
        assert!(multicast.is_group() && !multicast.is_local() && !multicast.is_unicast());
        let local = MacAddress([0x52, 0x54, 0, 1, 2, 3]);
        assert!(local.is_local() && local.is_unicast());
        assert!(MacAddress::BROADCAST.is_broadcast() && !MacAddress::default().is_unicast());
    }
}
