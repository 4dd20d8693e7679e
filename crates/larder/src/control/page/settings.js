// Two plain tables: the origins with their connections, and the settings that hold.

import { get } from "./api.js";
import { fill, make, nothing, number, percent, table } from "./words.js";

const byId = (id) => document.getElementById(id);

export class Upstreams {
  async enter() {
    byId("upstreams").className = "cards";
    const { upstream } = await get("/stats");
    const used = upstream.filter((row) => row.opened + row.reused + row.failed + row.open > 0);
    fill(byId("upstreams"), used.length ? table("Origins", [
      { title: "origin", kind: "w" }, { title: "requests", kind: "n named" }, { title: "on a kept connection", kind: "n named" }, { title: "open", kind: "n named" },
      { title: "idle", kind: "n named" }, { title: "waiting", kind: "n named" }, { title: "failed to open", kind: "n named" }, { title: "spoke out of turn", kind: "n named" },
    ], used.map((row) => {
      const requests = row.opened + row.reused;
      const failed = row.failed ? make("b", { class: "word failed" }, number(row.failed)) : number(row.failed);
      return [make("b", {}, row.origin), number(requests), percent(row.reused, requests), number(row.open), number(row.idle), number(row.waiting), failed, number(row.desynchronised)];
    })) : nothing("No origin was asked yet."));
  }

  refresh() {
    return this.enter();
  }
}

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
