//! Encoding and decoding of messages.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests fail the test.

use proptest::prelude::*;
use ringway_vhost_user::*;
use std::os::fd::OwnedFd;

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

fn nulls(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| null()).collect()
}

const REGION: MemoryRegion = MemoryRegion { guest: 0, size: 0x1000, user: 0x7f00_0000_0000, offset: 0x2000 };
const STATE: VringState = VringState { index: 1, num: 256 };

fn shared() -> SharedRegion {
    SharedRegion { region: REGION, fd: null() }
}

/// A message of each type, with its number of descriptors.
fn every_message() -> Vec<(Request, usize)> {
    let addr = VringAddr { index: 0, flags: 1, descriptors: 2, used: 3, available: 4, log: 5 };
    let config = Config { offset: 4, flags: 0, bytes: vec![1, 2, 3, 4] };
    let inflight = Inflight { size: 4096, offset: 8, queues: 2, queue_size: 256 };
    let iotlb = Iotlb { iova: 1, size: 2, user: 3, permissions: 3, kind: 2 };
    vec![
        (Request::GetFeatures, 0),
        (Request::SetFeatures(0x1_2345_6789), 0),
        (Request::SetOwner, 0),
        (Request::ResetOwner, 0),
        (Request::SetMemTable(vec![shared(), shared()]), 2),
        (Request::SetLogBase(Log { size: 4096, offset: 8 }, Some(null())), 1),
        (Request::SetLogFd(null()), 1),
        (Request::SetVringNum(STATE), 0),
        (Request::SetVringAddr(addr), 0),
        (Request::SetVringBase(STATE), 0),
        (Request::GetVringBase(STATE), 0),
        (Request::SetVringKick(VringFd { index: 1, fd: Some(null()) }), 1),
        (Request::SetVringKick(VringFd { index: 1, fd: None }), 0),
        (Request::SetVringCall(VringFd { index: 255, fd: Some(null()) }), 1),
        (Request::SetVringErr(VringFd { index: 0, fd: Some(null()) }), 1),
        (Request::GetProtocolFeatures, 0),
        (Request::SetProtocolFeatures(9), 0),
        (Request::GetQueueNum, 0),
        (Request::SetVringEnable(VringState { index: 0, num: 1 }), 0),
        (Request::SendRarp([2, 0, 0, 0, 0, 1]), 0),
        (Request::NetSetMtu(1500), 0),
        (Request::SetBackendReqFd(null()), 1),
        (Request::IotlbMsg(iotlb), 0),
        (Request::SetVringEndian(STATE), 0),
        (Request::GetConfig(Config { offset: 0, flags: 0, bytes: vec![0; 12] }), 0),
        (Request::SetConfig(config), 0),
        (Request::GetInflightFd(inflight), 0),
        (Request::SetInflightFd(inflight, null()), 1),
        (Request::ResetDevice, 0),
        (Request::VringKick(STATE), 0),
        (Request::GetMaxMemSlots, 0),
        (Request::AddMemReg(shared()), 1),
        (Request::RemMemReg(REGION), 0),
        (Request::SetStatus(15), 0),
        (Request::GetStatus, 0),
    ]
}

fn split(packet: &Packet) -> (Header, &[u8]) {
    let (header, payload) = packet.bytes.split_first_chunk::<HEADER>().unwrap();
    (Header::decode(header).unwrap(), payload)
}

#[test]
fn every_message_round_trips() {
    for (message, fds) in every_message() {
        let text = format!("{message:?}");
        let packet = message.encode(true);
        assert_eq!(packet.fds.len(), fds, "{text}");
        let (header, payload) = split(&packet);
        assert!(header.need_reply && !header.reply);
        assert_eq!(header.size as usize, payload.len());
        let again = Request::decode(header.request, payload, nulls(fds)).expect(&text).encode(true);
        assert_eq!(again.bytes, packet.bytes, "{text}");
    }
}

#[test]
fn the_number_of_descriptors_is_checked_in_every_message() {
    for (message, fds) in every_message() {
        let packet = message.encode(false);
        let (header, payload) = split(&packet);
        for wrong in (0..=DESCRIPTORS).filter(|&count| count != fds) {
            let result = Request::decode(header.request, payload, nulls(wrong));
            // REM_MEM_REG may have a file, and SET_LOG_BASE none.
            let tolerated = matches!((header.request, wrong), (38, 1) | (6, 0));
            assert_eq!(result.is_ok(), tolerated, "{} with {wrong}", name(header.request));
        }
    }
}

#[test]
fn truncated_and_overlong_payloads_are_refused() {
    for (message, fds) in every_message() {
        let packet = message.encode(false);
        let (header, payload) = split(&packet);
        // GET_CONFIG needs only its first fields; other messages may lack padding.
        let least = match header.request {
            24 => 12,
            22 => payload.len() - 6,
            31 | 32 => payload.len() - 4,
            _ => payload.len(),
        };
        for len in 0..least {
            let result = Request::decode(header.request, &payload[..len], nulls(fds));
            assert!(matches!(result, Err(CodecError::Size { .. })), "{} of {len}", name(header.request));
        }
        let mut long = payload.to_vec();
        long.resize(PAYLOAD, 0);
        let result = Request::decode(header.request, &long, nulls(fds));
        assert!(matches!(result, Err(CodecError::Size { .. })), "{} of {PAYLOAD}", name(header.request));
    }
}

#[test]
#[cfg(target_endian = "little")]
fn messages_have_the_bytes_of_the_protocol() {
    let hex = |packet: Packet| packet.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(Request::GetFeatures.encode(false)), "010000000100000000000000");
    assert_eq!(
        hex(Request::SetFeatures(0x1_4000_0003).encode(true)),
        "020000000900000008000000".to_owned() + "0300004001000000"
    );
    assert_eq!(
        hex(Request::SetVringNum(STATE).encode(false)),
        "080000000100000008000000".to_owned() + "0100000000010000"
    );
    let no_kick = VringFd { index: 1, fd: None };
    assert_eq!(
        hex(Request::SetVringKick(no_kick).encode(false)),
        "0c0000000100000008000000".to_owned() + "0101000000000000"
    );
    assert_eq!(
        hex(Request::SetMemTable(vec![shared()]).encode(false)),
        "050000000100000028000000".to_owned()
            + "0100000000000000"
            + "0000000000000000"
            + "0010000000000000"
            + "00000000007f0000"
            + "0020000000000000"
    );
    assert_eq!(
        hex(Reply::Vring(STATE).encode(11)),
        "0b0000000500000008000000".to_owned() + "0100000000010000"
    );
}

#[test]
fn a_table_may_be_followed_by_unused_entries() {
    let packet = Request::SetMemTable(vec![shared()]).encode(false);
    let mut payload = split(&packet).1.to_vec();
    payload.extend([0; 32]);
    let read = Request::decode(5, &payload, nulls(1)).unwrap();
    assert!(matches!(read, Request::SetMemTable(table) if table.len() == 1 && table[0].region == REGION));
}

#[test]
fn impossible_fields_are_refused() {
    let wrong_index = 0x1_0001u64.to_ne_bytes();
    assert!(matches!(Request::decode(12, &wrong_index, nulls(1)), Err(CodecError::Field { .. })));
    let many_regions = [9u8, 0, 0, 0, 0, 0, 0, 0];
    assert!(matches!(Request::decode(5, &many_regions, nulls(8)), Err(CodecError::Field { .. })));
    for (offset, size) in [(0u32, 257u32), (256, 1), (u32::MAX, 1), (0, u32::MAX)] {
        let words = [offset, size, 0].map(u32::to_ne_bytes).concat();
        assert!(matches!(Request::decode(24, &words, Vec::new()), Err(CodecError::Field { .. })));
    }
    assert_eq!(Request::decode(99, &[], Vec::new()).unwrap_err(), CodecError::Unknown { request: 99 });
}

#[test]
fn answers_round_trip() {
    let inflight = Inflight { size: 4096, offset: 0, queues: 2, queue_size: 256 };
    let config = Config { offset: 0, flags: 0, bytes: vec![2, 0, 0, 0, 0, 1] };
    let answers = [
        (1, Reply::Number(7)),
        (11, Reply::Vring(STATE)),
        (24, Reply::Config(config)),
        (31, { Reply::Inflight(inflight, null()) }),
    ];
    for (request, answer) in answers {
        let packet = answer.encode(request);
        let fds = packet.fds.len();
        let (header, payload) = split(&packet);
        assert!(header.reply);
        let again = Reply::decode(request, payload, nulls(fds)).unwrap().encode(request);
        assert_eq!(again.bytes, packet.bytes);
        assert!(Reply::decode(request, payload, nulls(fds + 1)).is_err());
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(
        request in 0u32..48,
        payload in proptest::collection::vec(any::<u8>(), 0..PAYLOAD),
        fds in 0..=DESCRIPTORS,
    ) {
        let _ = Request::decode(request, &payload, nulls(fds));
        let _ = Reply::decode(request, &payload, nulls(fds));
        let _ = BackendRequest::decode(request, &payload, nulls(fds));
    }
}
