//! Guests that write anything anywhere: the model never panics, touches nothing outside the guest's memory (which has
//! guard pages), and does a bounded amount of work.

use crate::common::*;
use proptest::prelude::*;
use ringway_frame::Offload;
use ringway_nic::e1000::{Area, Model, registers as reg};
use ringway_nic::{Doorbells, Techniques, i82540em, i82574l};

const MODELS: &[&Model] = &[&i82540em::MODEL, &i82574l::MODEL];

/// One thing that a guest, the fabric or the time does.
#[derive(Clone, Debug)]
enum Step {
    Write(u32, u32),
    Access(u8, u32, Vec<u8>),
    Read(u8, u32, usize),
    Map(u32, u32),
    Memory(u32, u64),
    Config(u8, Vec<u8>),
    Take(usize),
    Deliver(usize, usize),
    Pass(u32),
    Link(bool),
    Techniques(u8),
    Restart,
    Unmap,
}

/// Registers that matter, more often than others.
fn register() -> impl Strategy<Value = u32> {
    let rings = vec![
        reg::TDT,
        reg::RDT,
        reg::TDLEN,
        reg::RDLEN,
        reg::TDH,
        reg::RDH,
        reg::TDBAL,
        reg::RDBAL,
        reg::RCTL,
        reg::TCTL,
        reg::CTRL,
        reg::CSBAL,
        reg::IMS,
        reg::ITR,
        reg::RDTR,
        reg::MDIC,
    ];
    prop_oneof![3 => prop::sample::select(rings), 1 => (0u32..0x8000).prop_map(|at| at & !3)]
}

/// Values near what is used.
fn value() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0u32..0x20,
        (0u32..0x1000).prop_map(|at| BASE as u32 + 16 * at),
        Just(RCTL),
        Just(CSB as u32),
        Just(0x2_0000),
        // The PHY's control register: loopback, and not.
        Just(0x0420_4140),
        Just(0x0420_1140),
        Just(u32::MAX)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let command = (any::<u64>(), 0u64..0x3000, any::<bool>())
        .prop_map(|(bits, len, random)| if random { bits } else { bits & 0xffff_00ff_ff00_0000 | len });
    prop_oneof![
        6 => (register(), value()).prop_map(|(at, value)| Step::Write(at, value)),
        1 => (0u8..7, any::<u32>(), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(bar, at, data)| Step::Access(bar, at % 0x2_0010, data)),
        2 => (0u8..7, 0..0x2_0010u32, 0usize..40).prop_map(|(bar, at, len)| Step::Read(bar, at, len)),
        2 => (register(), value()).prop_map(|(at, value)| Step::Map(at, value)),
        6 => (0u32..64, command).prop_map(|(at, word)| Step::Memory(16 * at + 8, word)),
        2 => (0u32..0x400, prop_oneof![any::<u64>(), BASE..BASE + 2 * LEN])
            .prop_map(|(at, word)| Step::Memory(16 * at, word)),
        1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..8))
            .prop_map(|(at, data)| Step::Config(at, data)),
        4 => (0usize..70).prop_map(Step::Take),
        4 => (1usize..65, 14usize..2000).prop_map(|(count, len)| Step::Deliver(count, len)),
        1 => (0u32..1_000_000).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Link),
        1 => any::<u8>().prop_map(Step::Techniques),
        1 => Just(Step::Restart),
        1 => Just(Step::Unmap),
    ]
}

fn techniques(bits: u8) -> Techniques {
    let on = |bit: u8| bits >> bit & 1 != 0;
    Techniques {
        moderate: if on(0) { 50_000 } else { 0 },
        timers: on(1),
        combine: if on(2) { 10_000 } else { 0 },
        batch: on(3),
        doorbells: if on(4) { Doorbells::Mapped } else { Doorbells::Trapped },
        poll: 100_000,
        in_place: on(5),
        csb: on(6),
        cached: on(7),
    }
}

fn run(machine: &mut Machine, step: &Step) {
    match step {
        Step::Write(at, value) => drop(machine.write(*at, *value)),
        Step::Access(6, at, data) => machine.config_write((*at).into(), data),
        Step::Access(bar, at, data) => drop(machine.access(Area::Bar(*bar), (*at).into(), data)),
        Step::Read(bar, at, len) => {
            let area = if *bar == 6 { Area::Config } else { Area::Bar(*bar) };
            machine.nic.read(area, (*at).into(), &mut vec![0; *len]);
        }
        Step::Map(at, value) if machine.nic.is_mapped(*at) || *at >= 0x2800 && *at < 0x4000 => {
            machine.map_write(*at, *value);
        }
        Step::Map(..) => {}
        Step::Memory(at, word) => machine.poke(BASE + u64::from(*at), &word.to_le_bytes()),
        Step::Config(at, data) => machine.config_write((*at).into(), data),
        Step::Take(release) => {
            let sent = machine.take_some(*release);
            assert!(sent.len() <= 64 && sent.iter().all(|sent| sent.bytes.len() <= 65_543));
        }
        Step::Deliver(count, len) => {
            let bytes = frame(*len);
            let burst = vec![(&bytes[..], Offload::default()); *count];
            let (taken, lost) = machine.deliver(&burst);
            assert!(taken <= *count && lost <= taken as u64);
        }
        Step::Pass(time) => machine.pass(u64::from(*time)),
        Step::Link(link) => {
            let effects = machine.nic.set_link(*link, machine.now);
            machine.note(effects);
        }
        Step::Techniques(bits) => machine.nic.set_techniques(techniques(*bits), machine.now),
        Step::Restart => {
            machine.config_write(4, &[7, 0]);
            machine.start_hostile();
        }
        Step::Unmap => machine.toggle_memory(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_script_leaves_the_model_usable(
        steps in prop::collection::vec(step(), 1..200),
        bits in any::<u8>(),
        model in prop::sample::select(MODELS),
    ) {
        let mut machine = Machine::up(model, techniques(bits));
        for step in &steps {
            run(&mut machine, step);
        }
        machine.restore_memory();
        machine.nic.set_techniques(Techniques::default(), machine.now);
        let effects = machine.nic.set_link(true, machine.now);
        machine.note(effects);
        machine.mapped = false;
        machine.config_write(4, &[7, 0]);
        machine.config_write(5, &[0]);
        machine.write(reg::CTRL, 1 << 31);
        machine.reset();
        machine.start();
        machine.send(&frame(99));
        prop_assert_eq!(machine.take()[0].bytes.len(), 99);
        prop_assert_eq!(machine.receive(&frame(60)), (1, 0));
        prop_assert_eq!(machine.poll().len(), 1);
    }
}

#[test]
fn a_ring_of_descriptors_without_frames_is_bounded_work() {
    let mut machine = Machine::up(&i82540em::MODEL, Techniques::default());
    // The largest ring, of contexts; then of frames without an end.
    for command in [DEXT, DATA | 20] {
        for index in 0..0x8000 / 16 {
            machine.poke(BASE + 0x1_0000 + 16 * index, &TX_BUFFERS.to_le_bytes());
            machine.poke(BASE + 0x1_0000 + 16 * index + 8, &command.to_le_bytes());
        }
        machine.write(reg::TCTL, 0);
        machine.write(reg::TDBAL, BASE as u32 + 0x1_0000);
        machine.write(reg::TDLEN, 0x8000);
        machine.write(reg::TDH, 0);
        machine.write(reg::TDT, 0x7ff);
        machine.write(reg::TCTL, 2);
        let mut turns = 0;
        while machine.read(reg::TDH) < 0x7ff - 64 {
            let before = machine.read(reg::TDH);
            assert_eq!(machine.take(), []);
            assert!((1..=1024).contains(&(machine.read(reg::TDH) - before)));
            turns += 1;
        }
        assert!((2..40).contains(&turns), "{turns}");
    }
}
