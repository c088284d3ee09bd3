//! Elements that encapsulate frames, and decapsulate them.
use ringway_click::Class;

mod decap;
pub mod gre_decap;
pub mod gre_encap;
pub mod gtp_decap;
pub mod gtp_encap;
pub(crate) mod pppoe;
pub mod pppoe_concentrator;
pub mod pppoe_decap;
pub mod pppoe_encap;
mod sessions;
pub mod vxlan_decap;
pub mod vxlan_encap;

pub const CLASSES: &[&Class] = &[
    &gre_decap::CLASS,
    &gre_encap::CLASS,
    &gtp_decap::CLASS,
    &gtp_encap::CLASS,
    &pppoe_concentrator::CLASS,
    &pppoe_decap::CLASS,
    &pppoe_encap::CLASS,
    &vxlan_decap::CLASS,
    &vxlan_encap::CLASS,
];
