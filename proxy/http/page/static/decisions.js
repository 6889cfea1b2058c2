// The decisions that the server has kept, found by time, tenant, hook and action.

import { kind } from "./answer-view.js";
import { getJson } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { operatorNote, table } from "./live.js";
import { showDecision } from "./popover.js";
import { ACTION_NAMES, actionLabel, clock, day, number, seconds, shortName } from "./words.js";

const PAGE = 50;

export const KEPT = {
  true: "",
  false: "This server keeps none: it needs an admin key (--admin-key) or a store (--store).",
};

export class Decisions {
  constructor({ openKeys }) {
    this.openKeys = openKeys;
    this.box = byId("decisions");
    this.form = byId("decision-filters");
    this.form.elements.action.append(...ACTION_NAMES.map((action) => h("option", { value: action }, actionLabel({ action }))));
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#load(); });
    this.form.addEventListener("change", () => this.#load());
    byId("decisions-more").addEventListener("click", () => this.#load(this.cursor));
  }

  start() { this.#load(); }
  stop() { this.asked = null; }

  async #load(cursor = null) {
    const asked = this.asked = {};
    const query = queryOf(this.form, { limit: PAGE, cursor });
    let found;
    try {
      found = await getJson(`admin/decisions?${query}`);
    } catch (error) {
      if (asked === this.asked) this.#showError(error);
      return;
    }
    if (asked !== this.asked) return;  // other decisions were asked for meanwhile
    this.records = cursor === null ? found.data : [...this.records, ...found.data];
    this.cursor = found.next_cursor;
    this.isKept = found.kept;
    this.#draw();
  }

  #showError(error) {
    replace(this.box, operatorNote(error, this.openKeys));
    this.form.hidden = true;
    byId("decisions-more").hidden = true;
  }

  #draw() {
    this.form.hidden = false;
    byId("decisions-more").hidden = this.cursor === null || this.cursor === undefined;
    replace(this.box, this.records.length
      ? h("section", { class: "board" }, table(
        ["Time", "Decision", "Guard", "Reason", "Key", "Policy", "Characters", "Held"],
        this.records.map(rowOf), { caption: "Decisions, the newest first" }))
      : h("p", { class: "empty" }, `No decision was found. ${KEPT[this.isKept]}`));
  }
}

// The filters of a form that are filled in, as a query.
export function queryOf(form, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of [...new FormData(form), ...Object.entries(more)]) {
    if (value === null || value === "") continue;
    if (name === "last") query.set("since", (Date.now() / 1000 - Number(value)).toFixed(0));
    else query.set(name, value);
  }
  return query;
}

function rowOf(decision) {
  const tag = h("button", { type: "button", class: `tag ${kind(decision)}`, "aria-haspopup": "dialog", onclick: () => showDecision(decision, tag) }, actionLabel(decision));
  return [
    h("time", { datetime: decision.time }, `${day(decision.time)}, ${clock(decision.time)}`),
    tag,
    h("span", { title: decision.hook }, shortName(decision.hook)),
    h("span", { class: "wide" }, decision.reason ?? "–"),
    decision.tenant === "default" ? decision.key : `${decision.key} (${decision.tenant})`,
    decision.policy,
    decision.num_withheld ? number(decision.num_withheld) : "–",
    decision.held_seconds ? seconds(decision.held_seconds) : "–",
  ];
}
