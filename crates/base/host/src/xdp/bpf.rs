//! The calls of bpf(2) that an XDP program needs.

use rustix::io::Errno;
use std::ffi::c_long;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: c_long = 0;
const MAP_UPDATE: c_long = 2;
const PROGRAM_LOAD: c_long = 5;
const PROGRAM_BY_ID: c_long = 13;
const INFO_BY_FD: c_long = 15;
const LINK_CREATE: c_long = 28;
const XDP_PROGRAM: u32 = 6;
const SOCKET_MAP: u32 = 17;
const ATTACH_XDP: u32 = 37;
/// Bytes of `struct bpf_prog_info` up to the end of the name.
const INFO: usize = 80;
const INFO_NAME: usize = 64;
const NAME: usize = 16;

/// How a program is attached (`XDP_FLAGS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// In the driver.
    Native = 4,
    /// In the kernel's stack, after the driver: for any driver, slower.
    Generic = 2,
}

/// An instruction (linux/bpf.h, `struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u8,
    /// Destination register in the low four bits, source in the high ones.
    pub registers: u8,
    pub offset: i16,
    pub immediate: i32,
}

fn call<T>(command: c_long, attribute: &mut T) -> Result<c_long, Errno> {
    let (at, size): (*mut T, _) = (attribute, size_of::<T>());
    // SAFETY: each caller gives the attribute of its command, of this size, whose pointers outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, at, size) };
    if done < 0 { Err(crate::tap::last_error()) } else { Ok(done) }
}

fn open<T>(command: c_long, attribute: &mut T) -> Result<OwnedFd, Errno> {
    let fd = call(command, attribute)?;
    // SAFETY: the kernel just created it, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Creates a map of AF_XDP sockets by queue.
pub fn socket_map(queues: u32) -> Result<OwnedFd, Errno> {
    // Type, size of keys, size of values, entries, flags.
    open(MAP_CREATE, &mut [SOCKET_MAP, 4, 4, queues, 0])
}

/// Puts a queue's socket into the map.
pub fn set_socket(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> Result<(), Errno> {
    let value = socket.as_raw_fd();
    let pointers =
        [(&raw const queue).expose_provenance() as u64, (&raw const value).expose_provenance() as u64];
    call(MAP_UPDATE, &mut [map.as_raw_fd() as u64, pointers[0], pointers[1], 0]).map(drop)
}

/// `bpf_attr` of BPF_PROG_LOAD.
#[derive(Default)]
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; NAME],
    interface: u32,
    attach: u32,
}

/// Loads an XDP program, which the kernel verifies.
pub fn load(name: &str, program: &[Instruction]) -> Result<OwnedFd, Errno> {
    let mut attribute = Load {
        kind: XDP_PROGRAM,
        count: program.len() as u32,
        instructions: program.as_ptr().expose_provenance() as u64,
        licence: c"Dual MIT/GPL".as_ptr().expose_provenance() as u64,
        attach: ATTACH_XDP,
        ..Load::default()
    };
    let bytes = name.bytes().take(NAME - 1);
    attribute.name.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    open(PROGRAM_LOAD, &mut attribute)
}

/// Attaches a program to an interface as long as the returned descriptor, the link, is open.
pub fn attach(program: &OwnedFd, interface: u32, how: Attach) -> Result<OwnedFd, Errno> {
    open(LINK_CREATE, &mut [program.as_raw_fd() as u32, interface, ATTACH_XDP, how as u32])
}

/// The name of a loaded program; empty if it can't be known.
pub fn name_of(program: u32) -> String {
    let Ok(program) = open(PROGRAM_BY_ID, &mut [program, 0, 0]) else { return String::new() };
    let mut info = [0_u8; INFO];
    let at = info.as_mut_ptr().expose_provenance() as u64;
    let request = [program.as_raw_fd() as u64 | (INFO as u64) << 32, at];
    if call(INFO_BY_FD, &mut { request }).is_err() {
        return String::new();
    }
    let name = info[INFO_NAME..].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
