//! The PROXY protocol, versions 1 and 2 (HAProxy's `proxy-protocol.txt`): a header before the first byte of a connection, by which a load
//! balancer says whose connection it passes on.
//!
//! ```text
//!  1: PROXY TCP4 192.0.2.7 198.51.100.1 51000 443\r\n                  107 bytes at most
//!  2: 0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A, version and command, family, length, addresses, TLVs
//! ```
//!
//! Either end has to be told that the header comes: it is never guessed. Both versions are read, and written in their shortest form.

use crate::Host;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A longer header is refused. The addresses take 36 bytes, and TLVs of the clouds some hundred.
pub const HEADER_BYTES_MAX: usize = 4_096;

/// A line of version 1, its end included.
const LINE_BYTES_MAX: usize = 107;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const LINE_START: &[u8] = b"PROXY ";

const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0;
const TCP_IPV4: u8 = 0x11;
const UDP_IPV4: u8 = 0x12;
const TCP_IPV6: u8 = 0x21;
const UDP_IPV6: u8 = 0x22;
const UNIX_STREAM: u8 = 0x31;
const UNIX_DATAGRAM: u8 = 0x32;

const AUTHORITY: u8 = 0x02;
const CRC32C: u8 = 0x03;
const UNIQUE_ID: u8 = 0x05;
const SSL: u8 = 0x20;
/// The bit of [`SSL`] that says that the client came by TLS.
const CLIENT_BY_TLS: u8 = 1;
/// Longer identifiers are against the protocol.
const UNIQUE_ID_BYTES_MAX: usize = 128;

/// The word of a balancer about a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client and the address that it connected to; `None` where the connection is the balancer's own, or of a kind without addresses:
    /// then those of the connection count.
    pub addresses: Option<Addresses>,
    /// The host that the client asked for, from the name in its TLS (`PP2_TYPE_AUTHORITY`); one that is no host is left out.
    pub authority: Option<Host>,
    /// Whether the client came to the balancer by TLS (`PP2_TYPE_SSL`).
    pub is_by_tls: bool,
}

/// Where a connection came from, and where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// The address that it connected to.
    pub destination: SocketAddr,
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// The connection begins with something else.
    Absent,
    /// A line that is too long, or is not as the protocol has it.
    Line,
    /// A version or command that is not known.
    Command(u8),
    /// A family that is not known.
    Family(u8),
    /// It is longer than [`HEADER_BYTES_MAX`].
    TooLong,
    /// It is too short for its addresses, or its TLVs do not fill it.
    Length,
    /// Its checksum is another one.
    Checksum,
}

impl fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyFault::Absent => f.write_str("the connection does not begin with a header of the PROXY protocol"),
            ProxyFault::Line => f.write_str("the line of the PROXY protocol is malformed"),
            ProxyFault::Command(byte) => {
                write!(f, "the version and command {byte:#04x} of the PROXY protocol are unknown")
            }
            ProxyFault::Family(byte) => write!(f, "the address family {byte:#04x} of the PROXY protocol is unknown"),
            ProxyFault::TooLong => {
                write!(f, "the header of the PROXY protocol is longer than {HEADER_BYTES_MAX} bytes")
            }
            ProxyFault::Length => f.write_str("the length of the header of the PROXY protocol is wrong"),
            ProxyFault::Checksum => f.write_str("the checksum of the header of the PROXY protocol is wrong"),
        }
    }
}

impl std::error::Error for ProxyFault {}

/// Reads the header at the beginning of a connection; gives it with its length in bytes, or `None` where more bytes have to come first.
pub fn parse(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyFault> {
    let begins_as = |start: &[u8]| {
        let common = bytes.len().min(start.len());
        bytes.get(..common) == start.get(..common)
    };
    match (begins_as(LINE_START), begins_as(SIGNATURE)) {
        (true, _) if bytes.len() >= LINE_START.len() => parse_line(bytes),
        (_, true) if bytes.len() >= SIGNATURE.len() => parse_binary(bytes),
        (true, _) | (_, true) => Ok(None),
        (false, false) => Err(ProxyFault::Absent),
    }
}

fn parse_line(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyFault> {
    let head = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        return if head.len() == LINE_BYTES_MAX { Err(ProxyFault::Line) } else { Ok(None) };
    };
    let line = head.get(LINE_START.len()..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(ProxyFault::Line)?;
    let line = std::str::from_utf8(line).map_err(|_| ProxyFault::Line)?;
    let mut header = ProxyHeader::default();
    // The words behind UNKNOWN mean nothing.
    if line != "UNKNOWN" && !line.starts_with("UNKNOWN ") {
        header.addresses = Some(addresses_of_line(line).ok_or(ProxyFault::Line)?);
    }
    Ok(Some((header, end + 1)))
}

fn addresses_of_line(line: &str) -> Option<Addresses> {
    let mut words = line.split(' ');
    let is_v4 = match words.next()? {
        "TCP4" => true,
        "TCP6" => false,
        _ => return None,
    };
    let [source, destination, source_port, destination_port] =
        [words.next()?, words.next()?, words.next()?, words.next()?];
    let address = |text: &str| -> Option<IpAddr> {
        let address: IpAddr = text.parse().ok()?;
        (address.is_ipv4() == is_v4).then_some(address)
    };
    let port = |text: &str| -> Option<u16> {
        let is_plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
        text.parse().ok().filter(|_| is_plain)
    };
    let addresses = Addresses {
        source: SocketAddr::new(address(source)?, port(source_port)?),
        destination: SocketAddr::new(address(destination)?, port(destination_port)?),
    };
    words.next().is_none().then_some(addresses)
}

fn parse_binary(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyFault> {
    let Some([command, family, high, low]) = bytes.get(12..16).and_then(|part| <[u8; 4]>::try_from(part).ok()) else {
        return Ok(None);
    };
    if command != LOCAL && command != PROXY {
        return Err(ProxyFault::Command(command));
    }
    let length = 16 + usize::from(u16::from_be_bytes([high, low]));
    if length > HEADER_BYTES_MAX {
        return Err(ProxyFault::TooLong);
    }
    let Some(body) = bytes.get(16..length) else { return Ok(None) };
    let whole = bytes.get(..length).unwrap_or(bytes);
    let (addresses, taken) = addresses_of_binary(family, body)?;
    let tlvs = Tlvs(body.get(taken..).ok_or(ProxyFault::Length)?);
    let mut header = ProxyHeader { addresses, ..ProxyHeader::default() };
    let mut at = 16 + taken;
    for tlv in tlvs {
        let (kind, value) = tlv?;
        match kind {
            AUTHORITY => header.authority = std::str::from_utf8(value).ok().and_then(Host::parse),
            CRC32C => check(whole, at + 3, value)?,
            UNIQUE_ID if value.len() > UNIQUE_ID_BYTES_MAX => return Err(ProxyFault::Length),
            SSL => {
                let [client, _, _, _, _, ..] = value else { return Err(ProxyFault::Length) };
                header.is_by_tls = client & CLIENT_BY_TLS != 0;
            }
            _ => {}
        }
        at += 3 + value.len();
    }
    if command == LOCAL {
        header = ProxyHeader::default();
    }
    Ok(Some((header, length)))
}

/// The addresses at the beginning of the body, and how many bytes they take.
fn addresses_of_binary(family: u8, body: &[u8]) -> Result<(Option<Addresses>, usize), ProxyFault> {
    let port = |at: usize| body.get(at..at + 2).and_then(|part| Some(u16::from_be_bytes(part.try_into().ok()?)));
    let v4 =
        |at: usize| -> Option<IpAddr> { Some(Ipv4Addr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?).into()) };
    let v6 = |at: usize| -> Option<IpAddr> {
        Some(Ipv6Addr::from(<[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?).into())
    };
    let addresses = |source: Option<IpAddr>, destination: Option<IpAddr>, ports: usize| {
        let source = SocketAddr::new(source?, port(ports)?);
        let destination = SocketAddr::new(destination?, port(ports + 2)?);
        Some((Some(Addresses { source, destination }), ports + 4))
    };
    match family {
        TCP_IPV4 => addresses(v4(0), v4(4), 8),
        TCP_IPV6 => addresses(v6(0), v6(16), 32),
        UNSPECIFIED => Some((None, 0)),
        // Datagrams are no connections of ours, and paths are no addresses: the connection's own count.
        UDP_IPV4 => Some((None, 12)),
        UDP_IPV6 => Some((None, 36)),
        UNIX_STREAM | UNIX_DATAGRAM => Some((None, 216)),
        family => return Err(ProxyFault::Family(family)),
    }
    .filter(|(_, taken)| *taken <= body.len())
    .ok_or(ProxyFault::Length)
}

/// The kinds and values behind the addresses.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<(u8, &'a [u8]), ProxyFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        let (kind, behind) = rest.split_first()?;
        let Some((length, behind)) = behind.split_first_chunk::<2>() else { return Some(Err(ProxyFault::Length)) };
        let length = usize::from(u16::from_be_bytes(*length));
        let Some((value, behind)) = behind.split_at_checked(length) else { return Some(Err(ProxyFault::Length)) };
        self.0 = behind;
        Some(Ok((*kind, value)))
    }
}

/// Compares the checksum that stands at this place, over the whole header with zeros in its place.
fn check(whole: &[u8], at: usize, value: &[u8]) -> Result<(), ProxyFault> {
    let wanted = <[u8; 4]>::try_from(value).map_err(|_| ProxyFault::Length)?;
    let byte = |(number, byte): (usize, &u8)| if (at..at + 4).contains(&number) { 0 } else { *byte };
    let found = crc32c(whole.iter().enumerate().map(byte));
    if found == u32::from_be_bytes(wanted) { Ok(()) } else { Err(ProxyFault::Checksum) }
}

/// CRC32C (RFC 3720 appendix B.4), bit by bit: a header is short, and comes once in a connection.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    let by_byte = |crc: u32, byte: u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    };
    !bytes.fold(!0, by_byte)
}

/// The version in which a header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyVersion {
    /// A line of text.
    One,
    /// Binary.
    Two,
}

impl ProxyVersion {
    /// The word for it in settings and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            ProxyVersion::One => "v1",
            ProxyVersion::Two => "v2",
        }
    }
}

/// The header with which a connection to an origin begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentHeader {
    /// The version in which it is written.
    pub version: ProxyVersion,
    /// The client, and the address that it connected to; `None` for a connection that is the sender's own (`LOCAL`, in version 1
    /// `UNKNOWN`).
    pub addresses: Option<Addresses>,
}

impl SentHeader {
    /// Its bytes: 107 at most.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match (&self.addresses, self.version) {
            (Some(addresses), version) => write(addresses, version, &mut out),
            (None, ProxyVersion::One) => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
            (None, ProxyVersion::Two) => {
                out.extend_from_slice(SIGNATURE);
                out.extend_from_slice(&[LOCAL, UNSPECIFIED, 0, 0]);
            }
        }
        out
    }
}

/// Writes the header of a connection that is passed on. Addresses of IPv4 in IPv6 (`::ffff:192.0.2.7`) are written as IPv4; where one of both
/// is of IPv6, both are.
fn write(addresses: &Addresses, version: ProxyVersion, out: &mut Vec<u8>) {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (source, destination) = (canonical(addresses.source), canonical(addresses.destination));
    let six = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let pair = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ok((source, destination)),
        _ => Err((six(source), six(destination))),
    };
    let ports = [source.port(), destination.port()];
    match version {
        ProxyVersion::One => {
            let text = match pair {
                Ok((from, to)) => format!("PROXY TCP4 {from} {to} {} {}\r\n", ports[0], ports[1]),
                Err((from, to)) => format!("PROXY TCP6 {from} {to} {} {}\r\n", ports[0], ports[1]),
            };
            out.extend_from_slice(text.as_bytes());
        }
        ProxyVersion::Two => {
            out.extend_from_slice(SIGNATURE);
            match pair {
                Ok((from, to)) => {
                    out.extend_from_slice(&[PROXY, TCP_IPV4, 0, 12]);
                    [from, to].iter().for_each(|address| out.extend_from_slice(&address.octets()));
                }
                Err((from, to)) => {
                    out.extend_from_slice(&[PROXY, TCP_IPV6, 0, 36]);
                    [from, to].iter().for_each(|address| out.extend_from_slice(&address.octets()));
                }
            }
            ports.iter().for_each(|port| out.extend_from_slice(&port.to_be_bytes()));
        }
    }
}

#[cfg(test)]
mod tests;
