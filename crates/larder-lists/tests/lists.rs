//! Lists from their sources to lookups: against a model, through files, and with what may happen to files.

use flate2::Compression;
use flate2::write::GzEncoder;
use larder_lists::builder::Fault;
use larder_lists::disk::{self, LoadFault, Step};
use larder_lists::entry::Side;
use larder_lists::{Builder, Compiled, CompiledFault, Draft, Format, HashKey, Options, Provenance, Subject};
use proptest::prelude::*;
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::Path;

const KEY: [u8; 16] = *b"a key of a test.";

fn draft_of(text: &str, options: Options) -> Draft {
    let mut builder = Builder::new(options, HashKey::of(KEY));
    builder.read(text.as_bytes(), "test").unwrap();
    builder.finish().unwrap()
}

fn compiled(text: &str, format: Format) -> Compiled {
    draft_of(text, Options { format, ..Options::default() }).compile()
}

fn url(text: &str) -> Subject<'_> {
    let (scheme, rest) = text.split_once("://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Subject::Url { scheme, host, path }
}

fn read_folder(path: &Path, format: Format) -> Result<Compiled, Fault> {
    let mut builder = Builder::new(Options { format, ..Options::default() }, HashKey::of(KEY));
    disk::read_source(&mut builder, path)?;
    Ok(builder.finish()?.compile())
}

#[test]
fn a_folder_of_folders_says_which_to_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("adult")).unwrap();
    for format in [Format::Auto, Format::Squidguard] {
        let Err(fault) = read_folder(folder.path(), format) else { panic!("{format:?}") };
        let told = fault.to_string();
        assert!(told.contains("folders, which are not read") && told.contains("/adult"), "{told}");
    }
}

#[test]
fn names_are_covered_at_borders_of_labels() {
    let list = compiled("ads.example\n.tree.example\n203.0.113.0/24\n", Format::Domains);
    for (host, wanted) in [
        ("ads.example", Some("the name `ads.example` itself")),
        ("ADS.Example.", Some("the name `ads.example` itself")),
        ("www.ads.example", None),
        ("xads.example", None),
        ("tree.example", Some("the name `tree.example` itself")),
        ("a.b.Tree.example", Some("the name above it `tree.example`")),
        ("a~b.tree.example", Some("the name above it `tree.example`")),
        ("subtree.example", None),
        ("example", None),
        ("203.0.113.77", Some("the addresses 203.0.113.0 to 203.0.113.255")),
        ("203.0.113.77.", Some("the addresses 203.0.113.0 to 203.0.113.255")),
        ("[::ffff:203.0.113.77]", Some("the addresses 203.0.113.0 to 203.0.113.255")),
        ("203.0.114.1", None),
        ("", None),
        ("...", None),
    ] {
        let subject = Subject::Host(host);
        let found = list.find(subject).map(|found| list.describe(found, Side::Covers, subject));
        assert_eq!(found.as_deref(), wanted, "{host}");
    }
    assert!(list.covers(Subject::Address("203.0.113.1".parse().unwrap())));
    assert!(list.covers(url("http://tree.example/x")) && !list.covers(url("http://www.ads.example/x")));
    let below = draft_of("ads.example\n", Options { subdomains: true, ..Options::default() }).compile();
    assert!(below.covers(Subject::Host("www.ads.example")));
    assert!(!below.covers(Subject::Host(&"a.".repeat(300))));
}

#[test]
fn urls_are_covered_at_borders_of_segments() {
    let list = compiled("example.com/ads\nhttp://files.example/a.exe?x=1\nhttp://whole.example/\n", Format::Urls);
    for (text, wanted) in [
        ("http://example.com/ads", Some("the URL `example.com/ads` itself")),
        ("https://www.EXAMPLE.com/ads/banner?x", Some("the URL above it `example.com/ads`")),
        ("http://example.com/%61ds//", Some("the URL `example.com/ads` itself")),
        ("http://example.com/x/../ads", Some("the URL `example.com/ads` itself")),
        ("http://example.com/adserver", None),
        ("http://example.com/", None),
        ("http://sub.example.com/ads", None),
        ("http://files.example/a.exe?x=1&y=2", Some("the URL above it `files.example/a.exe?x=1`")),
        ("http://files.example/a.exe?x=12", None),
        ("http://files.example/a.exe", None),
        ("http://whole.example/any", Some("the name `whole.example` itself")),
    ] {
        let found = list.find(url(text)).map(|found| list.describe(found, Side::Covers, url(text)));
        assert_eq!(found.as_deref(), wanted, "{text}");
    }
    assert!(list.covers(Subject::Host("whole.example")) && !list.covers(Subject::Host("example.com")));
    // As a CONNECT has them.
    let hosts = compiled("http://www.evil.example/\nplain.example\n", Format::Urls);
    for host in ["www.evil.example", "evil.example", "plain.example", "www.plain.example"] {
        assert!(hosts.covers(Subject::Host(host)), "{host}");
    }
    assert!(!hosts.covers(Subject::Host("m.evil.example")));
    let addresses = compiled("http://[2001:db8:0:0::1]/x\n", Format::Urls);
    assert!(addresses.covers(url("http://[2001:DB8::1]/x/y")));
}

#[test]
fn exceptions_take_out() {
    let list = compiled("||ads.example^\n@@||good.ads.example^\n", Format::Adblock);
    let host = Subject::Host;
    assert!(list.covers(host("ads.example")) && list.covers(host("bad.ads.example")));
    assert!(!list.covers(host("good.ads.example")) && !list.covers(host("very.good.ads.example")));
    assert!(list.excepts(host("good.ads.example")).is_some() && list.excepts(host("ads.example")).is_none());
    let zone =
        compiled("bad.example CNAME .\n*.bad.example CNAME .\nok.bad.example CNAME rpz-passthru.\n", Format::Rpz);
    assert!(
        zone.covers(host("bad.example")) && zone.covers(host("x.bad.example")) && !zone.covers(host("ok.bad.example"))
    );
    let below = compiled("*.only.example CNAME .\n", Format::Rpz);
    assert!(!below.covers(host("only.example")) && below.covers(host("x.only.example")));
}

/// With the feature `adblock`, paths are matched too.
#[test]
fn filters_of_paths_need_the_engine() {
    let text = "||ads.example^\n@@||ads.example/ok/\n||shop.example/banner/*\nshop.example##.banner\n";
    let list = compiled(text, Format::Adblock);
    let has = larder_lists::HAS_ENGINE;
    assert!(list.covers(url("http://www.ads.example/x")) && list.covers(Subject::Host("ads.example")));
    assert_eq!(list.covers(url("http://shop.example/banner/1.png")), has);
    assert_eq!(list.covers(url("http://ads.example/ok/x")), !has);
    assert_eq!((list.about().entries, list.about().left_out), if has { (3, 1) } else { (1, 3) });
}

#[test]
fn folders_of_squidguard_and_archives() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    write("domains", b"ads.example\n192.0.2.7\n");
    write("urls", b"shared.example/~ads/\n");
    write("expressions", b"(^|[-.?+=/_0-9])(casino|POKER)[0-9]*\\.\n(unclosed\n");
    write("usage", b"black\n");
    write(".hidden", b"hidden.example\n");
    for format in [Format::Squidguard, Format::Auto] {
        let list = read_folder(folder.path(), format).unwrap();
        assert_eq!((list.about().entries, list.about().malformed, &*list.about().format), (4, 1, "squidguard"));
        for (text, wanted) in [
            ("http://www.ads.example/", true),
            ("http://192.0.2.7/", true),
            ("http://shared.example/~Ads/x", true),
            ("http://shared.example/~adsx", false),
            ("https://best-Casino9.example/", true),
            ("https://example.com/?q=poker.html", true),
            ("https://mypokerx.example/", false),
            ("http://hidden.example/", false),
        ] {
            assert_eq!(list.covers(url(text)), wanted, "{text}");
        }
        let subject = url("https://example.com/?q=poker.html");
        let words = list.describe(list.find(subject).unwrap(), Side::Covers, subject);
        assert!(words.starts_with("the expression `") && words.contains("POKER"), "{words}");
    }
    let several = tempfile::tempdir().unwrap();
    fs::write(several.path().join("a.txt"), "one.example\n").unwrap();
    fs::write(several.path().join("b.hosts"), "0.0.0.0 two.example\n").unwrap();
    let list = read_folder(several.path(), Format::Auto).unwrap();
    assert!(list.covers(Subject::Host("one.example")) && list.covers(Subject::Host("two.example")));
    assert!(read_folder(several.path(), Format::Squidguard).is_err());
    assert!(read_folder(tempfile::tempdir().unwrap().path(), Format::Auto).is_err());
    assert!(read_folder(&several.path().join("none"), Format::Auto).is_err());
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn gzip_is_unpacked_and_bounded() {
    let read = |bytes: &[u8], options: Options| {
        let mut builder = Builder::new(options, HashKey::of(KEY));
        builder.read(bytes, "test").and_then(|()| builder.finish())
    };
    let list = read(&packed(b"ads.example\n"), Options::default()).unwrap().compile();
    assert!(list.covers(Subject::Host("ads.example")));
    let bomb = packed(&vec![b'\n'; 10_000_000]);
    let bounded = Options { bytes_max: 1_000_000, ..Options::default() };
    assert!(
        matches!(read(&bomb, bounded), Err(Fault::Io(error)) if error.to_string().contains("longer than the limit"))
    );
    let broken = &packed(b"ads.example\n")[..20];
    assert!(matches!(read(broken, Options::default()), Err(Fault::Io(_))));
    let few = Options { entries_max: 2, ..Options::default() };
    assert!(matches!(read(b"a.example\nb.example\nc.example\n", few), Err(Fault::TooMany(2))));
}

#[test]
fn what_is_no_list_is_refused() {
    let read = |text: &str, format: Format| {
        let mut builder = Builder::new(Options { format, ..Options::default() }, HashKey::of(KEY));
        builder.read(text.as_bytes(), "http://lists.example/ads.txt").and_then(|()| builder.finish())
    };
    for format in Format::ALL {
        assert!(matches!(read("<!DOCTYPE html>\n<title>Log in</title>\n", format), Err(Fault::WebPage)), "{format:?}");
    }
    let prose = "Please log in to use the network.\n".repeat(30);
    let Err(fault) = read(&prose, Format::Domains) else { panic!("prose is no list") };
    let text = fault.to_string();
    assert!(
        text.contains("30 of 30 lines") && text.contains("http://lists.example/ads.txt:1: \"Please log in"),
        "{text}"
    );
    let some_wrong = format!("{}bad line\nworse, line\n", "ads.example\n".repeat(20));
    let draft = read(&some_wrong, Format::Domains).unwrap();
    assert_eq!((draft.entries(), draft.tally().malformed, draft.tally().lines), (1, 2, 22));
    assert_eq!(draft.tally().samples[1].place, "http://lists.example/ads.txt:22");
}

#[test]
fn a_compiled_list_survives_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ads.list");
    let text = "ads.example\n.tree.example\n192.0.2.0/24\n2001:db8::/32\nbad line\n";
    let draft = draft_of(text, Options { format: Format::Domains, ..Options::default() });
    let provenance = Provenance {
        settings: "domains".into(),
        etag: "\"1\"".into(),
        last_modified: "Mon, 01 Jan 2024 00:00:00 GMT".into(),
        read_at_seconds: 1_700_000_000,
    };
    disk::save(&draft, &provenance, &path).unwrap();
    let list = disk::load(&path).unwrap();
    let about = list.about();
    assert_eq!((&about.provenance, about.entries, about.lines, about.malformed), (&provenance, 4, 5, 1));
    assert!(about.samples.contains("test:5") && about.format == "domains", "{}", about.samples);
    assert!(
        list.covers(Subject::Host("a.tree.example")) && list.covers(Subject::Address("2001:db8::1".parse().unwrap()))
    );
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert!(Compiled::of(damaged).is_err(), "byte {at}");
        assert!(Compiled::of(whole[..at].to_vec()).is_err(), "{at} bytes");
    }
    fs::write(&path, b"larderL2, a later version").unwrap();
    assert!(matches!(disk::load(&path), Err(LoadFault::Compiled(CompiledFault::Unknown))));
}

#[test]
fn a_power_cut_leaves_the_old_list_or_the_new_one() {
    let old = draft_of("old.example\n", Options::default());
    let new = draft_of("new.example\n", Options::default());
    for step in [Step::Begun, Step::Written, Step::Synced, Step::Renamed, Step::Done] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ads.list");
        disk::save(&old, &Provenance::default(), &path).unwrap();
        disk::save_until(&new, &Provenance::default(), &path, step).unwrap();
        let list = disk::load(&path).unwrap();
        let is_new = step >= Step::Renamed;
        assert_eq!(list.covers(Subject::Host("new.example")), is_new, "{step:?}");
        assert_eq!(list.covers(Subject::Host("old.example")), !is_new, "{step:?}");
        // A file that was left behind is in the way of nothing.
        disk::save(&new, &Provenance::default(), &path).unwrap();
        assert!(disk::load(&path).unwrap().covers(Subject::Host("new.example")));
        assert!(!disk::draft_path(&path).exists());
    }
}

fn label() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "ads", "x-1", "xn--bcher-kva"]).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(label(), 1..5).prop_map(|labels| labels.join("."))
}

proptest! {
    #[test]
    fn a_list_covers_what_a_set_of_names_does(
        entries in prop::collection::vec((name(), any::<bool>()), 0..60),
        asked in prop::collection::vec((name(), any::<bool>(), any::<bool>()), 60),
    ) {
        let text: String = entries.iter().map(|(name, tree)| format!("{}{name}\n", if *tree { "." } else { "" })).collect();
        let list = compiled(&text, Format::Domains);
        let of = |tree: bool| -> HashSet<&str> {
            entries.iter().filter(|(_, is_tree)| *is_tree == tree).map(|(name, _)| name.as_str()).collect()
        };
        let (exact, trees) = (of(false), of(true));
        for (host, loud, dot) in &asked {
            let above = host.char_indices().filter(|(_, letter)| *letter == '.').map(|(at, _)| &host[at + 1..]);
            let wanted = exact.contains(&**host) || above.chain([&**host]).any(|name| trees.contains(name));
            let spelled = if *loud { host.to_uppercase() } else { host.clone() };
            let spelled = format!("{spelled}{}", if *dot { "." } else { "" });
            prop_assert_eq!(list.covers(Subject::Host(&spelled)), wanted, "{}", spelled);
        }
    }

    #[test]
    fn any_bytes_are_a_source(bytes in prop::collection::vec(any::<u8>(), 0..2_000), gzip in any::<bool>()) {
        for format in Format::ALL {
            let mut builder = Builder::new(Options { format, ..Options::default() }, HashKey::of(KEY));
            let source = if gzip { packed(&bytes) } else { bytes.clone() };
            if builder.read(&source[..], "test").is_ok() {
                let _ = builder.finish().map(Draft::compile);
            }
        }
        let _ = Compiled::of([b"larderL1", &bytes[..]].concat());
    }

    #[test]
    fn any_question_is_answered(host in ".{0,40}", path in ".{0,60}") {
        let list = compiled("ads.example\n.example\n10.0.0.0/8\n", Format::Domains);
        let urls = compiled("example.com/a\n", Format::Urls);
        for list in [&list, &urls] {
            for subject in [Subject::Host(&host), Subject::Url { scheme: "http", host: &host, path: &path }] {
                if let Some(found) = list.find(subject) {
                    list.describe(found, Side::Covers, subject);
                }
            }
        }
    }
}
