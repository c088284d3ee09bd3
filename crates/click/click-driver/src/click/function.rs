//! Running a configuration as a function, controlled by a supervisor through a ControlSocket.
use super::builder::{Builder, Reader};
use super::check::Configuration;
use super::confined::Confined;
use super::host::Libraries;
use super::{Machine, drive, function_registry};
use ringway_click::{Clock, Console, Router};
use ringway_elements::platform::Uses;
use std::cell::RefCell;
use std::rc::Rc;

/// Runs a configuration until requested to stop; calls `up` once it runs. `socket` is the ControlSocket's
/// place, and `burst` the number of packets handled at once.
///
/// # Errors
/// The errors of the configuration, one line each.
pub fn run(
    configuration: Configuration<'_>,
    socket: &str,
    burst: usize,
    up: impl FnOnce(),
) -> Result<(), String> {
    let Configuration { text, file, parameters, ports, devices, .. } = configuration;
    let builder = Builder {
        reader: Reader {
            registry: function_registry(),
            variables: parameters.to_vec(),
            libraries: Libraries::None,
            sockets: vec![format!("UNIX, {}", ringway_click_lang::config::quote(socket.as_bytes()))],
        },
        uses: Some(Uses { ports: ports.to_vec(), devices: devices.to_vec() }),
        burst,
        console: Box::new(|| Box::new(Confined) as Box<dyn Console>),
        resident: None,
    };
    let graph = builder.accept(builder.reader.read(text, file), file)?;
    let options = builder.options(Clock::Real(Box::new(Machine::default())), text.to_string());
    let built = Router::build(graph, &builder.reader.registry, options);
    let mut router = built.map_err(|error| builder.message(&error))?;
    router.allow_profile(ringway_host::ticks);
    router.allow_reconfigure(Box::new(builder));
    up();
    drive(&Rc::new(RefCell::new(router)));
    Ok(())
}
