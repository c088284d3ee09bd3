//! `AddressInfo(NAME ADDRESS ..., ...)`: names addresses.
//!
//! No ports, no handlers. The names are valid in its compound element and in those inside.
//!
//! Arguments: in each, a name and any number of addresses: IPv4 and IPv6 addresses and prefixes, Ethernet addresses.
//! Which one is meant depends on where the name is used, or on a suffix: `NAME:ip`, `NAME:ipnet`, `NAME:ip6`,
//! `NAME:ip6net`, `NAME:eth`; `NAME:bcast` is the last address of the IPv4 prefix, `NAME:gw` its first host. A prefix
//! with host bits defines the address too, which is preferred where both are possible.
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::arg::{Arg, NameKind, Prefix, Prefix6};
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::MacAddress;

pub static CLASS: Class =
    Class::new("AddressInfo", || Box::<AddressInfo>::default()).phase(Class::INFO).reach(Reach::Each);

#[derive(Debug, Default)]
pub struct AddressInfo;

/// The values that an address text defines; empty if it is not an address.
fn meanings(text: &str, cx: &Context<'_>) -> Vec<(NameKind, Vec<u8>)> {
    let scope = cx.scope();
    if let Ok(address) = Ipv4Addr::parse(text, &scope) {
        return [(NameKind::Ipv4, address.octets().into())].into();
    }
    if let Ok(prefix) = Prefix::parse(text, &scope) {
        let (address, mask) = (prefix.address.to_bits(), prefix.mask.to_bits());
        let network = [(address & mask).to_be_bytes(), mask.to_be_bytes()].concat();
        let host = (address & !mask != 0).then(|| (NameKind::Ipv4, address.to_be_bytes().into()));
        return [(NameKind::Ipv4Prefix, network)].into_iter().chain(host).collect();
    }
    if let Ok(address) = MacAddress::parse(text, &scope) {
        return [(NameKind::Ethernet, address.0.into())].into();
    }
    if let Ok(address) = Ipv6Addr::parse(text, &scope) {
        return [(NameKind::Ipv6, address.octets().into())].into();
    }
    let Ok(prefix) = Prefix6::parse(text, &scope) else { return Vec::new() };
    let (address, length) = (prefix.address.to_bits(), prefix.length);
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    let network = [&(address & mask).to_be_bytes()[..], &[length]].concat();
    let host = (address & !mask != 0).then(|| (NameKind::Ipv6, address.to_be_bytes().into()));
    [(NameKind::Ipv6Prefix, network)].into_iter().chain(host).collect()
}

impl Element for AddressInfo {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for argument in args.take_rest() {
            let words = config::split_words(&argument);
            let Some((name, addresses)) = words.split_first() else { continue };
            if addresses.is_empty() {
                args.error(format!("expected 'NAME ADDRESS ...', not '{argument}'"));
            }
            for address in addresses {
                let meanings = meanings(address, cx);
                if meanings.is_empty() {
                    args.error(format!("{name}: '{address}' is not an address"));
                }
                for (kind, value) in meanings {
                    args.scope().names().define(kind, name, cx.name(), &value);
                }
            }
        }
        args.complete()
    }
}
