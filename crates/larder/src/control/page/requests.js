// The last requests: a short list on the first view, a long one with filters, and the explanation of one.

import { get } from "./api.js";
import { CAUSES, OUTCOMES, bytes, clock, fill, link, make, nothing, number, prose, say, table, time, tone } from "./words.js";

const byId = (id) => document.getElementById(id);

/** Rows that are shown, and requests that are remembered of the events. */
const LATEST = 8;
const LISTED = 100;

/** The sentence before each step of an explanation. */
const STEPS = {
  listener: "Came in at", rule: "Served by", key: "Looked up as", asks: "The client asks", stored: "Stored", fresh: "Freshness",
  absent: "Nothing usable", followed: "Waited", origin: "The origin was asked", kept: "Kept", answer: "Answered",
};

const STEP_TONES = { origin: "fetched", absent: "fetched", followed: "store", kept: "store" };

export class Requests {
  constructor(house) {
    this.house = house;
    this.recent = [];
    this.known = false;
    this.form = byId("filter");
    byId("requests").className = byId("latest").className = "cards";
    const options = (words) => Object.entries(words).map(([word, about]) => make("option", { value: word, title: about }, word));
    this.form.outcome.append(...options(OUTCOMES));
    this.form.cause.append(...options(CAUSES));
    this.form.addEventListener("input", () => this.search());
    this.form.addEventListener("submit", (event) => event.preventDefault());
  }

  enter(query) {
    for (const name of ["host", "outcome", "cause"]) this.form[name].value = query.get(name) ?? "";
    return this.search();
  }

  /** Asks for the list anew. */
  async search() {
    const wanted = this.wanted();
    const { requests, kept } = await get(`/requests?${new URLSearchParams({ ...wanted, limit: LISTED })}`);
    if (JSON.stringify(wanted) !== JSON.stringify(this.wanted())) return;
    this.recent = requests;
    say(byId("kept"), `${number(kept)} requests are remembered, ${requests.length < LISTED ? number(requests.length) : `the last ${LISTED}`} of them fit.`);
    this.list();
  }

  wanted() {
    const fields = ["host", "outcome", "cause"].map((name) => [name, this.form[name].value.trim().toLowerCase()]);
    return Object.fromEntries(fields.filter(([, value]) => value));
  }

  /** Takes in a request that just ended. */
  arrived(request) {
    const fits = Object.entries(this.wanted()).every(([name, value]) => request[name] === value);
    if (!fits || !this.form.live.checked) return;
    this.recent.unshift(request);
    this.recent.length = Math.min(this.recent.length, LISTED);
  }

  /** Draws what is known, unless somebody is about to choose a row. */
  list() {
    draw(byId("requests"), "Requests", this.recent, "No request fits.", (request) => this.explain(request));
  }

  tick() {
    if (this.form.live.checked) this.list();
  }

  /** The short list of the first view. */
  async begin() {
    this.recent = (await get(`/requests?limit=${LISTED}`)).requests;
    this.known = true;
    this.latest();
  }

  latest() {
    draw(byId("latest"), "Latest requests", this.recent.slice(0, LATEST), this.known ? "No requests yet." : "Loading …", (request) => this.explain(request));
  }

  /** Shows how a request was decided. */
  async explain(request) {
    try {
      const { request: known, says, steps } = await get(`/requests/${encodeURIComponent(request.id)}`);
      const facts = [
        ["Answer", word({ ...known, cause: null })], ["Because", known.cause && `${known.cause}: ${CAUSES[known.cause] ?? ""}`], ["Status", String(known.status)],
        ["Sent", `${bytes(known.bytes)}${known.complete ? "" : ", not to its end"}`], ["Took", time(known.micros)],
        ["At", new Date(known.at_millis).toLocaleString("en-GB")], ["Client", known.client], ["Name", make("code", {}, known.id)],
      ].filter(([, value]) => value);
      this.house.open(`${known.method} ${known.url}`,
        make("p", { class: "lead" }, ...prose(says)),
        make("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
        make("h3", {}, "How it was decided"),
        make("ol", { class: "steps" }, ...steps.map((step) => make("li", { class: step.step === "answer" ? tone(known.outcome) : STEP_TONES[step.step] },
          make("b", {}, STEPS[step.step] ?? step.step), make("span", { class: "wrap" }, ...prose(step.says))))),
        make("div", { class: "buttons" }, make("button", { type: "button", onclick: () => this.find(known.url) }, "Find it in the store")));
    } catch (error) {
      this.house.toast(error.message);
    }
  }

  find(url) {
    location.hash = `#store?${new URLSearchParams({ prefix: url })}`;
  }
}

const word = (request) => make("span", { class: `word ${tone(request.outcome)}`, title: CAUSES[request.cause] ?? OUTCOMES[request.outcome] ?? null }, (request.outcome === "failed" ? null : request.cause) ?? request.outcome);

function draw(place, caption, requests, none, choose) {
  if (place.matches(":hover") || place.contains(document.activeElement)) return;
  fill(place, requests.length ? table(caption, [
    { title: "time", kind: "s" }, { title: "outcome", kind: "s" }, { title: "request", kind: "w" }, { title: "status", kind: "n" }, { title: "sent", kind: "n" }, { title: "took", kind: "n" },
  ], requests.map((request) => [
    clock(request.at_millis), word(request), link(request.url || "(no request)", { onclick: () => choose(request) }, "button", request.method),
    String(request.status), bytes(request.bytes), time(request.micros),
  ])) : nothing(none));
}
