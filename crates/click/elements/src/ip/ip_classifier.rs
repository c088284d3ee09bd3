//! `IPClassifier(PATTERN, ...)`: classifies IPv4 packets by their contents.
//!
//! Ports: one push input; one push output per pattern.
//!
//! Arguments: one pattern each; a packet goes to the output of the first pattern that it matches, and is dropped if
//! there is none. A pattern is an expression of conditions with `and` (`&&`, or nothing), `or` (`||`), `not` (`!`),
//! parentheses and `A ? B : C`; or `-`, `any`, `all`, `true`, `false`. Conditions, each with an optional mask (`& M`)
//! and relation (`=`, `!=`, `<`, `>`, `<=`, `>=`):
//! - `[src|dst|src or dst|src and dst] host ADDRESS`, `net PREFIX`, `net ADDRESS mask MASK`, or the address alone;
//! - `ip proto PROTOCOL`, or the protocol's name alone: `tcp`, `udp`, `icmp`, `tcpudp`, ...;
//! - `[src|dst] [tcp|udp] port PORT`; `icmp type TYPE`; `tcp opt FLAG` or the flag alone; `tcp win N`;
//! - `ip vers`, `hl`, `tos`, `dscp`, `len`, `id`, `ttl N`; `ip frag`, `unfrag`, `ect`, `ce`;
//! - `ip[POS:LEN]`, `tcp[POS:LEN]`, `transp[POS:LEN]`, ...: bytes of a header, at most four;
//! - `[src|dst] ether host ADDRESS`.
//!
//! Omitted parts of a condition are taken from the previous one: `src port 80 or 443`. Conditions on transport headers
//! only match first fragments.
//!
//! Handlers: `program`, `drops`, `memory` (read); `pattern0`, `pattern1`, ... (read, write). The IPv4 header must be
//! marked.
use super::filter::Filter;
use ringway_click::Progress;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("IPClassifier", || Box::<IpClassifier>::default()).ports("1/-").processing("h").live();

#[derive(Debug, Default)]
pub struct IpClassifier {
    patterns: Vec<String>,
    filter: Filter,
}

/// The rules of patterns: each has an output of its own.
fn rules(patterns: &[String]) -> Vec<String> {
    patterns.iter().enumerate().map(|(port, pattern)| format!("{port} {pattern}")).collect()
}

impl IpClassifier {
    /// Replaces one pattern; if it is wrong, nothing changes.
    fn set_pattern(&mut self, port: usize, pattern: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let mut patterns = self.patterns.clone();
        if let Some(own) = patterns.get_mut(port) {
            *own = pattern.into();
        }
        let compiled = Filter::compile(&rules(&patterns), cx.noutputs(), &cx.scope(), &mut || ());
        let filter = compiled.map_err(|errors| HandlerError::failed(errors.join("\n")))?;
        filter.warnings.iter().for_each(|warning| cx.message(warning.as_str()));
        self.filter = filter.instead_of(&self.filter);
        self.patterns = patterns;
        Ok(())
    }
}

impl Element for IpClassifier {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.patterns = args.take_rest();
        let outputs = cx.noutputs();
        if self.patterns.len() != outputs {
            return Err(cx.error(format!("need {outputs} arguments, one per output port")));
        }
        match Filter::compile(&rules(&self.patterns), outputs, args.scope(), &mut || cx.breathe()) {
            Ok(filter) => {
                filter.warnings.iter().for_each(|warning| cx.message(warning.as_str()));
                self.filter = filter;
            }
            Err(errors) => errors.into_iter().for_each(|error| args.error(error)),
        }
        args.complete()?;
        for port in self.filter.unused(outputs) {
            cx.warning(format!("output {port} matches no packets"));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.filter.push(burst, cx);
    }

    fn dispose(&mut self) -> Progress {
        self.filter.give_up()
    }

    fn handlers(&self) -> Vec<Handler> {
        let patterns = (0..self.patterns.len()).map(|port| {
            let read = move |e: &Self| e.patterns.get(port).cloned().unwrap_or_default();
            Handler::read(format!("pattern{port}"), read)
                .writes(move |e: &mut Self, value, cx| e.set_pattern(port, value, cx))
                .argument(Some(port), "")
        });
        let own = [
            Handler::read("program", |e: &Self| e.filter.text()),
            Handler::counter("drops", |e: &mut Self| e.filter.drops()),
            Handler::read("memory", |e: &Self| e.filter.memory()),
        ];
        own.into_iter().chain(patterns).collect()
    }
}
