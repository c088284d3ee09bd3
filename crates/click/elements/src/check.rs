//! Common code of elements that check headers: they drop packets, and count and report them by reason.
use core::marker::PhantomData;
use ringway_click::prelude::*;

/// Counts of bad packets.
#[derive(Debug, Default)]
pub(crate) struct Check {
    what: &'static str,
    named: bool,
    reasons: &'static [&'static str],
    verbose: bool,
    details: bool,
    drops: u64,
    by_reason: Vec<u64>,
}

impl Check {
    /// Reads VERBOSE and DETAILS; `what` is the header's name.
    pub(crate) fn read(args: &mut Args, what: &'static str, reasons: &'static [&'static str]) -> Self {
        let mut check = Self { what, reasons, by_reason: vec![0; reasons.len()], ..Self::default() };
        args.read("VERBOSE", &mut check.verbose);
        args.read("DETAILS", &mut check.details);
        check
    }

    /// Prefixes messages about packets with the element's name.
    pub(crate) fn named(self) -> Self {
        Self { named: true, ..self }
    }

    /// Sends packets for which `check` returns a reason (as an index) to output 1.
    #[inline]
    pub(crate) fn filter(
        &mut self,
        burst: &mut PacketBurst,
        cx: &mut Context<'_>,
        mut check: impl FnMut(&mut Packet) -> Result<(), usize>,
    ) {
        burst.filter_map(|mut packet| match check(&mut packet) {
            Ok(()) => Some(packet),
            Err(reason) => {
                self.bad(reason, packet, cx);
                None
            }
        });
    }

    #[cold]
    fn bad(&mut self, reason: usize, packet: Packet, cx: &mut Context<'_>) {
        if self.drops == 0 || self.verbose {
            let text = self.reasons.get(reason).copied().unwrap_or_default();
            let who = if self.named { cx.declaration() + ": " } else { String::new() };
            cx.chatter(format_args!("{who}{} header check failed: {text}", self.what));
        }
        self.drops += 1;
        if let Some(count) = self.by_reason.get_mut(reason) {
            *count += 1;
        }
        cx.push(1, packet);
    }

    /// The handlers of an element with header checks: `drops`, and with DETAILS `drop_details`.
    pub(crate) fn handlers<E: Element>(&self, check: fn(&mut E) -> &mut Self) -> Vec<Handler> {
        let mut handlers =
            Vec::from([Handler::read_with("drops", move |e: &mut E, _, _| Ok(check(e).drops.to_string()))]);
        if self.details {
            handlers.push(Handler::read_with("drop_details", move |e: &mut E, _, _| {
                let check = check(e);
                let lines = check.by_reason.iter().zip(check.reasons);
                Ok(lines.map(|(count, reason)| format!("{count}\t{reason}\n")).collect())
            }));
        }
        handlers
    }
}

/// A kind of header that follows a marked IPv4 header.
pub(crate) trait Header: 'static {
    /// Its name.
    const NAME: &'static str;
    /// The reasons for which a header can be invalid.
    const REASONS: &'static [&'static str];
    /// Whether messages about packets begin with the element's name.
    const NAMED: bool = true;

    /// Checks a packet's header; the error is an index into `REASONS`.
    fn check(packet: &mut Packet) -> Result<(), usize>;
}

/// Passes only packets with a valid header.
pub(crate) struct HeaderCheck<H>(Check, PhantomData<H>);

impl<H> Default for HeaderCheck<H> {
    fn default() -> Self {
        Self(Check::default(), PhantomData)
    }
}

impl<H: Header> Element for HeaderCheck<H> {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let check = Check::read(args, H::NAME, H::REASONS);
        self.0 = if H::NAMED { check.named() } else { check };
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.0.filter(burst, cx, H::check);
    }

    fn handlers(&self) -> Vec<Handler> {
        self.0.handlers(|e: &mut Self| &mut e.0)
    }
}
