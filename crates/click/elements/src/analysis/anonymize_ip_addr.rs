//! `AnonymizeIPAddr(CLASS, PRESERVE_8, SEED)`: replaces the addresses of IPv4 packets so that common prefixes stay
//! common and nothing else can be learned about them (as Minshall's tcpdpriv does with -A50; Xu, Fan, Ammar and Moon,
//! "Prefix-preserving IP address anonymization", 2002).
//!
//! Ports: one input, one output, push or pull. The IPv4 header must be marked; its checksum is updated.
//!
//! Arguments:
//! - `CLASS`: number of leading one bits that are preserved, with the following zero: 3 preserves classes A, B and C;
//!   0 by default.
//! - `PRESERVE_8`: networks of 8 bits, separated by spaces, that are preserved.
//! - `SEED`: ignored, as in Click.
//!
//! 0.0.0.0 and 255.255.255.255 are preserved. The key consists of the router's random numbers (`RandomSeed`). It has
//! 64 bits, and the mixing function is not a cipher: an attacker who can choose addresses may learn it. No handlers.
//!
//! The key stays in clones of a snapshot of the function, so that an address is replaced by the same one in all of
//! them, and their output can be compared. Where it must not be, `snapshots = false` permits no clones.
use crate::packet::ipv4_mut;
use ringway_click::arg::Raw;
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::checksum::update_u32;

pub static CLASS: Class = Class::new("AnonymizeIPAddr", || Box::<AnonymizeIpAddr>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

#[derive(Debug)]
pub struct AnonymizeIpAddr {
    key: u64,
    class: u32,
    kept: [bool; 256],
}

impl Default for AnonymizeIpAddr {
    fn default() -> Self {
        Self { key: 0, class: 0, kept: [false; 256] }
    }
}

/// A pseudorandom mix of a number (Steele, Lea, Flood: SplitMix, 2014).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

impl AnonymizeIpAddr {
    /// Flips each bit or not depending on the bits before it, so that equal prefixes stay equal.
    fn change(&self, address: u32) -> u32 {
        if matches!(address, 0 | u32::MAX) {
            return address;
        }
        let mut flips = 0;
        for bit in 0..32 {
            let prefix = u64::from(address).checked_shr(32 - bit).unwrap_or(0) | 1 << bit;
            flips |= (mix(mix(prefix ^ self.key).wrapping_add(self.key)) as u32 & 1) << (31 - bit);
        }
        let ones = (!address).leading_zeros();
        let fixed = (ones.min(self.class) + u32::from(ones < self.class)).min(32);
        let fixed = fixed.max(self.shared(address));
        let kept = u32::MAX.checked_shl(32 - fixed).unwrap_or(0);
        address ^ (flips & !kept)
    }

    /// Number of leading bits of an address to preserve so that the preserved networks are: the longest common prefix
    /// with one of them, and one bit more.
    fn shared(&self, address: u32) -> u32 {
        let net = (address >> 24) as u8;
        let kept = (0..=u8::MAX).filter(|own| self.kept[usize::from(*own)]);
        kept.map(|own| ((own ^ net).leading_zeros() + 1).min(8)).max().unwrap_or(0)
    }
}

impl Element for AnonymizeIpAddr {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut kept, mut seed) = (Raw::default(), Raw::default());
        args.read("CLASS", &mut self.class);
        args.read("PRESERVE_8", &mut kept);
        args.read("SEED", &mut seed);
        args.complete()?;
        if self.class > 32 {
            return Err(cx.error("CLASS must be between 0 and 32"));
        }
        for word in config::split_words(&kept.0) {
            match cx.parse::<u8>(&word) {
                Ok(net) => self.kept[usize::from(net)] = true,
                Err(error) => return Err(cx.error(format!("PRESERVE_8: {word}: {error}"))),
            }
        }
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.key = cx.own_seed();
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let Some(ip) = ipv4_mut(packet) else { continue };
            for field in [&mut ip.source, &mut ip.destination] {
                let (old, new) = (field.get(), self.change(field.get()));
                field.set(new);
                ip.checksum.set(update_u32(ip.checksum.get(), old, new));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn common_prefixes_are_preserved(key: u64, a in 1u32..u32::MAX, b in 1u32..u32::MAX) {
            let element = AnonymizeIpAddr { key, ..AnonymizeIpAddr::default() };
            let (new_a, new_b) = (element.change(a), element.change(b));
            prop_assert_eq!((a ^ b).leading_zeros(), (new_a ^ new_b).leading_zeros());
        }

        #[test]
        fn classes_and_networks_are_preserved(key: u64, address in 1u32..u32::MAX, other in 1u32..u32::MAX) {
            let mut element = AnonymizeIpAddr { key, class: 3, ..AnonymizeIpAddr::default() };
            let class = |address: u32| (!address).leading_zeros().min(3);
            prop_assert_eq!(class(address), class(element.change(address)));
            element.kept[18] = true;
            let is_18 = |address: u32| address >> 24 == 18;
            prop_assert_eq!(is_18(address), is_18(element.change(address)));
            let inside = 18 << 24 | address >> 8;
            prop_assert!(is_18(element.change(inside)));
            let changed = element.change(inside) ^ element.change(other);
            prop_assert_eq!((inside ^ other).leading_zeros(), changed.leading_zeros());
        }
    }
}
