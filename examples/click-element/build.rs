//! Builds the image of functions in VMs, which the program contains.
#[path = "../../crates/base/bare/image.rs"]
mod image;

use image::Image;
use std::process::ExitCode;

fn main() -> ExitCode {
    let here = image::folder("CARGO_MANIFEST_DIR");
    let image = Image {
        package: &here.join("image"),
        script: Some(&here.join("../../crates/machines/tiny/link.ld")),
        name: "my-image",
        profile: "click",
        features: "image",
        flags: &["-Crelocation-model=static", "-Clink-arg=--icf=all"],
    };
    let Some(built) = image.build() else { return ExitCode::FAILURE };
    // A copy, since a later build of another profile may replace the original meanwhile.
    let own = image::folder("OUT_DIR").join("my-image");
    match std::fs::copy(&built, &own) {
        Ok(_) => println!("cargo::rustc-env=IMAGE={}", own.display()),
        Err(error) => {
            eprintln!("{}: {error}", own.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
