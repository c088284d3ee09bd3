//! `IPEncap(PROTO, SRC, DST, TOS, TTL, DSCP, ECT, CE, DF)`: prepends an IPv4 header to packets.
//!
//! Ports: one input, one output, push or pull. Packets that would be longer than 65535 bytes are dropped.
//!
//! Arguments:
//! - `PROTO`: the protocol, by number or name.
//! - `SRC`: the source address.
//! - `DST`: the destination, or `DST_ANNO` for the destination annotation.
//! - `TOS`, or `DSCP` with `ECT` (a Boolean, or 2) or `CE`: type of service; 0 by default.
//! - `TTL`: time to live; 250 by default.
//! - `DF`: packets must not be fragmented; false by default.
//!
//! Handlers: `src`, `dst` (read, write).
use super::encap::Encap;
use super::names::parse_protocol;
use ringway_click::arg::{ArgError, KEYWORD, MANDATORY_POSITIONAL, Scope, parse_bool};
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("IPEncap", || Box::<IpEncap>::default()).ports("1/1").live().metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct IpEncap {
    encap: Encap,
}

/// Parses ECT: 0 for none, otherwise the ECN bits.
fn ect(text: &str, _: &Scope) -> Result<u8, ArgError> {
    match (parse_bool(text), text) {
        (Some(set), _) => Ok(u8::from(set)),
        (None, "2") => Ok(2),
        _ => Err(ArgError::Other(format!("bad ECT value '{text}'"))),
    }
}

impl Element for IpEncap {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut tos, mut dscp, mut ect_bits, mut ce) = (-1i32, -1i32, 0u8, false);
        let encap = &mut self.encap;
        args.read_with("PROTO", MANDATORY_POSITIONAL, &mut encap.protocol, parse_protocol);
        args.read_mp("SRC", &mut encap.source);
        args.read_mp("DST", &mut encap.destination);
        args.read("TOS", &mut tos);
        args.read("TTL", &mut encap.ttl);
        args.read("DSCP", &mut dscp);
        args.read_with("ECT", KEYWORD, &mut ect_bits, ect);
        args.read("CE", &mut ce);
        args.read("DF", &mut encap.dont_fragment);
        args.complete()?;
        let error = match () {
            () if tos >= 0 && dscp >= 0 => "cannot set both TOS and DSCP",
            () if tos >= 0 && (ect_bits > 0 || ce) => "cannot set both TOS and ECN bits",
            () if !(-1..256).contains(&tos) => "TOS too large; max 255",
            () if !(-1..64).contains(&dscp) => "DSCP too large; max 63",
            () if ect_bits > 0 && ce => "can set at most one ECN option",
            () => {
                let ecn = if ce { 3 } else { ect_bits };
                encap.tos = if tos >= 0 { tos as u8 } else { (dscp.max(0) as u8) << 2 | ecn };
                return Ok(());
            }
        };
        Err(cx.error(error))
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        self.encap.wrap_all(burst, 0, |_, _| {});
    }

    fn handlers(&self) -> Vec<Handler> {
        let [source, destination] = Encap::handlers(|e: &mut Self| &mut e.encap).map(Handler::calm);
        [source.argument(Some(1), "SRC"), destination.argument(Some(2), "DST")].into()
    }
}
