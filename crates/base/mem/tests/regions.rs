//! Parts of regions, and the messages of tables that are refused.
#![allow(clippy::unwrap_used)]

use ringway_mem::{Hint, Memory, MemoryError, Region};

#[test]
fn a_part_lies_within_its_region_and_shares_its_bytes() {
    let region = Region::private(0x1000, 0x9000, 0x100);
    let whole = region.part(0, 0x100).unwrap();
    assert_eq!((whole.guest, whole.user, whole.len), (0x1000, 0x9000, 0x100));
    let end = region.part(0xf0, 0x10).unwrap();
    assert_eq!((end.guest, end.user, end.len), (0x10f0, 0x90f0, 0x10));
    assert_eq!(end.base().addr().get(), region.base().addr().get() + 0xf0);
    for (offset, len) in [(0, 0x101), (0xf0, 0x11), (0x101, 0), (u64::MAX, 1), (1, u64::MAX)] {
        assert!(region.part(offset, len).is_none(), "{offset:#x} {len:#x}");
    }
    let [memory, part] = [region, end].map(|region| Memory::new(vec![region]).unwrap());
    part.span_mut(0x10f0, 4, &mut Hint::default()).unwrap().write(&[1, 2, 3, 4]);
    assert_eq!(memory.span(0x10f0, 4, &mut Hint::default()).unwrap().read_array(), Some([1, 2, 3, 4]));
}

#[test]
fn a_part_at_the_end_of_an_address_space_does_not_wrap() {
    let region = Region::private(u64::MAX - 0xff, 0, 0x1000);
    assert!(region.part(0xff, 1).is_some());
    assert!(region.part(0x100, 1).is_none());
}

#[test]
fn each_refusal_of_a_table_has_its_message() {
    use MemoryError::{Empty, Overlap, TooLarge, TooMany, Wraps};
    let mut texts = [TooMany, Empty, Wraps, TooLarge, Overlap].map(|error| error.to_string());
    texts.sort();
    assert!(texts.iter().all(|text| text.len() > 10));
    assert!(texts.windows(2).all(|pair| pair[0] != pair[1]));
}
