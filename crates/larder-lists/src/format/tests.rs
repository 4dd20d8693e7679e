//! Lines as published lists have them, and what is read of them.

use super::*;
use proptest::prelude::*;

/// The entries of a text, in words: `+` covers, `-` excepts, `=` one name, `*` names below, `.` a name with those below.
fn read(part: Part, text: &str) -> Vec<String> {
    let mut parser = LineParser::new(part, NameReach::Exact);
    let mut out = Vec::new();
    for line in text.lines() {
        let mut entries = Vec::new();
        let verdict = parser.line(line.as_bytes(), &mut |side, entry| entries.push(shown(side, &entry)));
        match verdict {
            Verdict::Taken => out.extend(entries),
            Verdict::Nothing => assert!(entries.is_empty(), "{line}"),
            Verdict::LeftOut => out.push("left out".to_owned()),
            Verdict::Malformed(why) => out.push(format!("malformed: {why}")),
        }
    }
    out
}

fn shown(side: Side, entry: &Entry) -> String {
    let side = if side == Side::Covers { '+' } else { '-' };
    match entry {
        Entry::Name(name, NameReach::Exact) => format!("{side}={name:?}"),
        Entry::Name(name, NameReach::Below) => format!("{side}*{name:?}"),
        Entry::Name(name, NameReach::Tree) => format!("{side}.{name:?}"),
        Entry::Url(url) => format!("{side}/{}", String::from_utf8_lossy(url)),
        Entry::Addresses(range) if range.first() == range.last() => format!("{side}{}", range.first()),
        Entry::Addresses(range) => format!("{side}{}..{}", range.first(), range.last()),
        Entry::Filter(text, _) => format!("{side}!{text}"),
        Entry::Expression(text) => format!("{side}~{text}"),
    }
}

const HOSTS: &str = "\
# Title: hosts of advertisements
127.0.0.1 localhost
127.0.0.1 localhost.localdomain
255.255.255.255 broadcasthost
::1 ip6-loopback
fe80::1%lo0 localhost
0.0.0.0 0.0.0.0

0.0.0.0 Ads.Example.com # tracks
127.0.0.1\ttracker.example  metrics.example
:: v6.example
192.0.2.1 printer.example
0.0.0.0 bad/name
ads.example
0.0.0.0
";

const DOMAINS: &str = "\
# one a line
! or so
; or so
ads.example
.doubleclick.example
*.Tracker.Example
bücher.example
198.51.100.7
2001:db8::/32
10.1.0.0/16
ads2.example # why
<p>ads.example</p>
two words.example
com
.zip
face.b00c
";

const URLS: &str = "\
# harmful downloads
http://malware.example/bin.sh
https://www.example.com:8443/Ads/?Banner=1
203.0.113.9/x/y
http://203.0.113.10:8080/
http://[2001:DB8:0::1]:80/x
[2001:db8:0:0:0:0:0:1]
forum.example/hacks/
host.example
http://www.evil.example/
bücher.example
/no-host
two words/x
";

const NETWORKS: &str = "\
; a list of networks
192.0.2.0/24 ; SBL1
198.51.100.7
203.0.113.5-203.0.113.9
2001:db8::/32 # six
ads.example
";

const ADBLOCK: &str = "\
[Adblock Plus 2.0]
! Title: filters
||ads.example^
||tracker.example^$third-party
||cdn.example^$script,domain=news.example
@@||good.ads.example^
@@||login.example^$document
||example.com/banner/*
/adserver/*
example.com##.banner
example.com#@#.banner
##.ad-box
|https://ads.example/
0.0.0.0 hosts.example
||*.wild.example^
||com^
||xn--bcher-kva.example^$important
~x.example$$script
";

const ZONE: &str = "\
$TTL 300
$ORIGIN rpz.example.
@ IN SOA localhost. root.localhost. (
  2024010101 ; serial
  3600 600 86400 300 )
  IN NS localhost.
bad.example CNAME .
*.bad.example 60 IN CNAME .
sink.example.rpz.example. CNAME *.
local.example A 192.0.2.1
good.bad.example CNAME rpz-passthru.
24.0.2.0.192.rpz-ip CNAME .
128.1.zz.db8.2001.rpz-ip CNAME rpz-drop.
32.5.2.0.192.rpz-client-ip CNAME .
ns.example.rpz-nsdname CNAME .
odd.example WKS x
lone.example
";

/// Each line of `wanted` is an entry, or the outcome of a line without one.
fn check(part: Part, text: &str, wanted: &str) {
    let wanted: Vec<&str> = wanted.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(read(part, text), wanted, "{part:?}");
}

#[test]
fn hosts_files() {
    let wanted = "
        left out
        left out
        left out
        left out
        left out
        left out
        +=ads.example.com
        +=tracker.example
        +=metrics.example
        +=v6.example
        left out
        malformed: a word behind the address is no name
        malformed: it does not begin with an address
        malformed: no name stands behind the address";
    check(Part::Whole(Format::Hosts), HOSTS, wanted);
}

/// `dev` is a host of a local network in such a file, and a top-level domain elsewhere.
#[test]
fn a_single_label_of_a_hosts_file_covers_nothing_below_it() {
    let mut parser = LineParser::new(Part::Whole(Format::Hosts), NameReach::Tree);
    let mut out = Vec::new();
    parser.line(b"127.0.0.1 dev ads.example", &mut |side, entry| out.push(shown(side, &entry)));
    assert_eq!(out, ["+=dev", "+.ads.example"]);
}

#[test]
fn names_a_line() {
    let wanted = "
        +=ads.example
        +.doubleclick.example
        +.tracker.example
        +=xn--bcher-kva.example
        +198.51.100.7
        +2001:db8::..2001:db8:ffff:ffff:ffff:ffff:ffff:ffff
        +10.1.0.0..10.1.255.255
        +=ads2.example
        malformed: it is no name and no address
        malformed: it is no name and no address
        +=com
        +.zip
        +=face.b00c";
    check(Part::Whole(Format::Domains), DOMAINS, wanted);
}

#[test]
fn folders_of_squidguard() {
    let wanted = "
        +.ads.example
        +.x.example
        malformed: it would cover a whole top-level domain; a dot in front of it says that this is meant
        +.com
        +192.0.2.1";
    check(Part::Domains, "ads.example\n.x.example\ncom\n.com\n192.0.2.1\n", wanted);
    let expression = "(^|[-.?+=/_0-9])(casino|poker)[0-9]*\\.";
    check(Part::Expressions, &format!("# adult\n{expression}\n\n"), &format!("+~{expression}"));
}

#[test]
fn urls_a_line() {
    let wanted = "
        +/malware.example/bin.sh
        +/example.com/ads?banner=1
        +/203.0.113.9/x/y
        +203.0.113.10
        +/203.0.113.10
        +/[2001:db8::1]/x
        +2001:db8::1
        +/[2001:db8::1]
        +/forum.example/hacks
        +=host.example
        +=www.host.example
        +/host.example
        +=evil.example
        +=www.evil.example
        +/evil.example
        +=xn--bcher-kva.example
        +=www.xn--bcher-kva.example
        +/xn--bcher-kva.example
        malformed: it has no host
        malformed: a URL has no blanks";
    check(Part::Urls, URLS, wanted);
    check(Part::Whole(Format::Urls), URLS, wanted);
}

#[test]
fn networks_a_line() {
    let wanted = "
        +192.0.2.0..192.0.2.255
        +198.51.100.7
        +203.0.113.5..203.0.113.9
        +2001:db8::..2001:db8:ffff:ffff:ffff:ffff:ffff:ffff
        malformed: it is no address, network or range";
    check(Part::Whole(Format::Networks), NETWORKS, wanted);
}

/// Without the engine, which takes those that are left out here.
#[cfg(not(feature = "adblock"))]
#[test]
fn filters_of_web_browsers() {
    let wanted = "
        +.ads.example
        +.tracker.example
        left out
        -.good.ads.example
        -.login.example
        left out
        left out
        left out
        left out
        left out
        left out
        +=hosts.example
        +.wild.example
        +.com
        +.xn--bcher-kva.example
        left out";
    check(Part::Whole(Format::Adblock), ADBLOCK, wanted);
}

#[test]
fn response_policy_zones() {
    let wanted = "
        +=bad.example
        +*bad.example
        +=sink.example
        +=local.example
        -=good.bad.example
        +192.0.2.0..192.0.2.255
        +2001:db8::1
        left out
        left out
        malformed: its type is none of a policy
        malformed: a record has a name, a type and data";
    check(Part::Whole(Format::Rpz), ZONE, wanted);
}

/// As a transfer of a zone (`dig axfr`) shows it: all owners are absolute, and no `$ORIGIN` says which zone it is.
#[test]
fn a_zone_without_an_origin_is_named_by_its_soa() {
    let zone = "\
; <<>> dig <<>> axfr RPZ.example
RPZ.example. 300 IN SOA localhost. root.localhost. 1 3600 600 86400 300
rpz.example. 300 IN NS localhost.
bad.example.rpz.example. 300 IN CNAME .
*.bad.example.rpz.example. 300 IN CNAME .
24.0.2.0.192.rpz-ip.rpz.example. 300 IN CNAME .
32.5.2.0.192.rpz-client-ip.rpz.example. 300 IN CNAME .
notrpz.example. 300 IN CNAME .
rpz.example. 300 IN SOA localhost. root.localhost. 1 3600 600 86400 300
";
    let wanted = "
        +=bad.example
        +*bad.example
        +192.0.2.0..192.0.2.255
        left out
        +=notrpz.example";
    check(Part::Whole(Format::Rpz), zone, wanted);
}

/// Servers that write a zone out change `$ORIGIN` on the way.
#[test]
fn owners_are_relative_to_the_origin_in_force() {
    let zone = "\
$ORIGIN .
rpz.example IN SOA localhost. root.localhost. 1 3600 600 86400 300
$ORIGIN rpz.example.
bad.example CNAME .
$ORIGIN com.rpz.example.
evil CNAME .
*.evil CNAME .
@ CNAME .
$ORIGIN net
worse CNAME .
$ORIGIN rpz-ip.rpz.example.
24.0.2.0.192 CNAME .
";
    let wanted = "
        +=bad.example
        +=evil.com
        +*evil.com
        +=com
        +=worse.net.com
        +192.0.2.0..192.0.2.255";
    check(Part::Whole(Format::Rpz), zone, wanted);
}

#[test]
fn formats_are_guessed() {
    for (text, wanted) in [
        (HOSTS, Format::Hosts),
        (DOMAINS, Format::Domains),
        (URLS, Format::Urls),
        (&NETWORKS.replace("ads.example\n", ""), Format::Networks),
        // A list of names may have addresses too.
        (NETWORKS, Format::Domains),
        (ADBLOCK, Format::Adblock),
        (ZONE, Format::Rpz),
        ("", Format::Domains),
        ("# nothing\n", Format::Domains),
        ("bad.example CNAME .\n", Format::Rpz),
    ] {
        assert_eq!(guess(text.as_bytes()), wanted, "{text}");
    }
    for page in ["<!DOCTYPE html><html>", "\n <html>", "\u{feff}<HTML lang=en>", "<?xml version='1.0'?>"] {
        assert!(is_web_page(page.as_bytes()), "{page}");
    }
    assert!(!is_web_page(DOMAINS.as_bytes()));
}

/// All parts that there are.
fn parts() -> Vec<Part> {
    let whole = Format::ALL.into_iter().map(Part::Whole);
    whole.chain([Part::Domains, Part::Urls, Part::Expressions]).collect()
}

proptest! {
    #[test]
    fn any_bytes_are_read(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)) {
        for part in parts() {
            let mut parser = LineParser::new(part, NameReach::Exact);
            for line in &lines {
                parser.line(line, &mut |_, _| {});
            }
        }
    }

    /// Pieces of the formats in any order come further into the parsers than random bytes.
    #[test]
    fn any_mix_of_words_is_read(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "0.0.0.0", "::1", " ", "\t", ".", "*", "||", "@@", "^", "$", "#", "##", ";", "(", ")", "CNAME", "IN", "60", "rpz-ip",
                ".rpz-ip", "zz", "http://", "/", "?", "&", "%41", "%", "[", "]", "@", "example", "com", "-", "ü", "\u{feff}", "$ORIGIN ",
            ]),
            0..12,
        ),
    ) {
        let line = words.concat();
        for part in parts() {
            LineParser::new(part, NameReach::Tree).line(line.as_bytes(), &mut |_, _| {});
        }
    }
}
