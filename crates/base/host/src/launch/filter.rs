//! The seccomp filter of programs whose sockets an agent serves: which system calls wait for its answer.

use libc::sock_filter;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
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
    /// The argument of this number, a pointer, is not null.
    NotNull(u32),
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
    (libc::SYS_sendto, When::NotNull(4)),
    (libc::SYS_recvfrom, When::NotNull(4)),
    (libc::SYS_sendmsg, When::Always),
    (libc::SYS_recvmsg, When::Always),
    (libc::SYS_sendmmsg, When::Always),
    (libc::SYS_recvmmsg, When::Always),
    (libc::SYS_ioctl, When::Is(1, &[libc::TIOCOUTQ as u32])),
    // It would make sockets that no filter sees.
    (libc::SYS_io_uring_setup, When::Missing),
];

const fn step(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips so many steps if the loaded value is not `k`.
const fn unless(k: u32, skip: usize) -> sock_filter {
    sock_filter { code: JUMP_EQUAL, jt: 0, jf: skip as u8, k }
}

/// What follows when the number is that of the rule.
fn steps(when: &When) -> Vec<sock_filter> {
    match when {
        When::Always => vec![step(RETURN, NOTIFY)],
        When::Missing => vec![step(RETURN, NO_CALL)],
        When::Is(argument, values) => {
            let mut steps = vec![step(LOAD, ARGUMENTS + 8 * argument)];
            steps.extend(values.iter().flat_map(|value| [unless(*value, 1), step(RETURN, NOTIFY)]));
            steps.push(step(RETURN, ALLOW));
            steps
        }
        When::NotNull(argument) => vec![
            step(LOAD, ARGUMENTS + 8 * argument),
            unless(0, 3),
            step(LOAD, ARGUMENTS + 8 * argument + 4),
            unless(0, 1),
            step(RETURN, ALLOW),
            step(RETURN, NOTIFY),
        ],
    }
}

/// The filter. Calls of another architecture's programs, as 32-bit ones, are allowed: in a network namespace without a
/// way out their sockets reach nobody.
pub(super) fn filter() -> Vec<sock_filter> {
    let mut filter = vec![
        step(LOAD, ARCHITECTURE),
        sock_filter { code: JUMP_EQUAL, jt: 1, jf: 0, k: ARCH },
        step(RETURN, ALLOW),
        step(LOAD, NUMBER),
    ];
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
    fn verdict(number: libc::c_long, arguments: [u64; 6]) -> u32 {
        let filter = filter();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = filter[at];
            at += 1;
            match code {
                RETURN => return k,
                LOAD if k == NUMBER => loaded = number as u32,
                LOAD if k == ARCHITECTURE => loaded = ARCH,
                LOAD => {
                    let (argument, high) = ((k - ARGUMENTS) / 8, (k - ARGUMENTS) % 8 / 4);
                    loaded = (arguments[argument as usize] >> (32 * high)) as u32;
                }
                _ => at += usize::from(if loaded == k { jt } else { jf }),
            }
        }
    }

    #[test]
    fn only_calls_that_name_addresses_and_options_wait() {
        let verdict = |number, argument, value| {
            let mut arguments = [0; 6];
            arguments[argument] = value;
            verdict(number, arguments)
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
        assert_eq!(verdict(libc::SYS_io_uring_setup, 0, 0), NO_CALL);
        assert!(
            RULES
                .iter()
                .all(|(number, _)| *number != libc::SYS_io_uring_setup || verdict(*number, 0, 0) == NO_CALL)
        );
    }
}
