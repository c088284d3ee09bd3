//! Messages as bytes and back.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests fail the test.

use proptest::prelude::*;
use ringway_vfio_user::*;
use std::os::fd::OwnedFd;

fn nulls(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
}

fn set(action: IrqAction, count: u32, data: IrqData<'_>) -> Request<'_> {
    Request::SetIrqs(SetIrqs { index: pci::MSIX, start: 1, count, action, data })
}

/// A message of each kind, with the number of descriptors it carries.
fn every_message() -> Vec<(Request<'static>, usize)> {
    let map = DmaMap { argsz: 32, flags: 3, offset: 0x1000, address: 0x2000, size: 0x3000 };
    let capabilities = Capabilities { max_msg_fds: 16, write_multiple: true, ..Capabilities::default() };
    let access = Access { offset: 0x3818, region: pci::BAR0, count: 4 };
    let write = Write { access, data: [1, 2, 3, 4, 0, 0, 0, 0] };
    vec![
        (Request::Version(0, 1, capabilities), 0),
        (Request::DmaMap(map, Some(nulls(1).remove(0))), 1),
        (Request::DmaUnmap(DmaUnmap { argsz: 24, flags: 0, address: 0x2000, size: 0x3000 }), 0),
        (Request::GetInfo(DeviceInfo { argsz: 16, ..DeviceInfo::default() }), 0),
        (Request::GetRegionInfo(RegionInfo { argsz: 32, index: pci::CONFIG, ..RegionInfo::default() }), 0),
        (Request::GetRegionIoFds(RegionIoFds { argsz: 16, ..RegionIoFds::default() }), 0),
        (Request::GetIrqInfo(IrqInfo { argsz: 16, index: pci::MSI, ..IrqInfo::default() }), 0),
        (set(IrqAction::Trigger, 3, IrqData::Eventfds(nulls(3))), 3),
        (set(IrqAction::Unmask, 1, IrqData::All), 0),
        (set(IrqAction::Mask, 2, IrqData::Some(&[0, 1])), 0),
        (Request::RegionRead(access), 0),
        (Request::RegionWrite(access, &[1, 2, 3, 4]), 0),
        (Request::Reset, 0),
        (Request::RegionWriteMulti(vec![write, write]), 0),
    ]
}

fn split(packet: &Packet) -> (Header, &[u8]) {
    let (header, payload) = packet.bytes.split_first_chunk::<HEADER>().unwrap();
    (Header::decode(header).unwrap(), payload)
}

#[test]
fn every_message_round_trips() {
    for (message, fds) in every_message() {
        let (text, command) = (format!("{message:?}"), message.command());
        let packet = message.encode(77, true);
        assert_eq!(packet.fds.len(), fds, "{text}");
        let (header, payload) = split(&packet);
        let kind = Kind::Command { no_reply: true };
        assert_eq!(header, Header { id: 77, command, kind, size: payload.len() });
        let again = Request::decode(command, payload, nulls(fds)).expect(&text).encode(77, true);
        assert_eq!(again.bytes, packet.bytes, "{text}");
    }
}

#[test]
fn the_number_of_descriptors_is_checked_in_every_message() {
    for (message, fds) in every_message() {
        let packet = message.encode(0, false);
        let (header, payload) = split(&packet);
        for wrong in (0..=DESCRIPTORS).filter(|&count| count != fds) {
            let result = Request::decode(header.command, payload, nulls(wrong));
            // A range may have no file; without eventfds, those set before are removed.
            let permitted = wrong == 0 && fds > 0;
            assert_eq!(result.is_ok(), permitted, "{} with {wrong}", name(header.command));
        }
    }
}

#[test]
fn truncated_and_overlong_payloads_are_refused() {
    for (message, fds) in every_message() {
        let packet = message.encode(0, false);
        let (header, payload) = split(&packet);
        // A version without capabilities is complete.
        for len in (0..payload.len()).filter(|len| header.command != command::VERSION || *len != 4) {
            let result = Request::decode(header.command, &payload[..len], nulls(fds));
            assert!(result.is_err(), "{} of {len}", name(header.command));
        }
        let longer = [payload, &[0]].concat();
        let result = Request::decode(header.command, &longer, nulls(fds));
        assert!(result.is_err(), "{} and one more", name(header.command));
    }
}

#[test]
fn impossible_fields_are_refused() {
    let set = |flags: u32, count: u32, data: &[u8], fds: usize| {
        let words = [20, flags, 0, 0, count].map(u32::to_ne_bytes).concat();
        let payload = [&words, data].concat();
        Request::decode(command::DEVICE_SET_IRQS, &payload, nulls(fds)).map(drop)
    };
    assert_eq!(set(1 | 32, 1, &[], 0), Ok(()));
    // No action, two actions, no data, two kinds of data, an undefined flag.
    for flags in [1, 1 | 8 | 16, 32, 3 | 32, 6 | 32, 1 | 32 | 64, u32::MAX] {
        assert!(set(flags, 1, &[], 0).is_err(), "{flags:#x}");
    }
    assert!(set(2 | 32, u32::MAX, &[1], 0).is_err());
    assert!(set(4 | 32, u32::MAX, &[], 1).is_err());
    for count in [0u64, 2, 1 << 61, u64::MAX] {
        let payload = [&count.to_ne_bytes()[..], &[0; 24]].concat();
        let result = Request::decode(command::REGION_WRITE_MULTI, &payload, Vec::new());
        assert!(matches!(result, Err(CodecError::Size { .. })), "{count}");
    }
    for unsupported in [0, command::DMA_READ, 14, 16, 17, 18, u16::MAX] {
        let result = Request::decode(unsupported, &[0; 32], Vec::new());
        assert!(matches!(result, Err(CodecError::Unsupported { .. })), "{unsupported}");
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(
        command in 0u16..20,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        fds in 0..=DESCRIPTORS,
    ) {
        let _ = Request::decode(command, &payload, nulls(fds));
    }
}
