// The report: one HTML file about the chosen run (and the one it is compared with), to keep and to pass on, with a preview.

import { download, el, getOf, state } from "./core.js";
import { inline } from "./drawn.js";
import { card, page } from "./parts.js";

export async function report(main) {
  const query = { hardware: state.hardware, ...(state.b !== null && state.b !== state.a ? { with: state.b } : {}) };
  const answer = await getOf(state.a, "report", query);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const text = await answer.text();
  const other = state.runs.find((run) => run.number === state.b && run.number !== state.a);
  const words = other ? `${state.run.name} ${other.name}` : state.run.name;
  page(main, "report",
    card("Report",
      el("p", {}, `One file about ${state.run.name}${other ? ` and ${other.name}` : ""}: verdict, results, distributions, running performance, timeline and slowest operations, where the time goes, bounds, environment. It needs nothing else, and no script. `,
        el("button", { type: "button", class: "go", onclick: () => download("weft-report.html", "text/html", text) }, "Save as HTML")),
      el("p", { class: "dim" }, "The same by a command, also as Markdown and about any number of runs: ", el("code", {}, `weft report ${words} -o report.html`))),
    card("Preview", preview(text)));
}

/** The document's elements, made anew from those that a report has: the text of a trace stays text, and styles are those of the page. */
function preview(text) {
  // Styles inside are cut before the text is read: the policy of the page would complain about them.
  const body = new DOMParser().parseFromString(text.replace(/<style>[^<]*<\/style>/g, "").replace(/\sstyle="(?=fill)/g, ' data-style="'), "text/html").body;
  const copy = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
    const tag = node.nodeType === Node.ELEMENT_NODE ? node.localName : "";
    if (tag === "svg") return el("figure", { class: "drawn" }, inline(new XMLSerializer().serializeToString(node)));
    if (!["h1", "h2", "h3", "p", "ul", "li", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "details", "summary"].includes(tag)) return null;
    const attributes = { class: tag === "table" ? "data" : node.className === "n" ? "number" : node.className === "warning" ? "bad" : false };
    return el(tag, attributes, [...node.childNodes].map(copy).filter(Boolean));
  };
  return el("div", { class: "preview" }, [...body.childNodes].map(copy).filter(Boolean));
}
