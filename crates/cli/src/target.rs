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
        if let Some(name) = &self.fabric {
            return Ok(run_dir::api_socket(&base.join(name)));
        }
        match run_dir::running(&base).as_slice() {
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
