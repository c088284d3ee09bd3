//! The vhost-user codec and session, with a front-end that sends arbitrary data.

use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{
    BackendRequest, Device, Inbox, Iotlb, Log, MemoryRegion, Offer, Refused, Reply, Request, Ring, Session,
    SharedRegion, VringState,
};
use std::fs::File;
use std::os::fd::OwnedFd;

/// A device that refuses some requests, and checks their order.
#[derive(Default)]
struct Nothing {
    running: Vec<usize>,
    regions: usize,
}

impl Device for Nothing {
    fn set_features(&mut self, _features: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn set_memory(&mut self, table: Vec<SharedRegion>) -> Result<(), Refused> {
        self.regions = table.len();
        Ok(())
    }

    fn add_region(&mut self, region: SharedRegion) -> Result<(), Refused> {
        if region.region.size == 0 {
            return Err(Refused("an empty region".into()));
        }
        self.regions += 1;
        Ok(())
    }

    fn remove_region(&mut self, _region: MemoryRegion) -> Result<(), Refused> {
        self.regions = self.regions.checked_sub(1).ok_or_else(|| Refused("no region".into()))?;
        Ok(())
    }

    fn start(&mut self, index: usize, _ring: &Ring) -> Result<(), Refused> {
        assert!(!self.running.contains(&index), "ring {index} was started twice");
        if self.regions == 0 {
            return Err(Refused("no memory".into()));
        }
        self.running.push(index);
        Ok(())
    }

    fn update(&mut self, index: usize, _ring: &Ring) -> Result<(), Refused> {
        assert!(self.running.contains(&index), "ring {index} was updated and doesn't run");
        Ok(())
    }

    fn set_log(&mut self, log: Log, _file: OwnedFd) -> Result<(), Refused> {
        match log.offset.checked_add(log.size) {
            Some(_) => Ok(()),
            None => Err(Refused("no such log".into())),
        }
    }

    fn set_log_call(&mut self, _call: OwnedFd) -> Result<(), Refused> {
        Ok(())
    }

    fn stop(&mut self, index: usize) -> u16 {
        let at = self.running.iter().position(|&running| running == index);
        self.running.swap_remove(at.unwrap_or_else(|| panic!("ring {index} was stopped and doesn't run")));
        index as u16
    }

    fn read_config(&self, offset: u32, bytes: &mut [u8]) {
        assert!(offset as usize + bytes.len() <= 1 << 16);
        bytes.fill(1);
    }

    fn set_mtu(&mut self, _mtu: u16) -> Result<(), Refused> {
        Ok(())
    }

    fn set_channel(&mut self, _channel: OwnedFd) {}

    fn announce(&mut self, _address: [u8; 6]) {}

    fn translate(&mut self, change: Iotlb) -> Result<bool, Refused> {
        assert!(change.kind == Iotlb::INVALIDATE || (1..=3).contains(&change.permissions));
        Ok(change.kind == Iotlb::INVALIDATE)
    }

    fn needs_reset(&self) -> bool {
        false
    }
}

fn offer() -> Offer {
    let features = virtio::NET_CSUM
        | virtio::NET_MQ
        | virtio::NET_CTRL_VQ
        | virtio::RING_PACKED
        | virtio::VERSION_1
        | virtio::ACCESS_PLATFORM
        | virtio::PROTOCOL_FEATURES;
    let protocol = protocol::MQ
        | protocol::REPLY_ACK
        | protocol::MTU
        | protocol::BACKEND_REQ
        | protocol::CONFIG
        | protocol::RESET_DEVICE
        | protocol::CONFIGURE_MEM_SLOTS
        | protocol::STATUS;
    Offer { features, protocol, rings: 5, queues: 2, slots: 32 }
}

/// Passes `data` to a session: a byte before each part of the stream contains the part's length and number of
/// descriptors.
pub fn run(data: &[u8]) {
    let (mut inbox, mut session, mut device) = (Inbox::default(), Session::new(offer()), Nothing::default());
    let mut rest = data;
    'stream: while let Some((&first, behind)) = rest.split_first() {
        let space = inbox.space();
        let count = space.len().min(usize::from(first & 0x3f) * 8 + 1).min(behind.len());
        space[..count].copy_from_slice(&behind[..count]);
        rest = &behind[count..];
        let fds = (0..first >> 6).filter_map(|_| File::open("/dev/null").ok().map(OwnedFd::from)).collect();
        match inbox.filled(count, fds) {
            Ok(Some(message)) => {
                let _ = Reply::decode(message.header.request, &message.payload, Vec::new());
                let _ = BackendRequest::decode(message.header.request, &message.payload, Vec::new());
                if session.handle(message, &mut device).is_err() {
                    break 'stream;
                }
            }
            Ok(None) => (),
            Err(_) => break 'stream,
        }
    }
    session.end(&mut device);
    assert!(device.running.is_empty(), "rings run after the session");
}

/// The beginning of a typical session.
pub fn seeds() -> Vec<Vec<u8>> {
    let state = |index, num| VringState { index, num };
    let whole = |requests: Vec<(Request, u8)>| {
        let mut stream = Vec::new();
        for (request, fds) in requests {
            let bytes = request.encode(true).bytes;
            // A header is read first, then its payload.
            let (header, payload) = bytes.split_at(12);
            stream.push(fds << 6 | 2);
            stream.extend_from_slice(header);
            for part in payload.chunks(0x3f * 8 + 1) {
                stream.push(0x3f);
                stream.extend_from_slice(part);
            }
        }
        stream
    };
    let region = MemoryRegion { guest: 0, size: 1 << 20, user: 1 << 40, offset: 0 };
    let Ok(null) = File::open("/dev/null").map(OwnedFd::from) else { return Vec::new() };
    let granted = Iotlb { iova: 0x1000, size: 0x1000, user: 1 << 40, permissions: 3, kind: 0 };
    let begin = vec![
        (Request::SetOwner, 0),
        (Request::GetFeatures, 0),
        (Request::GetProtocolFeatures, 0),
        (Request::SetProtocolFeatures(offer().protocol), 0),
        (Request::SetFeatures(offer().features), 0),
        (Request::IotlbMsg(Iotlb { kind: Iotlb::UPDATE, ..granted }), 0),
        (Request::IotlbMsg(Iotlb { kind: Iotlb::INVALIDATE, ..granted }), 0),
        (Request::GetQueueNum, 0),
        (Request::GetMaxMemSlots, 0),
        (Request::AddMemReg(SharedRegion { region, fd: null }), 1),
        (Request::SetVringNum(state(0, 256)), 0),
        (Request::SetVringBase(state(0, 0)), 0),
        (Request::SetVringEnable(state(0, 1)), 0),
        (Request::GetVringBase(state(0, 0)), 0),
        (Request::NetSetMtu(1500), 0),
        (Request::SetStatus(15), 0),
        (Request::GetStatus, 0),
        (Request::ResetDevice, 0),
    ];
    vec![whole(begin)]
}
