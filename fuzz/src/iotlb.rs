//! The device IOTLB, compared with a table of all addresses, while a guest maps and unmaps arbitrarily.

use ringway_host::{map_region, memfd, reclaim_all};
use ringway_mem::iotlb::{Access, Editor, Lookaside, Lookup};
use ringway_mem::{Memory, Translate};
use std::sync::Arc;

/// One byte for operation and permission, then two each for address, length and target.
const STEP: usize = 7;
/// Size of the model's address space, and of the memory.
const SPACE: usize = 256;
const LEN: u64 = 192;
const USER: u64 = 1 << 40;
const MOST: usize = 64;

thread_local! {
    static MEMORY: Option<Arc<Memory>> = memory();
}

fn memory() -> Option<Arc<Memory>> {
    let file = memfd("fuzz", 4096).ok()?;
    let regions = vec![
        map_region(&file, 0, LEN / 2, 0, USER).ok()?,
        map_region(&file, 512, LEN / 2, 1 << 20, USER + LEN / 2).ok()?,
    ];
    Memory::new(regions).ok().map(Arc::new)
}

/// Applies the operations in `data` to an IOTLB.
pub fn run(data: &[u8]) {
    MEMORY.with(|memory| {
        let Some(memory) = memory else { panic!("no memory: is memfd allowed?") };
        steps(memory, data);
    });
}

fn steps(memory: &Arc<Memory>, data: &[u8]) {
    let mut editor = Editor::new(memory.clone(), MOST);
    let mut aside = Lookaside::default();
    // Target and permission of each address.
    let mut rows = vec![None::<(u64, u8)>; SPACE];
    for step in data.as_chunks::<STEP>().0 {
        let [what, a, b, c, d, e, f] = *step;
        let (iova, size, user) =
            (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]), u16::from_le_bytes([e, f]));
        let (iova, size) = (u64::from(iova) % SPACE as u64, u64::from(size) % 64);
        let range = iova as usize..(iova + size).min(SPACE as u64) as usize;
        match Access::from_bits(what & 3) {
            Some(access) => {
                let user = USER - 16 + u64::from(user) % (LEN + 32);
                if editor.update(iova, size, user, access).is_ok() {
                    let leads = range.clone().map(|at| (at, user + (at as u64 - iova)));
                    leads.for_each(|(at, user)| rows[at] = Some((user, access.bits())));
                }
            }
            None => {
                editor.invalidate(iova, size);
                let range = if size == 0 { 0..SPACE } else { range };
                rows[range].fill(None);
            }
        }
        assert!(editor.map().len() <= MOST, "more entries than there may be");
        let mut lookup = Lookup::of(&editor, &mut aside);
        for (iova, row) in (0..).zip(&rows) {
            for (write, bit) in [(false, 1), (true, 2)] {
                let found = if write {
                    lookup.write(iova, 4).map(|span| span.as_span())
                } else {
                    lookup.read(iova, 4)
                };
                let Ok(found) = found else { continue };
                let Some((user, access)) = row else { panic!("{iova} was not granted") };
                let memory = memory.user_span(*user, 1).map(|span| span.as_span().address());
                assert!(access & bit != 0 && memory == Some(found.address()), "{iova} leads elsewhere");
            }
        }
        // Clears the misses, since further ones would not be recorded.
        aside.forget_missed();
    }
    reclaim_all(std::mem::take(editor.retired()));
}

/// Adjacent mappings, and an unmapping in the middle.
pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        [[3, 0, 0, 32, 0, 16, 0], [3, 32, 0, 32, 0, 48, 0], [0, 20, 0, 4, 0, 0, 0], [1, 21, 0, 2, 0, 60, 0]]
            .concat(),
    ]
}
