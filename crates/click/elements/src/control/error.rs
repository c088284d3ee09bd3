//! `Error(...)`: prevents the router from being built.
//!
//! Ports: any number of inputs and outputs, of any kind. Accepts any arguments; no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Error", || Box::<Error>::default()).ports("-/-").flow("x/y");

#[derive(Debug, Default)]
pub struct Error;

impl Element for Error {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.take_rest();
        args.complete()
    }

    fn initialize(&mut self, _: &mut Context<'_>) -> Result<(), Failed> {
        Err(Failed)
    }
}
