//! DER to PEM (RFC 7468), which the TLS stack only reads.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// One certificate as a PEM section.
pub(super) fn certificate(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    // 48 bytes make the 64 letters of a line.
    for line in der.chunks(48) {
        line.chunks(3).for_each(|three| base64(three, &mut text));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

fn base64(three: &[u8], out: &mut String) {
    let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for at in 0..4 {
        let letter = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
        out.push(if at <= three.len() { letter.into() } else { '=' });
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn what_is_written_is_read_back() {
        for len in [1usize, 2, 3, 47, 48, 49, 600] {
            let der: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
            let text = super::certificate(&der);
            assert_eq!(CertificateDer::from_pem_slice(text.as_bytes()).unwrap().as_ref(), der, "{text}");
            assert!(text.lines().all(|line| line.len() <= 64));
        }
    }
}
