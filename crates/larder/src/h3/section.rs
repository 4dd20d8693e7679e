//! Field sections of answers, which are no longer than the client takes.

use super::Link;
use larder_wire::h2::hpack::LINE_OVERHEAD_BYTES;
use larder_wire::h3::qpack;
use std::cell::Cell;

/// The size of a section as limits count it.
#[derive(Default)]
pub struct Section(Cell<u64>);

impl Section {
    /// The beginning of a coded section.
    pub fn begin() -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        qpack::write_prefix(&mut bytes);
        bytes
    }

    /// Appends a line.
    pub fn write(&self, out: &mut Vec<u8>, name: &[u8], value: &[u8], is_secret: bool) {
        self.0.set(self.0.get() + (name.len() + value.len() + LINE_OVERHEAD_BYTES) as u64);
        qpack::write_field(out, name, value, is_secret);
    }

    /// Whether the client takes so long a section.
    pub fn fits(&self, link: &Link) -> bool {
        self.0.get() <= link.section_bytes_max.get()
    }
}
