//! Directives that become no setting, each with the reason.

use super::lines::Line;
use crate::note::Fate;

/// The fate of a directive that no other part of the reader takes, and what is to be said of it.
pub fn find(line: &Line) -> Option<(Fate, &'static str)> {
    let name = line.name();
    let in_table = |table: &'static [(&'static str, &'static str)]| {
        let at = table.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
        table.get(at).map(|(_, text)| *text)
    };
    if let Some(found) = by_value(name, line.word(1)) {
        return Some(found);
    }
    in_table(NOT_NEEDED)
        .map(|text| (Fate::NotNeeded, text))
        .or_else(|| in_table(DIFFERENT).map(|text| (Fate::Different, text)))
        .or_else(|| in_table(MISSING).map(|text| (Fate::Missing, text)))
}

/// Those whose value decides.
fn by_value(name: &str, value: &str) -> Option<(Fate, &'static str)> {
    Some(match (name, value) {
        ("snmp_port", "0") => (Fate::NotNeeded, "there is none"),
        ("ftp_passive", "off") => (Fate::Different, "data connections are passive in any case"),
        ("ftp_passive", _) => (Fate::NotNeeded, "data connections are passive"),
        ("hosts_file", "/etc/hosts") => (Fate::NotNeeded, "it is read in any case"),
        ("hosts_file", "none") => (Fate::Different, "/etc/hosts is read all the same"),
        ("hosts_file", _) => (Fate::Missing, "Larder reads /etc/hosts alone: its lines belong there"),
        _ => return None,
    })
}

const NOT_NEEDED: &[(&str, &str)] = &[
    ("accept_filter", "connections are accepted after their first bytes"),
    ("acl_uses_indirect_client", "the address of the connection counts"),
    ("adaptation_uses_indirect_client", "the address of the connection counts"),
    ("allow_underscore", "underscores are permitted"),
    ("announce_file", "nobody is told"),
    ("announce_host", "nobody is told"),
    ("announce_period", "nobody is told"),
    ("announce_port", "nobody is told"),
    ("as_whois_server", "no such acl"),
    ("authenticate_cache_garbage_interval", "the memo of logins is bounded"),
    ("authenticate_ip_ttl", "a user may come from any address"),
    ("authenticate_ttl", "login.ttl says that"),
    ("background_ping_rate", "origins are not pinged"),
    ("balance_on_multiple_ip", "addresses of a name are raced"),
    ("broken_vary_encoding", "answers with Vary are stored by variant"),
    ("buffered_logs", "a thread writes the log"),
    ("cache_dns_program", "the resolver is a part of Larder"),
    ("cache_effective_group", "the service manager starts Larder as its group"),
    ("cache_effective_user", "the service manager starts Larder as its user"),
    ("cache_log", "what the program says goes to standard error, and so to the journal"),
    ("cache_mgr", "pages name no address of a person"),
    ("cache_miss_revalidate", "conditional requests pass"),
    ("cache_replacement_policy", "S3-FIFO; the disk drops what was not asked for"),
    ("cache_store_log", "`larder explain` says what is stored and why"),
    ("cache_swap_high", "the disk keeps its budget by itself"),
    ("cache_swap_low", "the disk keeps its budget by itself"),
    ("cache_swap_state", "the disk store knows its state"),
    ("cache_vary", "answers with Vary are stored by variant"),
    ("cachemgr_passwd", "the cache manager changes nothing, and answers this machine alone"),
    ("check_hostnames", "hosts are checked in any case"),
    ("chroot", "the service manager can confine it"),
    ("chunked_request_body_max_size", "chunked bodies pass"),
    ("client_db", "clients are counted in bounded memory"),
    (
        "client_dst_passthru",
        "a request at a transparent listener whose host leads elsewhere goes to the address that was connected to, others go by name",
    ),
    ("client_netmask", "the log has whole addresses"),
    ("client_persistent_connections", "connections are kept in any case"),
    ("client_request_buffer_max_size", "bodies pass in bounded memory"),
    ("collapsed_forwarding", "requests for the same response wait for one fetch in any case"),
    ("collapsed_forwarding_access", "requests for the same response wait for one fetch in any case"),
    ("configuration_includes_quoted_values", "words in quotation marks are read in any case"),
    ("connect_retries", "origin.retry says that"),
    ("coredump_dir", "the system says where they go"),
    ("cpu_affinity_map", "the system places the workers"),
    ("dead_peer_timeout", "members of an [[origin]] are ejected by themselves"),
    ("debug_options", "LARDER_LOG=debug says more"),
    ("delay_initial_bucket_level", "buckets are full at first"),
    ("delay_pool_uses_indirect_client", "the address of the connection counts"),
    ("detect_broken_pconn", "a connection that ended is not used again"),
    ("digest_generation", "no digests are made (write no-digest at the peer)"),
    ("diskd_program", "the disk is read by threads of Larder"),
    ("dns_children", "the resolver is a part of Larder"),
    ("dns_defnames", "the resolver reads resolv.conf"),
    ("dns_packet_max", "the resolver does it"),
    ("dns_retransmit_interval", "the resolver does it"),
    ("dns_timeout", "timeouts.connect bounds it"),
    ("dns_v4_fallback", "both are tried side by side (RFC 8305)"),
    ("dns_v4_first", "both are tried side by side (RFC 8305)"),
    ("email_err_data", "pages are Larder's own"),
    ("emulate_httpd_log", "log.format says it"),
    ("err_html_text", "pages are Larder's own"),
    ("err_page_stylesheet", "pages are Larder's own"),
    ("error_default_language", "pages are in English"),
    ("error_directory", "pages are Larder's own; rule.do.page takes one for a refusal"),
    ("error_log_languages", "pages are in English"),
    ("esi_parser", "there is no ESI"),
    ("eui_lookup", "hardware addresses are not known"),
    ("extension_methods", "any method passes"),
    ("force_request_body_continuation", "Expect is answered"),
    ("forward_log", "log.format says it"),
    ("forward_max_tries", "origin.retry says that"),
    ("fqdncache_size", "addresses are not looked up for names"),
    ("ftp_client_idle_timeout", "no client speaks FTP to Larder"),
    ("ftp_eprt", "data connections are passive"),
    ("ftp_epsv", "EPSV is asked for first (docs/ftp.md)"),
    ("ftp_epsv_all", "EPSV is asked for first (docs/ftp.md)"),
    ("ftp_list_width", "pages of folders are as wide as the window"),
    ("ftp_sanitycheck", "data connections lead to the server itself in any case"),
    ("ftp_telnet_protocol", "paths are sent as they are"),
    ("ftp_user", "the gateway logs in as anonymous (docs/ftp.md)"),
    ("global_internal_static", "pages of folders load no files"),
    ("half_closed_clients", "timeouts.half_closed says how long such a client is waited for"),
    ("happy_eyeballs_connect_gap", "addresses of a name are raced"),
    ("happy_eyeballs_connect_limit", "addresses of a name are raced"),
    ("happy_eyeballs_connect_timeout", "addresses of a name are raced"),
    ("hierarchy_stoplist", "requests that can't be stored go to parents as well"),
    ("high_memory_warning", "there are metrics"),
    ("high_page_fault_warning", "there are metrics"),
    ("high_response_time_warning", "there are metrics"),
    ("hopeless_kid_revival_delay", "the service manager starts it again"),
    (
        "host_verify_strict",
        "at a transparent listener a request whose host leads elsewhere is passed on and not stored",
    ),
    ("hostname_aliases", "Larder's name in Via is made by itself"),
    ("http_accel_surrogate_remote", "Surrogate-Key is read"),
    ("http_upgrade_request_protocols", "upgrades pass"),
    ("httpd_accel_no_pmtu_disc", "the system chooses"),
    ("httpd_accel_surrogate_id", "Surrogate-Key is read"),
    ("httpd_suppress_version_string", "pages do not name a version"),
    ("icap_206_enable", "206 is not asked for"),
    ("icap_connect_timeout", "icap.connect_timeout says that"),
    ("icap_default_options_ttl", "the service says it"),
    ("icap_io_timeout", "icap.answer_timeout and icap.silence_timeout say that"),
    ("icap_log", "the access log has the field icap"),
    ("icap_persistent_connections", "connections are kept in any case"),
    ("icap_retry", "the next URL of a [[icap]] is asked"),
    ("icap_retry_limit", "the next URL of a [[icap]] is asked"),
    ("icap_service_failure_limit", "a server that fails rests for 1 s, doubling to 60 s"),
    ("icap_service_revival_delay", "a server that fails rests for 1 s, doubling to 60 s"),
    ("icon_directory", "pages of folders load no files"),
    ("icp_hit_stale", "a stale response is a miss for neighbours"),
    ("icp_query_timeout", "neighbours are waited for as long as they mostly take; neighbours.wait_max is the most"),
    ("ident_lookup_access", "there is no ident"),
    ("ident_timeout", "there is no ident"),
    ("ie_refresh", "that browser is gone"),
    ("ignore_expect_100", "Expect is answered"),
    ("ignore_unknown_nameservers", "the resolver does it"),
    ("incoming_rate", "the system chooses"),
    ("ipcache_high", "upstream.dns_bytes_max bounds what name servers said"),
    ("ipcache_low", "upstream.dns_bytes_max bounds what name servers said"),
    ("ipcache_size", "upstream.dns_bytes_max bounds what name servers said"),
    ("loadable_modules", "there are none"),
    ("log_fqdn", "addresses are not looked up"),
    ("log_icp_queries", "there are metrics"),
    ("log_mime_hdrs", "fields of requests may be secrets"),
    ("log_uses_indirect_client", "the address of the connection counts"),
    ("logfile_daemon", "a thread writes the log"),
    ("logfile_rotate", "Larder opens the log anew when it is moved away"),
    ("logformat", "log.format takes fields in braces (docs/logs.md)"),
    ("mail_from", "no mail is sent"),
    ("mail_program", "no mail is sent"),
    ("max_filedesc", "the service manager sets it (`larder doctor` looks at it)"),
    ("max_filedescriptors", "the service manager sets it (`larder doctor` looks at it)"),
    ("max_open_disk_fds", "few descriptors are open"),
    ("max_stale", "stale answers are used as the origin says"),
    ("maximum_single_addr_tries", "origin.retry says that"),
    ("mcast_groups", "neighbours ask by unicast"),
    ("memory_cache_mode", "memory and disk share what is stored"),
    ("memory_cache_shared", "all workers share one store"),
    ("memory_pools", "the allocator keeps memory by itself"),
    ("memory_pools_limit", "the allocator keeps memory by itself"),
    ("memory_replacement_policy", "S3-FIFO for memory (docs/decisions/004)"),
    ("mime_table", "media types of FTP files follow their names"),
    ("minimum_direct_hops", "origins are not pinged"),
    ("minimum_direct_rtt", "origins are not pinged"),
    ("minimum_expiry_time", "a lifetime of a second counts"),
    ("negative_dns_ttl", "the TTL of the answer counts"),
    ("neighbor_type_domain", "a neighbour is a parent or a sibling for all hosts"),
    ("netdb_filename", "origins are not pinged"),
    ("note", "rule.do.mark marks lines of the log"),
    ("offline_mode", "`larder run --offline` uses what is stored alone"),
    ("on_unsupported_protocol", "what is no HTTP is refused"),
    ("pconn_lifetime", "upstream.idle ends unused connections"),
    ("persistent_connection_after_error", "connections are kept in any case"),
    ("pid_filename", "the service manager knows the process"),
    ("pinger_enable", "origins are not pinged"),
    ("pinger_program", "origins are not pinged"),
    ("pipeline_prefetch", "requests of one connection are served in turn"),
    ("positive_dns_ttl", "the TTL of the answer counts"),
    ("query_icmp", "origins are not pinged"),
    ("quick_abort_max", "a fetch goes on where little is missing (decision 005)"),
    ("quick_abort_min", "a fetch goes on where little is missing (decision 005)"),
    ("quick_abort_pct", "a fetch goes on where little is missing (decision 005)"),
    ("range_offset_limit", "missing ranges are fetched by themselves (decision 009)"),
    ("read_ahead_gap", "buffers are bounded by themselves"),
    ("referer_log", "log.format says it"),
    ("refresh_all_ims", "requests with If-Modified-Since are answered as RFC 9111 has it"),
    ("relaxed_header_parser", "heads are read as RFC 9112 has it"),
    ("reload_into_ims", "max-age=0 validates in any case"),
    ("reply_header_max_size", "limits.head_bytes_max bounds it"),
    ("request_entities", "bodies of any request pass"),
    ("retry_on_error", "origin.retry says that"),
    ("send_hit", "hits are sent"),
    ("server_http11", "HTTP/1.1 is spoken"),
    ("server_pconn_for_nonretriable", "a request that may not be sent twice gets a fresh connection where need be"),
    ("server_persistent_connections", "connections are kept in any case"),
    ("shared_memory_locking", "no memory is shared between processes"),
    ("shared_transient_entries_limit", "all workers share one store"),
    ("short_icon_urls", "pages of folders load no files"),
    ("sleep_after_fork", "no process is forked"),
    ("snmp_access", "there is no SNMP; metrics are at the admin address"),
    ("snmp_incoming_address", "there is no SNMP"),
    ("snmp_outgoing_address", "there is no SNMP"),
    ("ssl_engine", "TLS is rustls"),
    ("ssl_unclean_shutdown", "TLS is ended as it ought to be"),
    ("sslcrtd_children", "certificates are made by Larder itself"),
    ("sslcrtd_program", "certificates are made by Larder itself"),
    ("sslpassword_program", "keys have no password"),
    ("sslproxy_cafile", "upstream.extra_roots adds roots to those of the system"),
    ("sslproxy_capath", "upstream.extra_roots adds roots to those of the system"),
    ("sslproxy_cert_sign_hash", "certificates are made by Larder itself"),
    ("sslproxy_flags", "origins are always verified"),
    ("sslproxy_session_cache_size", "sessions are kept by Larder itself"),
    ("sslproxy_session_ttl", "sessions are kept by Larder itself"),
    ("stats_collection", "there are metrics"),
    ("store_avg_object_size", "the index grows by itself"),
    ("store_dir_select_algorithm", "disk_folders are filled evenly"),
    ("store_id_extras", "the default alone is sent"),
    ("store_objects_per_bucket", "the index grows by itself"),
    ("strip_query_terms", "records.hide_query leaves values of queries out"),
    ("tcp_recv_bufsize", "the system chooses"),
    ("test_reachability", "origins are not pinged"),
    ("tproxy_uses_indirect_client", "the address of the connection counts"),
    ("udp_outgoing_address", "each question comes from a port of its own"),
    ("umask", "the service manager sets it"),
    ("unique_hostname", "Larder's name in Via is made by itself"),
    ("unlinkd_program", "the disk is read by threads of Larder"),
    ("update_headers", "a 304 updates what is stored"),
    ("uri_whitespace", "a URL with blanks is refused, as RFC 9112 has it"),
    ("url_rewrite_extras", "the default alone is sent"),
    ("url_rewrite_host_header", "the Host is that of the new URL"),
    ("url_rewrite_timeout", "helper.timeout says that"),
    ("useragent_log", "log.format says it"),
    ("vary_ignore_expire", "expired variants are not used"),
    ("visible_hostname", "Larder's name in Via is made by itself"),
    ("windows_ipaddrchangemonitor", "this is no Windows"),
    ("workers", "a worker for each core is the default"),
    ("zph_local", "no packets are marked"),
];

const DIFFERENT: &[(&str, &str)] = &[
    ("htcp_clr_access", "access.purge says who may purge"),
    ("log_access", "every request is logged"),
    ("sslcrtvalidator_program", "certificates are verified by rustls alone"),
    ("sslproxy_cert_adapt", "a wrong certificate is refused"),
    ("sslproxy_cert_error", "origins are always verified: a wrong certificate is refused"),
    ("sslproxy_cert_sign", "a wrong certificate is refused"),
    ("sslproxy_cipher", "by rustls's defaults"),
    ("sslproxy_options", "by rustls's defaults"),
    ("sslproxy_version", "by rustls's defaults"),
    ("tls_outgoing_options", "origins are always verified, by rustls's defaults"),
];

const MISSING: &[(&str, &str)] = &[
    ("adaptation_masterx_shared_names", "services share nothing"),
    ("adaptation_meta", "services are not told it"),
    ("adaptation_send_username", "services are not told the user"),
    ("adaptation_service_chain", "several [[icap]] of one stage are asked one after the other"),
    ("adaptation_service_set", "several urls of a [[icap]] stand for one another"),
    ("append_domain", "names are looked up as they are asked for"),
    ("broken_posts", "bodies end as they ought to"),
    ("client_certificate", "client certificates are not asked for"),
    ("client_delay_access", "not read: a [[bandwidth]] with by = \"client\" limits what each client gets, hits too"),
    ("client_delay_initial_bucket_level", "not read, and buckets are full at first"),
    (
        "client_delay_parameters",
        "not read: a [[bandwidth]] with by = \"client\" limits what each client gets, hits too",
    ),
    ("client_delay_pools", "not read: a [[bandwidth]] with by = \"client\" limits what each client gets, hits too"),
    ("clientside_tos", "packets are not marked"),
    ("dns_multicast_local", "names are looked up by DNS"),
    ("dns_nameservers", "name servers are those of resolv.conf (upstream.resolver)"),
    ("ecap_enable", "eCAP is not offered: what it looked at is not looked at"),
    ("ecap_service", "eCAP is not offered: what it looked at is not looked at"),
    ("error_map", "pages are Larder's own"),
    ("external_refresh_check", "there is no such helper"),
    ("ftp_port", "no client can speak FTP to Larder: FTP servers are asked by HTTP (docs/ftp.md)"),
    ("icap_client_username_encode", "services are not told the user"),
    ("icap_client_username_header", "services are not told the user"),
    ("location_rewrite_program", "answers are changed by a hook (docs/python.md)"),
    ("mark_client_connection", "packets are not marked"),
    ("mark_client_packet", "packets are not marked"),
    ("max_user_ip", "addresses of a user are not counted"),
    ("minimum_object_size", "small answers are stored too"),
    ("miss_access", "whoever may use the proxy may have what is not stored"),
    ("negative_ttl", "errors are stored as their origin says; a hook does more (recipe negative_caching)"),
    ("qos_flows", "packets are not marked"),
    ("reply_body_max_size", "answers of any length pass; object_bytes_max says what is stored"),
    (
        "response_delay_pool",
        "single responses have no limit: a [[bandwidth]] with by = \"client\" counts all of a client's",
    ),
    (
        "response_delay_pool_access",
        "single responses have no limit: a [[bandwidth]] with by = \"client\" counts all of a client's",
    ),
    ("snmp_port", "there is no SNMP; metrics are at the admin address (docs/metrics.md)"),
    ("spoof_client_ip", "connections to origins come from Larder's own address"),
    ("sslproxy_client_certificate", "Larder shows origins no certificate"),
    ("sslproxy_client_key", "Larder shows origins no certificate"),
    ("sslproxy_foreign_intermediate_certs", "missing certificates in the middle are not fetched"),
    ("tcp_outgoing_address", "connections to origins come from the address that the system chooses"),
    ("tcp_outgoing_mark", "packets are not marked"),
    ("tcp_outgoing_tos", "packets are not marked"),
    ("udp_incoming_address", "neighbours.icp has an address of its own"),
    ("wais_relay_host", "there is no WAIS"),
    ("wccp2_address", "no router leads connections here"),
    ("wccp2_assignment_method", "no router leads connections here"),
    ("wccp2_forwarding_method", "no router leads connections here"),
    ("wccp2_rebuild_wait", "no router leads connections here"),
    ("wccp2_return_method", "no router leads connections here"),
    ("wccp2_router", "no router leads connections here"),
    ("wccp2_service", "no router leads connections here"),
    ("wccp2_service_info", "no router leads connections here"),
    ("wccp2_weight", "no router leads connections here"),
    ("wccp_address", "no router leads connections here"),
    ("wccp_router", "no router leads connections here"),
    ("wccp_version", "no router leads connections here"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_and_share_no_name() {
        let mut names: Vec<&str> = Vec::new();
        for table in [NOT_NEEDED, DIFFERENT, MISSING] {
            assert!(table.is_sorted_by_key(|(name, _)| *name));
            names.extend(table.iter().map(|(name, _)| *name));
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
    #[test]
    fn values_decide() {
        let imported = |lines: &str| {
            let settings = crate::Settings { format: crate::Format::Squid, name: "squid.conf".to_owned(), zone: None };
            crate::import(lines, &settings, &mut crate::NoFiles)
        };
        for (line, fate) in [
            ("hosts_file /etc/hosts", Fate::NotNeeded),
            ("hosts_file none", Fate::Different),
            ("hosts_file /etc/squid/hosts", Fate::Missing),
            ("ftp_passive on", Fate::NotNeeded),
            ("ftp_passive off", Fate::Different),
            ("snmp_port 0", Fate::NotNeeded),
            ("snmp_port 3401", Fate::Missing),
        ] {
            assert_eq!(imported(line).notes[0].fate, fate, "{line}");
        }
        // Of an address, Squid looks up the name, but with `-n`, which is no expression.
        for (flag, is_cautioned) in [("", true), ("-n ", false)] {
            for kind in ["dstdom_regex", "dstdomain"] {
                let text = format!("acl bad {kind} {flag}ads.test\nhttp_access deny bad\nhttp_access allow all\n");
                let imported = imported(&text);
                assert_eq!(imported.notes[0].text.contains("looks up the name"), is_cautioned, "{}", imported.toml);
                assert!(!imported.toml.contains("\"-n\""), "{}", imported.toml);
            }
        }
    }
}
