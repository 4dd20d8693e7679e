//! Transparent listeners between real machines: three network namespaces (a client, the cache, an origin) with rules of the kernel as
//! `larder intercept --print` shows them. Only root may make such namespaces; elsewhere nothing is tested, and that is said.

use larder::config::Loaded;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// A namespace of networks and mounts, which lives as long as a process in it.
struct Machine(Child);

impl Machine {
    /// `None`: such a namespace can't be made here.
    fn new() -> Option<Machine> {
        let child = Command::new("unshare").args(["-n", "-m", "sleep", "300"]).spawn().ok()?;
        let machine = Machine(child);
        let own = fs::read_link("/proc/self/ns/net").ok()?;
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            let of_machine = fs::read_link(format!("/proc/{}/ns/net", machine.pid())).ok()?;
            if of_machine != own {
                return machine.try_run("ip link set lo up").then_some(machine);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid().to_string(), "-n", "-m", program]);
        command
    }

    fn try_run(&self, line: &str) -> bool {
        self.command("sh").args(["-ec", line]).status().is_ok_and(|status| status.success())
    }

    fn run(&self, lines: &str) {
        assert!(self.try_run(lines), "{lines}");
    }

    /// The end and the output of curl.
    fn curl(&self, args: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } =
            self.command("curl").args(["-s", "-i", "--max-time", "10"]).args(args).output().unwrap();
        let text = [stdout, stderr].concat();
        (status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client, the cache and the origin.
struct Network {
    client: Machine,
    cache: Machine,
    origin: Machine,
}

/// The addresses of the origin: the first of each family is that of its name, the second is a stranger to the name.
const ADDRESSES: [[&str; 2]; 2] = [["10.77.2.2", "10.77.2.3"], ["fd77:2::2", "fd77:2::3"]];

impl Network {
    fn new(folder: &Path) -> Option<Network> {
        let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !["nft", "ip", "curl", "python3", "openssl"].into_iter().all(has) {
            return None;
        }
        let network = Network { client: Machine::new()?, cache: Machine::new()?, origin: Machine::new()? };
        let Network { client, cache, origin } = &network;
        let links = format!(
            "ip link add lan0 type veth peer name eth0 netns {}\nip link add wan0 type veth peer name eth0 netns {}",
            client.pid(),
            origin.pid()
        );
        if !cache.try_run(&links) || !cache.try_run("nft add table inet probe && nft delete table inet probe") {
            return None;
        }
        cache.run(
            "ip addr add 10.77.1.1/24 dev lan0; ip addr add fd77:1::1/64 dev lan0 nodad; ip link set lan0 up
             ip addr add 10.77.2.1/24 dev wan0; ip addr add fd77:2::1/64 dev wan0 nodad; ip link set wan0 up",
        );
        client.run(
            "ip addr add 10.77.1.2/24 dev eth0; ip addr add fd77:1::2/64 dev eth0 nodad; ip link set eth0 up
             ip route add default via 10.77.1.1; ip -6 route add default via fd77:1::1",
        );
        origin.run(
            "for n in 2 3; do ip addr add 10.77.2.$n/24 dev eth0; ip addr add fd77:2::$n/64 dev eth0 nodad; done; ip link set eth0 up",
        );
        let hosts = folder.join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n10.77.2.2 site.test\nfd77:2::2 site.test\n").unwrap();
        cache.run(&format!("mount --bind {} /etc/hosts", hosts.display()));
        Some(network)
    }

    /// Starts the origin with a certificate for site.test, which lies in the folder.
    fn start_origin(&self, folder: &Path) -> Program {
        let make = format!(
            "cd {} && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout key.pem \
             -out cert.pem -subj /CN=site.test -addext subjectAltName=DNS:site.test -addext basicConstraints=critical,CA:FALSE 2>/dev/null && cat key.pem cert.pem > both.pem",
            folder.display()
        );
        self.origin.run(&make);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/transparent/origin.py");
        let mut command = self.origin.command("python3");
        let mut child = command.arg(script).arg(folder.join("both.pem")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Program(child)
    }

    /// Starts the cache with this listener and the rules that it prints, and waits until it serves.
    fn start_cache(&self, folder: &Path, listen: &str) -> Program {
        let config = folder.join("larder.toml");
        let text = format!(
            "admin = \"none\"\nworkers = 2\nstore = {store:?}\n[[listen]]\naddress = \"[::]:3128\"\n{listen}\n\
             [timeouts]\nhead = \"2s\"\n[upstream]\nextra_roots = [{root:?}]\n\
             [log]\nto = {log:?}\nformat = \"{{method}} {{url}} {{status}} {{outcome}}\"\n",
            store = folder.join("store"),
            root = folder.join("cert.pem"),
            log = folder.join("log"),
        );
        fs::write(&config, text).unwrap();
        let printed = Command::new(LARDER).args(["intercept", "--print", "--config"]).arg(&config).output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        let rules = folder.join("rules.nft");
        fs::write(&rules, &printed.stdout).unwrap();
        // The routes stand there as comments, ready to be copied.
        let printed = String::from_utf8(printed.stdout).unwrap();
        for route in printed.lines().filter_map(|line| line.strip_prefix("#   ")) {
            self.cache.run(route);
        }
        self.cache.run(&format!("nft -f {}", rules.display()));
        let said = File::create(folder.join("said")).unwrap();
        let mut command = self.cache.command(LARDER);
        let program = Program(command.arg("--config").arg(&config).stderr(said).spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        while self.client.curl(&["--max-time", "1", "http://10.77.2.2/ready"]).0 != 0 {
            let said = || fs::read_to_string(folder.join("said")).unwrap();
            assert!(Instant::now() < end, "{}\n{}", printed, said());
        }
        program
    }

    /// Asks for a URL of site.test at this address of the origin.
    fn get(&self, url: &str, address: &str, more: &[&str]) -> (i32, String) {
        let port = if url.starts_with("https") { 443 } else { 80 };
        let bracketed = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let resolve = format!("site.test:{port}:{bracketed}");
        self.client.curl(&[&["--resolve", &resolve, url][..], more].concat())
    }

    /// The end of TLS that begins in this way.
    fn begin_tls(&self, how: &str, address: &str) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/transparent/hello.py");
        let output = self.client.command("python3").args([script, how, address]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

/// Requests by plain HTTP, which are the same in both ways.
fn check_http(network: &Network) {
    for [address, stranger] in ADDRESSES {
        let url = |path: &str| format!("http://site.test/{path}/{address}");
        let (_, first) = network.get(&url("a"), address, &[]);
        assert!(
            first.contains(&format!("site.test /a/{address}"))
                && first.contains("fwd=uri-miss; fwd-status=200; stored"),
            "{first}"
        );
        let (_, second) = network.get(&url("a"), address, &[]);
        assert!(second.contains("Cache-Status: larder; hit"), "{second}");
        // A name that does not lead to the address: the address is asked, and nobody else gets its answer.
        for _ in 0..2 {
            let (_, spoofed) = network.get(&url("b"), stranger, &[]);
            assert!(spoofed.contains(&format!("{stranger} site.test /b/")), "{spoofed}");
            assert!(spoofed.contains("fwd=bypass") && !spoofed.contains("stored"), "{spoofed}");
        }
        let (_, honest) = network.get(&url("b"), address, &[]);
        assert!(honest.contains("fwd=uri-miss") && !honest.contains(stranger), "{honest}");
        // It gets nothing either of what is stored for the name.
        let (_, spoofed) = network.get(&url("a"), stranger, &[]);
        assert!(spoofed.contains(&format!("{stranger} site.test /a/")), "{spoofed}");
        let (_, unnamed) = network.client.curl(&[
            "-H",
            "Host: nowhere.test",
            &format!("http://site.test/c/{address}"),
            "--connect-to",
            &format!("::{}:80", in_url(address)),
        ]);
        assert!(unnamed.contains("nowhere.test /c/") && unnamed.contains("fwd=bypass"), "{unnamed}");
    }
    // An address that is closed to the clients of a proxy is closed here too, whatever the host.
    let (_, closed) = network.get("http://site.test/", "169.254.169.254", &[]);
    assert!(closed.starts_with("HTTP/1.1 403") && closed.contains("out-of-reach"), "{closed}");
    let (_, connect) = network.client.curl(&["-x", "http://10.77.2.2:80", "-p", "http://site.test:25/"]);
    assert!(connect.contains("connect-transparent"), "{connect}");
    // Nothing was to be intercepted here: Larder itself was meant.
    let (end, direct) = network.client.curl(&["http://10.77.1.1:3128/"]);
    assert!(end != 0 && direct.is_empty(), "{end} {direct}");
}

fn in_url(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

fn stage() -> Option<(tempfile::TempDir, Network, Program)> {
    let folder = tempfile::tempdir().unwrap();
    let Some(network) = Network::new(folder.path()) else {
        eprintln!("no network namespaces can be made here");
        return None;
    };
    let origin = network.start_origin(folder.path());
    Some((folder, network, origin))
}

#[test]
fn redirect_brings_http_and_tls_that_stays_closed() {
    let Some((folder, network, _origin)) = stage() else { return };
    let folder = folder.path();
    let _cache = network.start_cache(folder, "transparent = \"redirect\"");
    check_http(&network);
    let root = folder.join("cert.pem");
    let root = ["--cacert", root.to_str().unwrap()];
    for [address, stranger] in ADDRESSES {
        // The origin's own certificate is seen, and so is the address that was connected to.
        for to in [address, stranger] {
            let (_, passed) = network.get("https://site.test/d", to, &root);
            assert!(passed.contains(&format!("{to} site.test /d")) && !passed.contains("Cache-Status"), "{passed}");
        }
        let (_, unnamed) = network.client.curl(&["-k", &format!("https://{}/e", in_url(address))]);
        assert!(unnamed.contains(&format!("{address} ")), "{unnamed}");
        assert_eq!(network.begin_tls("pieces", address), "HTTP/1.1 200 OK\n");
        assert_eq!(network.begin_tls("endless", address), "closed\n");
        assert_eq!(network.begin_tls("half", address), "closed\n");
    }
    let log = fs::read_to_string(folder.join("log")).unwrap();
    assert!(log.contains("CONNECT site.test:443 200 tunnel"), "{log}");
    assert!(log.contains("transparent-loop") && log.contains("transparent-tls"), "{log}");
}

#[test]
fn tproxy_brings_http_and_tls_that_is_opened() {
    let Some((folder, network, _origin)) = stage() else { return };
    let folder = folder.path();
    let _cache = network.start_cache(folder, "transparent = \"tproxy\"\nintercept = true");
    check_http(&network);
    let output =
        Command::new(LARDER).args(["ca", "--pem", "--config"]).arg(folder.join("larder.toml")).output().unwrap();
    let root = folder.join("ca.pem");
    fs::write(&root, &output.stdout).unwrap();
    let root = ["--cacert", root.to_str().unwrap()];
    for [address, stranger] in ADDRESSES {
        let url = |path: &str| format!("https://site.test/{path}/{address}");
        let (_, first) = network.get(&url("a"), address, &root);
        assert!(first.contains("site.test /a/") && first.contains("fwd=uri-miss"), "{first}");
        let (_, second) = network.get(&url("a"), address, &root);
        // Inside the tunnel curl speaks HTTP/2, whose names are in lower case.
        assert!(second.to_lowercase().contains("cache-status: larder; hit"), "{second}");
        // The certificate of a stranger is held against the name, and the answer is not stored.
        let (_, spoofed) = network.get(&url("b"), stranger, &root);
        assert!(spoofed.contains(&format!("{stranger} site.test /b/")) && spoofed.contains("fwd=bypass"), "{spoofed}");
        assert_eq!(network.begin_tls("pieces", address), "HTTP/1.1 200 OK\n");
    }
}

#[test]
fn a_transparent_listener_is_no_server_of_its_own() {
    let text = |more: &str| format!("[[listen]]\naddress = \"[::]:3129\"\ntransparent = \"redirect\"\n{more}");
    for good in ["", "forward = true", "intercept = true", "mirror = \"none\""] {
        assert!(Loaded::parse("larder.toml", &text(good), &[]).is_ok(), "{good}");
    }
    for (bad, named) in [
        ("forward = false", "`forward`"),
        ("origin = \"http://127.0.0.1:9000\"", "`origin`"),
        ("mirror = \"all\"", "`mirror`"),
        ("proxy_protocol = [\"10.0.0.0/8\"]", "`proxy_protocol`"),
        ("[[listen.tls]]\nchain = \"c.pem\"\nkey = \"k.pem\"", "`tls`"),
    ] {
        let report = Loaded::parse("larder.toml", &text(bad), &[]).err().map(|report| report.to_string());
        let report = report.unwrap_or_default();
        assert!(report.contains("transparent listener") && report.contains(named), "{bad}: {report}");
    }
}

#[test]
fn rules_are_printed_for_each_transparent_listener() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    let print = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let output =
            Command::new(LARDER).args(["intercept", "--print", "--config"]).arg(&file).args(more).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let both = "[[listen]]\naddress = \"0.0.0.0:3129\"\ntransparent = \"redirect\"\n\
                [[listen]]\naddress = \"[::1]:3130\"\ntransparent = \"tproxy\"\n";
    let (end, rules) = print(both, &["--interface", "br-lan", "--port", "80"]);
    assert_eq!(end, Some(0), "{rules}");
    for line in [
        "        meta nfproto ipv4 iifname \"br-lan\" tcp dport { 80 } redirect to :3129\n",
        "        meta nfproto ipv6 iifname \"br-lan\" tcp dport { 80 } tproxy ip6 to [::1]:3130 meta mark set 0x1a accept\n",
        "#   ip -6 route add local ::/0 dev lo table 26\n",
    ] {
        assert!(rules.contains(line), "{rules}");
    }
    assert!(!rules.contains("nfproto ipv6 iifname \"br-lan\" tcp dport { 80 } redirect"), "{rules}");
    let (end, said) = print("[[listen]]\naddress = \"127.0.0.1:3128\"\n", &[]);
    assert!(end == Some(2) && said.contains("no listener is transparent"), "{said}");
    let (end, said) = print(both, &["--interface", "x\" drop"]);
    assert!(end == Some(2) && said.contains("no name of an interface"), "{said}");
}
