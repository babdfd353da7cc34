// What a rank of a parallel program called: arguments, communicator, datatypes as trees, what the rank sees of a file, and the bytes that the call touches.

import { ask, bytes, count, el, svg, things } from "./core.js";
import { card, number, table } from "./parts.js";

/** Datatypes that are drawn below one another at most. */
const DEEP = 4;

/** Where the data of ranges lies between two bytes; what is between them is a hole. */
function layout(ranges, [from, to], title) {
  const width = 1000;
  const x = (at) => ((at - from) / Math.max(1, to - from)) * width;
  const parts = ranges.map(([offset, length]) => svg("rect", { x: x(offset), y: 0, width: Math.max(x(offset + length) - x(offset), 0.5), height: 16, class: "data" }, svg("title", {}, `${count(length)} bytes at ${offset}`)));
  return svg("svg", { viewBox: `0 0 ${width} 16`, width: "100%", height: 16, preserveAspectRatio: "none", class: "layout", role: "img", "aria-label": title }, svg("rect", { x: 0, y: 0, width, height: 16, class: "hole" }), parts);
}

const shortOf = ({ list, count: all }) => (all > list.length ? `; drawn are the first ${list.length}` : "");

/** A datatype, its layout and what it is made of. */
function tree({ title, problem, data, extent, blocks, parts }, how, depth = 0) {
  const head = [how ? el("span", { class: "dim" }, `${how} `) : null, el("b", {}, title)];
  if (problem) head.push(`: ${problem}`);
  else head.push(`: ${things(data, "byte")} of data in ${count(extent)}, ${things(blocks.count, "piece")}${shortOf(blocks)}`);
  const drawn = !problem && extent > data ? layout(blocks.list, [0, extent], `${title}: data and holes`) : null;
  return el("li", {}, head, drawn, parts.length ? el("details", { open: depth < DEEP }, el("summary", {}, things(parts.length, "part")), el("ul", { class: "types" }, parts.map((part) => tree(part.type, part.how, depth + 1)))) : null);
}

function rangesOf(ranges) {
  if (!ranges.count) return null;
  const from = Math.min(...ranges.list.map(([offset]) => offset));
  const to = Math.max(...ranges.list.map(([offset, length]) => offset + length));
  return [el("h3", {}, `Bytes of the file: ${bytes(ranges.bytes)} in ${things(ranges.count, "piece")}, from ${from} on${shortOf(ranges)}`),
    layout(ranges.list, [from, to], "what the call touches"),
    el("details", {}, el("summary", {}, "As a table"), table([">offset", ">bytes", ">end"], ranges.list.map(([offset, length]) => el("tr", {}, number(String(offset)), number(String(length)), number(String(offset + length))))))];
}

export const NAMES = { cid: "communicator", toRank: "to rank", fromRank: "from rank", toTag: "tag", fromTag: "tag", rootRank: "root", aid: "request", fid: "file", etid: "elementary type", filetid: "type of the file", tid: "type", cFile: "source", cLine: "line" };

/** The cards of a record that is a call; nothing for others. */
export async function callCards(event) {
  const { call } = await ask("call", { event });
  if (!call) return [];
  const given = call.given.filter(([name]) => name !== "rank").map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, NAMES[name] || name), el("td", {}, value)));
  const { communicator, view } = call;
  const cards = [card(`${call.name} of rank ${call.rank}`,
    given.length ? el("table", { class: "data" }, el("tbody", {}, given)) : null,
    communicator ? el("p", {}, `Communicator${communicator.name ? ` ${communicator.name}` : ""}: ${things(communicator.size, "rank")} (${communicator.ranks.join(", ")}${communicator.size > communicator.ranks.length ? ", …" : ""})`) : null,
    call.waits_for.length ? el("p", {}, `Waits for ${call.waits_for.join(", ")}`) : null,
    call.problem ? el("p", { class: "missing" }, `Which bytes it touches is not known: ${call.problem}`) : null,
    call.ranges ? rangesOf(call.ranges) : null)];
  if (view) {
    cards.push(card("What the rank sees of the file", el("p", {}, `From byte ${view.displacement} on, again and again: ${things(view.data, "byte")} of data in ${count(view.extent)}${shortOf(view.blocks)}`), view.extent > view.data ? layout(view.blocks.list, [0, view.extent], "data and holes of the view") : null));
  }
  if (call.types.length) cards.push(card("Datatypes", el("ul", { class: "types" }, call.types.map((of) => tree(of.type, NAMES[of.as] || of.as)))));
  return cards;
}
