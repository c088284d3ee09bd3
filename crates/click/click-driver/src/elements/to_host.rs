//! `ToHost(DEVNAME)`: sends Ethernet frames to this host's kernel through the interface created by the
//! FromHost of the same name.
//!
//! Ports: one push input.
//!
//! Arguments:
//! - `DEVNAME`: the interface's name.
//!
//! The kernel accepts frames for the interface's own Ethernet address, and broadcasts. Handlers: `dev_name`,
//! `drops` (read): frames that it refused.
use super::from_host::FromHost;
use super::tun::Tun;
use ringway_click::arg::{Args, Word};
use ringway_click::{Class, Context, Element, ElementId, Failed, Handler, Metadata, PacketBurst};

pub static CLASS: Class = Class::new("ToHost", || Box::<ToHost>::default())
    .ports("1/0")
    .processing("h")
    .phase(Class::PRIVILEGED)
    .metadata(Metadata::Resolve);

#[derive(Default)]
pub struct ToHost {
    name: String,
    tun: Option<Tun>,
    drops: u64,
}

impl Element for ToHost {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut name = Word::default();
        args.read_mp("DEVNAME", &mut name);
        self.name = name.0;
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let ids: Vec<ElementId> = cx.router().ids().collect();
        self.tun = ids.into_iter().find_map(|id| cx.element::<FromHost>(id)?.share(&self.name));
        if self.tun.is_some() {
            return Ok(());
        }
        let name = &self.name;
        Err(cx.error(format!("ToHost({name}) requires an initialized FromHost with the same dev_name")))
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            let taken = self.tun.as_mut().is_some_and(|tun| tun.give(&packet, cx));
            self.drops += u64::from(!taken);
        }
    }

    fn shares(&self) -> Option<String> {
        Some(format!("device {}", self.name))
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("dev_name", |e: &Self| e.name.clone()),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}
