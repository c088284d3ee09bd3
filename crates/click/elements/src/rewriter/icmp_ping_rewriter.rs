//! `ICMPPingRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords])`: rewrites addresses and identifiers of ICMP
//! echo requests and replies.
//!
//! Ports: any number of push inputs and outputs.
//!
//! Arguments:
//! - `INPUTSPEC`, one for each input: what happens to packets of new flows. `drop`; `pass [OUTPUT]`, without creating
//!   a flow; `keep FOUTPUT ROUTPUT`; `pattern SADDR DADDR ICMPID FOUTPUT ROUTPUT`; `pattern NAME FOUTPUT ROUTPUT`; or
//!   the name of a mapper such as RoundRobinIPMapper. A `-` leaves a field unchanged. For a range `L-H` the rewriter
//!   chooses a value that keeps flows distinct: preferably the packet's own, otherwise a random one; with a `#` after
//!   the range in order, with a `?` always a random one.
//! - `TIMEOUT`, `GUARANTEE`: a flow's lifetime (5 minutes); no flow is removed earlier than GUARANTEE after its last
//!   packet (5 s).
//! - `MAPPING_CAPACITY`: maximum number of flows, 4194304 by default; or the name of another rewriter, to share its
//!   capacity.
//! - `REAP_INTERVAL`: interval at which expired flows are removed; 15 minutes.
//! - `DST_ANNO`: whether the destination annotation is updated; true.
//! - `REPLY_ANNO`: a one-byte annotation; replies get the value of the first packet.
//! - `SET_AGGREGATE`: sets the aggregate annotation to the flow's number, from 0; false. Numbers of ended flows are
//!   reused.
//!
//! Handlers: `table`, `size`, `table_size`, `drops`, `mapping_failures`, `evictions`, `patterns` (read);
//! `capacity`, `pattern0`, `pattern1`, ... (read, write); `clear` (write).
use super::base::{Rewriter, RewriterKind};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ICMPPingRewriter", || Rewriter::make(RewriterKind::Ping))
    .ports("1-/1-")
    .processing("h")
    .metadata(Metadata::Resolve);
