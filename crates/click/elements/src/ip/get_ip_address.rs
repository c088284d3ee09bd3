//! `GetIPAddress(OFFSET, ANNO, IP)`: copies an IPv4 address from packets to an annotation.
//!
//! Ports: one input, one output, push or pull. Packets too short pass unchanged.
//!
//! Arguments:
//! - `OFFSET`: offset of the address in the packet.
//! - `IP`: `src` or `dst` of the IPv4 header, instead of OFFSET.
//! - `ANNO`: the annotation, 4 bytes; the destination annotation by default.
//!
//! No handlers.
use ringway_click::arg::{Annotation, POSITIONAL};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("GetIPAddress", || Box::<GetIpAddress>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct GetIpAddress {
    /// Counted from the network header if `header`.
    offset: usize,
    header: bool,
    annotation: usize,
}

impl Element for GetIpAddress {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut annotation = Annotation { offset: Annotations::DST_IP, size: 4 };
        let (mut offset, mut word) = (-1i32, String::new());
        args.read_p("OFFSET", &mut offset);
        args.read_with("ANNO", POSITIONAL, &mut annotation, |text, scope| {
            Annotation::of_size(text, 4, scope)
        });
        args.read("IP", &mut word);
        args.complete()?;
        self.annotation = annotation.offset;
        (self.offset, self.header) = match (usize::try_from(offset), word.as_str()) {
            (Ok(offset), "") => (offset, false),
            (Err(_), "src") => (12, true),
            (Err(_), "dst") => (16, true),
            (Err(_), "") | (Ok(_), _) => return Err(cx.error("set one of OFFSET, IP")),
            _ => return Err(cx.error("bad IP")),
        };
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let data = if self.header { packet.network_data() } else { Some(packet.data()) };
            let bytes = data.and_then(|data| data.get(self.offset..)).and_then(<[u8]>::first_chunk::<4>);
            if let Some(address) = bytes.copied() {
                packet.notes_mut().set(self.annotation, address);
            }
        }
    }
}
