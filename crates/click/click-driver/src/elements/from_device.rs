//! `FromDevice(DEVNAME, [keywords])`: receives frames from a network interface.
//!
//! Ports: one push output.
//!
//! Arguments:
//! - `DEVNAME`: the interface's name.
//! - `SNIFFER`: whether the kernel is to receive the frames too; true by default. For false, Click installs
//!   firewall rules, which are left to the administrator here: the kernel receives them all the same, with a warning.
//! - `PROMISC`: whether frames for other addresses are received too; false by default.
//! - `SNAPLEN`: bytes kept of a frame; 2046 by default.
//! - `FORCE_IP`: whether only IPv4 and IPv6 over Ethernet are received, with the network header set; false by
//!   default.
//! - `METHOD` or `CAPTURE`: `LINUX`, `PCAP` or `DEFAULT`: all mean a packet socket.
//! - `BPF_FILTER`: an expression of pcap-filter(7); ignored, with a warning, as by Click's METHOD LINUX: use an
//!   IPFilter or Classifier downstream instead.
//! - `ENCAP`: ignored: packets begin with an Ethernet header.
//! - `OUTBOUND`: whether frames sent by the interface are received too; false by default.
//! - `PROTOCOL`: only frames of this Ethernet type; all if 0, the default.
//! - `HEADROOM`: bytes reserved before a frame; 28 by default.
//! - `BURST`: frames received per turn; by default 1, or the router's burst.
//! - `TIMESTAMP`: whether packets get the kernel's receive time; true by default.
//!
//! Unsegmented frames, and frames without checksums, keep this as offload metadata; elements that can't
//! handle it get completed packets. VLAN tags removed by the kernel are restored. Requires CAP_NET_RAW.
//! Handlers: `count`, `byte_count`, `drops`, `kernel_drops`, `encap` (read): invalid frames, frames that the kernel
//! dropped (not known), the link type; `reset_counts` (write).
use super::device::check_device;
use super::link::{ETHERNET, link_name, mark_ip};
use crate::file::reason;
use ringway_click::arg::{Args, Raw, Word};
use ringway_click::{Class, Context, Element, Failed, HEADROOM, Handler, Packet, PacketType, Task};
use ringway_frame::Offload;
use ringway_host::{PACKET_HEADER, PacketReceived, PacketSettings, open_packet, packet_receive};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

pub static CLASS: Class = Class::new("FromDevice", || Box::<FromDevice>::default())
    .ports("0/1")
    .processing("h")
    .flags("S3")
    .phase(Class::PRIVILEGED);

/// The largest frame: 64 KB of IP and its headers.
const LARGEST: usize = 65_535 + 64;
/// Maximum headroom.
const MOST_ROOM: u32 = 65_535;
/// Bytes of both Ethernet addresses, behind which a VLAN tag is inserted.
const ADDRESSES: usize = 12;

#[derive(Default)]
pub struct FromDevice {
    device: String,
    promiscuous: bool,
    snaplen: u32,
    force_ip: bool,
    outbound: bool,
    protocol: u16,
    headroom: u32,
    burst: u32,
    timestamp: bool,
    socket: Option<OwnedFd>,
    buffer: Vec<u8>,
    task: Option<Task>,
    count: u64,
    bytes: u64,
    drops: u64,
}

fn packet_type(kind: u8) -> PacketType {
    match kind {
        1 => PacketType::Broadcast,
        2 => PacketType::Multicast,
        3 => PacketType::OtherHost,
        4 => PacketType::Outgoing,
        5 => PacketType::Loopback,
        _ => PacketType::Host,
    }
}

impl FromDevice {
    /// Converts a received frame to a packet.
    fn packet(&self, received: &PacketReceived, cx: &mut Context<'_>) -> Option<Packet> {
        let (header, frame) = self.buffer.get(..received.len)?.split_first_chunk::<PACKET_HEADER>()?;
        let mut offload = Offload::from_bytes(header);
        let undone = offload.needs_checksum() || offload.gso_type != 0;
        // A frame that must be segmented is kept whole.
        let kept = if undone { frame.len() } else { frame.len().min(self.snaplen as usize) };
        if undone && received.whole > received.len {
            return None;
        }
        let mut packet = cx.make_packet(self.headroom as usize + 4, kept, 0)?;
        packet.data_mut().copy_from_slice(&frame[..kept]);
        if let Some([kind, control]) = received.tag.filter(|_| kept >= ADDRESSES) {
            if !packet.push(4) {
                return None;
            }
            let data = packet.data_mut();
            data.copy_within(4..4 + ADDRESSES, 0);
            data[ADDRESSES..ADDRESSES + 2].copy_from_slice(&kind.to_be_bytes());
            data[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&control.to_be_bytes());
            if undone {
                offload.csum_start = offload.csum_start.checked_add(4)?;
            }
        }
        if undone {
            packet.set_offload(offload).ok()?;
        }
        packet.set_mac_header(0);
        if self.force_ip && !mark_ip(&mut packet, ETHERNET) {
            return None;
        }
        packet.notes_mut().packet_type = packet_type(received.kind);
        if self.timestamp {
            packet.set_timestamp(if received.time > 0 { received.time } else { cx.packet_time() });
        }
        Some(packet)
    }

    /// Receives a frame; false if there is none.
    fn take(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(socket) = &self.socket else { return false };
        let received = match packet_receive(socket.as_fd(), &mut self.buffer) {
            Ok(Some(received)) => received,
            Ok(None) => return false,
            Err(error) => {
                let name = cx.declaration();
                cx.chatter(format_args!("{name}: {}: {}", self.device, reason(&error.into())));
                return false;
            }
        };
        if packet_type(received.kind) == PacketType::Outgoing && !self.outbound {
            return true;
        }
        match self.packet(&received, cx) {
            Some(packet) => {
                self.count += 1;
                self.bytes += packet.len() as u64;
                cx.push(0, packet);
            }
            None => self.drops += 1,
        }
        true
    }
}

impl Element for FromDevice {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut device, mut method, mut sniffer) = (Word::default(), Word::default(), true);
        let (mut filter, mut encap) = (Raw::default(), Word::default());
        (self.snaplen, self.headroom, self.timestamp) = (2046, HEADROOM as u32, true);
        self.burst = cx.burst() as u32;
        args.read_mp("DEVNAME", &mut device);
        args.read_p("PROMISC", &mut self.promiscuous);
        args.read_p("SNAPLEN", &mut self.snaplen);
        args.read("SNIFFER", &mut sniffer);
        args.read("FORCE_IP", &mut self.force_ip);
        args.read("CAPTURE", &mut method);
        args.read("METHOD", &mut method);
        args.read("BPF_FILTER", &mut filter);
        args.read("ENCAP", &mut encap);
        args.read("OUTBOUND", &mut self.outbound);
        args.read("PROTOCOL", &mut self.protocol);
        args.read("HEADROOM", &mut self.headroom);
        args.read("BURST", &mut self.burst);
        args.read("TIMESTAMP", &mut self.timestamp);
        args.complete()?;
        check_device(&method.0, self.burst, cx)?;
        if !filter.0.is_empty() {
            cx.warning("BPF_FILTER is ignored: it needs METHOD PCAP");
        }
        if !sniffer {
            cx.warning(format!(
                "SNIFFER false has no effect: the kernel receives the frames of {0} too; drop them by its \
                 firewall, such as an nftables chain with 'hook ingress device {0}' and 'policy drop'",
                device.0
            ));
        }
        self.device = device.0;
        self.headroom = self.headroom.min(MOST_ROOM);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let settings = PacketSettings {
            interface: &self.device,
            protocol: (self.protocol != 0).then_some(self.protocol),
            promiscuous: self.promiscuous,
            only_sends: false,
        };
        let socket = open_packet(&settings).map_err(|error| cx.error(format!("{}: {error}", self.device)))?;
        cx.select(socket.as_raw_fd(), true, false);
        self.socket = Some(socket);
        self.buffer = vec![0; PACKET_HEADER + LARGEST];
        self.task = Some(cx.new_task(false));
        Ok(())
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        for number in 0..self.burst {
            if !self.take(cx) {
                return number > 0;
            }
        }
        cx.reschedule(task);
        true
    }

    fn shares(&self) -> Option<String> {
        Some(format!("device {}", self.device))
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::counter("byte_count", |e: &mut Self| &mut e.bytes),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("kernel_drops", |_: &Self| "??"),
            Handler::read("encap", |_: &Self| link_name(ETHERNET)),
            Handler::button("reset_counts", |e: &mut Self, _| (e.count, e.bytes, e.drops) = (0, 0, 0)),
        ]
        .into()
    }
}
