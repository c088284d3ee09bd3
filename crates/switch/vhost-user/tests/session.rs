//! Sessions of real front-ends, and invalid sessions.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests fail the test.

use proptest::prelude::*;
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::*;
use std::os::fd::OwnedFd;

const OFFER: Offer = Offer {
    features: virtio::VERSION_1
        | virtio::RING_PACKED
        | virtio::PROTOCOL_FEATURES
        | virtio::NET_MRG_RXBUF
        | virtio::ACCESS_PLATFORM,
    protocol: protocol::MQ
        | protocol::REPLY_ACK
        | protocol::MTU
        | protocol::BACKEND_REQ
        | protocol::CONFIG
        | protocol::CONFIGURE_MEM_SLOTS
        | protocol::STATUS
        | protocol::RESET_DEVICE,
    rings: 2,
    queues: 1,
    slots: 509,
};

/// Records the calls of a session.
#[derive(Default)]
struct Recorder {
    log: Vec<String>,
    position: u16,
    refuse_memory: bool,
}

impl Recorder {
    fn note(&mut self, line: String) -> Result<(), Refused> {
        self.log.push(line);
        Ok(())
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

impl Device for Recorder {
    fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        self.note(format!("features {features:#x}"))
    }

    fn set_memory(&mut self, table: Vec<SharedRegion>) -> Result<(), Refused> {
        if self.refuse_memory {
            return Err(Refused("no".into()));
        }
        self.note(format!("memory {}", table.len()))
    }

    fn add_region(&mut self, region: SharedRegion) -> Result<(), Refused> {
        self.note(format!("add {:#x}", region.region.guest))
    }

    fn remove_region(&mut self, region: MemoryRegion) -> Result<(), Refused> {
        self.note(format!("remove {:#x}", region.guest))
    }

    fn start(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        self.note(format!("start {index} size {} base {:?} enabled {}", ring.size, ring.base, ring.enabled))
    }

    fn update(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        self.note(format!("update {index} enabled {}", ring.enabled))
    }

    fn stop(&mut self, index: usize) -> u16 {
        self.log.push(format!("stop {index}"));
        self.position
    }

    fn read_config(&self, offset: u32, bytes: &mut [u8]) {
        bytes.iter_mut().zip(offset as u8..).for_each(|(byte, value)| *byte = value);
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        self.note(format!("mtu {mtu}"))
    }

    fn set_channel(&mut self, _channel: OwnedFd) {
        self.log.push("channel".into());
    }

    fn set_log(&mut self, log: Log, _file: OwnedFd) -> Result<(), Refused> {
        if log.offset.checked_add(log.size).is_none() {
            return Err(Refused("no such log".into()));
        }
        self.note(format!("log {:#x}", log.size))
    }

    fn set_log_call(&mut self, _call: OwnedFd) -> Result<(), Refused> {
        self.note("log call".into())
    }

    fn announce(&mut self, _address: [u8; 6]) {
        self.log.push("announce".into());
    }

    fn translate(&mut self, change: Iotlb) -> Result<bool, Refused> {
        if change.size == 0 && change.kind == Iotlb::UPDATE {
            return Err(Refused("no bytes".into()));
        }
        self.note(format!("translate {} {:#x}", change.kind, change.iova))?;
        Ok(change.kind == Iotlb::INVALIDATE)
    }

    fn needs_reset(&self) -> bool {
        false
    }
}

struct Connection {
    session: Session,
    device: Recorder,
}

impl Connection {
    fn new() -> Connection {
        Connection { session: Session::new(OFFER), device: Recorder::default() }
    }

    fn agreed(features: u64, protocol: u64) -> Connection {
        let mut connection = Connection::new();
        connection.send(Request::SetProtocolFeatures(protocol)).unwrap();
        connection.send(Request::SetFeatures(features)).unwrap();
        connection.device.take();
        connection
    }

    fn try_send(&mut self, request: Request, need_reply: bool) -> Result<Outcome, SessionError> {
        let Packet { bytes, fds } = request.encode(need_reply);
        let (header, payload) = bytes.split_first_chunk::<HEADER>().unwrap();
        let header = Header::decode(header).unwrap();
        self.session.handle(Message { header, payload: payload.to_vec(), fds }, &mut self.device)
    }

    fn send(&mut self, request: Request) -> Result<Option<Reply>, SessionError> {
        self.reply(request, false)
    }

    fn reply(&mut self, request: Request, need_reply: bool) -> Result<Option<Reply>, SessionError> {
        let number = request.number();
        let outcome = self.try_send(request, need_reply)?;
        Ok(outcome.answer.map(|packet| Reply::decode(number, &packet.bytes[HEADER..], packet.fds).unwrap()))
    }

    fn number(&mut self, request: Request) -> u64 {
        match self.send(request).unwrap() {
            Some(Reply::Number(value)) => value,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a request that must be acknowledged; returns the code.
    fn acknowledged(&mut self, request: Request) -> u64 {
        match self.reply(request, true).unwrap() {
            Some(Reply::Number(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    fn base(&mut self, index: u32) -> u32 {
        match self.send(Request::GetVringBase(VringState { index, num: 0 })).unwrap() {
            Some(Reply::Vring(state)) => state.num,
            other => panic!("{other:?}"),
        }
    }

    fn start(&mut self, index: u32, base: Option<u32>) -> Result<(), SessionError> {
        self.send(Request::SetVringNum(VringState { index, num: 256 }))?;
        if let Some(num) = base {
            self.send(Request::SetVringBase(VringState { index, num }))?;
        }
        self.send(Request::SetVringAddr(addr(index)))?;
        self.send(Request::SetVringKick(fd(index)))?;
        Ok(())
    }
}

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

fn fd(index: u32) -> VringFd {
    VringFd { index, fd: Some(null()) }
}

fn addr(index: u32) -> VringAddr {
    VringAddr { index, flags: 0, descriptors: 0x1000, used: 0x2000, available: 0x3000, log: 0 }
}

fn shared(guest: u64) -> SharedRegion {
    SharedRegion { region: MemoryRegion { guest, size: 4096, user: guest, offset: 0 }, fd: null() }
}

fn state(index: u32, num: u32) -> VringState {
    VringState { index, num }
}

const MODERN: u64 = virtio::VERSION_1 | virtio::PROTOCOL_FEATURES;

#[test]
fn qemu_7_2_starts_up() {
    let mut qemu = Connection::new();
    for index in 0..2 {
        let first = if index == 0 { OFFER.features & !virtio::ACCESS_PLATFORM } else { OFFER.features };
        assert_eq!(qemu.number(Request::GetFeatures), first);
        assert_eq!(qemu.number(Request::GetProtocolFeatures), OFFER.protocol);
        qemu.send(Request::SetProtocolFeatures(OFFER.protocol)).unwrap();
        assert_eq!(qemu.number(Request::GetQueueNum), 1);
        assert_eq!(qemu.number(Request::GetMaxMemSlots), 509);
        assert_eq!(qemu.acknowledged(Request::SetBackendReqFd(null())), 0);
        qemu.send(Request::SetOwner).unwrap();
        assert_eq!(qemu.number(Request::GetFeatures), OFFER.features);
        qemu.send(Request::SetVringCall(fd(index))).unwrap();
        qemu.send(Request::SetVringErr(fd(index))).unwrap();
    }
    for index in 0..2 {
        qemu.send(Request::SetVringEnable(state(index, 1))).unwrap();
    }
    qemu.send(Request::SetFeatures(MODERN)).unwrap();
    assert_eq!(qemu.acknowledged(Request::AddMemReg(shared(0))), 0);
    for index in 0..2 {
        qemu.start(index, Some(0)).unwrap();
        qemu.send(Request::SetVringCall(fd(index))).unwrap();
    }
    qemu.send(Request::SetStatus(0xf)).unwrap();
    assert_eq!(qemu.number(Request::GetStatus), 0xf);
    let expected = [
        "channel",
        "channel",
        "features 0x140000000",
        "add 0x0",
        "start 0 size 256 base Some(0) enabled true",
        "update 0 enabled true",
        "start 1 size 256 base Some(0) enabled true",
        "update 1 enabled true",
    ];
    assert_eq!(qemu.device.take(), expected);
    qemu.device.position = 77;
    assert_eq!((qemu.base(0), qemu.base(0)), (77, 77));
    qemu.send(Request::SetStatus(0)).unwrap();
    assert_eq!(qemu.base(1), 77, "a reset keeps a ring's position");
    assert_eq!(qemu.device.take(), ["stop 0", "stop 1"]);
    assert_eq!(qemu.acknowledged(Request::RemMemReg(shared(0).region)), 0);
}

#[test]
fn user_mode_linux_starts_up_and_starts_again() {
    let mut uml = Connection::new();
    uml.send(Request::SetOwner).unwrap();
    uml.number(Request::GetFeatures);
    uml.number(Request::GetProtocolFeatures);
    assert_eq!(uml.acknowledged(Request::SetProtocolFeatures(OFFER.protocol)), 0);
    assert_eq!(uml.acknowledged(Request::SetBackendReqFd(null())), 0);
    let question = Request::GetConfig(Config { offset: 0, flags: 0, bytes: vec![0; 6] });
    let Some(Reply::Config(config)) = uml.send(question).unwrap() else { panic!("no configuration") };
    assert_eq!(config.bytes, [0, 1, 2, 3, 4, 5]);
    assert_eq!(uml.acknowledged(Request::SetFeatures(MODERN)), 0);
    assert_eq!(uml.acknowledged(Request::SetMemTable(vec![shared(0)])), 0);
    let life = |uml: &mut Connection| {
        for index in 0..2 {
            assert_eq!(uml.acknowledged(Request::SetVringCall(fd(index))), 0);
            assert_eq!(uml.acknowledged(Request::SetVringNum(state(index, 256))), 0);
            assert_eq!(uml.acknowledged(Request::SetVringBase(state(index, 0))), 0);
            assert_eq!(uml.acknowledged(Request::SetVringAddr(addr(index))), 0);
        }
        for index in 0..2 {
            assert_eq!(uml.acknowledged(Request::SetVringKick(fd(index))), 0);
            assert_eq!(uml.acknowledged(Request::SetVringEnable(state(index, 1))), 0);
        }
    };
    life(&mut uml);
    let start = "start 0 size 256 base Some(0) enabled false";
    assert_eq!(uml.device.take()[3..5], [start, "update 0 enabled true"]);
    // The driver is reloaded: rings are disabled, never stopped.
    for index in 0..2 {
        assert_eq!(uml.acknowledged(Request::SetVringEnable(state(index, 0))), 0);
    }
    assert_eq!(uml.device.take(), ["update 0 enabled false", "update 1 enabled false"]);
    life(&mut uml);
    let log = uml.device.take();
    assert_eq!(log[..2], ["update 0 enabled false", "stop 0"]);
    assert!(log.contains(&start.to_owned()));
}

#[test]
fn dpdk_starts_up_and_stops() {
    let mut dpdk = Connection::new();
    dpdk.send(Request::SetOwner).unwrap();
    dpdk.number(Request::GetFeatures);
    dpdk.number(Request::GetProtocolFeatures);
    dpdk.send(Request::SetProtocolFeatures(protocol::MQ | protocol::REPLY_ACK | protocol::STATUS)).unwrap();
    for index in 0..2 {
        dpdk.send(Request::SetVringCall(fd(index))).unwrap();
    }
    dpdk.send(Request::SetFeatures(MODERN | virtio::RING_PACKED)).unwrap();
    assert_eq!(dpdk.acknowledged(Request::SetMemTable(vec![shared(0), shared(0x10000)])), 0);
    for index in 0..2 {
        dpdk.start(index, Some(0x8000)).unwrap();
    }
    for index in 0..2 {
        dpdk.send(Request::SetVringEnable(state(index, 1))).unwrap();
    }
    let log = dpdk.device.take();
    assert_eq!(log[1], "memory 2");
    assert_eq!(log[2], "start 0 size 256 base Some(32768) enabled false");
    assert_eq!(log[5], "update 1 enabled true");
    dpdk.device.position = 0x8005;
    dpdk.send(Request::SetVringEnable(state(0, 0))).unwrap();
    assert_eq!(dpdk.base(0), 0x8005_8005, "both halves of a packed ring's position");
}

#[test]
fn a_ring_without_a_base_starts_at_the_devices_index() {
    let mut front = Connection::agreed(MODERN, 0);
    front.start(0, None).unwrap();
    assert_eq!(front.device.take(), ["start 0 size 256 base None enabled false"]);
    front.device.position = 9;
    assert_eq!(front.base(0), 9);
    front.start(0, None).unwrap();
    assert_eq!(front.device.take(), ["stop 0", "start 0 size 256 base None enabled false"]);
    let mut packed = Connection::agreed(MODERN | virtio::RING_PACKED, 0);
    assert_eq!(packed.base(1), 0x8000_8000);
}

#[test]
fn rings_are_enabled_at_once_without_protocol_features() {
    let mut front = Connection::new();
    front.send(Request::SetFeatures(virtio::VERSION_1)).unwrap();
    front.start(0, Some(0)).unwrap();
    assert_eq!(front.device.take()[1], "start 0 size 256 base Some(0) enabled true");
}

#[test]
fn features_and_kicks_do_not_disable_rings() {
    let mut front = Connection::agreed(MODERN, 0);
    front.send(Request::SetVringEnable(state(0, 1))).unwrap();
    front.start(0, Some(0)).unwrap();
    front.device.take();
    front.send(Request::SetFeatures(MODERN)).unwrap();
    front.send(Request::SetVringKick(VringFd { index: 0, fd: None })).unwrap();
    assert_eq!(front.device.take()[1..], ["update 0 enabled true", "update 0 enabled true"]);
}

#[test]
fn a_new_size_or_base_stops_a_running_ring_until_its_next_kick() {
    let mut front = Connection::agreed(MODERN, 0);
    front.start(0, Some(0)).unwrap();
    front.device.take();
    front.send(Request::SetVringNum(state(0, 512))).unwrap();
    front.send(Request::SetVringNum(state(0, 1024))).unwrap();
    front.send(Request::SetVringBase(state(0, 3))).unwrap();
    front.send(Request::SetVringAddr(addr(0))).unwrap();
    assert_eq!(front.device.take(), ["stop 0"]);
    front.send(Request::SetVringKick(fd(0))).unwrap();
    assert_eq!(front.device.take(), ["start 0 size 1024 base Some(3) enabled false"]);
}

#[test]
fn a_layout_change_stops_every_ring() {
    let mut front = Connection::agreed(MODERN, 0);
    front.start(0, Some(200)).unwrap();
    front.device.position = 300;
    front.device.take();
    front.send(Request::SetFeatures(MODERN | virtio::RING_PACKED)).unwrap();
    assert_eq!(front.device.take()[0], "stop 0");
    assert_eq!(front.base(0), 0x8000_8000);
}

#[test]
fn an_iommu_change_stops_every_ring_at_its_index() {
    let channel = protocol::BACKEND_REQ | protocol::REPLY_ACK;
    let behind = MODERN | virtio::ACCESS_PLATFORM;
    for (first, then) in [(MODERN, behind), (behind, MODERN)] {
        let mut front = Connection::agreed(first, channel);
        front.start(0, Some(200)).unwrap();
        front.device.position = 300;
        front.device.take();
        front.send(Request::SetFeatures(then)).unwrap();
        assert_eq!(front.device.take()[0], "stop 0");
        assert_eq!(front.base(0), 300);
    }
}

#[test]
fn a_reset_device_restarts_on_the_same_connection() {
    let mut front = Connection::agreed(MODERN, protocol::RESET_DEVICE | protocol::REPLY_ACK);
    front.send(Request::SetMemTable(vec![shared(0)])).unwrap();
    front.send(Request::SetVringEnable(state(0, 1))).unwrap();
    front.start(0, Some(5)).unwrap();
    front.device.take();
    assert_eq!(front.acknowledged(Request::ResetDevice), 0);
    front.send(Request::SetVringKick(fd(0))).unwrap();
    assert_eq!(front.device.take(), ["stop 0"], "size and addresses must be sent again");
    assert_eq!(front.base(0), 0);
}

#[test]
fn refusals_are_replied_with_reply_ack_and_end_the_session_without() {
    let mut front = Connection::agreed(MODERN, protocol::REPLY_ACK);
    front.device.refuse_memory = true;
    assert_eq!(front.acknowledged(Request::SetMemTable(vec![shared(0)])), 1);
    let outcome = front.try_send(Request::SetMemTable(vec![shared(0)]), true).unwrap();
    assert_eq!(outcome.refused.unwrap().to_string(), "message SET_MEM_TABLE: no");
    let silent = front.send(Request::SetMemTable(vec![shared(0)]));
    assert!(matches!(silent, Err(SessionError::Refused { .. })));
}

#[test]
fn messages_without_their_feature_are_refused() {
    let mut front = Connection::agreed(MODERN, protocol::REPLY_ACK);
    let log = Log { size: u64::MAX, offset: u64::MAX };
    let inflight = Inflight { size: 0, offset: 0, queues: u16::MAX, queue_size: u16::MAX };
    let iotlb = Iotlb { iova: 0, size: u64::MAX, user: 0, permissions: 3, kind: 2 };
    for request in [
        Request::SetLogBase(log, Some(null())),
        Request::SetLogFd(null()),
        Request::SetInflightFd(inflight, null()),
        Request::IotlbMsg(iotlb),
        Request::SetVringEndian(state(0, 1)),
        Request::VringKick(state(0, 0)),
        Request::AddMemReg(shared(0)),
        Request::NetSetMtu(1500),
        Request::SendRarp([0; 6]),
        Request::SetBackendReqFd(null()),
        Request::SetStatus(0),
        Request::ResetDevice,
    ] {
        assert_eq!(front.acknowledged(request), 1);
    }
    // Attack: each of these would make a region of shared memory (CVE-2020-10726).
    assert!(matches!(front.send(Request::GetInflightFd(inflight)), Err(SessionError::NotNegotiated { .. })));
    assert!(front.device.take().is_empty());
}

#[test]
fn invalid_ring_numbers_and_values_end_the_session() {
    let fresh = || Connection::agreed(MODERN, protocol::REPLY_ACK);
    for index in [2, 0x1_0000, u32::MAX] {
        let result = fresh().try_send(Request::SetVringNum(state(index, 256)), true);
        assert!(matches!(result, Err(SessionError::Ring { .. })));
        let result = fresh().send(Request::GetVringBase(state(index, 0)));
        assert!(matches!(result, Err(SessionError::Ring { .. })));
        assert!(matches!(fresh().send(Request::SetVringAddr(addr(index))), Err(SessionError::Ring { .. })));
    }
    assert!(matches!(fresh().send(Request::SetVringKick(fd(2))), Err(SessionError::Ring { .. })));
    for size in [0, 32_769, 0x1_0100, u32::MAX] {
        let result = fresh().send(Request::SetVringNum(state(0, size)));
        assert!(matches!(result, Err(SessionError::Value { .. })));
    }
    let base = fresh().send(Request::SetVringBase(state(0, 0x1_0000)));
    assert!(matches!(base, Err(SessionError::Value { .. })), "CVE-2020-10723");
    assert!(matches!(fresh().send(Request::SetVringEnable(state(0, 2))), Err(SessionError::Value { .. })));
    let mut packed = Connection::agreed(MODERN | virtio::RING_PACKED, 0);
    assert!(matches!(packed.start(0, Some(256)), Err(SessionError::Value { .. })));
    let features = fresh().send(Request::SetFeatures(1 << 63));
    assert!(matches!(features, Err(SessionError::Features { .. })));
    assert!(fresh().send(Request::SetProtocolFeatures(protocol::INBAND_NOTIFICATIONS)).is_err());
}

#[test]
fn a_split_ring_has_a_power_of_two_of_descriptors() {
    let mut front = Connection::agreed(MODERN, 0);
    front.send(Request::SetVringNum(state(0, 255))).unwrap();
    front.send(Request::SetVringAddr(addr(0))).unwrap();
    assert!(matches!(front.send(Request::SetVringKick(fd(0))), Err(SessionError::Value { .. })));
}

fn any_message() -> impl Strategy<Value = (u32, Vec<u8>, usize, bool)> {
    let word = prop_oneof![0u64..4, Just(256u64), any::<u64>()];
    let words = proptest::collection::vec(word, 0..7);
    let payload = words.prop_map(|words| words.into_iter().flat_map(u64::to_ne_bytes).collect::<Vec<u8>>());
    (0u32..44, payload, 0usize..3, any::<bool>())
}

proptest! {
    #[test]
    fn no_order_of_messages_starts_a_ring_twice(script in proptest::collection::vec(any_message(), 0..200)) {
        let mut front = Connection::agreed(MODERN, OFFER.protocol);
        for (request, payload, fds, need_reply) in script {
            let header = Header { request, reply: false, need_reply, size: payload.len() as u32 };
            let fds = (0..fds).map(|_| null()).collect();
            let _ = front.session.handle(Message { header, payload, fds }, &mut front.device);
        }
        front.session.end(&mut front.device);
        let mut running = [false; 2];
        for line in front.device.take() {
            let words: Vec<&str> = line.split(' ').collect();
            let ring = |words: &[&str]| words[1].parse::<usize>().unwrap();
            match words[0] {
                "start" => prop_assert!(!std::mem::replace(&mut running[ring(&words)], true)),
                "stop" => prop_assert!(std::mem::replace(&mut running[ring(&words)], false)),
                "update" => prop_assert!(running[ring(&words)]),
                _ => {}
            }
        }
        prop_assert_eq!(running, [false; 2]);
    }
}

#[test]
fn an_iommu_is_offered_only_with_a_backend_channel() {
    let mut connection = Connection::new();
    let offered = |connection: &mut Connection| match connection.send(Request::GetFeatures).unwrap() {
        Some(Reply::Number(features)) => features & virtio::ACCESS_PLATFORM != 0,
        other => panic!("{other:?}"),
    };
    assert!(!offered(&mut connection));
    connection.send(Request::SetProtocolFeatures(protocol::BACKEND_REQ)).unwrap();
    assert!(!offered(&mut connection));
    let early = connection.send(Request::SetFeatures(virtio::ACCESS_PLATFORM));
    assert!(matches!(early, Err(SessionError::Features { .. })));
    connection.send(Request::SetProtocolFeatures(protocol::BACKEND_REQ | protocol::REPLY_ACK)).unwrap();
    assert!(offered(&mut connection));
    connection.send(Request::SetFeatures(virtio::ACCESS_PLATFORM | virtio::VERSION_1)).unwrap();
}

#[test]
fn translations_are_acknowledged_after_their_removal() {
    let channel = protocol::BACKEND_REQ | protocol::REPLY_ACK;
    let mut connection = Connection::agreed(virtio::ACCESS_PLATFORM | virtio::VERSION_1, channel);
    connection.device.take();
    let Connection { session, device } = &mut connection;
    let mut say = |kind, size, permissions| {
        let change = Iotlb { iova: 0x1000, size, user: 0x2000, permissions, kind };
        let bytes = Request::IotlbMsg(change).encode(true).bytes;
        let header = Header::decode(bytes[..12].try_into().unwrap()).unwrap();
        let message = Message { header, payload: bytes[12..].to_vec(), fds: Vec::new() };
        session.handle(message, device)
    };
    let done = say(Iotlb::UPDATE, 4096, 3).unwrap();
    assert!(done.answer.is_some() && !done.revoked && done.refused.is_none());
    // QEMU leaves the permissions of an invalidation unset.
    let gone = say(Iotlb::INVALIDATE, 4096, 0xaa).unwrap();
    assert!(gone.answer.is_some() && gone.revoked);
    assert!(say(Iotlb::UPDATE, 0, 3).unwrap().refused.is_some());
    assert!(say(Iotlb::MISS, 4096, 1).unwrap().refused.is_some());
    assert!(say(Iotlb::ACCESS_FAIL, 4096, 1).unwrap().refused.is_some());
    assert!(say(Iotlb::UPDATE, 4096, 0).is_err() && say(0, 4096, 3).is_err());
    assert!(say(5, 4096, 3).is_err() && say(Iotlb::UPDATE, 4096, 4).is_err());
    assert_eq!(connection.device.take(), ["translate 2 0x1000", "translate 3 0x1000"]);
}
