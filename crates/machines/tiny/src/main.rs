//! The tiny guest's image. It enters ring 3 at once and stays there: KVM without hardware virtualization emulates ring
//! 0 instruction by instruction, but runs ring 3 natively.
#![no_std]
#![no_main]

use core::fmt::Write;
use ringway_mem::Region;
use ringway_tiny::image::{self, Guest, Start, exit};
use ringway_tiny::{
    E1000, Mapped, NetDevice, NetDeviceError, OwnedRings, Pcnet, ProgramRing, Role, Rtl8139, Settings, run,
};

/// Codes with which the guest ends.
mod code {
    pub const DONE: u32 = 0;
    pub const SETTINGS: u32 = 1;
    pub const LINK: u32 = 2;
    pub const PANIC: u32 = 3;
}

/// A guest without a device.
struct NoLink;

impl NetDevice for NoLink {
    fn send(&mut self, _: u32, _: usize, _: &mut dyn FnMut(u32, &mut [u8])) -> Result<u32, NetDeviceError> {
        Err(NetDeviceError::Layout)
    }
    fn receive(&mut self, _: u32, _: &mut dyn FnMut(&[u8])) -> Result<u32, NetDeviceError> {
        Err(NetDeviceError::Layout)
    }
    fn publish(&mut self) -> u32 {
        0
    }
    fn pending(&mut self) -> Result<u32, NetDeviceError> {
        Ok(0)
    }
    fn arm(&mut self, _: bool) -> Result<bool, NetDeviceError> {
        Err(NetDeviceError::Layout)
    }
}

/// Memory or registers that the role needs.
fn region(address: u64, len: u64) -> Result<Region, NetDeviceError> {
    image::region(address, len).ok_or(NetDeviceError::Layout)
}

/// Plays the role on the device that the machine has.
fn play(guest: &mut Guest, settings: &Settings) -> Result<(), NetDeviceError> {
    if settings.role == Role::Hello {
        run(guest, &mut NoLink, settings)
    } else if settings.card != 0 {
        let registers = Mapped::new(region(settings.card, settings.card_len)?)?;
        let interrupt = region(settings.interrupt, 16)?;
        match settings.card_id {
            Rtl8139::ID => {
                run(guest, &mut OwnedRings::<Rtl8139, _>::new(registers, interrupt, settings)?, settings)
            }
            Pcnet::ID => {
                run(guest, &mut OwnedRings::<Pcnet, _>::new(registers, interrupt, settings)?, settings)
            }
            _ => run(guest, &mut E1000::new(registers, interrupt, settings)?, settings),
        }
    } else {
        let memory = region(settings.ring, settings.ring_len)?;
        run(guest, &mut ProgramRing::new(memory, settings.ring_end, region(settings.kick, 4)?)?, settings)
    }
}

ringway_tiny::guest_main!(play_role);

/// The guest's program, in ring 3.
fn play_role(start: Start) -> ! {
    let mut guest = Guest;
    let settings = match Settings::parse(start.line) {
        Ok(settings) => settings,
        Err(error) => {
            // The console accepts all text, here and below.
            let _ = writeln!(guest, "tiny: {error}");
            exit(code::SETTINGS);
        }
    };
    match play(&mut guest, &settings) {
        Ok(()) => exit(code::DONE),
        Err(error) => {
            let _ = writeln!(guest, "tiny: {error}");
            exit(code::LINK);
        }
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Guest, "tiny: {info}");
    exit(code::PANIC);
}
