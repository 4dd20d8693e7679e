//! Decisions of hooks that are remembered: under the values of all facts that the hooks have looked at, as `Vary` does it for
//! answers.

use super::frame::CallFacts;
use crate::mount::Hooks;
use larder_wire::Fields;
use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Decisions of one stage that are remembered at once, per worker; at the limit all are forgotten.
const DECISIONS_MAX: usize = 8_192;

/// Bytes of decisions of one stage that are remembered at once, per worker: an answer may be a part of one. At the limit all are
/// forgotten.
const DECISIONS_BYTES_MAX: usize = 16 << 20;

/// Longer values of facts are not remembered.
const VALUES_BYTES_MAX: usize = 2_048;

/// Generations of hooks of which decisions are remembered at once; at the limit all are forgotten.
const GENERATIONS_MAX: usize = 64;

/// Facts that one list of hooks may look at and still be remembered.
const FACTS_MAX: usize = 32;

/// The decisions of one stage that a worker remembers.
pub struct Memo<E> {
    generations: Vec<OfGeneration<E>>,
    decisions: usize,
    /// Bytes of all decisions that were kept since all were forgotten.
    bytes: usize,
    /// Room for the values of facts, used again by the next look.
    room: Cell<Vec<u8>>,
}

impl<E> Default for Memo<E> {
    fn default() -> Memo<E> {
        Memo { generations: Vec::new(), decisions: 0, bytes: 0, room: Cell::default() }
    }
}

/// The decisions of the hooks of one generation of processes; those of another one are not theirs.
struct OfGeneration<E> {
    hooks: Arc<Hooks>,
    by_called: HashMap<Box<[u16]>, OfList<E>>,
}

struct OfList<E> {
    /// All facts that the hooks of this list were ever seen to look at.
    facts: Vec<FactName>,
    by_values: HashMap<Box<[u8]>, (E, Instant)>,
}

/// A fact that a hook can look at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FactName {
    Method,
    Scheme,
    Host,
    Port,
    Path,
    Query,
    Client,
    Field(String),
    AllFields,
    Status,
    AnswerField(String),
    AllAnswerFields,
    Stale,
    Tags,
}

impl FactName {
    /// Reads its name; `None` for one that makes the decision one for this request alone.
    fn parse(text: &str) -> Option<FactName> {
        Some(match text {
            "method" => FactName::Method,
            "scheme" => FactName::Scheme,
            "host" => FactName::Host,
            "port" => FactName::Port,
            "path" => FactName::Path,
            "query" => FactName::Query,
            "client" => FactName::Client,
            "field:*" => FactName::AllFields,
            "status" => FactName::Status,
            "response:*" => FactName::AllAnswerFields,
            "found:stale" => FactName::Stale,
            "found:tags" => FactName::Tags,
            _ => match text.strip_prefix("response:") {
                Some(name) => FactName::AnswerField(name.to_ascii_lowercase()),
                None => FactName::Field(text.strip_prefix("field:")?.to_ascii_lowercase()),
            },
        })
    }

    fn push_value(&self, facts: &CallFacts<'_>, out: &mut Vec<u8>) {
        let mut push = |bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        let (path, query) = match facts.path_and_query.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (facts.path_and_query, None),
        };
        match self {
            FactName::Method => push(facts.method.as_bytes()),
            FactName::Scheme => push(facts.scheme.as_str().as_bytes()),
            FactName::Host => push(facts.host.as_bytes()),
            FactName::Port => push(&facts.port.to_le_bytes()),
            FactName::Path => push(path.as_bytes()),
            // No query and an empty one are two things.
            FactName::Query => {
                push(&[u8::from(query.is_some())]);
                push(query.unwrap_or_default().as_bytes());
            }
            FactName::Client => match facts.client.to_canonical() {
                IpAddr::V4(address) => push(&address.octets()),
                IpAddr::V6(address) => push(&address.octets()),
            },
            FactName::Field(name) => push_field(Some(facts.fields), name, push),
            FactName::AllFields => push_fields(Some(facts.fields), push),
            FactName::Status => push(&facts.answer.map_or(0, |(status, _)| status).to_le_bytes()),
            FactName::AnswerField(name) => push_field(facts.answer.map(|(_, fields)| fields), name, push),
            FactName::AllAnswerFields => push_fields(facts.answer.map(|(_, fields)| fields), push),
            FactName::Stale => push(&[facts.hit.is_some_and(|hit| hit.stale).into()]),
            FactName::Tags => {
                let tags = facts.hit.map_or(&[][..], |hit| &hit.tags);
                push(&(tags.len() as u32).to_le_bytes());
                tags.iter().for_each(|tag| push(tag.as_bytes()));
            }
        }
    }
}

fn push_field(fields: Option<&Fields>, name: &str, mut push: impl FnMut(&[u8])) {
    push(&(fields.map_or(0, |fields| fields.count(name)) as u32).to_le_bytes());
    fields.into_iter().flat_map(|fields| fields.get_all(name)).for_each(push);
}

fn push_fields(fields: Option<&Fields>, mut push: impl FnMut(&[u8])) {
    push(&(fields.map_or(0, Fields::len) as u32).to_le_bytes());
    for (name, value) in fields.into_iter().flat_map(Fields::iter) {
        push(name.to_ascii_lowercase().as_bytes());
        push(value);
    }
}

impl<E: Clone> Memo<E> {
    /// The decision of these hooks for a request with these facts, if it is remembered, and until when.
    pub fn find(
        &self,
        hooks: &Arc<Hooks>,
        facts: &CallFacts<'_>,
        now: impl FnOnce() -> Instant,
    ) -> Option<(E, Instant)> {
        let generation = self.generations.iter().find(|generation| Arc::ptr_eq(&generation.hooks, hooks))?;
        let list = generation.by_called.get(facts.hooks)?;
        let mut room = self.room.take();
        write_values(&list.facts, facts, &mut room);
        let found = list.by_values.get(room.as_slice());
        let found = found.filter(|(_, until)| now() < *until).map(|(effects, until)| (effects.clone(), *until));
        self.room.set(room);
        found
    }

    /// Remembers a decision of so many bytes that depended on the facts of these names.
    pub fn keep(
        &mut self,
        (hooks, facts): (&Arc<Hooks>, &CallFacts<'_>),
        read: &[String],
        (effects, bytes): (&E, usize),
        (now, time): (Instant, Duration),
    ) {
        let Some(names) = read.iter().map(|name| FactName::parse(name)).collect::<Option<Vec<_>>>() else { return };
        let mut at = self.generations.iter().position(|generation| Arc::ptr_eq(&generation.hooks, hooks));
        let is_one_more = at.is_none() && self.generations.len() >= GENERATIONS_MAX;
        if is_one_more || self.decisions >= DECISIONS_MAX || self.bytes + bytes > DECISIONS_BYTES_MAX {
            (*self, at) = (Memo::default(), None);
        }
        let at = at.unwrap_or_else(|| {
            self.generations.push(OfGeneration { hooks: Arc::clone(hooks), by_called: HashMap::new() });
            self.generations.len() - 1
        });
        let Some(generation) = self.generations.get_mut(at) else { return };
        let list = generation
            .by_called
            .entry(facts.hooks.into())
            .or_insert_with(|| OfList { facts: Vec::new(), by_values: HashMap::new() });
        // A decision that looked at less is right under the values of more facts too; those that are remembered under fewer
        // are forgotten.
        for name in names {
            if !list.facts.contains(&name) {
                list.facts.push(name);
                self.decisions -= list.by_values.len();
                list.by_values.clear();
            }
        }
        if list.facts.len() > FACTS_MAX {
            return;
        }
        let mut values = Vec::new();
        write_values(&list.facts, facts, &mut values);
        if values.len() > VALUES_BYTES_MAX {
            return;
        }
        self.bytes += bytes + values.len();
        if list.by_values.insert(values.into(), (effects.clone(), now + time)).is_none() {
            self.decisions += 1;
        }
    }
}

fn write_values(names: &[FactName], facts: &CallFacts<'_>, out: &mut Vec<u8>) {
    out.clear();
    names.iter().for_each(|name| name.push_value(facts, out));
}

#[cfg(test)]
mod tests {
    use super::super::decision::RequestEffects;
    use super::super::frame::HitFacts;
    use super::*;
    use crate::mount::Stage;
    use larder_wire::Scheme;
    use std::rc::Rc;

    fn facts<'a>(path: &'a str, fields: &'a Fields, hooks: &'a [u16]) -> CallFacts<'a> {
        CallFacts {
            stage: Stage::Request,
            hooks,
            method: "GET",
            scheme: Scheme::Http,
            host: "a.example",
            port: 80,
            path_and_query: path,
            client: "10.0.0.1".parse().unwrap(),
            name: "x",
            fields,
            answer: None,
            hit: None,
        }
    }

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name, value));
        fields
    }

    fn effects(key: &str) -> Rc<RequestEffects> {
        Rc::new(RequestEffects { key: vec![key.to_owned()], ..RequestEffects::default() })
    }

    fn read(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_decision_is_used_where_all_facts_that_were_looked_at_are_the_same() {
        let (hooks, mut memo, now) = (Arc::new(Hooks::default()), Memo::default(), Instant::now());
        let (free, paid, none) = (fields(&[("X-Plan", "free")]), fields(&[("x-plan", "paid")]), fields(&[]));
        let minute = (now, Duration::from_secs(60));
        memo.keep((&hooks, &facts("/a?q", &free, &[0])), &read(&["field:x-plan"]), (&effects("free"), 1), minute);
        let find = |memo: &Memo<Rc<RequestEffects>>, path: &str, fields: &Fields, called: &[u16]| {
            memo.find(&hooks, &facts(path, fields, called), || now).map(|(effects, _)| effects.key[0].clone())
        };
        assert_eq!(find(&memo, "/other", &free, &[0]).as_deref(), Some("free"), "the path was not looked at");
        for (fields, called) in [(&paid, &[0][..]), (&none, &[0]), (&free, &[0, 1]), (&free, &[1])] {
            assert_eq!(find(&memo, "/a?q", fields, called), None);
        }
        // On another way the hook looks at more.
        memo.keep(
            (&hooks, &facts("/a?q", &paid, &[0])),
            &read(&["field:x-plan", "query"]),
            (&effects("paid"), 1),
            minute,
        );
        assert_eq!(find(&memo, "/a?q", &free, &[0]), None, "forgotten, for it may depend on the query as well");
        assert_eq!(find(&memo, "/b?q", &paid, &[0]).as_deref(), Some("paid"));
        for path in ["/a", "/a?", "/a?r"] {
            assert_eq!(find(&memo, path, &paid, &[0]), None, "{path}");
        }
        assert!(memo.find(&hooks, &facts("/b?q", &paid, &[0]), || now + Duration::from_secs(60)).is_none(), "too old");
        let others = Arc::new(Hooks::default());
        assert!(memo.find(&others, &facts("/b?q", &paid, &[0]), || now).is_none(), "another generation");
    }

    #[test]
    fn a_decision_about_an_answer_holds_for_answers_with_the_same_facts() {
        let (hooks, now, none) = (Arc::new(Hooks::default()), Instant::now(), fields(&[]));
        let (of_anna, of_ben) = (fields(&[("X-Owner", "anna")]), fields(&[("X-Owner", "ben")]));
        let tagged = |tags: &[&str], stale| HitFacts { stale, tags: read(tags), ..HitFacts::default() };
        let one = tagged(&["a", "b"], false);
        let call = |status, answer, hit| CallFacts {
            answer: Some((status, answer)),
            hit: Some(hit),
            ..facts("/", &none, &[2])
        };
        for (names, hit, others) in [
            (&["response:x-owner"][..], 200, vec![call(200, &of_ben, &one), call(200, &none, &one)]),
            (&["response:*"], 200, vec![call(200, &of_ben, &one), call(200, &none, &one)]),
            (&["status"], 200, vec![call(404, &of_anna, &one)]),
        ] {
            let mut memo = Memo::default();
            let known = call(hit, &of_anna, &one);
            memo.keep((&hooks, &known), &read(names), (&effects("x"), 1), (now, Duration::from_secs(9)));
            assert!(memo.find(&hooks, &known, || now).is_some(), "{names:?}");
            assert!(others.iter().all(|other| memo.find(&hooks, other, || now).is_none()), "{names:?}");
        }
        let (stale, fewer, joined) = (tagged(&["a", "b"], true), tagged(&["a"], false), tagged(&["ab"], false));
        let mut memo = Memo::default();
        let known = call(200, &of_anna, &one);
        let names = read(&["found:stale", "found:tags"]);
        memo.keep((&hooks, &known), &names, (&effects("x"), 1), (now, Duration::from_secs(9)));
        assert!(memo.find(&hooks, &call(404, &of_ben, &one), || now).is_some());
        for hit in [&stale, &fewer, &joined] {
            assert!(memo.find(&hooks, &call(200, &of_anna, hit), || now).is_none(), "{hit:?}");
        }
    }

    #[test]
    fn a_decision_about_one_request_is_not_remembered() {
        let (hooks, mut memo, now) = (Arc::new(Hooks::default()), Memo::default(), Instant::now());
        let none = fields(&[]);
        for unknown in ["name", "weather", "found:age", "found:ttl"] {
            let call = facts("/", &none, &[0]);
            memo.keep((&hooks, &call), &read(&["path", unknown]), (&effects("x"), 1), (now, Duration::from_secs(9)));
            assert!(memo.find(&hooks, &call, || now).is_none(), "{unknown}");
        }
    }

    #[test]
    fn many_decisions_are_forgotten_and_not_kept_for_ever() {
        let (hooks, mut memo, now) = (Arc::new(Hooks::default()), Memo::default(), Instant::now());
        let none = fields(&[]);
        for _ in 0..GENERATIONS_MAX + 10 {
            let others = Arc::new(Hooks::default());
            let call = facts("/", &none, &[0]);
            memo.keep((&others, &call), &read(&["path"]), (&effects("x"), 1), (now, Duration::from_secs(9)));
            assert!(memo.find(&others, &call, || now).is_some() && memo.generations.len() <= GENERATIONS_MAX);
        }
        for number in 0..DECISIONS_MAX + 10 {
            let path = format!("/{number}");
            memo.keep(
                (&hooks, &facts(&path, &none, &[0])),
                &read(&["path"]),
                (&effects("x"), 1),
                (now, Duration::from_secs(9)),
            );
        }
        assert!(memo.decisions <= DECISIONS_MAX);
        let large = facts("/large", &none, &[0]);
        for _ in 0..3 {
            let decision = effects("x");
            memo.keep(
                (&hooks, &large),
                &read(&["path"]),
                (&decision, DECISIONS_BYTES_MAX / 2),
                (now, Duration::from_secs(9)),
            );
        }
        assert!(memo.bytes <= DECISIONS_BYTES_MAX && memo.decisions == 1);
        assert!(memo.find(&hooks, &facts("/5", &none, &[0]), || now).is_none());
    }
}
