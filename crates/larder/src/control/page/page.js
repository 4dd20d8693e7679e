// Starts the page: which view is shown, the stream of events, the dialogs that all views share.

import { follow, get } from "./api.js";
import { Applications } from "./applications.js";
import { Now } from "./now.js";
import { Requests } from "./requests.js";
import { Store } from "./store.js";
import { Settings, Upstreams } from "./settings.js";
import { say, span } from "./words.js";

const byId = (id) => document.getElementById(id);

/* Dialogs */

const drawer = byId("drawer");
byId("drawer-close").addEventListener("click", () => drawer.close());
drawer.addEventListener("click", (event) => event.target === drawer && drawer.close());

/** Actions of a view beyond its own part of the page. */
const house = {
  /** Shows something beside the page. */
  open(title, ...content) {
    byId("drawer-title").textContent = title;
    byId("drawer-body").replaceChildren(...content);
    if (!drawer.open) drawer.showModal();
    drawer.scrollTop = 0;
  },
  close: () => drawer.close(),
  /** Asks before something is done that cannot be undone; true when it shall be. */
  confirm(title, text, what) {
    byId("confirm-title").textContent = title;
    byId("confirm-text").textContent = text;
    byId("confirm-what").textContent = what;
    const dialog = byId("confirm");
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((resolve) => {
      // The event comes after the dialog has closed: it may be that of the question before, while this one is open.
      const heard = () => {
        if (dialog.open) return;
        dialog.removeEventListener("close", heard);
        resolve(dialog.returnValue === "yes");
      };
      dialog.addEventListener("close", heard);
    });
  },
  /** Says what was done, for a few seconds. */
  toast(text) {
    const toast = byId("toast");
    toast.hidden = false;
    toast.textContent = text;
    clearTimeout(house.fading);
    house.fading = setTimeout(() => (toast.hidden = true), 5000);
  },
};
byId("confirm-yes").addEventListener("click", () => byId("confirm").close("yes"));
byId("confirm-no").addEventListener("click", () => byId("confirm").close("no"));

/* Views */

const requests = new Requests(house);
const now = new Now(requests, house);
const applications = new Applications(requests);
const views = { now, requests, store: new Store(house), upstreams: new Upstreams(), applications, settings: new Settings() };
let shown = null;

function route() {
  const [name, query] = location.hash.slice(1).split("?");
  const chosen = name in views ? name : "now";
  drawer.close();
  for (const each of Object.keys(views)) byId(`view-${each}`).hidden = each !== chosen;
  for (const each of document.querySelectorAll(".top nav a")) {
    if (each.hash !== `#${chosen}`) {
      each.removeAttribute("aria-current");
      continue;
    }
    each.setAttribute("aria-current", "page");
    // A narrow window has not all of them in sight.
    each.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  document.title = chosen === "now" ? "Larder" : `${byId(`view-${chosen}`).dataset.title} · Larder`;
  if (shown && shown !== chosen) {
    scrollTo(0, 0);
    byId("main").focus({ preventScroll: true });
  }
  shown = chosen;
  Promise.resolve(views[chosen].enter?.(new URLSearchParams(query))).catch((error) => house.toast(error.message));
}
addEventListener("hashchange", route);

/* Live */

const STATES = { waiting: "Connecting", live: "Live", lost: "Connection lost" };

function state(word) {
  byId("state").dataset.state = word;
  say(byId("state"), STATES[word]);
}

const on = {
  now(value) {
    now.tick(value);
    say(byId("about"), `Larder ${value.version}, up for ${span(value.uptime_seconds)}`);
    if (shown === "requests") requests.tick();
    const tell = (error) => console.info(error.message);
    if (!document.hidden && value.uptime_seconds % 5 === 0) views[shown]?.refresh?.().catch(tell);
    if (!document.hidden && value.uptime_seconds % (applications.known ? 5 : 30) === 0 && shown !== "applications") applications.look().catch(tell);
  },
  request: (record) => requests.arrived(record),
};

/** Draws the minutes before this one, and then what comes; a server that is not there yet is waited for. */
async function begin() {
  for (;;) {
    try {
      const { seconds, now: first } = await get("/now");
      now.begin(seconds);
      on.now(first);
      return;
    } catch (error) {
      console.info(error.message);
      state("lost");
      await new Promise((again) => setTimeout(again, 2000));
    }
  }
}

await begin();
applications.look().catch((error) => console.info(error.message));
route();
follow("/events", on, state);
