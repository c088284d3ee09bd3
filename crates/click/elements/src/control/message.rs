//! `Message(MESSAGE, TYPE)`: prints a message when the router is built.
//!
//! No ports, no handlers.
//!
//! Arguments:
//! - `MESSAGE`: the text.
//! - `TYPE`: `MESSAGE` (default), `WARNING`, or `ERROR`, which prevents the router from being built.
use ringway_click::arg::{Text, Word};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Message", || Box::<Message>::default());

#[derive(Debug, Default)]
pub struct Message;

impl Element for Message {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut text, mut kind) = (Text::default(), Word("MESSAGE".to_string()));
        args.read_mp("MESSAGE", &mut text);
        args.read_p("TYPE", &mut kind);
        args.complete()?;
        match kind.0.to_ascii_uppercase().as_str() {
            "MESSAGE" => cx.message(text.0),
            "WARNING" => cx.warning(text.0),
            "ERROR" => return Err(cx.error(text.0)),
            _ => return Err(cx.error("TYPE must be MESSAGE, WARNING or ERROR")),
        }
        Ok(())
    }
}
