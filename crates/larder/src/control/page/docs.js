// The documentation: copy buttons of examples, the section that is read, and the search, whose index is fetched with the first letter.

const byId = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/* Copy */

/** Puts a text where the clipboard is closed to pages, as it is over HTTP on another machine: by a selection. */
function copyBySelection(code) {
  const range = document.createRange();
  range.selectNodeContents(code);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
  return document.execCommand("copy");
}

async function copy(code) {
  if (!navigator.clipboard) return copyBySelection(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    return copyBySelection(code);
  }
}

for (const pre of document.querySelectorAll("article pre")) {
  const code = pre.querySelector("code");
  const button = element("button", "quiet copy", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    button.textContent = (await copy(code)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  const frame = element("div", "example");
  pre.replaceWith(frame);
  frame.append(pre, button);
}

/* The section that is read */

const links = new Map([...document.querySelectorAll(".of-page.beside a")].map((link) => [link.hash.slice(1), link]));
const headings = [...document.querySelectorAll("article h2[id], article h3[id]")].filter((heading) => links.has(heading.id));

function mark() {
  const passed = headings.filter((heading) => heading.getBoundingClientRect().top < 120);
  const current = links.get(passed.at(-1)?.id);
  for (const link of links.values()) {
    if (link === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

let marking = false;
addEventListener("scroll", () => {
  if (marking) return;
  marking = true;
  requestAnimationFrame(() => {
    marking = false;
    mark();
  });
}, { passive: true });
mark();
// On a phone the name of this view may lie beyond the edge.
const views = document.querySelector(".top nav");
const view = views?.querySelector("[aria-current]");
if (view) views.scrollLeft = view.offsetLeft + view.offsetWidth - views.clientWidth;
// The list of pages begins where the current one is.
const current = document.querySelector(".of-all.beside [aria-current]");
const beside = document.querySelector(".of-all.beside");
if (current && beside) beside.scrollTop = current.offsetTop - beside.clientHeight / 3;

/* Search */

const HITS_MAX = 20;
const BEFORE_HIT_MAX = 60;
const AFTER_HIT_MAX = 120;

const [form, input, hits, count] = ["docs.find", "docs.words", "docs.hits", "docs.count"].map(byId);
form.hidden = false;
let sections = null;

async function load() {
  sections ??= fetch("/docs/search.json").then((answer) => {
    if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
    return answer.json();
  }).then((all) => all.map((section) => ({
    ...section,
    lowHeading: section.heading.toLowerCase(),
    lowTitle: section.title.toLowerCase(),
    lowText: section.text.toLowerCase(),
  })));
  try {
    return await sections;
  } catch (error) {
    sections = null;
    throw error;
  }
}

/** Zero where a word is missing; a word in a heading counts most. */
function score(section, words) {
  let sum = 0;
  for (const word of words) {
    const heading = section.lowHeading.indexOf(word);
    if (heading === 0) sum += 10;
    else if (heading > 0) sum += 7;
    else if (section.lowTitle.includes(word)) sum += 4;
    else if (section.lowText.includes(word)) sum += 1;
    else return 0;
    if (heading >= 0 && section.lowText.includes(word)) sum += 1;
  }
  return sum;
}

/** The text around the first word that is found, the words marked. */
function snippet(section, words) {
  const at = Math.max(0, Math.min(...words.map((word) => section.lowText.indexOf(word)).filter((place) => place >= 0), section.text.length));
  const early = at >= section.text.length ? 0 : Math.max(0, at - BEFORE_HIT_MAX);
  const begin = early > 0 ? Math.min(at, section.text.indexOf(" ", early) + 1) : 0;
  const part = (begin > 0 ? "… " : "") + section.text.slice(begin, begin + BEFORE_HIT_MAX + AFTER_HIT_MAX);
  const shown = element("span", "snippet");
  const low = part.toLowerCase();
  let from = 0;
  while (from < part.length) {
    const next = words.map((word) => [low.indexOf(word, from), word]).filter(([place]) => place >= 0).sort(([one], [other]) => one - other)[0];
    if (!next) break;
    const [place, word] = next;
    shown.append(part.slice(from, place), element("mark", "", part.slice(place, place + word.length)));
    from = place + word.length;
  }
  shown.append(part.slice(from), section.text.length > begin + BEFORE_HIT_MAX + AFTER_HIT_MAX ? "…" : "");
  return shown;
}

function hit(section, words) {
  const link = element("a");
  link.href = `/docs/${section.page}${section.anchor ? `#${section.anchor}` : ""}`;
  const heading = section.heading || section.title;
  link.append(element("b", "", heading));
  if (heading !== section.title) link.append(element("span", "of", section.title));
  link.append(snippet(section, words));
  const row = element("li");
  row.append(link);
  return row;
}

async function search() {
  const asked = input.value;
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    hits.hidden = true;
    count.textContent = "";
    return;
  }
  let all;
  try {
    all = await load();
  } catch (error) {
    count.textContent = `The search has no index: ${error.message}`;
    return;
  }
  // A later letter has its own search.
  if (input.value !== asked) return;
  const found = all.map((section) => [score(section, words), section]).filter(([points]) => points > 0);
  found.sort(([one], [other]) => other - one);
  count.textContent = found.length === 0 ? "Nothing has all of these words." : found.length === 1 ? "One section" : `${found.length} sections`;
  hits.replaceChildren(...found.slice(0, HITS_MAX).map(([, section]) => hit(section, words)));
  hits.hidden = found.length === 0;
}

input.addEventListener("input", search);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  hits.querySelector("a")?.click();
});
// A hit on the same page moves only the view.
hits.addEventListener("click", (event) => {
  if (!event.target.closest("a")) return;
  input.value = "";
  search();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    input.value = "";
    search();
    input.blur();
  }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const stops = [input, ...hits.querySelectorAll("a")];
  const next = stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
  stops[next]?.focus();
  event.preventDefault();
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName)) return;
  event.preventDefault();
  input.focus();
});
if (input.value) search();
