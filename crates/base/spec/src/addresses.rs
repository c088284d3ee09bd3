//! Addresses that the file, the API and the command line take: each function parses a text, or returns what is wrong
//! with it and the remedy.

use crate::file::units::Wrong;
use crate::names::shown;
use ipnet::IpNet;
use ringway_wire::MacAddress;
use std::net::{IpAddr, SocketAddr};

/// Advice for a text that is not an Ethernet address.
const MAC_FIX: &str = "write six bytes, such as \"02:00:00:00:00:01\"";
/// Advice for a text that is not an address of an interface.
const NET_FIX: &str = "write an address and a prefix length, such as \"10.0.0.1/24\" or \"fd00::1/64\"";

/// An Ethernet address that a frame can be sent to: of a station or of a group.
///
/// # Errors
/// The text is none, or the address is zero.
pub fn destination(text: &str) -> Result<MacAddress, Wrong> {
    let parsed: Result<MacAddress, _> = text.parse();
    let mac = parsed.map_err(|_| (format!("{} is not an Ethernet address", shown(text)), MAC_FIX.into()))?;
    if mac == MacAddress::default() {
        let fix = "use one such as \"02:00:00:00:00:01\"";
        return Err((format!("{mac} is nobody's address"), fix.into()));
    }
    Ok(mac)
}

/// The Ethernet address of a station.
///
/// # Errors
/// The text is none, or it is a group's address or zero.
pub fn station(text: &str) -> Result<MacAddress, Wrong> {
    match destination(text) {
        Ok(mac) if mac.is_group() => {
            let fix = "use one such as \"02:00:00:00:00:01\": the first byte even, not all zero";
            Err((format!("{mac} is a group's address, which no device can have"), fix.into()))
        }
        read => read,
    }
}

/// The address of an interface with the prefix length of its network.
///
/// # Errors
/// The text is none, or no interface can have the address.
pub fn interface_address(text: &str) -> Result<IpNet, Wrong> {
    let none = |fix: &str| (format!("{} is not an interface's address", shown(text)), fix.to_string());
    let Some((address, length)) = text.split_once('/') else {
        return Err(match ip(text) {
            Ok(address) => {
                let usual = if address.is_ipv4() { 24 } else { 64 };
                none(&format!("add the prefix length of its network, as in \"{address}/{usual}\""))
            }
            Err(advice) => none(advice.unwrap_or(NET_FIX)),
        });
    };
    let address = ip(address).map_err(|advice| none(advice.unwrap_or(NET_FIX)))?;
    let most: u8 = if address.is_ipv4() { 32 } else { 128 };
    let is_number = length.bytes().all(|digit| digit.is_ascii_digit()) && !length.starts_with('0');
    let length: u8 = length
        .parse()
        .ok()
        .filter(|length| is_number && (1..=most).contains(length))
        .ok_or_else(|| none(&format!("a prefix length is a number from 1 to {most}")))?;
    let net = IpNet::new(address, length).map_err(|_| none(NET_FIX))?;
    host(address).map_err(|what| (what, "use an address of a single host".to_string()))?;
    // RFC 3021 and RFC 6164: networks of two addresses have only hosts.
    let has_more = net.max_prefix_len() - net.prefix_len() > 1;
    let example = || format!("use another address of the network, such as {}", first_host(&net));
    if has_more && address == net.network() {
        return Err((format!("{address} is the address of the network {}", net.trunc()), example()));
    }
    if has_more && address.is_ipv4() && address == net.broadcast() {
        return Err((
            format!("{address} is the broadcast address of the network {}", net.trunc()),
            example(),
        ));
    }
    Ok(net)
}

/// The addresses of a network, or a single one.
///
/// # Errors
/// The text is none, or has an address within the network.
pub fn network(text: &str) -> Result<IpNet, Wrong> {
    const FIX: &str =
        "write an address or a network, such as \"10.0.0.2\", \"10.0.1.0/24\" or \"2001:db8::/64\"";
    let none = |fix: &str| (format!("{} is neither an address nor a network", shown(text)), fix.to_string());
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let address = ip(address).map_err(|advice| none(advice.unwrap_or(FIX)))?;
    let most: u8 = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        None => most,
        Some(length) => {
            let is_number = length.bytes().all(|digit| digit.is_ascii_digit());
            let read = length.parse().ok().filter(|length| is_number && *length <= most);
            read.ok_or_else(|| none(&format!("a prefix length is a number from 0 to {most}")))?
        }
    };
    let net = IpNet::new(address, length).map_err(|_| none(FIX))?;
    if net.network() != address {
        let fix = format!("write {} for the network, or {address} for the address", net.trunc());
        return Err((format!("{address} is an address within the network {}", net.trunc()), fix));
    }
    Ok(net)
}

/// The first address of a host in a network of more than two.
fn first_host(net: &IpNet) -> String {
    net.hosts().find(|host| *host != net.network()).map_or_else(String::new, |host| host.to_string())
}

/// The address of the next hop to other networks, for a host with these addresses, if they are known.
///
/// # Errors
/// The text is none, or the host can't reach the address.
pub fn gateway(text: &str, own: Option<&[IpNet]>) -> Result<IpAddr, Wrong> {
    let address = single_host(text, "write the next hop's address, such as \"10.0.0.1\"")?;
    let of_its_kind: Vec<&IpNet> =
        own.unwrap_or_default().iter().filter(|net| net.addr().is_ipv4() == address.is_ipv4()).collect();
    if of_its_kind.iter().any(|net| net.addr() == address) {
        let fix = "a gateway is another host of the network";
        return Err((format!("{address} is its own address"), fix.into()));
    }
    // Each interface with an IPv6 address has a link-local one too (RFC 4291, 2.8).
    let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if own.is_none() || (is_link_local && !of_its_kind.is_empty()) {
        return Ok(address);
    }
    if !of_its_kind.iter().any(|net| net.contains(&address)) {
        let nets: Vec<String> = of_its_kind.iter().map(|net| net.trunc().to_string()).collect();
        let fix = match nets.is_empty() {
            true => format!("add an IPv{} address", if address.is_ipv4() { 4 } else { 6 }),
            false => format!("use an address in {}", nets.join(" or ")),
        };
        return Err((format!("{address} is on none of its networks"), fix));
    }
    // RFC 3021: the addresses of a network of two are hosts'.
    let ends = of_its_kind.iter().filter(|net| net.max_prefix_len() - net.prefix_len() > 1);
    if let Some(net) = ends.clone().find(|net| address.is_ipv4() && address == net.broadcast()) {
        let fix = format!("use a host's address, such as {}", first_host(net));
        return Err((format!("{address} is the broadcast address of the network {}", net.trunc()), fix));
    }
    // RFC 4291, 2.6.1: in IPv6 it is that of all its routers.
    if let Some(net) = ends.clone().find(|net| address.is_ipv4() && address == net.network()) {
        let fix = format!("use a host's address, such as {}", first_host(net));
        return Err((format!("{address} is the address of the network {}", net.trunc()), fix));
    }
    Ok(address)
}

/// The address of a server of a host's network or behind it, such as a name server.
///
/// # Errors
/// The text is none, or no single host can have the address.
pub fn server(text: &str) -> Result<IpAddr, Wrong> {
    single_host(text, "write the server's address, such as \"10.0.0.1\"")
}

/// The address of a single host, or what is wrong with it and `fix`.
fn single_host(text: &str, fix: &str) -> Result<IpAddr, Wrong> {
    let none =
        |advice: Option<&str>| (format!("{} is no address", shown(text)), advice.unwrap_or(fix).into());
    let address = ip(text).map_err(none)?;
    host(address).map_err(|what| (what, fix.to_string()))?;
    Ok(address)
}

/// An IP address in its usual form; otherwise advice, if the text is one in another form.
fn ip(text: &str) -> Result<IpAddr, Option<&'static str>> {
    let is_octal = |part: &str| {
        part.len() > 1 && part.starts_with('0') && part.bytes().all(|digit| digit.is_ascii_digit())
    };
    text.parse().map_err(|_| {
        let has_zeros = !text.contains(':') && text.split('.').any(is_octal);
        // inet_aton(3) reads 010 as 8, other functions as 10.
        has_zeros.then_some("leave out leading zeros: some programs read them as octal numbers")
    })
}

/// Whether a single host can have an address; if not, what it is.
fn host(address: IpAddr) -> Result<(), String> {
    let what = match address {
        _ if address.is_unspecified() => "the unspecified address, nobody's",
        _ if address.is_multicast() => "a multicast address, a group's",
        _ if address.is_loopback() => "a loopback address, of each host itself",
        IpAddr::V4(address) if address.is_broadcast() => "the broadcast address",
        // RFC 1122, 3.2.1.3: addresses of "this network".
        IpAddr::V4(address) if address.octets()[0] == 0 => "an address of \"this network\"",
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => "an IPv4 address inside an IPv6 one",
        _ => return Ok(()),
    };
    Err(format!("{address} is {what}"))
}

/// The address and port of a service to listen on or to connect to. Port 0 lets the system choose one to listen on.
///
/// # Errors
/// The text is none.
pub fn endpoint(text: &str) -> Result<SocketAddr, Wrong> {
    let fix =
        "write an address and a port from 1 to 65535, such as \"10.0.0.5:10263\" or \"[fd00::5]:10263\"";
    let endpoint: SocketAddr = text.parse().map_err(|_| {
        let address = text.rsplit_once(':').map_or(text, |(address, _)| address);
        let advice = ip(address).err().flatten().unwrap_or(fix);
        (format!("{} is not an address with a port", shown(text)), advice.to_string())
    })?;
    if endpoint.ip().is_multicast() {
        return Err((format!("{} is a multicast address", endpoint.ip()), fix.into()));
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wrong(text: &str) -> String {
        interface_address(text).map_or_else(|(what, fix)| format!("{what}; {fix}"), |net| net.to_string())
    }

    proptest! {
        #[test]
        fn an_accepted_address_is_written_the_same_way(text in "[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,3}") {
            if let Ok(net) = interface_address(&text) {
                prop_assert_eq!(net.to_string(), text);
            }
        }

        #[test]
        fn every_text_gives_an_address_or_advice(text in "\\PC{0,40}|[0-9a-f:./]{0,40}") {
            let fixes = [
                interface_address(&text).err(),
                gateway(&text, None).err(),
                gateway(&text, Some(&[])).err(),
                endpoint(&text).err(),
                station(&text).err(),
                destination(&text).err(),
            ];
            for (what, fix) in fixes.into_iter().flatten() {
                prop_assert!(!what.is_empty() && !fix.is_empty());
            }
        }

        #[test]
        fn a_gateway_is_another_host(bytes: [u8; 4], length in 8_u8..=32, own: u32, other: u32) {
            let net = IpNet::new(IpAddr::from(bytes), length).unwrap().trunc();
            let size = 1_u64 << (32 - length);
            let at = |offset: u32| {
                let IpAddr::V4(first) = net.addr() else { unreachable!() };
                // Often an end of the network.
                let offset = [0, size - 1, u64::from(offset) % size][offset as usize % 3];
                IpAddr::from((first.to_bits() + offset as u32).to_be_bytes())
            };
            let (own, other) = (at(own), at(other));
            let ends = if length < 31 { vec![net.network(), net.broadcast()] } else { vec![] };
            let is_host = host(other).is_ok() && other != own && !ends.contains(&other);
            let own = [IpNet::new(own, length).unwrap()];
            prop_assert_eq!(gateway(&other.to_string(), Some(&own)).is_ok(), is_host);
        }

        #[test]
        fn hosts_of_a_network_are_accepted(bytes: [u8; 4], length in 8_u8..=30) {
            let net = IpNet::new(IpAddr::from(bytes), length).unwrap();
            let is_good = interface_address(&net.to_string()).is_ok();
            let is_host = host(net.addr()).is_ok() && ![net.network(), net.broadcast()].contains(&net.addr());
            prop_assert_eq!(is_good, is_host);
        }
    }

    #[test]
    fn addresses_that_no_interface_can_have_are_refused() {
        for good in ["10.0.0.1/24", "fd00::1/64", "10.0.0.0/31", "10.0.0.1/32", "fd00::/127", "fe80::1/64"] {
            assert_eq!(wrong(good), good);
        }
        for (text, message) in [
            ("010.0.0.1/24", "leave out leading zeros"),
            ("10.0.0.1", "add the prefix length of its network, as in \"10.0.0.1/24\""),
            ("fd00::1", "as in \"fd00::1/64\""),
            ("10.0.0.1/024", "a prefix length is a number from 1 to 32"),
            ("10.0.0.1/+24", "a prefix length is a number from 1 to 32"),
            ("10.0.0.1/0", "a prefix length is a number from 1 to 32"),
            ("fd00::1/129", "a prefix length is a number from 1 to 128"),
            ("0.0.0.0/24", "0.0.0.0 is the unspecified address"),
            ("::/64", ":: is the unspecified address"),
            ("224.0.0.1/24", "224.0.0.1 is a multicast address"),
            ("ff02::1/64", "ff02::1 is a multicast address"),
            ("255.255.255.255/32", "255.255.255.255 is the broadcast address"),
            ("127.0.0.1/8", "127.0.0.1 is a loopback address"),
            ("0.1.2.3/8", "0.1.2.3 is an address of \"this network\""),
            ("10.0.0.0/24", "10.0.0.0 is the address of the network 10.0.0.0/24; use another"),
            ("10.0.0.255/24", "10.0.0.255 is the broadcast address of the network 10.0.0.0/24"),
            (
                "fd00::/64",
                "fd00:: is the address of the network fd00::/64; use another address of the network",
            ),
            ("10.0.0.256/24", "write an address and a prefix length"),
            ("", "write an address and a prefix length"),
        ] {
            assert!(wrong(text).contains(message), "{text}: {}", wrong(text));
        }
    }

    #[test]
    fn gateways_are_inside_their_networks() {
        let own = |nets: &[&str]| nets.iter().map(|net| net.parse().unwrap()).collect::<Vec<IpNet>>();
        let message = |text: &str, nets: &[&str]| {
            gateway(text, Some(&own(nets)))
                .map_or_else(|(what, fix)| format!("{what}; {fix}"), |address| address.to_string())
        };
        assert_eq!(message("10.0.0.1", &["10.0.0.2/24"]), "10.0.0.1");
        assert_eq!(message("fe80::1", &["fd00::2/64"]), "fe80::1");
        let elsewhere = message("10.0.1.1", &["10.0.0.2/24", "fd00::2/64"]);
        assert_eq!(elsewhere, "10.0.1.1 is on none of its networks; use an address in 10.0.0.0/24");
        assert!(message("10.0.0.2", &["10.0.0.2/24"]).contains("is its own address"));
        assert!(message("fe80::1", &["10.0.0.2/24"]).contains("add an IPv6 address"));
        assert!(message("010.0.0.1", &[]).contains("leave out leading zeros"));
        assert!(message("0.0.0.0", &["10.0.0.2/24"]).contains("unspecified"));
        assert_eq!(
            message("10.0.0.255", &["10.0.0.2/24"]),
            "10.0.0.255 is the broadcast address of the network 10.0.0.0/24; \
             use a host's address, such as 10.0.0.1"
        );
        assert!(message("10.0.0.0", &["10.0.0.2/24"]).contains("is the address of the network 10.0.0.0/24"));
        // Of another network that the host has.
        assert!(message("10.0.0.127", &["10.0.0.2/24", "10.0.0.3/25"]).contains("10.0.0.0/25"));
        assert_eq!(message("10.0.0.1", &["10.0.0.0/31"]), "10.0.0.1");
        assert_eq!(gateway("192.0.2.1", None), Ok(IpAddr::from([192, 0, 2, 1])));
    }

    #[test]
    fn ethernet_addresses_are_of_stations_or_groups() {
        assert!(station("02:00:00:00:00:01").is_ok() && destination("ff:ff:ff:ff:ff:ff").is_ok());
        assert!(station("01:00:5e:00:00:01").unwrap_err().0.contains("a group's address"));
        assert!(station("00:00:00:00:00:00").is_err() && destination("00:00:00:00:00:00").is_err());
        assert!(station("2:0:0:0:0:1").unwrap_err().1.contains("write six bytes"));
    }

    #[test]
    fn endpoints_have_ports() {
        assert!(endpoint("127.0.0.1:10263").is_ok() && endpoint("[::1]:1").is_ok());
        for text in ["10.0.0.1", "10.0.0.1:65536", "10.0.0.1:", "localhost:80", "224.0.0.1:80", ":80"] {
            assert!(endpoint(text).unwrap_err().1.contains("from 1 to 65535"), "{text}");
        }
        assert!(endpoint("010.0.0.1:80").unwrap_err().1.contains("leading zeros"));
    }
}
