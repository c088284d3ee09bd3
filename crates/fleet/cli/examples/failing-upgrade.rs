//! A version of the program that fails when a fabric is moved to it, for the tests of `ringway upgrade`. The name of
//! its file says where: it is the word behind the last dot.

use std::process::ExitCode;
use std::time::Duration;

/// While it gets its ports, or soon after that.
fn crash_later() {
    std::thread::sleep(Duration::from_millis(30));
    std::process::abort()
}

fn main() -> ExitCode {
    let file = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let place = file.extension().unwrap_or_default().to_string_lossy().into_owned();
    let words: Vec<String> = std::env::args().collect();
    let has = |word: &str| words.iter().any(|known| known == word);
    match &*place {
        "check" if has("upgrade-check") => {
            eprintln!("this version reads nothing");
            return ExitCode::FAILURE;
        }
        "control-crashes" if has("--kept") => std::process::abort(),
        "control-ends" if has("--kept") => return ExitCode::SUCCESS,
        "control-hangs" if has("--kept") => loop {
            std::thread::park();
        },
        "data-crashes" if has("data") => std::process::abort(),
        "data-crashes-later" if has("data") => drop(std::thread::spawn(crash_later)),
        _ => {}
    }
    ringway_cli::main(ringway_cli::Kinds::default())
}
