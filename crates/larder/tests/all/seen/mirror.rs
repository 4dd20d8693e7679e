//! The prefix mirror and its named upstreams, and the pull-through mirror of container registries.

use super::reload::base;
use super::stand;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

/// A request to the mirror by its address.
fn get(proxy: SocketAddr, path: &str, fields: &str) -> String {
    stand::exchange(proxy, &format!("GET {path} HTTP/1.1\r\nHost: {proxy}\r\n{fields}Connection: close\r\n\r\n"))
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// An origin that plays a function of the request's line and fields, and notes both.
struct Origin {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    fn new(answer: impl Fn(&str, &str, SocketAddr) -> String + Send + Sync + 'static) -> Origin {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noted, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                std::thread::spawn(move || {
                    serve(&stream, |head| {
                        noted.lock().unwrap().push(head.to_owned());
                        answer(head.split(' ').nth(1).unwrap_or_default(), head, address)
                    })
                });
            }
        });
        Origin { address, requests }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn serve(stream: &TcpStream, answer: impl Fn(&str) -> String) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        (&*stream).write_all(answer(&head).as_bytes()).ok()?;
    }
}

fn reply(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_named_upstream_gets_the_credentials_of_its_client_and_no_other_does() {
    let folder = tempfile::tempdir().unwrap();
    let echo = |path: &str, _: &str, _: SocketAddr| reply("200 OK", "Cache-Control: max-age=60\r\n", path);
    let (named, other) = (Origin::new(echo), Origin::new(echo));
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[mirror]]\nname = \"py\"\norigin = \"http://{}/base/\"\n",
        base(folder.path()),
        named.address
    );
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    let login = "Authorization: Basic YTpi\r\nCookie: a=b\r\n";
    assert_eq!(stand::body(&get(proxy, "/py/x.whl", login)), "/base/x.whl");
    let asked = named.asked();
    assert!(asked[0].contains("Authorization: Basic YTpi") && !asked[0].contains("Cookie"), "{asked:?}");
    // An answer to one user is not stored for others.
    assert_eq!(stand::body(&get(proxy, "/py/x.whl", "")), "/base/x.whl");
    assert_eq!(named.asked().len(), 1);
    assert_eq!(status(&get(proxy, "/py/x.whl", "")), "200");
    assert_eq!(status(&stand::get(proxy, &format!("http://{}/base/x.whl", named.address))), "200");
    assert_eq!(named.asked().len(), 0, "the mirror and the forward proxy share what is stored");
    for address in [other.address, named.address] {
        assert_eq!(status(&get(proxy, &format!("/http://{address}/y.whl"), login)), "200");
    }
    let asked = [other.asked(), named.asked()].concat();
    assert!(asked.len() == 2 && !asked.concat().contains("Authorization"), "{asked:?}");
    assert_eq!(status(&get(proxy, "/py/../x", "")), "400");
    assert_eq!(status(&get(proxy, "/nobody/x", "")), "404");
}

#[test]
fn only_named_upstreams_are_mirrored_where_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin();
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\nmirror = \"named\"\nforward = false\n\
         [[mirror]]\nname = \"a\"\norigin = \"http://{origin}\"\n\
         [[site]]\nhosts = [\"s.test\"]\norigin = \"http://{origin}\"\n",
        base(folder.path())
    );
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    assert_eq!(stand::body(&get(proxy, "/a/fresh", "")), "/fresh");
    assert_eq!(stand::body(&get(proxy, &format!("/http://{origin}/fresh"), "")), "/fresh", "it lies below a named one");
    let refused = get(proxy, "/http://127.0.0.1:1/x", "");
    assert!(status(&refused) == "403" && refused.contains("mirror-named"), "{refused}");
    assert_eq!(status(&stand::get(proxy, &format!("http://{origin}/fresh"))), "403", "it is no forward proxy");
    let site = stand::exchange(proxy, "GET /a/fresh HTTP/1.1\r\nHost: s.test\r\nConnection: close\r\n\r\n");
    assert_eq!(stand::body(&site), "/a/fresh", "a site takes its requests first");
}

#[test]
fn clients_from_elsewhere_reach_no_closed_address_through_the_mirror() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin();
    let text = format!(
        "store = \"{}\"\nadmin = \"none\"\nworkers = 1\n[[listen]]\naddress = \"0.0.0.0:0\"\nmirror = \"all\"\n\
         [[mirror]]\nname = \"a\"\norigin = \"http://{origin}\"\n",
        folder.path().join("store").display()
    );
    let server = stand::server(folder.path(), &text);
    let proxy = SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port()));
    for target in [
        format!("/http://{origin}/fresh"),
        "/http://169.254.169.254/latest".to_owned(),
        "/http://localhost/".to_owned(),
    ] {
        let refused = get(proxy, &target, "");
        assert_eq!(status(&refused), "403", "{target}: {refused}");
    }
}

/// The digest of `blob`.
const DIGEST: &str = "sha256:fa2c8cc4f28176bbeed4b736df569a34c79cd3723e9ec42f9674b4d46ac6b8b8";

/// The digest of `private blob`.
const DIGEST_OF_PRIVATE: &str = "sha256:6ad3ec5bda3991ad5abc0a717c4193c5ca8742dd0d7e8ee88c073b59c7bdbb13";

/// A registry that wants tokens and keeps its blobs in a storage with signed URLs, a token server and that storage in one.
fn registry() -> Origin {
    Origin::new(|path, head, own| {
        let has_token = head.contains("Authorization: Bearer t-repository:lib/a:pull");
        if path.starts_with("/token?") {
            let scope = path.split("scope=").nth(1).unwrap_or_default();
            return reply(
                "200 OK",
                "Cache-Control: no-store\r\n",
                &format!("{{\"token\": \"t-{scope}\", \"expires_in\": 300}}"),
            );
        }
        if path.starts_with("/signed") {
            let is_open = !head.contains("Authorization");
            return if is_open {
                reply("200 OK", "Cache-Control: private\r\n", "blob")
            } else {
                reply("400 Bad", "", "")
            };
        }
        if !has_token {
            let challenge = format!(
                "WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=\"r\",scope=\"repository:lib/a:pull\"\r\n"
            );
            return reply("401 Unauthorized", &challenge, "{}");
        }
        if path.contains("/tags/") {
            return reply("200 OK", "Link: </v2/lib/a/tags/list?last=b>; rel=\"next\"\r\n", "tags");
        }
        if path.contains("/blobs/") {
            let port = own.port();
            return reply(
                "307 Temporary Redirect",
                &format!("Location: http://localhost:{port}/signed?sig={}\r\n", head.len()),
                "",
            );
        }
        match head.contains("If-None-Match: \"m1\"") {
            true => "HTTP/1.1 304 Not Modified\r\nETag: \"m1\"\r\n\r\n".to_owned(),
            false => reply(
                "200 OK",
                "ETag: \"m1\"\r\nContent-Type: application/vnd.oci.image.manifest.v1+json\r\n",
                "manifest",
            ),
        }
    })
}

#[test]
fn a_registry_is_mirrored_with_tokens_and_redirects() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry();
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[mirror]]\nname = \"r\"\norigin = \"http://{}\"\nregistry = true\n",
        base(folder.path()),
        registry.address
    );
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    let ping = get(proxy, "/v2/", "");
    assert!(status(&ping) == "200" && ping.contains("registry/2.0"), "{ping}");
    let blob = format!("/v2/lib/a/blobs/{DIGEST}");
    assert_eq!(stand::body(&get(proxy, "/v2/lib/a/manifests/latest", "Accept: a/b\r\n")), "manifest");
    let first = get(proxy, &blob, "Authorization: Basic YTpi\r\n");
    assert!(stand::body(&first) == "blob" && first.contains("immutable"), "{first}");
    let asked: Vec<String> =
        registry.asked().iter().map(|head| head.split(['?', ' ']).nth(1).unwrap().to_owned()).collect();
    assert_eq!(asked, ["/v2/lib/a/manifests/latest", "/token", "/v2/lib/a/manifests/latest", &*blob, "/signed"]);
    for path in [&*blob, &format!("/v2/r/lib/a/blobs/{DIGEST}"), &format!("{blob}?ns=r")] {
        assert_eq!(stand::body(&get(proxy, path, "")), "blob", "{path}");
    }
    assert_eq!(registry.asked().len(), 0, "a blob is fetched once, by whichever name");
    for (path, next) in [
        ("/v2/r/lib/a/tags/list", "</v2/r/lib/a/tags/list?last=b>"),
        ("/v2/lib/a/tags/list", "</v2/lib/a/tags/list?last=b>"),
        ("/v2/lib/a/tags/list?ns=r", "</v2/lib/a/tags/list?last=b>"),
    ] {
        let tags = get(proxy, path, "");
        assert!(tags.contains(next), "the next page is one of the same registry: {tags}");
    }
    let wrong = get(proxy, &format!("/v2/lib/a/blobs/{DIGEST_OF_PRIVATE}"), "");
    assert!(status(&wrong) == "502" && wrong.contains("larder: digest"), "storage gave another blob: {wrong}");
    registry.asked();
    assert_eq!(stand::body(&get(proxy, "/v2/lib/a/manifests/latest", "Accept: a/b\r\n")), "manifest");
    let asked = registry.asked();
    assert!(asked.len() == 1 && asked[0].contains("If-None-Match"), "a tag is validated: {asked:?}");
    assert_eq!(status(&get(proxy, "/v2/lib/a/manifests/latest", "Sec-Fetch-Site: cross-site\r\n")), "403");
    assert_eq!(registry.asked().len(), 0);
}

#[test]
fn a_registry_leads_no_client_from_elsewhere_to_a_closed_address() {
    let folder = tempfile::tempdir().unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    closed.set_nonblocking(true).unwrap();
    let secret = closed.local_addr().unwrap();
    let registry = Origin::new(move |path, _, _| match path.contains("/blobs/") {
        true => reply("307 Temporary Redirect", &format!("Location: http://{secret}/secret\r\n"), ""),
        false => {
            let challenge = format!("WWW-Authenticate: Bearer realm=\"http://{secret}/token\"\r\n");
            reply("401 Unauthorized", &challenge, "{}")
        }
    });
    let text = format!(
        "store = \"{}\"\nadmin = \"none\"\n[access]\ndestinations = [\"127.0.0.1\"]\n\
         [[listen]]\naddress = \"0.0.0.0:0\"\nmirror = \"all\"\n\
         [[mirror]]\nname = \"r\"\norigin = \"http://{}\"\nregistry = true\ncredentials = \"user:correct-horse\"\n",
        folder.path().join("store").display(),
        registry.address
    );
    let server = stand::server(folder.path(), &text);
    let proxy = SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port()));
    let blob = get(proxy, &format!("/v2/lib/a/blobs/{DIGEST}"), "");
    assert!(status(&blob) == "403" || status(&blob) == "502", "{blob}");
    assert_eq!(status(&get(proxy, "/v2/lib/a/manifests/latest", "")), "401");
    assert_eq!(registry.asked().len(), 2);
    assert!(closed.accept().is_err(), "a closed address was connected to");
}

#[test]
fn what_was_fetched_with_credentials_is_for_the_mirror_alone() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Origin::new(|_, head, _| match head.contains("Authorization: Basic dXNlcjpjb3JyZWN0LWhvcnNl") {
        true => reply("200 OK", "", "private blob"),
        false => reply("401 Unauthorized", "WWW-Authenticate: Basic realm=\"r\"\r\n", ""),
    });
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[mirror]]\nname = \"r\"\norigin = \"http://{}\"\nregistry = true\ncredentials = \"user:correct-horse\"\n",
        base(folder.path()).replace("admin = \"none\"", "admin = \"127.0.0.1:0\""),
        registry.address
    );
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    let path = format!("/v2/lib/a/blobs/{DIGEST_OF_PRIVATE}");
    for _ in 0..2 {
        assert_eq!(stand::body(&get(proxy, &path, "")), "private blob");
    }
    assert_eq!(registry.asked().len(), 2, "one that is refused, one with the credentials");
    let url = format!("http://{}{path}", registry.address);
    assert_eq!(status(&stand::get(proxy, &url)), "401", "the forward proxy has no credentials");
    assert_eq!(status(&get(proxy, &format!("/{url}"), "")), "401", "nor has the mirror for a URL");
    registry.asked();
    let admin = server.admin().unwrap();
    let purge = format!("POST /purge?url={url} HTTP/1.1\r\nHost: {admin}\r\nX-Larder: 1\r\nContent-Length: 0\r\n\r\n");
    let purged = stand::exchange(admin, &purge);
    assert!(stand::body(&purged).contains("\"count\":1"), "a purge of the URL means this answer too: {purged}");
    assert_eq!(stand::body(&get(proxy, &path, "")), "private blob");
    assert!(!registry.asked().is_empty());
}
