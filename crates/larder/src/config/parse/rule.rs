//! The parser's part for `[[rule]]`: nested conditions, what goes together, and the compiled table.

use super::Parser;
use crate::background;
use crate::config::next_hop::{DIRECT, HopsByRule};
use crate::config::rule::{ClosedDestinations, RULE, RULE_DO, RULE_WHEN, RuleDo, RuleSettings, RuleTable, field_line};
use crate::config::setting::kind;
use crate::config::{CertificateDemand, SiteOrigin, url};
use crate::lines;
use larder_rules::bandwidth::{Bandwidth, BandwidthBy};
use larder_rules::rate::RateBy;
use larder_rules::rule::FieldChanges;
use larder_rules::template::Template;
use larder_rules::values::{FieldTest, is_field_name};
use larder_rules::{Do, Place, Rule, Table, Verdict, When};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// Conditions that are nested deeper are refused.
const DEPTH_MAX: usize = 8;
/// A longer page of a refusal is refused.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// Keys of `when` that are no settings of the table.
const NESTED: [&str; 3] = ["field", "not", "any"];

impl Parser {
    /// Reads the rules of one file; they stand behind those of earlier files.
    pub(super) fn rules(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("rule", value);
        let tables = self.tables("rule", value);
        // New pages of memory are most of what a reload costs, and a list that grows by doubling needs three times as many.
        self.table_rules.reserve(tables.len());
        Arc::make_mut(&mut self.loaded.config.rules).reserve(tables.len());
        for (span, table) in tables {
            background::give_way();
            let mut rule = RuleSettings { place: self.place(&span), ..RuleSettings::default() };
            self.entry("rule", RULE, &span, table, &mut rule, &["when", "do"]);
            if let Some(when) = table.get("when") {
                rule.when = Arc::new(self.when(when, 0));
            }
            let known = self.problems.len();
            match table.get("do").map(|value| (value.span(), value.get_ref())) {
                Some((span, DeValue::Table(table))) => {
                    self.entry("rule.do", RULE_DO, &span, table, &mut rule.does, &[]);
                    if self.problems.len() == known {
                        self.check_do(&span, &rule);
                    }
                }
                Some((span, other)) => {
                    let hint = "write do = { deny = true }, or a table [rule.do]".to_owned();
                    self.problem(span, format!("rule.do is a table, not {}", kind(other)), Some(hint));
                }
                None => {
                    let hint =
                        "write do = { deny = true }, do = { allow = true } or another of `larder config rule.do`";
                    self.problem(span.clone(), "`do` is missing".to_owned(), Some(hint.to_owned()));
                }
            }
            if self.problems.len() == known {
                self.compile(&span, &rule);
            }
            Arc::make_mut(&mut self.loaded.config.rules).push(rule);
        }
    }

    fn when(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> When {
        let (mut when, span) = (When::default(), value.span());
        let DeValue::Table(table) = value.get_ref() else {
            let hint = "write when = { host = \"*.example.org\" }, or a table [rule.when]".to_owned();
            self.problem(span, format!("rule.when is a table, not {}", kind(value.get_ref())), Some(hint));
            return when;
        };
        self.entry("rule.when", RULE_WHEN, &span, table, &mut when, &NESTED);
        if let Some(fields) = table.get("field") {
            self.when_fields(fields, &mut when);
        }
        if depth == DEPTH_MAX {
            self.problem(span, format!("conditions are nested deeper than {DEPTH_MAX}"), None);
            return when;
        }
        if let Some(not) = table.get("not") {
            when.not = self.nested(not, depth);
        }
        if let Some(any) = table.get("any") {
            when.any = self.nested(any, depth);
        }
        if when.size_min.zip(when.size_max).is_some_and(|(min, max)| min > max) {
            self.problem(span, "no size is at least `size_min` and at most `size_max`".to_owned(), None);
        }
        when
    }

    /// A table, or a list of tables.
    fn nested(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Vec<When> {
        let nested: Vec<When> = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| self.when(item, depth + 1)).collect(),
            _ => vec![self.when(value, depth + 1)],
        };
        if nested.iter().any(When::is_empty) {
            let message = "a condition without a matcher holds always".to_owned();
            self.problem(value.span(), message, Some("name a matcher in it, or leave it out".to_owned()));
        }
        nested
    }

    fn when_fields(&mut self, value: &Spanned<DeValue<'_>>, when: &mut When) {
        let hint = || Some("write field = { Cookie = \"*\", Accept = [\"text/*\", \"~^image/\"] }".to_owned());
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!("rule.when.field is a table of names, not {}", kind(value.get_ref()));
            return self.problem(value.span(), message, hint());
        };
        for (name, value) in table {
            if !is_field_name(name.get_ref()) {
                self.problem(name.span(), format!("{} is no name of a field", name.get_ref()), hint());
            }
            if when.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name.get_ref())) {
                self.problem(name.span(), format!("the field {} is named twice", name.get_ref()), None);
            }
            let mut tests = Vec::new();
            let items: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
                DeValue::Array(items) => items.iter().collect(),
                _ => vec![value],
            };
            for item in items {
                match item.get_ref() {
                    DeValue::String(text) => match FieldTest::parse(text) {
                        Ok(test) => tests.push(test),
                        Err(trouble) => self.problem(item.span(), format!("{}: {trouble}", name.get_ref()), hint()),
                    },
                    other => {
                        let message = format!("a value of a field is a text, not {}", kind(other));
                        self.problem(item.span(), message, hint());
                    }
                }
            }
            when.fields.push(((&**name.get_ref()).into(), tests));
        }
    }

    /// Reports names of lists and logins that there are none of: a rule that never holds must not look as if it protected anything.
    fn check_names(&mut self, (source, span): (usize, &Range<usize>), rule: &Rule) {
        let (mut lists, mut asks_user, mut asks_certificate) = (Vec::new(), false, false);
        let mut asks_country = false;
        let mut left: Vec<&When> = vec![&rule.when];
        while let Some(when) = left.pop() {
            lists.extend(when.list.iter().cloned());
            asks_user |= !(when.user.is_empty() && when.group.is_empty());
            asks_certificate |= !when.certificate.is_empty();
            asks_country |= !(when.country.is_empty() && when.destination_country.is_empty());
            left.extend(when.not.iter().chain(&when.any));
        }
        let config = &self.loaded.config;
        let mut wrong: Vec<(String, &str)> = Vec::new();
        for name in lists {
            if !config.lists.iter().any(|list| *list.name == *name) && !self.is_faulty("list", &name) {
                let remedy = match name.contains('/') {
                    true => {
                        "this is the name of a table: write [[list]] with name = \"blocked\" and source = \"/FILE\", and its name here"
                    }
                    false => "write a [[list]] with this name",
                };
                wrong.push((format!("rule.when.list: there is no list {name:?}"), remedy));
            }
        }
        if let Some(Verdict::Login(name)) = &rule.does.verdict
            && !config.logins.iter().any(|login| *login.name == **name)
            && !self.is_faulty("login", name)
        {
            wrong.push((format!("rule.do.login: there is no login {name:?}"), "write a [[login]] with this name"));
        }
        let is_unknown =
            |name: &str| config.bandwidths.iter().all(|it| *it.name != *name) && !self.is_faulty("bandwidth", name);
        for name in rule.does.bandwidth.iter().filter(|name| is_unknown(name)) {
            let message = format!("rule.do.bandwidth: there is no bandwidth {name:?}");
            wrong.push((message, "write a [[bandwidth]] with this name"));
        }
        let has_login = !config.access.login.is_empty()
            || config.sites.iter().any(|site| !site.login.is_empty())
            || self.certificates_name_users();
        let remedy = "set access.login for the forward proxy, `login` of a site, or certificate_user of a listener";
        if asks_certificate && config.listens.iter().all(|listen| listen.clients.demand == CertificateDemand::None) {
            let message = "rule.when.certificate: no listener asks clients for certificates".to_owned();
            wrong.push((message, "set client_certificates of a [[listen]]"));
        }
        if asks_country && config.access.country_file.is_none() {
            let message = "rule.when.country: no file says which addresses are in which country".to_owned();
            wrong.push((message, "set access.country_file to an MMDB file of countries"));
        }
        if asks_user && !has_login {
            wrong.push(("a rule that names users or groups needs a login".to_owned(), remedy));
        }
        if rule.does.rate.is_some_and(|limit| limit.by == RateBy::User) && !has_login {
            wrong.push(("rule.do.rate_by: counting by users needs a login".to_owned(), remedy));
        }
        let by_user = |name: &str| config.bandwidths.iter().any(|it| it.name == name && it.by == BandwidthBy::User);
        for name in rule.does.bandwidth.iter().filter(|name| config.logins.is_empty() && !has_login && by_user(name)) {
            wrong.push((format!("rule.do.bandwidth: {name}: a limit by users needs a login"), remedy));
        }
        self.current = source;
        for (message, remedy) in wrong {
            self.problem(span.clone(), message, Some(remedy.to_owned()));
        }
    }

    fn check_do(&mut self, span: &Range<usize>, rule: &RuleSettings) {
        let does = &rule.does;
        let mut wrong = |message: &str, hint: &str| {
            self.problem(span.clone(), message.to_owned(), (!hint.is_empty()).then(|| hint.to_owned()));
        };
        if *does == RuleDo::default() {
            return wrong(
                "a rule that does nothing",
                "add `deny`, `allow`, `redirect` or another of `larder config rule.do`",
            );
        }
        let verdicts = usize::from(does.allow)
            + usize::from(does.deny)
            + usize::from(does.redirect.is_some())
            + usize::from(does.login.is_some());
        if verdicts > 1 {
            wrong("a rule has one of `allow`, `deny`, `redirect` and `login`", "write a rule for each");
        }
        let is_good_status = match (does.status, does.deny, does.redirect.is_some()) {
            (0, ..) => true,
            (status, true, _) => (400..=599).contains(&status),
            (status, _, true) => matches!(status, 301 | 302 | 303 | 307 | 308),
            _ => false,
        };
        if !is_good_status {
            wrong(
                "`status` does not fit",
                "400 to 599 with `deny`; 301, 302, 303, 307 or 308 with `redirect`; none otherwise",
            );
        }
        if does.page.is_some() && !does.deny {
            wrong("`page` is the page of a refusal", "add `deny = true`");
        }
        let ends = does.deny || does.redirect.is_some() || does.login.is_some();
        let only_mark = RuleDo {
            allow: does.allow,
            deny: does.deny,
            redirect: does.redirect.clone(),
            login: does.login.clone(),
            status: does.status,
            page: does.page.clone(),
            mark: does.mark.clone(),
            ..RuleDo::default()
        };
        if ends && *does != only_mark {
            wrong(
                "a request that is answered at once has no effects beside `mark`",
                "write the effects in a rule before",
            );
        }
        let is_wrong = asks_destination(&rule.when) && !does.deny;
        if is_wrong || asks_destination_inside(&rule.when) {
            wrong(
                "`destination` and `destination_country` are known when the connection is made, so they stand in a rule with `deny`, and not in `not` or `any`",
                "write when = { destination = \"10.0.0.0/8\" }, do = { deny = true }",
            );
        }
        self.check_effects(span, rule);
    }

    fn check_effects(&mut self, span: &Range<usize>, rule: &RuleSettings) {
        let does = &rule.does;
        let mut wrong = |message: &str, hint: &str| {
            self.problem(span.clone(), message.to_owned(), (!hint.is_empty()).then(|| hint.to_owned()));
        };
        if does.even_if_private && does.lifetime.is_none() {
            wrong("`even_if_private` needs `lifetime`", "say how long: lifetime = \"10m\"");
        }
        if does
            .add
            .iter()
            .filter_map(|line| field_line(line))
            .any(|(name, _)| name.eq_ignore_ascii_case("Authorization"))
        {
            wrong(
                "`add` puts no Authorization beside the client's: the origin would get both, the one for a login of Larder's too",
                "write it with `set`",
            );
        }
        if does.never && (does.lifetime.is_some() || does.grace.is_some()) {
            wrong("`never` has no `lifetime` and no `grace`", "");
        }
        if does.rate.is_none() && does.burst.is_some() {
            wrong("`burst` belongs to a `rate`", "add rate = \"10/s\"");
        }
        let named = [&does.redirect, &does.path, &does.query, &does.host];
        let groups = named.into_iter().flatten().chain(&does.key);
        let groups = groups.filter_map(|text| Template::parse(text).ok()).map(|template| template.groups_len()).max();
        let known = rule.when.path_regex.iter().map(larder_rules::values::Pattern::groups_len).min();
        if groups.unwrap_or(0) > known.unwrap_or(0) {
            wrong(
                "`do` names a group that not every `path_regex` has",
                "write when = { path_regex = \"^/old/(.*)$\" }",
            );
        }
    }

    /// Adds the rule to those that become the table.
    fn compile(&mut self, span: &Range<usize>, rule: &RuleSettings) {
        let page = match &rule.does.page {
            Some(file) => match page(file) {
                Ok(page) => Some(page),
                Err(trouble) => {
                    let hint = "a relative path begins at the folder in which Larder was started".to_owned();
                    return self.problem(span.clone(), trouble, Some(hint));
                }
            },
            None => None,
        };
        let does = work(&rule.does, page);
        let place = Place(rule.place.to_string().into());
        self.table_rules.push((
            (self.current, span.clone()),
            Rule { name: rule.name.as_str().into(), place, when: Arc::clone(&rule.when), does },
        ));
    }

    /// Compiles the rules of all files into one table, and finds the origins that they name.
    pub(super) fn finish_rules(&mut self) {
        let all = std::mem::take(&mut self.table_rules);
        let mut routes: Vec<Option<Arc<SiteOrigin>>> = Vec::new();
        let limits: Vec<Arc<Bandwidth>> = self.loaded.config.bandwidths.iter().map(|it| Arc::new(it.limit())).collect();
        let named = |name: &str| limits.iter().find(|limit| &*limit.name == name).map(Arc::clone);
        let bandwidths =
            all.iter().map(|(_, rule)| rule.does.bandwidth.iter().filter_map(|name| named(name)).collect()).collect();
        for ((source, span), rule) in &all {
            background::give_way();
            self.check_names((*source, span), rule);
            let route = rule.does.route.as_deref().map(|name| self.find_route(name));
            if let Some(None) = route {
                let name = rule.does.route.as_deref().unwrap_or_default();
                self.current = *source;
                let message = format!("rule.do.route: there is no origin {name:?}");
                let hint = "write an http or https URL, or the name of an [[origin]] or a [[site.route]]".to_owned();
                self.problem(span.clone(), message, Some(hint));
            }
            routes.push(route.flatten());
        }
        let hops: Vec<Option<Arc<HopsByRule>>> =
            all.iter().map(|((source, span), rule)| self.hops_of_rule((*source, span), &rule.does)).collect();
        let forward = &mut self.loaded.config.forward_parents;
        forward.is_any |= hops.iter().any(Option::is_some);
        forward.are_asked = forward.is_any && self.loaded.config.parents.iter().any(|it| it.questions.is_any());
        let closed = all.iter().map(|(_, rule)| closed_by(rule)).collect::<Vec<_>>();
        let first = all.first().map(|(at, _)| at.clone());
        match Table::new(all.into_iter().map(|(_, rule)| rule).collect()) {
            Ok(table) => {
                self.loaded.config.rule_table = Arc::new(RuleTable {
                    table,
                    bandwidths,
                    routes,
                    hops,
                    closes_any: closed.iter().any(Option::is_some),
                    closes_countries: closed.iter().flatten().any(|closed| !closed.countries.is_empty()),
                    closed,
                })
            }
            Err(trouble) => {
                let (source, span) = first.unwrap_or_default();
                self.current = source;
                self.problem(span, format!("rule: {trouble}"), None);
            }
        }
    }

    /// The parents that a rule names; `None` where it names none.
    fn hops_of_rule(&mut self, (source, span): (usize, &Range<usize>), does: &Do) -> Option<Arc<HopsByRule>> {
        let owned = |names: &[Box<str>]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let mut found = HopsByRule::default();
        for (key, names) in [("parents", &does.parents), ("parents_except", &does.parents_except)] {
            // The order of those that are left out says nothing.
            let mut names = owned(names);
            names.sort_by_key(|name| key == "parents_except" && name == DIRECT);
            match self.hops(&names) {
                Ok(hops) if hops.is_empty() => {}
                Ok(hops) if key == "parents" => found.instead = Some(hops.into()),
                Ok(hops) => found.without = hops.into(),
                Err((message, hint)) => {
                    self.current = source;
                    self.problem(span.clone(), format!("rule.do.{key}: {message}"), Some(hint));
                }
            }
        }
        (!found.is_empty()).then(|| Arc::new(found))
    }

    /// The origin of this name: groups of origins, where there are such, are found here too.
    fn find_route(&self, name: &str) -> Option<Arc<SiteOrigin>> {
        let routes = self.loaded.config.sites.iter().flat_map(|site| &site.routes);
        let named = routes.into_iter().find(|route| route.name == name).map(|route| Arc::clone(&route.origin));
        let is_group = self.loaded.config.origins.iter().any(|group| group.name == name);
        let unnamed = || if is_group { url::parse_origin(name) } else { url::parse(name) };
        named.or_else(|| unnamed().map(SiteOrigin::new).map(Arc::new))
    }
}

/// The destinations that a rule denies; `None` where it is about none.
fn closed_by(rule: &Rule) -> Option<Arc<ClosedDestinations>> {
    let (networks, countries) = (&rule.when.destination, &rule.when.destination_country);
    let closed = || ClosedDestinations {
        networks: networks.clone(),
        countries: countries.clone(),
        rule: rule.to_string().into(),
    };
    asks_destination(&rule.when).then(|| Arc::new(closed()))
}

fn asks_destination(when: &When) -> bool {
    !(when.destination.is_empty() && when.destination_country.is_empty())
}

/// Whether a condition that stands in another one asks for destinations.
fn asks_destination_inside(when: &When) -> bool {
    let mut nested = when.not.iter().chain(&when.any);
    nested.any(|nested| asks_destination(nested) || asks_destination_inside(nested))
}

fn page(file: &Path) -> Result<Template, String> {
    let text = lines::text_of(file, PAGE_BYTES_MAX)
        .map_err(|error| format!("rule.do.page: cannot read {}: {error}", file.display()))?;
    Template::parse(&text).map_err(|trouble| format!("rule.do.page: {}: {trouble}", file.display()))
}

/// The work of a rule as the engine has it. The texts were seen to be good.
fn work(does: &RuleDo, page: Option<Template>) -> Do {
    let template = |text: &String| Template::parse(text).unwrap_or_default();
    let status = |usual: u16| if does.status == 0 { usual } else { u16::try_from(does.status).unwrap_or(usual) };
    let verdict = match (does.allow, does.deny, &does.redirect, &does.login) {
        (true, ..) => Some(Verdict::Allow),
        (_, true, ..) => Some(Verdict::Deny { status: status(403), page }),
        (_, _, Some(to), _) => Some(Verdict::Redirect { status: status(302), to: template(to) }),
        (.., Some(login)) => Some(Verdict::Login(login.as_str().into())),
        _ => None,
    };
    let words = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
    let fields = |texts: &[String]| {
        let split = |text: &String| {
            field_line(text).map(|(name, value)| (name.into(), Template::parse(value).unwrap_or_default()))
        };
        texts.iter().filter_map(split).collect()
    };
    let changes = |set: &[String], add: &[String], remove: &[String]| FieldChanges {
        remove: words(remove),
        set: fields(set),
        add: fields(add),
    };
    let burst = does.burst.and_then(|burst| u32::try_from(burst).ok());
    Do {
        verdict,
        rewrite_path: does.path.as_ref().map(template),
        rewrite_query: does.query.as_ref().map(template),
        rewrite_host: does.host.as_ref().map(template),
        route: does.route.as_deref().map(Box::from),
        request: changes(&does.set, &does.add, &does.remove),
        answer: changes(&does.answer_set, &does.answer_add, &does.answer_remove),
        tags: words(&does.tag),
        key: does.key.iter().map(template).collect(),
        lifetime: does.lifetime,
        grace: does.grace,
        never: does.never,
        even_if_private: does.even_if_private,
        rate: does.rate.map(|rate| larder_rules::rate::RateLimit {
            by: does.rate_by,
            burst: burst.unwrap_or(rate.burst),
            ..rate
        }),
        bandwidth: words(&does.bandwidth),
        parents: words(&does.parents),
        parents_except: words(&does.parents_except),
        priority: does.priority,
        mark: does.mark.as_deref().map(Box::from),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Loaded;

    /// The report about a wrong configuration, or the rules as they are shown again.
    fn read(text: &str) -> Result<String, String> {
        let loaded = Loaded::parse("rules.toml", text, &[]).map_err(|report| report.to_string())?;
        Ok(loaded.config.rules.iter().map(super::RuleSettings::lines).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn rules_are_read_and_shown() {
        let text = r#"
[[rule]]
name = "office hours"
when = { client = "10.0.0.0/8", time = "Mon-Fri 08:00-17:00", port = 443, path = ["/a/**", "/*.exe"], field = { Cookie = "*" }, not = { host = "*.example.org" } }
do = { deny = true, status = 404 }

[[rule]]
do = { set = "X-A: {host}", tag = ["a", "b"], lifetime = "10m", rate = "10/s", rate_by = "host" }
"#;
        let shown = read(text).unwrap();
        assert!(shown.starts_with("name = \"office hours\"\nwhen = { "), "{shown}");
        for part in [
            "client = [\"10.0.0.0/8\"]",
            "port = [\"443\"]",
            "field = { \"Cookie\" = [\"*\"] }",
            "not = [{ host = [\"*.example.org\"] }]",
            "do = { deny = true, status = 404 }",
            "rate = \"10/s\"",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let headed = shown.split("\n\n").map(|rule| format!("[[rule]]\n{rule}\n")).collect::<String>();
        assert_eq!(read(&headed).unwrap(), shown, "what is shown can be read again");
    }

    #[test]
    fn wrong_rules_are_named_with_place_and_remedy() {
        for (rule, wanted) in [
            ("when = { host = \"a b\" }\ndo = { deny = true }", "\"a b\" is not a host"),
            ("when = { hots = \"a\" }\ndo = { deny = true }", "did you mean rule.when.host"),
            ("when = { host = \"a\" }", "`do` is missing"),
            ("do = {}", "does nothing"),
            ("do = { deny = true, allow = true }", "one of `allow`"),
            ("do = { deny = true, status = 200 }", "`status` does not fit"),
            ("do = { redirect = \"/x\", status = 403 }", "`status` does not fit"),
            ("do = { deny = true, tag = \"a\" }", "has no effects beside `mark`"),
            ("do = { even_if_private = true }", "needs `lifetime`"),
            ("when = { path_regex = \"(a\" }\ndo = { deny = true }", "unclosed group"),
            ("when = { path_regex = \"(a)\" }\ndo = { path = \"/{2}\" }", "names a group"),
            ("when = { time = \"Mon-Xyz\" }\ndo = { deny = true }", "write it as Mon-Fri"),
            ("when = { zone = \"Europe/Nowhere\" }\ndo = { deny = true }", "time zone"),
            ("when = { not = {} }\ndo = { deny = true }", "holds always"),
            ("when = { size_min = 9, size_max = 8 }\ndo = { deny = true }", "no size is"),
            ("when = { field = { \"A B\" = \"*\" } }\ndo = { deny = true }", "no name of a field"),
            ("when = { user = \"anna\" }\ndo = { deny = true }", "a rule that names users or groups needs a login"),
            ("when = { certificate = \"ada\" }\ndo = { deny = true }", "no listener asks clients for certificates"),
            ("when = { country = \"DE\" }\ndo = { deny = true }", "set access.country_file"),
            ("when = { country = \"Germany\" }\ndo = { deny = true }", "rule.when.country"),
            ("when = { sni = \"a b\" }\ndo = { deny = true }", "rule.when.sni"),
            ("when = { list = \"ads\" }\ndo = { deny = true }", "there is no list"),
            ("do = { set = \"Host: a\" }", "a field that a rule may change"),
            ("do = { remove = \"Content-Length\" }", "a field that a rule may change"),
            ("do = { redirect = \"{nothing}\" }", "there is no placeholder {nothing}"),
            ("do = { route = \"nowhere\" }", "there is no origin"),
            ("do = { deny = true, page = \"/nonexistent/page.html\" }", "cannot read /nonexistent/page.html"),
            ("do = { add = \"authorization: Basic YTpi\" }", "`add` puts no Authorization beside"),
            ("do = { rate = \"10/s\", rate_by = \"user\" }", "counting by users needs a login"),
            ("do = { rate = \"10/d\" }", "write it as 10/s"),
            ("do = { priority = \"urgent\" }", "low, normal or high"),
            ("do = { deny = true, priority = \"low\" }", "has no effects beside `mark`"),
            ("when = { destination = \"10.0.0.0/8\" }\ndo = { allow = true }", "known when the connection is made"),
            (
                "when = { not = { destination = \"10.0.0.0/8\" } }\ndo = { deny = true }",
                "known when the connection is made",
            ),
            ("when = { destination = \"far\" }\ndo = { deny = true }", "rule.when.destination"),
            ("when = { destination_country = \"US\" }\ndo = { allow = true }", "known when the connection is made"),
            (
                "when = { not = { destination_country = \"US\" } }\ndo = { deny = true }",
                "known when the connection is made",
            ),
            ("when = { destination_country = \"US\" }\ndo = { deny = true }", "set access.country_file"),
            ("when = { destination_country = \"USA\" }\ndo = { deny = true }", "rule.when.destination_country"),
            ("when = { host_regex = \"(a\" }\ndo = { deny = true }", "unclosed group"),
            ("do = { parents = \"far\" }", "rule.do.parents: there is no parent far"),
            ("do = { parents = [\"direct\", \"far\"] }", "nothing is tried behind `direct`"),
            ("do = { parents_except = [\"direct\", \"far\"] }", "rule.do.parents_except: there is no parent far"),
            ("do = { deny = true, parents = \"direct\" }", "has no effects beside `mark`"),
            ("do = { bandwidth = \"guests\" }", "there is no bandwidth \"guests\""),
        ] {
            let report = read(&format!("[[rule]]\n{rule}\n")).unwrap_err();
            assert!(report.contains(wanted) && report.contains("rules.toml:"), "{rule}:\n{report}");
            assert!(report.ends_with("1 error: nothing was changed\n"), "{report}");
        }
        let two = read("[[rule]]\ndo = {}\n[[rule]]\nwhen = { port = 0 }\ndo = { deny = true }\n").unwrap_err();
        assert!(two.contains("2 errors") && two.contains("rules.toml:2") && two.contains("rules.toml:4"), "{two}");
    }
}
