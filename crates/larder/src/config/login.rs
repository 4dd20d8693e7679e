//! Logins: how people say who they are, and where it is known whether that is true.

use super::SourceLine;
use super::ldap::{Ldap, LdapFilter, LdapServer};
use super::setting::{Field, Setting, word};
use super::url;
use larder_wire::{Scheme, Url};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The scheme of a login (RFC 9110 section 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginScheme {
    /// A user and a password (RFC 7617).
    Basic,
    /// Proof that a password is known (RFC 7616).
    Digest,
    /// A JSON Web Token (RFC 6750, RFC 7519).
    Bearer,
    /// Kerberos or NTLM by a handshake (RFC 4559); a helper knows it.
    Negotiate,
    /// NTLM by a handshake; a helper knows it.
    Ntlm,
    /// A page with a form; then the client's address is the user for a time.
    Page,
    /// A page with a form on a site; then a cookie is the user for a time.
    Form,
}

impl LoginScheme {
    /// The words of the configuration.
    pub const ALL: [LoginScheme; 7] = [
        LoginScheme::Basic,
        LoginScheme::Digest,
        LoginScheme::Bearer,
        LoginScheme::Negotiate,
        LoginScheme::Ntlm,
        LoginScheme::Page,
        LoginScheme::Form,
    ];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            LoginScheme::Basic => "basic",
            LoginScheme::Digest => "digest",
            LoginScheme::Bearer => "bearer",
            LoginScheme::Negotiate => "negotiate",
            LoginScheme::Ntlm => "ntlm",
            LoginScheme::Page => "page",
            LoginScheme::Form => "form",
        }
    }

    /// Whether people log in on a page of Larder's own.
    pub fn is_by_page(self) -> bool {
        matches!(self, LoginScheme::Page | LoginScheme::Form)
    }

    /// The word in fields; empty for a page, which has none.
    pub fn in_fields(self) -> &'static str {
        match self {
            LoginScheme::Basic => "Basic",
            LoginScheme::Digest => "Digest",
            LoginScheme::Bearer => "Bearer",
            LoginScheme::Negotiate => "Negotiate",
            LoginScheme::Ntlm => "NTLM",
            LoginScheme::Page | LoginScheme::Form => "",
        }
    }
}

/// One `[[login]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Login {
    /// The name by which settings refer to it.
    pub name: String,
    /// The scheme.
    pub scheme: LoginScheme,
    /// The name that browsers show to their users.
    pub realm: String,
    /// The file of users; of `bearer` the keys of the issuer.
    pub file: Option<PathBuf>,
    /// Of `bearer`: the URL of the issuer's keys, in place of a file.
    pub jwks: Option<Url>,
    /// Of `bearer`: the longest time between two looks at that URL.
    pub jwks_refresh: Duration,
    /// The helper that knows users, in place of a file; empty: none.
    pub helper: String,
    /// The directory that knows users, in place of a file.
    pub ldap: Ldap,
    /// The file of groups.
    pub groups: Option<PathBuf>,
    /// How long a credential that was right counts without a check.
    pub ttl: Duration,
    /// Whether credentials go to the origin of a site too.
    pub forward: bool,
    /// Failed logins of one client at once.
    pub failures_max: usize,
    /// One more failed login of that client is permitted after each such time.
    pub failure_period: Duration,
    /// How long a nonce of `digest` is good.
    pub nonce_ttl: Duration,
    /// Of `bearer`: the issuer.
    pub issuer: String,
    /// Of `bearer`: the audience.
    pub audience: Vec<String>,
    /// Of `bearer`: the claim that is the user.
    pub user_claim: String,
    /// Of `bearer`: the claim that has the groups.
    pub groups_claim: String,
    /// Of `page` and `form`: the login of basic that knows users and passwords; empty: none.
    pub users: String,
    /// Of `page`: where clients reach the page, a listener of this server.
    pub url: Option<Url>,
    /// Of `page` and `form`: how long a client's address, or a cookie, is the user who has logged in there.
    pub session: Duration,
    /// Of `page` and `form`: how long it is so without a request.
    pub idle: Duration,
    /// Where it stands.
    pub place: SourceLine,
}

impl Login {
    /// Whether `Authorization` is for this login, and not for the origin of a site.
    pub fn takes_authorization(&self) -> bool {
        !self.forward && self.scheme != LoginScheme::Form
    }
}

/// A login of form that sites ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteForm {
    /// The login.
    pub login: Arc<Login>,
    /// A rule asks for it, so that it has its page on each site.
    pub is_by_rule: bool,
}

impl Default for Login {
    fn default() -> Login {
        Login {
            name: String::new(),
            scheme: LoginScheme::Basic,
            realm: "Larder".to_owned(),
            file: None,
            jwks: None,
            jwks_refresh: Duration::from_secs(3_600),
            helper: String::new(),
            ldap: Ldap::default(),
            groups: None,
            ttl: Duration::from_secs(300),
            forward: false,
            failures_max: 10,
            failure_period: Duration::from_secs(10),
            nonce_ttl: Duration::from_secs(300),
            issuer: String::new(),
            audience: Vec::new(),
            user_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            users: String::new(),
            url: None,
            session: Duration::from_secs(8 * 3_600),
            idle: Duration::from_secs(30 * 60),
            place: SourceLine::default(),
        }
    }
}

type OfLogin = Setting<Login>;

const DAY: u64 = 86_400_000;

/// Settings of one `[[login]]`.
pub static LOGIN: &[Setting<Login>] = &[
    OfLogin::new(
        "login.name",
        Field::Name(|l| &mut l.name),
    )
    .required()
    .about("The name by which settings refer to it, of letters, digits, `-`, `_` and `.`."),
    OfLogin::new(
        "login.scheme",
        Field::Text {
            form: "`basic`, `digest`, `bearer`, `negotiate`, `ntlm`, `page` or `form`",
            read: |l| l.scheme.as_str().to_owned(),
            write: |l, text| {
                let scheme = word(&LoginScheme::ALL, LoginScheme::as_str, text);
                scheme.map(|scheme| l.scheme = scheme).is_some()
            },
        },
    )
    .required()
    .about("How people say who they are ([people.md](people.md)). Passwords of `basic` and tokens cross the network as they are: offer them over TLS."),
    OfLogin::new(
        "login.realm",
        Field::Text {
            form: "text",
            read: |l| l.realm.clone(),
            write: |l, text| {
                text.clone_into(&mut l.realm);
                !text.is_empty() && !text.contains(char::is_control) && text.is_ascii()
            },
        },
    )
    .about("The name that browsers show when they ask for a password, and that stands on pages. Hashes of `digest` are made with it."),
    OfLogin::new(
        "login.file",
        Field::Text {
            form: "file",
            read: |l| l.file.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            write: |l, text| {
                l.file = (!text.is_empty()).then(|| text.into());
                l.file.is_some()
            },
        },
    )
        .default_words("none")
        .about("The file of users: of `basic` one of `htpasswd` (bcrypt, argon2, SHA-crypt, apr1, `{SHA}`), of `digest` one of `htdigest` (MD5 or SHA-256), of `bearer` the keys of the issuer (JWKS). It is read again within a second after it has changed; if the new one can't be read, the old one counts on."),
    OfLogin::new(
        "login.jwks",
        Field::Text {
            form: "https URL",
            read: |l| l.jwks.as_ref().map_or_else(String::new, ToString::to_string),
            write: |l, text| {
                let is_here = |url: &Url| url.host.as_str() == "localhost" || url.host.ip().is_some_and(|ip| ip.is_loopback());
                let protected = |url: &Url| url.scheme == Scheme::Https || (url.scheme == Scheme::Http && is_here(url));
                l.jwks = url::parse(text).filter(protected);
                l.jwks.is_some()
            },
        },
    )
    .default_words("none")
    .about("Of `bearer`: the URL of the keys of the issuer, in place of `file`; http only from this machine. They are fetched at the start, which does not wait for them, and again as `jwks_refresh` says; keys that are there count on where that fails. Until the first ones are there tokens are answered 503."),
    OfLogin::new("login.jwks_refresh", Field::Time(|l| &mut l.jwks_refresh))
        .between(60_000, DAY)
        .about("The longest time until the keys at `jwks` are fetched again; a shorter one that their `Cache-Control` names counts, down to a minute. A token that names a key which is not among them has them fetched at once, at most once a minute."),
    OfLogin::new(
        "login.helper",
        Field::Text {
            form: "name",
            read: |l| l.helper.clone(),
            write: |l, text| {
                text.clone_into(&mut l.helper);
                true
            },
        },
    )
    .default_words("none")
    .about("The `[[helper]]` that knows the users, in place of `file`; its kind is the scheme."),
    OfLogin::new(
        "login.ldap",
        Field::Texts {
            form: "ldap or ldaps URLs",
            read: |l| l.ldap.servers.iter().map(ToString::to_string).collect(),
            clear: |l| l.ldap.servers.clear(),
            push: |l, text| {
                l.ldap.servers.extend(LdapServer::parse(text));
                LdapServer::parse(text).is_some() && l.ldap.servers.len() <= 8
            },
        },
    )
    .default_words("none")
    .about("Of `basic`: the LDAP servers that know the users, in place of `file`, 8 at most: `ldaps://ldap.example`. The next one is asked when one is away. Certificates are verified by the roots of the system and `upstream.extra_roots`."),
    OfLogin::new(
        "login.ldap_user_dn",
        Field::Text {
            form: "text",
            read: |l| l.ldap.user_dn.clone(),
            write: |l, text| {
                text.clone_into(&mut l.ldap.user_dn);
                text.contains("{user}") && text.len() <= 4096
            },
        },
    )
    .default_words("none")
    .about("The distinguished name by which a user binds: `uid={user},ou=people,dc=example`. Without it users are searched for."),
    OfLogin::new(
        "login.ldap_base",
        Field::Text {
            form: "text",
            read: |l| l.ldap.base.clone(),
            write: |l, text| {
                text.clone_into(&mut l.ldap.base);
                !text.is_empty() && text.len() <= 4096
            },
        },
    )
    .default_words("none")
    .about("The entry below which users are searched for."),
    OfLogin::new(
        "login.ldap_filter",
        Field::Text {
            form: "filter with `{user}`",
            read: |l| l.ldap.filter.as_ref().map_or_else(String::new, |filter| filter.text.clone()),
            write: |l, text| {
                l.ldap.filter = LdapFilter::parse(text, &["{user}"]);
                l.ldap.filter.is_some()
            },
        },
    )
    .default_words("none")
    .about("The filter of that search (RFC 4515): `(uid={user})`. It has to find one entry: the user then binds by its name."),
    OfLogin::new(
        "login.ldap_bind_dn",
        Field::Text {
            form: "text",
            read: |l| l.ldap.bind_dn.clone(),
            write: |l, text| {
                text.clone_into(&mut l.ldap.bind_dn);
                !text.is_empty() && text.len() <= 4096
            },
        },
    )
    .default_words("none")
    .about("The name by which searches are made. Without it they are anonymous, or, with `ldap_user_dn`, the user's own."),
    OfLogin::new(
        "login.ldap_password_file",
        Field::Text {
            form: "file",
            read: |l| l.ldap.password_file.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            write: |l, text| {
                l.ldap.password_file = (!text.is_empty()).then(|| text.into());
                l.ldap.password_file.is_some()
            },
        },
    )
    .default_words("none")
    .about("The file with the password of `ldap_bind_dn`. It is read again within a second after it has changed."),
    OfLogin::new(
        "login.ldap_groups",
        Field::Text {
            form: "text",
            read: |l| l.ldap.groups.clone(),
            write: |l, text| {
                text.clone_into(&mut l.ldap.groups);
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            },
        },
    )
    .default_words("none")
    .about("The attribute of a user's entry with the names of the groups: `memberOf`. A group is known by the first part of its name, `staff` of `cn=staff,ou=groups,dc=example`."),
    OfLogin::new(
        "login.ldap_groups_base",
        Field::Text {
            form: "text",
            read: |l| l.ldap.groups_base.clone(),
            write: |l, text| {
                text.clone_into(&mut l.ldap.groups_base);
                !text.is_empty() && text.len() <= 4096
            },
        },
    )
    .default_words("none")
    .about("The entry below which groups are; others do not count."),
    OfLogin::new(
        "login.ldap_groups_filter",
        Field::Text {
            form: "filter with `{dn}` or `{user}`",
            read: |l| l.ldap.groups_filter.as_ref().map_or_else(String::new, |filter| filter.text.clone()),
            write: |l, text| {
                l.ldap.groups_filter = LdapFilter::parse(text, &["{dn}", "{user}"]);
                l.ldap.groups_filter.is_some()
            },
        },
    )
    .default_words("none")
    .about("The filter by which the groups of a user are searched for, below `ldap_groups_base`: `(member={dn})`, or `(memberUid={user})`."),
    OfLogin::new("login.ldap_start_tls", Field::Flag(|l| &mut l.ldap.start_tls))
        .about("Whether TLS begins on a connection of `ldap://` before anything else (StartTLS). A server that refuses that is not asked."),
    OfLogin::new("login.ldap_cleartext", Field::Flag(|l| &mut l.ldap.cleartext))
        .about("Whether passwords may go to another machine without TLS."),
    OfLogin::new("login.ldap_timeout", Field::Time(|l| &mut l.ldap.timeout))
        .between(100, 60_000)
        .about("How long one server has for a check. After that the next one is asked."),
    OfLogin::new(
        "login.groups",
        Field::Text {
            form: "file",
            read: |l| l.groups.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            write: |l, text| {
                l.groups = (!text.is_empty()).then(|| text.into());
                l.groups.is_some()
            },
        },
    )
        .default_words("none")
        .about("A file of groups: `group: user user`, a line for each. Groups that a helper or a token names count beside these."),
    OfLogin::new("login.ttl", Field::Time(|l| &mut l.ttl))
        .between(0, DAY)
        .about("How long a credential that was right counts without another check. A changed file and a reload end it."),
    OfLogin::new("login.forward", Field::Flag(|l| &mut l.forward))
        .about("Whether the credential goes to the origin of a site too. Without it the origin gets no `Authorization`, and answers are shared among the users."),
    OfLogin::new("login.failures", Field::Count(|l| &mut l.failures_max))
        .between(1, 100_000)
        .about("Failed logins of one client at once. Further ones are answered 429 without a check."),
    OfLogin::new("login.failure_period", Field::Time(|l| &mut l.failure_period))
        .between(1, DAY)
        .about("After each such time a client may fail once more."),
    OfLogin::new("login.nonce_ttl", Field::Time(|l| &mut l.nonce_ttl))
        .between(1_000, DAY)
        .about("How long a challenge of `digest` is good. After that clients answer a new one by themselves (`stale=true`)."),
    OfLogin::new(
        "login.issuer",
        Field::Text {
            form: "text",
            read: |l| l.issuer.clone(),
            write: |l, text| {
                text.clone_into(&mut l.issuer);
                true
            },
        },
    )
    .default_words("must be given for `bearer`")
    .about("The issuer of tokens (`iss`)."),
    OfLogin::new(
        "login.audience",
        Field::Texts {
            form: "texts",
            read: |l| l.audience.clone(),
            clear: |l| l.audience.clear(),
            push: |l, text| {
                l.audience.push(text.to_owned());
                !text.is_empty()
            },
        },
    )
    .default_words("must be given for `bearer`")
    .about("The audience of tokens (`aud`): one of these has to be in it."),
    OfLogin::new(
        "login.user_claim",
        Field::Text {
            form: "name",
            read: |l| l.user_claim.clone(),
            write: |l, text| {
                text.clone_into(&mut l.user_claim);
                !text.is_empty()
            },
        },
    )
    .about("The claim of a token that is the name of the user."),
    OfLogin::new(
        "login.groups_claim",
        Field::Text {
            form: "name",
            read: |l| l.groups_claim.clone(),
            write: |l, text| {
                text.clone_into(&mut l.groups_claim);
                true
            },
        },
    )
    .about("The claim of a token that has the groups of the user: a list, or words."),
    OfLogin::new(
        "login.users",
        Field::Text {
            form: "name",
            read: |l| l.users.clone(),
            write: |l, text| {
                text.clone_into(&mut l.users);
                !text.is_empty()
            },
        },
    )
    .default_words("must be given for `page` and `form`")
    .about("Of `page` and `form`: the `[[login]]` of `basic` whose file, helper or directory knows users, passwords and groups; failed logins count there."),
    OfLogin::new(
        "login.url",
        Field::Text {
            form: "http or https URL",
            read: |l| l.url.as_ref().map_or_else(String::new, ToString::to_string),
            write: |l, text| {
                l.url = url::parse(text).filter(|url| &*url.path == "/");
                l.url.is_some()
            },
        },
    )
    .default_words("must be given for `page`")
    .about("Of `page`: where browsers reach the page, by a name or address of this server and the port of a listener: `https://proxy.office.example:8443`. With http the password crosses the network as it is."),
    OfLogin::new("login.session", Field::Time(|l| &mut l.session))
        .between(60_000, 30 * DAY)
        .about("How long somebody is logged in: of `page` at the address, of `form` by the cookie. Of `page`, a changed file of users or groups and another configuration of the login end it; of `form`, another password or group of that user. A reload that changes none of these does not."),
    OfLogin::new("login.idle", Field::Time(|l| &mut l.idle))
        .between(60_000, 30 * DAY)
        .about("How long it is so without a request."),
];
