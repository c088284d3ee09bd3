//! Builds the library that programs preload, which this crate contains.
#[path = "../../base/bare/image.rs"]
mod image;

use image::Image;
use std::process::ExitCode;

fn main() -> ExitCode {
    let package = &image::folder("CARGO_MANIFEST_DIR").join("../preload");
    let name = "ringway_preload";
    let library = Image { package, script: None, name, profile: "preload", features: "", flags: &[] };
    let Some(built) = library.build() else { return ExitCode::FAILURE };
    println!("cargo::rustc-env=PRELOAD_LIBRARY={}", built.display());
    ExitCode::SUCCESS
}
