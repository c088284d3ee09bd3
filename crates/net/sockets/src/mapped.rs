//! Files that are sent from where the kernel has them.

use ringway_host::FileMapping;
use ringway_mem::Span;
use ringway_netstack::Source;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A file, mapped to be sent by [`crate::TcpStream::write_shared`]. Its bytes are copied once, from the kernel's page
/// cache to the device; what is not there yet is read from the disk when it is sent, and the network waits for that.
///
/// If the file becomes shorter before everything is sent, the connections that send it are reset.
#[derive(Debug)]
pub struct Mapped(FileMapping);

impl Mapped {
    /// Maps a whole file.
    ///
    /// # Errors
    /// If it can't be mapped, as a pipe or a directory.
    pub fn of(file: impl AsFd) -> io::Result<Arc<dyn Source>> {
        Ok(Arc::new(Mapped(FileMapping::new(file).map_err(io::Error::other)?)))
    }
}

impl Source for Mapped {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn span(&self, range: Range<usize>) -> Span<'_> {
        self.0.span(range)
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }
}
