//! The image, which each process maps at the same address. Its functions and its memory are all that they share: it
//! makes no system call, and whoever calls it holds the lock.
#![no_std]
#![no_main]

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use ringway_bare::heap;
use ringway_direct_stack::{AGENT_AT, Arguments, Call, Flags, Operation, PORT_AT, Shared, result_code};
use ringway_mem::Region;
use ringway_netstack::RepairError;

extern crate alloc;

struct State(UnsafeCell<Option<Shared>>);

// SAFETY: only `direct_call` uses it, whose callers hold the lock.
unsafe impl Sync for State {}

static STATE: State = State(UnsafeCell::new(None));

/// Does what a call says.
///
/// # Safety
/// The caller holds the lock, `call` and what it points to are the caller's own memory, and the memory behind the image
/// and at the rings' addresses is as it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn direct_call(call: *mut Call) {
    // SAFETY: the caller lends it.
    let call = unsafe { &mut *call };
    // SAFETY: as the caller holds the lock, no other reference exists; the stack calls nothing outside of the image.
    let state = unsafe { &mut *STATE.0.get() };
    // SAFETY: the caller lends these bytes.
    let (input, output) = unsafe {
        let [at, len] = call.input;
        let input = core::slice::from_raw_parts(pointer(at), len as usize);
        let [at, len] = call.output;
        (input, core::slice::from_raw_parts_mut(pointer(at), len as usize))
    };
    let operation = Operation::from_number(call.operation);
    let (result, flags) = match (operation, state) {
        (Some(Operation::Begin), state @ None) => {
            heap::begin(call.socket);
            *state = Shared::new(input, call.numbers);
            (if state.is_some() { Ok(0) } else { Err(RepairError::Invalid) }, Flags::default())
        }
        (Some(operation @ (Operation::Port | Operation::Agent)), Some(shared)) => {
            let is_port = operation == Operation::Port;
            let [len, is_second] = call.numbers;
            let at = NonNull::new(pointer(if is_port { PORT_AT } else { AGENT_AT }));
            // SAFETY: the caller has mapped so much there, and each process that calls does.
            let region = at.map(|at| unsafe { Region::new(0, 0, len, at, alloc::sync::Arc::new(())) });
            let attached = region.is_some_and(|region| shared.attach_ring(is_port, region, is_second != 0));
            (if attached { Ok(0) } else { Err(RepairError::Invalid) }, Flags::default())
        }
        (Some(operation), Some(shared)) => {
            let (now, socket, number) = (call.now, call.socket, call.numbers[0]);
            let mut arguments = Arguments { now, socket, input, output, number };
            let (result, flags, ready) = shared.call(operation, &mut arguments);
            (call.ready, call.deadline) = (ready, shared.deadline());
            (result, flags)
        }
        _ => (Err(RepairError::Invalid), Flags::default()),
    };
    (call.result, call.flags) = (result_code(result), flags.0);
}

/// An address of bytes; that of none may be 0.
fn pointer(at: u64) -> *mut u8 {
    if at == 0 { NonNull::dangling().as_ptr() } else { at as *mut u8 }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The process ends with the lock, and the others see that the stack is lost.
    // SAFETY: it ends the process.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
