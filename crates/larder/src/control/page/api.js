// Questions to the server, and the stream of its events. The token, where one is demanded, stays in this tab.

const KEY = "larder-token";

const byId = (id) => document.getElementById(id);

let asking = null;

/** Opens the dialog for the token; everybody who needs one waits for the same. */
function askForToken() {
  asking ??= new Promise((resolve) => {
    const [dialog, input] = [byId("token"), byId("token-input")];
    byId("token-text").hidden = false;
    if (sessionStorage.getItem(KEY)) {
      byId("token-text").textContent = "That was not it. The setting admin_token has it.";
    }
    input.value = "";
    dialog.showModal();
    input.focus();
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    byId("token-form").addEventListener("submit", () => {
      sessionStorage.setItem(KEY, input.value);
      asking = null;
      resolve();
    }, { once: true });
  });
  return asking;
}

/** Like fetch, with the token, asked for anew until the server takes it. */
async function request(path, options = {}) {
  for (;;) {
    const headers = { "X-Larder": "1", ...options.headers };
    const token = sessionStorage.getItem(KEY);
    if (token) headers.Authorization = `Bearer ${token}`;
    // Without credentials the browser does not open a dialog of its own.
    const answer = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
    if (answer.status !== 401) return answer;
    await askForToken();
  }
}

/** A JSON answer; an answer that is no success throws what it says. */
export async function get(path) {
  const answer = await request(path);
  if (answer.ok) return answer.json();
  throw new Error(await reason(answer));
}

/** Changes something. */
export async function post(path) {
  const answer = await request(path, { method: "POST" });
  if (answer.ok) return answer.json();
  throw new Error(await reason(answer));
}

async function reason(answer) {
  const text = (await answer.text()).trim();
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text || `the answer was ${answer.status}`;
  }
}

const AGAIN_MS = [500, 1000, 2000, 5000];

/**
 * Follows the events for as long as the page is open: `on[name](value)` for each, `state(word)` when the
 * connection changes. Written over fetch, because EventSource cannot send a token.
 */
export async function follow(path, on, state) {
  let failures = 0;
  for (;;) {
    try {
      const answer = await request(path, { headers: { Accept: "text/event-stream" } });
      if (!answer.ok) throw new Error(await reason(answer));
      for await (const { name, data } of events(answer.body)) {
        failures = 0;
        state("live");
        on[name]?.(JSON.parse(data));
      }
    } catch (error) {
      console.info("events:", error.message);
    }
    state("lost");
    await new Promise((again) => setTimeout(again, AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)]));
    failures += 1;
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const event = { name: "message", data: "" };
      for (const line of block.split("\n")) {
        if (line.startsWith("event:")) event.name = line.slice(6).trim();
        if (line.startsWith("data:")) event.data += line.slice(5).trim();
      }
      if (event.data) yield event;
    }
  }
}
