//! Guests that write anything to I/O ports, and images with anything in their headers: the monitor says why they end.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::lab::{nobody, run as run_function};
use crate::common::{MEMORY, image, machine, run};
use ringway_host::memfd;
use ringway_vmm::{End, FunctionEnd, FunctionStart, FunctionVm, Image, PreparedVm, Vm};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Machines of a test; in a long run, a hundred for each of `RINGWAY_ROUNDS`.
fn rounds() -> usize {
    let rounds = std::env::var("RINGWAY_ROUNDS").ok().and_then(|rounds| rounds.parse::<usize>().ok());
    rounds.map_or(150, |rounds| 100 * rounds)
}

/// A guest that sleeps is ended after this.
const LIMIT: Duration = Duration::from_millis(20);
/// The ports that the monitor serves: exit, sleep, snapshot, console.
const PORTS: [u16; 4] = [0xf4, PARK, SNAPSHOT, 0x3f8];
const PARK: u16 = 0xf8;
const SNAPSHOT: u16 = 0xfc;

/// Numbers by xorshift.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn of(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// Values at which something changes, and others.
    fn value(&mut self) -> u32 {
        match self.of(4) {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << self.of(32),
            _ => self.next() as u32,
        }
    }
}

/// `mov dx, port`.
fn at_port(port: u16) -> Vec<u8> {
    [[0x66, 0xba], port.to_le_bytes()].concat()
}

/// Accesses to ports, in 32-bit code, and then HLT.
fn accesses(numbers: &mut Numbers) -> Vec<u8> {
    let mut code = Vec::new();
    for _ in 0..1 + numbers.of(6) {
        let port = match numbers.of(8) {
            0 => numbers.next() as u16,
            // Sleeps and bytes of the console do not end it.
            at => PORTS[[1, 1, 1, 3, 3, 2, 0][at as usize - 1]],
        };
        code.extend(at_port(port));
        for register in [0xb8, 0xb9, 0xbe] {
            // mov eax, ecx, esi: the value, the number of repetitions, and the address.
            let value = if register == 0xb9 { numbers.value() & 0xffff } else { numbers.value() };
            code.push(register);
            code.extend(value.to_le_bytes());
        }
        // out dx, al; out dx, ax; out dx, eax; in eax, dx; rep outsb; rep outsd
        let forms: [&[u8]; 6] = [&[0xee], &[0x66, 0xef], &[0xef], &[0xed], &[0xf3, 0x6e], &[0xf3, 0x6f]];
        code.extend(forms[numbers.of(6) as usize]);
    }
    code.push(0xf4);
    code
}

#[test]
fn any_access_to_a_port_is_served_or_ends_the_guest() {
    if machine().is_none() {
        return;
    }
    let mut numbers = Numbers(0x5eed_0001);
    let (mut ends, mut served) = (std::collections::BTreeSet::new(), 0);
    for round in 0..rounds() {
        let mut vm = machine().unwrap();
        vm.load(&image(&accesses(&mut numbers)), "").unwrap();
        let (end, output) = run(&mut vm, LIMIT);
        assert!(output.len() <= 3 * (64 << 10), "{round}: {end}");
        served += vm.counts().parks + vm.counts().console;
        ends.insert(match end {
            End::Exit(_) => "exit",
            End::Port(_) => "port",
            End::Time => "time",
            End::Console => "console",
            End::Halted => "halted",
            End::Address(_) | End::TripleFault | End::Stopped(_) => "fault",
            End::Card(_) => panic!("{round}: there is no card"),
        });
    }
    assert!(served > 0 && ends.contains("port") && ends.contains("exit"), "{served} {ends:?}");
}

/// Code of a guest that is asked for a snapshot while it runs: it sleeps a little, so that the monitor has the order,
/// and names words of its memory at the port for snapshots. No sleep is long, since no time limit ends it.
fn poses(numbers: &mut Numbers) -> Vec<u8> {
    let sleep = |code: &mut Vec<u8>, time: u32| {
        // mov eax, time; out dx, eax
        code.extend([&at_port(PARK)[..], &[0xb8], &time.to_le_bytes(), &[0xef]].concat());
    };
    let mut code = Vec::new();
    (0..2).for_each(|_| sleep(&mut code, 2000));
    for _ in 0..1 + numbers.of(4) {
        let memory = MEMORY as u32;
        let value = match numbers.of(5) {
            0 => numbers.value(),
            1 => (memory - 32) + numbers.of(40) as u32,
            2 => 8 * numbers.of(1 << 17) as u32,
            _ => 8 * numbers.of(u64::from(memory) / 8 - 1) as u32,
        };
        match numbers.of(8) {
            0 => sleep(&mut code, value & 0xff),
            1 => {
                let port = PORTS[2 * numbers.of(2) as usize];
                code.extend([&at_port(port)[..], &[0xb8], &value.to_le_bytes(), &[0x66, 0xef]].concat());
            }
            2 => {
                // mov esi, value; mov ecx, count; rep outsd
                let count = numbers.value() & 0xffff;
                let words = [&[0xbe][..], &value.to_le_bytes(), &[0xb9], &count.to_le_bytes()].concat();
                code.extend([&at_port(SNAPSHOT)[..], &words, &[0xf3, 0x6f]].concat());
            }
            _ => code.extend([&at_port(SNAPSHOT)[..], &[0xb8], &value.to_le_bytes(), &[0xef]].concat()),
        }
    }
    code.push(0xf4);
    code
}

#[test]
fn any_access_while_a_snapshot_is_awaited_takes_one_or_ends_the_guest() {
    if machine().is_none() {
        return;
    }
    let mut numbers = Numbers(0x5eed_0003);
    let (mut taken, mut refused, mut without, mut clones) = (0, 0, 0, 0);
    for round in 0..rounds() {
        let bytes = image(&poses(&mut numbers));
        let vm = FunctionVm::with_image(Image::of(&bytes), MEMORY, FunctionStart::default()).unwrap();
        let (snapshot_handle, file) = (vm.snapshot_handle(), memfd("snapshot", MEMORY).unwrap());
        let (sender, answer) = channel();
        let answered = move |result| drop(sender.send(result));
        let copy = file.try_clone().unwrap();
        match numbers.of(2) {
            0 => snapshot_handle.snapshot(copy, answered),
            _ => snapshot_handle.freeze(copy, answered),
        }
        let lab = run_function(vm, nobody);
        let result = answer.recv_timeout(crate::common::BOUND);
        snapshot_handle.thaw();
        let end = lab.end();
        let has_reason = matches!(end, FunctionEnd::Guest(..) | FunctionEnd::Stopped | FunctionEnd::Wrong);
        assert!(has_reason, "{round}: {end}");
        match result {
            Ok(Ok(snapshot)) => {
                taken += 1;
                // What a clone of it does with the word.
                let clone = Vm::clone_of(PreparedVm::new().unwrap(), &snapshot, file, None);
                if let Ok(mut clone) = clone {
                    clones += 1;
                    run(&mut clone, LIMIT);
                }
            }
            Ok(Err(error)) => {
                refused += 1;
                assert!(error.to_string().contains("outside its memory"), "{round}: {error}");
            }
            // The guest ended without a report.
            Err(_) => without += 1,
        }
    }
    assert!([taken, refused, clones].iter().all(|count| *count > 0), "{taken} {refused} {without} {clones}");
}

#[test]
fn any_bytes_in_an_images_headers_are_refused_or_loaded() {
    if machine().is_none() {
        return;
    }
    let mut numbers = Numbers(0x5eed_0002);
    let (whole, mut refused) = (image(&[0xf4]), 0);
    for _ in 0..rounds() {
        let mut bytes = whole.clone();
        for _ in 0..1 + numbers.of(4) {
            let at = numbers.of(bytes.len() as u64) as usize;
            bytes[at] = numbers.next() as u8;
        }
        bytes.truncate(bytes.len() - numbers.of(3) as usize * 40);
        let mut vm = machine().unwrap();
        match vm.load(&bytes, "") {
            Ok(()) => drop(run(&mut vm, LIMIT)),
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(refused > 0);
}
