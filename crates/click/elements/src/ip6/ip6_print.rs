//! `IP6Print(LABEL, CONTENTS, NBYTES)`: prints IPv6 packets.
//!
//! Ports: one input, one output, push or pull. Packets without a complete header are not printed.
//!
//! Arguments:
//! - `LABEL`: printed before each line.
//! - `CONTENTS`: whether the packet's bytes are printed; false by default.
//! - `NBYTES`: maximum number of bytes printed; 1500 by default.
//!
//! No handlers.
use core::fmt::Write;
use ringway_click::prelude::*;
use ringway_wire::ipv6;

pub static CLASS: Class = Class::new("IP6Print", || Box::<Ip6Print>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct Ip6Print {
    label: String,
    contents: bool,
    bytes: u32,
}

impl Element for Ip6Print {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.bytes = 1500;
        args.read_p("LABEL", &mut self.label);
        args.read("CONTENTS", &mut self.contents);
        args.read("NBYTES", &mut self.bytes);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter() {
            if let Some(line) = self.line(packet) {
                cx.chatter(format_args!("{}", line.trim_end_matches('\n')));
            }
        }
    }
}

impl Ip6Print {
    fn line(&self, packet: &Packet) -> Option<String> {
        let ip = ipv6::Packet::parse(packet.network_data()?)?.header;
        let mut line = String::new();
        if !self.label.is_empty() {
            let _ = write!(line, "{}: ", self.label);
        }
        let _ = writeln!(
            line,
            "{} -> {} plen {}, next {}, hlim {}",
            ip.source_addr(),
            ip.destination_addr(),
            ip.payload_length,
            ip.next_header.0,
            ip.hop_limit
        );
        if self.contents {
            line.push_str("  ");
            for (index, byte) in packet.data().iter().take(self.bytes as usize).enumerate() {
                let gap = match index {
                    _ if index % 24 == 23 => "\n  ",
                    _ if index % 4 == 3 => " ",
                    _ => "",
                };
                let _ = write!(line, "{byte:02x}{gap}");
            }
        }
        Some(line)
    }
}
