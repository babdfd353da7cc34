// A stand-in for a browser, large enough for the page of `weft view`: elements, selectors, events, and a canvas on which nothing is seen. It loads the page that
// a viewer serves and walks through it: node standin.mjs http://ADDRESS

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [origin, folder] = process.argv.slice(2);

const kebab = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** One part of a selector, such as `tr:not(.empty)` or `[data-part="hits"]`. */
function fits(element, part) {
  const shape = /^(?<tag>[a-z0-9]+)|\.(?<cls>[\w-]+)|#(?<id>[\w-]+)|\[(?<name>[\w-]+)(?:=(?:"(?<quoted>[^"]*)"|(?<value>[^\]]*)))?\]|:not\((?<not>[^)]*)\)|:(?<state>focus|checked)/gy;
  let at = 0;
  for (let found; at < part.length && (found = shape.exec(part)); at = shape.lastIndex) {
    const { tag, cls, id, name, quoted, value, not, state } = found.groups;
    const wanted = quoted ?? value;
    if (tag && element.tagName.toLowerCase() !== tag) return false;
    if (cls && !element.className.split(" ").includes(cls)) return false;
    if (id && element.getAttribute("id") !== id) return false;
    if (name && (element.getAttribute(name) === null || (wanted !== undefined && element.getAttribute(name) !== wanted))) return false;
    if (state && !(state === "focus" ? document.activeElement === element : element.checked)) return false;
    if (not && fits(element, not)) return false;
  }
  assert.equal(at, part.length, `selector ${part}`);
  return true;
}

function matches(element, selector) {
  return selector.match(/(?:\[[^\]]*\]|[^,[])+/g).some((one) => {
    const parts = one.match(/(?:\[[^\]]*\]|[^\s[])+/g);
    let here = element;
    if (!fits(here, parts.pop())) return false;
    while (parts.length) {
      do here = here.parentNode;
      while (here && !fits(here, parts.at(-1)));
      if (!here) return false;
      parts.pop();
    }
    return true;
  });
}

class Text {
  constructor(text) {
    this.textContent = String(text);
  }
}

class Element extends EventTarget {
  constructor(tag) {
    super();
    Object.assign(this, { tagName: tag.toUpperCase(), attributes: new Map(), childNodes: [], parentNode: null, scrollTop: 0, width: 0, height: 0, open: false });
    this.style = { setProperty: (name, value) => (this.style[name] = value) };
    this.dataset = new Proxy({}, { get: (_, name) => this.getAttribute(`data-${kebab(String(name))}`) ?? undefined, set: (_, name, value) => (this.setAttribute(`data-${kebab(name)}`, value), true) });
    this.classList = { add: (name) => this.setAttribute("class", `${this.className} ${name}`.trim()) };
    this.viewBox = { baseVal: { width: 900 } };
  }
  get className() {
    return this.getAttribute("class") || "";
  }
  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }
  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }
  removeAttribute(name) {
    this.attributes.delete(name);
  }
  append(...nodes) {
    for (const node of nodes) {
      const child = node instanceof Element || node instanceof Text ? node : new Text(node);
      child.parentNode?.childNodes.splice(child.parentNode.childNodes.indexOf(child), 1);
      child.parentNode = this;
      this.childNodes.push(child);
    }
  }
  replaceChildren(...nodes) {
    for (const child of this.childNodes) child.parentNode = null;
    this.childNodes = [];
    this.append(...nodes);
  }
  get children() {
    return this.childNodes.filter((child) => child instanceof Element);
  }
  get textContent() {
    return this.childNodes.map((child) => child.textContent).join("");
  }
  set textContent(text) {
    this.replaceChildren(text);
  }
  get options() {
    return this.querySelectorAll("option");
  }
  get value() {
    if (this.typed !== undefined) return this.typed;
    if (this.tagName !== "SELECT") return this.getAttribute("value") ?? (this.tagName === "OPTION" ? this.textContent : "");
    return (this.options.find((option) => option.getAttribute("selected") !== null) || this.options[0])?.value ?? "";
  }
  set value(value) {
    this.typed = String(value);
  }
  get defaultValue() {
    return this.getAttribute("value") || "";
  }
  get checked() {
    return this.ticked ?? this.getAttribute("checked") !== null;
  }
  set checked(ticked) {
    this.ticked = ticked;
  }
  get hidden() {
    return this.getAttribute("hidden") !== null;
  }
  set hidden(hidden) {
    hidden ? this.setAttribute("hidden", "") : this.removeAttribute("hidden");
  }
  matches(selector) {
    return matches(this, selector);
  }
  querySelectorAll(selector) {
    return this.children.flatMap((child) => [...(matches(child, selector) ? [child] : []), ...child.querySelectorAll(selector)]);
  }
  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }
  contains(node) {
    for (let here = node; here; here = here.parentNode) if (here === this) return true;
    return false;
  }
  fire(type, facts = {}) {
    this.dispatchEvent(Object.assign(new Event(type, { cancelable: true }), facts));
  }
  click() {
    if (this.getAttribute("disabled") !== null) return;
    if (this.getAttribute("type") === "checkbox") {
      this.checked = !this.checked;
      this.fire("change");
    }
    this.fire("click");
  }
  focus() {
    document.activeElement = this;
  }
  blur() {
    document.activeElement = document.body;
  }
  getBoundingClientRect() {
    return { left: 0, top: 0, width: 1100, height: 700 };
  }
  get clientWidth() {
    return 1100;
  }
  get clientHeight() {
    return 700;
  }
  getContext() {
    return new Proxy({ canvas: this }, { get: (target, name) => target[name] ?? (name === "measureText" ? (text) => ({ width: 6 * text.length }) : () => {}), set: (target, name, value) => ((target[name] = value), true) });
  }
  setSelectionRange(...range) {
    this.range = range;
  }
  setPointerCapture() {}
  showModal() {
    this.open = true;
  }
}

/** Markup as elements: what the server draws, and the page itself. */
function parsed(text) {
  const root = new Element("root");
  const stack = [root];
  const plain = (part) => part.replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(code)).replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&amp;", "&");
  for (const [, close, tag, rest, empty, words] of text.matchAll(/<(?:(\/)?([\w-]+)((?:\s+[\w:-]+(?:="[^"]*")?)*)\s*(\/)?|!--[^]*?--|[!?][^>]*)>|([^<]+)/g)) {
    if (words !== undefined) stack.at(-1).append(plain(words));
    else if (close) stack.length > 1 && stack.pop();
    else if (tag) {
      const element = new Element(tag);
      for (const [, name, value = ""] of rest.matchAll(/([\w:-]+)(?:="([^"]*)")?/g)) element.setAttribute(name, plain(value));
      stack.at(-1).append(element);
      if (!empty && !["meta", "link"].includes(tag)) stack.push(element);
    }
  }
  return root;
}

const html = parsed(await (await fetch(origin)).text());
globalThis.document = Object.assign(new EventTarget(), {
  documentElement: html, body: html.querySelector("body"), activeElement: null, title: "",
  getElementById: (id) => html.querySelector(`#${id}`), querySelector: (selector) => html.querySelector(selector), querySelectorAll: (selector) => html.querySelectorAll(selector),
  createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag), importNode: (node) => node,
});
document.activeElement = document.body;
globalThis.location = { hash: process.argv[4] || "", host: new URL(origin).host, href: origin };
const show = (_, __, hash) => (location.hash = hash);
globalThis.window = Object.assign(new EventTarget(), { devicePixelRatio: 1 });
Object.assign(globalThis, {
  history: { pushState: show, replaceState: show, back() {} }, matchMedia: () => new EventTarget(), getComputedStyle: () => ({ getPropertyValue: () => "#102030" }), prompt: () => "0",
  ImageData: class {}, ResizeObserver: class { observe() {} disconnect() {} }, DOMParser: class { parseFromString(text) { const root = parsed(text); return { documentElement: root.children[0], body: root.querySelector("body"), querySelector: (one) => root.querySelector(one), querySelectorAll: (all) => root.querySelectorAll(all) }; } },
});
Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
const asked = globalThis.fetch;
globalThis.fetch = (url, options) => asked(new URL(url, origin), options);
const wrong = (error) => {
  console.error(error);
  process.exit(1);
};
process.on("unhandledRejection", wrong);
process.on("uncaughtException", wrong);

// The page as it is served, file by file as they name one another.
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "package.json"), '{"type":"module"}');
const files = ["app.js"];
for (const name of files) {
  const text = await (await fetch(`/${name}`)).text();
  writeFileSync(join(folder, name), text);
  for (const [, other] of text.matchAll(/from "\.\/([\w.]+)"/g)) if (!files.includes(other)) files.push(other);
}

export const page = {
  get state() {
    return window.weftView.state;
  },
  get text() {
    return document.getElementById("main").textContent;
  },
  async idle() {
    for (let tries = 0; tries < 1500; tries++) {
      await new Promise((wake) => setTimeout(wake, 8));
      if (window.weftView?.idle) return;
    }
    throw new Error(`the page waits for ever: ${page.text.slice(0, 300)}`);
  },
  async press(key, more = {}) {
    const event = Object.assign(new Event("keydown", { cancelable: true }), { key, ...more });
    Object.defineProperty(event, "target", { value: document.activeElement ?? document.body });
    document.dispatchEvent(event);
    await page.idle();
  },
  async go(hash) {
    location.hash = hash;
    window.dispatchEvent(new Event("hashchange"));
    await page.idle();
    // Nothing on any screen may be a number that is none.
    assert.doesNotMatch(page.text, /NaN|undefined|\[object|is not a function|Cannot read/, hash);
  },
  one(selector) {
    const found = document.querySelector(selector);
    assert.ok(found, `${selector} in ${page.text.slice(0, 400)}`);
    return found;
  },
  async choose(label, value) {
    const field = page.one(`[aria-label="${label}"]`);
    field.value = value;
    field.fire("change");
    field.fire("input");
    await page.idle();
  },
};

await import(pathToFileURL(join(folder, "app.js")));
await page.idle();
