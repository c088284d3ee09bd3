//! A tracer that writes a truncated processor state, with and without the preloaded library. The test runs
//! itself again for each case, since a library is preloaded at program start.

use libc::{c_int, c_uint, c_void};
use ringway_host::{extended_state, ptrace_library};
use std::path::Path;
use std::process::{Command, Stdio};

const NT_X86_XSTATE: usize = 0x202;
/// Only the legacy part and the header: less than any processor with AVX has.
const SHORT: usize = 512 + 64;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("trace") {
        // Its exit status is the error's number.
        std::process::exit(write_back().err().unwrap_or(0));
    }
    if extended_state() <= SHORT {
        println!("this processor has no more than {SHORT} bytes of state; nothing to try");
        return;
    }
    let without = traced(None);
    if without == Some(libc::EPERM) {
        println!("nobody may trace here; nothing to try");
        return;
    }
    assert_eq!(without, Some(libc::EFAULT), "the kernel takes less than all");
    let library = std::env::temp_dir().join(format!("ringway-ptrace-{}.so", std::process::id()));
    std::fs::write(&library, ptrace_library()).expect("a file");
    let with = traced(Some(&library));
    std::fs::remove_file(&library).expect("it is there");
    assert_eq!(with, Some(0));
}

fn traced(library: Option<&Path>) -> Option<i32> {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.arg("trace").envs(library.map(|library| ("LD_PRELOAD", library)));
    command.status().expect("the test runs itself").code()
}

/// Stops a process, reads the first part of its state, changes an SSE register, writes that part back and
/// checks the result.
fn write_back() -> Result<(), c_int> {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
    let pid = i32::try_from(child.id()).expect("a process's number");
    let done = (|| {
        // SAFETY: a call without memory, and one whose only memory is the status, which is null.
        unsafe {
            checked(libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0))?;
            checked(libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL).into())?;
        }
        let mut state = [0_u8; SHORT];
        transfer(libc::PTRACE_GETREGSET, pid, &mut state)?;
        // Without the header the components are unknown; the process keeps its state.
        assert_eq!(transfer(libc::PTRACE_SETREGSET, pid, &mut state[..512]), Err(libc::EFAULT));
        // XMM3 (Intel SDM, volume 1, table 10-2), and a bit in XSTATE_BV for a component beyond that part.
        state[208..224].fill(0x5a);
        state[512] |= 0b111;
        transfer(libc::PTRACE_SETREGSET, pid, &mut state)?;
        let mut again = [0_u8; SHORT];
        transfer(libc::PTRACE_GETREGSET, pid, &mut again)?;
        assert_eq!(again[..512], state[..512]);
        assert_eq!(again[512] & 0b111, 0b011, "what was not written is in its initial state");
        Ok(())
    })();
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    done
}

fn transfer(request: c_uint, pid: c_int, state: &mut [u8]) -> Result<(), c_int> {
    let mut part = libc::iovec { iov_base: state.as_mut_ptr().cast::<c_void>(), iov_len: state.len() };
    // SAFETY: the vector describes `state`, which the kernel reads or writes during the call only.
    checked(unsafe { libc::ptrace(request, pid, NT_X86_XSTATE, &raw mut part) })
}

fn checked(result: i64) -> Result<(), c_int> {
    if result == -1 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(-1)) } else { Ok(()) }
}
