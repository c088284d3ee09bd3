//! Segments of a burst that are joined, from hostile frames: cut again, they are the same frames.

use ringway_frame::{Burst, Caps, LARGEST, Needs, Offload, Storage};
use ringway_mem::Span;
use ringway_port::offload::Completer;
use ringway_port::offload::reassembly::Reassembler;
use ringway_wire::{Header, Ipv4, Protocol, Tcp, Udp, tcp::Flags};
use std::cell::RefCell;

const ALL: Caps = Caps { offloads: Needs::ALL, largest: LARGEST };
const BARE: Caps = Caps { offloads: Needs::NONE, largest: LARGEST };
/// Most frames of an input.
const FRAMES: usize = 64;

thread_local! {
    static MEMORY: RefCell<(Storage, Reassembler, Completer)> = RefCell::default();
}

/// The frames that a destination without offloads gets of a burst, sorted.
fn completed(burst: &Burst<'_>, completer: &mut Completer) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for frame in 0..burst.len() {
        let done = completer.complete(burst, &[frame as u16], BARE);
        all.extend((0..done.burst.len()).map(|at| {
            let mut bytes = vec![0; done.burst.meta(at).len as usize];
            assert_eq!(done.burst.read(at, 0, &mut bytes), bytes.len());
            bytes
        }));
    }
    all.sort();
    all
}

/// Each frame has two bytes of its length, one with what its checksum is and where its memory is cut, and its bytes.
pub fn run(data: &[u8]) {
    let (mut rest, mut frames) = (data, Vec::new());
    while let Some((&[high, low, how], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(usize::from(u16::from_be_bytes([high, low])).min(behind.len()));
        let offload = match how & 3 {
            1 => Offload::checksum(34, 16),
            2 => Offload::checksum(34, 6),
            3 => Offload::checksum(54, 16),
            _ => Offload::default(),
        };
        if let Ok(offload) = offload.check(frame.len() as u32, Needs::ALL) {
            let (first, second) = frame.split_at((usize::from(how) / 4).min(frame.len()));
            frames.push((offload, [Span::of(first), Span::of(second)]));
        }
        rest = behind;
        if frames.len() == FRAMES {
            break;
        }
    }
    MEMORY.with_borrow_mut(|(storage, reassembler, completer)| {
        let mut burst = Burst::begin(storage);
        for (offload, pieces) in &frames {
            // A burst has only so many bytes.
            let _ = burst.push_pieces(*offload, pieces);
        }
        let which: Vec<u16> = (0..burst.len() as u16).collect();
        let Some(joined) = reassembler.join(&burst, &which, ALL) else { return };
        assert!(joined.burst.len() < burst.len() && joined.firsts.len() == joined.burst.len());
        assert_eq!(completed(&joined.burst, completer), completed(&burst, completer));
    });
}

/// Segments of TCP and datagrams of UDP that follow each other.
pub fn seeds() -> Vec<Vec<u8>> {
    let frame = |protocol: Protocol, number: u16, how: u8| {
        let upper = match protocol {
            Protocol::TCP => {
                let mut tcp = Tcp { flags: Flags::ACK, data_offset: 5 << 4, ..Tcp::EMPTY };
                tcp.sequence_number.set(u32::from(number) * 40);
                tcp.bytes().to_vec()
            }
            _ => Udp { length: 48.into(), ..Udp::default() }.bytes().to_vec(),
        };
        let mut upper = [&upper[..], &[7; 40]].concat();
        let mut ip = Ipv4 {
            total_length: (20 + upper.len() as u16).into(),
            identification: number.into(),
            ttl: 64,
            protocol,
            source: 0x0a00_0001.into(),
            destination: 0x0a00_0002.into(),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        let mut sum = ip.pseudo_header(upper.len() as u16);
        let field = if protocol == Protocol::TCP { 16 } else { 6 };
        let value = if how & 3 == 0 {
            sum.add(&upper);
            sum.finish_nonzero()
        } else {
            sum.value()
        };
        upper[field..field + 2].copy_from_slice(&value.to_be_bytes());
        let bytes = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], ip.bytes(), &upper].concat();
        [&(bytes.len() as u16).to_be_bytes()[..], &[how], &bytes].concat()
    };
    let stream = |protocol, how| (0..4).flat_map(|number| frame(protocol, number, how)).collect();
    vec![
        stream(Protocol::TCP, 0),
        stream(Protocol::TCP, 1 | 60 << 2),
        stream(Protocol::UDP, 0),
        stream(Protocol::UDP, 2),
    ]
}
