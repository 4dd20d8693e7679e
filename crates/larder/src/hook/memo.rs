//! Decisions of hooks that are remembered: under the values of all facts that the hooks have looked at, as `Vary` does it for
//! answers.

use super::decision::RequestEffects;
use super::frame::CallFacts;
use crate::mount::Hooks;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Decisions that are remembered at once, per worker; at the limit all are forgotten.
const DECISIONS_MAX: usize = 8_192;

/// Longer values of facts are not remembered.
const VALUES_BYTES_MAX: usize = 2_048;

/// Facts that one list of hooks may look at and still be remembered.
const FACTS_MAX: usize = 32;

/// The decisions that a worker remembers.
#[derive(Default)]
pub(super) struct Memo {
    lists: HashMap<ListKey, OfList>,
    decisions: usize,
}

/// The hooks of one call. Another generation of processes has hooks of its own, and its decisions are not those of this one.
#[derive(PartialEq, Eq, Hash)]
struct ListKey {
    generation: usize,
    called: Box<[u16]>,
}

struct OfList {
    /// Keeps the number that stands for the generation from being another's.
    _hooks: Arc<Hooks>,
    /// All facts that the hooks of this list were ever seen to look at.
    facts: Vec<FactName>,
    by_values: HashMap<Box<[u8]>, (Rc<RequestEffects>, Instant)>,
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
            _ => FactName::Field(text.strip_prefix("field:")?.to_ascii_lowercase()),
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
            FactName::Client => push(facts.client.to_canonical().to_string().as_bytes()),
            FactName::Field(name) => {
                push(&(facts.fields.count(name) as u32).to_le_bytes());
                facts.fields.get_all(name).for_each(push);
            }
            FactName::AllFields => {
                push(&(facts.fields.len() as u32).to_le_bytes());
                for (name, value) in facts.fields.iter() {
                    push(name.to_ascii_lowercase().as_bytes());
                    push(value);
                }
            }
        }
    }
}

impl Memo {
    /// The decision of these hooks for a request with these facts, if it is remembered.
    pub fn find(&self, hooks: &Arc<Hooks>, facts: &CallFacts<'_>, now: Instant) -> Option<Rc<RequestEffects>> {
        let list = self.lists.get(&list_key(hooks, facts.hooks))?;
        let (effects, until) = list.by_values.get(values(&list.facts, facts)?.as_slice())?;
        (now < *until).then(|| Rc::clone(effects))
    }

    /// Remembers a decision that depended on the facts of these names.
    pub fn keep(
        &mut self,
        (hooks, facts): (&Arc<Hooks>, &CallFacts<'_>),
        read: &[String],
        effects: &Rc<RequestEffects>,
        (now, time): (Instant, Duration),
    ) {
        let Some(names) = read.iter().map(|name| FactName::parse(name)).collect::<Option<Vec<_>>>() else { return };
        if self.decisions >= DECISIONS_MAX {
            *self = Memo::default();
        }
        let list = self.lists.entry(list_key(hooks, facts.hooks)).or_insert_with(|| OfList {
            _hooks: Arc::clone(hooks),
            facts: Vec::new(),
            by_values: HashMap::new(),
        });
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
        if let Some(values) = values(&list.facts, facts)
            && list.by_values.insert(values.into(), (Rc::clone(effects), now + time)).is_none()
        {
            self.decisions += 1;
        }
    }
}

fn list_key(hooks: &Arc<Hooks>, called: &[u16]) -> ListKey {
    ListKey { generation: Arc::as_ptr(hooks) as usize, called: called.into() }
}

fn values(names: &[FactName], facts: &CallFacts<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    names.iter().for_each(|name| name.push_value(facts, &mut out));
    (out.len() <= VALUES_BYTES_MAX).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::super::frame::Stage;
    use super::*;
    use larder_wire::{Fields, Scheme};

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
        memo.keep((&hooks, &facts("/a?q", &free, &[0])), &read(&["field:x-plan"]), &effects("free"), minute);
        let find = |memo: &Memo, path: &str, fields: &Fields, called: &[u16]| {
            memo.find(&hooks, &facts(path, fields, called), now).map(|effects| effects.key[0].clone())
        };
        assert_eq!(find(&memo, "/other", &free, &[0]).as_deref(), Some("free"), "the path was not looked at");
        for (fields, called) in [(&paid, &[0][..]), (&none, &[0]), (&free, &[0, 1]), (&free, &[1])] {
            assert_eq!(find(&memo, "/a?q", fields, called), None);
        }
        // On another way the hook looks at more.
        memo.keep((&hooks, &facts("/a?q", &paid, &[0])), &read(&["field:x-plan", "query"]), &effects("paid"), minute);
        assert_eq!(find(&memo, "/a?q", &free, &[0]), None, "forgotten, for it may depend on the query as well");
        assert_eq!(find(&memo, "/b?q", &paid, &[0]).as_deref(), Some("paid"));
        for path in ["/a", "/a?", "/a?r"] {
            assert_eq!(find(&memo, path, &paid, &[0]), None, "{path}");
        }
        assert!(memo.find(&hooks, &facts("/b?q", &paid, &[0]), now + Duration::from_secs(60)).is_none(), "too old");
        let others = Arc::new(Hooks::default());
        assert!(memo.find(&others, &facts("/b?q", &paid, &[0]), now).is_none(), "another generation");
    }

    #[test]
    fn a_decision_about_one_request_is_not_remembered() {
        let (hooks, mut memo, now) = (Arc::new(Hooks::default()), Memo::default(), Instant::now());
        let none = fields(&[]);
        for unknown in ["name", "status", "weather"] {
            let call = facts("/", &none, &[0]);
            memo.keep((&hooks, &call), &read(&["path", unknown]), &effects("x"), (now, Duration::from_secs(9)));
            assert!(memo.find(&hooks, &call, now).is_none(), "{unknown}");
        }
    }

    #[test]
    fn many_decisions_are_forgotten_and_not_kept_for_ever() {
        let (hooks, mut memo, now) = (Arc::new(Hooks::default()), Memo::default(), Instant::now());
        let none = fields(&[]);
        for number in 0..DECISIONS_MAX + 10 {
            let path = format!("/{number}");
            memo.keep(
                (&hooks, &facts(&path, &none, &[0])),
                &read(&["path"]),
                &effects("x"),
                (now, Duration::from_secs(9)),
            );
        }
        assert!(memo.decisions <= DECISIONS_MAX);
        assert!(memo.find(&hooks, &facts("/5", &none, &[0]), now).is_none());
    }
}
