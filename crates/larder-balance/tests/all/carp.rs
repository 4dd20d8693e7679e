//! Which parent a URL goes to by CARP: this crate's choice against that of a real Squid before three parents.

use larder_balance::Carp;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes longer.
const WITHIN: Duration = Duration::from_secs(30);

/// A folder that is gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(number: u32) -> Folder {
        let path = std::env::temp_dir().join(format!("larder-carp-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Squid {
    child: Child,
    address: SocketAddr,
}

impl Drop for Squid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A parent that answers each request with its name.
fn parent(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&stream, name));
        }
    });
    address
}

fn serve(stream: &TcpStream, name: &str) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            lines.read_line(&mut head).ok().filter(|&read| read > 0)?;
        }
        let length = name.len();
        let answer = format!("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {length}\r\n\r\n{name}");
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn squid(folder: &Path, parents: &[(&'static str, u32)]) -> Squid {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir = folder.display();
    let mut text = format!(
        "http_port {address}\nhttp_access allow all\nnever_direct allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\n\
         cache_log {dir}/cache.log\npid_filename {dir}/pid\ncoredump_dir {dir}\nvisible_hostname child\ndns_nameservers 127.0.0.1\n\
         pinger_enable off\nshutdown_lifetime 0 seconds\n"
    );
    for (name, weight) in parents {
        let port = parent(name).port();
        text.push_str(&format!(
            "cache_peer 127.0.0.1 parent {port} 0 carp no-query no-digest name={name} weight={weight}\n"
        ));
    }
    std::fs::write(folder.join("squid.conf"), text).unwrap();
    let mut program = Command::new("squid");
    // Names of its shared memory hang on the service name, which another Squid of this machine may have.
    let child = program.args(["-N", "-n", &format!("carp{}", address.port()), "-f"]).arg(folder.join("squid.conf"));
    let child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut squid = Squid { child, address };
    let end = Instant::now() + WITHIN;
    while TcpStream::connect(address).is_err() {
        // Another program may have taken the port since.
        if squid.child.try_wait().is_ok_and(|ended| ended.is_some()) && Instant::now() + WITHIN / 2 < end {
            return self::squid(folder, parents);
        }
        assert!(
            Instant::now() < end,
            "Squid does not start: {}",
            std::fs::read_to_string(folder.join("cache.log")).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    squid
}

fn get(proxy: SocketAddr, url: &str) -> String {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let host = url.split('/').nth(2).unwrap();
    write!(stream, "GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{url}: {answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn each_url_goes_to_the_parent_to_which_squid_sends_it() {
    let found = Command::new("squid").arg("-v").output().is_ok_and(|found| found.status.success());
    if !found {
        let in_ci = std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "false" | "0"));
        assert!(!in_ci, "squid is not installed: .ci/run installs it");
        eprintln!("SKIPPED: squid is not installed");
        return;
    }
    for weights in [[1, 1, 1], [1, 2, 5]] {
        let names = ["first.example", "second.example", "third"];
        let parents: Vec<(&'static str, u32)> = names.into_iter().zip(weights).collect();
        let folder = Folder::new(weights[2]);
        let squid = squid(&folder.0, &parents);
        let carp = Carp::new(&parents);
        let mut counts = [0; 3];
        for number in 0..120 {
            let url = match number % 4 {
                0 => format!("http://a{number}.example/"),
                1 => format!("http://www.example:8080/files/{number}.deb?signature=%20{number}"),
                2 => format!("http://b.example/{}", "x".repeat(number)),
                _ => format!("http://192.0.2.{number}/{number}~a;b=c,d"),
            };
            let chosen = carp.order(&url)[0];
            assert_eq!(names[chosen], get(squid.address, &url), "{weights:?}: {url}");
            counts[chosen] += 1;
        }
        assert!(counts.iter().all(|count| *count > 0), "{weights:?}: all got some: {counts:?}");
    }
}
