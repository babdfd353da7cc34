// Every screen of traces that are empty, have one span, or are damaged: node poor.mjs ADDRESS FOLDER.

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { page } = await import(pathToFileURL(join(import.meta.dirname, "standin.mjs")));
const screens = ["runs", "overview", "timeline", "latency", "where", "request", "histogram", "running", "compare", "bounds", "health"];
for (const run of [0, 1, 2]) {
  for (const level of ["rank", "host", "thread", "relation"]) {
    for (const screen of screens) {
      const hash = `#/${screen}?r=${run}&b=${(run + 1) % 3}&lv=${level}&mt=g%3Asum%3A%20count&pm=exclusive&hs=queue&q=create&hl=1`;
      await page.go(hash);
      assert.ok(page.text.length > 20, `${hash}: ${page.text}`);
      assert.doesNotMatch(page.text, /Infinity|null/, hash);
    }
  }
  await page.go(`#/timeline?r=${run}`);
  for (const key of ["i", "z", ".", "b", "j", "k", "t", "n", "f"]) await page.press(key);
  window.weftView.timeline.exportSvg();
  assert.doesNotMatch(window.weftView.lastSvg, /NaN|Infinity|undefined/);
}
console.log("walked");
process.exit(0);
