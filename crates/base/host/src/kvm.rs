//! Virtual machines of the kernel's KVM, with one virtual CPU each.

use crate::error::{HostError, Named};
use crate::window::Window;
use kvm_bindings::{
    KVM_MAX_CPUID_ENTRIES, KVM_MEM_READONLY, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region,
};
use kvm_ioctls::{IoEventAddress, Kvm, NoDatamatch, VcpuExit, VcpuFd, VmFd};
use ringway_mem::Region;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vmm_sys_util::eventfd::EventFd;

/// Bytes of the task state segment that KVM places in the guest's addresses on some processors, at an address that
/// nothing else uses.
const TSS: usize = 0xfffb_d000;

/// Whether a process has a virtual machine of KVM; `false` if its descriptors can't be listed.
pub fn is_used_by(process: i32) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    // Attack: a process with endless descriptors.
    let mut links = entries.take(4096).flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| link.as_os_str() == "anon_inode:kvm-vm")
}

/// A virtual machine with one virtual CPU.
#[derive(Debug)]
pub struct Machine {
    cpu: VcpuFd,
    space: Arc<Space>,
}

/// The addresses of a machine: its memory and doorbells, which any thread may change while the machine runs.
#[derive(Debug)]
pub struct Space {
    vm: VmFd,
    /// The memory of each slot; it stays mapped as long as the slot has it, or until the machine is gone.
    slots: Mutex<Vec<Option<Slot>>>,
}

/// What a slot keeps.
#[derive(Debug)]
enum Slot {
    /// Memory that stays mapped as long as this does.
    Memory { _region: Region },
    /// Addresses at which memory comes and goes.
    Window { _window: Arc<Window> },
    /// A part of this program.
    Constants,
}

/// A doorbell of a machine.
#[derive(Debug)]
pub struct Doorbell {
    eventfd: EventFd,
    address: u64,
}

/// The state of a CPU between two instructions, without floating point and vector registers: the guests' images use
/// none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuState {
    registers: kvm_regs,
    system: kvm_sregs,
}

/// Why the guest stopped running.
#[derive(Debug)]
pub enum Exit<'a> {
    /// The guest read from an I/O port; the answer is expected.
    In(u16, &'a mut [u8]),
    /// The guest wrote to an I/O port.
    Out(u16, &'a [u8]),
    /// The guest read from an address without memory; the answer is expected.
    Read(u64, &'a mut [u8]),
    /// The guest wrote to an address without memory.
    Write(u64, &'a [u8]),
    /// A signal arrived.
    Interrupted,
    /// The guest accessed an address of a window at which there is no memory.
    Unmapped(u64),
    /// The guest executed HLT.
    Halted,
    /// The guest had a fault without a handler.
    TripleFault,
    /// Anything else, for people.
    Other(String),
}

fn error(call: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> HostError {
    move |error| HostError::Call { call, error: Errno::from_raw_os_error(error.errno()) }
}

impl Machine {
    /// A machine without memory. It fails where `/dev/kvm` can't be opened.
    pub fn new() -> Result<Machine, HostError> {
        let kvm = Kvm::new().map_err(error("opening /dev/kvm"))?;
        let vm = kvm.create_vm().map_err(error("KVM_CREATE_VM"))?;
        vm.set_tss_address(TSS).map_err(error("KVM_SET_TSS_ADDR"))?;
        let cpu = vm.create_vcpu(0).map_err(error("KVM_CREATE_VCPU"))?;
        let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
        let cpuid = cpuid.map_err(error("KVM_GET_SUPPORTED_CPUID"))?;
        cpu.set_cpuid2(&cpuid).map_err(error("KVM_SET_CPUID2"))?;
        let space = Arc::new(Space { vm, slots: Mutex::default() });
        Ok(Machine { cpu, space })
    }

    /// The guest's address space.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Makes the CPU begin at `entry` as PVH specifies: in protected mode without paging, with flat segments, and the
    /// address of the start information in EBX.
    pub fn enter_pvh(&self, entry: u64, start_info: u64) -> Result<(), HostError> {
        let mut system = self.cpu.get_sregs().map_err(error("KVM_GET_SREGS"))?;
        let segment = |selector, kind| kvm_segment {
            base: 0,
            limit: u32::MAX,
            selector,
            type_: kind,
            present: 1,
            db: 1,
            s: 1,
            g: 1,
            ..kvm_segment::default()
        };
        system.cs = segment(8, 11);
        let data = segment(16, 3);
        (system.ds, system.es, system.fs, system.gs, system.ss) = (data, data, data, data, data);
        system.tr =
            kvm_segment { limit: 0x67, selector: 24, type_: 11, present: 1, ..kvm_segment::default() };
        // Protected mode; the floating point unit is of the 387's kind.
        (system.cr0, system.cr4) = (0x11, 0);
        self.cpu.set_sregs(&system).map_err(error("KVM_SET_SREGS"))?;
        let registers = kvm_regs { rip: entry, rbx: start_info, rflags: 2, ..kvm_regs::default() };
        self.cpu.set_regs(&registers).map_err(error("KVM_SET_REGS"))
    }

    /// The CPU's state behind the access with which the guest stopped.
    pub fn state(&mut self) -> Result<CpuState, HostError> {
        // The kernel completes the access only when the guest would go on.
        self.cpu.set_kvm_immediate_exit(1);
        let completed = self.cpu.run().map(drop);
        self.cpu.set_kvm_immediate_exit(0);
        match completed {
            Err(error) if error.errno() == libc::EINTR => {}
            Err(failed) => return Err(error("KVM_RUN")(failed)),
            Ok(()) => {
                let error = Errno::BUSY;
                return Err(HostError::Call { call: "KVM_RUN without running", error });
            }
        }
        Ok(CpuState {
            registers: self.cpu.get_regs().map_err(error("KVM_GET_REGS"))?,
            system: self.cpu.get_sregs().map_err(error("KVM_GET_SREGS"))?,
        })
    }

    /// Makes the CPU go on from a state.
    pub fn set_state(&self, state: &CpuState) -> Result<(), HostError> {
        self.cpu.set_sregs(&state.system).map_err(error("KVM_SET_SREGS"))?;
        self.cpu.set_regs(&state.registers).map_err(error("KVM_SET_REGS"))
    }

    /// Frequency of the guest's time stamp counter in Hz; 0 if the kernel doesn't tell.
    pub fn tsc_hz(&self) -> u64 {
        self.cpu.get_tsc_khz().map_or(0, |khz| u64::from(khz) * 1000)
    }

    /// Runs the guest until it needs something.
    #[inline]
    pub fn run(&mut self) -> Result<Exit<'_>, HostError> {
        Ok(match self.cpu.run() {
            Ok(VcpuExit::MmioRead(address, answer)) => Exit::Read(address, answer),
            Ok(VcpuExit::MmioWrite(address, bytes)) => Exit::Write(address, bytes),
            Ok(VcpuExit::IoIn(port, answer)) => Exit::In(port, answer),
            Ok(VcpuExit::IoOut(port, bytes)) => Exit::Out(port, bytes),
            Ok(VcpuExit::MemoryFault { gpa, .. }) => Exit::Unmapped(gpa),
            Ok(VcpuExit::Hlt) => Exit::Halted,
            Ok(VcpuExit::Shutdown) => Exit::TripleFault,
            Ok(VcpuExit::Intr) => Exit::Interrupted,
            Ok(other) => Exit::Other(format!("{other:?}")),
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => Exit::Interrupted,
            Err(failed) => return Err(error("KVM_RUN")(failed)),
        })
    }
}

impl Space {
    /// Adds memory at its guest-physical address; returns the number of its slot. It must consist of whole pages.
    pub fn add_memory(&self, region: &Region) -> Result<u32, HostError> {
        let slot = kvm_userspace_memory_region {
            guest_phys_addr: region.guest,
            memory_size: region.len,
            userspace_addr: region.base().addr().get() as u64,
            ..kvm_userspace_memory_region::default()
        };
        self.add(slot, Slot::Memory { _region: region.clone() })
    }

    /// Adds a window at a guest-physical address: what is mapped there is the guest's memory, also while it runs. An
    /// access to an address of the window without memory ends the guest.
    pub fn add_window(&self, address: u64, window: &Arc<Window>) -> Result<u32, HostError> {
        let slot = kvm_userspace_memory_region {
            guest_phys_addr: address,
            memory_size: window.len() as u64,
            userspace_addr: window.base().addr().get() as u64,
            ..kvm_userspace_memory_region::default()
        };
        self.add(slot, Slot::Window { _window: window.clone() })
    }

    /// Adds a part of this program, in whole pages, which the guest may read and execute; a write is an exit. Returns
    /// the number of its slot.
    pub fn add_constants(&self, address: u64, bytes: &'static [u8]) -> Result<u32, HostError> {
        let slot = kvm_userspace_memory_region {
            flags: KVM_MEM_READONLY,
            guest_phys_addr: address,
            memory_size: bytes.len() as u64,
            userspace_addr: bytes.as_ptr().addr() as u64,
            ..kvm_userspace_memory_region::default()
        };
        self.add(slot, Slot::Constants)
    }

    fn add(&self, slot: kvm_userspace_memory_region, keeps: Slot) -> Result<u32, HostError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let free = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        let slot = kvm_userspace_memory_region { slot: free as u32, ..slot };
        // SAFETY: a region is mapped readable and writable as long as its clone in `slots`, which is dropped after the
        // slot was emptied or the machine is gone; a guest is one of the peers that may write it. A window is reserved
        // as long: nothing but what is meant for the guest is mapped there. Constants are mapped as long as this
        // process runs, and the flag forbids the guest to write them.
        unsafe { self.vm.set_user_memory_region(slot) }.map_err(error("KVM_SET_USER_MEMORY_REGION"))?;
        if free == slots.len() {
            slots.push(None);
        }
        slots[free] = Some(keeps);
        Ok(slot.slot)
    }

    /// Removes the memory of a slot: the guest has no memory there any more.
    pub fn remove_memory(&self, slot: u32) -> Result<(), HostError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = slots.get_mut(slot as usize).filter(|place| place.is_some()) else { return Ok(()) };
        let none = kvm_userspace_memory_region { slot, ..kvm_userspace_memory_region::default() };
        // SAFETY: a size of 0 removes the slot and names no memory.
        unsafe { self.vm.set_user_memory_region(none) }.map_err(error("KVM_SET_USER_MEMORY_REGION"))?;
        *place = None;
        Ok(())
    }

    /// Makes each write of four bytes to an address signal an eventfd, without an exit.
    pub fn add_doorbell(&self, address: u64, eventfd: OwnedFd) -> Result<Doorbell, HostError> {
        // SAFETY: the descriptor is owned, and its owner gives it up.
        let eventfd = unsafe { EventFd::from_raw_fd(eventfd.into_raw_fd()) };
        let place = IoEventAddress::Mmio(address);
        self.vm.register_ioevent(&eventfd, &place, NoDatamatch).map_err(error("KVM_IOEVENTFD"))?;
        Ok(Doorbell { eventfd, address })
    }

    /// Removes a doorbell.
    pub fn remove_doorbell(&self, doorbell: &Doorbell) -> Result<(), HostError> {
        let place = IoEventAddress::Mmio(doorbell.address);
        let removed = self.vm.unregister_ioevent(&doorbell.eventfd, &place, NoDatamatch);
        removed.map_err(error("KVM_IOEVENTFD"))
    }
}

/// The interval at which an alarm repeats. One that comes just before the guest is entered is lost.
const REPEAT: Duration = Duration::from_millis(2);

/// Signals to the thread that set it, from some time on, until it is dropped: they end [`Machine::run`].
#[derive(Debug)]
pub struct Alarm(libc::timer_t);

impl Alarm {
    /// Sets an alarm of the calling thread.
    pub fn after(time: Duration) -> Result<Alarm, HostError> {
        extern "C" fn nothing(_: libc::c_int) {}
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: zeros are valid for these structures of numbers and addresses.
        let (mut action, mut event): (libc::sigaction, libc::sigevent) = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let check = |result: i32, call| match result {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).named(call),
        };
        let mut timer = std::ptr::null_mut();
        // SAFETY: the handler does nothing; all arguments live during the calls.
        unsafe {
            check(libc::sigaction(signal, &action, std::ptr::null_mut()), "sigaction")?;
            check(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), "timer_create")?;
        }
        let alarm = Alarm(timer);
        let spec = |time: Duration| libc::timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let time = time.max(Duration::from_nanos(1));
        let times = libc::itimerspec { it_interval: spec(REPEAT), it_value: spec(time) };
        // SAFETY: the timer exists, and the argument lives during the call.
        check(unsafe { libc::timer_settime(alarm.0, 0, &times, std::ptr::null_mut()) }, "timer_settime")?;
        Ok(alarm)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer exists until here.
        unsafe { libc::timer_delete(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_machine_is_told_from_one_without() {
        let process = std::process::id() as i32;
        assert!(!is_used_by(process) && !is_used_by(0));
        // Without permission for /dev/kvm there is no machine.
        if let Ok(_machine) = Machine::new() {
            assert!(is_used_by(process));
        }
    }
}
