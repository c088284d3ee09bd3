//! Common code of elements that set a header field.
use core::marker::PhantomData;
use ringway_click::arg::{ArgError, MANDATORY_POSITIONAL, Scope};
use ringway_click::prelude::*;

/// A header field of a few bits.
pub(crate) trait Field: 'static {
    /// The argument with its value.
    const ARGUMENT: &'static str;
    /// The handler that reads and writes it.
    const HANDLER: &'static str;

    /// Reads a value.
    fn parse(text: &str, scope: &Scope) -> Result<u8, ArgError>;

    /// Sets the field in a packet that has the header.
    fn set(packet: &mut Packet, value: u8);
}

/// Sets a field of each packet.
pub(crate) struct SetField<F> {
    value: u8,
    field: PhantomData<F>,
}

impl<F> Default for SetField<F> {
    fn default() -> Self {
        Self { value: 0, field: PhantomData }
    }
}

impl<F: Field> Element for SetField<F> {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with(F::ARGUMENT, MANDATORY_POSITIONAL, &mut self.value, F::parse);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| F::set(packet, self.value));
    }

    fn handlers(&self) -> Vec<Handler> {
        let handler =
            Handler::read(F::HANDLER, |e: &Self| e.value).calm().writes(|e: &mut Self, value, cx| {
                e.value = cx.parse_with(value, F::parse)?;
                Ok(())
            });
        [handler.argument(Some(0), F::ARGUMENT)].into()
    }
}
