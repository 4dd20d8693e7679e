//! The wheel `larder-cache`, which brings the program to where pip, pipx and uv put programs. The form is that of the
//! binary distribution format (packaging.python.org), with its list of parts where PEP 770 wants it.

use super::Release;
use super::archive::{Entry, zip};
use super::binary::Linkage;
use crate::shell::Trouble;
use aws_lc_rs::digest::{SHA256, digest};

/// The wheel's name and its bytes.
pub fn wheel(release: &Release) -> Result<(String, Vec<u8>), Trouble> {
    let version = &release.version;
    let tags: Vec<String> = platforms(release).iter().map(|platform| format!("py3-none-{platform}")).collect();
    let info = |name: &str| format!("larder_cache-{version}.dist-info/{name}");
    let tag_lines: String = tags.iter().map(|tag| format!("Tag: {tag}\n")).collect();
    let about = format!(
        "Metadata-Version: 2.4\nName: larder-cache\nVersion: {version}\nSummary: A web cache: forward proxy, reverse proxy and interceptor\n\
         License-Expression: Apache-2.0 OR MIT\nLicense-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT\nLicense-File: THIRD-PARTY.txt\n\
         Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{}",
        release.text("packaging/wheel/README.md")?
    );
    let mut entries = vec![
        Entry::program(format!("larder_cache-{version}.data/scripts/larder"), release.program.clone()),
        Entry::file("larder_cache/__init__.py", release.text("packaging/wheel/__init__.py")?),
        Entry::file("larder_cache/__main__.py", "from . import main\n\nmain()\n"),
        Entry::file(info("METADATA"), about),
        Entry::file(
            info("WHEEL"),
            format!("Wheel-Version: 1.0\nGenerator: larder-xtask\nRoot-Is-Purelib: false\n{tag_lines}"),
        ),
        Entry::file(info("entry_points.txt"), "[console_scripts]\nlarder-cache = larder_cache:main\n"),
        Entry::file(info("licenses/LICENSE-APACHE"), release.text("LICENSE-APACHE")?),
        Entry::file(info("licenses/LICENSE-MIT"), release.text("LICENSE-MIT")?),
        Entry::file(info("licenses/THIRD-PARTY.txt"), release.licences.clone()),
        Entry::file(info("sboms/larder.cdx.json"), release.bill.clone()),
    ];
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let record: String = entries.iter().map(recorded).collect();
    // The record has no sum of itself.
    entries.push(Entry::file(info("RECORD"), record + &info("RECORD") + ",,\n"));
    let name = format!("larder_cache-{version}-py3-none-{}.whl", platforms(release).join("."));
    Ok((name, zip(&entries, release.seconds)?))
}

fn recorded(entry: &Entry) -> String {
    let bytes = entry.bytes.as_deref().unwrap_or_default();
    format!("{},sha256={},{}\n", entry.path, base64_url(digest(&SHA256, bytes).as_ref()), bytes.len())
}

/// The systems that take the program: a static one runs beside every C library.
fn platforms(release: &Release) -> Vec<String> {
    let architecture = &release.architecture;
    match release.linkage {
        Linkage::Glibc(major, minor) => vec![format!("manylinux_{major}_{minor}_{architecture}")],
        Linkage::Static => ["manylinux_2_17", "manylinux2014", "musllinux_1_1"]
            .map(|system| format!("{system}_{architecture}"))
            .to_vec(),
    }
}

/// Base64 with the alphabet of URLs and without padding (RFC 4648, section 5).
fn base64_url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            text.push(char::from(ALPHABET[number >> (18 - 6 * place) & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_rfc_4648() {
        let encoded = ["", "f", "fo", "foo", "foobar"].map(|text| base64_url(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg", "Zm8", "Zm9v", "Zm9vYmFy"]);
        assert_eq!(base64_url(&[0xfb, 0xff]), "-_8");
    }
}
