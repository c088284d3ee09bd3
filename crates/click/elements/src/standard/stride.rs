//! Stride scheduling in proportion to tickets, for `StrideSched` and `StrideSwitch`.
use ringway_click::prelude::*;

const STRIDE: u32 = 1 << 16;
/// Maximum number of tickets of a port.
const MOST: u32 = 1 << 15;

#[derive(Debug, Default)]
struct Client {
    tickets: u32,
    stride: u32,
    pass: u32,
}

/// Ports with tickets, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Strides {
    clients: Vec<Client>,
    /// Ports with tickets, the next first.
    order: Vec<usize>,
}

impl Strides {
    /// Reads one number of tickets per port.
    pub(super) fn read(
        args: &mut Args,
        cx: &mut Context<'_>,
        ports: usize,
        port: &str,
    ) -> Result<Self, Failed> {
        let tickets = args.take_rest();
        args.complete()?;
        if tickets.len() != ports {
            return Err(cx.error(format!("need {ports} arguments, one per {port} port")));
        }
        let mut strides = Self::default();
        for (number, text) in tickets.iter().enumerate() {
            let tickets = match cx.parse::<i32>(text).map(u32::try_from) {
                Ok(Ok(tickets)) => tickets,
                Ok(Err(_)) => {
                    return Err(cx.error(format!("argument {number} (number of tickets) must be >= 0")));
                }
                Err(_) => {
                    let text = format!("argument {number} should be number of tickets (integer)");
                    return Err(cx.error(text));
                }
            };
            if tickets > MOST {
                cx.warning(format!("{port} {number} tickets reduced to {MOST}"));
            }
            strides.add(tickets.min(MOST));
        }
        Ok(strides)
    }

    fn add(&mut self, tickets: u32) {
        let stride = STRIDE.checked_div(tickets).unwrap_or(0);
        self.clients.push(Client { tickets, stride, pass: stride });
        if tickets > 0 {
            self.place(self.clients.len() - 1, 0);
        }
    }

    fn set(&mut self, port: usize, tickets: u32) {
        let ahead = self.order.first().map_or(0, |first| self.clients[*first].pass);
        self.order.retain(|own| *own != port);
        let stride = STRIDE.checked_div(tickets).unwrap_or(0);
        self.clients[port] = Client { tickets, stride, pass: ahead.wrapping_add(stride) };
        if tickets > 0 {
            self.place(port, 0);
        }
    }

    /// Inserts a port according to its pass, after the first `waiting` ports.
    fn place(&mut self, port: usize, waiting: usize) {
        let pass = self.clients[port].pass;
        let later = |own: &usize| pass.wrapping_sub(self.clients[*own].pass) as i32 <= 0;
        let behind = &self.order[waiting..];
        let at = behind.iter().position(later).unwrap_or(behind.len());
        self.order.insert(waiting + at, port);
    }

    /// The next port, after skipping `others` ports.
    pub(super) fn after(&self, others: usize) -> Option<usize> {
        self.order.get(others).copied()
    }

    /// Advances the first `count` ports by their strides.
    pub(super) fn turn(&mut self, count: usize) {
        // The others stay in order; these are inserted one after another.
        for waiting in (0..count).rev() {
            let port = self.order.remove(0);
            let client = &mut self.clients[port];
            client.pass = client.pass.wrapping_add(client.stride);
            self.place(port, waiting);
        }
    }

    /// The handlers `tickets0`, `tickets1`, ... of an element with tickets.
    pub(super) fn handlers<E: Element>(&self, strides: fn(&mut E) -> &mut Self) -> Vec<Handler> {
        let tickets = |port: usize| {
            let name = format!("tickets{port}");
            let read = move |e: &mut E, _: &str, _: &mut Context<'_>| {
                Ok(strides(e).clients[port].tickets.to_string())
            };
            Handler::read_with(name, read).writes(move |e: &mut E, value, cx| {
                let tickets = cx.parse::<u32>(value).ok().filter(|tickets| *tickets <= MOST);
                let wrong = || HandlerError::failed("tickets value must be integer");
                strides(e).set(port, tickets.ok_or_else(wrong)?);
                Ok(())
            })
        };
        (0..self.clients.len()).map(tickets).collect()
    }
}
