//! The dashboard and the alerts that are shipped: each metric, outcome and cause in them exists, and `docs/watching.md` explains each alert.

use larder::control::families;
use larder::record::{CLASSES, Cause};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

/// A series of Prometheus' own.
const UP: &str = "up";

fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

fn rules() -> Vec<Yaml> {
    let text = file("packaging/prometheus/larder.rules.yml");
    let groups = YamlLoader::load_from_str(&text).unwrap();
    groups[0]["groups"].as_vec().unwrap().iter().flat_map(|group| group["rules"].as_vec().unwrap().clone()).collect()
}

/// All expressions of the dashboard, those of variables and annotations too.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if ["expr", "definition"].contains(&name.as_str()) => found.push(text.to_owned()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// The names of series: words with `_` that begin as those of Larder and of its process do.
fn series(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("larder_") || word.starts_with("process_")).collect()
}

fn are_known(expression: &str, place: &str) {
    let known = |name: &str| {
        families().any(|family| match family.kind {
            "histogram" => ["_bucket", "_sum", "_count"].iter().any(|end| name.strip_suffix(end) == Some(family.name)),
            _ => family.name == name,
        })
    };
    let series = series(expression);
    assert!(!series.is_empty() || expression.starts_with(UP), "{place} asks for no metric: {expression}");
    for name in series {
        assert!(known(name), "{place}: there is no metric {name}");
    }
    for (label, words) in [("outcome", CLASSES.to_vec()), ("cause", Cause::ALL.iter().map(|it| it.as_str()).collect())]
    {
        for values in expression.split(&format!("{label}=")).skip(1) {
            let values = values.trim_start_matches('~').trim_start_matches('"').split('"').next().unwrap();
            for value in values.split('|') {
                assert!(words.contains(&value), "{place}: {value} is no {label}");
            }
        }
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&file("packaging/grafana/larder.json")).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 30, "{} expressions", found.len());
    found.iter().for_each(|expression| are_known(expression, "packaging/grafana/larder.json"));
    let ids: Vec<_> = dashboard["panels"].as_array().unwrap().iter().map(|panel| panel["id"].to_string()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "panels share a number");
}

#[test]
fn alerts_ask_for_metrics_that_exist_and_are_explained() {
    let guide = file("docs/watching.md");
    let explained: BTreeSet<&str> = guide.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let mut alerts = BTreeSet::new();
    let rules = rules();
    for rule in &rules {
        let name = rule["alert"].as_str().unwrap();
        are_known(rule["expr"].as_str().unwrap(), name);
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(rule["annotations"]["summary"].as_str().is_some(), "{name} has no summary");
        assert!(alerts.insert(name), "{name} is there twice");
    }
    assert_eq!(alerts, explained, "docs/watching.md explains each alert, and no other");
}
