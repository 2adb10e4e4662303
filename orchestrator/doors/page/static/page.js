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

/** Put new pieces in the place of those with the same ids; rows that are new go to the end of their list. */
function take(pieces) {
  for (const html of Object.values(pieces)) {
    const fresh = made(html);
    if (!fresh || !fresh.id) continue;
    const old = document.getElementById(fresh.id);
    if (!old) {
      const rows = document.getElementById("rows");
      if (fresh.id.startsWith("row-") && rows && !document.querySelector('[data-more="rows"]')) rows.append(fresh);
      continue;
    }
    if (old.outerHTML === fresh.outerHTML || old.contains(document.activeElement) && old.querySelector("form")) continue;
    replace(old, fresh);
  }
}

/** Replace an element; what has the focus in it keeps it, and what was opened stays open. */
function replace(old, fresh) {
  const focus = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const open = [...old.querySelectorAll("details")].map((each) => each.open);
  [...fresh.querySelectorAll("details")].forEach((each, at) => { each.open = open[at] || each.open; });
  const scrolled = old.querySelector(".scroll")?.scrollLeft ?? 0;
  old.replaceWith(fresh);
  const box = fresh.querySelector(".scroll");
  if (box) box.scrollLeft = scrolled;
  if (focus) [...fresh.querySelectorAll("a")].find((each) => each.getAttribute("href") === focus)?.focus();
}

function listen(address) {
  const source = new EventSource(address);
  source.addEventListener("open", () => say("Live"));
  source.addEventListener("pieces", (event) => take(JSON.parse(event.data)));
  source.addEventListener("over", () => { source.close(); say(""); location.hash || refreshOnce(); });
  source.addEventListener("signed-out", () => { source.close(); say("Signed out: reload to sign in again"); });
  source.addEventListener("error", () => {
    say(source.readyState === EventSource.CLOSED ? "No news any more: reload" : "Connecting again …");
  });
  addEventListener("pagehide", () => source.close());
}

/** What has ended has other buttons: once they are all that is missing, they are fetched. */
async function refreshOnce() {
  const actions = document.getElementById("actions");
  if (!actions) return;
  const fresh = (await fetched(location.href)).getElementById("actions");
  if (fresh && !actions.contains(document.activeElement)) actions.replaceWith(fresh);
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

document.querySelectorAll("[data-more]").forEach((link) => coming.observe(link));
if (navigator.clipboard) addCopying();
if (document.body.dataset.live) listen(document.body.dataset.live);
