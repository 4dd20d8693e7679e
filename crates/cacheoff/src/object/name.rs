//! Names of objects and how URLs spell them.

use crate::random::mix;

/// The identity of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The visible server that has it.
    pub server: u32,
    /// Its content type, by number.
    pub content: u8,
    /// The world it belongs to.
    pub world: World,
    /// Its number in its world; of an embedded object, the page's number and its place on the page.
    pub number: u64,
    /// Whether a page embeds it.
    pub embedded: bool,
}

/// Names count in worlds: each worker has public ones, each robot private ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum World {
    /// Any robot of a worker may ask for these.
    Public {
        /// Number of the worker.
        worker: u16,
    },
    /// One robot asks for these.
    Private {
        /// Number of the robot.
        robot: u32,
    },
}

impl Name {
    /// A number that no other name of the run shares, but for the odd chance of 64 bits.
    pub fn fingerprint(&self) -> u64 {
        let world = match self.world {
            World::Public { worker } => u64::from(worker),
            World::Private { robot } => 1 << 40 | u64::from(robot),
        };
        let kind = u64::from(self.content) << 1 | u64::from(self.embedded);
        mix(mix(mix(u64::from(self.server) << 16 | kind) ^ world) ^ self.number)
    }

    /// Whether it belongs to one robot alone.
    pub fn is_private(&self) -> bool {
        matches!(self.world, World::Private { .. })
    }

    /// The path: `/TAG/SERVER.CONTENT.WORLD/NUMBER` and the ending, numbers in hexadecimal.
    pub(super) fn write_path(&self, tag: u32, ending: &str, out: &mut Vec<u8>) {
        let (kind, world) = match self.world {
            World::Public { worker } => (b'p', u64::from(worker)),
            World::Private { robot } => (b'r', u64::from(robot)),
        };
        out.push(b'/');
        hex(u64::from(tag), out);
        out.push(b'/');
        hex(u64::from(self.server), out);
        out.push(b'.');
        hex(u64::from(self.content), out);
        out.extend([b'.', kind]);
        hex(world, out);
        out.extend([b'/', if self.embedded { b'e' } else { b'd' }]);
        hex(self.number, out);
        out.extend(ending.as_bytes());
    }

    /// Reads a path back; what follows the number is not looked at.
    pub(super) fn parse_path(path: &[u8], tag: u32) -> Option<Self> {
        let (found, rest) = unhex(path.strip_prefix(b"/")?)?;
        if found != u64::from(tag) {
            return None;
        }
        let (server, rest) = unhex(rest.strip_prefix(b"/")?)?;
        let (content, rest) = unhex(rest.strip_prefix(b".")?)?;
        let (kind, rest) = rest.strip_prefix(b".")?.split_first()?;
        let (world, rest) = unhex(rest)?;
        let (form, rest) = rest.strip_prefix(b"/")?.split_first()?;
        let (number, _) = unhex(rest)?;
        let world = match kind {
            b'p' => World::Public { worker: u16::try_from(world).ok()? },
            b'r' => World::Private { robot: u32::try_from(world).ok()? },
            _ => return None,
        };
        let embedded = match form {
            b'e' => true,
            b'd' => false,
            _ => return None,
        };
        let (server, content) = (u32::try_from(server).ok()?, u8::try_from(content).ok()?);
        Some(Self { server, content, world, number, embedded })
    }
}

/// Writes a number in hexadecimal without leading zeros.
pub(crate) fn hex(value: u64, out: &mut Vec<u8>) {
    let digits = (16 - value.leading_zeros() / 4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(value >> (4 * place) & 15) as usize]);
    }
}

/// Reads a number in hexadecimal and says what follows it.
pub(crate) fn unhex(text: &[u8]) -> Option<(u64, &[u8])> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let len = text.iter().take_while(|byte| digit(**byte).is_some()).count();
    if len == 0 || len > 16 {
        return None;
    }
    let value = text[..len].iter().filter_map(|byte| digit(*byte)).fold(0, |value, each| value << 4 | u64::from(each));
    Some((value, &text[len..]))
}
