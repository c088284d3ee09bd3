//! Elements that read and write Ethernet headers, VLAN tags and ARP.
use ringway_click::arg::{Annotation, ArgError, Scope, parse_int};

mod arp;
mod arp_entries;
pub mod arp_faker;
pub mod arp_print;
pub mod arp_querier;
pub mod arp_responder;
pub mod arp_table;
pub mod check_arp_header;
pub mod drop_broadcasts;
pub mod ensure_ether;
pub mod ether_encap;
pub mod ether_mirror;
pub mod ether_pause_source;
pub mod ether_rewrite;
pub mod ether_span_tree;
pub mod ether_switch;
pub mod ether_vlan_encap;
pub mod get_ether_address;
pub mod host_ether_filter;
pub mod listen_ether_switch;
pub mod mark_mac_header;
pub mod set_ether_address;
pub mod set_vlan_anno;
pub mod store_ether_address;
pub mod strip_ether_vlan_header;
mod vlan;
pub mod vlan_decap;
pub mod vlan_encap;

/// The offset of an address in a packet: a number, or `src` or `dst` of an Ethernet header.
fn address_offset(text: &str, _: &Scope) -> Result<usize, ArgError> {
    match text.to_ascii_lowercase().as_str() {
        "src" => Ok(6),
        "dst" => Ok(0),
        _ => {
            let offset: u32 = parse_int(text, 0, i128::from(u32::MAX) - 6)?;
            Ok(offset as usize)
        }
    }
}

/// An annotation of six bytes.
fn address_annotation(text: &str, scope: &Scope) -> Result<Annotation, ArgError> {
    use ringway_click::arg::Arg;
    let found = Annotation::parse(text, scope)?;
    let fits = found.offset + 6 <= ringway_click::element::ANNOTATION_BYTES && matches!(found.size, 0 | 6);
    if fits { Ok(Annotation { size: 6, ..found }) } else { Err(ArgError::Parse) }
}
