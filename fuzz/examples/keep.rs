//! Keeps inputs of the given folder, `TARGET/*`, in `fuzz/corpus`: the smallest of each target.

use ringway_fuzz::{TARGETS, corpus};
use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "minimized".into()));
    for target in TARGETS {
        let Ok(entries) = fs::read_dir(folder.join(target.name)) else { continue };
        let inputs = entries.map(|entry| fs::read(entry?.path())).collect::<Result<Vec<_>, _>>()?;
        let found = inputs.len();
        println!("{}: {} inputs kept of {found}", target.name, corpus::keep(target.name, inputs)?);
    }
    Ok(())
}
