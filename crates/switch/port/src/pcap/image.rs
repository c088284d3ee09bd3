//! The frames of a capture file, as `control` reads it and `data` replays it.
//!
//! An image is a sequence of 64-bit words: a magic number, the number of frames, and for each frame its time, its
//! length in bytes, and its bytes, filled up to whole words.

use ringway_frame::LARGEST;
use ringway_wire::pcap::{self, PcapError};
use ringway_wire::pcapng::{self, Block, PcapngError};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Largest file in bytes. Attack: a sparse file of terabytes, which would be read into memory.
pub const LARGEST_FILE: u64 = 1 << 30;
/// Longest pause between two frames, in nanoseconds: an hour. A longer one is an error of the recorder's clock.
const LONGEST_PAUSE: u64 = 3_600_000_000_000;
const MAGIC: u64 = 0x5259_5043_4150_0001;
/// Bytes of an Ethernet header.
const SHORTEST: usize = 14;

/// Why a file can't be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The file is too large.
    #[error("the file has {0} bytes, more than {LARGEST_FILE}; cut it with editcap")]
    Large(u64),
    /// Not a capture file of the classic format.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// Not a capture file.
    #[error(transparent)]
    Pcapng(#[from] PcapngError),
    /// Packets of another kind.
    #[error("the packets have link type {0}, not Ethernet's, which is 1")]
    LinkType(u16),
    /// Nothing to replay.
    #[error("the file has no frame that can be sent{0}")]
    Empty(Skipped),
    /// Not an image.
    #[error("the frames from the control process can't be read")]
    Image,
}

/// What is not replayed as it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Frames of other link types.
    pub other_link_type: u64,
    /// Frames of which the recorder kept only a part.
    pub truncated: u64,
    /// Frames shorter than an Ethernet header, or longer than any.
    pub size: u64,
    /// Frames older than the one before, which follow it at once.
    pub out_of_order: u64,
    /// Pauses of more than an hour, which are shortened to one.
    pub pauses: u64,
    /// Whether the file ends within a frame or is damaged; what comes before is replayed.
    pub damaged: bool,
}

impl fmt::Display for Skipped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.other_link_type, "of other link types"),
            (self.truncated, "cut by the recorder"),
            (self.size, "of impossible lengths"),
            (self.out_of_order, "older than the one before"),
            (self.pauses, "after a pause of more than an hour, which is shortened"),
        ];
        for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            write!(out, "; {count} {what}")?;
        }
        if self.damaged { write!(out, "; its end is damaged") } else { Ok(()) }
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Image {
    /// The image.
    pub bytes: Vec<u8>,
    /// Number of its frames.
    pub frames: u64,
    /// What is not replayed as it was recorded.
    pub skipped: Skipped,
}

impl Image {
    /// Reads a file in pcap's or pcapng's format.
    pub fn of(file: &[u8]) -> Result<Image, ReplayError> {
        if file.len() as u64 > LARGEST_FILE {
            return Err(ReplayError::Large(file.len() as u64));
        }
        let mut builder = Builder::default();
        builder.word(MAGIC);
        builder.word(0);
        if file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
            builder.read_pcapng(file)?;
        } else {
            builder.read_pcap(file)?;
        }
        let Builder { mut bytes, frames, skipped, .. } = builder;
        if frames == 0 {
            return Err(ReplayError::Empty(skipped));
        }
        bytes[8..16].copy_from_slice(&frames.to_ne_bytes());
        Ok(Image { bytes, frames, skipped })
    }
}

#[derive(Default)]
struct Builder {
    bytes: Vec<u8>,
    frames: u64,
    skipped: Skipped,
    /// The time of the last frame, as recorded and as it will be sent.
    last: Option<(u64, u64)>,
}

impl Builder {
    fn word(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_ne_bytes());
    }

    fn read_pcap(&mut self, file: &[u8]) -> Result<(), ReplayError> {
        let reader = pcap::Reader::new(file)?;
        let link_type = reader.header().link_type;
        if link_type != pcap::ETHERNET {
            return Err(ReplayError::LinkType(link_type));
        }
        for record in reader {
            match record {
                Ok(record) => self.frame(record.time, record.original_len, record.data),
                Err(_) => self.skipped.damaged = true,
            }
        }
        Ok(())
    }

    fn read_pcapng(&mut self, file: &[u8]) -> Result<(), ReplayError> {
        let mut decoder = pcapng::Decoder::new();
        let mut rest = file;
        while !rest.is_empty() {
            let (block, len) = match decoder.next(rest) {
                Ok(Some(found)) => found,
                Err(error) if rest.len() == file.len() => return Err(error.into()),
                Ok(None) | Err(_) => {
                    self.skipped.damaged = true;
                    return Ok(());
                }
            };
            if let Block::Packet(packet) = block {
                let interface = decoder.interfaces().get(packet.interface as usize);
                match interface.is_some_and(|interface| interface.link_type == pcap::ETHERNET) {
                    true => self.frame(packet.time, packet.original_len, packet.data),
                    false => self.skipped.other_link_type += 1,
                }
            }
            rest = rest.get(len..).unwrap_or(&[]);
        }
        Ok(())
    }

    fn frame(&mut self, time: u64, original_len: u32, data: &[u8]) {
        if (data.len() as u64) < u64::from(original_len) {
            self.skipped.truncated += 1;
            return;
        }
        if !(SHORTEST..=LARGEST as usize).contains(&data.len()) {
            self.skipped.size += 1;
            return;
        }
        let (before, sent) = self.last.unwrap_or((time, 0));
        let pause = time.saturating_sub(before);
        self.skipped.out_of_order += u64::from(time < before);
        self.skipped.pauses += u64::from(pause > LONGEST_PAUSE);
        // Attack: times that add up to more than the clock has.
        let at = sent.saturating_add(pause.min(LONGEST_PAUSE));
        self.last = Some((time, at));
        self.word(at);
        self.word(data.len() as u64);
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.frames += 1;
    }
}

/// A frame in an image.
#[derive(Clone, Copy, Debug)]
struct Place {
    time: u64,
    at: usize,
    len: usize,
}

/// The frames of an image.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// Differs for each image that a port was given.
    pub number: u64,
}

impl Frames {
    /// No frames.
    pub fn none(number: u64) -> Frames {
        Frames { number, ..Frames::default() }
    }

    /// The frames of an image.
    pub fn of(words: &[AtomicU64], number: u64) -> Result<Frames, ReplayError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let word = |at: usize| {
            let bytes = bytes.get(at..at.checked_add(8)?)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        if word(0) != Some(MAGIC) {
            return Err(ReplayError::Image);
        }
        let count = word(8).ok_or(ReplayError::Image)?;
        let (mut at, mut places) = (16, Vec::new());
        for _ in 0..count {
            let (time, len) = word(at).zip(word(at + 8)).ok_or(ReplayError::Image)?;
            let len = usize::try_from(len).ok().filter(|len| (SHORTEST..=LARGEST as usize).contains(len));
            let len = len.ok_or(ReplayError::Image)?;
            at += 16;
            if at + len > bytes.len() {
                return Err(ReplayError::Image);
            }
            places.push(Place { time, at, len });
            at += len.next_multiple_of(8);
        }
        Ok(Frames { bytes, places, number })
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The bytes of a frame.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let place = self.places.get(index)?;
        self.bytes.get(place.at..place.at + place.len)
    }

    /// When a frame is sent, in nanoseconds after the first.
    pub fn time(&self, index: usize) -> Option<u64> {
        self.places.get(index).map(|place| place.time)
    }

    /// Nanoseconds from the first frame to its repetition: the average pause follows the last one.
    pub fn period(&self) -> u64 {
        let span = self.places.last().map_or(0, |last| last.time);
        let pauses = self.places.len().saturating_sub(1).max(1) as u64;
        span.saturating_add(span / pauses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_wire::pcapng::{Direction, Packet};

    fn words(bytes: &[u8]) -> Vec<AtomicU64> {
        let chunks = bytes.as_chunks().0.iter().map(|chunk| u64::from_ne_bytes(*chunk));
        chunks.map(AtomicU64::new).collect()
    }

    fn classic(records: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let header = pcap::Header::ethernet();
        let mut file = header.to_bytes().to_vec();
        for (time, original, data) in records {
            file.extend_from_slice(&header.record_header(*time, data.len() as u32, *original));
            file.extend_from_slice(data);
        }
        file
    }

    #[test]
    fn absurd_frames_and_times_are_skipped_and_counted() {
        let frame = [7; 60];
        let day = 24 * LONGEST_PAUSE;
        let file = classic(&[
            (1000, 60, &frame),
            (1500, 60, &frame),
            (1600, 1500, &frame),
            (1700, 3, &frame[..3]),
            (500, 60, &frame),
            (500 + day, 60, &frame),
            (700 + day, 60, &frame[..14]),
        ]);
        let mut image = Image::of(&file).unwrap();
        let skipped = Skipped { truncated: 1, size: 1, out_of_order: 1, pauses: 1, ..Skipped::default() };
        assert_eq!((image.frames, image.skipped), (4, Skipped { truncated: 2, ..skipped }));
        image.skipped.truncated = 1;
        let frames = Frames::of(&words(&image.bytes), 1).unwrap();
        let times: Vec<_> = (0..frames.len()).filter_map(|index| frames.time(index)).collect();
        assert_eq!(times, [0, 500, 500, 500 + LONGEST_PAUSE]);
        assert_eq!(frames.get(3), Some(&frame[..]));
        assert_eq!(frames.period(), (500 + LONGEST_PAUSE) / 3 * 4 + (500 + LONGEST_PAUSE) % 3);
        let text = image.skipped.to_string();
        assert!(text.starts_with("; 1 cut by the recorder; 1 of impossible lengths; 1 older"), "{text}");
    }

    #[test]
    fn damaged_files_are_replayed_up_to_the_damage_and_others_refused() {
        let frame = [7; 60];
        let file = classic(&[(1, 60, &frame), (2, 60, &frame)]);
        for cut in 0..file.len() {
            match Image::of(&file[..cut]) {
                Ok(image) => assert!(cut >= 100 && image.frames == 1, "{cut}"),
                Err(_) => assert!(cut < 100, "{cut}"),
            }
        }
        let mut radio = file;
        radio[20] = 105;
        assert_eq!(Image::of(&radio).unwrap_err(), ReplayError::LinkType(105));
        assert!(matches!(Image::of(b"nonsense of any kind, but long enough"), Err(ReplayError::Pcap(_))));
        let mut file = Vec::new();
        pcapng::write_section(&mut file);
        pcapng::write_interface(&mut file, "x");
        let packet =
            Packet { interface: 0, time: 5, original_len: 60, direction: Direction::Unknown, data: &frame };
        pcapng::write_packet(&mut file, &packet);
        let whole = file.len();
        pcapng::write_packet(&mut file, &packet);
        let image = Image::of(&file[..whole + 9]).unwrap();
        assert!((image.frames, image.skipped.damaged) == (1, true));
        assert_eq!(
            Image::of(&file[..40]).unwrap_err().to_string(),
            "the file has no frame that can be sent; its end is damaged"
        );
    }

    proptest! {
        #[test]
        fn no_image_is_read_outside_of_its_bytes(
            len in 0usize..40, values in prop::collection::vec(0u64..100, 40), count: u64,
        ) {
            let mut all = vec![MAGIC, count];
            all.extend_from_slice(&values[..len]);
            let words: Vec<_> = all.into_iter().map(AtomicU64::new).collect();
            if let Ok(frames) = Frames::of(&words, 0) {
                prop_assert!((0..frames.len()).all(|index| frames.get(index).is_some()));
            }
        }

        #[test]
        fn no_file_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), is_new: bool) {
            let frame = [7; 60];
            let start = if is_new { Vec::new() } else { classic(&[(1, 60, &frame)]) };
            let _ = Image::of(&[start, bytes].concat());
        }
    }
}
