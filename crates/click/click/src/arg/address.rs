//! Addresses, prefixes, ports.
use super::{Arg, ArgError, NameKind, Scope, parse_saturating};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click_lang::config;
use ringway_wire::MacAddress;

fn named<const N: usize>(text: &str, kind: NameKind, scope: &Scope) -> Option<[u8; N]> {
    scope.names().value(kind, text, scope.element_name())?.try_into().ok()
}

/// The address of a network device.
fn of_device<const N: usize>(text: &str, kind: NameKind, scope: &Scope) -> Result<[u8; N], ArgError> {
    let found = scope.names().device(kind, text).and_then(|value| value.try_into().ok());
    found.ok_or(ArgError::Parse)
}

/// An address derived from a prefix: with `:bcast` its broadcast address, with `:gw` its first host.
fn derived(prefix: [u8; 8], suffix: &str) -> Option<Ipv4Addr> {
    let [a, b, c, d, mask @ ..] = prefix;
    let (network, mask) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(mask));
    match suffix {
        "bcast" => Some(Ipv4Addr::from_bits(network | !mask)),
        "gw" => Some(Ipv4Addr::from_bits(network & mask | 1)),
        _ => None,
    }
}

/// An IPv4 address, or a name of one: `NAME:gw` is a device's default gateway.
impl Arg for Ipv4Addr {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let suffixed = text.rsplit_once(':');
        if let Some((name, suffix)) = suffixed
            && let Some(prefix) = named(name, NameKind::Ipv4Prefix, scope)
            && let Some(address) = derived(prefix, suffix)
        {
            return Ok(address);
        }
        let name = text.strip_suffix(":ip").unwrap_or(text);
        if let Some(address) = named::<4>(name, NameKind::Ipv4, scope) {
            return Ok(address.into());
        }
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let Some((name, suffix @ ("gw" | "bcast"))) = suffixed else {
            return of_device::<4>(name, NameKind::Ipv4, scope).map(Self::from);
        };
        match of_device::<4>(name, NameKind::Gateway, scope) {
            Ok(gateway) if suffix == "gw" => Ok(gateway.into()),
            _ => derived(of_device(name, NameKind::Ipv4Prefix, scope)?, suffix).ok_or(ArgError::Parse),
        }
    }
}

/// An IPv6 address, or a name of one.
impl Arg for Ipv6Addr {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let name = text.strip_suffix(":ip6").unwrap_or(text);
        if let Some(address) = named::<16>(name, NameKind::Ipv6, scope) {
            return Ok(address.into());
        }
        text.parse().map_err(|_| ArgError::Parse)
    }
}

/// An Ethernet address: six hexadecimal numbers of one or two digits between colons or dashes, or a name of one.
impl Arg for MacAddress {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let name = text.strip_suffix(":eth").or_else(|| text.strip_suffix(":ethernet")).unwrap_or(text);
        if let Some(address) = named::<6>(name, NameKind::Ethernet, scope) {
            return Ok(MacAddress(address));
        }
        match numbers(text) {
            Some(address) => Ok(MacAddress(address)),
            None => of_device(name, NameKind::Ethernet, scope).map(MacAddress),
        }
    }
}

/// Six hexadecimal numbers.
fn numbers(text: &str) -> Option<[u8; 6]> {
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut address = [0; 6];
    let mut parts = text.split(separator);
    for byte in &mut address {
        let part = parts.next().filter(|part| (1..=2).contains(&part.len()))?;
        if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// An IPv4 prefix: `10.0.0.1/8`, `10.0.0.0/255.0.0.0`, or a name of one. The address may have host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub address: Ipv4Addr,
    /// The mask.
    pub mask: Ipv4Addr,
}

impl Prefix {
    /// Reads one; an address alone counts as a prefix of 32 bits.
    ///
    /// # Errors
    /// [`ArgError::Parse`].
    pub fn or_address(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        Self::parse(text, scope).or_else(|error| match Ipv4Addr::parse(text, scope) {
            Ok(address) => Ok(Self { address, mask: Ipv4Addr::BROADCAST }),
            Err(_) => Err(error),
        })
    }

    /// Whether it contains an address.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & self.mask.to_bits() == 0
    }

    /// Length of the mask, if it is contiguous.
    pub fn length(&self) -> Option<u32> {
        let mask = self.mask.to_bits();
        (mask.leading_ones() + mask.trailing_zeros() >= 32).then(|| mask.leading_ones())
    }
}

/// The mask of this length.
fn mask(length: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - length).unwrap_or(0))
}

/// An address of a prefix without its last numbers, as the `18.26` of `18.26/16`.
fn shortened(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut places = octets.iter_mut();
    for part in text.split('.') {
        *places.next()? = part.parse().ok().filter(|_| part.bytes().all(|digit| digit.is_ascii_digit()))?;
    }
    Some(octets.into())
}

impl Arg for Prefix {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let name = text.strip_suffix(":ipnet").unwrap_or(text);
        if let Some(value) = named::<8>(name, NameKind::Ipv4Prefix, scope) {
            let [a, b, c, d, e, f, g, h] = value;
            return Ok(Self { address: [a, b, c, d].into(), mask: [e, f, g, h].into() });
        }
        let Some((address, length)) = text.rsplit_once('/') else {
            let name = text.strip_suffix(":ipnet").ok_or(ArgError::Parse)?;
            let [a, b, c, d, e, f, g, h] = of_device(name, NameKind::Ipv4Prefix, scope)?;
            return Ok(Self { address: [a, b, c, d].into(), mask: [e, f, g, h].into() });
        };
        let address = Ipv4Addr::parse(address, scope).or_else(|error| shortened(address).ok_or(error))?;
        let mask = match length.parse::<u32>() {
            Ok(length @ 0..=32) => mask(length),
            _ => Ipv4Addr::parse(length, scope)?,
        };
        Ok(Self { address, mask })
    }
}

/// An IPv6 prefix, such as `fe80::1/64`, or a name of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix6 {
    /// The address.
    pub address: Ipv6Addr,
    /// How many of its bits count.
    pub length: u8,
}

impl Arg for Prefix6 {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let name = text.strip_suffix(":ip6net").unwrap_or(text);
        if let Some(value) = named::<17>(name, NameKind::Ipv6Prefix, scope)
            && let Some((address, [length])) = value.split_first_chunk::<16>()
        {
            return Ok(Self { address: (*address).into(), length: *length });
        }
        let (address, length) = text.rsplit_once('/').ok_or(ArgError::Parse)?;
        let address = Ipv6Addr::parse(address, scope)?;
        let length: u8 = length.parse().map_err(|_| ArgError::Parse)?;
        if length > 128 { Err(ArgError::Parse) } else { Ok(Self { address, length }) }
    }
}

/// Addresses between spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipv4List(pub Vec<Ipv4Addr>);

impl Arg for Ipv4List {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let words = config::split_words(text);
        words.iter().map(|word| Ipv4Addr::parse(word, scope)).collect::<Result<_, _>>().map(Self)
    }
}

/// A TCP or UDP port: a number, or a name that PortInfo defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpPort(pub u16);

impl Arg for IpPort {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        for kind in [NameKind::TcpPort, NameKind::UdpPort] {
            if let Some(port) = named::<2>(text, kind, scope) {
                return Ok(Self(u16::from_be_bytes(port)));
            }
        }
        Self::number(text).map(Self)
    }
}

impl IpPort {
    /// The port of this number.
    ///
    /// # Errors
    /// [`ArgError`], with Click's text.
    pub fn number(text: &str) -> Result<u16, ArgError> {
        match parse_saturating(text, 0, u16::MAX.into()) {
            Some((port, false)) => u16::try_from(port).map_err(|_| ArgError::Parse),
            Some(_) => Err(ArgError::other("overflow, range 0-65535")),
            None => Err(ArgError::Parse),
        }
    }
}

/// An address and a port, as `10.0.0.1:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
}

impl Arg for Endpoint {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let (address, port) = text.rsplit_once(':').ok_or(ArgError::Parse)?;
        Ok(Self { address: Ipv4Addr::parse(address, scope)?, port: IpPort::parse(port, scope)?.0 })
    }
}
