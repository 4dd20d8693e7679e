//! Directives of nginx that no other part of the reader takes.

use crate::note::Fate;

/// The fate of a directive, what is to be said of it, and whether it decides who may do what.
pub fn find(name: &str) -> (Fate, &'static str, bool) {
    let starts = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    let known = TABLE.iter().find(|(_, names, _)| names.contains(&name)).map(|(fate, _, text)| (*fate, *text));
    let (fate, text) = known.unwrap_or_else(|| {
        if starts(&["gzip", "brotli", "zstd", "gunzip"]) {
            (Fate::Missing, "`compression` of a [[site]] compresses what is stored (docs/compression.md)")
        } else if name.starts_with("ssl_") {
            (Fate::Different, "TLS 1.2 and 1.3 with rustls's defaults")
        } else if starts(&["fastcgi_", "uwsgi_", "scgi_", "grpc_", "memcached_"]) {
            (Fate::Missing, "origins speak HTTP (http+unix:/SOCKET too), or are applications in Python")
        } else if starts(&["auth_", "secure_link"]) {
            (Fate::Missing, "nothing that is served here has it")
        } else {
            (Fate::Missing, "Larder's import does not know this directive of nginx")
        }
    });
    let is_guard = ["deny", "allow", "real_ip_header", "set_real_ip_from", "auth_request", "satisfy"].contains(&name);
    (fate, text, is_guard)
}

/// Names by fate, with what is to be said of them.
const TABLE: &[(Fate, &[&str], &str)] = &[
    (
        Fate::NotNeeded,
        &["user", "pid", "daemon", "master_process", "worker_rlimit_core", "lock_file", "env"],
        "the service manager does it",
    ),
    (
        Fate::NotNeeded,
        &[
            "worker_processes",
            "worker_cpu_affinity",
            "worker_priority",
            "worker_connections",
            "worker_rlimit_nofile",
            "use",
            "multi_accept",
            "accept_mutex",
            "thread_pool",
        ],
        "there is a worker for each core; limits.connections_max bounds connections",
    ),
    (
        Fate::NotNeeded,
        &["error_log", "log_not_found", "log_subrequest"],
        "what the program says goes to standard error, and so to the journal",
    ),
    (
        Fate::Different,
        &["access_log", "log_format"],
        "log.to and log.format say where the log goes (docs/logs.md): none without them",
    ),
    (
        Fate::NotNeeded,
        &[
            "sendfile",
            "sendfile_max_chunk",
            "tcp_nopush",
            "tcp_nodelay",
            "aio",
            "directio",
            "output_buffers",
            "postpone_output",
            "reset_timedout_connection",
            "types_hash_max_size",
            "types_hash_bucket_size",
            "server_names_hash_bucket_size",
            "server_names_hash_max_size",
            "variables_hash_max_size",
            "variables_hash_bucket_size",
            "map_hash_bucket_size",
            "map_hash_max_size",
            "proxy_headers_hash_max_size",
            "proxy_headers_hash_bucket_size",
            "open_file_cache",
            "open_file_cache_valid",
            "open_file_cache_min_uses",
            "open_file_cache_errors",
            "proxy_buffers",
            "proxy_buffer_size",
            "proxy_busy_buffers_size",
            "proxy_temp_path",
            "proxy_max_temp_file_size",
            "proxy_temp_file_write_size",
            "client_body_buffer_size",
            "client_body_temp_path",
            "client_header_buffer_size",
            "connection_pool_size",
            "request_pool_size",
            "large_client_header_buffers",
            "proxy_buffering",
            "proxy_request_buffering",
            "subrequest_output_buffer_size",
            "read_ahead",
        ],
        "answers stream through the store in bounded memory",
    ),
    (
        Fate::NotNeeded,
        &[
            "include",
            "default_type",
            "charset",
            "server_tokens",
            "etag",
            "if_modified_since",
            "merge_slashes",
            "underscores_in_headers",
            "ignore_invalid_headers",
            "port_in_redirect",
            "absolute_redirect",
            "server_name_in_redirect",
            "charset_types",
            "override_charset",
        ],
        "it is for files, or Larder does so by itself",
    ),
    (
        Fate::NotNeeded,
        &["proxy_http_version", "proxy_pass_request_headers", "proxy_pass_request_body", "proxy_socket_keepalive"],
        "origins are asked by HTTP/1.1, with the request's fields and body",
    ),
    (
        Fate::NotNeeded,
        &["proxy_cache_lock", "proxy_cache_lock_timeout", "proxy_cache_lock_age"],
        "requests for the same response wait for one fetch in any case",
    ),
    (
        Fate::NotNeeded,
        &["proxy_cache_revalidate", "proxy_cache_background_update", "proxy_cache_convert_head"],
        "stale responses are validated, and refreshed behind an answer, in any case",
    ),
    (
        Fate::NotNeeded,
        &["slice", "proxy_cache_max_range_offset", "proxy_force_ranges"],
        "ranges are cut out of what is stored, and missing ones are fetched (decision 009)",
    ),
    (Fate::Different, &["proxy_cache_min_uses"], "disk_admission says what goes to disk; memory takes all"),
    (Fate::Missing, &["proxy_cache_methods"], "GET and HEAD are stored"),
    (
        Fate::Different,
        &["proxy_cache_use_stale"],
        "stale_if_error and stale_while_revalidate of a [[store_rule]] say that",
    ),
    (Fate::Different, &["proxy_cache_purge"], "access.purge says who may purge; nobody yet"),
    (
        Fate::Different,
        &["proxy_next_upstream", "proxy_next_upstream_tries", "proxy_next_upstream_timeout"],
        "origin.retry says that",
    ),
    (
        Fate::Different,
        &[
            "proxy_connect_timeout",
            "proxy_read_timeout",
            "proxy_send_timeout",
            "client_header_timeout",
            "client_body_timeout",
            "send_timeout",
            "keepalive_timeout",
            "keepalive_requests",
            "lingering_close",
            "lingering_timeout",
            "lingering_time",
            "keepalive_disable",
            "resolver_timeout",
        ],
        "[timeouts] has these for all sites, with defaults of its own",
    ),
    (Fate::Different, &["resolver"], "name servers are those of resolv.conf (upstream.resolver)"),
    (
        Fate::Missing,
        &["proxy_redirect", "proxy_cookie_path", "proxy_cookie_domain", "proxy_cookie_flags"],
        "Location and Set-Cookie pass as the origin wrote them; a hook changes them",
    ),
    (
        Fate::Missing,
        &["proxy_intercept_errors", "error_page", "recursive_error_pages"],
        "pages of the origin pass; rule.do.page takes one for a refusal",
    ),
    (Fate::NotNeeded, &["proxy_pass_header", "proxy_hide_header"], "fields of the origin pass"),
    (
        Fate::Missing,
        &["proxy_method", "proxy_set_body", "proxy_bind"],
        "requests go to the origin as they came; a hook changes them",
    ),
    (
        Fate::NotNeeded,
        &[
            "proxy_ssl_server_name",
            "proxy_ssl_name",
            "proxy_ssl_session_reuse",
            "proxy_ssl_protocols",
            "proxy_ssl_ciphers",
        ],
        "the server name is sent, and TLS has rustls's defaults",
    ),
    (Fate::Different, &["proxy_ssl_verify", "proxy_ssl_verify_depth"], "origins are always verified"),
    (Fate::Different, &["proxy_ssl_trusted_certificate"], "upstream.extra_roots adds roots to those of the system"),
    (Fate::NotNeeded, &["ssl_certificate", "ssl_certificate_key"], "no listener of TLS uses it"),
    (
        Fate::Different,
        &["ssl", "http2", "http3", "quic_retry"],
        "`ssl` of `listen` counts, and HTTP/1.1 and HTTP/2 are spoken with clients",
    ),
    (
        Fate::Missing,
        &["root", "alias", "index", "autoindex", "try_files", "autoindex_exact_size", "autoindex_localtime"],
        "Larder serves no files: a web server behind it does",
    ),
    (Fate::Missing, &["location"], "it stands where no server is"),
    (Fate::Missing, &["if"], "its effect can't be said; a hook in Python can (docs/recipes.md)"),
    (Fate::Missing, &["set", "break"], "there are no variables; a hook in Python decides by more (docs/recipes.md)"),
    (
        Fate::Missing,
        &["sub_filter", "sub_filter_once", "sub_filter_types", "addition_types", "ssi", "image_filter"],
        "bodies pass as they are; a hook changes them (docs/python.md)",
    ),
    (Fate::Different, &["satisfy"], "all have to hold"),
    (
        Fate::Missing,
        &["real_ip_header", "set_real_ip_from", "real_ip_recursive"],
        "the address of the connection counts",
    ),
    (
        Fate::Different,
        &["limit_conn", "limit_conn_zone"],
        "limits.connections_per_client_max bounds the connections of a client",
    ),
    (
        Fate::NotNeeded,
        &["limit_conn_log_level", "limit_req_log_level", "limit_req_status", "limit_conn_status"],
        "429 is answered",
    ),
    (
        Fate::NotNeeded,
        &["limit_rate_after"],
        "there is no limit_rate beside it that was translated, so that it says nothing",
    ),
    (Fate::Missing, &["limit_rate"], "it stands where it can't be said, or answers of nothing that is served here"),
    (Fate::NotNeeded, &["expires", "add_header"], "nothing that is served here gets it"),
    (
        Fate::NotNeeded,
        &[
            "proxy_set_header",
            "proxy_cache_key",
            "proxy_cache_valid",
            "proxy_cache",
            "proxy_ignore_headers",
            "proxy_cache_bypass",
            "proxy_no_cache",
        ],
        "no proxy_pass that was translated is below it, or it says so for itself",
    ),
    (Fate::Missing, &["proxy_pass"], "it stands where it can't be said"),
    (Fate::Missing, &["return", "rewrite", "deny", "allow", "rewrite_log"], "it stands where it can't be said"),
    (
        Fate::NotNeeded,
        &["stub_status", "status", "vhost_traffic_status_zone", "vhost_traffic_status_display"],
        "metrics are at the admin address",
    ),
    (Fate::Missing, &["load_module"], "there are no modules"),
    (
        Fate::NotNeeded,
        &["gunzip"],
        "clients that accept no coding have a variant of their own, which the origin is asked for",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_directives() {
        assert_eq!(find("gzip_types").0, Fate::Missing);
        assert_eq!(find("sendfile").0, Fate::NotNeeded);
        assert!(find("no_such_thing").1.contains("does not know"));
        assert!(find("allow").2 && !find("gzip").2);
    }
}
