//! The settings of a `[[site]]`.

use crate::config::application::ORIGIN_FORM;
use crate::config::forward::is_file_of_hooks;
use crate::config::origin::{choose_proxy_protocol, proxy_protocol_word};
use crate::config::setting::{Field, Setting, word};
use crate::config::sites::is_prefix;
use crate::config::{HostHeader, HostPattern, OriginHttp2, Site, SiteCertificate, SiteOrigin, url};
use std::sync::Arc;

use super::compression::{COMPRESSION, COMPRESSION_BYTES_MIN, COMPRESSION_TYPES};

type OfSite = Setting<Site>;

/// Settings of one `[[site]]`.
pub static SITE: &[Setting<Site>] = &[
    OfSite::new(
        "site.hosts",
        Field::Texts {
            form: "host patterns",
            read: |s| s.hosts.iter().map(ToString::to_string).collect(),
            clear: |s| s.hosts.clear(),
            push: |s, text| HostPattern::parse(text).map(|host| s.hosts.push(host)).is_some(),
        },
    )
    .required()
    .about("Hosts of the site: `www.example.org`, `*.example.org` (all names below) or `*` (any)."),
    OfSite::new(
        "site.prefix",
        Field::Text {
            form: "path",
            read: |s| s.prefix.clone(),
            write: |s, text| {
                s.prefix = text.to_owned();
                is_prefix(text)
            },
        },
    )
    .default_words("`/`")
    .about("Paths that begin so belong to the site, the longest prefix first. It is forwarded, not cut off. A path that some reader could find in another site's prefix (`//a`, `/%61`, `/x/../a`, …) is answered 400."),
    OfSite::new(
        "site.origin",
        Field::Text {
            form: ORIGIN_FORM,
            read: |s| url::show(&s.origin),
            write: |s, text| url::parse_origin(text).map(|origin| s.origin = Arc::new(SiteOrigin::new(origin))).is_some(),
        },
    )
    .required()
    .about("Where the site comes from; a path in it is put before the request's path. `http+unix:/run/app.sock` is a server behind a Unix socket; `wsgi:package.module:name` and `asgi:…` are applications in Python, which Larder runs itself (docs/python.md)."),
    OfSite::new(
        "site.host",
        Field::Text {
            form: "client or origin",
            read: |s| s.host_header.as_str().to_owned(),
            write: |s, text| {
                let header = word(&[HostHeader::Client, HostHeader::Origin], HostHeader::as_str, text);
                header.map(|header| s.host_header = header).is_some()
            },
        },
    )
    .default_words("`client`")
    .about("The `Host` that the origin sees: the one the client asked for, or the authority of `origin`."),
    OfSite::new(
        "site.certificate",
        Field::Text {
            form: "none or acme",
            read: |s| s.certificate.as_str().to_owned(),
            write: |s, text| {
                let choice = word(&SiteCertificate::ALL, SiteCertificate::as_str, text);
                choice.map(|choice| s.certificate = choice).is_some()
            },
        },
    )
    .default_words("`none`")
    .about("`acme`: one certificate for all hosts of the site is ordered from the authority of `[acme]`, kept, and renewed ([acme.md](acme.md)); listeners with `site_certificates` show it. `none`: the files of a listener are shown."),
    OfSite::new(
        "site.http2",
        Field::Text {
            form: "off, auto, prior-knowledge or default",
            read: |s| OriginHttp2::choice(s.http2).to_owned(),
            write: |s, text| OriginHttp2::choose(&mut s.http2, text),
        },
    )
    .default_words("`upstream.http2`")
    .about("Whether the origin is asked by HTTP/2: where it chooses that in the handshake of TLS (`auto`), or in clear text without asking (`prior-knowledge`, for a URL with http). Members of a group say it themselves ([http2.md](http2.md#origins))."),
    COMPRESSION,
    COMPRESSION_TYPES,
    COMPRESSION_BYTES_MIN,
    OfSite::new("site.pass_through", Field::Flag(|s| &mut s.pass_through))
        .default_words("`false`")
        .about("Whether TLS that asks for one of `hosts` goes to `origin` (`https://HOST:PORT`) unopened, at listeners with `pass_through` ([pass-through.md](pass-through.md)): Larder needs no certificate, sees no request and stores nothing. Requests in clear text are those of another `[[site]]` with the same hosts."),
    OfSite::new(
        "site.proxy_protocol",
        Field::Text {
            form: "off, v1 or v2",
            read: |s| proxy_protocol_word(s.proxy_protocol).to_owned(),
            write: |s, text| choose_proxy_protocol(&mut s.proxy_protocol, text),
        },
    )
    .default_words("`off`")
    .about("Whether connections to the origin begin with a header of the PROXY protocol, of this version, that names the client ([proxy-protocol.md](proxy-protocol.md#to-origins)). Such a connection serves no other client, and speaks HTTP/1.1. Members of a group say it themselves."),
    OfSite::new(
        "site.python",
        Field::Text {
            form: "name",
            read: |s| s.python.clone(),
            write: |s, text| {
                text.clone_into(&mut s.python);
                true
            },
        },
    )
    .default_words("the only `[[python]]`, or its defaults")
    .about("The `[[python]]` that runs the application which `origin` names, and the hooks."),
    OfSite::new(
        "site.hooks",
        Field::Texts {
            form: "files",
            read: |s| s.hooks.clone(),
            clear: |s| s.hooks.clear(),
            push: |s, text| {
                s.hooks.push(text.to_owned());
                is_file_of_hooks(text)
            },
        },
    )
    .about("Files in Python with hooks, which may change requests, keys and lifetimes (docs/python.md). They are imported in this order from the folder of the `[[python]]`."),
    OfSite::new("site.login", Field::Text {
            form: "name",
            read: |s| s.login.clone(),
            write: |s, text| {
                text.clone_into(&mut s.login);
                true
            },
        })
    .default_words("none")
    .about("The `[[login]]` that clients need ([people.md](people.md)); they are answered 401 without it. The origin does not get its credentials, unless that says `forward = true`."),
    OfSite::new(
        "site.external",
        Field::Texts {
            form: "names",
            read: |s| s.external.clone(),
            clear: |s| s.external.clear(),
            push: |s, text| {
                s.external.push(text.to_owned());
                !text.is_empty()
            },
        },
    )
    .about("Helpers of `external_acl`, all of which have to permit a request ([helpers.md](helpers.md))."),
    OfSite::new("site.url_rewrite", Field::Text {
            form: "name",
            read: |s| s.url_rewrite.clone(),
            write: |s, text| {
                text.clone_into(&mut s.url_rewrite);
                true
            },
        })
    .default_words("none")
    .about("The helper of `url_rewrite` that says which URL of the site is asked for, or redirected to ([helpers.md](helpers.md))."),
    OfSite::new("site.store_id", Field::Text {
            form: "name",
            read: |s| s.store_id.clone(),
            write: |s, text| {
                text.clone_into(&mut s.store_id);
                true
            },
        })
    .default_words("none")
    .about("The helper of `store_id` that says under which key answers are stored ([helpers.md](helpers.md))."),
];
