//! Feature bits.

/// Feature bits of the virtio network device and of virtqueues, as masks (virtio 1.3, 5.1.3 and 6).
pub mod virtio {
    /// The device fills checksums.
    pub const NET_CSUM: u64 = 1 << 0;
    /// The driver accepts frames with pending checksums.
    pub const NET_GUEST_CSUM: u64 = 1 << 1;
    /// The device reports its maximum MTU.
    pub const NET_MTU: u64 = 1 << 3;
    /// The device has a MAC address.
    pub const NET_MAC: u64 = 1 << 5;
    /// The driver accepts TSO over IPv4.
    pub const NET_GUEST_TSO4: u64 = 1 << 7;
    /// The driver accepts TSO over IPv6.
    pub const NET_GUEST_TSO6: u64 = 1 << 8;
    /// The driver accepts TSO with ECN.
    pub const NET_GUEST_ECN: u64 = 1 << 9;
    /// The device accepts TSO over IPv4.
    pub const NET_HOST_TSO4: u64 = 1 << 11;
    /// The device accepts TSO over IPv6.
    pub const NET_HOST_TSO6: u64 = 1 << 12;
    /// The device accepts TSO with ECN.
    pub const NET_HOST_ECN: u64 = 1 << 13;
    /// The driver merges receive buffers.
    pub const NET_MRG_RXBUF: u64 = 1 << 15;
    /// The device reports its link status.
    pub const NET_STATUS: u64 = 1 << 16;
    /// There is a control queue.
    pub const NET_CTRL_VQ: u64 = 1 << 17;
    /// The driver sends gratuitous packets on request.
    pub const NET_GUEST_ANNOUNCE: u64 = 1 << 21;
    /// The device has several queue pairs.
    pub const NET_MQ: u64 = 1 << 22;
    /// The driver accepts USO over IPv4.
    pub const NET_GUEST_USO4: u64 = 1 << 54;
    /// The driver accepts USO over IPv6.
    pub const NET_GUEST_USO6: u64 = 1 << 55;
    /// The device accepts USO.
    pub const NET_HOST_USO: u64 = 1 << 56;
    /// Legacy: the device accepts any split of header and frame into descriptors.
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// Indirect descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Notifications are enabled by index (`used_event`, `avail_event`).
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The device complies with virtio 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
    /// Addresses may be translated by an IOMMU.
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// The packed ring layout.
    pub const RING_PACKED: u64 = 1 << 34;
    /// Buffers are used in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;
    /// vhost: writes to memory are logged.
    pub const LOG_ALL: u64 = 1 << 26;
    /// vhost-user: protocol features can be negotiated.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
}

/// Protocol feature bits, as masks (vhost-user protocol, "Protocol features").
pub mod protocol {
    /// Multiple queue pairs.
    pub const MQ: u64 = 1 << 0;
    /// The dirty log is a shared memory file.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// The back-end sends a RARP after migration.
    pub const RARP: u64 = 1 << 2;
    /// Messages without a reply can be acknowledged.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The front-end can set the MTU.
    pub const MTU: u64 = 1 << 4;
    /// The back-end has a channel for its own requests.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// The front-end can set the byte order of rings.
    pub const CROSS_ENDIAN: u64 = 1 << 6;
    /// The back-end provides the configuration space.
    pub const CONFIG: u64 = 1 << 9;
    /// The back-end's requests may carry descriptors.
    pub const BACKEND_SEND_FD: u64 = 1 << 10;
    /// In-flight descriptors are tracked in shared memory.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    /// The device can be reset.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Kicks and calls may be messages.
    pub const INBAND_NOTIFICATIONS: u64 = 1 << 14;
    /// Memory regions are added and removed one by one.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// The front-end forwards the device status.
    pub const STATUS: u64 = 1 << 16;
}
