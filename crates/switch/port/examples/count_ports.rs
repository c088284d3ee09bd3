//! Work of ports that is counted by valgrind (`scripts/counts.sh`): `count_ports CASE NUMBER`.
//!
//! - `tap.LEN`: passes NUMBER frames of LEN bytes from one TAP queue to another, whose descriptors are sockets here:
//!   the system calls `read` and `writev` are the ports';
//! - `iommu.lookup`: NUMBER translations of addresses in random order, among 256 pages: the instructions of
//!   [`look_up`];
//! - `wire.codec`: NUMBER frames of 64 bytes are put into VXLAN and taken out: the instructions of [`code`];
//! - `iommu.map`: a page is mapped and unmapped NUMBER times, beside 256 others: those of [`map`].

use ringway_frame::{Burst, CountersRef, Offload, Storage};
use ringway_host::{map_region, memfd};
use ringway_mem::iotlb::{Access, Editor, Lookaside, Lookup};
use ringway_mem::{Memory, Reader, SpanMut, Translate, Turn};
use ringway_port::tap::{Config, Lost, TapPort};
use ringway_port::wire::{Codec, Dscp, Encapsulation};
use ringway_port::{Queue, Silent};
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
        "wire.codec" => wire(number),
        "iommu.map" => map(&mut table()?, number),
        case => tap(case.strip_prefix("tap.").ok_or("unknown case")?.parse()?, number),
    }
}
