// What the page does by itself: takes in news, brings what is scrolled to, copies. Without it everything can be read.

const said = document.getElementById("live");

function say(text) {
  if (!said) return;
  said.hidden = !text;
  if (said.textContent !== text) said.textContent = text;
}

/** The element that HTML text of ours stands for. */
function made(html) {
  const template = document.createElement("template");
  template.innerHTML = html.trim();
  return template.content.firstElementChild;
}

// --- times: the server writes them in UTC, and as they were when it wrote ---------------------------------------------

const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** When each moment was, by this page's own clock: whatever the viewer's clock says, ages are right. */
const since = new WeakMap();

/** How long ago a moment was, in its two largest units; whole seconds, as it is read often. */
function ago(moment) {
  const age = Math.max(0, Math.round((performance.now() - moment) / 1000));
  const told = (large, small, names) => `${Math.floor(age / large)} ${names[0]} ${Math.floor((age % large) / small)} ${names[1]} ago`;
  if (age < MINUTE) return `${age} s ago`;
  if (age < HOUR) return told(MINUTE, 1, ["min", "s"]);
  return age < DAY ? told(HOUR, MINUTE, ["h", "min"]) : told(DAY, HOUR, ["d", "h"]);
}

const two = (number) => String(number).padStart(2, "0");
const clock = (date) => [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
const day = (date) => [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
const zones = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" });
const zone = (date) => zones.formatToParts(date).find((part) => part.type === "timeZoneName").value;

/** Write the moments in an element in the viewer's own zone, and how long ago they were. */
function localise(element) {
  for (const each of element.querySelectorAll("time:not([data-local])")) {
    const date = new Date(each.dateTime);
    const told = `${day(date)} ${clock(date)} ${zone(date)}`;
    const { age } = each.dataset;
    each.dataset.local = "";
    if (each.title) each.title = told;
    if (age === undefined) {
      each.textContent = each.title ? clock(date) : told;
    } else {
      since.set(each, performance.now() - 1000 * Number(age));
      each.dataset.age = "";  // so that news of the same moment are no news
      each.textContent = ago(since.get(each));
    }
  }
  return element;
}

/** Let what is "ago" grow older. */
function grow() {
  for (const each of document.querySelectorAll("time[data-age]")) {
    const text = ago(since.get(each));
    if (each.textContent !== text) each.textContent = text;
  }
}

// --- news -------------------------------------------------------------------------------------------------------------

/** Put new pieces in the place of those with the same ids; rows that are new go to the end of their list. */
function take(pieces) {
  for (const html of Object.values(pieces)) {
    const fresh = made(html);
    if (!fresh || !fresh.id) continue;
    localise(fresh);
    const old = document.getElementById(fresh.id);
    if (!old) {
      const rows = document.getElementById("rows");
      if (fresh.id.startsWith("row-") && rows && !document.querySelector('[data-more="rows"]')) rows.append(fresh);
      continue;
    }
    if (old.outerHTML === fresh.outerHTML || isInUse(old)) continue;
    replace(old, fresh);
  }
}

/** Whether somebody fills in a form of an element: news of it can wait, and what was typed must not be lost. */
function isInUse(element) {
  const isFilled = (each) => each.type === "checkbox" ? each.checked !== each.defaultChecked : each.value !== each.defaultValue;
  return element.contains(document.activeElement) && element.querySelector("form") !== null
    || [...element.querySelectorAll("input:not([type=hidden]), textarea")].some(isFilled);
}

/** Replace an element; what has the focus in it keeps it, and what was opened stays open. */
function replace(old, fresh) {
  const focus = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const open = [...old.querySelectorAll("details")].map((each) => each.open);
  [...fresh.querySelectorAll("details")].forEach((each, at) => { each.open = open[at] || each.open; });
  const scrolled = old.querySelector(".scroll")?.scrollLeft ?? 0;
  old.replaceWith(fresh);
  if (old.dataset.offers !== fresh.dataset.offers) refreshOffers();
  const box = fresh.querySelector(".scroll");
  if (box) box.scrollLeft = scrolled;
  if (focus) [...fresh.querySelectorAll("a")].find((each) => each.getAttribute("href") === focus)?.focus();
}

function listen(address) {
  const source = new EventSource(address);
  source.addEventListener("open", () => say("Live"));
  source.addEventListener("pieces", (event) => take(JSON.parse(event.data)));
  source.addEventListener("over", () => { source.close(); say(""); });
  source.addEventListener("signed-out", () => { source.close(); say("Signed out: reload to sign in again"); });
  source.addEventListener("error", () => {
    say(source.readyState === EventSource.CLOSED ? "No news any more: reload" : "Connecting again …");
  });
  addEventListener("pagehide", () => source.close());
}

/** What stands otherwise may have other buttons: they are fetched. */
async function refreshOffers() {
  const fresh = (await fetched(location.href)).getElementById("actions");
  const actions = document.getElementById("actions");
  if (fresh && actions && !isInUse(actions)) actions.replaceWith(fresh);
}

async function fetched(address) {
  const response = await fetch(address, { credentials: "same-origin" });
  if (!response.ok) throw new Error(String(response.status));
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

/** Bring the next piece of a list when the link to it comes into sight. */
const coming = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) if (isIntersecting) bring(target);
}, { rootMargin: "400px" });

async function bring(link) {
  coming.unobserve(link);
  const list = link.dataset.more;
  try {
    const page = await fetched(link.href);
    const known = document.getElementById(list);
    localise(page.body);
    for (const item of [...(page.getElementById(list)?.children ?? [])]) {
      if (!item.id || !document.getElementById(item.id)) known.append(document.adoptNode(item));
    }
    const next = page.querySelector(`[data-more="${list}"]`);
    if (next) {
      link.href = next.getAttribute("href");
      coming.observe(link);
    } else {
      link.remove();
    }
  } catch {
    // The link stays, and can be followed.
  }
}

/** Copy what is stored, which is not always what can be shown. */
async function copy(link) {
  const response = await fetch(link.href, { credentials: "same-origin" });
  if (!response.ok) return;
  await navigator.clipboard.writeText(await response.text());
  say("Copied");
}

function addCopying() {
  for (const link of document.querySelectorAll("a[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = "Copy";
    button.addEventListener("click", () => copy(link));
    link.after(button);
  }
}

localise(document.body);
document.querySelector(".bar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
setInterval(grow, 1000);
document.querySelectorAll("[data-more]").forEach((link) => coming.observe(link));
if (navigator.clipboard) addCopying();
if (document.body.dataset.live) listen(document.body.dataset.live);
