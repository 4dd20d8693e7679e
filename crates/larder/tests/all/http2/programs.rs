//! Programs of others that speak HTTP/2, where they are installed.

use super::site;
use crate::seen::stand;

#[test]
fn curl_and_nghttp_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "");
    let url = format!("http://{address}/fresh");
    let host = "Host: site.test";
    for (program, arguments) in [
        ("curl", vec!["-s", "-m", "20", "--http2-prior-knowledge", "-H", host, "-w", " %{http_version}", &url]),
        ("nghttp", vec!["-H", ":authority: site.test", &url]),
    ] {
        let Some(mut command) = stand::program(program) else {
            eprintln!("skipped: {program} is not installed");
            continue;
        };
        let output = command.args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("bytes"), "{program}: {text} {}", String::from_utf8_lossy(&output.stderr));
        assert!(program != "curl" || text.ends_with(" 2"), "{text}");
    }
}
