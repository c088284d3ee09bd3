//! Options of requests.

use crate::Result;
use crate::fields::Fields;
use libc::c_void;

/// Kinds of options.
const EXTMEM: u32 = 1;
const EVENTFDS: u32 = 2;
const CSB: u32 = 3;
const SYNC_KLOOP_MODE: u32 = 4;
const OFFSETS: u32 = 5;

/// Most bytes of all options. Attack: a list without an end.
const BYTES_MOST: u64 = 4096;

/// What options say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Addresses of `nm_csb_atok` and `nm_csb_ktoa`.
    pub csb: Option<[u64; 2]>,
    /// For each ring the eventfd that wakes the kloop and the one that wakes the program.
    pub eventfds: Option<Vec<[i32; 2]>>,
}

fn set_status(option: Fields, error: i32) {
    option.put(12, (error as u32).to_ne_bytes());
}

/// Reads the options of a request that may have these, and says in each what becomes of it.
///
/// # Safety
/// The header is a `struct nmreq_header` whose options are as long as they say.
pub unsafe fn read(header: Fields, may: impl Fn(u32) -> bool) -> Result<Options> {
    let mut list: Vec<(u32, Fields)> = Vec::new();
    let (mut next, mut bytes) = (header.u64(72), 0);
    while next != 0 {
        // SAFETY: an option has 24 bytes, by the program's promise.
        let option = unsafe { Fields::new(next as *mut c_void) }?;
        let kind = option.u32(8);
        let len = match kind {
            EXTMEM => 112,
            EVENTFDS => option.u64(16).max(24),
            CSB => 40,
            SYNC_KLOOP_MODE => 32,
            OFFSETS => 56,
            _ => 24,
        };
        bytes += len.min(BYTES_MOST) + 8;
        if bytes > BYTES_MOST {
            return Err(libc::EMSGSIZE);
        }
        if (EXTMEM..=OFFSETS).contains(&kind)
            && let Some((_, first)) = list.iter().find(|(other, _)| *other == kind)
        {
            [*first, option].into_iter().for_each(|option| set_status(option, libc::EINVAL));
            return Err(libc::EINVAL);
        }
        list.push((kind, option));
        next = option.u64(0);
    }
    let mut options = Options::default();
    let mut is_refused = false;
    for (kind, option) in list {
        let is_served = may(kind);
        set_status(option, if is_served { 0 } else { libc::EOPNOTSUPP });
        is_refused |= !is_served;
        match kind {
            CSB if is_served => options.csb = Some([option.u64(24), option.u64(32)]),
            EVENTFDS if is_served => {
                let count = (option.u64(16).max(24) as usize - 24) / 8;
                let pair = |index: usize| [0, 4].map(|at| option.u32(24 + 8 * index + at) as i32);
                options.eventfds = Some((0..count).map(pair).collect());
            }
            _ => {}
        }
    }
    if is_refused { Err(libc::EOPNOTSUPP) } else { Ok(options) }
}

/// Those of a request to register.
pub fn of_register(kind: u32) -> bool {
    kind == CSB
}

/// Those of a sync kloop. Its mode says whether the kloop or whoever notifies it syncs; here it is always the kloop.
pub fn of_kloop(kind: u32) -> bool {
    matches!(kind, EVENTFDS | SYNC_KLOOP_MODE)
}
