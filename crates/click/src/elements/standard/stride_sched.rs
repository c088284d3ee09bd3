//! `StrideSched(TICKETS...)`: pulls from inputs in proportion to their tickets (stride scheduling, Waldspurger 1995).
//!
//! Ports: as many pull inputs as there are arguments, one pull output.
//!
//! Arguments:
//! - `TICKETS`: 0 to 32768, one for each input; an input with none is never asked.
//!
//! Handlers: `tickets0`, `tickets1`, ... (read, write).
use crate::arg::Args;
use crate::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst, Signal};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("StrideSched", || Box::<StrideSched>::default())
    .ports("1-/1")
    .processing("l")
    .flags("S0")
    .live();

const STRIDE: u32 = 1 << 16;
const MOST: u32 = 1 << 15;

#[derive(Debug, Default)]
struct Client {
    tickets: u32,
    stride: u32,
    pass: u32,
    signal: Signal,
}

/// See the module.
#[derive(Debug, Default)]
pub struct StrideSched {
    clients: Vec<Client>,
    /// Inputs with tickets, the next first.
    order: Vec<usize>,
}

impl StrideSched {
    fn set(&mut self, input: usize, tickets: u32) {
        let ahead = self.order.first().map_or(0, |first| self.clients[*first].pass);
        self.order.retain(|own| *own != input);
        let client = &mut self.clients[input];
        (client.tickets, client.stride) = (tickets, STRIDE.checked_div(tickets).unwrap_or(0));
        client.pass = ahead.wrapping_add(client.stride);
        if tickets > 0 {
            self.insert(input);
        }
    }

    fn insert(&mut self, input: usize) {
        let pass = self.clients[input].pass;
        let later = |own: &usize| pass.wrapping_sub(self.clients[*own].pass) as i32 <= 0;
        let at = self.order.iter().position(later).unwrap_or(self.order.len());
        self.order.insert(at, input);
    }

    fn one(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) -> bool {
        let before = burst.len();
        let mut tried = 0;
        while tried < self.order.len() && burst.len() == before {
            let input = self.order[tried];
            let client = &mut self.clients[input];
            client.pass = client.pass.wrapping_add(client.stride);
            if cx.is_active(&client.signal) {
                cx.pull(input, 1, burst);
            }
            tried += 1;
        }
        // The rest stays in order; those tried find their places in it one after another.
        for waiting in (0..tried).rev() {
            let input = self.order.remove(0);
            self.place(input, waiting);
        }
        burst.len() > before
    }

    /// Puts an input back behind those yet to be placed.
    fn place(&mut self, input: usize, waiting: usize) {
        let pass = self.clients[input].pass;
        let later = |own: &usize| pass.wrapping_sub(self.clients[*own].pass) as i32 <= 0;
        let behind = &self.order[waiting..];
        let at = behind.iter().position(later).unwrap_or(behind.len());
        self.order.insert(waiting + at, input);
    }
}

impl Element for StrideSched {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let tickets = args.take_rest();
        args.complete()?;
        if tickets.len() != cx.ninputs() {
            return Err(cx.error(format!("need {} arguments, one per input port", cx.ninputs())));
        }
        for text in tickets {
            let input = self.clients.len();
            let tickets = match cx.parse::<i32>(&text).map(u32::try_from) {
                Ok(Ok(number)) => number.min(MOST),
                Ok(Err(_)) => {
                    return Err(cx.error(format!("argument {input} (number of tickets) must be >= 0")));
                }
                Err(_) => {
                    let text = format!("argument {input} should be number of tickets (integer)");
                    return Err(cx.error(text));
                }
            };
            if text.parse().is_ok_and(|given: u32| given > tickets) {
                cx.warning(format!("input {input} tickets reduced to {MOST}"));
            }
            self.clients.push(Client { tickets, ..Client::default() });
        }
        for input in 0..self.clients.len() {
            let client = &mut self.clients[input];
            client.stride = STRIDE.checked_div(client.tickets).unwrap_or(0);
            client.pass = client.stride;
            if client.tickets > 0 {
                self.insert(input);
            }
        }
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        for (input, client) in self.clients.iter_mut().enumerate() {
            client.signal = cx.upstream_empty_signal(input, None);
        }
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        while burst.len() < max && self.one(burst, cx) {}
    }

    fn handlers(&self) -> Vec<Handler> {
        (0..self.clients.len()).map(|input| Handler::both("").named(format!("tickets{input}"))).collect()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let input: Option<usize> = name.strip_prefix("tickets").and_then(|number| number.parse().ok());
        let client = input.and_then(|input| self.clients.get(input));
        client.map(|client| client.tickets.to_string()).ok_or_else(|| HandlerError::missing(name))
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let input: Option<usize> = name.strip_prefix("tickets").and_then(|number| number.parse().ok());
        let input =
            input.filter(|input| *input < self.clients.len()).ok_or_else(|| HandlerError::missing(name))?;
        let tickets = cx.parse::<u32>(value).ok().filter(|tickets| *tickets <= MOST);
        self.set(input, tickets.ok_or_else(|| HandlerError::failed("tickets value must be integer"))?);
        Ok(())
    }
}
