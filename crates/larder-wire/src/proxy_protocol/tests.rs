//! Headers against a table, and what no sender may do to a reader.

use super::*;
use proptest::prelude::*;

fn addresses(source: &str, destination: &str) -> Option<Addresses> {
    Some(Addresses { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
}

/// A header of version 2 with these parts.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &(value.len() as u16).to_be_bytes(), value].concat()
}

const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0xc7, 0x38, 1, 0xbb];

#[test]
fn lines_of_version_1() {
    let v4 = addresses("192.0.2.7:51000", "198.51.100.1:443");
    let v6 = addresses("[2001:db8::7]:1", "[2001:db8::1]:65535");
    for (line, wanted) in [
        ("PROXY TCP4 192.0.2.7 198.51.100.1 51000 443\r\n", Ok(v4)),
        ("PROXY TCP6 2001:db8::7 2001:db8::1 1 65535\r\n", Ok(v6)),
        ("PROXY UNKNOWN\r\n", Ok(None)),
        ("PROXY UNKNOWN ffff:f...f:ffff 65535 whatever\r\n", Ok(None)),
        ("PROXY UNKNOWNS\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 192.0.2.7 198.51.100.1 51000 443\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 192.0.2.7 198.51.100.1 51000 443 \r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4  192.0.2.7 198.51.100.1 51000 443\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 192.0.2.7 198.51.100.1 51000\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n", Err(ProxyFault::Line)),
        ("PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n", Err(ProxyFault::Line)),
        ("PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n", Err(ProxyFault::Line)),
        ("PROXY tcp4 192.0.2.7 198.51.100.1 1 2\r\n", Err(ProxyFault::Line)),
        ("GET / HTTP/1.1\r\n", Err(ProxyFault::Absent)),
        ("proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n", Err(ProxyFault::Absent)),
    ] {
        let parsed = parse(line.as_bytes()).map(|found| {
            let (header, length) = found.unwrap();
            assert_eq!(length, line.len(), "{line:?}");
            header.addresses
        });
        assert_eq!(parsed, wanted, "{line:?}");
    }
    // A line has 107 bytes at most, and a longer one is not waited for.
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(LINE_BYTES_MAX));
    assert_eq!(parse(endless.as_bytes()), Err(ProxyFault::Line));
    assert_eq!(parse(&endless.as_bytes()[..LINE_BYTES_MAX - 1]), Ok(None));
}

#[test]
fn headers_of_version_2() {
    let v4 = addresses("192.0.2.7:51000", "198.51.100.1:443");
    for (command, family, body, wanted) in [
        (PROXY, TCP_IPV4, V4.to_vec(), Ok(v4)),
        (LOCAL, TCP_IPV4, V4.to_vec(), Ok(None)),
        (LOCAL, UNSPECIFIED, Vec::new(), Ok(None)),
        (PROXY, UNSPECIFIED, Vec::new(), Ok(None)),
        (PROXY, UDP_IPV4, V4.to_vec(), Ok(None)),
        (PROXY, UNIX_STREAM, vec![0; 216], Ok(None)),
        (PROXY, UNIX_STREAM, vec![0; 215], Err(ProxyFault::Length)),
        (PROXY, TCP_IPV6, V4.to_vec(), Err(ProxyFault::Length)),
        (PROXY, TCP_IPV4, V4[..11].to_vec(), Err(ProxyFault::Length)),
        (0x22, TCP_IPV4, V4.to_vec(), Err(ProxyFault::Command(0x22))),
        (0x11, TCP_IPV4, V4.to_vec(), Err(ProxyFault::Command(0x11))),
        (PROXY, 0x13, V4.to_vec(), Err(ProxyFault::Family(0x13))),
        (PROXY, TCP_IPV4, [&V4[..], &tlv(0x04, &[0; 40]), &tlv(0xEA, b"aws")].concat(), Ok(v4)),
        (PROXY, TCP_IPV4, [&V4[..], &tlv(0x04, &[0; 40])[..42]].concat(), Err(ProxyFault::Length)),
        (PROXY, TCP_IPV4, [&V4[..], &[4]].concat(), Err(ProxyFault::Length)),
        (PROXY, TCP_IPV4, [&V4[..], &tlv(UNIQUE_ID, &[1; 129])].concat(), Err(ProxyFault::Length)),
        (PROXY, TCP_IPV4, [&V4[..], &tlv(SSL, &[1; 4])].concat(), Err(ProxyFault::Length)),
        (PROXY, TCP_IPV4, [&V4[..], &tlv(4, &[0; HEADER_BYTES_MAX])].concat(), Err(ProxyFault::TooLong)),
    ] {
        let bytes = binary(command, family, &body);
        let parsed = parse(&[&bytes[..], b"GET / HTTP/1.1\r\n"].concat()).map(|found| {
            let (header, length) = found.unwrap();
            assert_eq!(length, bytes.len());
            header.addresses
        });
        assert_eq!(parsed, wanted, "{command:#x} {family:#x} {body:?}");
    }
}

#[test]
fn tlvs_say_host_tls_and_checksum() {
    let with = |tlvs: &[u8]| parse(&binary(PROXY, TCP_IPV4, &[&V4[..], tlvs].concat())).map(|found| found.unwrap().0);
    let header = with(&[tlv(AUTHORITY, b"www.Example.com"), tlv(SSL, &[1, 0, 0, 0, 0])].concat()).unwrap();
    assert_eq!(header.authority.as_ref().map(Host::as_str), Some("www.example.com"));
    assert!(header.is_by_tls);
    let header = with(&[tlv(AUTHORITY, b"a b"), tlv(SSL, &[6, 0, 0, 0, 0])].concat()).unwrap();
    assert_eq!((header.authority, header.is_by_tls), (None, false));
    // The checksum of the RFC's own example: 32 bytes of zeros.
    assert_eq!(crc32c([0; 32].into_iter()), 0x8a91_36aa);
    let mut sealed = binary(PROXY, TCP_IPV4, &[&V4[..], &tlv(CRC32C, &[0; 4])].concat());
    let sum = crc32c(sealed.iter().copied());
    let end = sealed.len();
    sealed[end - 4..].copy_from_slice(&sum.to_be_bytes());
    assert!(parse(&sealed).is_ok());
    sealed[17] ^= 1;
    assert_eq!(parse(&sealed), Err(ProxyFault::Checksum));
    assert_eq!(with(&tlv(CRC32C, &[0; 3])), Err(ProxyFault::Length));
}

#[test]
fn a_header_of_the_sender_s_own_has_no_addresses() {
    for (version, wanted) in
        [(ProxyVersion::One, &b"PROXY UNKNOWN\r\n"[..]), (ProxyVersion::Two, &binary(LOCAL, UNSPECIFIED, &[]))]
    {
        let bytes = SentHeader { version, addresses: None }.bytes();
        assert_eq!(bytes, wanted, "{version:?}");
        assert_eq!(parse(&bytes), Ok(Some((ProxyHeader::default(), bytes.len()))), "{version:?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_never_before_its_end(
        source in any::<(u128, u16, bool)>(), destination in any::<(u128, u16, bool)>(), is_line in any::<bool>(), behind in any::<Vec<u8>>(),
    ) {
        let address = |(bits, port, is_v4): (u128, u16, bool)| match is_v4 {
            true => SocketAddr::new(Ipv4Addr::from(bits as u32).into(), port),
            false => SocketAddr::new(IpAddr::from(Ipv6Addr::from(bits)).to_canonical(), port),
        };
        let written = Addresses { source: address(source), destination: address(destination) };
        let version = if is_line { ProxyVersion::One } else { ProxyVersion::Two };
        let mut bytes = SentHeader { version, addresses: Some(written) }.bytes();
        for end in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..end]), Ok(None));
        }
        let length = bytes.len();
        bytes.extend(behind);
        let (header, taken) = parse(&bytes).unwrap().unwrap();
        let read = header.addresses.unwrap();
        prop_assert_eq!(taken, length);
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        prop_assert_eq!((canonical(read.source), canonical(read.destination)), (written.source, written.destination));
    }

    /// An answer for a beginning stays true when more bytes come.
    #[test]
    fn nothing_that_follows_changes_an_answer(bytes in any::<Vec<u8>>(), is_signed in any::<bool>(), at in any::<prop::sample::Index>()) {
        let bytes = if is_signed { [&SIGNATURE[..], &[PROXY, TCP_IPV4, 0, 40], &bytes].concat() } else { bytes };
        let beginning = &bytes[..at.index(bytes.len() + 1)];
        match parse(beginning) {
            Ok(None) => {}
            said => prop_assert_eq!(said, parse(&bytes)),
        }
    }
}
