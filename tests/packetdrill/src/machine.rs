//! The stack, its descriptors and its clock.

use crate::poll::Epoll;
use crate::sockets::Socket;
use crate::sysctl;
use ringway_frame::{Needs, Offload};
use ringway_netstack::{Cidr, Frames, InterfaceConfig, SECOND, Settings, Stack};
use ringway_wire::icmp::v6;
use ringway_wire::{EtherType, Ethernet, Header, Protocol};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The first descriptor. packetdrill's own ones are smaller.
pub const FIRST: i32 = 1000;
/// The time of day at which a script begins, in seconds.
const EPOCH: u64 = 1_700_000_000;
/// The stack's link-layer address, and the gateway's.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// What a descriptor stands for.
#[derive(Debug)]
pub enum File {
    Socket(Socket),
    Epoll(Epoll),
    /// A descriptor of the kernel: an end of a pipe.
    Kernel(i32),
}

/// A host: a stack with one interface, whose gateway is another stack that only answers for its address.
#[derive(Debug)]
pub struct Machine {
    /// Nanoseconds since the beginning.
    pub now: u64,
    pub stack: Stack,
    gateway: Stack,
    pub files: Vec<Option<File>>,
    /// Packets that packetdrill has not read, and when they were sent.
    sent: VecDeque<(u64, Vec<u8>)>,
    /// When calls end that wait for a limited time.
    pub alarms: Vec<u64>,
    settings: Settings,
}

impl Machine {
    /// `flags`: addresses with the length of their network, and `mtu=` for the interface's MTU. The gateway has the
    /// address after each.
    pub fn new(flags: &str) -> Machine {
        let settings = sysctl::settings();
        let mut config = [(); 2].map(|()| InterfaceConfig {
            mac: MACS[0].into(),
            mtu: 1500,
            addresses: Vec::new(),
            offloads: offloads(),
        });
        config[1].mac = MACS[1].into();
        let mut gateways = Vec::new();
        for flag in flags.split_whitespace() {
            if let Some(mtu) = flag.strip_prefix("mtu=").and_then(|mtu| mtu.parse().ok()) {
                config[0].mtu = mtu;
            } else if let Ok(network) = flag.parse::<Cidr>() {
                let gateway = following(network.address);
                config[0].addresses.push(network);
                config[1].addresses.push(Cidr::new(gateway, network.prefix));
                gateways.push(gateway);
            }
        }
        let [own, other] = config;
        let mut stack = Stack::new(settings.clone(), [1, 2]);
        stack.add_interface(own);
        for gateway in gateways {
            let any: IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
            stack.add_route(Cidr::new(any, 0), gateway, 0);
        }
        let mut gateway = Stack::new(Settings::default(), [3, 4]);
        gateway.add_interface(other);
        Machine {
            now: SECOND,
            stack,
            gateway,
            files: Vec::new(),
            sent: VecDeque::new(),
            alarms: Vec::new(),
            settings,
        }
    }

    /// Applies settings that the script has changed.
    pub fn refresh(&mut self) {
        self.stack.expire(self.now);
        if sysctl::flushed() {
            self.stack.forget_servers();
        }
        self.stack.set_offloads(0, offloads());
        let settings = sysctl::settings();
        if settings != self.settings {
            self.stack.set_settings(settings.clone());
            self.settings = settings;
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The time of day in microseconds.
    pub fn micros(nanos: u64) -> i64 {
        (EPOCH * 1_000_000 + nanos / 1000) as i64
    }

    /// Delivers an IP packet to the stack.
    pub fn deliver(&mut self, packet: &[u8]) {
        let kind =
            if packet.first().is_some_and(|byte| byte >> 4 == 4) { EtherType::IPV4 } else { EtherType::IPV6 };
        let header = Ethernet { destination: MACS[0].into(), source: MACS[1].into(), ethertype: kind };
        let frame = [header.bytes(), packet].concat();
        let before = self.stack.statistics().out_of_window_icmps;
        self.stack.receive(self.now, 0, &frame, Offload::default());
        let count = self.stack.statistics().out_of_window_icmps;
        if count > before {
            sysctl::count("TcpExtOutOfWindowIcmps", count);
        }
        self.flush();
    }

    /// Sends what the stack can send.
    pub fn flush(&mut self) {
        let mut frames = if sysctl::is_full() { Frames::new(0) } else { Frames::default() };
        loop {
            self.stack.transmit(self.now, 0, &mut frames);
            if frames.is_empty() {
                break;
            }
            let mut questions = Vec::new();
            for (frame, _) in frames.iter() {
                if is_for_gateway(frame) {
                    questions.push(frame.to_vec());
                } else {
                    self.sent.push_back((self.now, frame[Ethernet::LEN..].to_vec()));
                }
            }
            frames.clear();
            for frame in questions {
                self.ask_gateway(&frame);
            }
        }
        self.tell();
    }

    fn ask_gateway(&mut self, frame: &[u8]) {
        let mut answers = Frames::default();
        self.gateway.receive(self.now, 0, frame, Offload::default());
        self.gateway.transmit(self.now, 0, &mut answers);
        for (answer, offload) in answers.iter() {
            self.stack.receive(self.now, 0, answer, offload);
        }
    }

    /// Passes time until `until`, at most to the next deadline. `false`: `until` was reached.
    pub fn step(&mut self, until: u64) -> bool {
        let alarm = self.alarms.iter().min().copied();
        let Some(due) = self.stack.next_timer().into_iter().chain(alarm).min().filter(|due| *due <= until)
        else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(due);
        let now = self.now;
        self.alarms.retain(|alarm| *alarm > now);
        self.stack.expire(now);
        self.flush();
        true
    }

    /// The oldest packet that was not read.
    pub fn next_sent(&mut self) -> Option<(u64, Vec<u8>)> {
        self.sent.pop_front()
    }

    /// Adds a descriptor.
    pub fn add(&mut self, file: File) -> i32 {
        self.files.push(Some(file));
        FIRST + self.files.len() as i32 - 1
    }

    pub fn file(&mut self, fd: i32) -> Result<&mut File, i32> {
        let index = usize::try_from(fd - FIRST).map_err(|_| libc::EBADF)?;
        self.files.get_mut(index).and_then(Option::as_mut).ok_or(libc::EBADF)
    }

    pub fn socket(&mut self, fd: i32) -> Result<&mut Socket, i32> {
        match self.file(fd)? {
            File::Socket(socket) => Ok(socket),
            _ => Err(libc::ENOTSOCK),
        }
    }

    /// Removes a descriptor.
    pub fn remove(&mut self, fd: i32) -> Result<File, i32> {
        self.file(fd)?;
        self.files[(fd - FIRST) as usize].take().ok_or(libc::EBADF)
    }
}

/// What the interface does, as the script wants it now.
fn offloads() -> Needs {
    if sysctl::segments() { Needs::ALL } else { Needs::NONE }
}

/// Whether a frame is a question for a link-layer address or an answer to one.
fn is_for_gateway(frame: &[u8]) -> bool {
    let ethertype = Ethernet::of(frame).map(|header| header.ethertype);
    let discovery = frame.get(Ethernet::LEN + 40).is_some_and(|kind| {
        [v6::NEIGHBOR_SOLICITATION, v6::NEIGHBOR_ADVERTISEMENT, v6::ROUTER_SOLICITATION].contains(kind)
    });
    let icmp = frame.get(Ethernet::LEN + 6) == Some(&Protocol::ICMPV6.0);
    ethertype == Some(EtherType::ARP) || (ethertype == Some(EtherType::IPV6) && icmp && discovery)
}

fn following(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() + 1).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() + 1).into()),
    }
}
