//! Pages of this program's file that it no longer needs in its memory.

use std::ops::Range;

/// What was found of the program.
#[derive(Default)]
struct Found(Vec<Range<usize>>);

/// The first object is the program itself.
extern "C" fn first(info: *mut libc::dl_phdr_info, _: libc::size_t, found: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the C library passes the object's description and our argument, both of which live during the call.
    unsafe {
        let (info, found) = (&*info, &mut *found.cast::<Found>());
        for number in 0..usize::from(info.dlpi_phnum) {
            let header = &*info.dlpi_phdr.add(number);
            if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
                let begin = info.dlpi_addr as usize + header.p_vaddr as usize;
                found.0.push(begin..begin + header.p_memsz as usize);
            }
        }
    }
    1
}

/// The whole pages of a range that are not in `except`: what is before it, and what is behind it.
fn pages(range: &Range<usize>, except: &Range<usize>) -> [Range<usize>; 2] {
    const PAGE: usize = 4096;
    let before = range.start..range.end.min(except.start);
    let behind = range.start.max(except.end)..range.end;
    [before, behind].map(|part| part.start.next_multiple_of(PAGE)..part.end / PAGE * PAGE)
}

/// Unmaps the pages of this program's code and constants; those that are used again are mapped again, without being
/// read. A program that has started needs a small part of what its start needed, and what the kernel mapped around it.
/// `except` keeps its pages.
pub fn forget_program_pages(except: &[u8]) {
    let mut found = Found::default();
    // SAFETY: the function has the signature that is asked for, and its argument lives during the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    let begin = except.as_ptr().addr();
    let except = begin..begin + except.len();
    for part in found.0.iter().flat_map(|range| pages(range, &except)).filter(|part| !part.is_empty()) {
        let at = std::ptr::with_exposed_provenance_mut(part.start);
        // SAFETY: a part of the program's file that is mapped without the right to write: the kernel maps the same
        // bytes again when they are used.
        unsafe { libc::madvise(at, part.len(), libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_pages_outside_the_exception() {
        let [before, behind] = pages(&(100..50_000), &(8192..20_480));
        assert_eq!((before, behind), (4096..8192, 20_480..49_152));
        let [before, behind] = pages(&(4096..8192), &(0..0));
        assert!(before.is_empty() && behind == (4096..8192));
        assert!(pages(&(4096..8192), &(4096..8192)).iter().all(Range::is_empty));
    }

    #[test]
    fn the_program_goes_on_with_the_same_constants() {
        static WORDS: [u8; 16384] = {
            let mut words = [0; 16384];
            let mut at = 0;
            while at < words.len() {
                words[at] = at as u8;
                at += 1;
            }
            words
        };
        let sum = |words: &[u8]| words.iter().map(|word| u64::from(*word)).sum::<u64>();
        let before = sum(std::hint::black_box(&WORDS));
        forget_program_pages(&[]);
        assert_eq!(sum(std::hint::black_box(&WORDS)), before);
        forget_program_pages(&WORDS);
        assert_eq!(sum(std::hint::black_box(&WORDS)), before);
    }
}
