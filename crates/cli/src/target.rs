//! Which fabric a command is for.

use crate::arguments::Target;
use crate::fail::Fail;
use ringway_control::run_dir;
use std::path::PathBuf;

impl Target {
    /// The control socket of the fabric that is meant.
    pub fn find(&self) -> Result<PathBuf, Fail> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        let base = run_dir::base();
        let names = run_dir::running(&base);
        if let Some(name) = &self.fabric {
            let socket = run_dir::api_socket(&base.join(name));
            // Whoever may not use its socket is told so there.
            return match names.contains(name) || socket.exists() {
                true => Ok(socket),
                false => {
                    Err(Fail::NotUp(format!("no fabric {name} is up in {}; {}", base.display(), up(&names))))
                }
            };
        }
        match names.as_slice() {
            [name] => Ok(run_dir::api_socket(&base.join(name))),
            [] => {
                let place = base.display();
                Err(Fail::NotUp(format!(
                    "no fabric is up in {place}; \
                     start one with `ringway up FILE --detach`, or say which with --socket"
                )))
            }
            names => Err(Fail::NotUp(format!(
                "{} fabrics are up; say which with --fabric: {}",
                names.len(),
                names.join(", ")
            ))),
        }
    }
}

/// What to do if the fabric that is meant isn't up.
fn up(names: &[String]) -> String {
    match names {
        [] => "none is; start one with `ringway up FILE --detach`".into(),
        [name] => format!("{name} is"),
        [names @ .., last] => format!("{} and {last} are", names.join(", ")),
    }
}
