//! Reads `[[origin]]`, and finds the groups that sites and listeners name.

use super::Parser;
use super::mount::is_nameless;
use crate::config::application::Application;
use crate::config::origin::{MemberHost, OriginGroup, OriginMember, PROXY_PROTOCOL_BESIDE_HTTP2};
use crate::config::setting::{Setting, kind};
use crate::config::table::{ORIGIN, ORIGIN_CHECK, ORIGIN_EJECT, ORIGIN_HEDGE, ORIGIN_MEMBER, ORIGIN_RETRY};
use crate::config::{HostHeader, OriginHttp2, Site, SiteOrigin, url};
use larder_wire::Scheme;
use larder_wire::proxy_protocol::ProxyVersion;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Members of one group.
const MEMBERS_MAX: usize = 256;
/// Groups.
const GROUPS_MAX: usize = 1_024;

impl Parser {
    pub(super) fn origins(&mut self, value: &Spanned<DeValue<'_>>) {
        if matches!(value.get_ref(), DeValue::String(_)) {
            let message = "origin is no setting of the whole file".to_owned();
            let hint = "write it in a [[site]], or give it with --origin; an [[origin]] is a group that sites name";
            return self.problem(value.span(), message, Some(hint.to_owned()));
        }
        self.said_in_file("origin", value);
        for (span, table) in self.tables("origin", value) {
            let mut group = OriginGroup::default();
            let before = self.problems.len();
            let others = ["members", "member", "check", "eject", "retry", "hedge"];
            let missing = self.entry("origin", ORIGIN, &span, table, &mut group, &others);
            group.place = self.place(&span);
            for (name, settings) in
                [("check", ORIGIN_CHECK), ("eject", ORIGIN_EJECT), ("retry", ORIGIN_RETRY), ("hedge", ORIGIN_HEDGE)]
            {
                if let Some(value) = table.get(name) {
                    self.part_of_origin(name, settings, value, &mut group);
                }
            }
            for name in ["members", "member"] {
                if let Some(value) = table.get(name) {
                    self.origin_members(value, &mut group);
                }
            }
            if self.problems.len() == before {
                self.check_origin(&span, &group, table);
            }
            if !missing && self.loaded.config.origins.iter().any(|other| other.name == group.name) {
                self.problem(span.clone(), format!("there is an [[origin]] {} already", group.name), None);
            }
            if self.loaded.config.origins.len() == GROUPS_MAX {
                self.problem(span, format!("there are more than {GROUPS_MAX} [[origin]]"), None);
                return;
            }
            self.loaded.config.origins.push(Arc::new(group));
        }
    }

    /// Reads one of the tables in a group. An empty one switches on what it is for.
    fn part_of_origin(
        &mut self,
        name: &str,
        settings: &'static [Setting<OriginGroup>],
        value: &Spanned<DeValue<'_>>,
        group: &mut OriginGroup,
    ) {
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!("origin.{name} is a table, not {}", kind(value.get_ref()));
            let hint = format!("write {name} = {{ … }}; `larder config origin.{name}` lists what may stand in it");
            return self.problem(value.span(), message, Some(hint));
        };
        match name {
            "check" => group.check = Some(group.check.take().unwrap_or_default()),
            "hedge" => group.hedge = Some(group.hedge.take().unwrap_or_default()),
            _ => {}
        }
        self.entry(&format!("origin.{name}"), settings, &value.span(), table, group, &[]);
    }

    fn origin_members(&mut self, value: &Spanned<DeValue<'_>>, group: &mut OriginGroup) {
        for (span, table) in self.tables("origin.member", value) {
            let mut member = OriginMember::default();
            let missing = self.entry("origin.member", ORIGIN_MEMBER, &span, table, &mut member, &[]);
            if member.name.is_empty() {
                member.name = url::show(&member.url);
            }
            if !missing && group.members.iter().any(|other| other.name == member.name) {
                let hint = "give each a `name`, or raise the `weight` of one".to_owned();
                let message = format!("the group has a member {} already", member.name);
                self.problem(span.clone(), message, Some(hint));
            }
            if !missing && member.sni.is_some() && member.url.scheme != Scheme::Https {
                let hint = "write its URL with https, or leave out `sni`".to_owned();
                self.problem(span.clone(), "`sni` is for a member with https".to_owned(), Some(hint));
            }
            if !missing && let Some((message, hint)) = member.http2.and_then(|http2| http2.unfit(member.url.scheme)) {
                self.problem(span.clone(), message.to_owned(), Some(hint.to_owned()));
            }
            if !missing
                && member.proxy_protocol.is_some()
                && member.http2.is_some_and(|http2| http2 != OriginHttp2::Off)
            {
                let (message, hint) = PROXY_PROTOCOL_BESIDE_HTTP2;
                self.problem(span.clone(), message.to_owned(), Some(hint.to_owned()));
            }
            if !missing && member.host == MemberHost::Own && is_nameless(&member.url.host) {
                let message = "`host = \"origin\"` is for a member that has a name".to_owned();
                let hint = "write the `Host` that the server behind the socket expects, or leave out `host`".to_owned();
                self.problem(span.clone(), message, Some(hint));
            }
            if group.members.len() == MEMBERS_MAX {
                return self.problem(span, format!("a group has at most {MEMBERS_MAX} members"), None);
            }
            group.members.push(Arc::new(member));
        }
    }

    fn check_origin(&mut self, span: &Range<usize>, group: &OriginGroup, table: &DeTable<'_>) {
        let has_members = table.contains_key("members") || table.contains_key("member");
        if group.members.is_empty() && !has_members {
            let hint = "write members = [{ url = \"http://10.0.0.1:8000\" }, …], or an [[origin.member]] for each";
            self.problem(span.clone(), "a group needs members".to_owned(), Some(hint.to_owned()));
        } else if group.members.is_empty() || group.members.iter().all(|member| member.backup) {
            let message = "a group needs a member that is no backup".to_owned();
            self.problem(span.clone(), message, None);
        }
        if let Some(check) = &group.check
            && check.timeout > check.every
        {
            let message = "origin.check: `timeout` is longer than `every`".to_owned();
            let hint = "a check ends before the next one begins".to_owned();
            self.problem(span.clone(), message, Some(hint));
        }
        if group.eject.time > group.eject.time_max {
            self.problem(span.clone(), "origin.eject: `time` is longer than `time_max`".to_owned(), None);
        }
    }

    /// Notes at a site's origin whether it is asked by HTTP/2.
    pub(super) fn http2_of_site(&mut self, site: &mut Site, http2: OriginHttp2) {
        let unfit = match site.origin.host.is_local() {
            true => Some((
                "`http2` of a site is for an origin that is a URL",
                "leave it out; the members of an [[origin]] say it themselves",
            )),
            false => http2.unfit(site.origin.scheme),
        };
        match unfit {
            Some((message, hint)) => self.conflict("site", &format!("{}: {message}", site.place), Some(hint)),
            None => Arc::make_mut(&mut site.origin).http2 = Some(http2),
        }
    }

    /// Notes at a site's origin by which version of the PROXY protocol it is told of the client.
    pub(super) fn proxy_protocol_of_site(&mut self, site: &mut Site, version: ProxyVersion) {
        let host = &site.origin.host;
        let unfit = match (url::group_name(host), Application::is_origin(host)) {
            (Some(_), _) => Some((
                "`proxy_protocol` of a site is for an origin that is a URL or a socket",
                "leave it out; the members of an [[origin]] say it themselves",
            )),
            (None, true) => Some((
                "an application has no use for `proxy_protocol`: it finds the client's address in its surroundings",
                "leave it out",
            )),
            (None, false) if site.http2.is_some_and(|http2| http2 != OriginHttp2::Off) => {
                Some(PROXY_PROTOCOL_BESIDE_HTTP2)
            }
            (None, false) => None,
        };
        match unfit {
            Some((message, hint)) => self.conflict("site", &format!("{}: {message}", site.place), Some(hint)),
            None => Arc::make_mut(&mut site.origin).proxy_protocol = Some(version),
        }
    }

    /// Reports sites, their routes and listeners whose origin is a group that is not there.
    pub(super) fn find_origin_groups(&mut self) {
        let mut problems: Vec<(&str, String, String)> = Vec::new();
        let config = &self.loaded.config;
        let names: Vec<&str> = config.origins.iter().map(|group| group.name.as_str()).collect();
        let mut look = |table: &'static str, place: &str, origin: &SiteOrigin| {
            let Some(name) = url::group_name(&origin.host).filter(|name| !names.contains(name)) else { return };
            let hint = match names.as_slice() {
                [] => format!("write origin = \"http://{name}\", or an [[origin]] with name = \"{name}\""),
                names => format!("there are: {}; a host is written as http://{name}", names.join(", ")),
            };
            problems.push((table, format!("{place}: there is no [[origin]] {name}"), hint));
        };
        for site in config.sites.iter() {
            let place = site.place.to_string();
            look("site", &place, &site.origin);
            site.routes.iter().for_each(|route| look("site", &place, &route.origin));
        }
        for origin in config.listens.iter().filter_map(|listen| listen.origin.as_ref()) {
            look("listen", "listen", origin);
        }
        for site in config.sites.iter().filter(|site| site.host_header == HostHeader::Origin) {
            let origins = std::iter::once(&site.origin).chain(site.routes.iter().map(|route| &route.origin));
            for name in origins.filter_map(|origin| url::group_name(&origin.host)) {
                let message = format!("{}: host = \"origin\" is said by the members of a group", site.place);
                let hint = format!("write host = \"origin\" in each member of {name}, and leave it out here");
                problems.push(("site", message, hint));
            }
        }
        for (table, message, hint) in problems {
            self.conflict(table, &message, Some(&hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::origin::MemberHost;
    use crate::config::{Loaded, OriginGroup, url};
    use larder_balance::Balance;
    use std::time::Duration;

    const SITE: &str = "[[site]]\nhosts = [\"a.example\"]\norigin = \"app\"\n";

    fn group(text: &str) -> OriginGroup {
        let loaded = Loaded::parse("larder.toml", &format!("{SITE}{text}"), &[]).unwrap_or_else(|all| panic!("{all}"));
        assert_eq!(loaded.config.sites[0].origin.to_string(), "app");
        (*loaded.config.origins[0]).clone()
    }

    fn trouble(text: &str) -> String {
        Loaded::parse("larder.toml", text, &[]).expect_err(text).to_string()
    }

    #[test]
    fn a_group_in_short_and_at_length() {
        let short = group(
            "[[origin]]\nname = \"app\"\nmembers = [{ url = \"http://10.0.0.1:8000\", weight = 2 }, \
             { url = \"https://10.0.0.2\", host = \"app.internal\", sni = \"app.internal\" }, \
             { url = \"http+unix:/run/b.sock\", backup = true, name = \"spare\" }]\n\
             check = { path = \"/up\", every = \"1s\", timeout = \"500ms\", statuses = [200, 301] }\nhedge = {}\n",
        );
        let long = group(
            "[[origin]]\nname = \"app\"\n[origin.check]\npath = \"/up\"\nevery = \"1s\"\ntimeout = \"500ms\"\n\
             statuses = [\"200\", \"301\"]\n[origin.hedge]\n[[origin.member]]\nurl = \"http://10.0.0.1:8000\"\nweight = 2\n\
             [[origin.member]]\nurl = \"https://10.0.0.2\"\nhost = \"app.internal\"\nsni = \"app.internal\"\n\
             [[origin.member]]\nurl = \"http+unix:/run/b.sock\"\nbackup = true\nname = \"spare\"\n",
        );
        assert_eq!(OriginGroup { place: short.place.clone(), ..long }, short);
        let names: Vec<&str> = short.members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["http://10.0.0.1:8000", "https://10.0.0.2", "spare"]);
        assert_eq!(short.members[1].host, MemberHost::Named("app.internal".to_owned()));
        assert_eq!(short.balance, Balance::P2c);
        let balance = short.balance_settings();
        assert!(balance.hedge.is_some() && balance.members[2].is_backup);
        assert_eq!((balance.members[0].weight, balance.eject.time), (2, Duration::from_secs(10)));
    }

    #[test]
    fn trouble_names_its_place_and_a_remedy() {
        let member = "members = [{ url = \"http://10.0.0.1\" }]";
        for (text, wanted) in [
            (SITE.to_owned(), "there is no [[origin]] app"),
            (format!("{SITE}[[origin]]\nname = \"other\"\n{member}\n"), "there are: other"),
            (format!("[[origin]]\n{member}\n"), "`name` is missing"),
            ("[[origin]]\nname = \"app\"\n".to_owned(), "a group needs members"),
            ("[[origin]]\nname = \"app\"\nmembers = []\n".to_owned(), "a member that is no backup"),
            (format!("[[origin]]\nname = \"1a\"\n{member}\n"), "origin.name"),
            (
                format!("[[origin]]\nname = \"a\"\n{member}\n[[origin]]\nname = \"a\"\n{member}\n"),
                "[[origin]] a already",
            ),
            (format!("[[origin]]\nname = \"a\"\n{member}\nbalanse = \"p2c\"\n"), "did you mean origin.balance"),
            (format!("[[origin]]\nname = \"a\"\n{member}\ncheck = true\n"), "origin.check is a table"),
            (
                format!("[[origin]]\nname = \"a\"\n{member}\ncheck = {{ every = \"1s\", timeout = \"2s\" }}\n"),
                "longer than `every`",
            ),
            (format!("[[origin]]\nname = \"a\"\n{member}\neject = {{ statuses = [200] }}\n"), "origin.eject.statuses"),
            (
                "[[origin]]\nname = \"a\"\nmembers = [{ url = \"http://a\" }, { url = \"http://a\" }]\n".to_owned(),
                "a member http://a already",
            ),
            ("[[origin]]\nname = \"a\"\nmembers = [{ url = \"http://a/path\" }]\n".to_owned(), "origin.member.url"),
            (
                "[[origin]]\nname = \"a\"\nmembers = [{ url = \"http://a\", sni = \"b\" }]\n".to_owned(),
                "a member with https",
            ),
            (
                "[[origin]]\nname = \"a\"\nmembers = [{ url = \"http://a\", http2 = \"auto\" }]\n".to_owned(),
                "chosen in the handshake of TLS",
            ),
            (
                "[[origin]]\nname = \"a\"\nmembers = [{ url = \"https://a\", http2 = \"prior-knowledge\" }]\n"
                    .to_owned(),
                "for an origin in clear text",
            ),
            (
                "[[origin]]\nname = \"a\"\nmembers = [{ url = \"https://a\", http2 = \"auto\", proxy_protocol = \"v1\" }]\n"
                    .to_owned(),
                "streams of several clients",
            ),
            (
                format!("{SITE}proxy_protocol = \"v2\"\n[[origin]]\nname = \"app\"\n{member}\n"),
                "is for an origin that is a URL or a socket",
            ),
            (format!("{SITE}http2 = \"auto\"\n[[origin]]\nname = \"app\"\n{member}\n"), "for an origin that is a URL"),
            (
                "[[origin]]\nname = \"a\"\nmembers = [{ url = \"http+unix:/run/a.sock\", host = \"origin\" }]\n"
                    .to_owned(),
                "a member that has a name",
            ),
            (format!("{SITE}host = \"origin\"\n[[origin]]\nname = \"app\"\n{member}\n"), "in each member of app"),
        ] {
            let trouble = trouble(&text);
            assert!(trouble.contains(wanted), "{wanted}: {trouble}");
            assert!(trouble.contains("larder.toml"), "{trouble}");
        }
    }

    #[test]
    fn keys_of_a_group_are_those_of_no_url() {
        let url = url::parse_origin("app").unwrap();
        let mut key = Vec::new();
        url.key_text(&mut key);
        let text = String::from_utf8(key).unwrap();
        assert!(larder_wire::Url::parse(&text).is_none(), "{text}");
    }
}
