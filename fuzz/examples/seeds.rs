//! Writes the seeds and kept inputs of every target below the given folder, an initial corpus for libFuzzer: files
//! `TARGET/seed-N`.

use ringway_fuzz::{TARGETS, corpus};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "corpus".into()));
    for target in TARGETS {
        let of_target = folder.join(target.name);
        std::fs::create_dir_all(&of_target)?;
        let inputs = (target.seeds)().into_iter().chain(corpus::read(target.name)?);
        for (number, input) in inputs.enumerate() {
            std::fs::write(of_target.join(format!("seed-{number}")), input)?;
        }
    }
    Ok(())
}
