//! Header views and reprs, checksums, pcap codecs.
