//! Guests that write anything to I/O ports, and images with anything in their headers: the monitor says why they end.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use common::{image, machine, run};
use ringway_vmm::End;
use std::time::Duration;

const ROUNDS: usize = 150;
/// A guest that sleeps is ended after this.
const LIMIT: Duration = Duration::from_millis(20);
/// The ports that the monitor serves: exit, sleep, snapshot, console.
const PORTS: [u16; 4] = [0xf4, 0xf8, 0xfc, 0x3f8];

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

/// Accesses to ports, in 32-bit code, and then HLT.
fn accesses(numbers: &mut Numbers) -> Vec<u8> {
    let mut code = Vec::new();
    for _ in 0..1 + numbers.of(6) {
        let port = match numbers.of(8) {
            0 => numbers.next() as u16,
            // Sleeps and bytes of the console do not end it.
            at => PORTS[[1, 1, 1, 3, 3, 2, 0][at as usize - 1]],
        };
        code.extend([0x66, 0xba]);
        code.extend(port.to_le_bytes());
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
    for round in 0..ROUNDS {
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

#[test]
fn any_bytes_in_an_images_headers_are_refused_or_loaded() {
    if machine().is_none() {
        return;
    }
    let mut numbers = Numbers(0x5eed_0002);
    let (whole, mut refused) = (image(&[0xf4]), 0);
    for _ in 0..ROUNDS {
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
