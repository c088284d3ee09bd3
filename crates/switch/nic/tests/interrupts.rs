//! When interrupts are sent, in virtual time.

use crate::common::*;
use ringway_frame::{Burst, Storage};
use ringway_nic::e1000::{Area, Bus, Host, registers as reg};
use ringway_nic::i82540em::MODEL;
use ringway_nic::{Doorbells, Techniques};
use std::sync::atomic::{AtomicU32, Ordering};

const US: u64 = 1000;

/// A machine whose driver has read its causes.
fn up(techniques: Techniques) -> Machine {
    let mut machine = Machine::up(&MODEL, techniques);
    machine.read(reg::ICR);
    machine.interrupts = 0;
    machine
}

/// Receives a frame every 10 us for 10 ms, with a driver that reads its causes in each interrupt. Returns the number of
/// interrupts, and the longest time for which a frame waited for one.
fn run(machine: &mut Machine) -> (u64, u64) {
    let (mut before, mut waits, mut longest) = (machine.interrupts, None, 0);
    for _ in 0..1000 {
        machine.receive(&frame(60));
        waits = waits.or(Some(machine.now));
        for _ in 0..10 {
            if machine.interrupts > before {
                before = machine.interrupts;
                machine.read(reg::ICR);
                assert!(!machine.poll().is_empty());
                longest = longest.max(machine.now - waits.take().unwrap_or(machine.now));
            }
            machine.pass(US);
        }
    }
    machine.pass(2000 * US);
    machine.poll();
    machine.read(reg::ICR);
    (machine.interrupts, longest)
}

#[test]
fn the_chips_moderation_limits_the_rate() {
    let mut plain = up(Techniques::default());
    assert_eq!(run(&mut plain), (1000, 0));
    let mut throttled = up(Techniques::default());
    // 250 * 256 ns = 64 us.
    throttled.write(reg::ITR, 250);
    let (count, longest) = run(&mut throttled);
    assert!((130..=160).contains(&count), "{count}");
    assert!(longest <= 65 * US, "{longest}");
    assert!(throttled.shared.interrupts().counts().1 > 100);
    throttled.nic.set_techniques(Techniques { timers: false, ..Techniques::default() }, throttled.now);
    throttled.interrupts = 0;
    assert_eq!(run(&mut throttled), (1000, 0), "switched off while it runs");
}

#[test]
fn receive_delays_restart_with_each_frame_and_end_absolutely() {
    let mut machine = up(Techniques::default());
    // 20 and 100 units of 1.024 us; frames come every 10 us.
    machine.write(reg::RDTR, 20);
    machine.write(reg::RADV, 100);
    let (count, longest) = run(&mut machine);
    assert!((80..=100).contains(&count), "{count}");
    assert!((100 * US..=104 * US).contains(&longest), "{longest}");
    machine.interrupts = 0;
    machine.receive(&frame(60));
    machine.pass(20 * US);
    assert_eq!(machine.interrupts, 0);
    machine.pass(US);
    assert_eq!(machine.interrupts, 1, "the last frame's delay has ended");
    machine.poll();
    machine.read(reg::ICR);
    machine.receive(&frame(60));
    machine.write(reg::RDTR, 1 << 31 | 20);
    assert_eq!(machine.interrupts, 2, "flushed");
}

#[test]
fn transmit_delays_hold_for_descriptors_that_allow_it() {
    let mut machine = up(Techniques::default());
    machine.write(reg::TIDV, 8);
    machine.write(reg::TADV, 32);
    machine.txd |= IDE;
    machine.send(&frame(60));
    machine.take();
    assert_eq!((machine.interrupts, machine.tx.next_due()), (0, Some(machine.now + 8 * 1024)));
    machine.pass(9 * US);
    assert_eq!((machine.interrupts, machine.read(reg::ICR) & 1), (1, 1));
    machine.txd &= !IDE;
    machine.send(&frame(60));
    machine.take();
    assert_eq!(machine.interrupts, 2);
}

#[test]
fn the_ports_window_has_one_interrupt() {
    let mut machine = up(Techniques { moderate: 50 * US, ..Techniques::default() });
    let (count, longest) = run(&mut machine);
    assert!((190..=210).contains(&count), "{count}");
    assert!(longest <= 51 * US, "{longest}");
}

#[test]
fn a_turns_frames_share_an_interrupt_and_awaited_doorbells_wake_nobody() {
    let mut machine = up(Techniques { combine: 20 * US, moderate: 10 * US, ..Techniques::default() });
    machine.receive(&frame(60));
    assert_eq!((machine.interrupts, machine.rx.defers_signal()), (0, true));
    machine.receive(&frame(60));
    let (shared, memory) = (machine.shared.clone(), machine.memory.clone());
    let raise = machine.rx.end_turn(&Bus { shared: &shared, memory: &memory, now: machine.now });
    machine.raised(raise);
    assert_eq!(machine.interrupts, 1);
    for _ in 0..2 {
        machine.send(&frame(60));
        machine.take();
    }
    assert_eq!(machine.tx.next_due(), Some(machine.now + 10 * US), "an interrupt is due");
    let kicks = machine.kicks;
    machine.send(&frame(60));
    assert_eq!(machine.kicks, kicks);
    machine.pass(11 * US);
    machine.send(&frame(60));
    assert_eq!((machine.kicks, machine.take().len()), (kicks + 1, 2));
}

/// The worker stops looking while the session writes the tail without waking it: either the worker finds the frame
/// before it sleeps, or the session wakes it.
#[test]
fn a_doorbell_that_wakes_nobody_is_seen_by_the_worker() {
    let mut machine = up(Techniques { combine: 20 * US, moderate: 10 * US, ..Techniques::default() });
    for _ in 0..5000 {
        machine.pass(100 * US);
        for _ in 0..2 {
            machine.send(&frame(60));
            machine.take();
        }
        let due = machine.tx.next_due().unwrap();
        machine.data(&frame(60), 4096, 0, machine.txd);
        let (shared, memory) = (machine.shared.clone(), machine.memory.clone());
        let Machine { nic, tx, tdt, .. } = &mut machine;
        let ready = AtomicU32::new(0);
        // Both begin within nanoseconds of each other.
        let both = || {
            ready.fetch_add(1, Ordering::SeqCst);
            (0..).take_while(|_| ready.load(Ordering::SeqCst) < 2).for_each(|turn| match turn % 1000 {
                999 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            });
        };
        let (kick, armed) = std::thread::scope(|scope| {
            let session = scope.spawn(|| {
                let mut host = Host { now: due - 1, quiesce: &mut || (), memory: &memory };
                both();
                nic.write(Area::Bar(0), reg::TDT.into(), &tdt.to_le_bytes(), &mut host).kick
            });
            let bus = Bus { shared: &shared, memory: &memory, now: due };
            let mut storage = Storage::default();
            both();
            let mut burst = Burst::begin(&mut storage);
            let _ = tx.take(&bus, &mut burst);
            let armed = burst.is_empty() && tx.arm(&bus);
            (session.join().unwrap(), armed)
        });
        assert!(kick || !armed, "the worker sleeps over a frame");
        machine.take();
    }
}

#[test]
fn masked_causes_wait_and_the_link_interrupts() {
    let mut machine = up(Techniques::default());
    machine.write(reg::IMC, u32::MAX);
    machine.receive(&frame(60));
    assert_eq!((machine.interrupts, machine.shared.interrupts().level()), (0, false));
    machine.write(reg::IMS, IMS);
    assert_eq!((machine.interrupts, machine.shared.interrupts().level()), (1, true));
    machine.read(reg::ICR);
    assert!(!machine.shared.interrupts().level());
    let effects = machine.nic.set_link(false, machine.now);
    machine.note(effects);
    assert_eq!((machine.interrupts, machine.read(reg::ICR), machine.read(reg::STATUS) & 2), (2, 4, 0));
    assert_eq!(machine.receive(&frame(60)).0, 1, "frames on their way arrive");
    machine.write(reg::ICS, 4);
    assert_eq!(machine.config_read(4) >> 16 & 8, 8);
    machine.config_write(5, &[4]);
    assert!(!machine.nic.config().intx_enabled(), "INTx is disabled");
}

#[test]
fn changed_techniques_lose_no_interrupt() {
    let mut machine = up(Techniques { moderate: 1000 * US, ..Techniques::default() });
    machine.receive(&frame(60));
    machine.read(reg::ICR);
    machine.receive(&frame(60));
    assert_eq!(machine.interrupts, 1);
    machine.nic.set_techniques(Techniques::NONE, machine.now);
    machine.receive(&frame(60));
    assert_eq!(machine.interrupts, 2);
    assert_eq!(machine.poll().len(), 3);
}

/// The shared block's words: those that the guest writes, then those of the device.
const GUEST: [u64; 5] = [0, 4, 8, 12, 16];
const HOST_TDH: u64 = 64;
const HOST_NEED_TXKICK: u64 = 68;
const HOST_RDH: u64 = 80;

#[test]
fn with_a_shared_block_neither_side_needs_registers() {
    let mut machine = up(Techniques { csb: true, ..Techniques::default() });
    assert_eq!(machine.config_read(0x2c) >> 16, 0x1101);
    let [tdt, need_tx, need_rx, on, rdt] = GUEST.map(|at| CSB + at);
    let set = |machine: &Machine, at: u64, value: u32| machine.poke(at, &value.to_le_bytes());
    let get = |machine: &Machine, at: u64| machine.word(CSB + at) as u32;
    set(&machine, on, 1);
    set(&machine, rdt, RING - 1);
    machine.write(reg::CSBAH, (CSB >> 32) as u32);
    machine.write(reg::CSBAL, CSB as u32);
    let accesses = machine.nic.accesses().iter().map(|(.., count)| count.reads + count.writes).sum::<u64>();
    machine.data(&frame(60), 60, 0, machine.txd);
    set(&machine, tdt, machine.tdt);
    assert_eq!((machine.take().len(), get(&machine, HOST_TDH), machine.interrupts), (1, 1, 0));
    assert_eq!(get(&machine, HOST_NEED_TXKICK), 0);
    assert_eq!((machine.receive(&frame(60)), get(&machine, HOST_RDH), machine.interrupts), ((1, 0), 1, 0));
    set(&machine, need_rx, 1);
    machine.receive(&frame(60));
    set(&machine, need_tx, 1);
    machine.data(&frame(60), 60, 0, machine.txd);
    set(&machine, tdt, machine.tdt);
    let (shared, memory) = (machine.shared.clone(), machine.memory.clone());
    let bus = Bus { shared: &shared, memory: &memory, now: machine.now };
    assert!(!machine.tx.arm(&bus), "a frame is there");
    assert_eq!(machine.take().len(), 1);
    assert_eq!((machine.interrupts, get(&machine, HOST_NEED_TXKICK)), (2, 0));
    machine.take();
    assert!(machine.tx.arm(&bus));
    assert_eq!(get(&machine, HOST_NEED_TXKICK), 1);
    assert_eq!(
        machine.nic.accesses().iter().map(|(.., count)| count.reads + count.writes).sum::<u64>(),
        accesses
    );
    let kicks = machine.kicks;
    machine.write(reg::CSBTXKICK, 77);
    assert_eq!((machine.kicks, machine.read(reg::CSBTXKICK), machine.read(reg::TDT)), (kicks + 1, 0, 0));
    // Attack: indices of any value, and a block outside memory, which is not used.
    set(&machine, tdt, u32::MAX);
    set(&machine, rdt, u32::MAX);
    assert_eq!((machine.take().len(), machine.receive(&frame(60))), (0, (0, 0)));
    for address in [BASE + 2 * LEN - 64, CSB + 2, u64::MAX] {
        machine.write(reg::CSBAH, (address >> 32) as u32);
        machine.write(reg::CSBAL, address as u32);
        machine.take();
        assert_eq!(machine.receive(&frame(60)), (1, 0), "by the registers");
    }
}

#[test]
fn a_counted_request_has_one_interrupt_without_icr() {
    let mut machine = up(Techniques { csb: true, ..Techniques::default() });
    let [.., need_rx, on, rdt] = GUEST.map(|at| CSB + at);
    let (request, answered) = (CSB + 20, CSB + 104);
    let set = |machine: &Machine, at: u64, value: u32| machine.poke(at, &value.to_le_bytes());
    set(&machine, on, 1);
    set(&machine, rdt, RING - 1);
    machine.write(reg::CSBAH, (CSB >> 32) as u32);
    machine.write(reg::CSBAL, CSB as u32);
    for number in 1..4 {
        set(&machine, request, number);
        for (wanted, interrupts) in [(0, number - 1), (1, number), (1, number)] {
            set(&machine, need_rx, wanted);
            assert_eq!(machine.receive(&frame(60)), (1, 0));
            assert_eq!(machine.interrupts as u32, interrupts);
            assert_eq!(machine.word(answered) as u32, interrupts);
        }
    }
    // Attack: a number that changes all the time, and one that is answered before it is asked; neither costs more than
    // an interrupt for each frame.
    for number in [u32::MAX, 1, u32::MAX] {
        set(&machine, request, number);
        set(&machine, answered, number.wrapping_add(1));
        machine.receive(&frame(60));
    }
    assert_eq!(machine.interrupts, 6);
    // Techniques change while an interrupt waits for its window.
    let moderated = Techniques { csb: true, moderate: 1000 * US, ..Techniques::default() };
    machine.nic.set_techniques(moderated, machine.now);
    for number in [8, 9] {
        set(&machine, request, number);
        machine.receive(&frame(60));
    }
    assert_eq!(machine.interrupts, 7);
    machine.nic.set_techniques(Techniques { csb: true, ..Techniques::default() }, machine.now);
    set(&machine, need_rx, 0);
    machine.receive(&frame(60));
    assert_eq!(machine.interrupts, 8, "it is not lost");
}

#[test]
fn a_sleeping_worker_looks_at_mapped_doorbells_by_a_timer() {
    let mut machine = up(Techniques { doorbells: Doorbells::Mapped, poll: 80 * US, ..Techniques::default() });
    let (shared, memory) = (machine.shared.clone(), machine.memory.clone());
    machine.take();
    assert!(machine.tx.arm(&Bus { shared: &shared, memory: &memory, now: machine.now }));
    machine.send(&frame(60));
    // The next multiple of the interval.
    assert_eq!(machine.tx.next_due(), Some(13 * 80 * US));
    machine.now = 13 * 80 * US;
    assert_eq!((machine.take().len(), machine.tx.next_due()), (1, None));
}
