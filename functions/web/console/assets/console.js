// Keeps the page of an open job as it is: at each event the page is read again and what has changed
// is put in place. The server renders everything; without this file the page reloads itself.
"use strict";

const live = document.getElementById("live");
const parts = () => [...live.querySelectorAll("[id^='part-']")];
const shown = new Map(parts().map((part) => [part.id, part.innerHTML]));
const FOCUSABLE = "a, button, summary, [tabindex]";
let source = null;
let reading = false;
let again = false;
let over = false;

const pause = (milliseconds) => new Promise((resume) => setTimeout(resume, milliseconds));
const pollMilliseconds = () => 1000 * Math.max(Number(live.dataset.pollSeconds), 2);

// Returns whether the job has ended.
async function read() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (answer.redirected) location.reload(); // signed out
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = fresh.getElementById("live");
  if (!answer.ok || !found) throw new Error(`no page of the job: ${answer.status}`);
  for (const part of parts()) replace(part, fresh.getElementById(part.id));
  document.title = fresh.title;
  return !found.dataset.events;
}

function replace(part, fresh) {
  if (!fresh || shown.get(part.id) === fresh.innerHTML) return;
  shown.set(part.id, fresh.innerHTML);
  const open = [...part.querySelectorAll("details")].map((details) => details.open);
  const focus = [...part.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  part.replaceChildren(...document.importNode(fresh, true).childNodes);
  part.querySelectorAll("details").forEach((details, index) => { details.open = open[index] ?? false; });
  if (focus >= 0) part.querySelectorAll(FOCUSABLE)[focus]?.focus({ preventScroll: true });
}

async function refresh() {
  if (over) return;
  if (reading) { again = true; return; }
  reading = true;
  try {
    do {
      again = false;
      over = await read();
      if (!over) await pause(300);
    } while (again && !over);
  } catch {
    setTimeout(refresh, pollMilliseconds());
  }
  reading = false;
  if (over) source.close();
}

async function poll() {
  while (!over) {
    await refresh();
    await pause(pollMilliseconds());
  }
}

if (live?.dataset.events) {
  source = new EventSource(live.dataset.events);
  source.addEventListener("job", refresh);
  source.addEventListener("error", () => {
    // A browser connects again by itself, unless it was refused: then look now and then.
    if (source.readyState === EventSource.CLOSED) poll();
  });
}
