//! Closing the files of a peer's memory.

use std::io;
use std::os::fd::OwnedFd;

/// Duplicates of the memory's descriptors, which a separate thread closes.
///
/// Attack: gigabytes of memory of which the front-end keeps no descriptor, so that closing our last one frees
/// them. The duplicates are the last ones: they are closed after those from the message.
#[derive(Default)]
pub(crate) struct Late(Vec<OwnedFd>);

impl Late {
    pub fn add(&mut self, memory: &OwnedFd) -> io::Result<()> {
        self.0.push(memory.try_clone()?);
        Ok(())
    }

    pub fn close(&mut self) {
        ringway_host::close_memory(std::mem::take(&mut self.0));
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.close();
    }
}
