//! Requests of a front-end.

use crate::codec::{CodecError, Fields, Writer};
use crate::header::{Header, Packet};
use crate::payload::{
    Config, Inflight, Iotlb, Log, MemoryRegion, SharedRegion, VringAddr, VringFd, VringState,
};
use std::os::fd::OwnedFd;

/// Numbers of the messages (vhost-user protocol, "Front-end message types").
pub(crate) mod number {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SEND_RARP: u32 = 19;
    pub const NET_SET_MTU: u32 = 20;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const IOTLB_MSG: u32 = 22;
    pub const SET_VRING_ENDIAN: u32 = 23;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const VRING_KICK: u32 = 35;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_STATUS: u32 = 39;
    pub const GET_STATUS: u32 = 40;
}

/// A front-end's message. The protocol describes each under the same name.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<SharedRegion>),
    /// With a descriptor if [`crate::feature::protocol::LOG_SHMFD`] was negotiated.
    SetLogBase(Log, Option<OwnedFd>),
    SetLogFd(OwnedFd),
    SetVringNum(VringState),
    SetVringAddr(VringAddr),
    SetVringBase(VringState),
    GetVringBase(VringState),
    SetVringKick(VringFd),
    SetVringCall(VringFd),
    SetVringErr(VringFd),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable(VringState),
    SendRarp([u8; 6]),
    NetSetMtu(u64),
    SetBackendReqFd(OwnedFd),
    IotlbMsg(Iotlb),
    SetVringEndian(VringState),
    /// The length of the bytes is the requested length; their values are ignored.
    GetConfig(Config),
    SetConfig(Config),
    GetInflightFd(Inflight),
    SetInflightFd(Inflight, OwnedFd),
    ResetDevice,
    VringKick(VringState),
    GetMaxMemSlots,
    AddMemReg(SharedRegion),
    RemMemReg(MemoryRegion),
    SetStatus(u64),
    GetStatus,
}

impl Request {
    /// Decodes a message. Unexpected descriptors are closed.
    pub fn decode(request: u32, payload: &[u8], fds: Vec<OwnedFd>) -> Result<Request, CodecError> {
        let mut fields = Fields::new(request, payload);
        match request {
            number::SET_MEM_TABLE
            | number::SET_LOG_BASE
            | number::SET_LOG_FD
            | number::SET_VRING_KICK
            | number::SET_VRING_CALL
            | number::SET_VRING_ERR
            | number::SET_BACKEND_REQ_FD
            | number::SET_INFLIGHT_FD
            | number::ADD_MEM_REG
            | number::REM_MEM_REG => Request::decode_with_fds(&mut fields, fds),
            // Attack: descriptors with a message that carries none, which would exhaust the process's limit.
            _ if !fds.is_empty() => Err(CodecError::Descriptors { request, got: fds.len(), want: 0 }),
            _ => Request::decode_plain(&mut fields),
        }
    }

    fn decode_plain(fields: &mut Fields<'_>) -> Result<Request, CodecError> {
        let message = match fields.request() {
            number::GET_FEATURES => Request::GetFeatures,
            number::SET_OWNER => Request::SetOwner,
            number::RESET_OWNER => Request::ResetOwner,
            number::GET_PROTOCOL_FEATURES => Request::GetProtocolFeatures,
            number::GET_QUEUE_NUM => Request::GetQueueNum,
            number::RESET_DEVICE => Request::ResetDevice,
            number::GET_MAX_MEM_SLOTS => Request::GetMaxMemSlots,
            number::GET_STATUS => Request::GetStatus,
            number::SET_FEATURES => Request::SetFeatures(fields.u64()?),
            number::SET_PROTOCOL_FEATURES => Request::SetProtocolFeatures(fields.u64()?),
            number::NET_SET_MTU => Request::NetSetMtu(fields.u64()?),
            number::SET_STATUS => Request::SetStatus(fields.u64()?),
            number::SEND_RARP => {
                let [a, b, c, d, e, f, ..] = fields.u64()?.to_ne_bytes();
                Request::SendRarp([a, b, c, d, e, f])
            }
            number::SET_VRING_NUM => Request::SetVringNum(VringState::decode(fields)?),
            number::SET_VRING_BASE => Request::SetVringBase(VringState::decode(fields)?),
            number::GET_VRING_BASE => Request::GetVringBase(VringState::decode(fields)?),
            number::SET_VRING_ENABLE => Request::SetVringEnable(VringState::decode(fields)?),
            number::SET_VRING_ENDIAN => Request::SetVringEndian(VringState::decode(fields)?),
            number::VRING_KICK => Request::VringKick(VringState::decode(fields)?),
            number::SET_VRING_ADDR => Request::SetVringAddr(VringAddr::decode(fields)?),
            number::IOTLB_MSG => return Ok(Request::IotlbMsg(Iotlb::decode(fields)?)),
            number::GET_CONFIG => return Ok(Request::GetConfig(Config::decode_request(fields)?)),
            number::SET_CONFIG => return Ok(Request::SetConfig(Config::decode(fields)?)),
            number::GET_INFLIGHT_FD => return Ok(Request::GetInflightFd(Inflight::decode(fields)?)),
            request => return Err(CodecError::Unknown { request }),
        };
        fields.end(0)?;
        Ok(message)
    }

    fn decode_with_fds(fields: &mut Fields<'_>, fds: Vec<OwnedFd>) -> Result<Request, CodecError> {
        let request = fields.request();
        match request {
            number::SET_VRING_KICK => return Ok(Request::SetVringKick(VringFd::decode(fields, fds)?)),
            number::SET_VRING_CALL => return Ok(Request::SetVringCall(VringFd::decode(fields, fds)?)),
            number::SET_VRING_ERR => return Ok(Request::SetVringErr(VringFd::decode(fields, fds)?)),
            number::SET_MEM_TABLE => return Request::decode_table(fields, fds),
            // Some front-ends send the region's file again. It is closed.
            number::REM_MEM_REG if fds.len() <= 1 => {
                return Ok(Request::RemMemReg(MemoryRegion::decode_single(fields)?));
            }
            number::SET_LOG_BASE if fds.len() <= 1 => {
                return Ok(Request::SetLogBase(Log::decode(fields)?, fds.into_iter().next()));
            }
            _ => {}
        }
        let got = fds.len();
        let Ok([fd]) = <[OwnedFd; 1]>::try_from(fds) else {
            return Err(CodecError::Descriptors { request, got, want: 1 });
        };
        match request {
            number::SET_LOG_FD => {
                fields.end(0)?;
                Ok(Request::SetLogFd(fd))
            }
            number::SET_BACKEND_REQ_FD => {
                fields.end(0)?;
                Ok(Request::SetBackendReqFd(fd))
            }
            number::SET_INFLIGHT_FD => Ok(Request::SetInflightFd(Inflight::decode(fields)?, fd)),
            number::ADD_MEM_REG => {
                Ok(Request::AddMemReg(SharedRegion { region: MemoryRegion::decode_single(fields)?, fd }))
            }
            _ => Err(CodecError::Descriptors { request, got, want: 1 }),
        }
    }

    fn decode_table(fields: &mut Fields<'_>, fds: Vec<OwnedFd>) -> Result<Request, CodecError> {
        let regions = MemoryRegion::decode_table(fields)?;
        // Attack: with a different number of descriptors than regions, ranges would be paired with the wrong
        // files.
        if regions.len() != fds.len() {
            let (got, want) = (fds.len(), regions.len());
            return Err(CodecError::Descriptors { request: fields.request(), got, want });
        }
        let table = regions.into_iter().zip(fds).map(|(region, fd)| SharedRegion { region, fd });
        Ok(Request::SetMemTable(table.collect()))
    }

    /// Number of the message.
    pub fn number(&self) -> u32 {
        match self {
            Request::GetFeatures => number::GET_FEATURES,
            Request::SetFeatures(_) => number::SET_FEATURES,
            Request::SetOwner => number::SET_OWNER,
            Request::ResetOwner => number::RESET_OWNER,
            Request::SetMemTable(_) => number::SET_MEM_TABLE,
            Request::SetLogBase(..) => number::SET_LOG_BASE,
            Request::SetLogFd(_) => number::SET_LOG_FD,
            Request::SetVringNum(_) => number::SET_VRING_NUM,
            Request::SetVringAddr(_) => number::SET_VRING_ADDR,
            Request::SetVringBase(_) => number::SET_VRING_BASE,
            Request::GetVringBase(_) => number::GET_VRING_BASE,
            Request::SetVringKick(_) => number::SET_VRING_KICK,
            Request::SetVringCall(_) => number::SET_VRING_CALL,
            Request::SetVringErr(_) => number::SET_VRING_ERR,
            Request::GetProtocolFeatures => number::GET_PROTOCOL_FEATURES,
            Request::SetProtocolFeatures(_) => number::SET_PROTOCOL_FEATURES,
            Request::GetQueueNum => number::GET_QUEUE_NUM,
            Request::SetVringEnable(_) => number::SET_VRING_ENABLE,
            Request::SendRarp(_) => number::SEND_RARP,
            Request::NetSetMtu(_) => number::NET_SET_MTU,
            Request::SetBackendReqFd(_) => number::SET_BACKEND_REQ_FD,
            Request::IotlbMsg(_) => number::IOTLB_MSG,
            Request::SetVringEndian(_) => number::SET_VRING_ENDIAN,
            Request::GetConfig(_) => number::GET_CONFIG,
            Request::SetConfig(_) => number::SET_CONFIG,
            Request::GetInflightFd(_) => number::GET_INFLIGHT_FD,
            Request::SetInflightFd(..) => number::SET_INFLIGHT_FD,
            Request::ResetDevice => number::RESET_DEVICE,
            Request::VringKick(_) => number::VRING_KICK,
            Request::GetMaxMemSlots => number::GET_MAX_MEM_SLOTS,
            Request::AddMemReg(_) => number::ADD_MEM_REG,
            Request::RemMemReg(_) => number::REM_MEM_REG,
            Request::SetStatus(_) => number::SET_STATUS,
            Request::GetStatus => number::GET_STATUS,
        }
    }

    /// Whether the message has a reply, so that it is not acknowledged additionally.
    pub fn has_reply(&self) -> bool {
        matches!(
            self,
            Request::GetFeatures
                | Request::GetVringBase(_)
                | Request::SetLogBase(..)
                | Request::GetProtocolFeatures
                | Request::GetQueueNum
                | Request::GetConfig(_)
                | Request::GetInflightFd(_)
                | Request::GetMaxMemSlots
                | Request::GetStatus
        )
    }

    /// Encodes the message.
    pub fn encode(self, need_reply: bool) -> Packet {
        let request = self.number();
        let (payload, fds) = self.payload();
        Header::request_packet(request, need_reply, &payload.0, fds)
    }

    fn payload(self) -> (Writer, Vec<OwnedFd>) {
        let plain = |writer: Writer| (writer, Vec::new());
        match self {
            Request::GetFeatures
            | Request::SetOwner
            | Request::ResetOwner
            | Request::GetProtocolFeatures
            | Request::GetQueueNum
            | Request::ResetDevice
            | Request::GetMaxMemSlots
            | Request::GetStatus => plain(Writer::default()),
            Request::SetFeatures(value)
            | Request::SetProtocolFeatures(value)
            | Request::NetSetMtu(value)
            | Request::SetStatus(value) => plain(Writer::default().u64(value)),
            Request::SendRarp(address) => plain(Writer::default().bytes(&address).u16(0)),
            Request::SetVringNum(state)
            | Request::SetVringBase(state)
            | Request::GetVringBase(state)
            | Request::SetVringEnable(state)
            | Request::SetVringEndian(state)
            | Request::VringKick(state) => plain(state.encode()),
            Request::SetVringAddr(addr) => plain(addr.encode()),
            Request::SetVringKick(vring) | Request::SetVringCall(vring) | Request::SetVringErr(vring) => {
                vring.encode()
            }
            Request::SetMemTable(table) => {
                let mut writer = Writer::default().u32(table.len() as u32).u32(0);
                let mut fds = Vec::new();
                for SharedRegion { region, fd } in table {
                    writer = region.encode(writer);
                    fds.push(fd);
                }
                (writer, fds)
            }
            Request::SetLogBase(log, fd) => (log.encode(), fd.into_iter().collect()),
            Request::SetLogFd(fd) | Request::SetBackendReqFd(fd) => (Writer::default(), vec![fd]),
            Request::IotlbMsg(iotlb) => plain(iotlb.encode()),
            Request::GetConfig(config) | Request::SetConfig(config) => plain(config.encode()),
            Request::GetInflightFd(inflight) => plain(inflight.encode()),
            Request::SetInflightFd(inflight, fd) => (inflight.encode(), vec![fd]),
            Request::AddMemReg(SharedRegion { region, fd }) => (region.encode_single(), vec![fd]),
            Request::RemMemReg(region) => plain(region.encode_single()),
        }
    }
}
