//! Network devices and the host's stack as ports of a test: they emit some frames, and accept all packets.
use ringway_click::arg::{Args, Raw};
use ringway_click::{Class, Context, Element, Failed, Metadata, Packet, PacketBurst, Signal, Task};

/// Keywords of Click's and FastClick's classes for devices.
const KEYWORDS: &[&str] = &[
    "ALIGNMENT",
    "ALLOW_NONEXISTENT",
    "BLOCKING",
    "BPF_FILTER",
    "BURST",
    "CAPACITY",
    "CAPTURE",
    "CLEAR_ANNO",
    "CLICK_XFRM",
    "DEBUG",
    "DEVID",
    "DOWN_CALL",
    "ENCAP",
    "ETHER",
    "FORCE_IP",
    "GATEWAY",
    "HEADROOM",
    "IGNORE_QUEUE_OVERFLOWS",
    "IQUEUE",
    "MAC",
    "MAXTHREADS",
    "METHOD",
    "MODE",
    "MTU",
    "NDESC",
    "NO_PAD",
    "NUMA",
    "NUMA_NODE",
    "N_QUEUES",
    "OUTBOUND",
    "PAUSE",
    "PREFIX",
    "PROMISC",
    "PROTOCOL",
    "QUEUE",
    "QUIET",
    "RSS_AGGREGATE",
    "SNAPLEN",
    "SNIFFER",
    "THREADOFFSET",
    "TIMEOUT",
    "TIMESTAMP",
    "TYPE",
    "UP_CALL",
    "VERBOSE",
];

const fn source(name: &'static str) -> Class {
    Class::new(name, || Box::new(Port { emits: true, ..Port::default() })).ports("0/1").processing("h")
}

const fn sink(name: &'static str) -> Class {
    Class::new(name, || Box::<Port>::default()).ports("1/0-2").processing("a/h").metadata(Metadata::Ignores)
}

const fn host(name: &'static str) -> Class {
    Class::new(name, || Box::new(Port { emits: true, packets: true, ..Port::default() }))
        .ports("0-1/1-2")
        .processing("a/h")
        .flow("x/y")
        .metadata(Metadata::Ignores)
}

static FROM_DEVICE: Class = source("FromDevice");
static POLL_DEVICE: Class = source("PollDevice");
static FROM_DPDK: Class = source("FromDPDKDevice");
static FROM_NETMAP: Class = source("FromNetmapDevice");
static FROM_HOST: Class = source("FromHost").ports("0/1-2");
static TO_DEVICE: Class = sink("ToDevice");
static TO_DPDK: Class = sink("ToDPDKDevice");
static TO_NETMAP: Class = sink("ToNetmapDevice");
static TO_HOST: Class = sink("ToHost");
static TO_SNIFFERS: Class = sink("ToHostSniffers");
static TUN: Class = host("KernelTun");
static TAP: Class = host("KernelTap");

pub const CLASSES: &[&Class] = &[
    &FROM_DEVICE,
    &POLL_DEVICE,
    &FROM_DPDK,
    &FROM_NETMAP,
    &FROM_HOST,
    &TO_DEVICE,
    &TO_DPDK,
    &TO_NETMAP,
    &TO_HOST,
    &TO_SNIFFERS,
    &TUN,
    &TAP,
];

/// Frames that arrive once per turn: an ARP request; a datagram, an echo request and a SYN in IPv4; a neighbor
/// solicitation.
const FRAMES: [&[u8]; 5] = [
    b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x09\x08\x06\0\x01\x08\0\x06\x04\0\x01\x02\0\0\0\0\x09\x0a\0\0\x09\
      \0\0\0\0\0\0\x0a\0\0\x01",
    b"\x02\0\0\0\0\x01\x02\0\0\0\0\x09\x08\0\x45\0\0\x1c\0\0\0\0\x40\x11\x66\xc6\x0a\0\0\x09\x0a\0\0\x01\
      \x10\x01\x10\x02\0\x08\0\0",
    b"\x02\0\0\0\0\x01\x02\0\0\0\0\x09\x08\0\x45\0\0\x1c\0\0\0\0\x40\x01\x66\xd6\x0a\0\0\x09\x0a\0\0\x01\
      \x08\0\xf7\xfd\0\x01\0\x01",
    b"\x02\0\0\0\0\x01\x02\0\0\0\0\x09\x08\0\x45\0\0\x28\0\0\0\0\x40\x06\x66\xc5\x0a\0\0\x09\x0a\0\0\x01\
      \x10\x01\0\x50\0\0\0\x01\0\0\0\0\x50\x02\x20\0\x1a\xd4\0\0",
    b"\x33\x33\xff\0\0\x01\x02\0\0\0\0\x09\x86\xdd\x60\0\0\0\0\x18\x3a\xff\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\x09\xff\x02\0\0\0\0\0\0\0\0\0\x01\xff\0\0\x01\x87\0\0\0\0\0\0\0\
      \xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
];
const ETHERNET: usize = 14;

/// A device.
#[derive(Default)]
struct Port {
    emits: bool,
    /// Whether it has IP packets instead of frames.
    packets: bool,
    source: Option<Task>,
    sink: Option<Task>,
    signal: Signal,
}

impl Port {
    fn packet(&self, frame: &[u8], cx: &mut Context<'_>) -> Option<Packet> {
        let mut packet = cx.packet(frame)?;
        packet.set_timestamp(cx.now());
        packet.set_mac_header(0);
        if self.packets {
            packet.pull(ETHERNET);
            packet.set_network_header(0, 20);
        }
        Some(packet)
    }
}

impl Element for Port {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut text = Raw::default();
        for place in ["DEVNAME", "SECOND", "THIRD"] {
            args.read_p(place, &mut text);
        }
        for keyword in KEYWORDS {
            args.read(keyword, &mut text);
        }
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.source = self.emits.then(|| cx.new_task(true));
        if cx.ninputs() > 0 && cx.input_is_pull(0) {
            let task = cx.new_task(true);
            self.signal = cx.upstream_empty_signal(0, Some(task));
            self.sink = Some(task);
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.clear();
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if Some(task) == self.source {
            let frames = if self.packets { &FRAMES[1..4] } else { &FRAMES[..] };
            for frame in frames {
                if let Some(packet) = self.packet(frame, cx) {
                    cx.push(0, packet);
                }
            }
            cx.reschedule(task);
            return true;
        }
        let mut burst = PacketBurst::new();
        cx.pull(0, cx.burst(), &mut burst);
        if !burst.is_empty() || cx.is_active(&self.signal) {
            cx.reschedule(task);
        }
        !burst.is_empty()
    }
}
