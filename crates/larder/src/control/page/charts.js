// Small charts of the last minutes, in SVG: nothing but paths, so that five minutes at one point a second stay cheap.

import { make } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A round number at or above `value`, so that the scale changes seldom. */
export function ceiling(value) {
  if (value <= 4) return 4;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * unit).find((step) => step >= value);
}

/** The path of a line through `values` over `slots` places, the newest at the right edge. */
function line(values, slots, top, height) {
  const first = slots - values.length;
  const y = (value) => (height - (Math.min(value, top) / top) * height).toFixed(2);
  return values.map((value, at) => `${at ? "L" : "M"}${first + at} ${y(value)}`).join("");
}

/** A line without axes, with the ground below it tinted. */
export class Spark {
  constructor(place, tone) {
    this.area = svg("path", { class: `area ${tone}` });
    this.line = svg("path", { class: `line ${tone}` });
    this.slots = 120;
    const box = { viewBox: `0 0 ${this.slots - 1} 40`, preserveAspectRatio: "none", "aria-hidden": "true" };
    place.replaceChildren(svg("svg", box, this.area, this.line));
  }

  /**
   * Draws the last values; `top` fixes the scale, otherwise the largest one sets it. `null` stands for a second without
   * a value, as a share of no requests: the line has a gap there, for a fall to nothing would read as an outage.
   */
  draw(values, top) {
    const shown = values.slice(-this.slots);
    if (shown.length < 2) return;
    const scale = top ?? Math.max(...shown.map((value) => value ?? 0), 1) * 1.15;
    const paths = runs(shown).map(([from, run]) => [from, line(run, this.slots - shown.length + from + run.length, scale, 38), run.length]);
    const first = this.slots - shown.length;
    this.line.setAttribute("d", paths.map(([, path]) => path).join(""));
    this.area.setAttribute("d", paths.map(([from, path, length]) => `${path}L${first + from + length - 1} 40L${first + from} 40Z`).join(""));
  }
}

/** Each run of values between gaps, with its place; a single value is a run of two, so that it is seen. */
function runs(values) {
  const all = [];
  let from = 0;
  for (let at = 0; at <= values.length; at++) {
    if (at < values.length && values[at] !== null) continue;
    if (at > from) all.push([from, values.slice(from, at)]);
    from = at + 1;
  }
  return all.map(([at, run]) => (run.length === 1 ? [Math.max(at - 1, 0), [run[0], run[0]]] : [at, run]));
}

const HEIGHT = 200;

/** The spans that are drawn, in seconds: the shortest one that holds what there is. */
const SPANS = [60, 120, 300];

/** Layers one on the other, with a scale, and the values of one second under pointer or arrow keys. */
export class Layers {
  constructor(place, layers, words) {
    this.layers = layers;
    this.words = words;
    this.slots = SPANS[0];
    this.seconds = [];
    this.chosen = null;
    this.paths = layers.map(({ tone }) => svg("path", { class: `layer ${tone}` }));
    this.grid = [0.25, 0.5, 0.75, 1].map((part) => svg("path", { class: "grid", d: `M0 ${HEIGHT * (1 - part)}H${SPANS.at(-1)}` }));
    this.hair = svg("path", { class: "hair" });
    this.sheet = svg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }, ...this.grid, ...this.paths, this.hair);
    this.marks = [1, 0.5].map((part) => make("span", { class: `mark at-${part * 100}`, "aria-hidden": "true" }));
    this.tip = make("p", { class: "tip", hidden: true });
    this.frame = make("div", { class: "frame", tabindex: "0", role: "img" });
    this.frame.append(this.sheet, ...this.marks, this.tip);
    this.times = make("div", { class: "times", "aria-hidden": "true" });
    place.replaceChildren(this.frame, this.times);
    this.frame.addEventListener("pointermove", (event) => this.point(event));
    this.frame.addEventListener("pointerleave", () => this.show(null));
    this.frame.addEventListener("blur", () => this.show(null));
    this.frame.addEventListener("keydown", (event) => this.step(event));
  }

  draw(seconds) {
    this.span(SPANS.find((span) => span >= seconds.length) ?? SPANS.at(-1));
    this.seconds = seconds.slice(-this.slots);
    const sums = this.seconds.map((second) => this.layers.reduce((sum, { of }) => sum + of(second), 0));
    const top = ceiling(Math.max(...sums, 1));
    const below = this.seconds.map(() => 0);
    const first = this.slots - this.seconds.length;
    this.layers.forEach(({ of }, at) => {
      const floor = line(below, this.slots, top, HEIGHT).slice(1).split("L").reverse().join("L");
      this.seconds.forEach((second, index) => (below[index] += of(second)));
      const path = this.seconds.length > 1 ? `${line(below, this.slots, top, HEIGHT)}L${floor}Z` : "";
      this.paths[at].setAttribute("d", path);
    });
    this.marks.forEach((mark, at) => (mark.textContent = new Intl.NumberFormat("en").format(top * [1, 0.5][at])));
    this.frame.setAttribute("aria-label", this.words.all(this.seconds));
    if (this.chosen !== null) this.show(Math.max(this.chosen, first));
  }

  /** Sets how many seconds are drawn. */
  span(slots) {
    if (this.slots === slots && this.times.childElementCount) return;
    this.slots = slots;
    this.sheet.setAttribute("viewBox", `0 0 ${slots - 1} ${HEIGHT}`);
    const steps = slots === 300 ? 5 : 4;
    const text = (left) => (slots < 120 ? `${left} s` : `${left / 60} min`);
    const marks = Array.from({ length: steps }, (_, at) => text((slots / steps) * (steps - at)));
    this.times.replaceChildren(...[...marks, "now"].map((mark) => make("span", {}, mark)));
  }

  point(event) {
    const box = this.frame.getBoundingClientRect();
    this.show(Math.round(((event.clientX - box.left) / box.width) * (this.slots - 1)));
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.show(Math.min(Math.max((this.chosen ?? this.slots) + by, 0), this.slots - 1));
  }

  show(slot) {
    this.chosen = slot;
    const second = slot === null ? null : this.seconds[slot - (this.slots - this.seconds.length)];
    this.tip.hidden = !second;
    this.hair.setAttribute("d", second ? `M${slot} 0V${HEIGHT}` : "");
    if (!second) return;
    this.tip.replaceChildren(...this.words.one(second));
    const left = slot / (this.slots - 1);
    this.tip.style.left = `${left * 100}%`;
    this.tip.classList.toggle("to-the-left", left > 0.6);
  }
}
