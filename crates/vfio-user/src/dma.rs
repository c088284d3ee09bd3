//! Accesses to a client's memory by messages, for memory that it does not share. Not with QEMU up to 11.1: its
//! client places the data at byte 12 of the payload instead of 16.

use crate::codec::{CodecError, split};
use crate::header::{Header, Kind, Packet, TRANSFER};
use crate::payload::Dma;
use crate::request::Request;
use crate::version::Capabilities;
use std::collections::BTreeMap;

/// Largest number of accesses without a reply. Attack: a client that never replies.
const PENDING: usize = 64;

/// Why an access was not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// As many replies as allowed are outstanding.
    #[error("too many accesses to the client's memory wait for replies")]
    Pending,
    /// More bytes than one message may carry.
    #[error("the access is longer than a message may be")]
    Size,
}

/// The reply to an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The id of its command.
    pub id: u16,
    /// The data read, empty after a write; or the client's error number.
    pub result: Result<Vec<u8>, u32>,
}

/// Accesses without a reply.
#[derive(Debug, Default)]
pub(crate) struct DmaRequests {
    next: u16,
    pending: BTreeMap<u16, (u16, Dma)>,
}

impl DmaRequests {
    /// The message that requests an access, and its id.
    pub fn request(
        &mut self,
        request: Request<'_>,
        dma: Dma,
        client: Option<Capabilities>,
    ) -> Result<(u16, Packet), Busy> {
        let most = client.map_or(0, |client| client.max_data_xfer_size);
        if dma.count > most.min(TRANSFER as u64) {
            return Err(Busy::Size);
        }
        if self.pending.len() >= PENDING {
            return Err(Busy::Pending);
        }
        while self.pending.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.pending.insert(id, (request.command(), dma));
        Ok((id, request.encode(id, false)))
    }

    /// The access that a reply completes; `None` if there is none.
    pub fn complete(&mut self, header: &Header, payload: &[u8]) -> Result<Option<Completion>, CodecError> {
        let Header { id, command, kind: Kind::Reply { error }, .. } = *header else { return Ok(None) };
        let Some((requested, dma)) = self.pending.remove(&id) else { return Ok(None) };
        if requested != command {
            return Ok(None);
        }
        let result = match (error, command) {
            (Some(error), _) => Err(error),
            (None, crate::command::DMA_READ) => {
                let (echoed, data) = split::<Dma>(command, payload)?;
                // Attack: less data than requested, or more.
                if echoed != dma || data.len() as u64 != dma.count {
                    return Err(CodecError::Field { command, field: "count" });
                }
                Ok(data.to_vec())
            }
            // QEMU's reply to a write has no payload.
            _ => Ok(Vec::new()),
        };
        Ok(Some(Completion { id, result }))
    }
}
