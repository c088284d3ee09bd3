//! Offload metadata of packets, and completing packets in software.

use super::{Packet, Pending, Pool, UNSET};
use crate::{Gso, HEADERS, Headers, Needs, Offload, OffloadError, Part, Reason};
use ringway_wire::Sum;

/// Bytes of headroom that are copied from a packet to its segments: removed headers, which may be restored.
const BEFORE: usize = 256;

impl Packet {
    /// The pending offloads, with offsets from the first byte of the data.
    pub fn offload(&self) -> Offload {
        let offload = self.0.pending.at(0);
        if !offload.needs_checksum() {
            return offload;
        }
        // Attack: headers prepended until the offset overflows. The checksum field is then after the packet's
        // end.
        let from = self.0.csum_start.saturating_sub(self.0.start);
        Offload { csum_start: u16::try_from(from).unwrap_or(u16::MAX), ..offload }
    }

    /// Whether the packet has offload metadata.
    #[inline]
    pub fn has_offload(&self) -> bool {
        self.0.pending.any()
    }

    /// Sets the pending offloads, with offsets from the first byte of the data.
    ///
    /// # Errors
    /// [`OffloadError`] if they are invalid for this packet; nothing is stored then.
    pub fn set_offload(&mut self, offload: Offload) -> Result<(), OffloadError> {
        let offload = offload.check(self.len() as u32, Needs::ALL)?;
        let inner = &mut **self.0;
        inner.csum_start =
            if offload.needs_checksum() { inner.start + u32::from(offload.csum_start) } else { UNSET };
        inner.pending = Pending::of(offload);
        if offload != Offload::default() {
            inner.free_list.offloads.set(true);
        }
        Ok(())
    }

    fn clear_offload(&mut self) {
        (self.0.csum_start, self.0.pending) = (UNSET, Pending::default());
    }

    /// Fills the pending checksum, whose field has the sum of the pseudo header (virtio 1.3, 5.1.6.2), over
    /// the whole packet. Clears a pending segmentation.
    ///
    /// # Errors
    /// [`Reason::BadOffload`] if the packet ends before the field, since bytes were removed from its end.
    #[cold]
    pub(super) fn fill_checksum(&mut self) -> Result<(), Reason> {
        let (offload, at) = (self.0.pending.at(0), self.0.csum_start);
        self.clear_offload();
        if !offload.needs_checksum() {
            return Ok(());
        }
        self.make_unique();
        let bytes = self.bytes_from_mut(at).ok_or(Reason::BadOffload)?;
        let mut sum = Sum::new();
        sum.add(bytes);
        let field = bytes.get_mut(usize::from(offload.csum_offset)..).and_then(<[u8]>::first_chunk_mut);
        *field.ok_or(Reason::BadOffload)? = sum.finish_nonzero().to_be_bytes();
        Ok(())
    }

    /// Offset of the headers to repeat in each segment: the start of the data, or of a network header before
    /// it.
    fn base(&self) -> usize {
        self.0.start.min(self.0.network) as usize
    }

    /// The headers to repeat. Tries these places for the network header: its recorded offset, after an
    /// Ethernet header, and directly before the checksummed bytes.
    fn headers(&self, bytes: &[u8], gso: Gso) -> Result<Headers, Reason> {
        let base = self.base() as u32;
        let start = u16::try_from(self.0.csum_start.wrapping_sub(base)).map_err(|_| Reason::BadOffload)?;
        let offload = self.0.pending.at(start);
        let first = &bytes[..bytes.len().min(HEADERS)];
        let at = |l3: u32| Headers::parse_at(l3 as usize, first, bytes.len(), offload, gso);
        at(self.0.network.wrapping_sub(base))
            .or_else(|_| Headers::parse(first, bytes.len(), offload, gso))
            .or_else(|reason| at(u32::from(start).saturating_sub(20)).map_err(|_| reason))
            .or_else(|reason| at(u32::from(start).saturating_sub(40)).map_err(|_| reason))
    }
}

impl Pool {
    /// Completes a packet: fills its checksum and segments it. Passes the resulting packets to `next`, in
    /// order, with the annotations, header offsets and preceding bytes of the original.
    ///
    /// # Errors
    /// [`Reason::BadOffload`] if the packet's headers contradict its metadata, [`Reason::NoOffload`] if they
    /// are longer than [`HEADERS`]; `next` is not called, and the packet is dropped.
    pub fn complete(&self, packet: Packet, mut next: impl FnMut(Packet)) -> Result<(), Reason> {
        let mut packet = packet;
        match packet.0.pending.at(0).gso() {
            Ok(Some(gso)) => self.segment(&packet, gso, next),
            _ => {
                packet.fill_checksum()?;
                next(packet);
                Ok(())
            }
        }
    }

    fn segment(&self, whole: &Packet, gso: Gso, mut next: impl FnMut(Packet)) -> Result<(), Reason> {
        let (buffer, data) = whole.buffer();
        let bytes = buffer.get(whole.base()..data.end).ok_or(Reason::BadOffload)?;
        let headers = whole.headers(bytes, gso)?;
        let size = usize::from(whole.0.pending.gso_size);
        let payload = bytes.get(headers.len()..).ok_or(Reason::BadOffload)?;
        for part in headers.parts(payload.len(), size)? {
            let payload = &payload[part.offset..part.offset + part.len];
            let segment = self.one_segment(whole, &headers, &part, payload);
            next(segment.ok_or(Reason::NoOffload)?);
        }
        Ok(())
    }

    fn one_segment(&self, whole: &Packet, headers: &Headers, part: &Part, payload: &[u8]) -> Option<Packet> {
        let mut bytes = [0; HEADERS];
        let (_, mut sum) = headers.emit(part, &mut bytes);
        sum.add(payload);
        headers.put_checksum(sum.finish_nonzero(), &mut bytes);
        let (buffer, data) = whole.buffer();
        let base = whole.base();
        let before = base.min(BEFORE);
        let length = before + headers.len() + payload.len();
        let mut segment = self.make(base - before, length, whole.tailroom().min(BEFORE))?;
        let (front, rest) = segment.data_mut().split_at_mut_checked(before)?;
        let (header, rest) = rest.split_at_mut_checked(headers.len())?;
        front.copy_from_slice(&buffer[base - before..base]);
        header.copy_from_slice(&bytes[..headers.len()]);
        rest.copy_from_slice(payload);
        segment.0.start = (data.start as u32).min(segment.0.end);
        (segment.0.mac, segment.0.network, segment.0.transport) =
            (whole.0.mac, whole.0.network, whole.0.transport);
        segment.copy_notes(whole);
        Some(segment)
    }
}

#[cfg(test)]
mod tests;
