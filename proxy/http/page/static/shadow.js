// The reports about guards in shadow mode.

import { kind } from "./answer-view.js";
import { getJson } from "./api.js";
import { KEPT } from "./decisions.js";
import { byId, h, replace } from "./dom.js";
import { filterBy, queryOf, toAddress } from "./filters.js";
import { operatorNote, table } from "./live.js";
import { actionLabel, number, percent, plural, seconds, shortName } from "./words.js";

export class Shadow {
  constructor({ openKeys }) {
    this.openKeys = openKeys;
    this.box = byId("shadow");
    this.form = byId("shadow-filters");
    this.form.addEventListener("change", () => toAddress("shadow", this.form));
  }

  start(query) {
    this.others = filterBy(this.form, query);
    this.#load();
  }

  stop() { this.asked = null; }

  async #load() {
    const asked = this.asked = {};
    try {
      const { data, kept } = await getJson(`admin/shadow?${queryOf(this.form, this.others)}`);
      if (asked !== this.asked) return;
      this.form.hidden = false;
      replace(this.box, data.length ? data.map(reportOf)
        : h("p", { class: "empty" }, `No guard was seen in shadow mode in this time. A hook with “mode: shadow” is run, and nothing it says has an effect. ${KEPT[kept]}`));
    } catch (error) {
      if (asked !== this.asked) return;
      this.form.hidden = error.status !== 400;  // a filter's fault is mended in the form
      replace(this.box, operatorNote(error, this.openKeys));
    }
  }
}

function reportOf({ policy, hook, seen, would_have: reasons, for: askers, held_seconds: held, seconds_per_1000_characters: cost, examples = [] }) {
  const requests = reasons.reduce((sum, one) => Math.max(sum, one.requests), 0);
  return h("section", { class: "board report", "aria-label": `${hook}, policy ${policy}` },
    h("h2", { dir: "auto" }, shortName(hook)),
    h("p", { class: "hint" }, `Policy ${policy}. It saw ${plural(seen.requests, "request")}, ${plural(seen.characters, "character")}.`),
    h("dl", { class: "figures" },
      figure("It would have acted on", seen.requests ? percent(Math.min(1, requests / seen.requests)) : "–", "of the requests"),
      figure("It would have held text for", held.holds ? seconds(held.p50) : "–", held.holds ? `half of the times; ${over(held.p99)} in 99 of 100` : "never"),
      figure("It costs", cost === null ? "–" : seconds(cost), "for 1,000 characters")),
    reasons.length ? table(
      ["Decision", "Reason", "Decisions", "Requests", "Characters"],
      reasons.map((one) => [
        h("span", { class: `tag ${kind({ action: one.action, mode: "enforce" })}` }, actionLabel({ action: one.action, mode: "shadow" })),
        h("span", { class: "wide" }, one.reason ?? "–"),
        number(one.decisions), number(one.requests), number(one.characters)]),
      { caption: "By reason" }) : null,
    askers.length ? table(
      ["Key", "Tenant", "Decisions", "Requests", "Characters"],
      askers.map((one) => [one.key, one.tenant, number(one.decisions), number(one.requests), number(one.characters)]),
      { caption: "By key" }) : null,
    examples.length ? h("details", { class: "examples-kept" },
      h("summary", {}, plural(examples.length, "example")),
      h("ul", {}, examples.map((one) => h("li", {}, h("pre", { class: "withheld", dir: "auto", tabindex: "0" }, one.withheld))))) : null);
}

function over(time) {
  return time === null ? "more than a minute" : seconds(time);
}

function figure(name, value, more) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, h("span", { class: "figure" }, value), " ", h("span", { class: "hint" }, more)));
}
