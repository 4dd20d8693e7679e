//! The table of rules, docked: the facts that the engine asks about, and what becomes of a request by the rules that hold.

use super::by_people::ByPeople;
use super::by_table::{AnswerChanges, ByTable, Limited, Storing};
use super::facts::Facts;
use super::gate::{self, Refused};
use super::pages::ambiguous;
use crate::client::ShownAddress;
use crate::clock;
use crate::config::next_hop::HopsByRule;
use crate::config::rule::{ClosedDestinations, RuleTable};
use crate::hook::RequestEffects;
use crate::page::{self, Page, ScriptPage};
use crate::people::User;
use crate::reach::{self, CountriesInForce, ReachByRule};
use larder_people::escape;
use larder_rules::bandwidth::BandwidthBy;
use larder_rules::rate::{RateBy, client_key};
use larder_rules::rule::{FieldChanges, RuleNote};
use larder_rules::template::{Placeholder, Template};
use larder_rules::{Matched, Rule, Slot, Slots, Stop, Verdict};
use larder_wire::reading::{self, Reading};
use larder_wire::{Fields, Host, Method, Scheme, Url};
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

/// The request as the table sees it.
struct Subject<'f, 'a> {
    facts: &'f Facts<'a>,
    scheme: Scheme,
    host: &'f Host,
    port: u16,
    /// Path and query; `None` of a CONNECT.
    target: Option<&'f str>,
    /// Whether rules with a rate have counted the request by this URL.
    counted: &'f Cell<bool>,
    reading: OnceCell<Result<Cow<'f, [u8]>, Stop>>,
    /// The user, once a rule has asked; why the judgement can't go on where nobody may ask without a login.
    user: OnceCell<Result<Option<Arc<User>>, Stop>>,
    /// The user by the login that a rule requires, who goes before the other one.
    required: OnceCell<Arc<User>>,
    /// Why a user is not known whom a text or a rule has asked for. It ends the judgement.
    refused: RefCell<Option<Refused>>,
    /// A list could not be asked.
    unlisted: Cell<Option<Stop>>,
    /// Why the rule holds that was asked about last: a refusal has it in its page and in its note.
    cited: RefCell<Option<(*const Rule, String)>>,
}

/// The word of answers by rules, for the log and `Cache-Status`.
pub(super) const BY_RULE: &str = "rule";

/// Whether there are rules.
pub(super) fn is_asked(facts: &Facts<'_>) -> bool {
    !facts.config().rule_table.table.is_empty()
}

/// Judges a request for this URL by the table; a CONNECT has no path. `Err` has the answer, which no origin gives.
pub(super) fn judge(facts: &Facts<'_>, url: &Url, is_connect: bool) -> Result<Option<ByTable>, Refused> {
    judge_changing(facts, (url, is_connect), &|| facts.fields().clone())
}

/// [`judge`], where rules change the fields that `fields` gives: those that an origin would get without them.
pub(super) fn judge_changing(
    facts: &Facts<'_>,
    (url, is_connect): (&Url, bool),
    fields: &dyn Fn() -> Fields,
) -> Result<Option<ByTable>, Refused> {
    let table = &facts.config().rule_table;
    if table.table.is_empty() {
        return Ok(None);
    }
    let subject = Subject::new(facts, url, is_connect, &facts.found().is_counted);
    let matched = subject.matched(table)?;
    facts.note_matched(&matched);
    let closed = subject.closed(table, &matched)?;
    let countries = CountriesInForce(facts.countries().filter(|_| table.closes_countries).cloned());
    if countries.0.is_some() {
        facts.note_slots(Slots::default().with(Slot::COUNTRY));
    }
    if matched.is_empty() && closed.is_none() && countries.0.is_none() {
        return Ok(None);
    }
    let people = subject.verdict(table, &matched, |_| true)?;
    let note = || subject.note_of_refusal(table, &matched);
    let by_table = subject.effects((table, fields), matched.clone(), url);
    let limits = subject.limits(table, &matched);
    subject.check_refused(note)?;
    let by_table = by_table.map_err(|page| page.by_rule(note()))?;
    let reach = ReachByRule { closed, countries, ..by_table.reach };
    Ok(Some(ByTable { people, limits, reach, ..by_table }))
}

/// Judges whether a request may go to this URL of another origin, which a hook has chosen: nothing is let through by a hook that a rule
/// refuses to clients. Verdicts and rates count there. All else that rules do, they do to the request as its client sent it.
pub(super) fn judge_elsewhere(facts: &Facts<'_>, url: &Url) -> Result<Option<Box<ByPeople>>, Refused> {
    let table = &facts.config().rule_table;
    if table.table.is_empty() {
        return Ok(None);
    }
    let subject = Subject::new(facts, url, false, &facts.found().is_counted_elsewhere);
    let matched = subject.matched(table)?;
    subject.verdict(table, &matched, |number| !facts.has_matched(number))
}

/// The page for a request that the table could not judge.
fn stopped(stop: Stop) -> Page {
    match stop {
        Stop::AmbiguousPath => ambiguous(),
        Stop::LongPath => {
            let what = "The path is longer than the rules of this cache look at.";
            Page::new(414, "long-path", what, "Ask for a shorter path.")
        }
        Stop::NeedsUser | Stop::NeedsDestination => super::pages::undecided(),
    }
}

/// A text with its encodings undone once.
fn unescaped(text: &str) -> String {
    String::from_utf8_lossy(&escape::decode(text.as_bytes())).into_owned()
}

/// A rule's text does not become what it should be: that is the operator's mistake, and no reason to go on without the rule.
fn wrong(rule: &Rule, what: &str) -> Page {
    Page::new(
        500,
        "rule-text",
        format!("A rule of this cache {what}: {rule}."),
        "Tell the administrator of this cache.",
    )
}

impl<'f, 'a> Subject<'f, 'a> {
    fn new(facts: &'f Facts<'a>, url: &'f Url, is_connect: bool, counted: &'f Cell<bool>) -> Subject<'f, 'a> {
        Subject {
            facts,
            scheme: url.scheme,
            host: &url.host,
            port: url.port,
            target: (!is_connect).then_some(&*url.path),
            counted,
            reading: OnceCell::new(),
            user: OnceCell::new(),
            required: OnceCell::new(),
            refused: RefCell::default(),
            unlisted: Cell::new(None),
            cited: RefCell::default(),
        }
    }

    /// The rules that hold.
    fn matched(&self, table: &RuleTable) -> Result<Matched, Refused> {
        let matched = table.table.judge(self).map_err(|stop| self.refused(stop))?;
        match self.unlisted.take() {
            Some(stop) => Err(self.refused(stop)),
            None => Ok(matched),
        }
    }

    /// Path and query without the encodings that readers undo; `None` where there are none. `Err`: readers disagree about the path.
    fn target_as_read(&self) -> Result<Option<String>, Stop> {
        let Some(target) = self.target else { return Ok(None) };
        let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
        if reading::is_plain(path) && !query.contains('%') {
            return Ok(None);
        }
        let path = larder_rules::Facts::path(self)?.unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(path).into_owned() + &unescaped(query)))
    }

    /// The destinations that are closed to the request: those of rules that deny them, and hold but for the address.
    fn closed(&self, table: &RuleTable, matched: &Matched) -> Result<Option<Arc<[Arc<ClosedDestinations>]>>, Refused> {
        if !table.closes_any {
            return Ok(None);
        }
        let rules = table.table.by_destination(self, matched).map_err(|stop| self.refused(stop))?;
        let closed = rules.into_iter().filter_map(|number| table.closed.get(usize::from(number))?.clone());
        let closed: Vec<_> = closed.collect();
        Ok((!closed.is_empty()).then(|| closed.into()))
    }

    /// Counts the request by those of these rules that `counts` permits, and does what the last one says; gives who has to be logged in.
    fn verdict(
        &self,
        table: &RuleTable,
        matched: &Matched,
        counts: impl Fn(u16) -> bool,
    ) -> Result<Option<Box<ByPeople>>, Refused> {
        let note = || self.note_of_refusal(table, matched);
        let counting = || matched.iter().filter(|number| counts(*number)).filter_map(|number| table.table.rule(number));
        let counts_users = |rule: &Rule| rule.does.rate.is_some_and(|limit| limit.by == RateBy::User);
        if counting().any(counts_users)
            && let Err(stop) = self.logged_in()
        {
            // Before any rule counts: the request is judged again once its user is known.
            return Err(self.refused(stop));
        }
        for rule in counting() {
            if let Some(page) = self.count(rule) {
                return Err(self.with_user(page).by_rule(note()).into());
            }
        }
        // The request may be judged again, with one more fact.
        self.counted.set(true);
        let Some(rule) = matched.end().and_then(|number| table.table.rule(number)) else { return Ok(None) };
        if let Some(Verdict::Login(name)) = &rule.does.verdict {
            let by_rule = self.log_in(name, note)?;
            if let Some(user) = &by_rule.user {
                let _ = self.required.set(Arc::clone(user));
            }
            return Ok(Some(Box::new(by_rule)));
        }
        let answer = self.answer(rule);
        self.check_refused(note)?;
        match answer? {
            Some(page) => {
                let has_rate =
                    matched.iter().filter_map(|number| table.table.rule(number)).any(|it| it.does.rate.is_some());
                let is_repeatable = page.is_repeatable && !has_rate;
                let mut rules = matched.iter().filter_map(|number| table.table.rule(number));
                let cites_entry = is_repeatable && rules.any(|rule| !rule.lists_that_cover(self).is_empty());
                Err(Page { is_repeatable, cites_entry, ..self.with_user(page).by_rule(note()) }.into())
            }
            None => Ok(None),
        }
    }

    /// The rules that hold, for a request that goes no further by them: with the entries of lists by which they do.
    fn note_of_refusal(&self, table: &RuleTable, matched: &Matched) -> Arc<RuleNote> {
        let rules = matched.iter().filter_map(|number| table.table.rule(number));
        Arc::new(RuleNote::with(rules, |rule| self.because(rule)))
    }

    /// The entries of lists by which a rule holds, to be written behind its name; empty where it asks no list.
    fn because(&self, rule: &Rule) -> String {
        if let Some((_, text)) = self.cited.borrow().as_ref().filter(|(of, _)| std::ptr::eq(*of, rule)) {
            return text.clone();
        }
        let lists = rule.lists_that_cover(self);
        let cited = lists.into_iter().filter_map(|list| self.facts.cite_list(list, self.of_lists()));
        let text = cited.fold(String::new(), |text, cited| text + ", " + &cited);
        *self.cited.borrow_mut() = Some((rule, text.clone()));
        text
    }

    /// The question to lists. A CONNECT has no URL.
    fn of_lists(&self) -> larder_lists::Subject<'f> {
        let host = self.host.as_str();
        match self.target {
            Some(path) => self.url_of_lists(path),
            None => larder_lists::Subject::Host(host),
        }
    }

    /// The question about the URL of this host with another path and query.
    fn url_of_lists<'s>(&self, path: &'s str) -> larder_lists::Subject<'s>
    where
        'f: 's,
    {
        larder_lists::Subject::Url { scheme: self.scheme.as_str(), host: self.host.as_str(), path }
    }

    /// The page, with the user whom a rule has asked for.
    fn with_user(&self, page: Page) -> Page {
        let asked = || self.user.get().and_then(|user| user.as_ref().ok()?.as_ref());
        match self.required.get().or_else(asked) {
            Some(user) => page.for_user(&user.name),
            None => page,
        }
    }

    fn path(&self) -> &'f str {
        self.target.map_or("", |target| target.split('?').next().unwrap_or_default())
    }

    /// The answer to a request that could not be judged.
    fn refused(&self, stop: Stop) -> Refused {
        self.refused.take().unwrap_or_else(|| stopped(stop).into())
    }

    /// The user by the login that a rule requires.
    fn log_in(&self, name: &str, note: impl Fn() -> Arc<RuleNote>) -> Result<ByPeople, Refused> {
        gate::required_by_rule(self.facts, name).map_err(|refused| refused.by_rule(note))
    }

    /// A text that names the user has no meaning without the login that it asks for.
    fn check_refused(&self, note: impl Fn() -> Arc<RuleNote>) -> Result<(), Refused> {
        self.refused.take().map_or(Ok(()), |refused| Err(refused.by_rule(note)))
    }

    /// The user for texts: the one whom a rule requires, or the one who asks.
    fn user_of_texts(&self) -> Option<&Arc<User>> {
        self.required.get().or_else(|| self.logged_in().ok().flatten())
    }

    /// The user who asks; a login is asked for where one counts.
    fn logged_in(&self) -> Result<Option<&Arc<User>>, Stop> {
        let find = || {
            gate::user_of_rules(self.facts).map_err(|refused| {
                self.refused.replace(Some(refused));
                Stop::NeedsUser
            })
        };
        match self.user.get_or_init(find) {
            Ok(user) => Ok(user.as_ref()),
            Err(stop) => Err(*stop),
        }
    }

    /// The limits of bandwidth that the rules name, each once.
    fn limits(&self, table: &RuleTable, matched: &Matched) -> Option<Rc<[Limited]>> {
        let named = matched.iter().filter_map(|number| table.bandwidths.get(usize::from(number))).flatten();
        let mut limits: Vec<Limited> = Vec::new();
        for limit in named {
            if limits.iter().all(|known| known.limit.name != limit.name) {
                let user = if limit.by == BandwidthBy::User { self.user_of_texts() } else { None };
                let key = limit.by.key(self.facts.client(), user.map(|user| &*user.name));
                limits.push(Limited { limit: Arc::clone(limit), key });
            }
        }
        (!limits.is_empty()).then(|| limits.into())
    }

    /// Counts the request, where the rule has a rate; the page where it came too soon.
    fn count(&self, rule: &Rule) -> Option<Page> {
        let (limit, rates) = (rule.does.rate.as_ref()?, self.facts.rates().filter(|_| !self.counted.get())?);
        let client = client_key(self.facts.client());
        let key: &[u8] = match limit.by {
            RateBy::Client => &client,
            // Nobody else is asked for a login by that.
            RateBy::User => self.logged_in().ok().flatten().map_or(&client[..], |user| user.name.as_bytes()),
            RateBy::Host => self.host.as_str().as_bytes(),
            RateBy::All => b"",
        };
        let seconds = rates.count(limit, (&rule.place.0, key), clock::instant()).err()?;
        let because = self.because(rule);
        let what = format!("There were more requests than a rule of this cache permits ({limit}): {rule}{because}.");
        Some(Page::new(429, "rate", what, "Ask again later.").with("Retry-After", seconds.to_string()))
    }

    /// The answer of a rule with a verdict; `None` where the request goes on.
    fn answer(&self, rule: &Rule) -> Result<Option<Page>, Page> {
        Ok(match &rule.does.verdict {
            None | Some(Verdict::Allow | Verdict::Login(_)) => None,
            Some(Verdict::Deny { status, page }) => Some(self.denial(rule, *status, page.as_ref())),
            Some(Verdict::Redirect { status, to }) => {
                let url = self.fill(rule, to, |text, out| out.push_str(text));
                let is_url = Url::parse(&url).is_some() || (url.starts_with('/') && !url.starts_with("//"));
                // Browsers take a `\` for a `/`: `/\other.test` is another host to them.
                let is_clean = url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
                if !is_url || !is_clean {
                    return Err(wrong(rule, "sends clients to a place that is no URL"));
                }
                let because = self.because(rule);
                let what = format!("A rule of this cache sends this request elsewhere: {rule}{because}.");
                Some(Page::new(*status, BY_RULE, what, "Follow the field Location.").with("Location", url))
            }
        })
    }

    fn denial(&self, rule: &Rule, status: u16, page: Option<&Template>) -> Page {
        let because = self.because(rule);
        let what = format!("This request is refused by a rule of this cache: {rule}{because}.");
        let plain = Page::new(status, BY_RULE, what, "Ask the administrator of this cache.");
        // A refusal of programs has the URL in it.
        let is_repeatable = !self.wants_json() && page.is_none_or(Template::is_repeatable);
        let plain = Page { is_repeatable, ..plain };
        let (kind, body) = if self.wants_json() {
            let url = self.value(rule, Placeholder::Url);
            let text = format!(
                "{{\"status\":{status},\"error\":\"rule\",\"rule\":{},\"url\":{},\"request\":\"{}\"}}\n",
                json_text(&format!("{rule}{because}")),
                json_text(&url),
                page::REQUEST
            );
            ("application/json", text)
        } else {
            let Some(page) = page else { return plain };
            ("text/html; charset=utf-8", self.fill(rule, page, page::escape))
        };
        let fields =
            [("content-type", kind), ("cache-control", "no-store"), ("content-security-policy", CONTENT_POLICY)];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).into();
        Page { script: Some(Box::new(ScriptPage { fields, body: body.into_bytes() })), ..plain }
    }

    /// Whether the client is a program that reads JSON and no pages.
    fn wants_json(&self) -> bool {
        let has = |wanted: &[u8]| {
            self.facts
                .members("Accept")
                .any(|member| member.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted)))
        };
        has(b"application/json") && !has(b"text/html")
    }

    /// The request with the effects of the rules that hold.
    fn effects(
        &self,
        (table, fields): (&RuleTable, &dyn Fn() -> Fields),
        matched: Matched,
        url: &Url,
    ) -> Result<ByTable, Page> {
        let names_user = |rule: &Rule| rule.does.key.iter().any(|key| key.names(Placeholder::User));
        let has_key_of_user = matched.iter().filter_map(|number| table.table.rule(number)).any(names_user);
        let last = matched.iter().next_back().and_then(|number| table.table.rule(number));
        let fill = |rule: &Rule, template: &Template| self.fill(rule, template, |text, out| out.push_str(text));
        let mut rewritten: Option<Url> = None;
        for rule in matched.iter().filter_map(|number| table.table.rule(number)) {
            let does = &rule.does;
            if does.rewrite_path.is_none() && does.rewrite_query.is_none() && does.rewrite_host.is_none() {
                continue;
            }
            if self.target.is_none() {
                continue;
            }
            if does.rewrite_host.is_some() && self.facts.inside().is_some() {
                return Err(wrong(
                    rule,
                    "changes the host of a request in an opened tunnel, whose certificate is for its own host",
                ));
            }
            let from = rewritten.as_ref().unwrap_or(url);
            let (path, query) =
                from.path.split_once('?').map_or((&*from.path, None), |(path, query)| (path, Some(query)));
            let path = does.rewrite_path.as_ref().map_or(path.to_owned(), |path| fill(rule, path));
            let query = match &does.rewrite_query {
                Some(query) => Some(fill(rule, query)).filter(|query| !query.is_empty()),
                None => query.map(str::to_owned),
            };
            let host = does.rewrite_host.as_ref().map_or_else(|| from.authority(), |host| fill(rule, host));
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            let text = format!("{}://{host}{path}{query}", from.scheme.as_str());
            let is_path = path.starts_with('/') && !path.contains('?') && !host.contains(['/', '?', '@']);
            match Url::parse(&text).filter(|_| is_path) {
                Some(url) => rewritten = Some(url),
                None => return Err(wrong(rule, "makes a URL of this one that is none")),
            }
        }
        let mut by_table = combined(self.facts, (table, fields), matched, &fill).map_err(|what| match last {
            Some(rule) => wrong(rule, &format!("can't be followed: {what}")),
            None => super::pages::undecided(),
        })?;
        by_table.client_url = rewritten;
        if has_key_of_user && self.user_of_texts().is_none() {
            // All without a name would share one key.
            let effects = RequestEffects { passes: true, ..(*by_table.effects).clone() };
            by_table.effects = Rc::new(effects);
        }
        Ok(by_table)
    }

    fn fill(&self, rule: &Rule, template: &Template, escape: impl Fn(&str, &mut String)) -> String {
        template.fill(|value, out| escape(&self.value(rule, value), out))
    }

    fn value(&self, rule: &Rule, value: Placeholder) -> String {
        let mut text = String::new();
        let target = self.target.unwrap_or_default();
        match value {
            Placeholder::Client => _ = write!(text, "{}", ShownAddress(self.facts.client())),
            Placeholder::Host => text.push_str(self.host.as_str()),
            Placeholder::Path => text.push_str(self.path()),
            Placeholder::Port => _ = write!(text, "{}", self.port),
            Placeholder::Query => text.push_str(target.get(self.path().len()..).unwrap_or_default()),
            // The number of the request is known when its answer goes out.
            Placeholder::Request => text.push_str(page::REQUEST),
            Placeholder::Rule => _ = write!(text, "{rule}"),
            Placeholder::Scheme => text.push_str(self.scheme.as_str()),
            Placeholder::Url => {
                let path = if target.is_empty() { "/" } else { target };
                let url = Url { scheme: self.scheme, host: self.host.clone(), port: self.port, path: path.into() };
                url.write_to(&mut text);
            }
            Placeholder::User => {
                text.push_str(self.user_of_texts().map_or("", |user| &user.name));
            }
            Placeholder::Group(number) => {
                let read = larder_rules::Facts::path(self).ok().flatten().unwrap_or_default();
                let (read, sent) = (group_of(rule, read, number), group_of(rule, self.path().as_bytes(), number));
                // The rule holds by the path as it is read. The client's own spelling stays where it means the same.
                match means(sent, read) {
                    true => write_group(sent, |byte| byte.is_ascii_graphic(), &mut text),
                    false => write_group(read, is_plain, &mut text),
                }
            }
        }
        text
    }
}

/// Puts the effects of these rules together. `fill` fills the placeholders of a rule's text; `Err` says in words what can't be done.
fn combined(
    facts: &Facts<'_>,
    (table, fields_now): (&RuleTable, &dyn Fn() -> Fields),
    matched: Matched,
    fill: &dyn Fn(&Rule, &Template) -> String,
) -> Result<ByTable, &'static str> {
    let rules = || matched.iter().filter_map(|number| table.table.rule(number));
    let note = Arc::new(RuleNote::of(rules()));
    let mut effects = RequestEffects::default();
    let (mut answer, mut storing, mut fields) = (AnswerChanges::default(), Storing::default(), None);
    let mut origin = None;
    for (number, rule) in matched.iter().filter_map(|number| Some((number, table.table.rule(number)?))) {
        let does = &rule.does;
        effects.passes |= does.never;
        effects.key.extend(does.key.iter().map(|part| fill(rule, part)));
        if !does.request.is_empty() {
            let fields = fields.get_or_insert_with(fields_now);
            change_request(&does.request, fields, &mut effects, |value| fill(rule, value));
        }
        change_answer(&does.answer, &mut answer, |value| fill(rule, value));
        if let Some(Some(to)) = table.routes.get(usize::from(number)).filter(|_| does.route.is_some()) {
            effects.route.clone_from(&does.route.as_deref().map(str::to_owned));
            origin = Some(Arc::clone(to));
        }
        storing.add(does);
    }
    let key = match effects.is_nothing() {
        true => Vec::new(),
        false => facts.key_of_effects(&effects).ok_or("the store's secret for keys can't be read")?,
    };
    // The length tells where parts by hooks begin: no part by rules is taken for one of these, and none of these for one by rules.
    let key = if key.is_empty() { key } else { [format!("rules {} ", key.len()).as_bytes(), &key[..]].concat() };
    let is_of_one_request = rules().any(|rule| rule.does.is_of_one_request());
    Ok(ByTable {
        note,
        effects: Rc::new(effects),
        key: key.into(),
        client_url: None,
        origin,
        unrouted: None,
        answer: (answer != AnswerChanges::default()).then(|| Rc::new(answer)),
        storing: (storing != Storing::default()).then(|| Rc::new(storing)),
        priority: rules().filter_map(|rule| rule.does.priority).next_back().unwrap_or_default(),
        people: None,
        limits: None,
        reach: ReachByRule { hops: hops_by(table, &matched), ..ReachByRule::default() },
        is_of_one_request,
    })
}

/// Through whom the origin is asked, by all of these rules together.
fn hops_by(table: &RuleTable, matched: &Matched) -> Option<Arc<HopsByRule>> {
    let mut chosen = matched.iter().filter_map(|number| table.hops.get(usize::from(number))?.as_ref());
    let first = chosen.next().map(Arc::clone)?;
    Some(chosen.fold(first, |before, later| Arc::new(before.and(later))))
}

/// A group of the first `path_regex` of the rule that holds for this path; empty where there is none.
fn group_of<'p>(rule: &Rule, path: &'p [u8], number: u8) -> &'p [u8] {
    let groups = rule.when.path_regex.iter().find_map(|regex| regex.groups(path)).unwrap_or_default();
    groups.get(usize::from(number)).copied().unwrap_or_default()
}

/// Whether a part of a path as it was sent is read as this part.
fn means(sent: &[u8], read: &[u8]) -> bool {
    let bare =
        |part: &[u8]| part.iter().position(|byte| *byte != b'/').and_then(|at| part.get(at..)).map(<[u8]>::to_vec);
    let is_read = || {
        let path = format!("/{}", std::str::from_utf8(sent).ok()?);
        match Reading::of(&path) {
            Reading::Path(path) => Some(bare(&path) == bare(read)),
            Reading::Climbs | Reading::Unreadable => None,
        }
    };
    sent == read || is_read().unwrap_or(false)
}

/// Whether a byte of a path that was read means nothing else in a URL.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/')
}

/// Writes a part of a path, with other bytes encoded.
fn write_group(part: &[u8], is_kept: impl Fn(u8) -> bool, out: &mut String) {
    for byte in part {
        match byte {
            byte if is_kept(*byte) => out.push(char::from(*byte)),
            byte => _ = write!(out, "%{byte:02X}"),
        }
    }
}

/// Changes a copy of the request's fields, and notes what became of the fields that a rule names.
fn change_request(
    changes: &FieldChanges,
    fields: &mut Fields,
    effects: &mut RequestEffects,
    fill: impl Fn(&Template) -> String,
) {
    for name in changes.remove.iter().chain(changes.set.iter().map(|(name, _)| name)) {
        fields.remove(name);
    }
    for (name, value) in changes.set.iter().chain(&changes.add) {
        fields.push(name, fill(value));
    }
    let named = changes.remove.iter().chain(changes.set.iter().chain(&changes.add).map(|(name, _)| name));
    for name in named.map(|name| name.to_ascii_lowercase()) {
        effects.remove.retain(|known| *known != name);
        effects.set.retain(|(known, _)| *known != name);
        let lines: Vec<(String, Vec<u8>)> = fields.get_all(&name).map(|line| (name.clone(), line.to_vec())).collect();
        match lines.is_empty() {
            true => effects.remove.push(name),
            false => effects.set.extend(lines),
        }
    }
}

fn change_answer(changes: &FieldChanges, answer: &mut AnswerChanges, fill: impl Fn(&Template) -> String) {
    for name in changes.remove.iter().chain(changes.set.iter().map(|(name, _)| name)) {
        answer.set.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        answer.add.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }
    answer.remove.extend(changes.remove.iter().cloned());
    answer.set.extend(changes.set.iter().map(|(name, value)| (name.clone(), fill(value))));
    answer.add.extend(changes.add.iter().map(|(name, value)| (name.clone(), fill(value))));
}

/// Pages of refusals run no scripts and load nothing.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

fn json_text(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

impl larder_rules::Facts for Subject<'_, '_> {
    fn method(&self) -> &Method {
        self.facts.method()
    }

    fn scheme(&self) -> Scheme {
        self.scheme
    }

    fn listener(&self) -> SocketAddr {
        self.facts.listener().unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn host(&self) -> &Host {
        self.host
    }

    fn client(&self) -> IpAddr {
        self.facts.client()
    }

    fn minute(&self) -> i64 {
        self.facts.minute()
    }

    fn sni(&self) -> Option<&str> {
        self.facts.sni().map(Host::as_str)
    }

    fn each_certificate_name(&self, each: &mut dyn FnMut(&str)) {
        self.facts.certificate().iter().flat_map(|certificate| certificate.names()).for_each(|name| each(name));
    }

    fn each_line(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.facts.fields().get_all(name).for_each(each);
    }

    fn path(&self) -> Result<Option<&[u8]>, Stop> {
        let Some(_) = self.target else { return Ok(None) };
        let path = Subject::path(self);
        let read = || match Reading::of(path) {
            _ if path.len() > larder_rules::facts::PATH_BYTES_MAX => Err(Stop::LongPath),
            Reading::Path(path) => Ok(path),
            Reading::Climbs | Reading::Unreadable => Err(Stop::AmbiguousPath),
        };
        match self.reading.get_or_init(read) {
            Ok(path) => Ok(Some(path)),
            Err(stop) => Err(*stop),
        }
    }

    fn sent_path(&self) -> Result<Option<&str>, Stop> {
        let Some(_) = self.target else { return Ok(None) };
        let path = Subject::path(self);
        match path.len() > larder_rules::facts::PATH_BYTES_MAX {
            true => Err(Stop::LongPath),
            false => Ok(Some(path)),
        }
    }

    fn query(&self) -> Option<&str> {
        self.target?.split_once('?').map(|(_, query)| query)
    }

    /// Asked by the spelling of the client, by that with its encodings undone once, and by that of a reader who undoes all that anybody
    /// undoes, and who leaves parameters of the path out.
    fn in_list(&self, name: &str) -> bool {
        if !self.facts.list_asks_path(name) {
            return self.facts.in_list(name, self.of_lists());
        }
        match self.target_as_read() {
            Ok(read) => {
                let is_covered = |target: &str| self.facts.in_list(name, self.url_of_lists(target));
                self.facts.in_list(name, self.of_lists())
                    || read.is_some_and(|read| {
                        is_covered(&read) || is_covered(&unescaped(self.target.unwrap_or_default()))
                    })
            }
            Err(stop) => {
                self.unlisted.set(Some(stop));
                false
            }
        }
    }

    fn country(&self) -> Option<[u8; 2]> {
        self.facts.country()
    }

    fn country_of(&self, address: IpAddr) -> Option<[u8; 2]> {
        Some(self.facts.countries()?.of(address))
    }

    fn user(&self) -> Result<Option<&str>, Stop> {
        Ok(self.logged_in()?.map(|user| &*user.name))
    }

    fn each_group(&self, each: &mut dyn FnMut(&str)) -> Result<(), Stop> {
        if let Some(user) = self.logged_in()? {
            user.groups.iter().for_each(|group| each(group));
        }
        Ok(())
    }

    /// A name has addresses when it is connected to, and each is judged then ([`Subject::closed`]).
    fn each_destination(&self, each: &mut dyn FnMut(IpAddr)) -> Result<(), Stop> {
        reach::each_literal(self.host, each);
        Ok(())
    }

    fn depends_on(&self, slots: Slots) {
        self.facts.note_slots(slots);
    }
}

#[cfg(test)]
mod tests;
