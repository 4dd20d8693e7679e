//! Sources in the shapes of real ones, and what comes of them.

use crate::judged::{Judge, Request};
use larder_import::{Fate, Files, Format, Imported, NoFiles, Settings, import};

/// Two files that the source of an office names.
struct Office;

impl Files for Office {
    fn read(&mut self, path: &str) -> Result<String, String> {
        match path {
            "/etc/squid/admins" => Ok("# who\n10.0.9.0/24\n10.0.8.1 # one more\n".to_owned()),
            "/etc/squid/words" => Ok("casino # and its like\nse#ven\nni ne\n".to_owned()),
            "/etc/squid/conf.d/local.conf" => Ok("visible_hostname office\n".to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }

    fn matching(&mut self, pattern: &str) -> Vec<String> {
        if pattern == "/etc/squid/conf.d/*.conf" {
            vec!["/etc/squid/conf.d/local.conf".to_owned()]
        } else {
            vec![pattern.to_owned()]
        }
    }

    fn is_there(&mut self, path: &str) -> bool {
        path == "/etc/squid/blocked"
    }
}

fn imported(format: Format, text: &str, files: &mut dyn Files) -> Imported {
    let settings = Settings { format, name: "source".to_owned(), zone: Some("UTC".to_owned()) };
    let imported = import(text, &settings, files);
    imported.toml.parse::<toml::Table>().unwrap_or_else(|error| panic!("{error}\n{}", imported.toml));
    imported
}

fn get(url: &str, client: &str) -> Request {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    Request {
        client: client.parse().unwrap(),
        method: "GET",
        scheme: if scheme == "https" { "https" } else { "http" },
        host: host.to_owned(),
        port: if scheme == "https" { 443 } else { 80 },
        path: format!("/{path}"),
        fields: Vec::new(),
        minute: 0,
        address: None,
        listener: "0.0.0.0:80".parse().unwrap(),
        user: None,
    }
}

const OFFICE: &str = r#"
http_port 3128
include /etc/squid/conf.d/*.conf
acl localnet src 10.0.0.0/8
acl admins src "/etc/squid/admins"
acl blocked dstdomain "/etc/squid/blocked"
acl media urlpath_regex -i \.(mp3|mp4)$
acl lunch time MTWHF 12:00-13:00
acl SSL_ports port 443
acl CONNECT method CONNECT
acl purge method PURGE
acl gif rep_mime_type image/gif
http_access deny CONNECT !SSL_ports
http_access allow admins
http_access deny blocked !lunch
deny_info http://intranet.test/blocked.html blocked
http_access deny media
http_access allow localnet
http_access deny all
cache_mem 64 MB
cache_dir aufs /var/spool/squid 1000 16 256
maximum_object_size 20 MB
cache deny blocked
request_header_access Referer deny all
delay_pools 2
delay_class 1 1
delay_class 2 3
delay_parameters 1 none
delay_parameters 2 512000/1048576 none 64000/64000
delay_access 1 allow admins
delay_access 1 deny all
delay_access 2 deny lunch
delay_access 2 allow localnet
client_delay_pools 1
refresh_pattern -i \.(gif|png)$ 1440 50% 10080
refresh_pattern . 0 20% 4320
url_rewrite_program /usr/bin/squidGuard -c /etc/squidguard/squidGuard.conf
url_rewrite_children 8 startup=2 idle=1
access_log daemon:/var/log/squid/access.log squid
no_such_thing at all
"#;

#[test]
fn an_office() {
    let imported = imported(Format::Squid, OFFICE, &mut Office);
    let toml = &imported.toml;
    for part in [
        "memory = \"64MiB\"",
        "disk = \"1000MiB\"",
        "object_bytes_max = \"20MiB\"",
        "clients = [\"10.0.9.0/24\", \"10.0.8.1/32\", \"10.0.0.0/8\"]",
        "connect_ports = [443]",
        "source = \"/etc/squid/blocked\"",
        "when = { target_regex = '(?i)\\.(mp3|mp4)$' }",
        "command = [\"/usr/bin/squidGuard\", \"-c\", \"/etc/squidguard/squidGuard.conf\"]",
        "children = 8",
        "remove = [\"Referer\"]",
        "paths = [\"/**/*.gif\", \"/**/*.png\"]",
        "heuristic_percent = 20",
        "url_rewrite = \"url_rewrite\"",
        "format = \"squid\"",
        "do = { never = true }",
        "name = \"delay-pool-2-all\"\nrate = \"500KiB/s\"\nburst = \"1MiB\"\nhits_are_free = true\n",
        "rate = \"64kB/s\"\nby = \"client\"\nhits_are_free = true\n",
    ] {
        assert!(toml.contains(part), "{part}\n{toml}");
    }
    let fate = |directive: &str| imported.notes.iter().find(|note| note.directive == directive).map(|note| note.fate);
    assert_eq!(fate("delay_pools"), Some(Fate::Translated));
    assert_eq!(fate("client_delay_pools"), Some(Fate::Missing));
    assert_eq!(fate("no_such_thing"), Some(Fate::Missing));
    assert_eq!(fate("visible_hostname"), Some(Fate::NotNeeded));
    assert!(!imported.guards_to_look_at().any(|note| note.source.contains("deny media")));
    // Each directive has its line in the result.
    for note in &imported.notes {
        assert!(toml.contains(&format!("# {}:{}  {}", note.file, note.line, note.source)), "{note}\n{toml}");
    }
}

#[test]
fn a_request_has_the_limits_of_the_first_pool_that_allows_it() {
    let text = "acl localnet src 10.0.0.0/8\nacl admins src 10.0.8.1 10.0.9.0/24\nacl lunch time MTWHF 12:00-13:00\nhttp_access allow localnet\nhttp_access deny all\ndelay_pools 2\ndelay_class 1 1\ndelay_class 2 3\ndelay_parameters 1 none\ndelay_parameters 2 512000/1048576 none 64000/64000\ndelay_access 1 allow admins\ndelay_access 1 deny all\ndelay_access 2 deny lunch\ndelay_access 2 allow localnet\n";
    let imported = imported(Format::Squid, text, &mut NoFiles);
    let judge = Judge::of(&imported);
    for (client, minute, is_limited) in
        [("10.1.1.1", 0, true), ("10.0.8.1", 0, false), ("10.0.9.7", 0, false), ("10.1.1.1", 12 * 60 + 30, false)]
    {
        let request = Request { minute, ..get("http://a.test/", client) };
        let limits: Vec<String> =
            judge.effects(&request).into_iter().filter(|word| word.starts_with("bandwidth ")).collect();
        let wanted: &[&str] =
            if is_limited { &["bandwidth delay-pool-2-all", "bandwidth delay-pool-2-client"] } else { &[] };
        assert_eq!(limits, wanted, "{client} {minute}\n{}", imported.toml);
    }
    // A limit opens and closes nothing.
    assert!(Judge::of(&imported).allows(&get("http://a.test/", "10.1.1.1")));
    assert!(!Judge::of(&imported).allows(&get("http://a.test/", "8.8.8.8")));
}

/// Destinations that Larder closes by itself need no rule; a listener of this machine alone closes none.
#[test]
fn denied_destinations_are_closed_at_every_listener() {
    for (port, nets, of_rule) in [
        ("3128", "127.0.0.3", None),
        ("127.0.0.1:3128", "127.0.0.3", Some("destination = \"127.0.0.3/32\"")),
        ("3128", "127.0.0.0/8 10.0.0.0/8", Some("destination = [\"127.0.0.0/8\", \"10.0.0.0/8\"]")),
    ] {
        let text = format!(
            "http_port {port}\nacl there dst {nets}\nacl post method POST\nhttp_access deny post there\nhttp_access deny there\nhttp_access allow all\n"
        );
        let imported = imported(Format::Squid, &text, &mut NoFiles);
        assert!(of_rule.is_none_or(|rule| imported.toml.contains(rule)), "{}", imported.toml);
        assert_eq!(imported.guards_to_look_at().count(), 0, "{}", imported.toml);
        let judge = Judge::of(&imported);
        let there = Request { address: "127.0.0.3".parse().ok(), ..get("http://a.test/", "10.0.0.1") };
        assert_eq!(judge.allows(&there), of_rule.is_none(), "{}", imported.toml);
        assert!(judge.allows(&get("http://a.test/", "10.0.0.1")), "{}", imported.toml);
    }
    // Nothing is known of a name, and through a parent none is looked up.
    for text in ["acl there dst pc.test\n", "cache_peer p.test parent 3128 0\nacl there dst 10.0.0.0/8\n"] {
        let text = format!("http_port 3128\n{text}http_access deny there\nhttp_access allow all\n");
        let imported = imported(Format::Squid, &text, &mut NoFiles);
        assert!(imported.guards_to_look_at().any(|note| note.source.contains("deny there")), "{}", imported.toml);
    }
}

#[test]
fn a_squid_without_access_lines_allows_nothing() {
    let imported = imported(Format::Squid, "http_port 3128\n", &mut NoFiles);
    assert!(!Judge::of(&imported).allows(&get("http://a.test/", "127.0.0.1")), "{}", imported.toml);
}

#[test]
fn a_line_without_an_acl_opens_nothing() {
    let imported = imported(Format::Squid, "http_port 3128\nhttp_access allow\nhttp_access deny\n", &mut NoFiles);
    assert!(!Judge::of(&imported).allows(&get("http://a.test/", "127.0.0.1")), "{}", imported.toml);
}

#[test]
fn logins_of_squid() {
    let auth = "auth_param basic program /usr/lib/squid/basic_ncsa_auth /etc/squid/users\nauth_param basic realm Office\nacl users proxy_auth REQUIRED\nacl lan src 10.0.0.0/8\n";
    for (lines, of_all) in [
        ("http_access allow users\n", true),
        ("http_access deny !users\nhttp_access allow lan\n", true),
        ("http_access allow lan\nhttp_access allow users\n", false),
    ] {
        let imported = imported(Format::Squid, &format!("{auth}{lines}http_access deny all\n"), &mut NoFiles);
        assert_eq!(imported.toml.contains("login = \"squid\"\n"), of_all, "{lines}\n{}", imported.toml);
        assert_eq!(imported.toml.contains("do = { login = \"squid\" }"), !of_all, "{lines}\n{}", imported.toml);
        let judge = Judge::of(&imported);
        assert!(!judge.allows(&get("http://a.test/", "8.8.8.8")));
    }
}

#[test]
fn logins_and_groups_of_squid_by_ldap() {
    let auth = "auth_param basic program /usr/lib/squid/basic_ldap_auth -b \"ou=people,dc=a\" -f uid=%s -H ldaps://ldap.a.test\n\
                auth_param basic children 5\nacl users proxy_auth REQUIRED\nacl ada proxy_auth Ada\n";
    let groups = "external_acl_type group ttl=60 %LOGIN /usr/lib/squid/ext_ldap_group_acl -b ou=groups,dc=a -f (&(cn=%g)(memberUid=%u)) -H ldaps://ldap.a.test\n\
                  acl staff external group staff\n";
    let lines = "http_access deny !users\nhttp_access deny ada\nhttp_access allow staff\nhttp_access deny all\n";
    let translated = imported(Format::Squid, &format!("{auth}{groups}{lines}"), &mut NoFiles);
    for part in [
        "ldap = [\"ldaps://ldap.a.test\"]",
        "ldap_filter = \"(uid={user})\"",
        "ldap_groups_filter = \"(memberUid={user})\"",
        "user = \"ada\"",
        "group = \"staff\"",
        "connect_ports = []\nlogin = \"squid\"\n",
    ] {
        assert!(translated.toml.contains(part), "{part}\n{}", translated.toml);
    }
    assert!(!translated.toml.contains("[[helper]]"), "{}", translated.toml);
    let judge = Judge::of(&translated);
    assert!(!judge.allows(&get("http://a.test/", "10.0.0.1")));
    assert!(!judge.allows(&Request { user: Some("bob"), ..get("http://a.test/", "10.0.0.1") }), "bob is in no group");
    // A filter that Larder can't say leaves the program where it is, with the reason.
    let kept = auth.replace("uid=%s", "uid=%s*");
    let kept = imported(Format::Squid, &format!("{kept}http_access allow users\nhttp_access deny all\n"), &mut NoFiles);
    assert!(kept.toml.contains("basic_ldap_auth") && kept.toml.contains("star beside a name"), "{}", kept.toml);
    assert!(kept.toml.contains("helper = \"squid-login\""), "{}", kept.toml);
}

#[test]
fn helpers_that_permit_all_or_are_no_part_of_a_rule() {
    let text = "external_acl_type ip ttl=60 %SRC %METHOD /usr/lib/squid/ext_file_userip_acl -f /etc/x\nacl who external ip word\n";
    let all = imported(Format::Squid, &format!("{text}http_access deny !who\nhttp_access allow all\n"), &mut NoFiles);
    assert!(all.toml.contains("external = [\"who\"]") && all.toml.contains("arguments = [\"word\"]"), "{}", all.toml);
    let one = imported(
        Format::Squid,
        &format!("{text}acl lan src 10.0.0.0/8\nhttp_access allow who\nhttp_access allow lan\n"),
        &mut NoFiles,
    );
    let judge = Judge::of(&one);
    assert!(judge.allows(&get("http://a.test/", "10.0.0.1")) && !judge.allows(&get("http://a.test/", "9.9.9.9")));
    assert!(one.guards_to_look_at().count() >= 2, "{}", one.toml);
}

#[test]
fn tunnels_that_squid_ends_are_denied() {
    let text = "http_port 3128 ssl-bump cert=/etc/x.pem\nacl step1 at_step SslBump1\nacl ok ssl::server_name .good.test\nacl lan src 10.0.0.0/8\nhttp_access allow lan\nssl_bump peek step1 all\nssl_bump splice ok\nssl_bump terminate all\n";
    let imported = imported(Format::Squid, text, &mut NoFiles);
    let judge = Judge::of(&imported);
    let connect = |host: &str| Request { method: "CONNECT", host: host.to_owned(), ..get("https://x/", "10.0.0.1") };
    assert!(judge.allows(&connect("www.good.test")) && !judge.allows(&connect("bad.test")), "{}", imported.toml);
    assert!(judge.allows(&get("http://bad.test/", "10.0.0.1")));
    assert!(imported.toml.contains("pass = [\"good.test\", \"*.good.test\"]"), "{}", imported.toml);
}

#[test]
fn purges_of_squid() {
    let text =
        "acl PURGE method PURGE\nhttp_access allow PURGE localhost\nhttp_access deny PURGE\nhttp_access allow all\n";
    let imported = imported(Format::Squid, text, &mut NoFiles);
    assert!(imported.toml.contains("purge = [\"127.0.0.1/32\", \"::1/128\"]"), "{}", imported.toml);
}

#[test]
fn a_squid_in_front_of_a_site() {
    let text = "http_port 80 accel defaultsite=www.a.test vhost\ncache_peer 10.0.0.5 parent 8080 0 no-query originserver round-robin name=one\ncache_peer 10.0.0.6 parent 8080 0 no-query originserver round-robin name=two weight=3\nacl site dstdomain www.a.test\nhttp_access allow site\ncache_peer_access one allow site\ncache_peer_access two allow site\n";
    let imported = imported(Format::Squid, text, &mut NoFiles);
    for part in [
        "hosts = [\"www.a.test\"]",
        "origin = \"one\"",
        "members = [{ url = \"http://10.0.0.5:8080\" }, { url = \"http://10.0.0.6:8080\", weight = 3 }]",
        "forward = false",
    ] {
        assert!(imported.toml.contains(part), "{part}\n{}", imported.toml);
    }
}

const NGINX: &str = r#"
worker_processes auto;
events { worker_connections 1024; }
http {
    proxy_cache_path /var/cache/nginx levels=1:2 keys_zone=pages:10m max_size=2g inactive=60m;
    limit_req_zone $binary_remote_addr zone=slow:10m rate=10r/s;
    upstream app { least_conn; server 10.0.0.1:8000 weight=2; server 10.0.0.2:8000 backup; keepalive 32; }
    server { listen 80; server_name a.test www.a.test; return 301 https://$host$request_uri; }
    server {
        listen 443 ssl;
        server_name a.test www.a.test;
        ssl_certificate /etc/ssl/a.pem;
        ssl_certificate_key /etc/ssl/a.key;
        client_max_body_size 20m;
        gzip on;
        location / {
            proxy_pass http://app;
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_cache pages;
            proxy_cache_valid 200 10m;
            proxy_cache_use_stale error timeout updating;
            proxy_cache_bypass $cookie_session;
            add_header X-Cache $upstream_cache_status;
            add_header X-Frame-Options DENY;
        }
        location /admin/ { allow 10.0.0.0/8; deny all; proxy_pass http://app; }
        location ~ ^/staff { auth_basic "Staff"; auth_basic_user_file /etc/nginx/users; proxy_pass http://app; }
        location = /secret { auth_request /ask; proxy_pass http://app; }
        location /api/ { limit_req zone=slow burst=20; proxy_pass http://10.0.0.9:9000/v1/; }
        location /static/ { root /srv; }
        location ~ \.php$ { return 403; }
    }
}
"#;

#[test]
fn codings_of_nginx_are_those_of_a_site() {
    let text = "http { gzip on; gzip_types text/css image/png image/svg+xml; gzip_min_length 512; server { listen 80; server_name a.test; \
                brotli on; brotli_comp_level 4; location / { proxy_pass http://10.0.0.1; } location /plain { gzip off; brotli off; proxy_pass http://10.0.0.2; } } }";
    let imported = imported(Format::Nginx, text, &mut NoFiles);
    let toml: toml::Table = imported.toml.parse().unwrap();
    let sites = toml["site"].as_array().unwrap();
    let find = |prefix: Option<&str>| {
        sites.iter().find(|site| site.get("prefix").and_then(|prefix| prefix.as_str()) == prefix).unwrap()
    };
    let texts = |site: &toml::Value, key: &str| {
        let list = site[key].as_array().unwrap();
        list.iter().map(|each| each.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let first = find(None);
    assert_eq!(texts(first, "compression"), "br:4 gzip");
    assert_eq!(texts(first, "compression_types"), "image/svg+xml text/css text/html");
    assert_eq!(first["compression_bytes_min"].as_str(), Some("512B"));
    assert!(find(Some("/plain")).get("compression").is_none(), "{}", imported.toml);
}

/// nginx codes each type then, Larder those of which it knows that it helps.
#[test]
fn any_type_is_not_what_larder_codes() {
    for (types, fate) in [("*", Fate::Different), ("text/css *", Fate::Different), ("text/css", Fate::Translated)] {
        let text = format!(
            "http {{ server {{ listen 80; server_name a.test; gzip on; gzip_types {types}; location / {{ proxy_pass http://10.0.0.1; }} }} }}"
        );
        let imported = imported(Format::Nginx, &text, &mut NoFiles);
        let note = imported.notes.iter().find(|note| note.directive == "gzip_types").unwrap();
        assert_eq!(note.fate, fate, "{types}: {}", note.text);
    }
}

/// `larder check` refuses archives, and would take a size for another one.
#[test]
fn types_and_sizes_of_codings_are_read_as_nginx_reads_them() {
    let site = |lines: &str| {
        let text = format!(
            "http {{ server {{ listen 80; server_name a.test; gzip on; {lines} location / {{ proxy_pass http://10.0.0.1; }} }} }}"
        );
        let toml: toml::Table = imported(Format::Nginx, &text, &mut NoFiles).toml.parse().unwrap();
        toml["site"][0].clone()
    };
    let types = |lines: &str| site(lines).get("compression_types").map(toml::Value::to_string);
    let archives = "gzip_types application/zstd application/x-gzip application/x-xz application/x-bzip2 application/x-7z-compressed \
                    application/java-archive application/wasm;";
    assert_eq!(types(archives).as_deref(), Some(r#"["application/wasm", "text/html"]"#));
    assert_eq!(types("gzip_types *;"), None);
    assert_eq!(types("").as_deref(), Some(r#"["text/html"]"#));
    for (size, bytes) in [("1k", "1024B"), ("1K", "1024B"), ("1m", "1048576B"), ("20", "20B")] {
        let site = site(&format!("gzip_min_length {size};"));
        assert_eq!(site["compression_bytes_min"].as_str(), Some(bytes), "{size}");
    }
}

/// nginx wants the header of everybody, and believes those that `set_real_ip_from` names.
#[test]
fn balancers_before_nginx_are_named() {
    let server = |lines: &str| {
        let text = format!(
            "http {{ set_real_ip_from 10.9.0.1; server {{ listen 80 proxy_protocol; server_name a.test; {lines} location / {{ proxy_pass http://10.0.0.1; }} }} }}"
        );
        imported(Format::Nginx, &text, &mut NoFiles).toml
    };
    let by_header = "real_ip_header proxy_protocol;";
    for (lines, wanted) in [
        (by_header.to_owned(), Some("proxy_protocol = [\"10.9.0.1\"]")),
        (
            format!("{by_header} set_real_ip_from 10.0.0.0/28; set_real_ip_from fd00::/8;"),
            Some("proxy_protocol = [\"10.0.0.0/28\", \"fd00::/8\"]"),
        ),
        (format!("{by_header} set_real_ip_from balancer.test;"), None),
        ("real_ip_header X-Forwarded-For;".to_owned(), None),
        (String::new(), None),
    ] {
        let toml = server(&lines);
        assert_eq!(toml.contains("proxy_protocol = ["), wanted.is_some(), "{lines}\n{toml}");
        assert!(toml.contains(wanted.unwrap_or("name the balancers in proxy_protocol")), "{lines}\n{toml}");
    }
}

#[test]
fn servers_of_nginx_at_one_address_are_one_listener() {
    let server = |name: &str, listen: &str, from: &str| {
        format!(
            "server {{ {listen} server_name {name}; ssl_certificate /c; ssl_certificate_key /k; real_ip_header proxy_protocol; set_real_ip_from {from}; location / {{ proxy_pass http://10.0.0.1; }} }}"
        )
    };
    let both = |first: &str, second: &str| {
        let text =
            format!("http {{ {} {} }}", server("a.test", first, "10.0.0.1"), server("b.test", second, "10.0.0.2"));
        imported(Format::Nginx, &text, &mut NoFiles).toml
    };
    let toml = both("listen 443 ssl; listen 443 quic reuseport;", "listen 443 ssl;");
    assert_eq!(toml.matches("[[listen]]").count(), 1, "{toml}");
    assert!(toml.contains("http3 = true") && !toml.contains("proxy_protocol = ["), "{toml}");
    let toml = both("listen 443 ssl proxy_protocol;", "listen 443 ssl proxy_protocol;");
    assert!(toml.contains("proxy_protocol = [\"10.0.0.1\", \"10.0.0.2\"]"), "{toml}");
    assert!(toml.contains("those of all servers at this address"), "{toml}");
    for (first, second) in
        [("listen 443 quic;", "listen 443 ssl proxy_protocol;"), ("listen 443 ssl proxy_protocol;", "listen 443 quic;")]
    {
        let toml = both(first, second);
        assert!(!toml.contains("http3 = true") && toml.contains("has no HTTP/3"), "{toml}");
    }
}

#[test]
fn sites_of_nginx() {
    let imported = imported(Format::Nginx, NGINX, &mut NoFiles);
    let toml = &imported.toml;
    for part in [
        "disk = \"2048MiB\"",
        "balance = \"least-connections\"",
        "{ url = \"http://10.0.0.2:8000\", backup = true }",
        "chain = \"/etc/ssl/a.pem\", key = \"/etc/ssl/a.key\"",
        "body_bytes_max = \"20971520B\"",
        "do = { redirect = \"https://{host}{path}{query}\", status = 301 }",
        "lifetime = \"600s\"",
        "stale_if_error = \"1d\"",
        "answer_set = [\"X-Frame-Options: DENY\"]",
        "rate = \"10/s\"",
        "path = \"/v1/{1}\"",
        "idle_per_origin_max = 32",
        "path_regex = \"^/staff\"",
        "do = { login = \"nginx\" }",
    ] {
        assert!(toml.contains(part), "{part}\n{toml}");
    }
    assert!(!toml.contains("X-Cache: "), "{toml}");
    let judge = Judge::of(&imported);
    let at = |path: &str, client: &str| Request {
        listener: "0.0.0.0:443".parse().unwrap(),
        ..get(&format!("https://a.test{path}"), client)
    };
    let denied = |request: &Request| judge.effects(request).iter().any(|word| word == "deny");
    for (path, client, wanted) in [
        ("/", "8.8.8.8", false),
        ("/admin/x", "8.8.8.8", true),
        ("/admin/x", "10.0.0.1", false),
        ("/secret", "10.0.0.1", true),
        ("/static/a.css", "8.8.8.8", true),
        ("/a.php", "8.8.8.8", true),
        ("/api/x", "8.8.8.8", false),
    ] {
        assert_eq!(denied(&at(path, client)), wanted, "{path} {client}\n{toml}");
    }
    let cookie = Request { fields: vec![("Cookie", "a=1; session=x".to_owned())], ..at("/", "8.8.8.8") };
    assert!(judge.effects(&cookie).iter().any(|word| word == "not stored"));
    assert!(!judge.effects(&at("/", "8.8.8.8")).iter().any(|word| word == "not stored"));
    assert!(imported.guards_to_look_at().any(|note| note.directive == "auth_request"));
}

const VCL: &str = r#"
vcl 4.1;
import std;
import directors;
probe up { .url = "/up"; .interval = 5s; .timeout = 1s; .window = 5; }
backend one { .host = "10.0.0.1"; .port = "8080"; .probe = up; .first_byte_timeout = 60s; }
backend two { .host = "10.0.0.2"; .port = "8080"; .probe = up; }
acl purge { "localhost"; "10.0.9.0"/24; }
sub vcl_init { new app = directors.round_robin(); app.add_backend(one); app.add_backend(two); }
sub vcl_recv {
    set req.backend_hint = app.backend();
    if (req.method == "PURGE") {
        if (!client.ip ~ purge) { return (synth(405, "no")); }
        return (purge);
    }
    if (req.url ~ "^/private") { return (synth(403, "no")); }
    if (req.url ~ "\.(css|js|png)$") { unset req.http.Cookie; return (hash); }
    if (req.url ~ "^/admin" || req.http.Authorization) { return (pass); }
    if (req.method != "GET" && req.method != "HEAD") { return (pass); }
    if (req.http.User-Agent ~ "BadBot") { return (synth(403, "no")); }
}
sub vcl_backend_response {
    set beresp.grace = 1h;
    if (bereq.url ~ "^/news") { set beresp.ttl = 2m; }
    if (beresp.status == 404) { set beresp.ttl = 10s; }
    set beresp.do_esi = true;
    unset beresp.http.Server;
}
sub vcl_deliver { if (obj.hits > 0) { set resp.http.X-Cache = "HIT"; } set resp.http.X-By = "larder"; }
sub vcl_hash { hash_data(req.url); hash_data(req.http.X-Device); }
"#;

#[test]
fn a_site_of_varnish() {
    let imported = imported(Format::Varnish, VCL, &mut NoFiles);
    let toml = &imported.toml;
    for part in [
        "origin = \"app\"",
        "check = { path = \"/up\", every = \"5s\", timeout = \"1s\" }",
        "purge = [\"127.0.0.0/8\", \"::1/128\", \"10.0.9.0/24\"]",
        "do = { grace = \"3600s\" }",
        "do = { lifetime = \"120s\" }",
        "answer_remove = [\"Server\"]",
        "answer_set = \"X-By: larder\"",
        "first_byte = \"60s\"",
    ] {
        assert!(toml.contains(part), "{part}\n{toml}");
    }
    assert!(!toml.contains("answer_set = \"X-Cache"), "{toml}");
    let judge = Judge::of(&imported);
    let words = |path: &str, fields: Vec<(&'static str, String)>| {
        judge.effects(&Request { fields, ..get(&format!("http://a.test{path}"), "8.8.8.8") })
    };
    let has = |words: &[String], wanted: &str| words.iter().any(|word| word == wanted);
    let cookie = || vec![("Cookie", "a=1".to_owned())];
    assert!(has(&words("/private/x", Vec::new()), "deny"));
    assert!(has(&words("/admin", Vec::new()), "not stored"));
    assert!(has(&words("/", cookie()), "not stored") && !has(&words("/", Vec::new()), "not stored"));
    assert!(!has(&words("/a.css", cookie()), "not stored") && has(&words("/a.css", cookie()), "removes Cookie"));
    assert!(has(&words("/", vec![("X-Device", "tv".to_owned())]), "not stored"));
    let purge = |client: &str| judge.effects(&Request { method: "PURGE", ..get("http://a.test/", client) });
    assert!(has(&purge("8.8.8.8"), "deny") && !has(&purge("10.0.9.7"), "deny"));
    let note = |text: &str| imported.notes.iter().find(|note| note.source.contains(text)).map(|note| note.fate);
    assert_eq!(note("do_esi"), Some(Fate::Missing));
    assert_eq!(note("beresp.ttl = 10s"), Some(Fate::Missing));
}

/// In files of expressions blanks belong to them, and `#` behind a blank begins a comment, as in Squid 5.7.
#[test]
fn files_of_expressions_have_comments() {
    let text =
        "http_port 3128\nacl words url_regex \"/etc/squid/words\"\nhttp_access deny words\nhttp_access allow all\n";
    let imported = imported(Format::Squid, text, &mut Office);
    let judge = Judge::of(&imported);
    for (path, is_allowed) in
        [("casino", false), ("se%23ven", false), ("ni%20ne", false), ("se", true), ("like", true), ("ni", true)]
    {
        let request = get(&format!("http://a.test/{path}"), "10.0.0.1");
        assert_eq!(judge.allows(&request), is_allowed, "{path}\n{}", imported.toml);
    }
}
