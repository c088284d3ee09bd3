//! A guest's memory in this process, with guard bytes around every part that a device may access.
#![allow(dead_code, clippy::unwrap_used)]

use ringway_mem::{Direct, Hint, Memory, Region, SpanMut};
use ringway_virtq::{Areas, Layout, Ring};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;

/// Guest-physical address of the first byte.
pub const BASE: u64 = 0x10_0000;
/// Bytes that are shared.
pub const LEN: usize = 1 << 20;
/// Unshared bytes before and after them.
pub const GUARD: usize = 4096;
const FILL: u8 = 0xa5;

#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; 4096]>);

struct Pages(Box<[Page]>);

// SAFETY: the bytes are touched through spans only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// Memory of a guest.
pub struct Guest {
    pages: Arc<Pages>,
    pub memory: Memory,
}

impl Guest {
    pub fn new() -> Guest {
        let page = |fill| Page(UnsafeCell::new([fill; 4096]));
        let guard = || std::iter::repeat_with(|| page(FILL)).take(GUARD / 4096);
        let inner = std::iter::repeat_with(|| page(0)).take(LEN / 4096);
        let pages = Arc::new(Pages(guard().chain(inner).chain(guard()).collect()));
        let begin = NonNull::new(pages.0.as_ptr().cast_mut().cast::<u8>()).unwrap();
        // Two adjacent regions, so that buffers may span both.
        let half = LEN / 2;
        let regions = [0, half].map(|offset| {
            let at = BASE + offset as u64;
            // SAFETY: the pages hold these bytes and live in the keeper.
            unsafe { Region::new(at, at, half as u64, begin.add(GUARD + offset), pages.clone()) }
        });
        Guest { pages, memory: Memory::new(regions.to_vec()).unwrap() }
    }

    /// `len` bytes at guest-physical `at`.
    pub fn span(&self, at: u64, len: usize) -> SpanMut<'_> {
        self.memory.span_mut(at, len as u32, &mut Hint::default()).unwrap()
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            self.span(at + index as u64, 1).write(&[*byte]);
        }
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        for (index, byte) in out.iter_mut().enumerate() {
            self.span(at + index as u64, 1).as_span().read(std::slice::from_mut(byte));
        }
        out
    }

    /// Whether the bytes around the shared ones are unchanged.
    pub fn guards_hold(&self) -> bool {
        let edge = GUARD / 4096;
        let all = &self.pages.0;
        // SAFETY: no code writes the guards, or the test fails.
        let whole = |page: &Page| unsafe { *page.0.get() }.iter().all(|&byte| byte == FILL);
        all[..edge].iter().chain(&all[all.len() - edge..]).all(whole)
    }

    /// The areas of a ring of this layout at guest-physical `at`.
    pub fn areas(&self, layout: &Layout, at: u64) -> Areas<'_> {
        let lengths = layout.lengths().unwrap();
        let driver = at + u64::from(lengths.descriptors);
        let device = (driver + u64::from(lengths.driver)).next_multiple_of(64);
        Areas {
            descriptors: self.span(at, lengths.descriptors as usize),
            driver: self.span(driver, lengths.driver as usize),
            device: self.span(device, lengths.device as usize),
        }
    }

    pub fn ring(&self, layout: &Layout, at: u64) -> Ring<'_> {
        Ring::new(layout, self.areas(layout, at)).unwrap()
    }

    pub fn direct<'t, 'h>(&'t self, hint: &'h mut Hint) -> Direct<'t, 'h> {
        Direct::new(&self.memory, hint)
    }
}

/// A device's initial position.
pub fn start(layout: &Layout) -> ringway_virtq::Cursor {
    ringway_virtq::Cursor { index: 0, wrap: layout.packed }
}
