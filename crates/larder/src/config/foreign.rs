//! Words of other programs' configurations, and the settings that take their place here. `larder import` translates whole files; these
//! are hints for a file that somebody writes by hand.

use super::names::{TABLES, in_a_row, in_brackets};
use larder_import::Format;

/// A word of another program.
pub struct ForeignWord {
    /// The word.
    pub word: &'static str,
    /// The program.
    pub of: Format,
    /// The settings and tables that take its place.
    pub here: &'static [&'static str],
}

const fn squid(word: &'static str, here: &'static [&'static str]) -> ForeignWord {
    ForeignWord { word, of: Format::Squid, here }
}

const fn nginx(word: &'static str, here: &'static [&'static str]) -> ForeignWord {
    ForeignWord { word, of: Format::Nginx, here }
}

const fn varnish(word: &'static str, here: &'static [&'static str]) -> ForeignWord {
    ForeignWord { word, of: Format::Varnish, here }
}

/// All words that are known, each once.
pub static WORDS: &[ForeignWord] = &[
    squid("acl", &["rule", "rule.when.client", "rule.when.host"]),
    squid("http_access", &["rule", "rule.do.allow", "rule.do.deny"]),
    squid("src", &["rule.when.client"]),
    squid("dst", &["rule.when.destination"]),
    squid("dstdomain", &["rule.when.host"]),
    squid("dstdom_regex", &["rule.when.host_regex"]),
    squid("urlpath_regex", &["rule.when.target_regex"]),
    squid("proto", &["rule.when.scheme"]),
    squid("browser", &["rule.when.user_agent"]),
    squid("maxconn", &["limits.connections_per_client_max"]),
    squid("credentialsttl", &["login.ttl"]),
    squid("http_port", &["listen", "listen.address"]),
    squid("https_port", &["listen", "listen.tls.chain", "listen.tls.key"]),
    squid("ssl_bump", &["listen.intercept", "intercept.pass"]),
    squid("cache_dir", &["disk", "store"]),
    squid("cache_mem", &["memory"]),
    squid("maximum_object_size", &["object_bytes_max"]),
    squid("maximum_object_size_in_memory", &["memory_object_bytes_max"]),
    squid("refresh_pattern", &["store_rule", "policy.heuristic_percent", "policy.heuristic_max"]),
    squid("cache", &["rule.do.never"]),
    squid("cache_peer", &["parent", "origin"]),
    squid("never_direct", &["forward.direct"]),
    squid("always_direct", &["forward.direct"]),
    squid("icp_port", &["neighbours.icp"]),
    squid("icp_access", &["neighbours.from"]),
    squid("htcp_access", &["neighbours.from"]),
    squid("delay_pools", &["bandwidth", "rule.do.bandwidth"]),
    squid("delay_class", &["bandwidth.by"]),
    squid("delay_parameters", &["bandwidth.rate", "bandwidth.burst"]),
    squid("delay_access", &["rule.do.bandwidth"]),
    squid("auth_param", &["login", "helper"]),
    squid("proxy_auth", &["access.login", "rule.when.user"]),
    squid("external_acl_type", &["helper", "access.external"]),
    squid("url_rewrite_program", &["helper", "forward.url_rewrite"]),
    squid("url_rewrite_children", &["helper.children"]),
    squid("store_id_program", &["helper", "forward.store_id"]),
    squid("store_id_children", &["helper.children"]),
    squid("icap_service", &["icap"]),
    squid("icap_enable", &["icap"]),
    squid("adaptation_access", &["icap.hosts", "icap.methods"]),
    squid("request_header_access", &["rule.do.remove"]),
    squid("request_header_add", &["rule.do.add"]),
    squid("request_header_replace", &["rule.do.set"]),
    squid("reply_header_access", &["rule.do.answer_remove"]),
    squid("reply_header_add", &["rule.do.answer_add"]),
    squid("reply_header_replace", &["rule.do.answer_set"]),
    squid("request_body_max_size", &["limits.body_bytes_max"]),
    squid("request_header_max_size", &["limits.head_bytes_max"]),
    squid("deny_info", &["rule.do.page", "rule.do.redirect"]),
    squid("logformat", &["log.format"]),
    squid("dns_nameservers", &["upstream.resolver"]),
    squid("sslproxy_cafile", &["upstream.extra_roots"]),
    squid("tls_outgoing_options", &["upstream.extra_roots"]),
    squid("cachemgr_passwd", &["admin_token"]),
    squid("connect_timeout", &["timeouts.connect"]),
    squid("request_timeout", &["timeouts.head"]),
    squid("shutdown_lifetime", &["timeouts.drain"]),
    squid("pconn_timeout", &["timeouts.idle", "timeouts.origin_idle"]),
    squid("ftp_user", &["forward.ftp"]),
    nginx("server", &["listen", "site"]),
    nginx("server_name", &["site.hosts"]),
    nginx("listen", &["listen", "listen.address"]),
    nginx("location", &["site.prefix", "rule.when.path"]),
    nginx("proxy_pass", &["site.origin"]),
    nginx("proxy_cache", &["site"]),
    nginx("proxy_cache_path", &["disk", "store"]),
    nginx("proxy_cache_key", &["rule.do.key"]),
    nginx("proxy_cache_valid", &["store_rule.lifetime", "rule.do.lifetime"]),
    nginx("proxy_cache_bypass", &["rule.do.never"]),
    nginx("proxy_no_cache", &["rule.do.never"]),
    nginx("proxy_cache_use_stale", &["store_rule.stale_if_error", "store_rule.stale_while_revalidate"]),
    nginx("proxy_set_header", &["rule.do.set"]),
    nginx("add_header", &["rule.do.answer_set"]),
    nginx("proxy_hide_header", &["rule.do.answer_remove"]),
    nginx("proxy_connect_timeout", &["timeouts.connect"]),
    nginx("proxy_read_timeout", &["timeouts.first_byte", "timeouts.download_stall"]),
    nginx("keepalive_timeout", &["timeouts.idle"]),
    nginx("ssl_certificate", &["listen.tls.chain"]),
    nginx("ssl_certificate_key", &["listen.tls.key"]),
    nginx("ssl_verify_client", &["listen.client_certificates"]),
    nginx("ssl_client_certificate", &["listen.client_ca"]),
    nginx("ssl_crl", &["listen.client_crl"]),
    nginx("return", &["rule.do.redirect", "rule.do.deny"]),
    nginx("rewrite", &["rule.do.path", "rule.do.redirect"]),
    nginx("limit_req", &["rule.do.rate", "rule.do.burst"]),
    nginx("limit_req_zone", &["rule.do.rate", "rule.do.rate_by"]),
    nginx("limit_rate", &["bandwidth", "rule.do.bandwidth"]),
    nginx("limit_conn", &["limits.connections_per_client_max"]),
    nginx("client_max_body_size", &["limits.body_bytes_max"]),
    nginx("auth_basic", &["login", "site.login"]),
    nginx("auth_basic_user_file", &["login", "login.file"]),
    nginx("access_log", &["log.to", "log.format"]),
    nginx("log_format", &["log.format"]),
    nginx("worker_processes", &["workers"]),
    nginx("worker_connections", &["limits.connections_max"]),
    varnish("backend", &["origin", "site.origin"]),
    varnish("director", &["origin", "origin.balance"]),
    varnish("directors", &["origin", "origin.balance"]),
    varnish("probe", &["origin.check.path", "origin.check.every"]),
    varnish("vcl_recv", &["rule"]),
    varnish("vcl_hash", &["rule.do.key"]),
    varnish("vcl_backend_fetch", &["rule.do.set", "rule.do.remove"]),
    varnish("vcl_backend_response", &["store_rule", "rule.do.lifetime"]),
    varnish("vcl_deliver", &["rule.do.answer_set", "rule.do.answer_remove"]),
    varnish("vcl_synth", &["rule.do.page"]),
    varnish("default_grace", &["store_rule.stale_while_revalidate", "rule.do.grace"]),
    varnish("default_ttl", &["store_rule.lifetime", "policy.unlabelled"]),
    varnish("ban", &["access.purge"]),
    varnish("malloc", &["memory"]),
    varnish("http_max_hdr", &["limits.fields_max"]),
    varnish("http_req_size", &["limits.head_bytes_max"]),
];

/// The name of the program, as people write it.
fn program(of: Format) -> &'static str {
    match of {
        Format::Squid => "Squid",
        Format::Nginx => "nginx",
        Format::Varnish => "Varnish",
    }
}

/// The hint for an unknown setting whose name is a word of another program.
pub fn hint(word: &str) -> Option<String> {
    let found = WORDS.iter().find(|known| known.word == word)?;
    let marked = |name: &&str| if TABLES.contains(name) { in_brackets(name) } else { (*name).to_owned() };
    let here: Vec<String> = found.here.iter().map(|name| format!("`{}`", marked(name))).collect();
    let (program, page) = (program(found.of), found.of.as_str());
    let here = in_a_row(&here, "and");
    Some(format!("this is a word of {program}; here it is {here}: see docs/coming-from-{page}.md"))
}

/// The fault of a text that is no TOML and looks like another program's configuration, and the remedy.
pub(super) fn whole_file(name: &str, text: &str) -> Option<(String, String)> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).take(5_000);
    let is_toml =
        |line: &&str| line.starts_with('[') || line.split_once('=').is_some_and(|(key, _)| is_bare_key(key.trim_end()));
    if lines().filter(is_toml).count() * 2 > lines().count() {
        return None;
    }
    // By its content alone: a name says nothing of a file that was given as Larder's own.
    let format = larder_import::guess("", text)?;
    let (program, word) = (program(format), format.as_str());
    Some((
        format!("{name} is a configuration of {program}, not one of Larder"),
        format!(
            "`larder import --from {word} {name} --out larder.toml` translates it; docs/coming-from-{word}.md says how"
        ),
    ))
}

fn is_bare_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.\"".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;
    use crate::config::names;
    use std::path::Path;

    #[test]
    fn each_word_stands_once_and_leads_to_settings_that_there_are() {
        for (at, ForeignWord { word, of, here }) in WORDS.iter().enumerate() {
            assert!(WORDS[..at].iter().all(|other| other.word != *word), "{word} stands twice");
            assert!(!here.is_empty(), "{word}");
            for name in *here {
                let is_known = TABLES.contains(name) || names::all().any(|known| known == *name);
                assert!(is_known, "{word}: there is no setting {name}");
            }
            let page = format!("../../docs/coming-from-{}.md", of.as_str());
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(&page).is_file(), "{word}: there is no {page}");
        }
    }

    fn report(text: &str) -> String {
        Loaded::parse("x.toml", text, &[]).map(|_| String::new()).unwrap_or_else(|report| report.to_string())
    }

    #[test]
    fn words_of_other_programs_are_explained_wherever_they_stand() {
        for (text, wanted) in [
            (
                "http_access = \"allow all\"",
                "a word of Squid; here it is `[[rule]]`, `rule.do.allow` and `rule.do.deny`",
            ),
            ("[acl]\nlocal = 1", "a word of Squid; here it is `[[rule]]`, `rule.when.client`"),
            ("[[cache_peer]]\nname = \"a\"", "here it is `[[parent]]` and `[[origin]]`: see docs/coming-from-squid.md"),
            ("cache_mem = \"1GB\"", "here it is `memory`: see docs/coming-from-squid.md"),
            ("[[listen]]\naddress = \"127.0.0.1:1\"\nhttp_port = 3128", "here it is `[[listen]]` and `listen.address`"),
            ("[[site]]\nhosts = [\"a\"]\nproxy_pass = \"http://b\"", "a word of nginx; here it is `site.origin`"),
            (
                "[[site]]\nhosts = [\"a\"]\norigin = \"http://b\"\nlisten = 80",
                "a word of nginx; here it is `[[listen]]`",
            ),
            ("[[rule]]\nwhen = { proxy_auth = \"x\" }\ndo = { return = 301 }", "`rule.do.redirect` and `rule.do.deny`"),
            ("[[backend]]\nhost = \"a\"", "a word of Varnish; here it is `[[origin]]` and `site.origin`"),
            ("[[rule]]\nwhen = { src = \"10.0.0.0/8\" }\ndo = { deny = true }", "here it is `rule.when.client`"),
            ("[[rule]]\nwhen = { dstdomain = \".a\" }\ndo = { deny = true }", "here it is `rule.when.host`"),
            (
                "[forward]\nvcl_recv = \"x\"",
                "a word of Varnish; here it is `[[rule]]`: see docs/coming-from-varnish.md",
            ),
        ] {
            let told = report(text);
            assert!(told.contains(wanted) && told.contains("x.toml:"), "{text}:\n{told}");
        }
    }

    #[test]
    fn whole_files_of_other_programs_are_led_to_the_import() {
        for (text, program) in [
            ("acl localnet src 10.0.0.0/8\nhttp_access allow localnet\nhttp_port 3128\n", "squid"),
            ("# a comment = here\nhttp_port 3128\ncache_dir ufs /var/spool/squid 100 16 256\n", "squid"),
            ("http {\n  server {\n    listen 80;\n    set $a = b;\n  }\n}\n", "nginx"),
            ("vcl 4.1;\nbackend default {\n  .host = \"127.0.0.1\";\n  .port = \"80\";\n}\n", "varnish"),
        ] {
            let told = report(text);
            assert!(
                told.contains(&format!("larder import --from {program} x.toml --out larder.toml")),
                "{text}:\n{told}"
            );
            assert!(told.contains("x.toml:1:1") && told.contains("1 error"), "{text}:\n{told}");
        }
        // A file of Larder's own with a slip in it stays one.
        for text in [
            "[[listen]]\naddress = \"127.0.0.1:1\"\nhttp_port 3128\n",
            "listen = [\n  { address = \"127.0.0.1:1\" },\n]\nmemory = \n",
            "memory = 1GB\n",
            "nonsense\n",
        ] {
            let told = report(text);
            assert!(told.contains("error: ") && !told.contains("larder import"), "{text}:\n{told}");
        }
    }
}
