//! ControlSocket's connections in a guest, which the monitor accepts.

use super::platform::{self, CONNECTION, LISTENER};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use ringway_click::arg::{Args, Raw, Word};
use ringway_click::{Context, Failed};
use ringway_elements::platform::control_socket::{self, Input, MOST, Stream};

/// The monitor's socket.
#[derive(Default)]
pub(crate) struct MonitorListener {
    place: String,
}

struct Connection(u16);

impl Stream for Connection {
    fn descriptor(&self) -> i32 {
        CONNECTION + i32::from(self.0)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Input {
        match platform::with(|platform| platform.read(self.0, buffer)).flatten() {
            Some(0) => Input::Later,
            Some(bytes) => Input::Bytes(bytes),
            None => Input::End,
        }
    }

    fn send(&mut self, bytes: &[u8]) -> (usize, bool) {
        platform::with(|platform| platform.write(self.0, bytes)).unwrap_or((0, false))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        platform::with(|platform| platform.close(self.0));
    }
}

impl control_socket::Listener for MonitorListener {
    fn configure(
        args: &mut Args,
        more: impl FnOnce(&mut Args),
        cx: &mut Context<'_>,
    ) -> Result<Self, Failed> {
        let (mut kind, mut place) = (Word::default(), Raw::default());
        args.read_mp("TYPE", &mut kind);
        args.read_mp("PORT", &mut place);
        more(args);
        args.complete()?;
        let place = ringway_click_lang::config::unquote_text(&place.0).to_string();
        let known = platform::with(|platform| platform.handlers == place).unwrap_or_default();
        if kind.0 != "UNIX" || !known {
            return Err(cx.error("a function in a VM has no sockets of its own"));
        }
        Ok(MonitorListener { place })
    }

    fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        cx.select(LISTENER, true, false);
        Ok(())
    }

    fn accept(&self, connected: usize) -> Option<Box<dyn Stream>> {
        loop {
            let connection = Connection(platform::with(|platform| platform.opened.pop_front()).flatten()?);
            // A connection that is refused is closed at once.
            if connected < MOST {
                return Some(Box::new(connection));
            }
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.place == other.place
    }

    fn take_over(&mut self, _: &mut Self, cx: &mut Context<'_>) {
        cx.select(LISTENER, true, false);
    }

    fn port(&self) -> String {
        self.place.clone()
    }

    fn close(&mut self) {}
}
