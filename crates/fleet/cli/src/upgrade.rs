//! `ringway upgrade`.

use crate::arguments::{Target, Upgrade};
use crate::check;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text;
use ringway_control::api::FabricView;
use ringway_control::run_dir::upgrade_socket;
use ringway_control::upgrade::{self, Running, UpgradeAnswer, UpgradeRequest, Verdict};
use ringway_fabric::{MessageStream, StreamError};
use ringway_host::listener;
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Largest state of a fabric in bytes. Attack: a program that starts this one with endless input.
const MAX_STATE_LEN: u64 = 1 << 30;

#[derive(Serialize)]
struct UpgradeView {
    fabric: String,
    binary: PathBuf,
    from: String,
    to: String,
    /// Whether the fabric runs the program now.
    done: bool,
    notes: Vec<String>,
}

/// Moves a fabric to another program.
pub fn upgrade(target: &Target, json: bool, options: &Upgrade) -> Result<(), CommandError> {
    let fabric: FabricView = Client::connect(target)?.get("/v1/fabric")?;
    let path = options.binary.clone().unwrap_or_else(|| "/proc/self/exe".into());
    let refused =
        |error: std::io::Error| CommandError::Failed(format!("{}: {error}; name a program", path.display()));
    let binary = File::open(&path).map_err(refused)?;
    // A program that was removed meanwhile is only named.
    let binary_path = std::fs::canonicalize(&path).or_else(|_| std::fs::read_link(&path)).map_err(refused)?;
    let stream = connect(Path::new(&fabric.run))?;
    let request = UpgradeRequest { only_check: options.check, disconnect: options.disconnect };
    stream.send(&request, &[binary.as_fd()]).map_err(CommandError::because)?;
    let (from, to, mut notes) = match receive(&stream)? {
        UpgradeAnswer::Checked { from, to, notes } => (from, to, notes),
        UpgradeAnswer::Refused(why) => {
            let why: Vec<String> = why.iter().map(|why| format!("\n  {why}")).collect();
            let binary = binary_path.display();
            let what = format!("fabric {} is not moved to {binary}, and nothing has changed:", fabric.name);
            return Err(CommandError::Failed(format!("{what}{}", why.concat())));
        }
        UpgradeAnswer::Failed(why) => return Err(CommandError::Failed(why)),
        UpgradeAnswer::Done { .. } => return Err(CommandError::Failed("an unexpected answer".into())),
    };
    if !options.check {
        match receive(&stream)? {
            UpgradeAnswer::Done { notes: more } => notes.extend(more),
            UpgradeAnswer::Failed(why) => {
                let what = format!("the new program failed: {why}");
                let fix = "the fabric went back to the former program; `ringway logs` shows more";
                return Err(CommandError::Failed(format!("{what}; {fix}")));
            }
            _ => return Err(CommandError::Failed("an unexpected answer".into())),
        }
    }
    let view =
        UpgradeView { fabric: fabric.name, binary: binary_path, from, to, done: !options.check, notes };
    if json {
        text::json(&view);
        return Ok(());
    }
    let (word, what) = if view.done { ("upgraded", "runs") } else { ("good", "can run") };
    let UpgradeView { fabric, binary, from, to, notes, .. } = view;
    println!("{}{word}:{:#} fabric {fabric} {what} {}", text::GOOD, text::GOOD, binary.display());
    println!("  version  {to}, before {from}");
    notes.iter().for_each(|note| println!("  note     {note}"));
    Ok(())
}

fn connect(run: &Path) -> Result<MessageStream, CommandError> {
    let path = upgrade_socket(run);
    let why = "one of an older version, or of `ringway topo`, can't be upgraded: take it down, and up again";
    if !path.exists() {
        return Err(CommandError::Failed(format!("there is no {}: {why}", path.display())));
    }
    let socket = listener::connect(&path).map_err(|error| {
        CommandError::Failed(format!(
            "the fabric's socket for upgrades: {error}; only its user and root may upgrade it"
        ))
    })?;
    Ok(MessageStream::new(socket))
}

fn receive(stream: &MessageStream) -> Result<UpgradeAnswer, CommandError> {
    stream.receive().map(|(answer, _)| answer).map_err(|error| match error {
        StreamError::Closed => {
            CommandError::NotUp("the fabric ended, or its keeper; `ringway ps` shows it".into())
        }
        error => CommandError::because(error),
    })
}

/// Says whether this program can go on with the fabric at standard input.
pub fn check() -> Result<(), CommandError> {
    let mut text = Vec::new();
    std::io::stdin().take(MAX_STATE_LEN).read_to_end(&mut text).map_err(CommandError::because)?;
    let running: Running = serde_json::from_slice(&text).map_err(|error| {
        CommandError::Failed(format!("another version of Ringway describes the fabric: {error}"))
    })?;
    let problems = upgrade::check(&running, &check::host());
    text::json(&Verdict { version: env!("CARGO_PKG_VERSION").into(), problems });
    Ok(())
}
