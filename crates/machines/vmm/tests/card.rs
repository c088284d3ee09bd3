//! Guests with a card whose port is the test's: what they access, and ports that lie, fail or are silent.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::{BOUND, MEMORY, image, machine, run};
use ringway_host::{EventFd, memfd, receive_with, send_with};
use ringway_vfio_user::{
    Area, ClientError, Device, DmaMap, DmaRange, Inbox, Irq, IrqAction, IrqType, Mapping, Offer, Refused,
    Region, RegionDoorbell, RegionInfo, Session, pci,
};
use ringway_vmm::{CardError, End};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const BAR: u64 = 0x6000;
/// The offset at which the port closes the connection, and one that it does not answer.
const CLOSES: u64 = 0x100;
const SILENT: u64 = 0x104;

/// A card that notes accesses, and interrupts as soon as it can.
#[derive(Default)]
struct Card {
    config: BTreeMap<u64, u8>,
    /// The eventfd of its pin, and how often that was unmasked.
    pin: Option<EventFd>,
    unmasked: usize,
    /// Offset, bytes; a read has none.
    log: Vec<(u64, Vec<u8>)>,
    mapped: u64,
}

impl Device for Card {
    fn dma_map(&mut self, map: DmaMap, file: Option<OwnedFd>) -> Result<(), Refused> {
        self.mapped += if file.is_some() { map.size } else { 0 };
        Ok(())
    }
    fn dma_unmap(&mut self, _: &[DmaRange]) {}
    fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        if region == pci::CONFIG {
            let byte = |at: u64| self.config.get(&at).copied().unwrap_or(0);
            (offset..).zip(bytes).for_each(|(at, out)| *out = byte(at));
        } else {
            self.log.push((offset, Vec::new()));
            bytes.fill(7);
        }
        Ok(())
    }
    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        if region == pci::BAR0 {
            self.log.push((offset, bytes.to_vec()));
        }
        Ok(())
    }
    fn set_eventfd(&mut self, irq: Irq, _: IrqAction, eventfd: Option<OwnedFd>) -> Result<(), Refused> {
        let Some(eventfd) = eventfd.map(EventFd::from) else { return Ok(()) };
        eventfd.signal();
        self.pin = (irq.index == pci::INTX).then_some(eventfd);
        Ok(())
    }
    fn act(&mut self, irq: Irq, action: IrqAction) {
        if (irq.index, action) == (pci::INTX, IrqAction::Unmask) {
            self.unmasked += 1;
            // It is asserted still, once.
            self.pin.iter().filter(|_| self.unmasked == 1).for_each(|pin| pin.signal());
        }
    }
    fn reset(&mut self) {}
}

/// A card with these registers; the file and the areas may be mapped.
fn offer(size: u64, mapping: Option<Mapping>) -> Offer {
    let flags = RegionInfo::READ | RegionInfo::WRITE;
    let mut regions = vec![Region::default(); pci::REGIONS];
    regions[pci::BAR0 as usize] = Region { size, flags, mapping, ..Region::default() };
    regions[pci::CONFIG as usize] = Region { size: 256, flags, ..Region::default() };
    let mut irqs = vec![IrqType::default(); pci::IRQS];
    irqs[pci::MSI as usize] = IrqType { count: 1, flags: IrqType::EVENTFD };
    Offer { regions, irqs, maps: 8 }
}

/// A capability list: power management at 0x40, interrupts at 0x50.
fn config() -> BTreeMap<u64, u8> {
    BTreeMap::from([(0x34, 0x40), (0x40, 1), (0x41, 0x50), (0x50, 5)])
}

/// Serves one client until it disconnects; returns what it did.
fn serve(name: &str, offer: Offer, config: BTreeMap<u64, u8>) -> (PathBuf, JoinHandle<Card>) {
    let path = std::env::temp_dir().join(format!("ringway-vmm-{name}-{}", std::process::id()));
    // Left by a killed run.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut card = Card { config, ..Card::default() };
        answer(&socket, Session::new(offer), &mut card);
        card
    });
    (path, server)
}

fn answer(socket: &UnixStream, mut session: Session, card: &mut Card) {
    let mut inbox = Inbox::default();
    loop {
        let (count, fds) = receive_with(socket.as_fd(), inbox.space(), 16).unwrap();
        if count == 0 {
            return;
        }
        inbox.filled(count, fds).unwrap();
        while let Some(message) = inbox.message().unwrap() {
            let outcome = session.handle(message, card).unwrap();
            match card.log.last() {
                Some((CLOSES, _)) => return,
                Some((SILENT, _)) => continue,
                _ => {}
            }
            let Some(reply) = outcome.answer else { continue };
            let fds: Vec<_> = reply.fds.iter().map(|fd| fd.as_fd()).collect();
            // The client may be gone.
            let _ = send_with(socket.as_fd(), &reply.bytes, &fds);
        }
    }
}

/// Runs `code` on a machine with a card; the machine's end, and what the card saw.
fn guest(name: &str, mapping: Option<Mapping>, code: &[u8], timeout: Duration) -> Option<(End, Card)> {
    let mut vm = machine()?;
    let (path, server) = serve(name, offer(BAR, mapping), config());
    vm.attach_card(&path, timeout).unwrap();
    std::fs::remove_file(path).unwrap();
    vm.load(&image(code), "").unwrap();
    let end = run(&mut vm, BOUND).0;
    drop(vm);
    Some((end, server.join().unwrap()))
}

#[test]
fn accesses_are_forwarded_and_those_outside_end_the_guest() {
    // mov eax, [0xe0000010]; mov [0xe0000014], eax; hlt
    let code = [0xa1, 0x10, 0, 0, 0xe0, 0xa3, 0x14, 0, 0, 0xe0, 0xf4];
    let Some((end, card)) = guest("forward", None, &code, BOUND) else { return };
    assert_eq!((end, card.mapped), (End::Halted, MEMORY as u64));
    assert_eq!(card.log, [(0x10, vec![]), (0x14, vec![7; 4])]);
    // Attack: accesses that begin behind the registers, or end there.
    let (end, ..) = guest("behind", None, &[0xa1, 0, 0x60, 0, 0xe0], BOUND).unwrap();
    assert_eq!(end, End::Address(0xe000_6000));
    let (end, card) = guest("across", None, &[0xa3, 0xfe, 0x5f, 0, 0xe0], BOUND).unwrap();
    assert_eq!((end, card.log.len()), (End::Address(0xe000_6000), 1));
}

#[test]
fn mapped_registers_are_memory_and_interrupts_wake_a_guest() {
    let file = Arc::new(memfd("registers", BAR as usize).unwrap());
    let areas = vec![Area { offset: 0x2000, size: 0x2000 }];
    let mapping = Mapping { file: file.clone(), offset: 0, areas };
    // mov eax, 1000000; out 0xf8, eax: sleeps; mov eax, [0x5000]; mov [0xe0002004], eax; out 0xf4, eax
    let code = [
        &[0xb8, 0x40, 0x42, 0x0f, 0, 0xe7, 0xf8, 0xa1, 0, 0x50, 0, 0][..],
        &[0xa3, 0x04, 0x20, 0, 0xe0, 0xe7, 0xf4],
    ];
    let Some((end, card)) = guest("mapped", Some(mapping), &code.concat(), BOUND) else { return };
    assert_eq!((end, card.log), (End::Exit(1), vec![]));
    let mut bytes = [0; 8];
    let region = ringway_host::map_region(&*file, 0x2000, 0x1000, 0, 0).unwrap();
    let memory = ringway_mem::Memory::new(vec![region]).unwrap();
    memory.user_span(0, 8).unwrap().as_span().read(&mut bytes);
    assert_eq!(bytes, [0, 0, 0, 0, 1, 0, 0, 0]);
}

/// A card with doorbells at these offsets, of these sizes.
fn ringing(doorbells: &[(u64, u64)], eventfd: &EventFd) -> Offer {
    let eventfd = Arc::new(eventfd.as_fd().try_clone_to_owned().unwrap());
    let doorbell = |&(offset, size)| RegionDoorbell { offset, size, eventfd: eventfd.clone() };
    let mut offer = offer(BAR, None);
    offer.regions[pci::BAR0 as usize].doorbells = doorbells.iter().map(doorbell).collect();
    offer
}

#[test]
fn a_doorbell_signals_its_eventfd_without_a_message() {
    let Some(mut vm) = machine() else { return };
    let eventfd = EventFd::new().unwrap();
    let (path, server) = serve("doorbell", ringing(&[(0x40, 4)], &eventfd), config());
    vm.attach_card(&path, BOUND).unwrap();
    std::fs::remove_file(path).unwrap();
    // mov [0xe0000040], eax; mov [0xe0000044], eax; hlt
    vm.load(&image(&[0xa3, 0x40, 0, 0, 0xe0, 0xa3, 0x44, 0, 0, 0xe0, 0xf4]), "").unwrap();
    assert_eq!(run(&mut vm, BOUND).0, End::Halted);
    drop(vm);
    let log = server.join().unwrap().log;
    assert_eq!(
        (log.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), eventfd.clear()),
        (vec![0x44], true)
    );
}

#[test]
fn a_register_write_that_waits_for_the_guests_sleep_is_carried_out_once() {
    // mov dword [0x5008], offset; mov dword [0x500c], value; mov eax, 1; twice out 0xf8, eax; hlt
    let code = |offset: u32| {
        let stores = [(0x5008_u32, offset), (0x500c, 0x1234)];
        let store =
            |(at, value): (u32, u32)| [&[0xc7, 5][..], &at.to_le_bytes(), &value.to_le_bytes()].concat();
        [&stores.map(store).concat()[..], &[0xb8, 1, 0, 0, 0, 0xe7, 0xf8, 0xe7, 0xf8, 0xf4]].concat()
    };
    let Some((end, card)) = guest("deferred", None, &code(0x14), BOUND) else { return };
    assert_eq!((end, card.log), (End::Halted, vec![(0x14, vec![0x34, 0x12, 0, 0])]));
    // Attack: registers that the card does not have.
    for (name, offset) in [("deferred-behind", 0x6000), ("deferred-end", 0x5ffe), ("deferred-last", u32::MAX)]
    {
        let (end, card) = guest(name, None, &code(offset), BOUND).unwrap();
        assert_eq!((end, card.log.len()), (End::Address(0xe000_0000 + u64::from(offset)), 0));
    }
}

#[test]
fn a_pin_is_unmasked_when_the_guest_sleeps_or_at_once() {
    // mov dword [0x5004], edge; mov eax, TIME; three times out 0xf8, eax; hlt: the third one is not woken.
    let code = |edge: u8, time: u32| {
        let sleep = [&[0xb8][..], &time.to_le_bytes(), &[0xe7, 0xf8]].concat();
        let store = [0xc7, 5, 4, 0x50, 0, 0, edge, 0, 0, 0];
        [&store[..], &sleep, &sleep, &[0xb8, 1, 0, 0, 0, 0xe7, 0xf8, 0xf4]].concat()
    };
    // The second signal comes by the first unmasking; that is the second sleep's, or the first interrupt's.
    for edge in [0, 1] {
        let Some(mut vm) = machine() else { return };
        let mut offer = offer(BAR, None);
        offer.irqs[pci::MSI as usize] = IrqType::default();
        offer.irqs[pci::INTX as usize] =
            IrqType { count: 1, flags: IrqType::EVENTFD | IrqType::MASKABLE | IrqType::AUTOMASKED };
        let (path, server) = serve(&format!("pin-{edge}"), offer, BTreeMap::from([(0, 0xec), (1, 0x10)]));
        let words = vm.attach_card(&path, BOUND).unwrap();
        assert!(words.contains("card-id=4332 "), "{words}");
        std::fs::remove_file(path).unwrap();
        vm.load(&image(&code(edge, 200_000)), "").unwrap();
        assert_eq!(run(&mut vm, BOUND).0, End::Halted);
        assert_eq!((vm.counts().interrupts, vm.counts().parks), (2, 3));
        drop(vm);
        assert_eq!(server.join().unwrap().unmasked, 2);
    }
}

#[test]
fn a_port_that_fails_or_is_silent_ends_only_its_guest() {
    // mov eax, [0xe0000100]
    let Some((end, ..)) = guest("closes", None, &[0xa1, 0, 1, 0, 0xe0], BOUND) else { return };
    assert!(matches!(&end, End::Card(reason) if reason.contains("closed")), "{end}");
    let (end, _) = guest("silent", None, &[0xa1, 4, 1, 0, 0xe0], Duration::from_secs(1)).unwrap();
    assert!(matches!(&end, End::Card(reason) if reason.contains("timed out")), "{end}");
}

#[test]
fn ports_that_describe_no_card_are_refused() {
    let file = Arc::new(memfd("registers", 1 << 20).unwrap());
    let with = |size: u64, areas: &[(u64, u64)]| {
        let areas = areas.iter().map(|&(offset, size)| Area { offset, size }).collect();
        offer(size, Some(Mapping { file: file.clone(), offset: 0, areas }))
    };
    let eventfd = EventFd::new().unwrap();
    let many: Vec<_> = (0..17).map(|page| (page * 0x1000, 0x1000)).collect();
    let wrong = [
        offer(0, None),
        offer(2 << 20, None),
        // Misaligned, behind the end, one that wraps, an empty one, overlapping, and too many areas.
        with(BAR, &[(0x2010, 0x1000)]),
        with(BAR, &[(0x5000, 0x2000)]),
        with(BAR, &[(0x1000, u64::MAX - 0xfff)]),
        with(BAR, &[(0x1000, 0)]),
        with(BAR, &[(0x1000, 0x2000), (0x2000, 0x1000)]),
        with(1 << 20, &many),
        // Doorbells behind the end, misaligned, one that wraps, of another size, and too many.
        ringing(&[(BAR, 4)], &eventfd),
        ringing(&[(0x42, 4)], &eventfd),
        ringing(&[(u64::MAX - 3, 4)], &eventfd),
        ringing(&[(0x40, 8)], &eventfd),
        ringing(&[(0x40, 4); 9], &eventfd),
    ];
    for (number, offer) in wrong.into_iter().enumerate() {
        let Some(mut vm) = machine() else { return };
        let (path, server) = serve(&format!("wrong-{number}"), offer, config());
        let refused = vm.attach_card(&path, BOUND).unwrap_err();
        std::fs::remove_file(path).unwrap();
        // More doorbells than a message may carry are refused when it is read.
        let expected = matches!(refused, CardError::Registers)
            || number == 12 && matches!(refused, CardError::Client(ClientError::Codec(_)));
        assert!(expected, "{number}: {refused}");
        server.join().unwrap();
    }
    // No capability of interrupts, and a list that is a circle.
    for (number, next) in [0, 0x40].into_iter().enumerate() {
        let mut vm = machine().unwrap();
        let circle = BTreeMap::from([(0x34, 0x40), (0x40, 1), (0x41, next)]);
        let (path, server) = serve(&format!("circle-{number}"), offer(BAR, None), circle);
        assert!(matches!(vm.attach_card(&path, BOUND), Err(CardError::NoInterrupts)));
        std::fs::remove_file(path).unwrap();
        server.join().unwrap();
    }
}
