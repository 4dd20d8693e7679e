// Elements, numbers and words. Text from outside is put in as text, never as markup.

/** An element: `make("td", { class: "n" }, "text", child)`. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Puts children in the place of what an element has. */
export function fill(element, ...children) {
  element.replaceChildren(...children);
}

/** Sets a text only when it is another one, so that nothing is read out twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Bytes: `[number, unit]`. */
export function size(bytes) {
  let [value, unit] = [bytes, 0];
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return [unit === 0 ? String(Math.round(value)) : value >= 100 ? value.toFixed(0) : value.toFixed(1), UNITS[unit]];
}

/** Bytes as one text. */
export const bytes = (many) => size(many).join("\u00a0");

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A whole number with its groups. */
export const number = (many) => plain.format(many);

/** A share in percent: `[number, unit]`; a dash where there is nothing to share. */
export function share(part, whole) {
  if (!whole) return ["–", ""];
  const percent = (100 * part) / whole;
  // 99.96 % is not all.
  const shown = percent > 99.9 && percent < 100 ? 99.9 : percent;
  return [shown === 100 || shown === 0 ? shown.toFixed(0) : shown.toFixed(1), "%"];
}

/** A share as one text. */
export const percent = (part, whole) => share(part, whole).join("\u00a0").trim();

/** A duration in microseconds: `[number, unit]`. */
export function duration(micros) {
  if (!micros) return ["–", ""];
  if (micros < 1000) return [String(micros), "µs"];
  const millis = micros / 1000;
  if (millis < 1000) return [millis < 10 ? millis.toFixed(1) : millis.toFixed(0), "ms"];
  return [(millis / 1000).toFixed(1), "s"];
}

/** A duration as one text. */
export const time = (micros) => duration(micros).join("\u00a0").trim();

/** Counted durations are known by their bucket, and the first one ends here. */
const FIRST_BUCKET_MICROS = 10;

/** A duration out of counted ones: `[number, unit]`. */
export function within(micros) {
  return micros && micros <= FIRST_BUCKET_MICROS ? ["< 10", "µs"] : duration(micros);
}

/** Seconds as people count them: 45 s, 12 min, 3.5 h, 12 d. */
export function span(seconds) {
  if (seconds < 90) return `${seconds}\u00a0s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}\u00a0min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)}\u00a0h`;
  return `${Math.round(seconds / 86400)}\u00a0d`;
}

/** The hour of a moment in milliseconds since 1970. */
export const clock = (millis) => new Date(millis).toLocaleTimeString("en-GB", { hour12: false });

/** A number with its unit set smaller. */
export function figure(element, [value, unit]) {
  if (element.dataset.shown === value + unit) return;
  element.dataset.shown = value + unit;
  fill(element, value, ...(unit ? [make("small", {}, unit)] : []));
}

/**
 * A table; `rows` are lists of cells, texts or elements. Columns: `{ title, kind }`, kind `n` for numbers. The roles
 * are said because a narrow window shows rows as cards, and then a browser takes it for no table.
 */
export function table(caption, columns, rows) {
  const head = columns.map(({ title, kind }) => make("th", { scope: "col", role: "columnheader", class: kind }, title));
  const row = (cells) => make("tr", { role: "row" }, ...cells.map((cell, at) => {
    const { title, kind } = columns[at];
    return make("td", { role: "cell", class: kind, "data-title": title }, cell);
  }));
  return make("table", { role: "table" },
    make("caption", { class: "unseen" }, caption),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...head)),
    make("tbody", { role: "rowgroup" }, ...rows.map(row)));
}

/** A text of strangers: control characters and marks of direction, which could hide a part of it, are spelt out. */
export const harmless = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
  (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);

/** Sentences of the server: what stands between backticks is code. */
export const prose = (text) => text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));

/** The text where there is nothing yet. */
export const nothing = (text) => make("p", { class: "nothing" }, text);

/** A URL with its host in front and the rest behind, so that a long one is cut in the right place. GET goes without saying. */
export function link(url, attributes, tag = "button", method = "GET") {
  const [, scheme, host, rest] = /^(?:(\w+):\/\/)?([^/]*)(.*)$/.exec(url) ?? [null, "", "", url];
  const before = [method === "GET" ? null : `${method} `, scheme === "https" ? make("span", { class: "secure" }, "https ") : null];
  const type = tag === "button" ? { type: "button" } : {};
  return make(tag, { class: "url", title: url, ...type, ...attributes }, ...before, make("b", {}, host), rest);
}

/** Where an outcome belongs: store, fetched, failed or other. */
export function tone(outcome) {
  if (/^(hit|validated|collapsed)/.test(outcome)) return "store";
  return { miss: "fetched", failed: "failed" }[outcome] ?? "other";
}

/** The words of the log with what they mean. */
export const OUTCOMES = {
  hit: "from the store, fresh",
  "hit-stale": "from the store, stale as the client permitted",
  "hit-revalidating": "from the store, validated behind the answer",
  "hit-error": "from the store, because the origin is in trouble",
  validated: "from the store, after the origin said that it has not changed",
  collapsed: "from the fetch of another request",
  miss: "fetched from an origin",
  tunnel: "a tunnel that was not opened",
  own: "an answer of Larder itself",
  failed: "the origin could not be had",
};

/** Causes of misses with what they mean; a test compares the words with the server's. */
export const CAUSES = {
  "uri-miss": "nothing was stored under this URL",
  "vary-miss": "what is stored is for other request fields",
  "disk-behind": "it was too long for memory, and the disk was behind with its writes",
  evicted: "it was stored, and made room for others",
  "not-admitted": "it left memory, and was asked for too seldom for the disk",
  purged: "it was stored, and was purged",
  invalidated: "it was stored, and a changing request made it void",
  changed: "it was stored, and the origin has something else now",
  lost: "it was stored, and could not be read any more",
  "not-stored": "the last answer could not be stored",
  stale: "what is stored is too old, and the origin has a new one",
  "no-cache": "what is stored asks to be validated, and has changed",
  request: "the client wants a newer one",
  method: "this method is not answered from a store",
  partial: "only a part of it is stored",
  condition: "the request has a condition for the origin",
  "request-body": "the request has a body",
  upgrade: "the request offered to change the protocol",
  apart: "purges of other machines may not be known here",
  "hook": "a hook said that the stored response is not to be used",
  "destination": "its host leads elsewhere than its client had connected to",
  "not-shared": "it waited for an answer that was for others alone",
};
