//! Wireshark's extcap protocol: a program that lists interfaces, and writes packets into a pipe.
//!
//! Wireshark calls it at each start, so that it answers at once also if no fabric is up or one does not answer.

use super::run;
use crate::arguments::{CaptureArguments, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use ringway_control::api::PortView;
use ringway_control::run_dir;
use ringway_wire::filter::Filter;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long fabrics may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What names of interfaces begin with.
const PREFIX: &str = "ringway:";

/// Does what Wireshark asks for; `None` if it is not Wireshark that calls.
pub fn asked(target: &Target, arguments: &CaptureArguments) -> Option<Result<(), CommandError>> {
    let extcap = &arguments.extcap;
    if arguments.install_extcap {
        return Some(install());
    }
    if extcap.extcap_interfaces {
        interfaces();
        return Some(Ok(()));
    }
    let interface = extcap.extcap_interface.as_deref()?;
    Some(if extcap.extcap_dlts {
        println!("dlt {{number=1}}{{name=EN10MB}}{{display=Ethernet}}");
        Ok(())
    } else if extcap.extcap_config {
        config();
        Ok(())
    } else if extcap.capture {
        capture(target, interface, arguments)
    } else {
        validate(extcap.extcap_capture_filter.as_deref().unwrap_or_default());
        Ok(())
    })
}

/// Lists the ports of all fabrics of this user.
fn interfaces() {
    let version = env!("CARGO_PKG_VERSION");
    println!("extcap {{version={version}}}{{display=Ringway}}");
    for (fabric, ports) in ports() {
        for PortView { name, .. } in ports {
            let shown = format!("Port {name} of Ringway's fabric {fabric}");
            println!("interface {{value={PREFIX}{fabric}:{name}}}{{display={shown}}}");
        }
    }
}

/// The ports of the fabrics that answer soon, by fabric. A thread each: one that does not answer delays no other.
fn ports() -> BTreeMap<String, Vec<PortView>> {
    let end = Instant::now() + ANSWER_TIMEOUT;
    let (found, answers) = channel();
    std::thread::spawn(move || {
        let base = run_dir::base();
        for fabric in run_dir::running(&base) {
            let (found, socket) = (found.clone(), run_dir::api_socket(&base.join(&fabric)));
            std::thread::spawn(move || {
                // One that ends now has no ports.
                let ports = Client::to(socket).and_then(|mut client| client.get("/v1/ports"));
                // Nobody waits for one that is late.
                let _ = found.send((fabric, ports.unwrap_or_default()));
            });
        }
    });
    let next = || answers.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}

/// Lists the options that Wireshark's dialog shows.
fn config() {
    println!(
        "arg {{number=0}}{{call=--snaplen}}{{display=Bytes of a frame}}{{type=unsigned}}{{default=0}}\
         {{tooltip=Copies so many bytes of a frame at most; 0 for all}}"
    );
    println!("arg {{number=1}}{{call=--direction}}{{display=Direction}}{{type=selector}}");
    for (word, text, is_default) in [
        ("both", "both", true),
        ("in", "what its peer sends", false),
        ("out", "what its peer receives", false),
    ] {
        println!("value {{arg=1}}{{value={word}}}{{display={text}}}{{default={is_default}}}");
    }
    println!(
        "arg {{number=2}}{{call=--drops}}{{display=Dropped frames too}}{{type=boolflag}}{{default=false}}\
         {{tooltip=Each has its reason as a comment}}"
    );
}

/// Prints what is wrong with an expression; Wireshark takes any output for an error.
fn validate(filter: &str) {
    if let Err(error) = Filter::parse(filter) {
        println!("{error}");
    }
}

/// Captures until Wireshark closes its pipe.
fn capture(target: &Target, interface: &str, arguments: &CaptureArguments) -> Result<(), CommandError> {
    let wrong = || CommandError::Unknown(format!("\"{}\" is no port of a fabric", interface.escape_debug()));
    let (fabric, port) =
        interface.strip_prefix(PREFIX).and_then(|rest| rest.split_once(':')).ok_or_else(wrong)?;
    let Some(fifo) = &arguments.extcap.fifo else {
        return Err(CommandError::Failed("--fifo PATH is missing: where Wireshark reads".into()));
    };
    let target = match &target.socket {
        Some(_) => target.clone(),
        None => Target { fabric: Some(fabric.into()), ..Target::default() },
    };
    let arguments = CaptureArguments {
        words: vec![port.into()],
        filter: Some(arguments.extcap.extcap_capture_filter.clone().unwrap_or_default()),
        write: Some(fifo.clone()),
        snaplen: arguments.snaplen,
        count: None,
        ring: None,
        interface: None,
        drops: arguments.drops,
        only_drops: false,
        direction: arguments.direction,
        buffer: arguments.buffer,
        statistics: false,
        // Wireshark shows what is written to standard error as an error.
        quiet: true,
        install_extcap: false,
        extcap: Default::default(),
    };
    run(&target, false, &arguments)
}

/// Writes a script for Wireshark into the folders where its versions look.
fn install() -> Result<(), CommandError> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = PathBuf::from(home.ok_or_else(|| CommandError::Failed("HOME is not set".into()))?);
    let program = std::env::current_exe().map_err(CommandError::because)?;
    let script = script(&program);
    let configured = std::env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
    let configuration = configured.map_or_else(|| home.join(".config"), PathBuf::from);
    for folder in [home.join(".local/lib/wireshark/extcap"), configuration.join("wireshark/extcap")] {
        let path = folder.join("ringway");
        let failed = |error: std::io::Error| CommandError::Failed(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(&path, &script).map_err(failed)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(failed)?;
        println!("{}", path.display());
    }
    Ok(())
}

/// A script that runs `ringway capture`, with the run directory that this process has.
fn script(program: &Path) -> Vec<u8> {
    let quoted = |text: OsString| {
        let text = text.into_string().unwrap_or_default().replace('\'', "'\\''");
        format!("'{text}'")
    };
    let base = std::env::var_os("RINGWAY_RUN").filter(|base| !base.is_empty());
    let run = base.map_or(String::new(), |base| format!("RINGWAY_RUN={} ", quoted(base)));
    format!("#!/bin/sh\n{run}exec {} capture \"$@\"\n", quoted(program.into())).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_quotes_the_program() {
        let text = String::from_utf8(script(Path::new("/opt/it's/ringway"))).unwrap();
        assert!(text.ends_with("exec '/opt/it'\\''s/ringway' capture \"$@\"\n"), "{text}");
    }
}
