//! Selects the fabric that a command is for.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::remote;
use ringway_control::api::PortView;
use ringway_control::run_dir;
use ringway_spec::file::either;
use std::path::PathBuf;

impl Target {
    /// The control socket of the selected fabric.
    pub fn find(&self) -> Result<PathBuf, CommandError> {
        if self.api.is_some() {
            return Err(remote::local_only());
        }
        if let Some(socket) = &self.socket {
            return match self.fabric {
                None => Ok(socket.clone()),
                Some(_) => {
                    Err(CommandError::Failed("--socket and --fabric each name a fabric; give one".into()))
                }
            };
        }
        let base = run_dir::base();
        if let Some(name) = &self.fabric {
            let socket = run_dir::api_socket(&base.join(name));
            // The connection attempt will show whether a fabric listens on the socket.
            if socket.exists() {
                return Ok(socket);
            }
            let up = up(&run_dir::running(&base));
            return Err(CommandError::NotUp(format!("no fabric {name} is up in {}; {up}", base.display())));
        }
        match run_dir::running(&base).as_slice() {
            [name] => Ok(run_dir::api_socket(&base.join(name))),
            [] => {
                let place = base.display();
                Err(CommandError::NotUp(match run_dir::denied(&base).as_slice() {
                    [] => format!(
                        "no fabric is up in {place}; \
                         start one with `ringway up FILE --detach`, \
                         or name the socket of one in another run directory with --socket PATH"
                    ),
                    [first, ..] => format!(
                        "fabric {first} in {place} is another user's; be that user or root, \
                         or start one of your own with `ringway up FILE --detach`"
                    ),
                }))
            }
            names => Err(CommandError::NotUp(format!(
                "{} fabrics are up; say which with --fabric: {}",
                names.len(),
                names.join(", ")
            ))),
        }
    }
}

/// The socket of a port of one of these kinds; a path is one already.
pub fn ring_socket(target: &Target, port: &str, kinds: &[&str]) -> Result<PathBuf, CommandError> {
    peer_socket(target, port, kinds).map(|(_, socket)| socket)
}

/// The kind of a port, which is one of these, and the socket of its peer; a path is a ring port's.
pub fn peer_socket(target: &Target, port: &str, kinds: &[&str]) -> Result<(String, PathBuf), CommandError> {
    if port.contains('/') {
        return Ok(("ring".into(), port.into()));
    }
    let ports: Vec<PortView> = Client::connect(target)?.get("/v1/ports")?;
    let shown = port.escape_debug();
    match ports.into_iter().find(|view| view.name == port) {
        Some(view) if kinds.contains(&&*view.kind) => Ok((view.kind, view.peer.into())),
        Some(view) => Err(CommandError::Failed(format!(
            "port {shown} is of kind {}; a program's port is of kind {}",
            view.kind,
            either(kinds.iter().copied())
        ))),
        None => Err(CommandError::Unknown(format!(
            "there is no port \"{shown}\"; `ringway ps` shows those there are"
        ))),
    }
}

/// Names the fabrics that are up, or describes how to start one, for the message that the selected fabric is not up.
fn up(names: &[String]) -> String {
    match names {
        [] => "none is; start one with `ringway up FILE --detach`".into(),
        [name] => format!("{name} is"),
        [names @ .., last] => format!("{} and {last} are", names.join(", ")),
    }
}
