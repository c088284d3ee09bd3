//! `IPAddrPairRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords])`: rewrites addresses by pair of source and
//! destination.
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
//! - `TIMEOUT`, `GUARANTEE`: a flow's lifetime (5 minutes); no flow is given up sooner after a packet than
//!   after the latter (5 s).
//! - `MAPPING_CAPACITY`: flows at most, 4194304 by default; or the name of another rewriter, to share its.
//! - `REAP_INTERVAL`: how often expired flows are looked for; 15 minutes.
//! - `DST_ANNO`: whether the destination annotation follows; true.
//! - `REPLY_ANNO`: an annotation of one byte; replies get the value that the first packet had.
//!
//! Handlers: `table`, `size`, `table_size`, `drops`, `mapping_failures`, `evictions`, `patterns` (read);
//! `capacity`, `pattern0`, `pattern1`, ... (read, write); `clear` (write).
use super::base::{Rewriter, RewriterKind};
use ringway_click::{Class, Metadata};

pub static CLASS: Class = Class::new("IPAddrPairRewriter", || Rewriter::make(RewriterKind::Pair))
    .ports("1-/1-")
    .processing("h")
    .metadata(Metadata::Resolve);
