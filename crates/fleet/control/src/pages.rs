//! Page sizes of memory that Ringway or its guests' runners allocate.

use ringway_host::{HugePages as Free, PageChoice, Pages};
use ringway_spec::HugePages;
use ringway_spec::file::units::show_size;

/// The page size for a program's ring.
pub fn choice(wanted: HugePages) -> PageChoice {
    match wanted {
        HugePages::Auto => PageChoice::Large,
        HugePages::Mb2 => PageChoice::Only(Pages::Large),
        HugePages::Gb1 => PageChoice::Only(Pages::Huge),
        HugePages::Off => PageChoice::Only(Pages::Base),
    }
}

/// Size in KiB of the huge pages for a guest of `memory` MiB, chosen from the free ones; `None` for ordinary pages.
pub fn of_guest(wanted: HugePages, memory: u64, free: &[Free]) -> Result<Option<u64>, String> {
    let (pages, must) = match wanted {
        HugePages::Off => return Ok(None),
        HugePages::Auto => (Pages::Large, false),
        HugePages::Mb2 => (Pages::Large, true),
        HugePages::Gb1 => (Pages::Huge, true),
    };
    let (bytes, size) = (memory << 20, pages.bytes());
    let free = free.iter().find(|free| free.size == size).map_or(0, |free| free.free);
    if bytes.is_multiple_of(size) && bytes / size <= free {
        return Ok(Some(size >> 10));
    }
    let page = show_size(size);
    match must {
        false => Ok(None),
        true if !bytes.is_multiple_of(size) => {
            let memory = show_size(bytes);
            Err(format!(
                "its memory of {memory} is no multiple of the {page} that [fabric] huge-pages asks for"
            ))
        }
        true => Err(format!(
            "it needs {} pages of {page}, and {free} are free; `ringway doctor` says how to get more, and \
             huge-pages = \"auto\" does without",
            bytes / size
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_the_requested_huge_pages_or_an_error() {
        let free = [Free { size: 2 << 20, total: 100, free: 96 }, Free { size: 1 << 30, total: 1, free: 0 }];
        let of = |wanted, memory| of_guest(wanted, memory, &free);
        assert_eq!(of(HugePages::Auto, 192), Ok(Some(2048)));
        assert_eq!(of(HugePages::Auto, 194), Ok(None));
        assert_eq!(of(HugePages::Off, 192), Ok(None));
        assert_eq!(of(HugePages::Mb2, 192), Ok(Some(2048)));
        let error = of(HugePages::Mb2, 194).unwrap_err();
        assert!(error.starts_with("it needs 97 pages of 2MB, and 96 are free; `ringway doctor`"), "{error}");
        assert!(of(HugePages::Gb1, 192).unwrap_err().contains("no multiple of the 1GB"));
        assert!(of(HugePages::Gb1, 1024).unwrap_err().contains("and 0 are free"));
        assert_eq!(of_guest(HugePages::Auto, 192, &[]), Ok(None));
    }
}
