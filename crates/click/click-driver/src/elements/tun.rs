//! Host interfaces of elements: creating them, and receiving packets.
use super::link::{ETHERNET, RAW, mark_ip};
use crate::file::reason;
use ringway_click::arg::{ArgError, Args, Prefix, Scope, Word};
use ringway_click::{Context, Failed, HEADROOM, Packet};
use ringway_host::{TunSettings, open_tun};
use ringway_wire::MacAddress;
use rustix::io::Errno;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of an Ethernet header, and with a VLAN tag.
const ETHER: usize = 14;
const TAGGED: usize = 18;
/// Maximum headroom, as in Click.
const MOST_ROOM: u32 = 8192;

/// Reads an address and its network.
pub fn prefix(text: &str, scope: &Scope) -> Result<Option<Prefix>, ArgError> {
    Prefix::or_address(text, scope).map(Some)
}

/// Result of receiving.
pub enum Taken {
    /// No packet is available.
    Nothing,
    /// A packet, and whether it has the expected form: a frame, or an IP packet.
    Packet(Packet, bool),
}

/// An interface of the host's.
#[derive(Default)]
pub struct Tun {
    /// Whether it carries Ethernet frames instead of IP packets.
    pub frames: bool,
    /// Its name.
    pub name: String,
    /// The largest packet, without its link header.
    pub mtu: u16,
    /// Whether it is brought up even without an address.
    pub is_up: bool,
    headroom: u32,
    address: Option<Prefix>,
    gateway: Option<Ipv4Addr>,
    mac: Option<MacAddress>,
    /// Set after the first error, since only one is reported.
    quiet: bool,
    reported: bool,
    descriptor: Option<OwnedFd>,
    buffer: Vec<u8>,
}

impl Tun {
    /// An interface for frames or IP packets.
    pub fn new(frames: bool) -> Self {
        Self { frames, ..Self::default() }
    }

    /// Reads its arguments except for the name and the address.
    pub fn read(&mut self, args: &mut Args) {
        let (mut gateway, mut mac) = (Ipv4Addr::UNSPECIFIED, MacAddress::default());
        (self.mtu, self.headroom) = (1500, HEADROOM as u32);
        args.read_p("GATEWAY", &mut gateway);
        args.read("HEADROOM", &mut self.headroom);
        if args.read("ETHER", &mut mac) {
            self.mac = Some(mac);
        }
        args.read("IGNORE_QUEUE_OVERFLOWS", &mut self.quiet);
        args.read("MTU", &mut self.mtu);
        self.gateway = Some(gateway).filter(|gateway| !gateway.is_unspecified());
    }

    /// Sets its name and address, and validates the arguments.
    pub fn settle(
        &mut self,
        name: Word,
        address: Option<Prefix>,
        cx: &mut Context<'_>,
    ) -> Result<(), Failed> {
        (self.name, self.address) = (name.0, address);
        let within = |Prefix { address, mask }: &Prefix, gateway: Ipv4Addr| {
            (address.to_bits() ^ gateway.to_bits()) & mask.to_bits() == 0
        };
        if let (Some(address), Some(gateway)) = (&self.address, self.gateway)
            && !within(address, gateway)
        {
            return Err(cx.error("bad GATEWAY"));
        }
        if self.mtu < 20 {
            return Err(cx.error("MTU must be greater than 20"));
        }
        if self.headroom > MOST_ROOM {
            return Err(cx.error("HEADROOM too big"));
        }
        Ok(())
    }

    /// Creates the interface. The element is then notified of packets.
    pub fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let length = |prefix: &Prefix| prefix.length().map(|length| (prefix.address, length as u8));
        let settings = TunSettings {
            name: Some(self.name.clone()).filter(|name| !name.is_empty()),
            frames: self.frames,
            mtu: self.mtu,
            mac: self.mac.map(|mac| mac.0),
            is_up: self.is_up,
            address: self.address.as_ref().and_then(length),
            gateway: self.gateway,
        };
        let (descriptor, name) = open_tun(&settings).map_err(|error| cx.error(error.to_string()))?;
        self.buffer = vec![0; usize::from(self.mtu) + TAGGED];
        self.name = name;
        self.descriptor = Some(descriptor);
        self.watch(true, cx);
        Ok(())
    }

    /// Enables or disables the notification of packets.
    pub fn watch(&self, readable: bool, cx: &mut Context<'_>) {
        if let Some(descriptor) = &self.descriptor {
            cx.select(descriptor.as_raw_fd(), readable, false);
        }
    }

    /// A handle of this interface for another element.
    pub fn share(&self) -> Option<Tun> {
        let descriptor = self.descriptor.as_ref()?.try_clone().ok()?;
        let (name, mtu) = (self.name.clone(), self.mtu);
        Some(Tun { frames: self.frames, name, mtu, descriptor: Some(descriptor), ..Tun::default() })
    }

    /// Takes a packet from the host.
    pub fn take(&mut self, cx: &mut Context<'_>) -> Taken {
        let Some(descriptor) = &self.descriptor else { return Taken::Nothing };
        let count = match rustix::io::read(descriptor, &mut self.buffer[..]) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Taken::Nothing,
            Err(error) => {
                self.complain("read", error, cx);
                return Taken::Nothing;
            }
        };
        let Some(mut packet) = cx.make_packet(self.headroom as usize, count, 0) else {
            return Taken::Nothing;
        };
        packet.data_mut().copy_from_slice(&self.buffer[..count]);
        packet.set_timestamp(cx.packet_time());
        if self.frames {
            packet.set_mac_header(0);
            mark_ip(&mut packet, ETHERNET);
            return Taken::Packet(packet, true);
        }
        let is_ip = mark_ip(&mut packet, RAW);
        Taken::Packet(packet, is_ip)
    }

    /// Sends a packet to the host. False, with a report, on failure.
    pub fn give(&mut self, packet: &Packet, cx: &mut Context<'_>) -> bool {
        let data = if self.frames { Some(packet.data()) } else { packet.network_data() };
        let (data, link) = (data.unwrap_or_default(), if self.frames { ETHER } else { 0 });
        let fault = match data.first().map(|first| first >> 4) {
            _ if self.frames && data.len() < ETHER => "packet too small".to_string(),
            _ if !self.frames && data.len() < 20 => "no network header".to_string(),
            Some(version) if !self.frames && !matches!(version, 4 | 6) => {
                format!("unknown IP version {version}")
            }
            _ if data.len() - link > usize::from(self.mtu) => {
                format!("packet larger than MTU ({})", self.mtu)
            }
            _ => String::new(),
        };
        if !fault.is_empty() {
            self.say(&fault, cx);
            return false;
        }
        let Some(descriptor) = &self.descriptor else { return false };
        match rustix::io::write(descriptor, data) {
            Ok(_) => true,
            Err(error) => {
                self.complain("write", error, cx);
                false
            }
        }
    }

    fn complain(&mut self, what: &str, error: Errno, cx: &mut Context<'_>) {
        if !(self.quiet && error == Errno::NOBUFS) || !self.reported {
            self.say(&format!("{what} failed: {}", reason(&error.into())), cx);
        }
    }

    /// Attack: a log line for each packet. Only the first error is reported; all are counted.
    fn say(&mut self, text: &str, cx: &mut Context<'_>) {
        if !core::mem::replace(&mut self.reported, true) {
            let element = cx.declaration();
            cx.chatter(format_args!("{element}({}): {text}", self.name));
        }
    }
}
