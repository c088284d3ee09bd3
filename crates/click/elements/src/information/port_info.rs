//! `PortInfo(NAME PORT[/PROTOCOL] NAME..., ...)`: names TCP and UDP ports.
//!
//! No ports, no handlers. The names are valid in its compound element and in those inside.
//!
//! Arguments: in each, a name, a port and further names, like the lines of `/etc/services`; a `#` begins a comment.
//! `PROTOCOL` is `tcp` or `udp`; without it the name is valid for both. The port may be a name that is already known.
use crate::ip::names;
use ringway_click::arg::{Arg, NameKind, Scope};
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub static CLASS: Class =
    Class::new("PortInfo", || Box::<PortInfo>::default()).phase(Class::INFO).reach(Reach::Each);

#[derive(Debug, Default)]
pub struct PortInfo;

/// The port, and the protocols for which it is defined.
fn parse(text: &str, scope: &Scope) -> Option<(u16, &'static [NameKind])> {
    let (port, protocol) = text.split_once('/').unwrap_or((text, ""));
    let kinds: &[NameKind] = match protocol {
        "tcp" => &[NameKind::TcpPort],
        "udp" => &[NameKind::UdpPort],
        "" => &[NameKind::TcpPort, NameKind::UdpPort],
        _ => return None,
    };
    let named = names::port(port, kinds[0], scope);
    Some((named.or_else(|| u16::parse(port, scope).ok())?, kinds))
}

impl Element for PortInfo {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for argument in args.take_rest() {
            let words = config::split_words(argument.split('#').next().unwrap_or_default());
            let (name, port) = match words.as_slice() {
                [] => continue,
                [name] => {
                    args.error(format!("expected 'NAME PORT/PROTOCOL', not '{name}'"));
                    continue;
                }
                [name, port, ..] => (name, port),
            };
            let Some((number, kinds)) = parse(port, args.scope()) else {
                args.error(format!("{name}: '{port}' is not a port"));
                continue;
            };
            for name in [name].into_iter().chain(&words[2..]) {
                for kind in kinds {
                    args.scope().names().define(*kind, name, cx.name(), &number.to_be_bytes());
                }
            }
        }
        args.complete()
    }
}
