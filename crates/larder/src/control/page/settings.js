// Plain tables: the origins with their connections, lists of hosts and networks, and the settings that hold.

import { get } from "./api.js";
import { bytes, clock, fill, harmless, make, nothing, number, percent, span, table, time } from "./words.js";

const byId = (id) => document.getElementById(id);

/** States of a member that are trouble, and those in which it gets a part of its share. */
const OUT = ["ejected", "down"];
const PARTLY = ["slow-start", "suspect", "trial", "draining", "maintenance"];

function state(member) {
  const tone = OUT.includes(member.state) ? "failed" : PARTLY.includes(member.state) ? "fetched" : "store";
  const left = member.ejected_millis === null ? "" : `, ${Math.ceil(member.ejected_millis / 1000)} s left`;
  const share = member.state === "slow-start" ? `, ${percent(member.share, 1)} of its share` : "";
  return make("b", { class: `word ${tone}` }, `${member.state}${left}${share}`);
}

/** A group of origins: its members, one a row. */
function group(of) {
  const about = `${of.balance}, ${number(of.requests)} requests, ${number(of.retries)} retries, ${number(of.hedges)} hedges`;
  const members = table(`Members of ${of.name}`, [
    { title: "member", kind: "w" }, { title: "state", kind: "named" }, { title: "weight", kind: "n named" }, { title: "under way", kind: "n named" },
    { title: "response", kind: "n named" }, { title: "requests", kind: "n named" }, { title: "failures", kind: "n named" }, { title: "ejections", kind: "n named" },
  ], of.members.map((member) => [
    make("b", {}, member.backup ? `${member.name} (backup)` : member.name), state(member), number(member.weight), number(member.under_way),
    member.response_micros === null ? "–" : time(member.response_micros), number(member.requests),
    member.failures ? make("b", { class: "word failed" }, number(member.failures)) : number(member.failures), number(member.ejections),
  ]));
  return make("div", {}, make("h2", { class: "mono" }, of.name), make("p", { class: "note" }, about), members);
}

/** Parents and siblings, one a row. */
function neighbours({ parents, siblings }) {
  const word = (tone, text) => make("b", { class: `word ${tone}` }, text);
  const state = (parent) => (parent.state === "up" ? word("store", "up") : word("failed", `left out, ${Math.ceil(parent.rests_millis / 1000)} s left`));
  const bad = (count) => (count ? word("failed", number(count)) : number(count));
  return table("Neighbours", [
    { title: "neighbour", kind: "name" }, { title: "state", kind: "named" }, { title: "opened", kind: "n named" }, { title: "failed", kind: "n named" },
    { title: "refused", kind: "n named" }, { title: "left out", kind: "n named" }, { title: "URL", kind: "wrap" },
  ], [
    ...parents.map((parent) => [
      make("b", {}, `parent ${parent.name}`), state(parent), number(parent.opened), bad(parent.failed), number(parent.refused), number(parent.left_out), parent.url,
    ]),
    ...siblings.map((sibling) => [make("b", {}, `sibling ${sibling.name}`), "–", "–", "–", "–", "–", sibling.url]),
  ]);
}

export class Upstreams {
  async enter() {
    byId("upstreams").className = "cards";
    const [{ upstream }, { groups }, known] = await Promise.all([get("/stats"), get("/origins"), get("/neighbours")]);
    byId("neighbours").className = "cards";
    byId("neighbours-panel").hidden = known.parents.length + known.siblings.length === 0;
    fill(byId("neighbours"), neighbours(known));
    byId("groups").className = "cards";
    byId("groups-panel").hidden = groups.length === 0;
    fill(byId("groups"), ...(groups.length ? groups.map(group) : [nothing("No group of origins is configured.")]));
    const used = upstream.filter((row) => row.opened + row.reused + row.failed + row.open > 0);
    fill(byId("upstreams"), used.length ? table("Origins", [
      { title: "origin", kind: "w" }, { title: "requests", kind: "n named" }, { title: "on a kept connection", kind: "n named" }, { title: "open", kind: "n named" },
      { title: "idle", kind: "n named" }, { title: "by HTTP/2", kind: "n named" }, { title: "waiting", kind: "n named" }, { title: "failed to open", kind: "n named" }, { title: "spoke out of turn", kind: "n named" },
    ], used.map((row) => {
      const requests = row.opened + row.reused;
      const failed = row.failed ? make("b", { class: "word failed" }, number(row.failed)) : number(row.failed);
      return [make("b", {}, row.origin), number(requests), percent(row.reused, requests), number(row.open), number(row.idle), number(row.http2_requests), number(row.waiting), failed, number(row.desynchronised)];
    })) : nothing("No origin was asked yet."));
  }

  refresh() {
    return this.enter();
  }
}

/** States of a list with their tone. */
const LIST_TONES = { loading: "other", good: "store", stale: "fetched", failed: "failed" };

export class Settings {
  constructor() {
    this.all = [];
    this.form = byId("narrow");
    this.form.addEventListener("input", () => this.show());
    this.form.addEventListener("submit", (event) => event.preventDefault());
  }

  async enter() {
    this.all = await get("/config");
    this.show();
    await Promise.all([this.showLists(), this.showRefusals()]);
  }

  /** The rules that refused requests. */
  async showRefusals() {
    const { refused_by_rule: rules } = await get("/stats");
    byId("refused-panel").hidden = !rules.length;
    byId("refused").className = "cards";
    fill(byId("refused"), ...(rules.length ? [table("Requests that rules refused", [
      { title: "rule", kind: "wrap" }, { title: "refused", kind: "n named" }, { title: "the last one", kind: "n named" },
    ], rules.slice(0, 20).map((rule) => [make("b", {}, harmless(rule.rule)), number(rule.count), clock(rule.last * 1000)]))] : [nothing("No rule refused a request.")]));
  }

  /** Lists of `[[list]]`. Their errors name what strangers' servers said. */
  async showLists() {
    const { lists } = await get("/lists");
    byId("lists-panel").hidden = !lists.length;
    byId("lists").className = "cards";
    const ago = (seconds) => (seconds === null ? "–" : `${span(seconds)} ago`);
    fill(byId("lists"), ...(lists.length ? [table("Lists", [
      { title: "list", kind: "name" }, { title: "state", kind: "s" }, { title: "entries", kind: "n named" }, { title: "memory", kind: "n named" },
      { title: "looked at", kind: "n named" }, { title: "malformed", kind: "n named" }, { title: "source", kind: "wrap" },
    ], lists.map((list) => [
      make("b", {}, list.name), make("b", { class: `word ${LIST_TONES[list.state] ?? "other"}` }, list.state), number(list.entries), bytes(list.memory_bytes),
      ago(list.checked_seconds), number(list.malformed), harmless(list.error ? `${list.source}: ${list.error}` : list.source),
    ]))] : [nothing("No list is configured.")]));
  }

  show() {
    const word = this.form.word.value.trim().toLowerCase();
    const kept = this.all.filter((each) => each.name.includes(word) && (!this.form.changed.checked || !(each.said === "default" || each.said.startsWith("computed: "))));
    byId("settings").className = "cards";
    fill(byId("settings"), kept.length ? table("Settings in force", [
      { title: "setting", kind: "name" }, { title: "value", kind: "wrap mono" }, { title: "said at", kind: "wrap" }, { title: "changes at a", kind: "s" },
    ], kept.map((each) => [
      make("b", {}, each.name), each.value, each.said === "default" ? make("span", { class: "note" }, "default") : each.said, each.changes_at,
    ])) : nothing("No setting fits."));
  }
}
