//! A card that returns each frame, over a socket: driven by the vfio-user client with its driver of e1000 cards,
//! and by a stock QEMU.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_host::{EventFd, map_region, memfd, receive_with, send_with, wait_readable};
use ringway_mem::{Hint, Memory, Pairs, SpanMut, Words};
use ringway_tests::card::Card;
use ringway_tests::e1000::E1000;
use ringway_tests::eventually;
use ringway_tests::folder::Folder;
use ringway_tests::qemu::with_cards;
use ringway_tests::qtest::{Qtest, accept};
use ringway_vfio_user::*;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any answer takes.
const BOUND: Duration = Duration::from_secs(20);
/// Bytes of registers; those of the rings can be mapped.
const BAR: u64 = 0x8000;
const CTRL: u64 = 0x0000;
const ICR: u64 = 0x00c0;
const IMS: u64 = 0x00d0;
const IMC: u64 = 0x00d8;
/// Base of a ring's registers: base, length at 8, head at 0x10, tail at 0x18.
const RX: u64 = 0x2800;
const TX: u64 = 0x3800;
const DONE: u64 = 1 << 32;

/// A card that receives each frame that it sends.
struct Echo {
    registers: Memory,
    config: [u8; 256],
    memory: Memory,
    call: Option<EventFd>,
    masks_itself: bool,
    masked: bool,
}

fn span(memory: &Memory, at: u64, len: u32) -> SpanMut<'_> {
    memory.span_mut(at, len, &mut Hint::default()).unwrap()
}

impl Echo {
    fn register(&self, offset: u64) -> Words<'_, u32> {
        Words::new(span(&self.registers, offset, 4)).unwrap()
    }

    fn get(&self, offset: u64) -> u32 {
        self.register(offset).load_acquire(0)
    }

    fn set(&self, offset: u64, value: u32) {
        self.register(offset).store_release(0, value);
    }

    fn ring(&self, base: u64) -> (Pairs<'_>, u32) {
        let count = self.get(base + 8) / 16;
        (Pairs::new(span(&self.memory, self.get(base).into(), count * 16), count as u16).unwrap(), count)
    }

    /// Returns frames as long as there are some, and buffers for them.
    fn run(&mut self) {
        while self.get(TX + 8) > 0 && self.get(TX + 0x10) != self.get(TX + 0x18) {
            let (from, to) = (self.get(RX + 0x10), self.get(TX + 0x10));
            if from == self.get(RX + 0x18) {
                break;
            }
            let ((rx, count), (tx, _)) = (self.ring(RX), self.ring(TX));
            let len = tx.second(to as usize) & 0xffff;
            let sent = span(&self.memory, tx.first(to as usize), len as u32);
            let buffer = span(&self.memory, rx.first(from as usize), 2048);
            ringway_mem::copy(sent.as_span(), buffer);
            rx.release_second(from as usize, len | DONE | DONE << 1);
            tx.release_second(to as usize, len | DONE);
            self.set(RX + 0x10, (from + 1) % count);
            self.set(TX + 0x10, (to + 1) % count);
            self.set(ICR, self.get(ICR) | 1 << 7 | 1);
        }
        self.interrupt();
    }

    fn interrupt(&mut self) {
        if let Some(call) = self.call.as_ref().filter(|_| self.get(ICR) & self.get(IMS) != 0 && !self.masked)
        {
            call.signal();
            self.masked = self.masks_itself;
            if !self.masks_itself {
                self.set(ICR, 0);
            }
        }
    }
}

impl Device for Echo {
    fn dma_map(&mut self, map: DmaMap, file: Option<OwnedFd>) -> Result<(), Refused> {
        let DmaMap { offset, address, size, .. } = map;
        // Ranges without a file, such as ROMs, are not accessed.
        if let Some(file) = file {
            let region = map_region(file, offset, size, address, address).unwrap();
            self.memory = Memory::new([self.memory.regions(), &[region]].concat()).unwrap();
        }
        Ok(())
    }

    fn dma_unmap(&mut self, ranges: &[DmaRange]) {
        let mut regions = self.memory.regions().to_vec();
        regions.retain(|region| ranges.iter().all(|range| range.address != region.guest));
        self.memory = Memory::new(regions).unwrap();
    }

    fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        match region {
            pci::BAR0 => bytes.copy_from_slice(&self.get(offset).to_le_bytes()),
            _ => bytes.copy_from_slice(&self.config[offset as usize..][..bytes.len()]),
        }
        if (region, offset) == (pci::BAR0, ICR) {
            self.set(ICR, 0);
        }
        Ok(())
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        if region != pci::BAR0 {
            self.config[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        let value = u32::from_le_bytes(bytes.try_into().unwrap());
        match offset {
            CTRL => self.set(CTRL, value & !(1 << 26)),
            IMS => self.set(IMS, self.get(IMS) | value),
            IMC => self.set(IMS, self.get(IMS) & !value),
            _ => self.set(offset, value),
        }
        Ok(())
    }

    fn set_eventfd(&mut self, irq: Irq, action: IrqAction, fd: Option<OwnedFd>) -> Result<(), Refused> {
        if let (Some(fd), IrqAction::Trigger) = (fd, action) {
            (self.call, self.masks_itself) = (Some(fd.into()), irq.index == pci::INTX);
        }
        Ok(())
    }

    fn act(&mut self, _irq: Irq, action: IrqAction) {
        self.masked = action == IrqAction::Mask;
    }

    fn reset(&mut self) {
        self.set(TX + 8, 0);
        self.set(IMS, 0);
    }
}

/// Serves one client until it disconnects; polls mapped registers.
fn serve(listener: &UnixListener, is_mapped: bool) {
    let file = memfd("registers", BAR as usize).unwrap();
    let registers = Arc::new(ringway_host::Mapping::shared(&file, 0, BAR as usize).unwrap()).region();
    let areas = vec![Area { offset: 0x2000, size: 0x2000 }];
    let mapping = is_mapped.then(|| ringway_vfio_user::Mapping { file: Arc::new(file), offset: 0, areas });
    let flags = RegionInfo::READ | RegionInfo::WRITE;
    let mut regions = vec![Region::default(); pci::REGIONS];
    regions[pci::BAR0 as usize] = Region { size: BAR, flags, mapping, ..Region::default() };
    regions[pci::CONFIG as usize] = Region { size: 256, flags, ..Region::default() };
    let flags = IrqType::EVENTFD | IrqType::MASKABLE | IrqType::AUTOMASKED;
    let irq = IrqType { count: 1, flags };
    let irqs = vec![irq, irq, IrqType::default(), IrqType::default(), IrqType::default()];
    let mut session = Session::new(Offer { regions, irqs, maps: 8 });
    let registers = Memory::new(vec![registers]).unwrap();
    let mut config = [0; 256];
    // An Ethernet controller of Intel with an interrupt pin.
    config[..12].copy_from_slice(&[0x86, 0x80, 0x0e, 0x10, 0, 0, 0, 0, 2, 0, 0, 2]);
    config[0x3d] = 1;
    let memory = Memory::default();
    let mut card = Echo { registers, config, memory, call: None, masks_itself: false, masked: false };
    let stream = accept(listener).unwrap();
    let mut inbox = Inbox::default();
    while receive(&stream, &mut inbox, is_mapped) {
        while let Some(message) = inbox.message().unwrap() {
            let outcome = session.handle(message, &mut card).unwrap();
            assert_eq!(outcome.refused, None);
            if let Some(Packet { bytes, fds }) = outcome.answer {
                let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
                assert_eq!(send_with(&stream, &bytes, &fds).unwrap(), bytes.len());
            }
        }
        card.run();
    }
    session.end(&mut card);
}

/// Receives what there is, or for a moment nothing; `false` at the end.
fn receive(stream: &UnixStream, inbox: &mut Inbox, is_mapped: bool) -> bool {
    let moment = is_mapped.then_some(50_000);
    if !wait_readable(&[stream.as_fd()], moment).unwrap()[0] {
        return true;
    }
    let (count, fds) = receive_with(stream, inbox.space(), DESCRIPTORS).unwrap();
    inbox.filled(count, fds).unwrap();
    count > 0
}

fn frames_return(interrupts: u32, is_mapped: bool) {
    let folder = Folder::new("vfio").unwrap();
    let socket = folder.path().join("card.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, is_mapped));
        let card = Card::connect(&socket).unwrap();
        assert_eq!((card.is_mapped(TX), card.is_mapped(CTRL)), (is_mapped, false));
        let mut driver = E1000::start(card, [2, 0, 0, 0, 0, 1], interrupts).unwrap();
        for round in 0..200_u32 {
            let burst = 1 + round % 24;
            let frame = |number: u32| vec![number as u8; 60 + (round * 31 + number) as usize % 1400];
            (0..burst).for_each(|number| driver.send(&frame(number), BOUND).unwrap());
            let mut returned = Vec::new();
            while returned.len() < burst as usize {
                returned.extend(driver.receive(BOUND).unwrap());
            }
            assert!(returned.into_iter().eq((0..burst).map(frame)), "round {round}");
        }
        driver.card().reset().unwrap();
        driver.card().unmap().unwrap();
    });
}

#[test]
fn frames_return_with_trapped_registers() {
    frames_return(pci::INTX, false);
    frames_return(pci::MSI, false);
}

#[test]
fn frames_return_with_mapped_registers() {
    frames_return(pci::INTX, true);
    frames_return(pci::MSI, true);
}

/// What a driver in a guest of a stock QEMU would do.
fn qemu_accesses_a_card(program: &Path, is_mapped: bool) {
    const BASE: u64 = 0xe000_0000;
    let folder = Folder::new("vfio").unwrap();
    let socket = folder.path().join("card.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, is_mapped));
        let mut qemu = Qtest::start(program, folder.path(), &socket).unwrap();
        qemu.configure(0x10, BASE as u32).unwrap();
        qemu.configure(4, 6).unwrap();
        let mut write = |address: u64, value: u64| {
            let command = if address >= BASE { "writel" } else { "writeq" };
            qemu.ask(&format!("{command} {address:#x} {value:#x}")).unwrap();
        };
        // Rings of eight descriptors, one frame of 64 bytes.
        for (base, ring) in [(RX, 0x10_0000), (TX, 0x10_1000)] {
            for (at, value) in [(0, ring), (8, 128), (0x10, 0), (0x18, 0)] {
                write(BASE + base + at, value);
            }
        }
        write(0x10_0000, 0x20_0000);
        write(0x10_1000, 0x20_1000);
        write(0x10_1008, 64);
        write(0x20_1000, 0x1122_3344_5566_7788);
        write(BASE + RX + 0x18, 7);
        (0..300).for_each(|value| write(BASE + 0x5400, value));
        write(BASE + TX + 0x18, 1);
        let done = || qemu.read("readq", 0x10_0008).unwrap() & DONE != 0;
        assert!(eventually(BOUND, done), "the frame does not return");
        assert_eq!(qemu.read("readq", 0x20_0000).unwrap(), 0x1122_3344_5566_7788);
        assert_eq!(qemu.read("readl", BASE + 0x5400).unwrap(), 299);
        assert_eq!(qemu.read("readl", BASE + TX + 0x10).unwrap(), 1);
    });
}

#[test]
fn a_stock_qemu_attaches_a_card() {
    let Some(program) = with_cards() else {
        eprintln!("no QEMU with vfio-user: not tried");
        return;
    };
    qemu_accesses_a_card(&program, false);
    qemu_accesses_a_card(&program, true);
}
