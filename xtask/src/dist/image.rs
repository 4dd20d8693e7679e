//! The container image: an archive of the OCI's image layout that `docker load` reads too, written without a container
//! engine and without a network. It has the program, its settings, the roots that are trusted, and no other program.

use super::Release;
use super::archive::{Entry, complete, gzip, sha256, tar};
use super::binary::Linkage;
use crate::shell::Trouble;
use larder_wire::date::{Stamp, timestamp};
use serde_json::{Value, json};
use std::path::Path;

/// The user, of the kind that images without a base use by custom.
const USER: u32 = 65_532;

/// The image's name and its bytes. `roots` is a file of certificates in PEM.
pub fn image(release: &Release, roots: &Path) -> Result<(String, Vec<u8>), Trouble> {
    if release.linkage != Linkage::Static {
        return Err("an image without a base needs a program without libraries: build for *-linux-musl".into());
    }
    let architecture = match &*release.architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let layer = tar(&complete(content(release, roots)?), "", release.seconds)?;
    let packed = gzip(&layer);
    let config = to_bytes(&config(release, architecture, &sha256(&layer)))?;
    let manifest = to_bytes(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", &config),
        "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", &packed)],
    }))?;
    let tag = format!("larder:{}", release.version);
    let mut index = described("application/vnd.oci.image.manifest.v1+json", &manifest);
    index["platform"] = json!({ "architecture": architecture, "os": "linux" });
    index["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{tag}"),
        "org.opencontainers.image.ref.name": release.version,
    });
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", sha256(bytes));
    let of_docker = json!([{ "Config": blob(&config), "RepoTags": [tag], "Layers": [blob(&packed)] }]);
    let entries = vec![
        Entry::file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#),
        Entry::file("index.json", to_bytes(&json!({ "schemaVersion": 2, "manifests": [index] }))?),
        Entry::file("manifest.json", to_bytes(&of_docker)?),
        Entry::file(blob(&config), config.clone()),
        Entry::file(blob(&manifest), manifest.clone()),
        Entry::file(blob(&packed), packed.clone()),
    ];
    let name = format!("larder-{}-{}-image.tar", release.version, release.architecture);
    Ok((name, tar(&complete(entries), "", release.seconds)?))
}

fn content(release: &Release, roots: &Path) -> Result<Vec<Entry>, Trouble> {
    let certificates = std::fs::read(roots).map_err(|error| {
        format!("reading {}: {error}; --roots names a file of trusted certificates", roots.display())
    })?;
    let doc = |name: &str| format!("usr/share/doc/larder/{name}");
    Ok(vec![
        Entry::program("usr/bin/larder", release.program.clone()),
        Entry::file("etc/larder/larder.toml", release.text("packaging/image.toml")?),
        Entry::file("etc/passwd", format!("root:x:0:0:root:/:/\nlarder:x:{USER}:{USER}:Larder:/var/lib/larder:/\n")),
        Entry::file("etc/group", format!("root:x:0:\nlarder:x:{USER}:\n")),
        Entry::file("etc/ssl/certs/ca-certificates.crt", certificates),
        Entry::folder("tmp", 0o1777, 0),
        Entry::folder("var/lib/larder", 0o750, USER),
        Entry::file(doc("LICENSE-APACHE"), release.text("LICENSE-APACHE")?),
        Entry::file(doc("LICENSE-MIT"), release.text("LICENSE-MIT")?),
        Entry::file(doc("THIRD-PARTY.txt"), release.licences.clone()),
        Entry::file(doc("larder.cdx.json"), release.bill.clone()),
    ])
}

fn config(release: &Release, architecture: &str, layer: &str) -> Value {
    let created = timestamp(Stamp(release.seconds));
    let seconds = |many: u64| many * 1_000_000_000;
    json!({
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/larder"],
            "Cmd": ["serve"],
            "Env": ["PATH=/usr/bin", "HOME=/var/lib/larder", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "WorkingDir": "/",
            "ExposedPorts": { "3128/tcp": {} },
            "Volumes": { "/var/lib/larder": {} },
            "StopSignal": "SIGTERM",
            // Docker's own word; engines that follow the OCI alone have checks of their own, for which `larder ready` is there too.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/larder", "ready"],
                "Interval": seconds(30), "Timeout": seconds(5), "StartPeriod": seconds(30), "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "Larder",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    })
}

fn described(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len() })
}

fn to_bytes(value: &Value) -> Result<Vec<u8>, Trouble> {
    serde_json::to_vec(value).map_err(|error| format!("writing JSON: {error}"))
}
