//! Elements that encapsulate frames, and decapsulate them.
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
