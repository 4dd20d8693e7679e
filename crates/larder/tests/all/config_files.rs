//! Configuration files: what they mean, and what is said about wrong ones.

use larder::config::{Config, Flag, HostHeader, Loaded, LogField, LogFormat, LogTo, ValueSource, manual};
use std::path::Path;
use std::time::Duration;

fn good(text: &str) -> Config {
    Loaded::parse("larder.toml", text, &[]).unwrap_or_else(|report| panic!("{report}")).config
}

fn wrong(text: &str) -> String {
    Loaded::parse("larder.toml", text, &[]).expect_err("an error").to_string()
}

fn flags(flags: &[Flag]) -> Result<Loaded, String> {
    Loaded::parse("", "", flags).map_err(|report| report.to_string())
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(good(""), Config::default());
    assert_eq!(good("# nothing\n"), Config::default());
}

#[test]
fn the_beginning_in_the_documentation_works() {
    let config = good(
        r#"
        memory = "256MB"
        disk = "20GB"
        store = "/var/cache/larder"

        [[listen]]
        address = "0.0.0.0:8080"

        [[site]]
        hosts = ["www.example.org"]
        origin = "http://10.0.0.5:9000"
        "#,
    );
    assert_eq!((config.memory_bytes, config.disk_bytes), (256_000_000, Some(20_000_000_000)));
    assert_eq!(config.store_folder().unwrap(), Path::new("/var/cache/larder"));
    assert_eq!(config.authority_folder().unwrap(), Path::new("/var/cache/larder/ca"));
    assert_eq!(config.listens[0].address.to_string(), "0.0.0.0:8080");
    assert_eq!(config.sites[0].origin.to_string(), "http://10.0.0.5:9000/");
    assert_eq!(config.sites[0].prefix, "/");
    assert_eq!(config.sites[0].host_header, HostHeader::Client);
}

#[test]
fn the_files_of_the_packages_are_right() {
    let service = good(include_str!("../../../../packaging/larder.toml"));
    assert_eq!(service.store_folder().unwrap(), Path::new("/var/lib/larder"));
    assert_eq!(service.listens[0].address.to_string(), "127.0.0.1:3128");
    assert!(!service.page_is_closed());
    let image = good(include_str!("../../../../packaging/image.toml"));
    assert_eq!(image.store_folder().unwrap(), Path::new("/var/lib/larder"));
    assert!(image.listens[0].address.ip().is_unspecified());
}

#[test]
fn every_kind_of_value_is_taken() {
    let config = good(
        r#"
        memory = 64000000
        admin = "none"
        workers = 3

        [limits]
        head_bytes_max = "32KiB"
        body_bytes_max = "1GB"
        connections_per_client_max = 100

        [timeouts]
        head = "1.5s"
        request = "10m"

        [access]
        clients = ["192.168.0.0/16", "10.1.2.3"]
        connect_ports = [443, 8443]

        [log]
        to = "/var/log/larder.log"
        format = "json"

        [intercept]
        pass = ["*.bank.example"]

        [[listen]]
        address = "[::1]:0"
        intercept = true
        tls = [{ chain = "a.pem", key = "a.key" }, { chain = "b.pem", key = "b.key" }]

        [[listen]]
        address = "127.0.0.1:0"
        origin = "http://127.0.0.1:9000"

        [[site]]
        hosts = ["a.example", "*.a.example"]
        origin = "http://10.0.0.5"

        [[site]]
        hosts = ["a.example"]
        prefix = "/images/"
        origin = "https://images.example/a"
        host = "origin"
        "#,
    );
    assert_eq!((config.memory_bytes, config.memory_object_bytes_max), (64_000_000, 16_000_000));
    assert_eq!((config.admin, config.workers), (None, 3));
    assert_eq!((config.limits.head_bytes_max, config.limits.body_bytes_max), (32 << 10, Some(1_000_000_000)));
    assert_eq!(config.limits.connections_per_client_max, Some(100));
    assert_eq!(config.timeouts.head, Duration::from_millis(1_500));
    assert_eq!(config.timeouts.request, Some(Duration::from_secs(600)));
    assert!(config.access.may_proxy("10.1.2.3".parse().unwrap()));
    assert!(config.access.may_proxy("::ffff:192.168.1.1".parse().unwrap()));
    assert!(!config.access.may_proxy("127.0.0.1".parse().unwrap()));
    assert!(config.access.may_connect(8_443, false) && !config.access.may_connect(22, true));
    let log = config.log.unwrap();
    assert_eq!((log.to, log.format), (LogTo::File("/var/log/larder.log".into()), LogFormat::Json));
    assert_eq!(config.intercept.pass[0].to_string(), "*.bank.example");
    assert_eq!(config.listens[0].tls.len(), 2);
    assert!(config.listens[0].intercept && config.listens[1].origin.is_some());
    assert_eq!(config.sites[0].prefix, "/images/", "the longest prefix is first");
    assert_eq!(config.sites[0].host_header, HostHeader::Origin);
}

#[test]
fn a_share_is_a_number_or_percent() {
    for (text, share) in [("0.25", 0.25), ("0", 0.0), ("1", 1.0), ("\"1%\"", 0.01), ("\"0.5\"", 0.5), ("1e-3", 0.001)] {
        let config = good(&format!("[tracing]\nsample = {text}"));
        assert_eq!(config.tracing.sample, share, "{text}");
        let loaded = Loaded::parse("larder.toml", &format!("[tracing]\nsample = {text}"), &[]).unwrap();
        assert_eq!(good(&manual::dump(&loaded)).tracing, config.tracing, "{text} is read back");
    }
}

#[test]
fn all_errors_are_shown_at_once() {
    let text = r#"memry = "64MB"
workers = "many"

[limits]
head_bytes_max = "12 parsecs"
first_byte = "3s"

[timeouts]
idle = 60

[[listen]]
adress = "0.0.0.0:80"
"#;
    let expected = r#"error: there is no setting memry
 --> larder.toml:1:1
  |
1 | memry = "64MB"
  | ^^^^^
  = did you mean memory?

error: workers: "many" is not a number
 --> larder.toml:2:11
  |
2 | workers = "many"
  |           ^^^^^^

error: limits.head_bytes_max: "12 parsecs" is not a size
 --> larder.toml:5:18
  |
5 | head_bytes_max = "12 parsecs"
  |                  ^^^^^^^^^^^^
  = write it as 400kB, 64MB, 10GB or 64KiB

error: there is no setting limits.first_byte
 --> larder.toml:6:1
  |
6 | first_byte = "3s"
  | ^^^^^^^^^^
  = did you mean timeouts.first_byte?

error: timeouts.idle: 60 is no duration
 --> larder.toml:9:8
  |
9 | idle = 60
  |        ^^
  = say of what: "60s" or "60m"

error: there is no setting listen.adress
  --> larder.toml:12:1
   |
12 | adress = "0.0.0.0:80"
   | ^^^^^^
   = did you mean listen.address?

6 errors: nothing was changed
"#;
    assert_eq!(wrong(text), expected);
}

#[test]
fn each_mistake_has_its_words() {
    for (text, expected, hint) in [
        ("memory = \"1kB\"", "memory: 1kB is out of range", "between 100KiB and 1024TiB"),
        ("memory = -1", "memory: \"-1\" is not a size", "64MB"),
        ("memory = true", "memory: a size is expected, not true or false", "64MB"),
        ("workers = 0", "workers: 0 is out of range", "between 1 and 1024"),
        ("admin = \"localhost:80\"", "admin: \"localhost:80\" is not ADDR:PORT or none", "127.0.0.1:3128"),
        ("[tracing]\nsample = 1.5", "sample: \"1.5\" is not a share", "from 0 to 1"),
        ("[tracing]\nsample = \"nan\"", "sample: \"nan\" is not a share", "from 0 to 1"),
        (
            "[tracing]\notlp = \"127.0.0.1:4318\"",
            "otlp: \"127.0.0.1:4318\" is not an http or https URL, or none",
            "http://127.0.0.1:4318",
        ),
        ("limits = 3", "limits is a table, not a number", "[limits]"),
        ("[limit]\nhead_bytes_max = 3", "there is no setting limit", "did you mean [limits]?"),
        ("[listen]\naddress = \"0.0.0.0:80\"", "listen is a list of tables, not a table", "[[listen]]"),
        ("[[listen]]\naddress = \"0.0.0.0:80\"\n[listen.tls]", "listen.tls is a list of tables, not", "[[listen.tls]]"),
        ("[log]\nformat = \"sqiud\"", "log.format: \"sqiud\" is not combined", "did you mean squid?"),
        ("listen = [3]", "listen is a list of tables, this is a number", "[[listen]]"),
        ("listen = []", "no listener is left", "leave `listen` out"),
        ("origin = \"http://a\"", "origin is no setting of the whole file", "or give it with --origin"),
        ("[access]\nclients = [\"10.0.0.0/8\", \"lan\"]", "access.clients: \"lan\" is not a network", "192.168.0.0/16"),
        ("[access]\nconnect_ports = [70000]", "access.connect_ports: \"70000\" is not a port", ""),
        ("[log]\nformat = \"{who}\"", "log.format: \"{who}\" is not combined, squid, json or a format", "docs/logs.md"),
        ("[[site]]\norigin = \"http://a\"", "`hosts` is missing", "www.example.org"),
        ("[[site]]\nhosts = []\norigin = \"http://a\"", "a site without a host is never reached", ""),
        ("[[site]]\nhosts = \"a\"\norigin = \"a:80\"", "site.origin: \"a:80\" is not an http or https URL", "http://"),
        ("[[site]]\nhosts = \"a b\"\norigin = \"http://a\"", "site.hosts: \"a b\" is not a host", "*.example.org"),
        (
            "[[site]]\nhosts = \"a\"\norigin = \"http://a\"\n[[site]]\nhosts = \"a\"\norigin = \"http://b\"",
            "a with the prefix / is in an earlier site already",
            "",
        ),
        (
            "[[listen]]\naddress = \"127.0.0.1:80\"\n[[listen]]\naddress = \"127.0.0.1:80\"",
            "127.0.0.1:80 is listened on twice",
            "",
        ),
        (
            "[[listen]]\naddress = \"127.0.0.1:80\"\nintercept = true\norigin = \"http://a\"",
            "a listener with an origin has no tunnels to intercept",
            "leave out",
        ),
        ("[[listen]]\naddress = \"127.0.0.1:80\"\ntls = [{ chain = \"a\" }]", "`key` is missing", "private key"),
        ("memory_object_bytes_max = \"1GB\"", "memory_object_bytes_max: an object may not be larger than `memory`", ""),
        ("memory = ", "string values must be quoted", ""),
    ] {
        let report = wrong(text);
        assert!(report.contains(expected), "{expected} in\n{report}");
        assert!(report.contains(hint), "{hint} in\n{report}");
        assert!(report.contains("--> larder.toml:"), "no place in\n{report}");
    }
}

#[test]
fn places_are_counted_in_characters() {
    let report = wrong("# é\nstore = \"ü\" # ß\r\nadmin = \"ü\" # ß\r\n");
    assert!(report.contains("larder.toml:3:9\n"), "{report}");
    assert!(report.contains("3 | admin = \"ü\" # ß\n  |         ^^^\n"), "{report}");
}

#[test]
fn flags_go_over_the_file() {
    let text = "memory = \"64MB\"\nworkers = 2\n[[listen]]\naddress = \"127.0.0.1:1\"";
    let setting = |name, text: &str| Flag::Setting(name, text.to_owned());
    let given = [setting("memory", "128MB"), Flag::Listen("127.0.0.1:2".into()), Flag::Listen("127.0.0.1:3".into())];
    let loaded = Loaded::parse("larder.toml", text, &given).unwrap();
    let config = &loaded.config;
    assert_eq!((config.memory_bytes, config.memory_object_bytes_max, config.workers), (128_000_000, 32_000_000, 2));
    assert_eq!(config.listens.iter().map(|listen| listen.address.port()).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(loaded.sources["memory"], ValueSource::Flag("memory"));
    assert_eq!(loaded.sources["workers"], ValueSource::Line("larder.toml".into(), 2));
}

#[test]
fn an_origin_flag_makes_a_site_of_every_listener() {
    let loaded = flags(&[Flag::Listen("127.0.0.1:8080".into()), Flag::Origin("http://127.0.0.1:9000".into())]).unwrap();
    assert_eq!(loaded.config.listens[0].origin.as_ref().unwrap().to_string(), "http://127.0.0.1:9000/");
    let loaded = flags(&[Flag::Origin("http://127.0.0.1:9000".into())]).unwrap();
    assert_eq!(loaded.config.listens[0].address.to_string(), "127.0.0.1:3128");
    assert!(loaded.config.listens[0].origin.is_some());
}

#[test]
fn wrong_flags_are_named() {
    let error = flags(&[Flag::Listen("8080".into()), Flag::Setting("memory", "lots".into())]).unwrap_err();
    let expected = "error: --listen: \"8080\" is not an ADDR:PORT\n = write it as 127.0.0.1:3128\n\n\
                    error: --memory: \"lots\" is not a size\n = write it as 400kB, 64MB, 10GB or 64KiB\n\n\
                    2 errors: nothing was changed\n";
    assert_eq!(error, expected);
}

#[test]
fn included_files_add_up_and_may_not_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let site = |name: &str| format!("[[site]]\nhosts = [\"{name}\"]\norigin = \"http://127.0.0.1:9000\"\n");
    let main = write("larder.toml", "include = [\"conf.d/*.toml\", \"none.d/*.toml\"]\nmemory = \"64MB\"\n");
    let second = write("conf.d/b.toml", &format!("workers = 3\n{}", site("b")));
    write("conf.d/a.toml", &format!("[[listen]]\naddress = \"127.0.0.1:1\"\n{}", site("a")));
    write("conf.d/c.toml.old", "nonsense");
    let loaded = Loaded::read(Some(&main), &[]).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!((loaded.config.workers, loaded.config.sites.len(), loaded.config.listens.len()), (3, 2, 1));
    assert_eq!(loaded.sources["workers"], ValueSource::Line(second.display().to_string().into(), 1));
    assert_eq!(loaded.file.as_deref(), Some(&*main));

    write(
        "conf.d/c.toml",
        &format!("memory = \"1MB\"\ninclude = [\"x\"]\n[[listen]]\naddress = \"127.0.0.1:1\"\n{}", site("a")),
    );
    let report = Loaded::read(Some(&main), &[]).unwrap_err().to_string();
    for part in [
        "memory is said twice",
        "c.toml:1:1",
        &format!("the other place is {}:2", main.display()),
        "a file that is included includes no others",
        "127.0.0.1:1 is listened on twice",
        "a with the prefix / is in an earlier site already",
    ] {
        assert!(report.contains(part), "{part} in\n{report}");
    }

    let main = write("other.toml", "include = [\"gone.toml\"]");
    let report = Loaded::read(Some(&main), &[]).unwrap_err().to_string();
    assert!(report.contains("other.toml:1:11") && report.contains("gone.toml: No such file"), "{report}");
}

#[test]
fn an_open_admin_address_needs_a_token_that_nobody_sees() {
    assert!(wrong("admin = \"0.0.0.0:3129\"").contains("needs `admin_token`"));
    let beside =
        |listen: &str, more: &str| format!("admin = \"127.0.0.1:3129\"\n{more}[[listen]]\naddress = \"{listen}\"");
    let message = wrong(&beside("0.0.0.0:8080", ""));
    assert!(message.contains("beside a listener that others can reach the page needs `admin_token`"), "{message}");
    assert!(wrong(&beside("[::]:8080", "")).contains("needs `admin_token`"));
    good(&beside("127.0.0.1:8080", ""));
    good(&beside("0.0.0.0:8080", "admin_token = \"correct horse battery\"\n"));
    // Where nothing is said of the page it is there, and answers nobody.
    assert!(good("[[listen]]\naddress = \"0.0.0.0:8080\"").page_is_closed());
    assert!(!good("[[listen]]\naddress = \"127.0.0.1:8080\"").page_is_closed() && !good("").page_is_closed());
    assert!(wrong("admin_token = \"short\"").contains("at least 12 letters"));
    assert!(wrong("admin_token = \"${ENV:NO_SUCH_VARIABLE}\"").contains("no variable NO_SUCH_VARIABLE"));
    let text = "admin = \"0.0.0.0:3129\"\nadmin_token = \"correct horse battery\"";
    let loaded = Loaded::parse("larder.toml", text, &[]).unwrap();
    assert_eq!(loaded.config.admin_token.as_ref().unwrap().reveal(), "correct horse battery");
    for shown in [manual::dump(&loaded), manual::explain("admin_token", &loaded).unwrap(), format!("{loaded:?}")] {
        assert!(!shown.contains("horse"), "{shown}");
    }
}

#[test]
fn a_misspelled_name_is_recognised() {
    assert_eq!(manual::nearest("head_byte_max"), Some("limits.head_bytes_max"));
    assert_eq!(manual::nearest("timeouts.iddle"), Some("timeouts.idle"));
    assert_eq!(manual::nearest("banana"), None);
}

#[test]
fn every_field_of_the_log_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/logs.md");
    let text = std::fs::read_to_string(path).unwrap();
    for field in LogField::ALL {
        let row = format!("| `{}` | {} |", field.as_str(), field.about());
        assert!(text.contains(&row), "docs/logs.md lacks {row}");
    }
}

#[test]
fn a_missing_file_is_said() {
    let error = Loaded::read(Some(Path::new("/nonexistent/larder.toml")), &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("error: cannot read the configuration /nonexistent/larder.toml: No such file"),
        "{error}"
    );
}

#[test]
fn what_is_dumped_means_the_same() {
    let text = "memory = \"64MB\"\ndisk = \"1GB\"\nstore = \"/a\"\n[log]\nto = \"stderr\"\n[[listen]]\naddress = \"127.0.0.1:1\"\n\
                tls = [{ chain = \"a\", key = \"b\" }]\n[[site]]\nhosts = [\"a\"]\norigin = \"http://b\"\nhost = \"origin\"";
    for text in ["", text] {
        let loaded = Loaded::parse("larder.toml", text, &[]).unwrap();
        let dump = manual::dump(&loaded);
        let again = Loaded::parse("dump", &dump, &[]).unwrap_or_else(|report| panic!("{report}\n{dump}"));
        // A limit of 0 bytes on disk and none at all are told apart only in the file.
        let config = Config { disk_bytes: loaded.config.disk_bytes.or(Some(0)), ..loaded.config };
        assert_eq!(again.config, config, "{dump}");
    }
    let loaded = Loaded::parse("larder.toml", text, &[]).unwrap();
    assert!(manual::dump(&loaded).starts_with("memory = \"64MB\" # larder.toml:1\n"), "{}", manual::dump(&loaded));
}

#[test]
fn a_setting_explains_itself() {
    let loaded = Loaded::parse("larder.toml", "", &[]).unwrap();
    let text = manual::explain("head_bytes_max", &loaded).unwrap();
    assert_eq!(text, manual::explain("limits.head_bytes_max", &loaded).unwrap());
    assert!(
        text.contains("takes    size, 1KiB to 16MiB\n  default  \"64KiB\"\n  changes  at a restart\n  now      \"64KiB\" (default)"),
        "{text}"
    );
    assert!(manual::explain("nonsense", &loaded).is_none());
}

/// `UPDATE_EXPECTED=1 cargo test -p larder --test all config_files` writes the page anew.
#[test]
fn the_reference_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let expected = manual::markdown();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/settings.md differs from the table: run this test with UPDATE_EXPECTED=1");
}

#[test]
fn ports_of_tunnels_follow_the_listener_until_they_are_said() {
    for (text, https, other_here, other) in [
        ("", true, true, false),
        ("[access]\nconnect_ports = [\"by-listener\"]", true, true, false),
        ("[access]\nconnect_ports = []", true, true, true),
        ("[access]\nconnect_ports = [22]", false, false, false),
    ] {
        let access = good(text).access;
        let got = (access.may_connect(443, false), access.may_connect(8_443, true), access.may_connect(8_443, false));
        assert_eq!(got, (https, other_here, other), "{text}");
    }
    let wrong = Loaded::parse("l", "[[listen]]\naddress = \"127.0.0.1:1\"\nforward = true\norigin = \"http://a\"", &[]);
    assert!(wrong.unwrap_err().to_string().contains("is no forward proxy"));
    let wrong = Loaded::parse("l", "[[listen]]\naddress = \"127.0.0.1:1\"\nforward = false\nintercept = true", &[]);
    assert!(wrong.unwrap_err().to_string().contains("no tunnels to intercept"));
}

/// A preset's section says what it knows, keeps and leaves alone, has a command, and names each lifetime of its file.
#[test]
fn each_preset_has_its_section() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/presets.md")).unwrap();
    let (_, sections) = page.split_once("\n## The presets\n").unwrap();
    let sections: Vec<(&str, &str)> =
        sections.split("\n### ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    let files = std::fs::read_dir(root.join("presets")).unwrap().flatten().map(|file| file.file_name());
    let mut names: Vec<String> =
        files.filter_map(|name| Some(name.to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    names.sort();
    assert_eq!(sections.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    for (name, section) in sections {
        for part in ["```sh\nlarder r", "- **Knows** ", "- **Keeps** ", "- **Does not** "] {
            assert!(section.contains(part), "the section of {name} lacks {part}");
        }
        let preset = std::fs::read_to_string(root.join(format!("presets/{name}.toml"))).unwrap();
        let said = |line: &str| {
            let (setting, value) = line.split_once(" = ")?;
            let value = value.trim_matches('"');
            let words = match setting {
                "lifetime_min" => "never change".to_owned(),
                "lifetime" if value == "0s" => "validated each time".to_owned(),
                "lifetime" | "stale_if_error" => {
                    let (many, unit) = value.split_at(value.len() - 1);
                    let unit = if unit == "m" { "minute" } else { "day" };
                    format!("{many} {unit}{}", if many == "1" { "" } else { "s" })
                }
                _ => return None,
            };
            Some(words)
        };
        for words in preset.lines().filter_map(said) {
            assert!(section.contains(&words), "the section of {name} does not say: {words}");
        }
    }
}
