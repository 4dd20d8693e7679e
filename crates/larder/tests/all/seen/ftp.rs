//! The gateway to FTP: files, folders, logins and servers that lie, with a small server of the tests' own.

use super::stand;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server with a few files. It notes each command that it gets, the user in front.
struct FtpServer {
    address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
}

/// Lines of a folder, as a server sends them that wishes its readers ill.
const LINES: &str = "type=cdir; .\r\n\
    type=file;size=12;modify=20240501100000; plain.txt\r\n\
    type=dir; sub\r\n\
    type=file;size=1; <script>alert(1)</script>\r\n\
    type=file; ../outside\r\n\
    type=file; ..\r\n\
    type=file; javascript:alert(1)\r\n\
    type=file; a\u{7}b\r\n";

impl FtpServer {
    fn start() -> FtpServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let commands = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&commands);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || serve(&stream, &noted));
            }
        });
        FtpServer { address, commands }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    /// How often a command came that begins so.
    fn count(&self, beginning: &str) -> usize {
        self.commands.lock().unwrap().iter().filter(|command| command.starts_with(beginning)).count()
    }
}

/// The content of a file, and the bytes of it that are sent before the server gives up.
fn file(user: &str, name: &str) -> Option<(Vec<u8>, usize)> {
    let numbered = |len: u32| (0..len).flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let (content, sent) = match name {
        "pub/plain.txt" => (b"Hello, pear!".to_vec(), None),
        "pub/numbers.bin" | "pub/unsized.bin" => (numbered(100_000), None),
        "pub/broken.bin" | "pub/unsized-broken.bin" => (numbered(50_000), Some(70_000)),
        // The folder in which a login begins has files of its own.
        "of-login.txt" => (format!("for {user}").into_bytes(), None),
        "private.txt" if user == "joe" => (b"for joe".to_vec(), None),
        _ => return None,
    };
    let sent = sent.unwrap_or(content.len());
    Some((content, sent))
}

fn serve(stream: &TcpStream, noted: &Mutex<Vec<String>>) -> Option<()> {
    let say = |text: &str| (&*stream).write_all(format!("{text}\r\n").as_bytes()).ok();
    let (mut user, mut start, mut data) = (String::new(), 0, None::<TcpListener>);
    say("220-A server of tests\r\n220 ready")?;
    for line in BufReader::new(stream).lines() {
        let line = line.ok()?;
        noted.lock().unwrap().push(format!("{user} {line}"));
        let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "USER" => {
                user = rest.to_owned();
                say("331 and the password?")?;
            }
            "PASS" if user == "anonymous" || rest == "pear" => say("230 welcome")?,
            "PASS" => say("530 Login incorrect.")?,
            "TYPE" => say("200 as it is")?,
            "SIZE" if rest.starts_with("pub/unsized") => say("502 not here")?,
            "MDTM" if rest.starts_with("pub/unsized") => say("500 no such command")?,
            "SIZE" | "MDTM" => match file(&user, rest) {
                Some((content, _)) if command == "SIZE" => say(&format!("213 {}", content.len()))?,
                Some(_) => say("213 20240501100000")?,
                None => say("550 No such file.")?,
            },
            "CWD" if rest == "pub" => say("250 there you are")?,
            "CWD" => say("550 Permission denied.")?,
            "REST" => {
                start = rest.parse().ok()?;
                say("350 from there")?;
            }
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0").ok()?;
                let port = listener.local_addr().ok()?.port();
                data = Some(listener);
                // Another machine's address, so that it is asked in this one's place.
                say(&format!("227 Entering Passive Mode (192,0,2,9,{},{})", port / 256, port % 256))?;
            }
            "MLSD" => {
                say("150 here it comes")?;
                data.take()?.accept().ok()?.0.write_all(LINES.as_bytes()).ok()?;
                say("226 that was all")?;
            }
            "RETR" => match file(&user, rest) {
                Some((content, sent)) => {
                    let (mut to, _) = data.take()?.accept().ok()?;
                    say("150 here it comes")?;
                    let written = to.write_all(&content[std::mem::take(&mut start)..sent]);
                    drop(to);
                    say(if written.is_ok() && sent == content.len() { "226 that was all" } else { "426 broke off" })?;
                }
                None => say("550 No such file.")?,
            },
            "QUIT" => {
                say("221 good-bye")?;
                return None;
            }
            _ => say("502 what?")?,
        }
    }
    None
}

fn proxied(text: &str) -> (tempfile::TempDir, larder::server::Server, FtpServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), text);
    (folder, server, FtpServer::start())
}

fn with(proxy: SocketAddr, request: &str, fields: &str) -> String {
    stand::exchange(proxy, &format!("{request} HTTP/1.1\r\nHost: x\r\n{fields}Connection: close\r\n\r\n"))
}

#[test]
fn a_file_is_fetched_once_and_served_from_the_store() {
    let (_folder, server, ftp) = proxied("");
    let proxy = server.addresses()[0];
    let first = stand::get(proxy, &ftp.url("/pub/plain.txt"));
    assert!(first.starts_with("HTTP/1.1 200") && stand::body(&first) == "Hello, pear!", "{first}");
    for expected in ["Content-Type: text/plain", "Content-Length: 12", "Last-Modified: Wed, 01 May 2024 10:00:00 GMT"] {
        assert!(first.contains(expected), "{first}");
    }
    let again = stand::get(proxy, &ftp.url("/pub/plain.txt;type=i"));
    assert_eq!(stand::body(&again), "Hello, pear!");
    let hit = stand::get(proxy, &ftp.url("/pub/plain.txt"));
    assert!(hit.contains("Cache-Status: larder; hit") && stand::body(&hit) == "Hello, pear!", "{hit}");
    let head = with(proxy, &format!("HEAD {}", ftp.url("/pub/numbers.bin")), "");
    assert!(head.contains("Content-Length: 400000") && stand::body(&head).is_empty(), "{head}");
    let part = with(proxy, &format!("GET {}", ftp.url("/pub/numbers.bin")), "Range: bytes=399996-399999\r\n");
    assert!(part.starts_with("HTTP/1.1 206") && part.contains("Content-Range: bytes 399996-399999/400000"), "{part}");
    assert_eq!(ftp.count("anonymous RETR pub/plain.txt"), 2, "each URL once: {:?}", ftp.commands.lock().unwrap());
    let logins = ftp.count(" USER anonymous");
    assert!(logins <= 2, "a login of each worker serves all that come after it: {:#?}", ftp.commands.lock().unwrap());
    let unsized_file = stand::get(proxy, &ftp.url("/pub/unsized.bin"));
    assert!(unsized_file.starts_with("HTTP/1.1 200") && unsized_file.contains("Transfer-Encoding: chunked"));
}

#[test]
fn a_transfer_that_breaks_off_is_no_file() {
    let (_folder, server, ftp) = proxied("");
    for (path, gets) in [("/pub/broken.bin", "pub/broken.bin"), ("/pub/unsized-broken.bin", "pub/unsized-broken.bin")] {
        let first = stand::get(server.addresses()[0], &ftp.url(path));
        let is_whole = match first.contains("Transfer-Encoding: chunked") {
            true => first.ends_with("\r\n0\r\n\r\n"),
            false => !first.contains("Content-Length: 200000"),
        };
        assert!(!is_whole, "{path}: the client must see that it broke");
        let again = stand::get(server.addresses()[0], &ftp.url(path));
        assert!(!again.contains("larder; hit"), "{path}: {}", again.split("\r\n\r\n").next().unwrap());
        assert!(ftp.count(&format!("anonymous RETR {gets}")) >= 2, "{path}");
    }
}

#[test]
fn a_folder_is_a_page_on_which_no_name_does_harm() {
    let (_folder, server, ftp) = proxied("");
    let page = stand::get(server.addresses()[0], &ftp.url("/pub/"));
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("Content-Type: text/html"), "{page}");
    assert!(page.contains("<a href=\"./plain.txt\">plain.txt</a><td>12<td>2024-05-01"), "{page}");
    assert!(page.contains("<a href=\"./sub/\">sub/</a>") && page.contains("Content-Security-Policy"), "{page}");
    assert!(page.contains("href=\"./javascript%3Aalert%281%29\""), "{page}");
    assert!(!page.contains("<script") && !page.contains("outside") && !page.contains('\u{7}'), "{page}");
    assert!(page.contains("3 entries") || page.contains("4 entries"), "{page}");
    let moved = stand::get(server.addresses()[0], &ftp.url("/pub"));
    assert!(moved.starts_with("HTTP/1.1 301") && moved.contains("Location: pub/\r\n"), "{moved}");
}

#[test]
fn one_user_s_file_is_for_nobody_else() {
    let (_folder, server, ftp) = proxied("");
    let (proxy, url) = (server.addresses()[0], ftp.url("/private.txt"));
    // joe:pear, and joe:plum.
    let joe = with(proxy, &format!("GET {url}"), "Authorization: Basic am9lOnBlYXI=\r\n");
    assert!(joe.starts_with("HTTP/1.1 200") && stand::body(&joe) == "for joe", "{joe}");
    let nobody = stand::get(proxy, &url);
    assert!(nobody.starts_with("HTTP/1.1 404") && !nobody.contains("for joe"), "{nobody}");
    let wrong = with(proxy, &format!("GET {url}"), "Authorization: Basic am9lOnBsdW0=\r\n");
    assert!(wrong.starts_with("HTTP/1.1 401") && wrong.contains("WWW-Authenticate: Basic"), "{wrong}");
    assert!(!wrong.contains("for joe") && !wrong.contains("plum"), "{wrong}");
    let again = with(proxy, &format!("GET {url}"), "Authorization: Basic am9lOnBlYXI=\r\n");
    assert!(stand::body(&again) == "for joe" && again.contains("fwd="), "{again}");
    // Nor is the file of those who don't log in for those who do.
    let url = ftp.url("/of-login.txt");
    assert_eq!(stand::body(&stand::get(proxy, &url)), "for anonymous");
    let joe = with(proxy, &format!("GET {url}"), "Authorization: Basic am9lOnBlYXI=\r\n");
    assert_eq!(stand::body(&joe), "for joe", "{joe}");
    assert!(stand::get(proxy, &url).contains("larder; hit"));
}

#[test]
fn no_request_adds_a_command() {
    let (_folder, server, ftp) = proxied("");
    let proxy = server.addresses()[0];
    for path in ["/pub/a%0d%0aDELE%20b", "/pub/%0aDELE", "/pub/../private.txt", "/a%00"] {
        let answer = stand::get(proxy, &ftp.url(path));
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
    }
    // "joe\r\nDELE x:pear"
    let login = "Authorization: Basic am9lDQpERUxFIHg6cGVhcg==\r\n";
    let answer = with(proxy, &format!("GET {}", ftp.url("/pub/plain.txt")), login);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    for method in ["PUT", "DELETE", "POST"] {
        let answer = with(proxy, &format!("{method} {}", ftp.url("/pub/plain.txt")), "Content-Length: 0\r\n");
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("Allow: GET, HEAD"), "{method}: {answer}");
    }
    assert!(!ftp.commands.lock().unwrap().iter().any(|command| command.contains("DELE") || command.contains("STOR")));
    let named = stand::get(proxy, &format!("ftp://joe:pear@{}/private.txt", ftp.address));
    assert!(named.starts_with("HTTP/1.1 400") && named.contains("Authorization"), "{named}");
}

#[test]
fn rules_and_the_setting_close_it() {
    let (_folder, server, ftp) = proxied("[forward]\nftp = false\n");
    let off = stand::get(server.addresses()[0], &ftp.url("/pub/plain.txt"));
    assert!(off.starts_with("HTTP/1.1 403") && off.contains("forward.ftp"), "{off}");
    let (_folder, server, ftp) =
        proxied("[[rule]]\nname = \"old\"\nwhen = { scheme = \"ftp\" }\ndo = { deny = true }\n");
    let denied = stand::get(server.addresses()[0], &ftp.url("/pub/plain.txt"));
    assert!(denied.starts_with("HTTP/1.1 403") && denied.contains("old"), "{denied}");
    assert!(ftp.commands.lock().unwrap().is_empty());
    // A site has the scheme of its connection.
    let host = ftp.address;
    let text = format!("[[site]]\nhosts = [\"shop.example\"]\norigin = \"http://{host}\"\n");
    let (_folder, server, _ftp) = proxied(&text);
    let site = stand::get(server.addresses()[0], "ftp://shop.example/pub/plain.txt");
    assert!(site.starts_with("HTTP/1.1 421"), "{site}");
}
