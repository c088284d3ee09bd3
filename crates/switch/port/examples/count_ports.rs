//! Work of ports that is counted by valgrind (`scripts/counts.sh`): `count_ports CASE NUMBER`.
//!
//! - `tap.LEN`: passes NUMBER frames of LEN bytes from one TAP queue to another, whose descriptors are sockets here:
//!   the system calls `read` and `writev` are the ports';
//! - `tap.joined`: the same with the segments of a TCP stream, which are joined;
//! - `gro.filled`, `gro.pending`: NUMBER of such segments are joined, whose checksums are filled or left to the
//!   receiver: the instructions of [`join`];
//! - `iommu.lookup`: NUMBER translations of addresses in random order, among 256 pages: the instructions of
//!   [`look_up`];
//! - `wire.codec`: NUMBER frames of 64 bytes are put into VXLAN and taken out: the instructions of [`code`];
//! - `iommu.map`: a page is mapped and unmapped NUMBER times, beside 256 others: those of [`map`].

use ringway_frame::{Burst, Caps, CountersRef, LARGEST, Needs, Offload, Storage};
use ringway_host::{map_region, memfd};
use ringway_mem::iotlb::{Access, Editor, Lookaside, Lookup};
use ringway_mem::{Memory, Reader, Span, SpanMut, Translate, Turn};
use ringway_port::offload::reassembly::Reassembler;
use ringway_port::tap::{Config, Lost, TapPort};
use ringway_port::wire::{Codec, Dscp, Encapsulation};
use ringway_port::{Queue, Silent};
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Ipv4, Protocol, Tcp};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Frames that are taken at once.
const AT_ONCE: usize = 32;
const PAGE: u64 = 4096;
const PAGES: u64 = 256;

/// A TAP port whose interface is a socket, and its other end.
fn side() -> Result<(TapPort, Queue, OwnedFd), Box<dyn Error>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let lost: Lost = Arc::new(|| {});
    let config = Config { mtu: 1500, offloads: true };
    let counters = [CountersRef::private()];
    let (mut port, mut queues) = TapPort::new(config, vec![Arc::new(Silent)], &counters, &lost)?;
    port.attach(vec![own])?;
    Ok((port, queues.pop().ok_or("a port has a queue")?, other))
}

fn forward(turn: &Turn<'_>, storage: &mut Storage, from: &mut Queue, to: &mut Queue) -> usize {
    let which: [u16; ringway_frame::BURST] = std::array::from_fn(|at| at as u16);
    let mut burst = Burst::begin(storage);
    from.tx.take(turn, &mut burst);
    let count = burst.len();
    if count > 0 && to.rx.caps(turn).is_some() {
        let fits = to.rx.reserve(turn, &burst, &which[..count]);
        to.rx.put(turn, &burst, &which[..fits]);
        from.tx.release(turn, count);
        to.rx.publish(turn);
    }
    count
}

fn tap(len: usize, number: usize) -> Result<(), Box<dyn Error>> {
    let ((_one, mut from, source), (_two, mut to, sink)) = (side()?, side()?);
    let mut reader = Reader::register().ok_or("no place for a reader")?;
    let (mut storage, mut out) = (Storage::default(), vec![0; 1 << 16]);
    let header = Offload::default().to_bytes();
    let frame = [&header[..], &vec![0x5a; len]].concat();
    let (mut sent, mut passed) = (0, 0);
    while passed < number {
        while sent < number && sent - passed < AT_ONCE {
            send(&source, &frame, SendFlags::empty())?;
            sent += 1;
        }
        let count = forward(&reader.turn(0), &mut storage, &mut from, &mut to);
        for _ in 0..count {
            let (_, got) = recv(&sink, &mut out[..], RecvFlags::empty())?;
            if got != frame.len() {
                return Err(format!("{got} bytes of {} arrived", frame.len()).into());
            }
        }
        passed += count;
    }
    Ok(())
}

/// The segments of a TCP stream, each of 1448 bytes, and the metadata of all.
fn stream(is_pending: bool) -> (Vec<Vec<u8>>, Offload) {
    let payload = [0x5a; 1448];
    let one = |number: usize| {
        let mut tcp = Tcp { flags: Flags::ACK, data_offset: 8 << 4, ..Tcp::EMPTY };
        tcp.sequence_number.set((number * payload.len()) as u32);
        let mut upper = [tcp.bytes(), &[1; 12], &payload].concat();
        let mut ip = Ipv4 {
            total_length: ((Ipv4::LEN + upper.len()) as u16).into(),
            identification: (number as u16).into(),
            ttl: 64,
            protocol: Protocol::TCP,
            source: 0x0a00_0001.into(),
            destination: 0x0a00_0002.into(),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        let mut sum = ip.pseudo_header(upper.len() as u16);
        if !is_pending {
            sum.add(&upper);
        }
        let value = if is_pending { sum.value() } else { sum.finish_nonzero() };
        upper[16..18].copy_from_slice(&value.to_be_bytes());
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], ip.bytes(), &upper].concat()
    };
    let offload = if is_pending { Offload::checksum(34, 16) } else { Offload::default() };
    ((0..AT_ONCE).map(one).collect(), offload)
}

/// What the receiver of such a stream takes.
const LARGE: Caps = Caps { offloads: Needs::ALL, largest: LARGEST };

/// Joins the frames of a burst.
#[inline(never)]
fn join(reassembler: &mut Reassembler, burst: &Burst<'_>, which: &[u16]) -> usize {
    reassembler.join(burst, which, LARGE).map_or(burst.len(), |joined| joined.burst.len())
}

fn gro(is_pending: bool, number: usize) -> Result<(), Box<dyn Error>> {
    let (frames, offload) = stream(is_pending);
    let which: [u16; AT_ONCE] = std::array::from_fn(|at| at as u16);
    let (mut storage, mut reassembler) = (Storage::default(), Reassembler::default());
    for _ in 0..number / AT_ONCE {
        let mut burst = Burst::begin(&mut storage);
        let full = frames.iter().any(|frame| burst.push(offload, Span::of(frame)).is_err());
        if full || join(&mut reassembler, &burst, &which) != 1 {
            return Err("the segments were not joined".into());
        }
    }
    Ok(())
}

/// As [`tap`], of a stream whose segments are joined.
fn tap_joined(number: usize) -> Result<(), Box<dyn Error>> {
    let ((_one, mut from, source), (_two, mut to, sink)) = (side()?, side()?);
    let mut reader = Reader::register().ok_or("no place for a reader")?;
    let (mut storage, mut reassembler) = (Storage::default(), Reassembler::default());
    let (frames, offload) = stream(false);
    let which: [u16; AT_ONCE] = std::array::from_fn(|at| at as u16);
    let mut out = vec![0; 1 << 16];
    for _ in 0..number / AT_ONCE {
        for frame in &frames {
            send(&source, &[&offload.to_bytes()[..], frame].concat(), SendFlags::empty())?;
        }
        let turn = reader.turn(0);
        let mut burst = Burst::begin(&mut storage);
        from.tx.take(&turn, &mut burst);
        let count = burst.len();
        let joined = reassembler.join(&burst, &which[..count], LARGE).ok_or("nothing was joined")?;
        let fits = to.rx.caps(&turn).map_or(0, |_| to.rx.reserve(&turn, &joined.burst, joined.names()));
        to.rx.put(&turn, &joined.burst, &joined.names()[..fits]);
        from.tx.release(&turn, count);
        to.rx.publish(&turn);
        let (_, got) = recv(&sink, &mut out[..], RecvFlags::empty())?;
        if got != Offload::LEN + 66 + AT_ONCE * 1448 {
            return Err(format!("{got} bytes arrived").into());
        }
    }
    Ok(())
}

/// A table of pages that are not adjacent, so that none merge.
fn table() -> Result<Editor, Box<dyn Error>> {
    let size = (PAGES + 1) * PAGE;
    let file = memfd("count", size as usize)?;
    let memory = Arc::new(Memory::new(vec![map_region(&file, 0, size, 0, 0)?])?);
    let mut editor = Editor::new(memory, 1 << 10);
    for page in 0..PAGES {
        editor.update(page * 2 * PAGE, PAGE, page * PAGE, Access::BOTH)?;
    }
    Ok(editor)
}

#[inline(never)]
fn look_up(editor: &Editor, sought: &[u64]) -> usize {
    let mut aside = Lookaside::default();
    let mut lookup = Lookup::of(editor, &mut aside);
    sought.iter().filter(|iova| lookup.read(**iova, 64).is_ok()).count()
}

#[inline(never)]
fn map(editor: &mut Editor, number: usize) -> Result<(), Box<dyn Error>> {
    for at in 0..number as u64 {
        let iova = (at * 7 % PAGES * 2 + 1) * PAGE;
        editor.update(iova, PAGE, PAGES * PAGE, Access::BOTH)?;
        editor.invalidate(iova, PAGE);
        ringway_host::reclaim_all(std::mem::take(editor.retired()));
    }
    Ok(())
}

/// Puts a frame behind its outer header and takes it out, as a wire port does.
#[inline(never)]
fn code(codec: &Codec, frame: &[u8], datagram: &mut [u8], number: usize) -> usize {
    let head = codec.header_len();
    let mut taken = 0;
    for _ in 0..number {
        datagram[..head].copy_from_slice(&codec.header()[..head]);
        datagram[head..][..frame.len()].copy_from_slice(frame);
        let tos = codec.outer_tos(frame);
        let inner = codec.decapsulate(SpanMut::of(&mut datagram[..head + frame.len()]), tos);
        taken += usize::from(inner.is_ok_and(|inner| inner.len() == frame.len()));
    }
    taken
}

fn wire(number: usize) -> Result<(), Box<dyn Error>> {
    let codec = Codec::new(Encapsulation::Vxlan, 7, Dscp::Inherit);
    let mut frame = [1; 64];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 2]);
    match code(&codec, &frame, &mut [0; 256], number) == number {
        true => Ok(()),
        false => Err("a frame was refused".into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [case, number] = &words[..] else { return Err("a case and a number are needed".into()) };
    let number: usize = number.parse()?;
    match &case[..] {
        "iommu.lookup" => {
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            let mut page = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % PAGES * 2 * PAGE
            };
            let sought: Vec<u64> = (0..number).map(|_| page()).collect();
            let found = look_up(&table()?, &sought);
            if found == number { Ok(()) } else { Err("a mapped page was not found".into()) }
        }
        "gro.filled" => gro(false, number),
        "gro.pending" => gro(true, number),
        "tap.joined" => tap_joined(number),
        "wire.codec" => wire(number),
        "iommu.map" => map(&mut table()?, number),
        case => tap(case.strip_prefix("tap.").ok_or("unknown case")?.parse()?, number),
    }
}
