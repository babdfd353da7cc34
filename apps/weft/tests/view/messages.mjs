// Messages of a traced MPI program on the timeline: node messages.mjs ADDRESS FOLDER, of a viewer of two ranks that send one message each way.

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { page } = await import(pathToFileURL(join(import.meta.dirname, "standin.mjs")));
const { state } = page;
/** Arrows in the picture, as its export has them. */
const drawn = () => {
  window.weftView.timeline.exportSvg();
  return window.weftView.lastSvg.match(/marker-end/g)?.length ?? 0;
};
// Arrows are there when the analysis is.
while (state.run.problems === undefined || !(await (await fetch("/api/state?run=0")).json()).analysed) await new Promise((wake) => setTimeout(wake, 20));
for (const level of ["rank", "thread", "host"]) {
  await page.go(`#/timeline?lv=${level}`);
  assert.equal(window.weftView.timeline.arrows.arrows.length, 2, level);
  assert.equal(drawn(), 2, "one for each message, and none back");
}
// A call shows the messages that it sent and took; the bytes and the other rank are told.
const { timeline } = window.weftView;
const find = async (q) => (await (await fetch(`/api/find?run=0&q=${q}`)).json()).found.event;
await timeline.select(await find("op=Send"));
assert.equal(drawn(), 1);
await timeline.select(await find("net.sent"));
assert.match(timeline.details.textContent, /with process 1/);
assert.match(timeline.details.textContent, /bytes 4096/);
// What a call was given: in the line above the timeline, and in Request with what it does to its file.
await timeline.select(await find("op=Send"));
assert.match(timeline.details.textContent, /to rank 1/);
await page.go(`#/request?sel=${await find("op=Send")}`);
assert.match(page.text, /Send of rank 0.*Communicator WORLD: 2 ranks \(0, 1\)/);
await page.go(`#/request?sel=${await find("op=File_write_at")}`);
// The doubles 1 to 4 of a view that shows one of every four, of three; from byte 100 on.
assert.match(page.text, /Bytes of the file: 32 B in 3 pieces, from 132 on/);
assert.match(page.text, /1328140.*16416180.*2048212/);
assert.match(page.text, /From byte 100 on, again and again: 24 bytes of data in 72/);
await page.go(`#/request?sel=${await find("op=File_set_view")}`);
assert.match(page.text, /type of the file vector: 3 blocks of 1, 4 apart: 24 bytes of data in 72, 3 pieces.*of MPI_DOUBLE: 8 bytes of data in 8, 1 piece/);
await page.go("#/timeline?q=file%3Aout.dat&hl=1");
assert.ok(timeline.closed || window.weftView.timeline.lit.lanes.length > 0);
console.log("walked");
process.exit(0);
