// The store browser: search by the beginning of a URL, see a stored head, purge.

import { get, post } from "./api.js";
import { bytes, fill, link, make, nothing, number, say, span, table } from "./words.js";

const byId = (id) => document.getElementById(id);

const LIMIT = 100;

export class Store {
  constructor(house) {
    this.house = house;
    this.prefix = "";
    this.form = byId("search");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      location.hash = `#store?${new URLSearchParams({ prefix: this.form.prefix.value.trim() })}`;
    });
    byId("purge-prefix").addEventListener("click", () => this.purgePrefix());
  }

  async enter(query) {
    this.prefix = query.get("prefix") ?? "";
    this.form.prefix.value = this.prefix;
    await this.search();
  }

  async search() {
    const asked = this.prefix;
    const listing = await get(`/store/objects?${new URLSearchParams({ prefix: asked, limit: LIMIT })}`);
    if (asked !== this.prefix) return;
    const more = listing.found > listing.items.length ? `, the first ${number(listing.items.length)} are shown` : "";
    const cut = listing.complete ? "" : " Not everything on disk was looked at: give more of the URL.";
    say(byId("found"), `${number(listing.found)} ${listing.found === 1 ? "response" : "responses"}${more}.${cut}`);
    this.matches = listing.items;
    byId("purge-prefix").disabled = !asked || !listing.items.length;
    fill(byId("objects"), listing.items.length ? this.table(listing.items) : nothing(asked ? "Nothing that is stored begins so." : "Nothing is stored yet."));
    byId("objects").className = "cards";
  }

  table(items) {
    return table("Stored responses", [
      { title: "URL", kind: "w" }, { title: "status", kind: "n" }, { title: "type", kind: "s" }, { title: "size", kind: "n" },
      { title: "fresh for", kind: "n named" }, { title: "age", kind: "n named" }, { title: "where", kind: "s" },
    ], items.map((item) => [
      link(item.url, { onclick: () => this.open(item) }), String(item.status), item.content_type.split(";")[0], long(item), fresh(item), span(item.age_seconds), where(item),
    ]));
  }

  async open(item) {
    const opened = await get(`/store/object?${new URLSearchParams({ key: item.key })}`).catch((error) => this.house.toast(error.message));
    if (!opened) return;
    const parts = opened.length ? opened.map((each, at) => this.variant(each, at, opened.length)) : [nothing("It has left the store meanwhile.")];
    const buttons = make("div", { class: "buttons" },
      make("button", { type: "button", class: "danger", onclick: () => this.purge(item.url) }, "Purge…"));
    this.house.open(item.url, ...parts, buttons);
  }

  variant({ response, fields }, at, all) {
    const facts = [
      ["Status", String(response.status)], ["Size", long(response)], ["Fresh for", fresh(response)], ["Age", span(response.age_seconds)],
      ["Arrived", response.received], ["Lies", where(response)], ["Chosen by", response.vary.join(", ")], ["For the site", response.site],
    ].filter(([, value]) => value);
    return make("section", {},
      all > 1 ? make("h3", {}, `Variant ${at + 1} of ${all}`) : null,
      make("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
      make("h3", {}, "Stored head"),
      make("dl", { class: "facts mono" }, ...fields.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
  }

  async purge(url) {
    const text = "All variants of this URL are forgotten, also after a restart. The next request asks the origin.";
    if (await this.house.confirm("Purge this URL?", text, url)) await this.done(`/purge?${new URLSearchParams({ url })}`);
  }

  async purgePrefix() {
    // A rule needs the scheme, which a search may leave out.
    const schemes = new Set(this.matches.map((item) => item.url.split("://")[0]));
    const begins = /^https?:\/\//.test(this.prefix) ? [this.prefix] : [...schemes].map((scheme) => `${scheme}://${this.prefix}`);
    const text = "Everything whose URL begins so is forgotten, also what this list does not show. The next requests ask the origin.";
    if (!await this.house.confirm("Purge all of these?", text, begins.join(" "))) return;
    for (const prefix of begins) await this.done(`/purge?${new URLSearchParams({ prefix })}`);
  }

  async done(path) {
    try {
      const report = await post(path);
      this.house.toast(report.count === null ? "Purged." : `Purged: ${number(report.count)} stored ${report.count === 1 ? "response" : "responses"}.`);
      this.house.close();
      await this.search();
    } catch (error) {
      this.house.toast(error.message);
    }
  }
}

const long = (item) => item.bytes !== null && item.bytes !== item.bytes_here ? `${bytes(item.bytes_here)} of ${bytes(item.bytes)}` : bytes(item.bytes_here);
const fresh = (item) => item.fresh_seconds ? span(item.fresh_seconds) : "stale";
const where = (item) => [item.in_memory && "memory", item.on_disk && "disk"].filter(Boolean).join(", ");
