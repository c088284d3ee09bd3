//! Running a configuration as a function: under a supervisor, which controls it by a ControlSocket.
use super::builder::{Builder, Reader};
use super::check::Configuration;
use super::{Hosted, Machine, Terminal, drive, registry};
use ringway_click::{Clock, Console, Router};
use std::cell::RefCell;
use std::rc::Rc;

/// Runs a configuration until it is told to stop; `up` is called once it runs. `socket` is the ControlSocket's place,
/// and `burst` how many packets are handled at once.
///
/// # Errors
/// What is wrong with the configuration, a line each.
pub fn run(
    configuration: Configuration<'_>,
    socket: &str,
    burst: usize,
    up: impl FnOnce(),
) -> Result<(), String> {
    let Configuration { text, file, parameters, .. } = configuration;
    let builder = Builder {
        reader: Reader {
            registry: registry(),
            variables: parameters.to_vec(),
            path: None,
            sockets: vec![format!("UNIX, {}", ringway_click_lang::config::quote(socket.as_bytes()))],
        },
        burst,
        console: Box::new(|| Box::new(Hosted(Terminal)) as Box<dyn Console>),
    };
    let (graph, said) = builder.reader.read(text, file);
    let graph = graph.ok_or_else(|| said.to_string())?;
    let options = builder.options(Clock::Real(Box::new(Machine::default())), text.to_string());
    let built = Router::build(graph, &builder.reader.registry, options);
    let mut router = built.map_err(|error| error.to_string())?;
    router.allow_reconfigure(Box::new(builder));
    up();
    drive(&Rc::new(RefCell::new(router)));
    Ok(())
}
