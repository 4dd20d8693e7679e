//! Memos of judgements: a verdict, and the facts that must be the same for it to hold for a later request.

use super::facts::{Fact, FactsRead, LOGIN_PATHS};
use super::{Ask, Rule};
use crate::clock;
use crate::env::{Env, PeerFacts};
use crate::hook::{HookContext, HookedVerdict, HooksRead, VERDICT_KEY_BYTES_MAX};
use crate::listener::Listener;
use crate::manager;
use crate::page::Page;
use crate::people::{ClientCertificate, User};
use crate::record::Record;
use larder_cache::policy::Asked;
use larder_rules::Matched;
use larder_rules::facts::{Slot, Slots};
use larder_rules::rule::RuleNote;
use larder_wire::{Host, Method, RequestHead, Scheme, Target, reading};
use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The facts that the verdict on an earlier plain GET depended on. They hold for a request for which every one of them is the same; then no
/// URL is made and no rule is asked. They are those that the rules read, so a new rule that reads a further field narrows the memo by itself.
pub(super) struct FactsMemo {
    // Compared in any case.
    listener: Arc<Listener>,
    scheme: Scheme,
    inside: Option<Box<(Host, u16)>>,
    /// The user who opened the tunnel.
    tunnel_user: Option<Arc<User>>,
    /// The certificate of the client.
    certificate: Option<Arc<ClientCertificate>>,
    edition: u64,
    /// Scheme, host and port of a target in absolute form.
    absolute: Option<(Scheme, Host, u16)>,
    // Compared where they were read.
    client: Option<IpAddr>,
    own_addresses: Option<u64>,
    /// The path was seen to be none of the cache manager's.
    not_manager: bool,
    /// The path was seen to be none of a login page.
    not_login: bool,
    /// The path was seen not to climb; a plain one never does.
    plain_path: bool,
    /// The target was seen to have no query.
    no_query: bool,
    /// The time that rules read, in minutes since 1970.
    minute: Option<i64>,
    /// The name for which the client's TLS asked, where rules read it.
    sni: Option<Option<Box<Host>>>,
    /// The edition of the lists and countries that rules read.
    lists: Option<u64>,
    /// Where rules read the path: the number of all facts beside it, and the rules that hold.
    by_path: Option<(u64, Matched)>,
    fields: Box<[FieldRead]>,
    /// The logins that the verdict depended on.
    login: Option<LoginMemo>,
}

/// The verdict on an earlier plain GET that was allowed.
pub struct JudgeMemo {
    facts: FactsMemo,
    rule: Rule,
    /// The rules of the table that hold.
    note: Option<Arc<RuleNote>>,
    asked: Asked,
    /// The user for whom the request is served.
    user: Option<Arc<User>>,
    /// The URL up to its path.
    url_start: Box<str>,
    /// The key up to the path.
    key_start: Box<[u8]>,
    /// Where hooks had a say, the facts under which their verdicts are remembered by path.
    hooked: Option<HookContext>,
}

/// The refusal of an earlier plain GET by rules of the table, with a page that says nothing of that one request.
pub struct RefusalMemo {
    facts: FactsMemo,
    page: Rc<Page>,
    /// The only path that the page is for, where it names the entry of a list that covers it.
    only_path: Option<Box<str>>,
}

/// Logins that a verdict depended on: until when they count, and by which edition of what is known of people. Groups that a helper
/// names change without an edition, so the users count with them.
struct LoginMemo {
    until: Instant,
    edition: u64,
    sessions_ended: u64,
    /// All whom the verdict depended on.
    users: Box<[Arc<User>]>,
}

impl FactsMemo {
    /// The facts that were read of a plain GET; `None` where they can't be compared with those of another request.
    fn of(env: &Env, (peer, request): (&PeerFacts, &RequestHead), read: &FactsRead) -> Option<FactsMemo> {
        if request.method != Method::Get || !may_hold_again(read) || env.edition() != read.editions.settings {
            return None;
        }
        Some(FactsMemo {
            listener: Arc::clone(&peer.listener),
            scheme: peer.scheme,
            inside: peer.inside.clone(),
            tunnel_user: peer.tunnel_user().map(Arc::clone),
            certificate: peer.certificate.clone(),
            sni: read.slots.has(Slot::SNI).then(|| peer.sni.clone()),
            // The edition that the request was judged by: a reload may have come since then.
            edition: read.editions.settings,
            absolute: match &request.target {
                Target::Absolute(url) => Some((url.scheme, url.host.clone(), url.port)),
                _ => None,
            },
            client: (read.has(Fact::Client) || read.slots.meets(Slots::OF_CLIENT) || read.hooks.is_some())
                .then(|| peer.address.ip()),
            own_addresses: read.has(Fact::OwnAddresses).then_some(read.editions.own_addresses),
            not_manager: read.has(Fact::IsManagerPath),
            not_login: read.has(Fact::IsLoginPath),
            plain_path: read.has(Fact::PathClimbs),
            no_query: read.has(Fact::HasQuery),
            minute: read.slots.has(Slot::TIME).then(|| read.minute.unwrap_or_else(clock::minute)),
            lists: read.slots.meets(Slots::OF_LISTS).then_some(read.editions.lists),
            by_path: None,
            fields: fields_read(env, request, read)?,
            login: read.until.map(|until| LoginMemo {
                until,
                edition: read.editions.people,
                sessions_ended: read.editions.sessions_ended,
                users: read.users.as_slice().into(),
            }),
        })
    }

    /// Remembers the rules that hold for this path, where they read it. `verdict` tells facts of one kind of verdict from those of another.
    fn remember_rules(&mut self, env: &Env, path: &str, read: &FactsRead, verdict: impl Hash) {
        if read.slots.meets(Slots::OF_PATH) {
            let context = self.context(&env.rule_contexts, verdict);
            env.rule_paths.borrow_mut().remember_rules(context, path, &read.matched);
            self.by_path = Some((context, read.matched.clone()));
        }
    }

    /// A number for all facts beside the path: memos of different connections have the same one where all of these are the same.
    fn context(&self, hasher: &impl BuildHasher, verdict: impl Hash) -> u64 {
        let connection = (Arc::as_ptr(&self.listener).addr(), self.scheme, &self.inside, self.edition, &self.absolute);
        let tunnel_user = self.tunnel_user.as_ref().map(identity);
        let login =
            self.login.as_ref().map(|login| (login.users.iter().map(identity).collect::<Vec<_>>(), login.edition));
        let people = (tunnel_user, login, &self.certificate, &self.sni);
        let facts = (self.client, self.own_addresses, self.minute, self.lists, people, &self.fields);
        hasher.hash_one((
            connection,
            facts,
            verdict,
            (self.not_manager, self.not_login),
            self.plain_path,
            self.no_query,
        ))
    }

    /// Whether the same rules of the table hold for this path, as far as that is remembered.
    fn covers_rules(&self, env: &Env, path: &str) -> bool {
        self.minute.is_none_or(|minute| minute == clock::minute())
            && self.by_path.as_ref().is_none_or(|(context, matched)| {
                env.rule_paths.borrow().find(*context, path).is_some_and(|known| known == matched)
            })
    }

    /// Whether the fields that the verdict depended on are the same.
    fn covers_fields(&self, request: &RequestHead) -> bool {
        self.fields.iter().all(|(name, value)| only_line(request, name) == Some(value.as_deref()))
    }

    /// The path of a request whose fields are covered, where the verdict holds for it.
    fn path_of<'a>(&self, env: &Env, peer: &PeerFacts, request: &'a RequestHead) -> Option<&'a str> {
        let path = match (&request.target, &self.absolute) {
            (Target::Origin(path), None) => path,
            (Target::Absolute(url), Some((scheme, host, port)))
                if url.port == *port && url.host == *host && url.scheme == *scheme =>
            {
                &url.path
            }
            _ => return None,
        };
        let holds = request.method == Method::Get
            && self.edition == env.common.live.edition()
            && Arc::ptr_eq(&self.listener, &peer.listener)
            && self.scheme == peer.scheme
            && self.certificate == peer.certificate
            && self.sni.as_ref().is_none_or(|sni| *sni == peer.sni)
            && self.client.is_none_or(|client| client == peer.address.ip())
            && self.own_addresses.is_none_or(|edition| edition == env.common.own_addresses.edition())
            && self.lists.is_none_or(|edition| edition == env.common.lists.live().edition())
            && self.inside == peer.inside
            && self.tunnel_user.as_ref() == peer.tunnel_user()
            && self.login.as_ref().is_none_or(|login| login.holds(env))
            && self.covers_path(path)
            && self.covers_rules(env, path);
        holds.then_some(path)
    }

    /// Whether all facts that were read of the earlier path are the same for this path.
    fn covers_path(&self, path: &str) -> bool {
        path.starts_with('/')
            && !(self.not_manager && path.starts_with(manager::PREFIX))
            && !(self.not_login && path.starts_with(LOGIN_PATHS))
            && (!self.plain_path || reading::is_plain(path))
            && !(self.no_query && path.contains('?'))
    }
}

impl JudgeMemo {
    /// The memo of a plain GET that was allowed as `ask`, by the facts that were read; `None` where a request with
    /// another path could be judged otherwise.
    pub fn of(
        env: &Env,
        (peer, request): (&PeerFacts, &RequestHead),
        read: &FactsRead,
        ask: &Ask,
        asked: Asked,
    ) -> Option<JudgeMemo> {
        let client_url = ask.client_url();
        // A response that varies is chosen by fields as hooks have changed them.
        let is_of_one_request =
            ask.has_changed_fields() || ask.by_table.as_ref().is_some_and(|by_table| by_table.is_of_one_request);
        // Else rules were asked about another path than that by which the verdict is found.
        let is_found_by_path = client_url == &ask.url || !read.slots.meets(Slots::OF_PATH);
        if is_of_one_request || !is_found_by_path {
            return None;
        }
        let mut facts = FactsMemo::of(env, (peer, request), read)?;
        let mut start = String::new();
        client_url.write_to(&mut start);
        start.truncate(start.len() - client_url.path.len());
        let mut key_start = Vec::new();
        ask.begin_key(&mut key_start);
        key_start.extend_from_slice(start.as_bytes());
        facts.remember_rules(env, &ask.url.path, read, ask.rule);
        let mut memo = JudgeMemo {
            facts,
            rule: ask.rule,
            note: ask.by_table.as_ref().map(|by_table| Arc::clone(&by_table.note)),
            asked,
            user: ask.user().filter(|_| read.until.is_some() || peer.certificate.is_some()).map(Arc::clone),
            url_start: start.into(),
            key_start: key_start.into(),
            hooked: None,
        };
        if let Some(hooks) = &read.hooks {
            memo.hooked = Some(memo.remember_hooked(env, request, (hooks, ask, asked))?);
        }
        memo.facts.covers_path(&client_url.path).then_some(memo)
    }

    /// Notes the rules of the table that hold.
    pub fn note_rules(&self, record: &mut Record) {
        if let Some(note) = &self.note {
            record.note_rules(note);
        }
    }

    /// Remembers the verdict on a request that hooks let go on, by its path; `None` where its key is too long.
    fn remember_hooked(
        &self,
        env: &Env,
        request: &RequestHead,
        (read, ask, asked): (&HooksRead, &Ask, Asked),
    ) -> Option<HookContext> {
        let mut key = Vec::new();
        ask.key_at_first(&mut key);
        if key.len() > VERDICT_KEY_BYTES_MAX {
            return None;
        }
        let number = self.facts.context(&env.rule_contexts, self.rule);
        let context = HookContext::of(&env.rule_contexts, number, &request.fields);
        let (is_changed, note) = (ask.by_hook.is_some(), ask.hook_note.clone());
        let verdict = HookedVerdict { read: read.clone(), asked, key: key.into(), is_changed, note };
        env.hooked_paths.borrow_mut().remember(context.number, &ask.client_url().path, Rc::new(verdict));
        Some(context)
    }

    /// The verdict of hooks on a request for this path, whose other facts this memo covers; `None` where none have a say.
    pub fn hooked(&self, env: &Env, path: &str) -> Result<Option<Rc<HookedVerdict>>, NotRemembered> {
        let Some(context) = &self.hooked else { return Ok(None) };
        let known = env.hooked_paths.borrow();
        let verdict = known.find(context.number, path).filter(|verdict| verdict.holds());
        verdict.map(|verdict| Some(Rc::clone(verdict))).ok_or(NotRemembered)
    }

    /// Whether the fields that the verdict depended on are the same.
    pub fn covers_fields(&self, env: &Env, request: &RequestHead) -> bool {
        if let Some(context) = &self.hooked
            && !context.covers(&env.rule_contexts, &request.fields)
        {
            return false;
        }
        self.facts.covers_fields(request)
    }

    /// The path of a request whose fields are covered, where the verdict holds for it.
    pub fn path_of<'a>(&self, env: &Env, peer: &PeerFacts, request: &'a RequestHead) -> Option<&'a str> {
        self.facts.path_of(env, peer, request)
    }

    /// The user who has logged in.
    pub fn user(&self) -> Option<&Arc<str>> {
        self.user.as_ref().or(self.facts.tunnel_user.as_ref()).map(|user| &user.name)
    }

    /// The rule that allowed the request.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// The edition of the settings under which the request was judged.
    pub fn edition(&self) -> u64 {
        self.facts.edition
    }

    /// The request's cache directives.
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// Appends the URL with this path.
    pub fn write_url(&self, path: &str, out: &mut String) {
        out.reserve(self.url_start.len() + path.len());
        out.push_str(&self.url_start);
        out.push_str(path);
    }

    /// Appends the key of the URL with this path, with its whole query; `Cache::settle_key` then applies `No-Vary-Search`.
    pub fn write_key(&self, path: &str, out: &mut Vec<u8>) {
        out.reserve(self.key_start.len() + path.len());
        out.extend_from_slice(&self.key_start);
        out.extend_from_slice(path.as_bytes());
    }
}

impl RefusalMemo {
    /// The memo of a plain GET that was refused with this page; `None` where another request with the same facts could get another one.
    pub fn of(
        env: &Env,
        (peer, request): (&PeerFacts, &RequestHead),
        read: &FactsRead,
        page: &Page,
    ) -> Option<RefusalMemo> {
        if !page.is_repeatable {
            return None;
        }
        let mut facts = FactsMemo::of(env, (peer, request), read)?;
        let path = match &request.target {
            Target::Origin(path) => path,
            Target::Absolute(url) => &url.path,
            Target::Authority(..) | Target::Asterisk => return None,
        };
        facts.remember_rules(env, path, read, "refused");
        let only_path = page.cites_entry.then(|| Box::from(&**path));
        facts.covers_path(path).then(|| RefusalMemo { facts, page: Rc::new(page.clone().written()), only_path })
    }

    /// Whether the fields that the refusal depended on are the same.
    pub fn covers_fields(&self, request: &RequestHead) -> bool {
        self.facts.covers_fields(request)
    }

    /// The page for a request whose fields are covered, where it is refused too.
    pub fn page_for(&self, env: &Env, peer: &PeerFacts, request: &RequestHead) -> Option<&Rc<Page>> {
        let path = self.facts.path_of(env, peer, request)?;
        self.only_path.as_deref().is_none_or(|only| only == path).then_some(&self.page)
    }
}

impl LoginMemo {
    fn holds(&self, env: &Env) -> bool {
        let people = &env.common.people;
        self.edition == people.edition()
            && self.sessions_ended == people.sessions_ended()
            && clock::instant() < self.until
    }
}

/// All that rules may ask of a user.
fn identity(user: &Arc<User>) -> impl Hash + '_ {
    (&user.name, &user.groups, &user.login)
}

/// The verdict of hooks on a request is not known.
pub struct NotRemembered;

/// Whether a verdict that depended on these facts holds for another request with the same facts.
fn may_hold_again(read: &FactsRead) -> bool {
    // Hooks look at the path themselves; whoever else does so (helpers, logins with a proof for each request, store rules) may decide
    // otherwise about the next request that is the same.
    !read.slots.meets(Slots::WITHOUT_MEMO)
        && !read.has(Fact::Path)
        && (!read.has(Fact::ByHooks) || read.hooks.is_some())
}

/// The fields that were read, with their values; `None` where there are too many, or several lines of one.
fn fields_read(env: &Env, request: &RequestHead, read: &FactsRead) -> Option<Box<[FieldRead]>> {
    let config = env.config();
    let of_rules = config.rule_table.table.fields_of(read.slots).map(|name| Cow::Owned(name.to_owned()));
    let mut fields: Vec<FieldRead> = Vec::new();
    for name in read.fields()?.map(Cow::Borrowed).chain(of_rules) {
        let value = only_line(request, &name)?.map(Box::from);
        fields.push((name, value));
    }
    Some(fields.into())
}

/// A field that was read, and its only line, if it has one.
type FieldRead = (Cow<'static, str>, Option<Box<[u8]>>);

/// The value of a field, or that it is absent; `None` where the request has several lines of it.
fn only_line<'a>(request: &'a RequestHead, name: &'a str) -> Option<Option<&'a [u8]>> {
    let mut lines = request.fields.get_all(name);
    let first = lines.next();
    lines.next().is_none().then_some(first)
}
