// The first view: what happens now, what is hot, what misses and why.

import { get } from "./api.js";
import { Layers, Spark } from "./charts.js";
import { CAUSES, bytes, clock, figure, fill, link, make, nothing, number, percent, say, share, size, table, within } from "./words.js";

const byId = (id) => document.getElementById(id);

const all = (second) => second.from_store + second.fetched + second.other + second.failed;
const sum = (seconds, of) => seconds.reduce((total, second) => total + of(second), 0);

const LAYERS = [
  { tone: "store", name: "from the store", of: (second) => second.from_store },
  { tone: "fetched", name: "fetched", of: (second) => second.fetched },
  { tone: "other", name: "own, tunnels", of: (second) => second.other },
  { tone: "failed", name: "failed", of: (second) => second.failed },
];

const WORDS = {
  one: (second) => [
    make("b", {}, clock(second.at * 1000)),
    ...LAYERS.map(({ name, of }) => make("span", {}, `${name} `, make("i", { class: "mono" }, number(of(second))))),
  ],
  all(seconds) {
    const requests = sum(seconds, all);
    const stored = percent(sum(seconds, LAYERS[0].of), requests);
    return `Requests per second lately: ${number(requests)} requests, ${stored} from the store, ${number(sum(seconds, LAYERS[3].of))} failed. Arrow keys read single seconds.`;
  },
};

/** How many seconds the large numbers are the mean of: steady enough to read, quick enough to follow. */
const CALM = 5;

const KEPT = 300;

export class Now {
  constructor(requests, house) {
    this.requests = requests;
    this.house = house;
    this.seconds = [];
    document.addEventListener("visibilitychange", () => this.draw());
    this.traffic = new Layers(byId("traffic"), LAYERS, WORDS);
    this.sparks = Object.fromEntries(
      [["rate", "other"], ["ratio", "store"], ["saved", "store"], ["median", "other"]].map(([name, tone]) => [name, new Spark(byId(`${name}-spark`), tone)]),
    );
  }

  begin(seconds) {
    this.seconds = seconds;
  }

  async enter() {
    this.draw();
    await Promise.all([this.refresh(), this.requests.begin()]);
  }

  /** Takes over a second. */
  tick(value) {
    const last = this.seconds.at(-1);
    if (value.second.at && last?.at !== value.second.at) this.seconds.push(value.second);
    this.seconds.splice(0, this.seconds.length - KEPT);
    this.value = value;
    this.draw();
  }

  /** Draws what is known, where somebody sees it. */
  draw() {
    if (!this.value || document.hidden || byId("view-now").hidden) return;
    byId("behind").hidden = !this.value.behind.length;
    say(byId("behind"), this.value.behind.join(" "));
    this.tiles(this.value);
    this.traffic.draw(this.seconds);
    this.room(this.value);
    this.causes(this.value.window);
    this.requests.latest();
  }

  tiles(value) {
    const { window } = value;
    const calm = this.seconds.slice(-CALM);
    const rate = sum(calm, all) / Math.max(calm.length, 1);
    figure(byId("rate"), [rate < 10 && rate > 0 ? rate.toFixed(1) : number(rate), ""]);
    say(byId("rate-beside"), `${number(value.requests)} since the start`);
    figure(byId("ratio"), share(window.from_store, window.requests));
    const moved = window.bytes_from_store + window.bytes_fetched;
    say(byId("ratio-beside"), `of requests · ${percent(window.bytes_from_store, moved)} of bytes`);
    figure(byId("saved"), size(value.bytes_from_store));
    say(byId("saved-beside"), `${bytes(sum(calm, (second) => second.bytes_from_store) / Math.max(calm.length, 1))}/s now, ${bytes(value.bytes_fetched)} fetched`);
    figure(byId("median"), within(window.median_micros));
    say(byId("median-beside"), `median · 90\u00a0% ${within(window.p90_micros).join("\u00a0")} · 99\u00a0% ${within(window.p99_micros).join("\u00a0")}`);
    this.sparks.rate.draw(this.seconds.map(all));
    this.sparks.ratio.draw(this.smooth((second) => second.from_store, all).map((part) => part === null ? null : part * 100), 104);
    this.sparks.saved.draw(this.seconds.map((second) => second.bytes_from_store));
    this.sparks.median.draw(this.seconds.map((second) => all(second) ? second.median_micros : null));
  }

  /** A share over the last seconds before each second, so that a quiet second does not fall to nothing; `null` without any. */
  smooth(part, whole) {
    return this.seconds.map((_, at) => {
      const near = this.seconds.slice(Math.max(0, at - 9), at + 1);
      const requests = sum(near, whole);
      return requests ? sum(near, part) / requests : null;
    });
  }

  room(value) {
    const { window } = value;
    fill(byId("room"),
      gauge("Memory", value.memory_bytes, value.memory_bytes_max),
      value.disk_bytes_max ? gauge("Disk", value.disk_bytes, value.disk_bytes_max) : null,
      make("dl", { class: "facts" },
        ...fact("In memory", `${number(value.objects)} objects`),
        ...(value.disk_bytes_max ? fact("On disk", `${number(value.disk_objects)} objects`) : []),
        ...fact("Made room for others", number(value.evictions)),
        ...fact("Connections", number(value.connections)),
        make("dt", {}, "Errors, last five minutes"),
        make("dd", { class: window.failed ? "failed" : null }, number(window.failed)),
      ));
  }

  causes(window) {
    const causes = Object.entries(window.causes).sort((a, b) => b[1] - a[1]).slice(0, 6);
    const most = causes[0]?.[1] ?? 0;
    const misses = causes.reduce((total, [, many]) => total + many, 0);
    const rows = causes.map(([cause, many]) => shareOf(
      [make("b", {}, cause), " ", make("span", {}, CAUSES[cause] ?? "")], `${number(many)} · ${percent(many, misses)}`, many / most, "fetched"));
    fill(byId("causes"), ...(rows.length ? rows : [nothing("Nothing has missed.")]));
  }

  /** Figures that are asked for anew every few seconds. */
  async refresh() {
    const hot = await get("/hot");
    say(byId("hot-note"), hot.requests ? `last ${hot.requests === 1 ? "request" : `${number(hot.requests)} requests`}, since ${clock(hot.since_millis)}` : "");
    fill(byId("hot"), hot.urls.length ? table("Most requested URLs", [
      { title: "URL", kind: "w" }, { title: "requests", kind: "n named" }, { title: "stored", kind: "n named" }, { title: "sent", kind: "n named" },
    ], hot.urls.slice(0, 11).map((row) => [
      link(row.name, { onclick: () => (location.hash = `#store?${new URLSearchParams({ prefix: row.name })}`) }),
      number(row.requests), percent(row.from_store, row.requests), bytes(row.bytes),
    ])) : nothing("No requests yet. Send one: curl -x ADDRESS-OF-THE-PROXY URL"));
    const most = hot.hosts[0]?.misses ?? 0;
    const hosts = hot.hosts.filter((row) => row.misses).slice(0, 4).map((row) => shareOf(
      [make("a", { href: `#requests?${new URLSearchParams({ host: row.name })}` }, row.name)],
      `${number(row.misses)} of ${number(row.requests)} missed`, row.misses / most, "fetched"));
    fill(byId("hosts"), ...(hosts.length ? hosts : [nothing("None.")]));
  }
}

function gauge(name, held, most) {
  const part = most ? Math.min(held / most, 1) : 0;
  const bar = make("div", { class: "bar-fill store" });
  bar.style.width = `${Math.max(part * 100, held ? 1 : 0)}%`;
  return make("div", { class: "gauge" },
    make("p", {}, make("b", {}, name), make("span", {}, `${bytes(held)} of ${bytes(most)}`)),
    make("div", { class: "bar-track" }, bar));
}

const fact = (name, value) => [make("dt", {}, name), make("dd", {}, value)];

function shareOf(what, many, part, tone) {
  const bar = make("div", { class: `bar-fill ${tone}` });
  bar.style.width = `${part * 100}%`;
  return make("div", { class: "share" }, make("div", { class: "what" }, ...what), make("div", {}, many), make("div", { class: "bar-track" }, bar));
}
