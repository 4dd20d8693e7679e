// Applications in Python: their state, their processes, and what went wrong in them. Tracebacks are texts of strangers.

import { get } from "./api.js";
import { bytes, clock, fill, harmless, make, nothing, number, say, span, table, time } from "./words.js";

const byId = (id) => document.getElementById(id);

/** States with their tone and their meaning; a test compares the words with the server's. */
const STATES = {
  loading: ["other", "no process is ready yet, and requests wait"],
  serving: ["store", "serving"],
  "serving-old": ["fetched", "the newest version can't be loaded, and the one before goes on"],
  failed: ["failed", "it can't be loaded, and requests fail"],
};

const tone = (application) => STATES[application.state]?.[0] ?? "other";

/** More processes than this are folded. */
const PROCESSES_SHOWN = 8;

/** Letters of the line that names an exception where its traceback is folded. */
const SUMMARY_LETTERS = 240;

export class Applications {
  constructor(requests) {
    this.requests = requests;
    this.cards = new Map();
    this.known = false;
  }

  async enter() {
    const { applications } = await get("/scripts");
    this.announce(applications);
    const cards = applications.map((application) => {
      const key = JSON.stringify([application.name, application.python]);
      if (!this.cards.has(key)) this.cards.set(key, new Card(this.requests));
      const card = this.cards.get(key);
      card.show(application);
      return [key, card];
    });
    const place = byId("applications");
    const same = cards.length === this.cards.size && cards.every(([, card], at) => place.children[at] === card.element);
    this.cards = new Map(cards);
    // An element that is put in anew loses what was selected in it.
    if (!same) fill(place, ...(cards.length ? cards.map(([, card]) => card.element) : [nothing("No application is configured.")]));
  }

  refresh() {
    return this.enter();
  }

  /** Asks whether there are applications, for the link to this view. */
  async look() {
    this.announce((await get("/scripts?failures=0")).applications);
  }

  announce(applications) {
    this.known = applications.length > 0;
    const link = byId("to-applications");
    const appears = this.known && link.hidden;
    link.hidden = !this.known;
    if (appears && link.hasAttribute("aria-current")) link.scrollIntoView({ block: "nearest", inline: "nearest" });
    const worst = ["failed", "serving-old"].find((state) => applications.some((application) => application.state === state));
    link.dataset.tone = worst ? STATES[worst][0] : "";
    say(byId("applications-trouble"), worst ? ", one of them can't be loaded" : "");
  }
}

/** The panel of one application, whose parts change by themselves: what a reader has unfolded or selected stays. */
class Card {
  constructor(requests) {
    this.requests = requests;
    this.failures = new Map();
    this.name = make("h2", { class: "mono" });
    this.state = make("p", { class: "word" });
    this.about = make("p", { class: "note wrap" });
    this.figures = make("dl", { class: "strip" });
    this.summary = make("summary");
    this.processes = make("div", { class: "cards" });
    this.folder = make("details", { class: "fold", open: true }, this.summary, this.processes);
    this.hooks = make("section", { class: "cards hooks", hidden: true });
    this.failedAt = make("span", { class: "note" });
    this.trouble = make("div", { class: "trouble", hidden: true });
    this.list = make("div", { class: "failures" });
    this.errors = make("section", { hidden: true }, make("h3", {}, "Last failures"), this.list);
    this.element = make("article", { class: "panel application" },
      make("header", { class: "head" }, this.name, this.state), this.about, this.figures, this.trouble, this.hooks, this.folder, this.errors);
  }

  show(application) {
    const { name, python, folder, interpreter, version, state, loaded_at_millis: loaded, processes, processes_max: wanted, waiting, counts } = application;
    say(this.name, name);
    this.state.className = `word ${tone(application)}`;
    say(this.state, state);
    this.state.title = STATES[state]?.[1] ?? "";
    const age = loaded === null ? null : `loaded ${span(Math.max(0, Math.round((Date.now() - loaded) / 1000)))} ago`;
    say(this.about, [python && `[[python]] ${python}`, folder, interpreter, version && `Python ${version}`, age].filter(Boolean).map(harmless).join(" · "));
    const sum = (of) => processes.reduce((all, process) => all + (of(process) ?? 0), 0);
    fill(this.figures, ...[
      ["Requests", number(counts.requests)], ["Failures", number(counts.errors), counts.errors && "failed"], ["Under way", number(sum((it) => it.under_way))],
      ["Waiting", number(waiting), waiting && "fetched"], ["Processes", `${processes.length} of ${wanted}`, processes.length < wanted && "fetched"],
      ["Memory", processes.some((it) => it.memory_bytes !== null) ? bytes(sum((it) => it.memory_bytes)) : "–"],
    ].map(([word, value, kind]) => make("div", {}, make("dt", {}, word), make("dd", { class: kind || null }, value))));
    this.showHooks(application);
    this.showProcesses(application);
    this.showTrouble(application);
    this.showFailures(application.failures);
  }

  /** Each hook with its calls and how long they take. */
  showHooks({ hooks }) {
    this.hooks.hidden = !hooks.length;
    // Counted times are known by the upper bound of their bucket; the last bucket has none.
    const bound = (micros, calls) => (micros !== null ? `≤\u00a0${time(micros)}` : calls ? "beyond" : "–");
    const mean = (micros) => (micros === null ? "–" : micros < 100 ? `${micros.toFixed(1)}\u00a0µs` : time(Math.round(micros)));
    const failures = (many) => (many ? make("span", { class: "failed" }, number(many)) : "0");
    fill(this.hooks, table("Hooks", [
      { title: "hook", kind: "w" }, { title: "stage", kind: "named" }, { title: "calls", kind: "n named" }, { title: "failed", kind: "n named" }, { title: "late", kind: "n named" }, { title: "ended", kind: "n named" },
      { title: "mean", kind: "n named" }, { title: "median", kind: "n named" }, { title: "p99", kind: "n named" },
    ], hooks.map((hook) => [
      make("span", { class: "hook" }, make("b", {}, harmless(hook.name)), " ", make("span", { class: "note mono" }, harmless(`${hook.script}:${hook.line}`))), hook.stage,
      number(hook.calls), failures(hook.failed), failures(hook.late), failures(hook.ended), mean(hook.mean_micros), bound(hook.median_micros, hook.calls), bound(hook.p99_micros, hook.calls),
    ])));
  }

  showProcesses({ processes, counts }) {
    const ends = [["started", counts.started], ["ended by themselves", counts.ended], ["ended because they hung", counts.hung], ["ended because their connections broke", counts.broken]];
    say(this.summary, `Processes: ${ends.filter(([, many], at) => many || !at).map(([word, many]) => `${number(many)} ${word}`).join(", ")}`);
    this.folder.hidden = !processes.length;
    if (processes.length > PROCESSES_SHOWN && !this.processes.childElementCount) this.folder.open = false;
    fill(this.processes, table("Processes", [
      { title: "process", kind: "w" }, { title: "requests under way", kind: "n named" }, { title: "memory", kind: "n named" }, { title: "CPU time", kind: "n named" }, { title: "serves for", kind: "n named" },
    ], processes.map((process) => [
      make("b", {}, String(process.pid)), `${number(process.under_way)} of ${number(process.requests_max)}`, process.memory_bytes === null ? "–" : bytes(process.memory_bytes),
      process.cpu_millis === null ? "–" : time(process.cpu_millis * 1000) || "0", span(process.age_seconds),
    ])));
  }

  showTrouble({ load_failure: failure, late_load: late, processes, state }) {
    // A version that is tried again fails at another time by the same traceback.
    const key = failure || late ? JSON.stringify([failure?.hint, failure?.traceback, late, state, processes.length > 0]) : "";
    const at = failure?.at_millis ?? late?.since_millis;
    say(this.failedAt, at ? ` ${clock(at)}` : "");
    if (this.shownTrouble === key) return;
    this.shownTrouble = key;
    this.trouble.hidden = !failure && !late;
    this.trouble.classList.toggle("failed", !processes.length);
    if (!failure && late) {
      const goes = { loading: "Requests wait for it.", failed: "Requests fail." }[state] ?? "What serves goes on.";
      return fill(this.trouble, make("h3", {}, `A version is imported still. ${goes}`, this.failedAt), trace(late.place));
    }
    if (!failure) return fill(this.trouble);
    const what = processes.length ? "The newest version can't be loaded. The one before goes on." : "It can't be loaded, and requests fail.";
    fill(this.trouble,
      make("h3", {}, what, this.failedAt),
      ...(failure.hint ? [make("p", { class: "wrap" }, harmless(failure.hint))] : []), trace(failure.traceback));
  }

  /** The newest first. */
  showFailures(failures) {
    this.errors.hidden = !failures.length;
    const key = (failure) => `${failure.at_millis} ${failure.request} ${failure.target}`;
    const keys = new Set(failures.map(key));
    for (const [old, element] of this.failures) {
      if (keys.has(old)) continue;
      element.remove();
      this.failures.delete(old);
    }
    for (const failure of failures) {
      if (this.failures.has(key(failure))) continue;
      const element = this.failure(failure);
      this.failures.set(key(failure), element);
      this.list.prepend(element);
    }
  }

  failure({ at_millis: at, request, method, target, traceback }) {
    const explain = () => this.requests.explain({ id: request });
    return make("details", { class: "fold" },
      make("summary", {}, make("span", { class: "s" }, clock(at)), make("b", { class: "mono" }, harmless(`${method} ${target}`)), make("span", { class: "what mono" }, harmless(exception(traceback).slice(0, SUMMARY_LETTERS)))),
      trace(traceback),
      request ? make("div", { class: "buttons" }, make("button", { type: "button", class: "quiet", onclick: explain }, "How the request was decided")) : null);
  }
}

/** The line that names the exception: the first one behind the frames, for its message may have further lines. */
function exception(traceback) {
  const lines = traceback.trimEnd().split("\n");
  const frame = lines.findLastIndex((line) => line.startsWith("  File "));
  return lines.slice(frame + 1).find((line) => /^\S/.test(line)) ?? lines.at(-1);
}

/** A traceback: text that can be selected, and scrolled by keyboard. */
const trace = (text) => make("pre", { class: "trace", tabindex: "0", role: "region", "aria-label": "Traceback" }, harmless(text.trimEnd()));
