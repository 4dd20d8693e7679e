//! Makes a red run small: parts of its plan are taken away for as long as the same law stays broken.

use super::plan::Plan;
use super::run::run;

/// Runs that are tried.
const RUNS_MAX: usize = 400;

/// A smaller plan that breaks the same law.
pub fn shrink(plan: &Plan, law: &str) -> Plan {
    let mut smallest = plan.clone();
    let mut runs = 0;
    loop {
        let before = smallest.clone();
        for smaller in candidates(&smallest) {
            runs += 1;
            if runs > RUNS_MAX {
                return smallest;
            }
            if run(&smaller).violation.is_some_and(|violation| violation.law == law) {
                smallest = smaller;
                break;
            }
        }
        if weight(&smallest) == weight(&before) {
            return smallest;
        }
    }
}

fn weight(plan: &Plan) -> usize {
    let turns: usize = plan.objects.iter().map(|object| object.turns.len()).sum();
    let hosts: usize = plan.hosts.iter().map(|host| host.connects.len() + host.names.len()).sum();
    usize::from(plan.disk.is_some()) + plan.connections.len() + plan.requests() + plan.events.len() + turns + hosts
}

/// Plans that lack something, those that lack most first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut without = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        if weight(&smaller) < weight(plan) {
            all.push(smaller);
        }
    };
    let many = plan.connections.len();
    if many > 3 {
        without(&|plan| plan.connections.truncate(many / 2));
        without(&|plan| drop(plan.connections.drain(..many / 2)));
    }
    without(&|plan| plan.disk = None);
    without(&|plan| plan.events.clear());
    without(&|plan| plan.hosts.iter_mut().for_each(|host| (host.connects, host.names) = Default::default()));
    without(&|plan| plan.objects.iter_mut().for_each(|object| object.turns.clear()));
    for at in 0..many {
        without(&|plan| drop(plan.connections.remove(at)));
    }
    for at in 0..plan.events.len() {
        without(&|plan| _ = plan.events.remove(at));
    }
    for at in 0..many {
        for step in (0..plan.connections[at].steps.len()).rev() {
            without(&|plan| drop(plan.connections[at].steps.remove(step)));
        }
    }
    for at in 0..plan.objects.len() {
        without(&|plan| plan.objects[at].turns.clear());
        without(&|plan| _ = plan.objects[at].turns.pop());
    }
    all
}
