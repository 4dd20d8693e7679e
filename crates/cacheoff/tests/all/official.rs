//! The official sequence from its command line to its report, scaled to some seconds, with a small cache as the entry.

use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// The longest that the sequence may take.
const BOUND: Duration = Duration::from_secs(150);

/// A forward proxy with a cache in perl: a process per connection, a file per object, nothing kept alive.
const CACHE: &str = r#"
use strict; use IO::Socket::INET; use Digest::MD5 qw(md5_hex); my ($dir, $port) = @ARGV; $SIG{CHLD} = 'IGNORE';
my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 512, ReuseAddr => 1) or die;
while (1) {
  my $client = $listen->accept or next; my $child = fork; if (!defined $child || $child) { close $client; next }
  my ($head, $line) = ('', ''); while ($line = <$client>) { last if $line eq "\r\n"; $head .= $line }
  $head =~ m{^(\w+) http://([^/\s]+)(\S*) (\S+)\r\n} or do { print {$client} "HTTP/1.0 400 Bad\r\nContent-Length: 0\r\n\r\n"; exit };
  my ($method, $host, $path) = ($1, $2, $3); my $name = "$dir/" . md5_hex("$host$path"); local $/ = undef;
  if ($method eq 'GET' and open my $file, '<', $name) { print {$client} <$file>; exit }
  my $server = IO::Socket::INET->new(PeerAddr => $host) or exit;
  $head =~ s{^\w+ \S+ \S+\r\n}{}; $head =~ s{^(Connection|Proxy-Connection|Keep-Alive):.*\r\n}{}mgi;
  print $server "$method $path HTTP/1.1\r\n${head}Connection: close\r\n\r\n"; my ($fields, $answer) = ('', '');
  { local $/ = "\n"; while ($line = <$server>) { last if $line eq "\r\n"; $fields .= $line } }
  my ($length) = $fields =~ m{^content-length: *(\d+)}mi; if (defined $length) { read $server, $answer, $length } else { $answer = <$server> }
  $answer = "$fields\r\n$answer";
print {$client} $answer;
  my $whole = defined $length && length($answer) == length($fields) + 2 + $length;
  if ($whole and $method eq 'GET' and $fields =~ m{^HTTP/1.. 200} and $fields =~ m{^cache-control:.*public}mi and $fields !~ m{^cache-control:.*max-age=1\r}mi) {
    open my $file, '>', "$name.$$"; print $file $answer; close $file; rename "$name.$$", $name }
  exit;
}
"#;

/// A port below those that the system gives to clients: nobody takes it between two stages of a run.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 10;
    let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 5_000);
    ports.take(5_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

/// An entry in this folder: the cache in perl.
pub fn entry(folder: &Path) {
    let toml = "name = \"perl\"\nproduct = \"A cache in perl\"\nprogram = \"perl\"\nversion = [\"-v\"]\nfolders = [\"store\"]\n\
                price = 1000.0\ncurrency = \"USD\"\nwatts = 20.0\nnotes = [\"for a test\"]\n\
                start = [\"@dir@/cache.pl\", \"@dir@/store\", \"@port@\"]\n\
                [[file]]\npath = \"cache.pl\"\ntemplate = \"cache.pl\"\n[mode.forward]\n[store.disk]\n";
    std::fs::write(folder.join("entry.toml"), toml).unwrap();
    std::fs::write(folder.join("cache.pl"), CACHE).unwrap();
    std::fs::write(folder.join("comments.txt"), "We are small & slow.\n").unwrap();
}

/// Runs the command to its end: whether it succeeded, and all that it said.
pub fn bounded(mut command: Command) -> (bool, String) {
    let out = tempfile::tempfile().unwrap();
    let mut child =
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out.try_clone().unwrap()).spawn().unwrap();
    let begun = Instant::now();
    let said = || {
        use std::io::{Read, Seek};
        let mut text = Vec::new();
        let mut out = &out;
        out.rewind().and_then(|()| out.read_to_end(&mut text)).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    };
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (status.success(), said());
        }
        if begun.elapsed() > BOUND {
            // In order, so that no cache is left behind.
            kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
            let _ = child.wait();
            panic!("it takes longer than {BOUND:?}: {}", said());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn one_cache_lives_through_the_whole_sequence_and_the_report_says_so() {
    let folder = tempfile::tempdir().unwrap();
    entry(folder.path());
    let (port, origin_port) = (free_port(), free_port());
    let path = |name: &str| folder.path().join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cacheoff"));
    command.args([
        "official",
        "--peak",
        "8",
        "--scale",
        "0.00025",
        "--time-wait-s",
        "1",
        "--ceiling-s",
        "1",
        "--kill-load-s",
        "1",
    ]);
    command.args(["--disk-mb", "1", "--memory-mb", "1", "--fill-peak", "30", "--port", &port.to_string()]);
    command.args(["--origin-port", &origin_port.to_string(), "--entries", ""]);
    command.arg("--entry").arg(folder.path()).arg("--folder").arg(path("out"));
    command.arg("--html").arg(path("report.html")).arg("--csv").arg(path("report.csv")).args(["--repeats", "1"]);
    // Another process takes a core: the first life is ended by it, the second one counts as it is.
    let mut noise = Command::new("perl").args(["-e", "$i++ while $i < 1e12"]).spawn().unwrap();
    let (fine, said) = bounded(command);
    noise.kill().and_then(|()| noise.wait()).unwrap();
    // So few requests may miss the hit ratio that PolyMix-2 asks for.
    assert!((fine || said.contains("the hit ratio is")) && !said.contains("could not go on"), "{said}");
    assert!(said.contains("perl: the cache holds ") && said.contains(" h ("), "{said}");
    for name in ["1-ceiling", "2-no-proxy", "3-perl-1-time-wait", "3-perl-2-fill", "3-perl-3-load", "3-perl-4-kill"] {
        assert!(path("out").join(format!("{name}.ledger")).exists(), "{name}: {said}");
    }
    assert!(said.contains("perl lives anew: noisy: "), "{said}");
    assert!(
        path("out").join("3-perl-2-fill.spoilt-1").exists() && !path("out").join("3-perl-2-fill.spoilt-2").exists()
    );
    let page = std::fs::read_to_string(path("report.html")).unwrap();
    assert!(page.contains("played again, because the play before was not valid: noisy"), "no word of the first life");
    for part in
        ["replies/s per watt", "We are small &amp; slow.", "no result of the standard", "first hit after a kill"]
    {
        assert!(page.contains(part), "{part}");
    }
    // The process that is killed at the end is the one that was filled.
    let lives: Vec<&str> =
        page.split("the cache is process ").skip(1).filter_map(|rest| rest.split(',').next()).collect();
    assert!(lives.len() >= 3 && lives.iter().all(|process| *process == lives[0]), "{lives:?}");
    let rows = std::fs::read_to_string(path("report.csv")).unwrap();
    let load = rows.lines().find(|line| line.contains("polymix-2") && line.contains("perl"));
    assert!(load.is_some(), "{rows}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "the cache is gone");
    // Reports can be made again from the ledgers.
    let mut again = Command::new(env!("CARGO_BIN_EXE_cacheoff"));
    again.arg("report").arg(path("out")).arg("--html").arg(path("again.html"));
    assert!(bounded(again).0);
    assert!(std::fs::read_to_string(path("again.html")).unwrap().contains("Idle against busy"));
}
