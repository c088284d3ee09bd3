//! `ProtocolTranslator46`: translates IPv4 packets to IPv6 (RFC 7915).
//!
//! Ports: one input, one output, push or pull.
//!
//! Packets begin with their IP header. IPv4 addresses are the IPv4-mapped ones of IPv6, `::ffff:ADDRESS`. ICMP echoes
//! and errors are translated, errors with the header of the packet that they quote. Untranslatable packets are
//! dropped: other ICMP, fragments of ICMP, fragments of UDP without checksum.
//!
//! No arguments. Handlers: `drops` (read).
use super::siit;
use super::translator::Translator;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ProtocolTranslator46", || Box::new(Translator::new(siit::to_six)))
    .ports("1/1")
    .metadata(Metadata::Resolve);
