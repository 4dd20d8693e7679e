//! The settings of a `[[store_rule]]`.

use super::DAY;
use crate::config::setting::{Field, Setting};
use crate::config::{FieldPattern, HostPattern, ParameterPattern, PathPattern, StoreRule};
use crate::package_index::IndexFormat;
use larder_wire::Url;

type OfRule = Setting<StoreRule>;

/// The form of lists of query parameters.
const PARAMETERS: &str = "parameter names";

/// Settings of one `[[store_rule]]`.
pub static STORE_RULE: &[Setting<StoreRule>] = &[
    OfRule::new("store_rule.hosts", Field::Texts {
        form: "host patterns",
        read: |r| r.hosts.iter().map(ToString::to_string).collect(),
        clear: |r| r.hosts.clear(),
        push: |r, text| HostPattern::parse(text).map(|host| r.hosts.push(host)).is_some(),
    })
    .about("Hosts of the URL, as those of a site. Empty: any."),
    OfRule::new("store_rule.paths", Field::Texts {
        form: "path patterns",
        read: |r| r.paths.iter().map(ToString::to_string).collect(),
        clear: |r| r.paths.clear(),
        push: |r, text| PathPattern::parse(text).map(|path| r.paths.push(path)).is_some(),
    })
    .about("Forms of the path, without the query: `/v2/**/blobs/sha256:{hex}`. `*` is any text within a segment, `**` any number of segments, `{digit}` a digit, `{hex}` a digest of 40 to 128 digits. Empty: any."),
    OfRule::new("store_rule.query", Field::Texts {
        form: PARAMETERS,
        read: |r| r.query.iter().map(ToString::to_string).collect(),
        clear: |r| r.query.clear(),
        push: |r, text| ParameterPattern::parse(text).map(|name| r.query.push(name)).is_some(),
    })
    .about("Parameters that the query must have, all of them; `X-*` means a name that begins so."),
    OfRule::new("store_rule.fields", Field::Texts {
        form: "fields",
        read: |r| r.fields.iter().map(ToString::to_string).collect(),
        clear: |r| r.fields.clear(),
        push: |r, text| FieldPattern::parse(text).map(|field| r.fields.push(field)).is_some(),
    })
    .about("Fields that the request must have, all of them: `Cargo-Protocol`, or with the beginning of a value, `Accept: application/vnd.pypi.simple.`."),
    OfRule::new("store_rule.types", Field::Texts {
        form: "media types",
        read: |r| r.types.iter().map(ToString::to_string).collect(),
        clear: |r| r.types.clear(),
        push: |r, text| {
            r.types.push(text.into());
            !text.is_empty()
        },
    })
    .about("Media types of the answer, for what the rule says of lifetimes; `image/*` means those that begin so, `none` an answer without one. Empty: any."),
    OfRule::new("store_rule.same_tree", Field::Texts {
        form: "origins",
        read: |r| r.same_tree.iter().map(ToString::to_string).collect(),
        clear: |r| r.same_tree.clear(),
        push: |r, text| {
            let origin = Url::parse(text).filter(|url| &*url.path == "/");
            let is_of_one_scheme = |url: &Url| r.same_tree.first().is_none_or(|first| first.scheme == url.scheme);
            origin.filter(is_of_one_scheme).map(|url| r.same_tree.push(url)).is_some()
        },
    })
    .about("Origins whose paths are one tree, by your word, as those of mirrors: `[\"https://a.example\", \"https://b.example\"]`, two or more of one scheme. A response of any of them is stored under the first one and answers for all; each is fetched from the origin that was asked for. An origin that serves something wrong then serves it for all of them."),
    OfRule::new("store_rule.drop_query", Field::Texts {
        form: PARAMETERS,
        read: |r| r.drop_query.iter().map(ToString::to_string).collect(),
        clear: |r| r.drop_query.clear(),
        push: |r, text| ParameterPattern::parse(text).map(|name| r.drop_query.push(name)).is_some(),
    })
    .about("Parameters that are left out of the key, by your word that the content does not depend on them: everybody who knows the rest of the URL gets it, also without a token that stands in them. Needs `hosts`."),
    OfRule::new("store_rule.signed_query", Field::Texts {
        form: PARAMETERS,
        read: |r| r.signed_query.iter().map(ToString::to_string).collect(),
        clear: |r| r.signed_query.clear(),
        push: |r, text| ParameterPattern::parse(text).map(|name| r.signed_query.push(name)).is_some(),
    })
    .about("Parameters of a signature. They are left out of the key where a redirection through this Larder handed the URL out within a quarter of an hour, to a request that said nothing of who asks; the key then has the URL of the redirection."),
    OfRule::new("store_rule.names_content", Field::Flag(|r| &mut r.names_content))
        .about("The URL names its content (by a digest, a commit), so that it is the same whoever asks: a redirection from here counts for `signed_query` whatever credentials the request had."),
    OfRule::new("store_rule.by_credential", Field::Flag(|r| &mut r.by_credential))
        .about("An answer to a request with `Authorization`, and with no other field that may say who asks, is stored for that credential: for all who present the same one, and for nobody else. Needs `hosts`. The word of the origin (`no-store`, `private`, lifetimes) and other rules count as for a request without credentials. A credential that its origin takes back gets what is stored until that is stale."),
    OfRule::new("store_rule.any_age", Field::Flag(|r| &mut r.any_age))
        .about("`max-age` and `min-fresh` of the request do not count: for tools that send `max-age=0` by habit. Its `no-cache` counts."),
    OfRule::new("store_rule.drop_no_cache", Field::Flag(|r| &mut r.drop_no_cache))
        .about("`no-cache` and `no-store` of a GET or HEAD, and `Pragma` beside them, are taken off it, unless a field of it may say who asks: for tools that send them each time, by habit, for files that never change. RFC 9111 section 5.2.1 gives both to the client, so this is your word against his; `max-age=0` still has a stored answer validated. Of the rules about lifetimes, the first that matches decides this too."),
    OfRule::new("store_rule.index", Field::Text {
        form: "`python`, `npm`, `cargo`, `apt` or `none`",
        read: |r| r.index.map_or("none".to_owned(), |format| format.as_str().to_owned()),
        write: |r, text| {
            r.index = IndexFormat::parse(text);
            r.index.is_some() || text == "none"
        },
    })
    .about("The answer is an index of packages in this format. Files that the client asks for within a quarter of an hour are held against the digests that the index names for them: see the page on presets."),
    OfRule::new("store_rule.lifetime", Field::TimeOrNone(|r| &mut r.lifetime))
        .between(0, 3_650 * DAY)
        .about("How long a 200 or 206 is fresh whose origin does not say how long. Like `lifetime_min` only for requests that say nothing of who asks, and never against `no-store`, `private` or `no-cache`."),
    OfRule::new("store_rule.lifetime_min", Field::TimeOrNone(|r| &mut r.lifetime_min))
        .between(0, 3_650 * DAY)
        .about("How long a 200 or 206 is fresh at least, whatever `max-age` or `Expires` say: for what never changes."),
    OfRule::new("store_rule.stale_while_revalidate", Field::TimeOrNone(|r| &mut r.stale_while_revalidate))
        .between(0, 3_650 * DAY)
        .about("For how long past its lifetime it is served while it is validated, where the origin does not say it."),
    OfRule::new("store_rule.stale_if_error", Field::TimeOrNone(|r| &mut r.stale_if_error))
        .between(0, 3_650 * DAY)
        .about("For how long past its lifetime it stands in for an error, where the origin does not say it."),
    OfRule::new("store_rule.keep_redirects", Field::Flag(|r| &mut r.keep_redirects))
        .about("Redirections without a lifetime are stored for the time when their origin is out of reach (`larder run --offline`); while it is not, it is asked each time."),
    OfRule::new("store_rule.keep_heads", Field::Flag(|r| &mut r.keep_heads))
        .about("The answer 200 to a HEAD is stored for later ones, where nothing is stored for a GET: for tools that ask so which content a name has, and get the content by another URL."),
    OfRule::new("store_rule.never_html", Field::Flag(|r| &mut r.never_html))
        .about("The URL is that of a file or an index and never has HTML. A page that comes over plain HTTP in its place, as from a network that wants a login first (a captive portal), is passed on and not stored; a `larder run` gets what is stored instead."),
];
