//! The test on two small caches: one that keeps its files over a kill, one that begins empty.

use super::*;
use crate::contest::{EntrySpec, Post};

/// A cache in perl: files in its folder, sequential, 0.3 s until it listens.
const CACHE: &str = r#"
use strict; use IO::Socket::INET; my ($dir, $port, $origin, $forget) = @ARGV;
unlink glob("$dir/*") if $forget eq 'forget'; select undef, undef, undef, 0.3;
my @known = glob("$dir/*"); my $index = $forget eq 'late' && @known ? time + 3 : 0;
my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1) or die;
while (my $client = $listen->accept) {
  my ($head, $line) = ('', ''); while ($line = <$client>) { last if $line eq "\r\n"; $head .= $line }
  my ($path) = $head =~ m{^GET (/\S*)} or next; (my $name = $path) =~ s{/}{_}g; local $/ = undef;
  if (time >= $index and open my $file, '<', "$dir/$name") { print {$client} <$file>; }
  else { my $server = IO::Socket::INET->new(PeerAddr => $origin) or next; print $server "GET $path HTTP/1.1\r\nHost: x\r\n\r\n"; shutdown $server, 1;
    my $answer = <$server>; print $client $answer; open my $file, '>', "$dir/.new"; print $file $answer; close $file; rename "$dir/.new", "$dir/$name" }
  close $client; $/ = "\n";
}
"#;

const SOON: Duration = Duration::from_millis(100);
/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// `store` is `keep`, `forget` or `late`: the cache answers at once, and for three seconds does not know its files.
fn played(store: &str, settle: Duration, meas_max: Duration) -> Ledger {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "name = \"perl\"\nprogram = \"perl\"\nfolders = [\"store\"]\nstart = [\"@dir@/cache.pl\", \"@dir@/store\", \"@port@\", \"@origin@\", \"{store}\"]\n\
         [[file]]\npath = \"cache.pl\"\ntemplate = \"cache.pl\"\n[mode.reverse]\n[store.disk]\n"
    );
    std::fs::write(folder.path().join("entry.toml"), toml).unwrap();
    std::fs::write(folder.path().join("cache.pl"), CACHE).unwrap();
    let origin = Origin::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let post = Post {
        mode: "reverse".to_owned(),
        store: "disk".to_owned(),
        port: free,
        origin: origin.address(),
        memory_mb: 8,
        disk_mb: 8,
        cores: vec![],
        servers: crate::contest::Servers::default(),
        listener: crate::ledger::Listener::Http,
    };
    let entry = Prepared::new(EntrySpec::folder(folder.path()).unwrap(), post).unwrap();
    let settings = Settings {
        objects: 40,
        load: Duration::from_millis(300),
        dark: Duration::from_millis(200),
        meas_max,
        settle,
        ..Settings::default()
    };
    let subject = Subject { entry: &entry, running: None, forward: false, origin: &origin, label: "perl" };
    Means::with_kill(None, |means| outage(subject, means, &settings, &mut |_| {}))
}

#[test]
fn a_store_that_survives_gives_hits_soon_after_the_start() {
    let ledger = played("keep", SOON, LONG);
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    let found = &ledger.downtimes[0];
    let (accept, hit) = (found.first_accept_us.unwrap(), found.first_hit_us.unwrap());
    assert!(accept >= 280_000 && hit >= accept && hit < 3_000_000, "{found:?}");
    assert!(found.first_miss_us.is_some_and(|miss| miss >= accept), "{found:?}");
    assert_eq!((found.probed, found.kept, found.resolution_us), (20, 20, 10_000));
    assert!(found.dark_us >= 200_000);
    assert!(found.late_probed >= 5 && found.late_kept == found.late_probed && found.wrong == 0, "{found:?}");
    assert_eq!(ledger.phases.len(), 3);
    assert!(ledger.phase(0).class(crate::ledger::Class::Hit).replies >= 40);
    assert_eq!(ledger.phase(2).errors.total(), 0, "a refused connection is the test, not an error");
    let shown = crate::report::page(std::slice::from_ref(&ledger));
    assert!(shown.contains("first hit"));
}

#[test]
fn a_store_that_is_lost_gives_a_miss_and_no_object_kept() {
    let ledger = played("forget", SOON, Duration::from_secs(3));
    let found = &ledger.downtimes[0];
    assert!(found.first_miss_us.is_some() && found.first_hit_us.is_none(), "{found:?}");
    assert_eq!((found.kept, found.probed, found.late_kept), (0, 20, 0));
}

/// Squid reads the index of its store behind its first answers.
#[test]
fn a_store_that_learns_late_what_it_has_is_waited_for() {
    let found = &played("late", Duration::from_secs(8), LONG).downtimes[0];
    let (miss, hit) = (found.first_miss_us.unwrap(), found.first_hit_us.unwrap());
    assert!(miss < 2_500_000 && hit > miss, "{found:?}");
    assert!(
        found.resolution_us > 10_000,
        "few objects are left for later, and the time says how exact it is: {found:?}"
    );
    assert_eq!((found.probed, found.kept), (20, 20));
}

#[test]
fn probes_last_for_as_long_as_a_hit_is_waited_for() {
    let settings = Settings::default();
    for objects in [1, 20, 100, 1_000] {
        let growth = growth(&settings, objects);
        let (mut at, mut probes) = (0.0_f64, 0);
        while at < settings.meas_max.as_secs_f64() {
            (at, probes) = (at + (2.0 * settings.gap.as_secs_f64()).max(at * growth), probes + 1);
        }
        assert!(probes <= objects + 2, "{objects} objects, {probes} probes");
    }
}
