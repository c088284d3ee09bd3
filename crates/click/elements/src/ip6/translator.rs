//! Common code of both protocol translators: an element that translates packets, and drops untranslatable ones.
use crate::packet::retain_counting;
use ringway_click::prelude::*;

/// Translates packets by a function that returns `None` for packets it cannot translate.
#[derive(Debug)]
pub struct Translator {
    translate: fn(&mut Packet) -> Option<()>,
    drops: u64,
}

impl Translator {
    pub(super) fn new(translate: fn(&mut Packet) -> Option<()>) -> Translator {
        Translator { translate, drops: 0 }
    }
}

impl Element for Translator {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        retain_counting(burst, &mut self.drops, |packet| (self.translate)(packet).is_some());
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
