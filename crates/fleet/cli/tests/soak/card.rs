//! A guest with an emulated card (82540EM): its driver sends back what it gets.

use ringway_host::{map_region, memfd, receive_with, send_with};
use ringway_mem::{Hint, Memory, SpanMut};
use ringway_vfio_user::{Client, DmaMap, Packet, Transport, pci};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Memory of the guest: the rings of descriptors, then a buffer of 2 KB for each of them.
const SIZE: u64 = 1 << 20;
const RX: u64 = 0x1000;
const TX: u64 = 0x2000;
const BUFFERS: [u64; 2] = [0x1_0000, 0x8_0000];
const STEP: u64 = 2048;
/// Descriptors of a ring, and the bytes of one.
const RING: u32 = 64;
const DESCRIPTOR: u64 = 16;
/// Registers, by the data sheet's names.
const RCTL: u64 = 0x100;
const TCTL: u64 = 0x400;
const RDT: u64 = 0x2818;
const TDT: u64 = 0x3818;
/// RCTL: EN, UPE, MPE, BAM, SECRC. TCTL: EN, PSP.
const RECEIVE: u32 = 0x0400_801a;
const TRANSMIT: u32 = 0xa;
/// A descriptor's commands EOP, IFCS and RS, and its status DD.
const COMMANDS: u8 = 0xb;
const DONE: u8 = 1;
/// Time between two looks at the rings.
const PAUSE: Duration = Duration::from_micros(200);

struct Link(UnixStream);

impl Transport for Link {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        send_with(self.0.as_fd(), &packet.bytes, &fds).map(drop).map_err(io::Error::other)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

fn span(memory: &Memory, at: u64, len: u32) -> SpanMut<'_> {
    memory.span_mut(at, len, &mut Hint::default()).unwrap()
}

/// Gives the card its rings, and starts it.
fn begin(memory: &Memory, client: &mut Client<Link>) {
    for number in 0..u64::from(RING) {
        let buffer = BUFFERS[0] + number * STEP;
        span(memory, RX + number * DESCRIPTOR, 8).write(&buffer.to_le_bytes());
    }
    let length = RING * DESCRIPTOR as u32;
    let begin = [
        (0x2800, RX as u32),
        (0x2808, length),
        (RCTL, RECEIVE),
        (RDT, RING - 1),
        (0x3800, TX as u32),
        (0x3808, length),
        (TCTL, TRANSMIT),
    ];
    for (register, value) in begin {
        client.write(pci::BAR0, register, &value.to_le_bytes()).unwrap();
    }
}

/// Sends back what the card gets, until told to stop, or until the device is gone.
pub(super) fn reflect(socket: UnixStream, stop: &AtomicBool) {
    let file = memfd("guest", SIZE as usize).unwrap();
    let memory = Memory::new(vec![map_region(&file, 0, SIZE, 0, 0).unwrap()]).unwrap();
    let mut client = Client::negotiate(Link(socket)).unwrap();
    let (argsz, flags) = (size_of::<DmaMap>() as u32, DmaMap::READ | DmaMap::WRITE);
    client.dma_map(DmaMap { argsz, flags, address: 0, size: SIZE, offset: 0 }, Some(file)).unwrap();
    // Memory accesses, bus master.
    client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
    begin(&memory, &mut client);
    let (mut next, mut sent, mut done) = (0_u64, 0_u64, 0_u64);
    while !stop.load(SeqCst) {
        let mut any = false;
        // As many as have room to be sent.
        while sent - done < u64::from(RING) - 1 {
            let at = next % u64::from(RING);
            let mut descriptor = [0; DESCRIPTOR as usize];
            span(&memory, RX + at * DESCRIPTOR, 16).as_span().read(&mut descriptor);
            if descriptor[12] & DONE == 0 {
                break;
            }
            let len = u16::from_le_bytes([descriptor[8], descriptor[9]]);
            let mut frame = vec![0; usize::from(len)];
            span(&memory, BUFFERS[0] + at * STEP, u32::from(len)).as_span().read(&mut frame);
            descriptor[..8].copy_from_slice(&(BUFFERS[0] + at * STEP).to_le_bytes());
            descriptor[8..].fill(0);
            span(&memory, RX + at * DESCRIPTOR, 16).write(&descriptor);
            let place = sent % u64::from(RING);
            let buffer = BUFFERS[1] + place * STEP;
            span(&memory, buffer, u32::from(len)).write(&frame);
            let mut descriptor = [0; DESCRIPTOR as usize];
            descriptor[..8].copy_from_slice(&buffer.to_le_bytes());
            descriptor[8..10].copy_from_slice(&len.to_le_bytes());
            descriptor[11] = COMMANDS;
            span(&memory, TX + place * DESCRIPTOR, 16).write(&descriptor);
            (next, sent, any) = (next + 1, sent + 1, true);
        }
        while done < sent {
            let mut status = [0];
            span(&memory, TX + done % u64::from(RING) * DESCRIPTOR + 12, 1).as_span().read(&mut status);
            if status[0] & DONE == 0 {
                break;
            }
            done += 1;
        }
        if any {
            // The last descriptor that the card may fill is the one before that which is looked at next.
            let tails = [(TDT, sent), (RDT, next + u64::from(RING) - 1)];
            for (register, tail) in tails {
                let value = ((tail % u64::from(RING)) as u32).to_le_bytes();
                if client.write(pci::BAR0, register, &value).is_err() {
                    // The device is gone until the guest starts again.
                    return;
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
}
