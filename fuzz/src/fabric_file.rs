//! The fabric file.

use ringway_control::file::{Host, read};

/// Parses `data` as a fabric file, and renders its errors.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let base = Some("/run/ringway".into());
    let host = Host { cores: vec![0, 1], base, ..Host::default() };
    match read("fuzz.toml", text, &host) {
        Ok(fabric) => {
            let _ = fabric.resolve("/run/ringway".as_ref(), "/etc/ringway".as_ref());
        }
        Err(problems) => {
            assert!(!problems.list.is_empty(), "a file was refused without a reason");
            assert!(!problems.render(true).is_empty());
        }
    }
}

/// The examples.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        include_str!("../../examples/host-and-guest.toml"),
        include_str!("../../examples/measure.toml"),
        include_str!("../../examples/rings.toml"),
        include_str!("../../examples/two-guests.toml"),
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
