//! Writes every target's seeds below the given folder: `TARGET/seed-N`, an initial corpus for libFuzzer.

use ringway_fuzz::TARGETS;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "corpus".into()));
    for target in TARGETS {
        let corpus = folder.join(target.name);
        std::fs::create_dir_all(&corpus)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(corpus.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
