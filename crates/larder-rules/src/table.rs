//! Rules compiled into one table: each fact is looked up once for all rules, the cheapest first, and only where a rule that still may
//! hold asks for it.

use crate::PathPattern;
use crate::bits::{RULES_MAX, RuleSet};
use crate::facts::{FIELDS_MAX, Facts, Slot, Slots, Stop, field_slot};
use crate::glob_index::GlobIndex;
use crate::host_index::HostIndex;
use crate::network_index::NetworkIndex;
use crate::once_decoded;
use crate::rule::{Rule, When};
use crate::text_index::{TextIndex, Texts};
use crate::values::{FieldTest, essence, parameters};
use crate::week::{Window, Zone};
use larder_wire::fields::{Members, trim};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A table of rules, compiled.
#[derive(Debug, Default)]
pub struct Table {
    rules: Vec<Rule>,
    compiled: Vec<Compiled>,
    /// Slots that any rule has, those of nested conditions not among them.
    used: Slots,
    /// Slots of nested conditions too.
    used_anywhere: Slots,
    /// For each slot, the rules that do not have it, so that it never stands in their way.
    without: BTreeMap<u8, RuleBits>,
    hosts: HostIndex,
    sni: HostIndex,
    clients: NetworkIndex,
    destinations: NetworkIndex,
    /// Rules that name countries of destinations.
    of_destination_countries: Vec<u16>,
    texts: BTreeMap<u8, TextIndex>,
    /// Names of the fields whose slots begin at [`Slot::FIELDS`].
    fields: Vec<Box<str>>,
    /// Patterns of paths with wildcards.
    globs: GlobIndex,
    /// For each slot, the rules that have it, where these are tried one by one.
    tried: BTreeMap<u8, Vec<u16>>,
    /// Groups of rules with the same times in the same zone.
    times: Vec<(Zone, Vec<RuleTimes>)>,
    /// Rules with a verdict that name destinations.
    of_destinations: Vec<u16>,
}

/// A rule, and its times of the week.
type RuleTimes = (u16, Vec<Window>);

/// The parts of a rule that a judgement looks at first.
#[derive(Debug)]
struct Compiled {
    slots: Slots,
    /// Slots of nested conditions too.
    all_slots: Slots,
    is_nested: bool,
    ends: bool,
}

/// A set of rules on the heap.
#[derive(Clone)]
struct RuleBits(Box<RuleSet>);

impl std::fmt::Debug for RuleBits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RuleBits")
    }
}

/// The rules of a table that hold for one request, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    first: [u16; MATCHED_INLINE],
    len: u16,
    more: Vec<u16>,
    ends: bool,
}

/// Of so many rules the dependences are added up; more are taken to depend on all that the table asks about.
const DEPENDENCES_WALKED_MAX: usize = 64;

/// More lie on the heap, and have no memo.
const MATCHED_INLINE: usize = 6;

impl Matched {
    /// Adds a rule; `ends` says that it has a verdict.
    pub fn push(&mut self, rule: u16, ends: bool) {
        match self.first.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = rule;
                self.len += 1;
            }
            None => self.more.push(rule),
        }
        self.ends = ends;
    }

    /// Their numbers, in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u16> + '_ {
        self.first.iter().take(usize::from(self.len)).chain(&self.more).copied()
    }

    /// Whether no rule holds.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rule with the verdict, which is the last one.
    pub fn end(&self) -> Option<u16> {
        self.iter().next_back().filter(|_| self.ends)
    }

    /// Whether it takes no memory of its own.
    pub(crate) fn is_inline(&self) -> bool {
        self.more.is_empty()
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.rules == other.rules
    }
}

impl Table {
    /// Compiles rules; `Err` says why they can't be one table.
    pub fn new(rules: Vec<Rule>) -> Result<Table, String> {
        if rules.len() > RULES_MAX {
            return Err(format!(
                "there are {} rules, and a table has at most {RULES_MAX}: put names into a list",
                rules.len()
            ));
        }
        let mut table = Table { fields: names_of_fields(&rules), ..Table::default() };
        if table.fields.len() > FIELDS_MAX {
            return Err(format!(
                "the rules ask about {} fields, and a table asks about at most {FIELDS_MAX}",
                table.fields.len()
            ));
        }
        for rule in &rules {
            let slots = table.slots_of(&rule.when);
            let all_slots = table.all_slots_of(&rule.when);
            let is_nested = !rule.when.not.is_empty() || !rule.when.any.is_empty();
            table.used = table.used.and(slots);
            table.used_anywhere = table.used_anywhere.and(all_slots);
            table.compiled.push(Compiled { slots, all_slots, is_nested, ends: rule.does.verdict.is_some() });
        }
        table.index(&rules)?;
        table.rules = rules;
        Ok(table)
    }

    /// The rules, as they were written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule with this number.
    pub fn rule(&self, number: u16) -> Option<&Rule> {
        self.rules.get(usize::from(number))
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The names of the fields that rules ask about by these slots.
    pub fn fields_of(&self, slots: Slots) -> impl Iterator<Item = &str> {
        let fixed =
            [(Slot::USER_AGENT, "User-Agent"), (Slot::CONTENT_TYPE, "Content-Type"), (Slot::SIZE, "Content-Length")];
        let fixed = fixed.into_iter().filter(move |(slot, _)| slots.has(*slot)).map(|(_, name)| name);
        let named = self.fields.iter().enumerate().filter(move |(at, _)| slots.has(field_slot(*at)));
        fixed.chain(named.map(|(_, name)| &**name))
    }

    /// The slots that rules have, with those of nested conditions.
    pub fn slots(&self) -> Slots {
        self.used_anywhere
    }

    fn slots_of(&self, when: &When) -> Slots {
        let named = when.fields.iter().filter_map(|(name, _)| self.field_number(name)).map(field_slot);
        let fixed = Slots(when.slots(0).0 & !fields_mask());
        named.fold(fixed, Slots::with)
    }

    fn all_slots_of(&self, when: &When) -> Slots {
        let nested = when.not.iter().chain(&when.any);
        nested.fold(self.slots_of(when), |slots, nested| slots.and(self.all_slots_of(nested)))
    }

    fn field_number(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|known| known.eq_ignore_ascii_case(name))
    }

    fn index(&mut self, rules: &[Rule]) -> Result<(), String> {
        for slot in self.used.iter() {
            let mut without = RuleSet::none(rules.len());
            for (number, _) in self.compiled.iter().enumerate().filter(|(_, compiled)| !compiled.slots.has(slot)) {
                without.add(number as u16);
            }
            self.without.insert(slot.0, RuleBits(Box::new(without)));
        }
        let numbered = || rules.iter().enumerate().map(|(number, rule)| (number as u16, &rule.when));
        for (number, when) in numbered() {
            when.host.iter().for_each(|host| self.hosts.add(host, number));
            when.sni.iter().for_each(|host| self.sni.add(host, number));
        }
        self.clients = NetworkIndex::new(numbered().map(|(number, when)| (number, &when.client)));
        let (by_country, by_network): (Vec<_>, Vec<_>) =
            numbered().partition(|(_, when)| !when.destination_country.is_empty());
        self.of_destination_countries = by_country.into_iter().map(|(number, _)| number).collect();
        self.destinations = NetworkIndex::new(by_network.into_iter().map(|(number, when)| (number, &when.destination)));
        for (number, when) in numbered().filter(|(_, when)| !when.time.is_empty()) {
            match self.times.iter_mut().find(|(zone, _)| *zone == when.zone) {
                Some((_, times)) => times.push((number, when.time.clone())),
                None => self.times.push((when.zone.clone(), vec![(number, when.time.clone())])),
            }
        }
        let mut texts = TextsBySlot::default();
        let mut globs = Vec::new();
        for (number, when) in numbered() {
            self.index_texts(number, when, &mut texts, &mut globs);
        }
        self.globs = GlobIndex::new(globs)?;
        let ends = |(rule, _): &(&Compiled, u16)| rule.ends && rule.slots.has(Slot::DESTINATION);
        self.of_destinations = self.compiled.iter().zip(0..).filter(ends).map(|(_, number)| number).collect();
        for slot in [Slot::SCHEME, Slot::LISTENER, Slot::PORT, Slot::CERTIFICATE, Slot::SIZE] {
            let rules =
                self.compiled.iter().zip(0..).filter(|(rule, _)| rule.slots.has(slot)).map(|(_, number)| number);
            self.tried.insert(slot.0, rules.collect());
        }
        for (slot, texts) in texts.0 {
            self.texts.insert(slot, texts.compile()?);
        }
        Ok(())
    }

    fn index_texts(&self, number: u16, when: &When, texts: &mut TextsBySlot, globs: &mut Vec<(u16, PathPattern)>) {
        when.method.iter().for_each(|method| texts.of(Slot::METHOD).whole(method.as_str().as_bytes(), number));
        when.user_agent.iter().for_each(|text| texts.of(Slot::USER_AGENT).part(text, number));
        for media in &when.content_type {
            match media.parts() {
                (text, false) => texts.of(Slot::CONTENT_TYPE).whole(text.as_bytes(), number),
                (start, true) => texts.of(Slot::CONTENT_TYPE).begins(start.as_bytes(), number),
            }
        }
        for (name, tests) in &when.fields {
            let slot = self.field_number(name).map(field_slot).unwrap_or(Slot::FIELDS);
            for test in tests {
                match test {
                    FieldTest::Present => texts.of(slot).always(number),
                    FieldTest::Equal(text) => texts.of(slot).whole(text.as_bytes(), number),
                    FieldTest::Begins(text) => texts.of(slot).begins(text.as_bytes(), number),
                    FieldTest::Regex(regex) => texts.of(slot).regex(regex.as_str(), number),
                }
            }
        }
        for pattern in &when.path {
            match (pattern.whole(), pattern.folder()) {
                (Some(path), _) => texts.of(Slot::PATH).whole(path.as_bytes(), number),
                (None, Some(folder)) => {
                    if !folder.is_empty() {
                        texts.of(Slot::PATH).whole(folder.as_bytes(), number);
                    }
                    texts.of(Slot::PATH).begins(format!("{folder}/").as_bytes(), number);
                }
                (None, None) => globs.push((number, pattern.clone())),
            }
        }
        when.host_regex.iter().for_each(|regex| texts.of(Slot::HOST_REGEX).regex(regex.as_str(), number));
        when.path_regex.iter().for_each(|regex| texts.of(Slot::PATH_REGEX).regex(regex.as_str(), number));
        when.target_regex.iter().for_each(|regex| texts.of(Slot::TARGET_REGEX).regex(regex.as_str(), number));
        when.url_regex.iter().for_each(|regex| texts.of(Slot::URL_REGEX).regex(regex.as_str(), number));
        for pattern in &when.query {
            match pattern.is_prefix {
                true => texts.of(Slot::QUERY).begins(pattern.text.as_bytes(), number),
                false => texts.of(Slot::QUERY).whole(pattern.text.as_bytes(), number),
            }
        }
        when.country.iter().for_each(|country| texts.of(Slot::COUNTRY).whole(country, number));
        when.user.iter().for_each(|user| match &**user {
            "*" => texts.of(Slot::USER).always(number),
            user => texts.of(Slot::USER).whole(user.as_bytes(), number),
        });
        when.group.iter().for_each(|group| texts.of(Slot::GROUP).whole(group.as_bytes(), number));
    }

    /// Judges a request: the numbers of the rules that hold, up to the first one with a verdict.
    pub fn judge(&self, facts: &impl Facts) -> Result<Matched, Stop> {
        let mut matched = Matched::default();
        let mut live = RuleSet::all(self.rules.len());
        let mut known = Slots::default();
        for slot in Slots(self.used.0 & Slots::FREE.0).iter() {
            self.narrow(slot, facts, &mut live)?;
            known = known.with(slot);
        }
        let mut at = 0;
        'rules: while let Some(number) = live.next(at) {
            at = number + 1;
            let Some(rule) = self.compiled.get(usize::from(number)) else { break };
            for slot in rule.slots.without(known).iter() {
                if Slots::OF_PATH.has(slot) {
                    self.note_dependences(facts, &live, number);
                }
                self.narrow(slot, facts, &mut live)?;
                known = known.with(slot);
                if !live.has(number) {
                    continue 'rules;
                }
            }
            if rule.is_nested {
                match rule.all_slots.meets(Slots::OF_PATH) {
                    true => self.note_dependences(facts, &live, number),
                    false => facts.depends_on(rule.all_slots),
                }
                if let Some(rule) = self.rule(number)
                    && !rule.when.nested_hold(facts)?
                {
                    continue;
                }
            }
            matched.push(number, rule.ends);
            if rule.ends {
                break;
            }
        }
        Ok(matched)
    }

    /// The rules with a verdict on some destinations that would hold if the request led there, as far as no rule before them has a verdict on
    /// it; those that hold already are not among them.
    pub fn by_destination(&self, facts: &impl Facts, matched: &Matched) -> Result<Vec<u16>, Stop> {
        let mut found = Vec::new();
        let end = matched.end().unwrap_or(u16::MAX);
        for number in self.of_destinations.iter().take_while(|number| **number < end) {
            let (Some(rule), Some(compiled)) = (self.rule(*number), self.compiled.get(usize::from(*number))) else {
                break;
            };
            let other = Slots(compiled.all_slots.0 & !Slots::default().with(Slot::DESTINATION).0);
            // The countries of addresses are those of the file that is in force now.
            let other = if rule.when.destination_country.is_empty() { other } else { other.with(Slot::COUNTRY) };
            facts.depends_on(other.without(Slots::FREE));
            if rule.when.holds_but_for_destination(facts)? {
                found.push(*number);
            }
        }
        Ok(found)
    }

    /// Before the path is asked for: the facts that any rule from this one on could ask for with another path.
    fn note_dependences(&self, facts: &impl Facts, live: &RuleSet, first: u16) {
        let mut slots = Slots::default();
        let mut at = first;
        for _ in 0..DEPENDENCES_WALKED_MAX {
            let Some(number) = live.next(at) else { return facts.depends_on(slots) };
            at = number + 1;
            if let Some(rule) = self.compiled.get(usize::from(number)) {
                slots = slots.and(rule.all_slots);
            }
        }
        facts.depends_on(self.used_anywhere);
    }

    /// Takes the rules out whose matcher in this slot does not hold.
    fn narrow(&self, slot: Slot, facts: &impl Facts, live: &mut RuleSet) -> Result<(), Stop> {
        let Some(without) = self.without.get(&slot.0) else { return Ok(()) };
        if !Slots::FREE.has(slot) {
            facts.depends_on(Slots::default().with(slot));
        }
        let mut holds = RuleSet::clone(&without.0);
        self.select(slot, facts, (live, &mut holds))?;
        live.keep(&holds);
        Ok(())
    }

    fn select(&self, slot: Slot, facts: &impl Facts, (live, holds): (&RuleSet, &mut RuleSet)) -> Result<(), Stop> {
        let texts = self.texts.get(&slot.0);
        let text = |text: &[u8], holds: &mut RuleSet| texts.iter().for_each(|texts| texts.select_text(text, holds));
        match slot {
            Slot::METHOD => text(facts.method().as_str().as_bytes(), holds),
            Slot::HOST => self.hosts.select(facts.host(), holds),
            Slot::CLIENT => self.clients.select(facts.client(), holds),
            Slot::SNI => facts.sni().iter().for_each(|name| self.sni.select_name(&name.to_ascii_lowercase(), holds)),
            Slot::TIME => self.select_time(facts.minute(), holds),
            Slot::PATH => {
                if let Some(path) = facts.path()? {
                    text(path, holds);
                    self.globs.select(path, live, holds);
                }
            }
            Slot::HOST_REGEX => {
                let host = once_decoded::written(facts.host()).as_bytes();
                texts.iter().for_each(|texts| texts.select_found(host, holds));
            }
            Slot::PATH_REGEX => {
                facts.path()?.iter().for_each(|path| texts.iter().for_each(|texts| texts.select_found(path, holds)));
            }
            Slot::TARGET_REGEX => {
                let target = once_decoded::target(facts)?;
                target.iter().for_each(|target| texts.iter().for_each(|texts| texts.select_found(target, holds)));
            }
            Slot::URL_REGEX => {
                let url = once_decoded::url(facts)?;
                texts.iter().for_each(|texts| texts.select_found(&url, holds));
            }
            Slot::QUERY => {
                for (whole, name) in facts.query().into_iter().flat_map(parameters) {
                    text(&whole, holds);
                    if name.len() < whole.len() {
                        texts.iter().for_each(|texts| texts.select_whole(&name, holds));
                    }
                }
            }
            Slot::COUNTRY => facts.country().iter().for_each(|country| text(country, holds)),
            Slot::USER => {
                if let Some(user) = facts.user()? {
                    text(user.as_bytes(), holds);
                    texts.iter().for_each(|texts| texts.select_found(user.as_bytes(), holds));
                }
            }
            Slot::GROUP => facts.each_group(&mut |group| text(group.as_bytes(), holds))?,
            Slot::DESTINATION => facts.each_destination(&mut |address| {
                self.destinations.select(address, holds);
                let rules = self.of_destination_countries.iter();
                let leads = |number: &&u16| self.rule(**number).is_some_and(|rule| rule.when.leads_to(address, facts));
                rules.filter(leads).for_each(|number| holds.add(*number));
            })?,
            Slot::LIST => self.select_lists(facts, live, holds),
            Slot::SCHEME | Slot::LISTENER | Slot::PORT | Slot::CERTIFICATE | Slot::SIZE => {
                self.select_by_test(slot, facts, live, holds);
            }
            Slot::USER_AGENT => facts.each_line("User-Agent", &mut |line| {
                texts.iter().for_each(|texts| texts.select_found(line, holds));
            }),
            Slot::CONTENT_TYPE => facts.each_line("Content-Type", &mut |line| {
                text(&essence(line).to_ascii_lowercase(), holds);
            }),
            field => self.select_field(field, facts, texts, holds),
        }
        Ok(())
    }

    fn select_field(&self, slot: Slot, facts: &impl Facts, texts: Option<&TextIndex>, holds: &mut RuleSet) {
        let name = self.fields.get(usize::from(slot.0.saturating_sub(Slot::FIELDS.0)));
        let (Some(name), Some(texts)) = (name, texts) else { return };
        facts.each_line(name, &mut |line| {
            texts.select_found(line, holds);
            if texts.has_texts() {
                let line = match line.iter().any(u8::is_ascii_uppercase) {
                    true => Cow::Owned(line.to_ascii_lowercase()),
                    false => Cow::Borrowed(line),
                };
                texts.select_text(trim(&line), holds);
                Members::new(&line).for_each(|member| texts.select_text(member, holds));
            }
        });
    }

    /// Only lists that rules ask about which may still hold are looked into, each once.
    fn select_lists(&self, facts: &impl Facts, live: &RuleSet, holds: &mut RuleSet) {
        let mut lists: Vec<(&str, bool)> = Vec::new();
        let mut at = 0;
        while let Some(number) = live.next(at) {
            at = number + 1;
            let Some(rule) = self.rule(number) else { break };
            for list in &rule.when.list {
                let covers = match lists.iter().find(|(known, _)| *known == &**list) {
                    Some((_, covers)) => *covers,
                    None => {
                        let covers = facts.in_list(list);
                        lists.push((list, covers));
                        covers
                    }
                };
                if covers {
                    holds.add(number);
                }
            }
        }
    }

    fn select_by_test(&self, slot: Slot, facts: &impl Facts, live: &RuleSet, holds: &mut RuleSet) {
        for number in self.tried.get(&slot.0).into_iter().flatten().filter(|number| live.has(**number)) {
            if self.rule(*number).is_some_and(|rule| rule.when.test(slot, 0, facts) == Ok(true)) {
                holds.add(*number);
            }
        }
    }

    fn select_time(&self, minute: i64, holds: &mut RuleSet) {
        for (zone, times) in &self.times {
            let (day, minute) = zone.day_and_minute(minute);
            let open = times.iter().filter(|(_, windows)| windows.iter().any(|window| window.has(day, minute)));
            open.for_each(|(rule, _)| holds.add(*rule));
        }
    }
}

/// Texts that are collected for each slot.
#[derive(Default)]
struct TextsBySlot(BTreeMap<u8, Texts>);

impl TextsBySlot {
    fn of(&mut self, slot: Slot) -> &mut Texts {
        self.0.entry(slot.0).or_default()
    }
}

fn fields_mask() -> u64 {
    (0..FIELDS_MAX).fold(0, |mask, number| mask | 1 << field_slot(number).0)
}

/// The names of fields that rules ask about, at any depth; each once.
fn names_of_fields(rules: &[Rule]) -> Vec<Box<str>> {
    fn collect(when: &When, names: &mut Vec<Box<str>>) {
        for (name, _) in &when.fields {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name.clone());
            }
        }
        when.not.iter().chain(&when.any).for_each(|nested| collect(nested, names));
    }
    let mut names = Vec::new();
    rules.iter().for_each(|rule| collect(&rule.when, &mut names));
    names
}
