//! The seccomp filter of programs whose sockets an agent serves: which system calls wait for its answer.

use libc::sock_filter;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// The 32-bit programs that such a kernel runs too, and their calls on sockets (socketcall first), but socketpair.
#[cfg(target_arch = "x86_64")]
const NARROW: (u32, &[u32]) = (
    0x4000_0003,
    &[102, 337, 345, 359, 361, 362, 363, 364, 365, 366, 367, 368, 369, 370, 371, 372, 373, 417, 425],
);
#[cfg(target_arch = "aarch64")]
const NARROW: (u32, &[u32]) = (
    0x4000_0028,
    &[102, 281, 282, 283, 284, 285, 286, 287, 290, 292, 293, 294, 295, 296, 297, 365, 366, 374, 417, 425],
);
/// Their `ioctl`.
const NARROW_IOCTL: u32 = 54;
/// Marks numbers of calls of the x32 interface.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = 0x7fc0_0000;
const NO_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
/// Offsets in `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// When a call waits for the agent.
enum When {
    Always,
    /// The argument of this number is one of these.
    Is(u32, &'static [u32]),
    /// The argument of this number, a pointer, is not null, or the one of that number has this bit.
    NotNull(u32, Option<(u32, u32)>),
    /// The call is `ioctl`, about a socket's bytes or about interfaces.
    Control,
    /// Never: it fails as on a kernel that doesn't have it.
    Missing,
}

/// The system calls. Others, and those of other families, are the kernel's.
const RULES: &[(libc::c_long, When)] = &[
    (libc::SYS_socket, When::Is(0, &[libc::AF_INET as u32, libc::AF_INET6 as u32])),
    (libc::SYS_bind, When::Always),
    (libc::SYS_connect, When::Always),
    (libc::SYS_listen, When::Always),
    (libc::SYS_accept, When::Always),
    (libc::SYS_accept4, When::Always),
    (libc::SYS_getsockname, When::Always),
    (libc::SYS_getpeername, When::Always),
    (libc::SYS_setsockopt, When::Always),
    (libc::SYS_getsockopt, When::Always),
    (libc::SYS_shutdown, When::Always),
    (libc::SYS_sendto, When::NotNull(4, Some((3, libc::MSG_OOB as u32)))),
    (libc::SYS_recvfrom, When::NotNull(4, None)),
    (libc::SYS_sendmsg, When::Always),
    (libc::SYS_recvmsg, When::Always),
    (libc::SYS_sendmmsg, When::Always),
    (libc::SYS_recvmmsg, When::Always),
    (libc::SYS_ioctl, When::Control),
    // io_uring would make sockets that no filter sees.
    (libc::SYS_io_uring_setup, When::Missing),
];

const fn step(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips so many steps if the loaded value is not `k`.
const fn unless(k: u32, skip: usize) -> sock_filter {
    sock_filter { code: JUMP_EQUAL, jt: 0, jf: skip as u8, k }
}

/// Skips a step if the loaded value has none of these bits.
const fn unless_set(bits: u32) -> sock_filter {
    sock_filter { code: JUMP_SET, jt: 0, jf: 1, k: bits }
}

const fn argument(number: u32) -> sock_filter {
    step(LOAD, ARGUMENTS + 8 * number)
}

/// Ioctls about interfaces, and about those without wires: a socket is asked about those of the namespace that it was
/// made in, and ours are made in the agent's.
fn about_interfaces(answer: u32) -> [sock_filter; 7] {
    [
        argument(1),
        step(AND, !0xff),
        unless(0x8900, 1),
        step(RETURN, answer),
        unless(0x8b00, 1),
        step(RETURN, answer),
        step(RETURN, ALLOW),
    ]
}

/// What follows when the number is that of the rule.
fn steps(when: &When) -> Vec<sock_filter> {
    match when {
        When::Always => vec![step(RETURN, NOTIFY)],
        When::Missing => vec![step(RETURN, NO_CALL)],
        When::Is(number, values) => {
            let mut steps = vec![argument(*number)];
            steps.extend(values.iter().flat_map(|value| [unless(*value, 1), step(RETURN, NOTIFY)]));
            steps.push(step(RETURN, ALLOW));
            steps
        }
        When::NotNull(number, flag) => {
            let flag = flag.map(|(number, bit)| [argument(number), unless_set(bit), step(RETURN, NOTIFY)]);
            let pointer = [
                argument(*number),
                unless(0, 3),
                step(LOAD, ARGUMENTS + 8 * number + 4),
                unless(0, 1),
                step(RETURN, ALLOW),
                step(RETURN, NOTIFY),
            ];
            flag.into_iter().flatten().chain(pointer).collect()
        }
        When::Control => {
            let bytes = [argument(1), unless(libc::TIOCOUTQ as u32, 1), step(RETURN, NOTIFY)];
            bytes.into_iter().chain(about_interfaces(NOTIFY)).collect()
        }
    }
}

/// The rules for other interfaces of the kernel: those of 32-bit programs have no sockets, and others don't exist.
/// Attack: a program that makes such a call on one of our sockets.
fn others() -> Vec<sock_filter> {
    let (architecture, calls) = NARROW;
    let mut steps = vec![step(LOAD, NUMBER)];
    steps.extend(calls.iter().flat_map(|number| [unless(*number, 1), step(RETURN, NO_CALL)]));
    let control = about_interfaces(NO_CALL);
    steps.push(unless(NARROW_IOCTL, control.len()));
    steps.extend(control);
    steps.push(step(RETURN, ALLOW));
    let mut all = vec![unless(architecture, steps.len())];
    all.extend(steps);
    all.push(step(RETURN, NO_CALL));
    all
}

/// The filter.
pub(super) fn filter() -> Vec<sock_filter> {
    let others = others();
    let native = sock_filter { code: JUMP_EQUAL, jt: others.len() as u8, jf: 0, k: ARCH };
    let mut filter = vec![step(LOAD, ARCHITECTURE), native];
    filter.extend(others);
    filter.push(step(LOAD, NUMBER));
    if cfg!(target_arch = "x86_64") {
        filter.extend([unless_set(X32), step(RETURN, NO_CALL)]);
    }
    for (number, when) in RULES {
        let steps = steps(when);
        filter.push(unless(*number as u32, steps.len()));
        filter.extend(steps);
    }
    filter.push(step(RETURN, ALLOW));
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn verdict(architecture: u32, number: libc::c_long, arguments: [u64; 6]) -> u32 {
        let filter = filter();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = filter[at];
            at += 1;
            match code {
                RETURN => return k,
                LOAD if k == NUMBER => loaded = number as u32,
                LOAD if k == ARCHITECTURE => loaded = architecture,
                LOAD => {
                    let (argument, high) = ((k - ARGUMENTS) / 8, (k - ARGUMENTS) % 8 / 4);
                    loaded = (arguments[argument as usize] >> (32 * high)) as u32;
                }
                AND => loaded &= k,
                JUMP_SET => at += usize::from(if loaded & k != 0 { jt } else { jf }),
                _ => at += usize::from(if loaded == k { jt } else { jf }),
            }
        }
    }

    #[test]
    fn only_calls_that_name_addresses_and_options_wait() {
        let verdict = |number, argument, value| {
            let mut arguments = [0; 6];
            arguments[argument] = value;
            verdict(ARCH, number, arguments)
        };
        assert_eq!(verdict(libc::SYS_socket, 0, libc::AF_INET as u64), NOTIFY);
        assert_eq!(verdict(libc::SYS_socket, 0, libc::AF_INET6 as u64), NOTIFY);
        assert_eq!(verdict(libc::SYS_socket, 0, libc::AF_UNIX as u64), ALLOW);
        for number in [libc::SYS_read, libc::SYS_write, libc::SYS_close, libc::SYS_socketpair] {
            assert_eq!(verdict(number, 0, 3), ALLOW);
        }
        for (number, address) in [(libc::SYS_sendto, 4), (libc::SYS_recvfrom, 4)] {
            assert_eq!(verdict(number, address, 0), ALLOW);
            assert_eq!(verdict(number, address, 0x7fff_0000_0000), NOTIFY);
            assert_eq!(verdict(number, address, 0x1000), NOTIFY);
        }
        assert_eq!(verdict(libc::SYS_ioctl, 1, libc::TIOCOUTQ), NOTIFY);
        assert_eq!(verdict(libc::SYS_ioctl, 1, libc::FIONREAD), ALLOW);
        // Interfaces of the agent's namespace; a terminal's size is none of them.
        for number in [0x8912, 0x8914, 0x8946, 0x89f0, 0x8b01] {
            assert_eq!(verdict(libc::SYS_ioctl, 1, number), NOTIFY);
        }
        assert_eq!(verdict(libc::SYS_ioctl, 1, libc::TIOCGWINSZ), ALLOW);
        let urgent = libc::MSG_OOB as u64;
        assert_eq!(
            (verdict(libc::SYS_sendto, 3, urgent), verdict(libc::SYS_recvfrom, 3, urgent)),
            (NOTIFY, ALLOW)
        );
        assert_eq!(verdict(libc::SYS_io_uring_setup, 0, 0), NO_CALL);
    }

    #[test]
    fn other_interfaces_of_the_kernel_have_no_sockets() {
        let (narrow, calls) = NARROW;
        for number in calls {
            assert_eq!(verdict(narrow, (*number).into(), [0; 6]), NO_CALL);
        }
        let control = |number| verdict(narrow, NARROW_IOCTL.into(), [3, number, 0, 0, 0, 0]);
        assert_eq!((control(0x8914), control(libc::TIOCGWINSZ)), (NO_CALL, ALLOW));
        assert_eq!(verdict(narrow, 4, [0; 6]), ALLOW);
        assert_eq!(verdict(0x1234, 4, [0; 6]), NO_CALL);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(verdict(ARCH, i64::from(X32) | libc::SYS_connect, [0; 6]), NO_CALL);
        }
    }
}
