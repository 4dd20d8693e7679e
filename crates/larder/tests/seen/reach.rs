//! Who may reach what through the forward proxy.

use crate::admin::status;
use crate::reload::{Steered, base};
use crate::stand;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

fn connect(proxy: SocketAddr, to: &str) -> String {
    stand::exchange(proxy, &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n"))
}

/// A client whose connection stays.
struct Kept(TcpStream);

impl Kept {
    fn to(proxy: SocketAddr) -> Kept {
        let stream = TcpStream::connect(proxy).unwrap();
        stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
        Kept(stream)
    }

    /// The head of the answer to a GET in absolute form.
    fn get(&mut self, url: &str) -> String {
        let host = url.split('/').nth(2).unwrap();
        write!(self.0, "GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && self.0.read(&mut byte).unwrap_or(0) > 0 {
            answer.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&answer).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap_or("0");
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        head
    }
}

#[test]
fn a_server_of_sites_is_no_forward_proxy_unless_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin();
    let site = format!("[[site]]\nhosts = [\"a.example\"]\norigin = \"http://{origin}\"\n");
    let settings = |forward: &str, site: &str| {
        format!("{}[[listen]]\naddress = \"127.0.0.1:0\"\n{forward}{site}", base(folder.path()))
    };
    let steered = Steered::start(folder.path(), &settings("", ""));
    let proxy = steered.server.addresses()[0];
    let elsewhere = format!("http://{origin}/fresh");
    let mut kept = Kept::to(proxy);
    // Asked often enough that the judgement is remembered.
    (0..4).for_each(|_| assert_eq!(status(&kept.get(&elsewhere)), "200"));
    let cases = [("", &*site, "403"), ("forward = true\n", &site, "200"), ("forward = false\n", "", "403")];
    for (forward, site, wanted) in cases {
        steered.reload(&settings(forward, site)).unwrap();
        (0..4).for_each(|_| assert_eq!(status(&kept.get(&elsewhere)), wanted, "{forward:?} {site:?}, kept"));
        assert_eq!(status(&stand::get(proxy, &elsewhere)), wanted, "{forward:?} {site:?}");
        let tunnel = connect(proxy, &origin.to_string());
        assert_eq!(status(&tunnel), wanted, "{forward:?} {site:?}, CONNECT");
    }
    steered.reload(&settings("", &site)).unwrap();
    assert_eq!(status(&stand::get(proxy, "http://a.example/fresh")), "200", "a site is served, however it is asked");
    let refused = stand::get(proxy, &elsewhere);
    assert!(refused.contains("forward-off") && refused.contains("forward = true"), "{refused}");
    let unknown = stand::exchange(proxy, "GET /fresh HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n");
    assert!(status(&unknown) == "404" && !unknown.contains("curl -x"), "{unknown}");
}
