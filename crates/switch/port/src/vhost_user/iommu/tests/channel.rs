//! IOTLB misses on the back-end channel.

use super::super::*;
use ringway_vhost_user::Header;
use std::io::{PipeReader, PipeWriter, Read};

const ASKED: std::ops::Range<u64> = 1..2000;

/// A channel with room for one page of messages, and an IOMMU with more pending misses than fit.
fn with_channel() -> (Iommu, PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut iommu = Iommu::new(&Arc::new(Memory::default()), Vec::new());
    for page in ASKED {
        iommu.miss(0, Missed { iova: page * PAGE, access: Access::READ }, 0);
    }
    assert!(iommu.outbox.len() >= OUTBOX);
    iommu.send(&writer);
    assert_ne!(iommu.outbox.len() % 44, 0, "a half of one was sent");
    (iommu, reader, writer)
}

/// What a reader of the channel receives: the page of each miss, and 0 for a configuration change.
fn kicked(iommu: &mut Iommu, reader: &mut PipeReader, writer: PipeWriter) -> Vec<u64> {
    let (mut stream, mut bytes) = (Vec::new(), [0; 4096]);
    while !iommu.outbox.is_empty() {
        let count = reader.read(&mut bytes).unwrap();
        stream.extend_from_slice(&bytes[..count]);
        iommu.send(&writer);
    }
    drop(writer);
    reader.read_to_end(&mut stream).unwrap();
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
    assert!(stream.is_empty());
    kicked
}

#[test]
fn a_partly_sent_miss_is_completed_before_the_next_message() {
    let (mut iommu, mut reader, writer) = with_channel();
    iommu.send_request(&BackendRequest::ConfigChange.encode(), &writer);
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
    iommu.send(&writer);
    let kicked = kicked(&mut iommu, &mut reader, writer);
    assert!(kicked.len() > 1000);
    assert_eq!(kicked, (1..=kicked.len() as u64).collect::<Vec<_>>());
}
