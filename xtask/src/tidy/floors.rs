//! The modules of a crate stand on numbered floors. An arrow (one module uses another) leads to a lower floor, or to a
//! module of the same floor from which no way leads back. Exceptions are listed exactly, so the list can only shrink. Modules that
//! lie side by side in another one have no circle either, and no exceptions.

use super::arrows::Modules;
use super::{Finding, Tree, crates};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The floors of one crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    /// The modules of each floor, the lowest floor first. `a` stands for all modules below it that are not named.
    from_below: Vec<Vec<String>>,
    /// Module → modules that it uses against the rule.
    #[serde(default)]
    climbs: BTreeMap<String, BTreeSet<String>>,
}

const TABLE: &str = "xtask/tidy.toml";

/// Holds the arrows of all crates against their floors.
pub fn check(tree: &Tree, floors: &BTreeMap<String, Floors>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in crates::packages(tree) {
        let modules = Modules::read(tree, &format!("{}src/", package.folder));
        match floors.get(&package.name) {
            Some(floors) => {
                findings.extend(Plan::of(&package.name, floors, &modules).findings());
                findings.extend(circles_within(&package.name, &modules));
            }
            None if modules.names.is_empty() => {}
            None => findings.push(Finding::new(TABLE, 1, format!("crate {} has no floors", package.name))),
        }
    }
    findings
}

/// The arrows that break the rule, in the form of the table, and all arrows with their floors as a comment.
pub fn as_drawn(tree: &Tree, floors: &BTreeMap<String, Floors>) -> String {
    let mut text = String::new();
    for package in crates::packages(tree) {
        let Some(floors) = floors.get(&package.name) else { continue };
        let modules = Modules::read(tree, &format!("{}src/", package.folder));
        let bare = Floors { from_below: floors.from_below.clone(), climbs: BTreeMap::new() };
        let plan = Plan::of(&package.name, &bare, &modules);
        text.push_str(&plan.listing());
    }
    text
}

/// A module with its floor, as the table names it.
type Placed<'a> = BTreeMap<&'a str, usize>;

struct Plan<'a> {
    name: &'a str,
    floors: &'a Floors,
    modules: &'a Modules,
    placed: Placed<'a>,
    /// Arrows between the modules that the table names, with the place of the first.
    arrows: BTreeMap<(&'a str, &'a str), &'a (String, usize)>,
}

impl<'a> Plan<'a> {
    fn of(name: &'a str, floors: &'a Floors, modules: &'a Modules) -> Plan<'a> {
        let rows = floors.from_below.iter().enumerate();
        let placed: Placed =
            rows.flat_map(|(floor, row)| row.iter().map(move |module| (module.as_str(), floor))).collect();
        let mut arrows = BTreeMap::new();
        for ((from, to), place) in &modules.drawn {
            if let (Some(from), Some(to)) = (listed(&placed, from), listed(&placed, to))
                && from != to
            {
                arrows.entry((from, to)).or_insert(place);
            }
        }
        Plan { name, floors, modules, placed, arrows }
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = self.table();
        let excepted = |from: &str, to: &str| self.floors.climbs.get(from).is_some_and(|list| list.contains(to));
        let ruled: Vec<(&str, &str)> = self.arrows.keys().copied().filter(|(from, to)| !excepted(from, to)).collect();
        for (from, to, why) in self.broken(&ruled) {
            let (file, line) = self.arrows[&(from, to)];
            findings.push(Finding::new(file, *line, format!("{}: module {from} may not use {to}: {why}", self.name)));
        }
        for (from, to) in self.floors.climbs.iter().flat_map(|(from, list)| list.iter().map(move |to| (from, to))) {
            let arrow = (from.as_str(), to.as_str());
            let with_it: Vec<(&str, &str)> = ruled.iter().copied().chain([arrow]).collect();
            let is_needed = self.broken(&with_it).iter().any(|(from, to, _)| (*from, *to) == arrow);
            if !self.arrows.contains_key(&arrow) || !is_needed {
                let what = format!("{}: the exception {from} → {to} is not needed: take it out of climbs", self.name);
                findings.push(Finding::new(TABLE, 1, what));
            }
        }
        findings
    }

    /// Faults of the table itself.
    fn table(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut seen = BTreeSet::new();
        for module in self.floors.from_below.iter().flatten() {
            if !seen.insert(module) {
                findings.push(Finding::new(TABLE, 1, format!("{}: module {module} stands on two floors", self.name)));
            }
            if !self.modules.names.contains(module) {
                findings.push(Finding::new(TABLE, 1, format!("{}: there is no module {module}", self.name)));
            }
        }
        for module in self.modules.names.iter().filter(|module| listed(&self.placed, module).is_none()) {
            findings.push(Finding::new(TABLE, 1, format!("{}: module {module} stands on no floor", self.name)));
        }
        findings
    }

    /// Those of these arrows that lead to a higher floor, and those that lie in a circle on their floor.
    fn broken(&self, arrows: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str, String)> {
        let floor = |module: &str| self.placed.get(module).copied().unwrap_or_default();
        let level: Vec<(&str, &str)> = arrows.iter().copied().filter(|(from, to)| floor(from) == floor(to)).collect();
        let mut broken = Vec::new();
        for &(from, to) in arrows {
            let (start, end) = (floor(from), floor(to));
            if start < end {
                broken.push((from, to, format!("an arrow leads down, not from floor {start} to floor {end}")));
            } else if start == end
                && let Some(back) = way(&level, to, from)
            {
                broken.push((from, to, format!("a circle on floor {start}: {from} → {}", back.join(" → "))));
            }
        }
        broken
    }

    fn listing(&self) -> String {
        let mut text = format!("# {}\n", self.name);
        for (floor, row) in self.floors.from_below.iter().enumerate() {
            for module in row {
                let uses = self.arrows.keys().filter(|(from, _)| from == module);
                let uses: Vec<String> = uses.map(|(_, to)| format!("{to} {}", self.placed[to])).collect();
                text.push_str(&format!("# {floor} {module}: {}\n", uses.join(", ")));
            }
        }
        let mut climbs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        // Of a circle the arrow that closes it is listed, so that each one listed is needed.
        let mut level = Vec::new();
        for &(from, to) in self.arrows.keys() {
            let (start, end) = (self.placed[from], self.placed[to]);
            if start < end || (start == end && way(&level, to, from).is_some()) {
                climbs.entry(from).or_default().push(to);
            } else if start == end {
                level.push((from, to));
            }
        }
        if !climbs.is_empty() {
            text.push_str(&format!("[floors.{}.climbs]\n", self.name));
        }
        for (from, list) in climbs {
            text.push_str(&format!("{from:?} = {list:?}\n"));
        }
        text.push('\n');
        text
    }
}

/// Circles of modules that lie side by side in another one. The table names the outer one only, as a rule.
fn circles_within(package: &str, modules: &Modules) -> Vec<Finding> {
    let arrows: BTreeMap<(&str, &str), &(String, usize)> =
        modules.drawn.iter().filter_map(|((from, to), place)| Some((siblings(from, to)?, place))).collect();
    let all: Vec<(&str, &str)> = arrows.keys().copied().collect();
    let mut findings = Vec::new();
    for (&(from, to), (file, line)) in &arrows {
        if let Some(back) = way(&all, to, from) {
            let what = format!("{package}: module {from} may not use {to}: a circle: {from} → {}", back.join(" → "));
            findings.push(Finding::new(file, *line, what));
        }
    }
    findings
}

/// The two modules side by side in a third one that these are or lie in: `a::b::x` and `a::c` lie in `a::b` and `a::c`. `None`
/// where one lies in the other, or the crate alone holds both.
fn siblings<'a>(from: &'a str, to: &'a str) -> Option<(&'a str, &'a str)> {
    let common = from.split("::").zip(to.split("::")).take_while(|(from, to)| from == to).count();
    let with_one_more = |module: &'a str| {
        let end = module.match_indices("::").nth(common).map_or(module.len(), |(at, _)| at);
        (module.split("::").count() > common).then(|| &module[..end])
    };
    if common == 0 { None } else { Some((with_one_more(from)?, with_one_more(to)?)) }
}

/// The name under which the table has a module: its own, or that of the nearest one above it.
fn listed<'a>(placed: &Placed<'a>, module: &str) -> Option<&'a str> {
    let mut name = module;
    loop {
        if let Some((listed, _)) = placed.get_key_value(name) {
            return Some(listed);
        }
        name = &name[..name.rfind("::")?];
    }
}

/// The shortest way from one module to another along these arrows, both ends named.
fn way<'a>(arrows: &[(&'a str, &'a str)], from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let end = way[way.len() - 1];
            if end == to {
                return Some(way);
            }
            for (_, next) in arrows.iter().filter(|(start, _)| *start == end) {
                if seen.insert(next) {
                    longer.push(way.iter().copied().chain([*next]).collect());
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Crate `a` with modules that use others: `x: y z, y:`.
    fn said(uses: &str, table: &str) -> Vec<String> {
        let mut files = vec![("crates/a/Cargo.toml".to_owned(), "[package]\nname = \"a\"\n".to_owned())];
        for row in uses.split(", ").map(|row| format!("{row} ")) {
            let (module, used) = row.split_once(": ").unwrap();
            let text: String = used.split_whitespace().map(|to| format!("use crate::{to}::T;\n")).collect();
            files.push((format!("crates/a/src/{}.rs", module.replace("::", "/")), text));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let floors = toml::from_str(&format!("[a]\n{table}")).unwrap();
        check(&Tree::sample(&files), &floors).into_iter().map(|finding| finding.what).collect()
    }

    const UP: &str = "a: module x may not use y: an arrow leads down, not from floor 0 to floor 1";

    #[test]
    fn arrows_lead_down() {
        assert!(said("x:, y: x", "from_below = [['x'], ['y']]").is_empty());
        assert_eq!(said("x: y, y:", "from_below = [['x'], ['y']]"), [UP]);
        assert_eq!(said("x: y, y: x", "from_below = [['x'], ['y']]"), [UP]);
    }

    #[test]
    fn a_floor_has_no_circle() {
        assert!(said("x: y, y: z, z:", "from_below = [['x', 'y', 'z']]").is_empty());
        let circle = said("x: y, y: z, z: x, w: x", "from_below = [['x', 'y', 'z', 'w']]");
        assert_eq!(circle.len(), 3, "{circle:?}");
        assert_eq!(circle[0], "a: module x may not use y: a circle on floor 0: x → y → z → x");
        // The way back leads over another floor: the arrow that climbs is the broken one.
        assert_eq!(
            said("x: z, y: x, z: y", "from_below = [['x', 'y'], ['z']]"),
            ["a: module x may not use z: an arrow leads down, not from floor 0 to floor 1"]
        );
    }

    #[test]
    fn exceptions_are_exact() {
        let floors = "from_below = [['x', 'w'], ['y']]\n";
        assert!(said("x: y, y:, w:", &format!("{floors}climbs = {{ x = ['y'] }}")).is_empty());
        let gone = "a: the exception x → y is not needed: take it out of climbs";
        assert_eq!(said("x:, y:, w:", &format!("{floors}climbs = {{ x = ['y'] }}")), [gone]);
        // An arrow that leads down needs none, nor one within a floor without a circle.
        let needless = said("x: w, y: x, w:", &format!("{floors}climbs = {{ x = ['w'], y = ['x'] }}"));
        assert_eq!(needless.len(), 2, "{needless:?}");
        // One arrow of a circle is enough.
        assert!(said("x: w, w: x, y:", &format!("{floors}climbs = {{ w = ['x'] }}")).is_empty());
        let both = said("x: w, w: x, y:", &format!("{floors}climbs = {{ w = ['x'], x = ['w'] }}"));
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn modules_side_by_side_in_another_have_no_circle() {
        let table = "from_below = [['x']]";
        assert!(said("x: x::y x::z, x::y: x, x::z: x::y", table).is_empty(), "the outer one may be used");
        let circle = said("x:, x::y: x::z, x::z: x::w::v, x::w::v: x::y, x::w: x", table);
        assert_eq!(circle.len(), 3, "{circle:?}");
        assert_eq!(circle[0], "a: module x::w may not use x::y: a circle: x::w → x::y → x::z → x::w");
        assert_eq!(siblings("a::b", "a::b::c"), None);
        assert_eq!(siblings("a::b", "c"), None);
    }

    #[test]
    fn every_module_stands_on_one_floor() {
        assert_eq!(said("x:, y:", "from_below = [['x']]"), ["a: module y stands on no floor"]);
        assert_eq!(
            said("x:", "from_below = [['x', 'z'], ['x']]"),
            ["a: there is no module z", "a: module x stands on two floors"]
        );
        assert_eq!(check(&Tree::sample(&[]), &BTreeMap::new()), []);
        let tree = Tree::sample(&[("b/Cargo.toml", "[package]\nname = \"b\"\n"), ("b/src/x.rs", "")]);
        assert_eq!(check(&tree, &BTreeMap::new()), [Finding::new(TABLE, 1, "crate b has no floors")]);
    }

    #[test]
    fn a_module_below_another_may_have_a_floor_of_its_own() {
        let uses = "x: x::y, x::y:, x::z: x, w: x::z";
        assert_eq!(said(uses, "from_below = [['x::y'], ['x'], ['w']]"), Vec::<String>::new(), "x::z belongs to x");
        assert_eq!(
            said(uses, "from_below = [['x'], ['x::y'], ['w']]"),
            ["a: module x may not use x::y: an arrow leads down, not from floor 0 to floor 1"]
        );
    }
}
