//! The machine under another monitor than the crate `vmm`: a PC with a serial port, a local APIC, a timer, and virtio
//! devices on PCI or at addresses of the command line.
//!
//! The image runs in ring 3 here, too, with interrupts off. Ring 0 handles the fault of HLT, by waiting for the next
//! interrupt: one that came since the last look at the rings is pending in the local APIC, and ends the wait at once.
//! This handler serves the exits of WRMSR too.

mod clock;
mod devices;
mod ports;
mod power;

use crate::Machine;
use crate::image::{Start, out, ticks};
use crate::stock::{Line, Net};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use ports::{in8, out8};

global_asm!(
    r#"
.section .text.gates, "ax"
.global ringway_gate_protection, ringway_gate_wake, ringway_gate_spurious, ringway_gate_faults
.balign 16
ringway_gate_protection:    // the stack: what is pushed here, the error, the address, the segment
  push rax
  test byte ptr [rsp + 24], 3
  jz 3f
  mov rax, [rsp + 16]
  cmp byte ptr [rax], 0xf4  // HLT
  je 2f
  cmp word ptr [rax], 0x300f // WRMSR
  jne 3f
  pop rax
  add rsp, 8
  add qword ptr [rsp], 2
  wrmsr
  iretq
2:
  pop rax
  add rsp, 8
  inc qword ptr [rsp]
  sti                       // no interrupt comes before the next instruction
  hlt
  cli
  iretq
3:
  pop rax
  push 13
  jmp ringway_gate_fault
ringway_gate_wake:          // tells the local APIC that the interrupt is handled
  push rax
  mov eax, 0xfee000b0
  mov dword ptr [rax], 0
  pop rax
ringway_gate_spurious:
  iretq
.balign 16
ringway_gate_faults:        // 16 bytes each: the error, which some faults have already, and the number
.set fault, 0
.rept 32
  .balign 16
  .if ((0x60227d00 >> fault) & 1) == 0
  .byte 0x6a, 0
  .endif
  .byte 0x6a, fault
  jmp ringway_gate_fault
  .set fault, fault + 1
.endr
ringway_gate_fault:
  pop rdi
  pop rsi
  pop rdx
  mov rcx, cr2
  and rsp, -16
  call {fault}
  ud2
"#,
    fault = sym fault
);

unsafe extern "C" {
    #[link_name = "ringway_idt"]
    static IDT: [AtomicPtr<()>; 512];
    #[link_name = "ringway_gate_protection"]
    fn gate_protection();
    #[link_name = "ringway_gate_wake"]
    fn gate_wake();
    #[link_name = "ringway_gate_spurious"]
    fn gate_spurious();
    #[link_name = "ringway_gate_faults"]
    fn gate_faults();
}

/// The image's name on the console.
pub const NAME: &str = if cfg!(feature = "click") { "click" } else { "program" };

/// Codes with which the image ends, for a device such as QEMU's isa-debug-exit at [`EXIT`].
const WRONG: u32 = 1;
const FAULT: u32 = 3;
const EXIT: u16 = 0xf4;

/// The vector of protection faults.
const PROTECTION: usize = 13;
/// Vectors of interrupts.
const TIMER: u32 = 0x40;
const DEVICE: u32 = 0x41;
const SPURIOUS: u32 = 0xff;

/// Registers of the local APIC, and their base.
const APIC: u64 = 0xfee0_0000;
const ID: u64 = 0x20;
const VERSION: u64 = 0x30;
const TASK_PRIORITY: u64 = 0x80;
const SPURIOUS_VECTOR: u64 = 0xf0;
const TIMER_VECTOR: u64 = 0x320;
const LOCAL_0: u64 = 0x350;
const INITIAL_COUNT: u64 = 0x380;
const CURRENT_COUNT: u64 = 0x390;
const DIVIDE: u64 = 0x3e0;
const MASKED: u32 = 1 << 16;

/// The first serial port: data, line status. It takes a byte.
const SERIAL: u16 = 0x3f8;
const LINE_STATUS: u16 = SERIAL + 5;
const TAKES: u8 = 1 << 5;
/// Looks at the line status until a byte is written anyway.
const LOOKS: u32 = 100_000;

/// Sleep at most, in microseconds, if a device does not interrupt.
const POLL: u32 = 1000;

/// Whether this is the machine.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether this is the machine.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// The console.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let put = |byte| {
            let _ = (0..LOOKS).any(|_| in8(LINE_STATUS) & TAKES != 0);
            out8(SERIAL, byte);
        };
        for byte in text.bytes() {
            if byte == b'\n' {
                put(b'\r');
            }
            put(byte);
        }
        Ok(())
    }
}

/// Writes to the console, which takes all text.
pub fn say(text: &str) {
    let _ = Serial.write_str(text);
}

/// Ends the image, and the machine if it can be turned off; waits otherwise.
pub fn end(code: u32) -> ! {
    out(EXIT, code);
    power::off();
    apic_write(INITIAL_COUNT, 0);
    loop {
        wait();
    }
}

/// A fault in the image.
extern "C" fn fault(number: u64, error: u64, at: u64, address: u64) -> ! {
    let _ = writeln!(Serial, "{NAME}: fault {number} at {at:#x}, error {error:#x}, address {address:#x}");
    out(EXIT, FAULT);
    power::off();
    loop {
        // SAFETY: it is the end.
        unsafe { asm!("cli", "hlt") };
    }
}

fn apic_read(register: u64) -> u32 {
    // SAFETY: the local APIC is there, as on every PC, and all of the first 4 GB is mapped.
    unsafe { ((APIC + register) as *const u32).read_volatile() }
}

fn apic_write(register: u64, value: u32) {
    // SAFETY: as above; it changes no memory.
    unsafe { ((APIC + register) as *mut u32).write_volatile(value) };
}

/// Waits for an interrupt.
fn wait() {
    // SAFETY: the fault's handler keeps all registers.
    unsafe { asm!("hlt") };
}

/// Fills the interrupt table and turns the local APIC on, with only the timer's and the devices' interrupts.
fn begin() {
    // Interrupts are off behind a gate, and no program enters it.
    let gate = |vector: usize, to: usize| {
        let low = to & 0xffff | 8 << 16 | 0x8e00 << 32 | (to >> 16 & 0xffff) << 48;
        for (at, word) in [(2 * vector, low), (2 * vector + 1, to >> 32)] {
            // SAFETY: the table is the entry's, with 256 gates, and is not used yet.
            if let Some(place) = unsafe { IDT.get(at) } {
                place.store(core::ptr::without_provenance_mut(word), Ordering::Relaxed);
            }
        }
    };
    let address = |function: unsafe extern "C" fn()| function as usize;
    for fault in 0..32 {
        gate(fault, address(gate_faults) + 16 * fault);
    }
    for interrupt in 32..256 {
        gate(interrupt, address(gate_spurious));
    }
    gate(TIMER as usize, address(gate_wake));
    gate(DEVICE as usize, address(gate_wake));
    gate(PROTECTION, address(gate_protection));
    // Masks all lines of both 8259 interrupt controllers, which a firmware may have turned on.
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
    apic_write(LOCAL_0, MASKED);
    apic_write(TIMER_VECTOR, MASKED | TIMER);
    apic_write(TASK_PRIORITY, 0);
    apic_write(SPURIOUS_VECTOR, 1 << 8 | SPURIOUS);
    ACTIVE.store(true, Ordering::Relaxed);
}

/// The machine.
#[derive(Debug)]
pub struct Pc {
    /// Ticks of the local APIC's timer in a second; 0: there is none.
    timer: u64,
    /// A device does not interrupt.
    polls: bool,
}

impl Pc {
    /// Measures the timer, in a millisecond.
    fn new(hz: u64, polls: bool) -> Pc {
        let is_there = !matches!(apic_read(VERSION), 0 | u32::MAX);
        apic_write(DIVIDE, 0b1011);
        apic_write(INITIAL_COUNT, u32::MAX);
        let begin = ticks();
        while ticks().wrapping_sub(begin) < hz / 1000 {}
        let passed = ticks().wrapping_sub(begin).max(1);
        let counted = u64::from(u32::MAX - apic_read(CURRENT_COUNT));
        apic_write(INITIAL_COUNT, 0);
        apic_write(TIMER_VECTOR, TIMER);
        let timer = (u128::from(counted) * u128::from(hz) / u128::from(passed)) as u64;
        Pc { timer: if is_there { timer } else { 0 }, polls }
    }
}

impl Write for Pc {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        Serial.write_str(text)
    }
}

impl Machine for Pc {
    fn ticks(&self) -> u64 {
        ticks()
    }

    fn park(&mut self, microseconds: u32) {
        let microseconds = if self.polls { microseconds.min(POLL) } else { microseconds };
        let count = u64::from(microseconds) * self.timer / 1_000_000;
        if count == 0 {
            core::hint::spin_loop();
            return;
        }
        apic_write(INITIAL_COUNT, count.min(u32::MAX.into()) as u32);
        wait();
        apic_write(INITIAL_COUNT, 0);
    }
}

/// Ends the image for a reason.
pub fn refuse(reason: &dyn fmt::Display) -> ! {
    let _ = writeln!(Serial, "{NAME}: {reason}");
    end(WRONG);
}

/// What the image has.
#[derive(Debug)]
pub struct Found {
    /// The command line.
    pub line: Line,
    /// Network devices that can be used.
    pub nets: Vec<Net<'static>>,
    /// The machine.
    pub machine: Pc,
    /// Ticks of the counter in a second.
    pub hz: u64,
    /// Nanoseconds since 1970; 0 if nothing tells.
    pub wall: u64,
    /// Seed of random numbers, which differs from boot to boot unless the command line has one.
    pub seed: u64,
}

/// Sets the machine up for the image, with what the monitor passed; ends the image if that is wrong.
pub fn find(start: &Start) -> Found {
    begin();
    power::tables(start.tables);
    // The monitor's memory for it is not the image's.
    let line = start.line.to_string();
    let line = match Line::parse(&line) {
        Ok(line) => line,
        Err(error) => refuse(&error),
    };
    if line.resets {
        power::reset_at_end();
    }
    for word in line.meaningless() {
        let _ = writeln!(Serial, "{NAME}: `{word}` on the command line has no meaning here");
    }
    let Some(clock) = clock::Clock::find(line.tsc) else {
        refuse(&"no clock: give the time stamp counter's ticks a second by tsc= on the command line")
    };
    let nets = devices::find(&line, &start.ram);
    let polls = nets.iter().any(|net| !net.interrupts());
    let (machine, seed) = (Pc::new(clock.hz, polls), line.seed.unwrap_or_else(clock::seed));
    Found { line, nets, machine, hz: clock.hz, wall: clock.wall, seed }
}

/// Says how many devices have no port.
pub fn unused(count: usize) {
    if count > 0 {
        let _ = writeln!(Serial, "{NAME}: {count} more network devices are not used");
    }
}
