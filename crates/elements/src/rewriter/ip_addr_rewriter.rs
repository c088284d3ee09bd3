//! `IPAddrRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords])`: rewrites source addresses, and destinations
//! back (basic NAT, RFC 3022).
//!
//! Ports: any number of push inputs and outputs.
//!
//! Arguments:
//! - `INPUTSPEC`, one for each input: what happens to packets of new flows. `drop`; `pass [OUTPUT]`, which
//!   remembers nothing; `keep FOUTPUT ROUTPUT`; `pattern SADDR DADDR FOUTPUT ROUTPUT`; `pattern NAME
//!   FOUTPUT ROUTPUT`; or the
//!   name of a mapper such as RoundRobinIPMapper. A `-` leaves a field as it is. A range `L-H` lets the
//!   rewriter choose so that flows stay apart: preferably what the packet has, else at random; with `#`
//!   behind it in order, with `?`
//!   always at random.
//! - `TIMEOUT`, `GUARANTEE`: a flow's lifetime (2 hours); no flow is given up sooner after a packet than
//!   after the latter (5 s).
//! - `MAPPING_CAPACITY`: flows at most, 4194304 by default; or the name of another rewriter, to share its.
//! - `REAP_INTERVAL`: how often expired flows are looked for; 15 minutes.
//! - `REPLY_ANNO`: an annotation of one byte; replies get the value that the first packet had.
//!
//! Handlers: `table`, `size`, `table_size`, `drops`, `mapping_failures`, `evictions`, `patterns` (read);
//! `capacity`, `pattern0`, `pattern1`, ... (read, write); `clear` (write).
use super::base::{Rewriter, RewriterKind};
use ringway_click::{Class, Metadata};

pub static CLASS: Class = Class::new("IPAddrRewriter", || Rewriter::make(RewriterKind::Address))
    .ports("1-/1-")
    .processing("h")
    .metadata(Metadata::Resolve);
