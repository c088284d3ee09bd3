//! Network devices and their addresses (getifaddrs(3), `/proc/net/route`).

use std::ffi::CStr;
use std::net::Ipv4Addr;

/// Attack: a machine with endless routes. Largest size of the routing table that is read, in bytes.
const LARGEST: usize = 1 << 20;
/// The flag of a route through a gateway.
const GATEWAY: u32 = 2;

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub ethernet: Option<[u8; 6]>,
    /// Its primary IPv4 address and its mask.
    pub address: Option<[Ipv4Addr; 2]>,
    /// The gateway of its default route.
    pub gateway: Option<Ipv4Addr>,
}

/// The network devices of this machine; none if they can't be listed.
pub fn network_devices() -> Vec<NetworkDevice> {
    let mut devices = Vec::new();
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a valid place for the list.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return devices;
    }
    let mut next = first;
    // SAFETY: the list and what it points to are valid until it is freed, and its last entry's `next` is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: as above; the name ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        add(device(&mut devices, &name), entry);
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    let routes = crate::read_file("/proc/net/route".as_ref(), LARGEST).unwrap_or_default();
    add_gateways(&mut devices, &String::from_utf8_lossy(&routes));
    devices
}

fn device<'d>(devices: &'d mut Vec<NetworkDevice>, name: &str) -> &'d mut NetworkDevice {
    let at = devices.iter().position(|device| device.name == name).unwrap_or_else(|| {
        devices.push(NetworkDevice { name: name.to_string(), ..NetworkDevice::default() });
        devices.len() - 1
    });
    &mut devices[at]
}

/// Adds the address of an entry.
fn add(device: &mut NetworkDevice, entry: &libc::ifaddrs) {
    // SAFETY: the address is null or valid, and its family says how long it is.
    let Some(family) = unsafe { entry.ifa_addr.as_ref() }.map(|address| address.sa_family) else { return };
    match i32::from(family) {
        libc::AF_INET => {
            let read = |address: *mut libc::sockaddr| {
                // SAFETY: addresses of this family, and their masks, are `sockaddr_in`, which may be unaligned.
                let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
                Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes())
            };
            let mask =
                if entry.ifa_netmask.is_null() { Ipv4Addr::BROADCAST } else { read(entry.ifa_netmask) };
            device.address.get_or_insert([read(entry.ifa_addr), mask]);
        }
        libc::AF_PACKET => {
            // SAFETY: an address of this family is a `sockaddr_ll`, which may be unaligned.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned() };
            if address.sll_hatype == libc::ARPHRD_ETHER {
                device.ethernet = address.sll_addr.first_chunk().copied();
            }
        }
        _ => {}
    }
}

/// Adds the gateways of default routes, given the kernel's table.
fn add_gateways(devices: &mut [NetworkDevice], table: &str) {
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace();
        let (Some(name), Some("00000000"), Some(gateway), Some(flags)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (Ok(gateway), Ok(flags)) = (u32::from_str_radix(gateway, 16), u32::from_str_radix(flags, 16))
        else {
            continue;
        };
        let device = devices.iter_mut().find(|device| device.name == name && flags & GATEWAY != 0);
        if let Some(device) = device {
            device.gateway.get_or_insert(Ipv4Addr::from(gateway.to_ne_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_of_default_routes_are_found() {
        let names = ["lo", "a", "b"];
        let mut devices = names.map(|name| NetworkDevice { name: name.into(), ..NetworkDevice::default() });
        let word = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let (first, second) = (word([10, 0, 0, 1]), word([10, 0, 0, 9]));
        let table = format!(
            "Iface\tDestination\tGateway\tFlags\nb\t0000000A\t{first}\t0003\na\t00000000\t{first}\t0003\n\
             a\t00000000\t{second}\t0003\nlo\t00000000\t00000000\t0001\n"
        );
        add_gateways(&mut devices, &table);
        let gateways = devices.map(|device| device.gateway);
        assert_eq!(gateways, [None, Some(Ipv4Addr::new(10, 0, 0, 1)), None]);
    }

    #[test]
    fn the_loopback_interface_is_listed() {
        let devices = network_devices();
        if let Some(lo) = devices.iter().find(|device| device.name == "lo") {
            assert!(lo.address.is_none_or(|[address, _]| address.is_loopback()));
        }
    }
}
