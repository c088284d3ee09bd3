//! IOTLB misses on the back-end channel.

use super::super::outbox::OUTBOX;
use super::super::*;
use super::guest::{GuestConfig, add};
use super::rig::{Rig, with};
use ringway_host::wait_readable;
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Header, Request};
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;

const ASKED: std::ops::Range<u64> = 1..2000;

/// A channel with room for one page of messages, and an IOMMU with more pending misses than fit.
fn with_channel() -> (Iommu, PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut iommu = Iommu::new(&Arc::new(Memory::default()), Vec::new(), Outbox::default());
    for page in ASKED {
        iommu.miss(0, Missed { iova: page * PAGE, access: Access::READ }, 0);
    }
    assert!(iommu.outbox.bytes.len() >= OUTBOX);
    iommu.outbox.send(&writer);
    assert_ne!(iommu.outbox.bytes.len() % 44, 0, "a half of one was sent");
    (iommu, reader, writer)
}

/// What a reader of the channel receives: the page of each miss, and 0 for a configuration change.
fn kicked(iommu: &mut Iommu, reader: &mut PipeReader, writer: PipeWriter) -> Vec<u64> {
    let (mut stream, mut bytes) = (Vec::new(), [0; 4096]);
    while !iommu.outbox.is_empty() {
        let count = reader.read(&mut bytes).unwrap();
        stream.extend_from_slice(&bytes[..count]);
        iommu.outbox.send(&writer);
    }
    drop(writer);
    reader.read_to_end(&mut stream).unwrap();
    messages(stream)
}

/// The page of each miss, and 0 for a configuration change. All messages must be whole.
fn messages(mut stream: Vec<u8>) -> Vec<u64> {
    let mut kicked = Vec::new();
    while let Some(header) = stream.first_chunk::<12>() {
        let header = Header::decode(header).unwrap();
        let end = 12 + header.size as usize;
        kicked.push(match BackendRequest::decode(header.request, &stream[12..end], Vec::new()).unwrap() {
            BackendRequest::Iotlb(asked) => asked.iova / PAGE,
            _ => 0,
        });
        stream.drain(..end);
    }
    assert!(stream.is_empty(), "{} bytes of a message", stream.len());
    kicked
}

#[test]
fn a_partly_sent_miss_is_completed_before_the_next_message() {
    let (mut iommu, mut reader, writer) = with_channel();
    iommu.outbox.post(&BackendRequest::ConfigChange.encode());
    let kicked = kicked(&mut iommu, &mut reader, writer);
    let questions = kicked.len() as u64 - 1;
    assert!(questions > 1000);
    assert_eq!(kicked, (1..=questions).chain([0]).collect::<Vec<_>>());
}

#[test]
fn a_new_channel_gets_whole_miss_messages() {
    let (mut iommu, _reader, _writer) = with_channel();
    let (mut reader, writer) = std::io::pipe().unwrap();
    iommu.ask_anew();
    iommu.outbox.send(&writer);
    let kicked = kicked(&mut iommu, &mut reader, writer);
    assert!(kicked.len() > 1000);
    assert_eq!(kicked, (1..=kicked.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_partly_sent_miss_is_completed_after_all_translations_are_forgotten() {
    let (mut iommu, mut reader, writer) = with_channel();
    iommu.forget(&Arc::new(Memory::default()));
    assert!(iommu.pending.is_empty());
    // Its queue needs it again.
    iommu.miss(0, Missed { iova: PAGE, access: Access::READ }, 0);
    iommu.outbox.post(&BackendRequest::ConfigChange.encode());
    let kicked = kicked(&mut iommu, &mut reader, writer);
    let questions = kicked.len() as u64 - 2;
    assert_eq!(kicked, (1..=questions).chain([1, 0]).collect::<Vec<_>>());
}

/// What a front-end does with a device while a miss is partly sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    ReplacesMemory,
    Stops,
    StopsAndDropsTheIommu,
    StopsAndNegotiatesAnew,
}

#[test]
fn a_partly_sent_miss_is_completed_whatever_happens_to_the_device() {
    const BUFFERS: u64 = 0x4000_0000;
    for act in [Act::ReplacesMemory, Act::Stops, Act::StopsAndDropsTheIommu, Act::StopsAndNegotiatesAnew] {
        with(GuestConfig::ALL[0], |rig| {
            let Rig { space, rx, monitor, .. } = rig;
            let (mut reader, writer) = std::io::pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
            monitor.front.set(Request::SetBackendReqFd(writer.into())).unwrap();
            (0..200).for_each(|page| _ = add(rx, BUFFERS + page * PAGE, 2048, true));
            // A wide invalidation: the translations of all posted buffers are requested.
            monitor.send_iotlb(Message::INVALIDATE, BUFFERS, 1 << 30, 0, 0).unwrap();
            let features = monitor.front.features();
            if act != Act::ReplacesMemory {
                [0, 1].into_iter().for_each(|ring| _ = monitor.front.stop(ring).unwrap());
            }
            match act {
                Act::Stops => {}
                Act::ReplacesMemory => monitor.front.set_memory(vec![space.share()]).unwrap(),
                Act::StopsAndDropsTheIommu | Act::StopsAndNegotiatesAnew => {
                    let without = Request::SetFeatures(features & !virtio::ACCESS_PLATFORM);
                    monitor.front.set(without).unwrap();
                }
            }
            if act == Act::StopsAndNegotiatesAnew {
                monitor.front.set(Request::SetFeatures(features)).unwrap();
            }
            let (mut stream, mut bytes) = (Vec::new(), [0; 4096]);
            while wait_readable(&[reader.as_fd()], Some(0)).unwrap()[0] {
                let count = reader.read(&mut bytes).unwrap();
                stream.extend_from_slice(&bytes[..count]);
                monitor.front.transport().process_pending().unwrap();
            }
            assert!(stream.len() > 4096, "{act:?}: {} bytes", stream.len());
            assert!(messages(stream).len() >= 200, "{act:?}");
        });
    }
}
