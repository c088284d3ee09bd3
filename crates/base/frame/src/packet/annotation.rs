//! Annotations of packets, at Click's offsets, which configurations refer to.

/// Size of the annotation area.
pub const ANNOTATION_BYTES: usize = 48;

/// How a frame was addressed, if known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    /// To this host.
    #[default]
    Host = 0,
    /// To all hosts.
    Broadcast = 1,
    /// To a group.
    Multicast = 2,
    /// To another host.
    OtherHost = 3,
    /// Sent by this host.
    Outgoing = 4,
    /// Sent by this host to itself.
    Loopback = 5,
    /// Handled by a fast path.
    Fastroute = 6,
}

/// Annotations of a packet, on one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Annotations {
    bytes: [u8; ANNOTATION_BYTES],
    /// How the packet was addressed.
    pub packet_type: PacketType,
    /// Number of the packet's input device, assigned by the element that received it; 0 if none.
    pub device: u32,
}

impl Default for Annotations {
    fn default() -> Self {
        Self { bytes: [0; ANNOTATION_BYTES], packet_type: PacketType::Host, device: 0 }
    }
}

/// Offsets of Click's annotations. Some overlap.
impl Annotations {
    /// IPv4 destination address, 4 bytes.
    pub const DST_IP: usize = 0;
    /// IPv6 destination address, 16 bytes.
    pub const DST_IP6: usize = 0;
    /// Paint, 1 byte.
    pub const PAINT: usize = 16;
    /// Pointer of an ICMP parameter problem, 1 byte.
    pub const ICMP_PARAMPROB: usize = 17;
    /// Whether `FixIPSrc` sets the source address, 1 byte.
    pub const FIX_IP_SRC: usize = 19;
    /// VLAN tag, 2 bytes, network order.
    pub const VLAN_TCI: usize = 20;
    /// Aggregate number, 4 bytes.
    pub const AGGREGATE: usize = 20;
    /// Another IPv4 address, 4 bytes.
    pub const MISC_IP: usize = 20;
    /// Forward rate, 4 bytes.
    pub const FWD_RATE: usize = 20;
    /// Number of packets that this one represents in addition to itself, 4 bytes.
    pub const EXTRA_PACKETS: usize = 24;
    /// Reverse rate, 4 bytes.
    pub const REV_RATE: usize = 24;
    /// Bytes that this packet represents in addition to its own, 4 bytes.
    pub const EXTRA_LENGTH: usize = 28;
    /// Used by the reassembler, 4 bytes.
    pub const IPREASSEMBLER: usize = 28;
    /// First timestamp, 8 bytes: nanoseconds.
    pub const FIRST_TIMESTAMP: usize = 32;
    /// Packet number, 4 bytes.
    pub const PACKET_NUMBER: usize = 32;
    /// IPsec security parameter index, 4 bytes.
    pub const IPSEC_SPI: usize = 32;
    /// Sequence number, 4 bytes.
    pub const SEQUENCE_NUMBER: usize = 36;
    /// Performance counter, 8 bytes.
    pub const PERFCTR: usize = 40;

    /// The annotation area.
    pub fn bytes(&self) -> &[u8; ANNOTATION_BYTES] {
        &self.bytes
    }

    /// The annotation area, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8; ANNOTATION_BYTES] {
        &mut self.bytes
    }

    /// The `N` bytes at `at`: an address, or a number in native byte order. Zeros if they are not within the
    /// area.
    #[inline]
    pub fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    /// Writes bytes at `at`, if they are within the area.
    #[inline]
    pub fn set<const N: usize>(&mut self, at: usize, value: [u8; N]) {
        if let Some(bytes) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *bytes = value;
        }
    }

    /// A byte.
    #[inline]
    pub fn u8(&self, at: usize) -> u8 {
        self.get::<1>(at)[0]
    }

    /// Two bytes as a number.
    #[inline]
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.get(at))
    }

    /// Four bytes as a number.
    #[inline]
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.get(at))
    }

    /// Eight bytes as a number.
    #[inline]
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.get(at))
    }

    /// Sets a byte.
    #[inline]
    pub fn set_u8(&mut self, at: usize, value: u8) {
        self.set(at, [value]);
    }

    /// Sets two bytes.
    #[inline]
    pub fn set_u16(&mut self, at: usize, value: u16) {
        self.set(at, value.to_ne_bytes());
    }

    /// Sets four bytes.
    #[inline]
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.set(at, value.to_ne_bytes());
    }

    /// Sets eight bytes.
    #[inline]
    pub fn set_u64(&mut self, at: usize, value: u64) {
        self.set(at, value.to_ne_bytes());
    }

    /// Paint.
    #[inline]
    pub fn paint(&self) -> u8 {
        self.u8(Self::PAINT)
    }

    /// IPv4 destination address.
    #[inline]
    pub fn dst_ip(&self) -> [u8; 4] {
        self.get(Self::DST_IP)
    }

    /// Sets the IPv4 destination address.
    #[inline]
    pub fn set_dst_ip(&mut self, address: [u8; 4]) {
        self.set(Self::DST_IP, address);
    }
}
