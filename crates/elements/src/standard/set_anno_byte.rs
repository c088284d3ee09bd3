//! `SetAnnoByte(ANNO, VALUE)`: sets a byte of packets' annotations.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ANNO`: an annotation of a byte, by name or offset.
//! - `VALUE`: 0 to 255.
//!
//! Handlers: `anno` (read): its offset; `value` (read, write).
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::{Annotation, Args, MANDATORY_POSITIONAL};
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};

/// Facts.
pub static CLASS: Class = Class::new("SetAnnoByte", || Box::<SetAnnoByte>::default()).ports("1/1");

/// See the module.
#[derive(Debug, Default)]
pub struct SetAnnoByte {
    at: usize,
    value: u8,
}

impl Element for SetAnnoByte {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut annotation = Annotation::default();
        let byte = |text: &str, scope: &_| Annotation::of_size(text, 1, scope);
        args.read_with("ANNO", MANDATORY_POSITIONAL, &mut annotation, byte);
        args.read_mp("VALUE", &mut self.value);
        self.at = annotation.offset;
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.notes_mut().set_u8(self.at, self.value));
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("anno"), Handler::both("value")].into()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(if name == "anno" { self.at.to_string() } else { self.value.to_string() })
    }

    fn write(&mut self, _: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.value = cx.parse(value).map_err(|error| HandlerError::failed(error.to_string()))?;
        Ok(())
    }
}
