// The decisions that the server has kept, found by time, tenant, hook and action.

import { kind } from "./answer-view.js";
import { getJson } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { filterBy, queryOf, toAddress } from "./filters.js";
import { operatorNote, table } from "./live.js";
import { showDecision } from "./popover.js";
import { ACTION_NAMES, actionLabel, clock, day, number, seconds, shortName } from "./words.js";

const PAGE = 50;

export const KEPT = {
  true: "",
  false: "Without a store (--store) or an admin key (--admin-key), a server of one process keeps the latest 500, from the first look at this page on.",
};

export class Decisions {
  constructor({ openKeys }) {
    this.openKeys = openKeys;
    this.box = byId("decisions");
    this.form = byId("decision-filters");
    this.form.elements.action.append(...ACTION_NAMES.map((action) => h("option", { value: action }, actionLabel({ action }))));
    this.form.addEventListener("submit", (event) => { event.preventDefault(); if (!toAddress("decisions", this.form)) this.#load(); });
    this.form.addEventListener("change", () => toAddress("decisions", this.form));
    byId("decisions-more").addEventListener("click", () => this.#load(this.cursor));
  }

  start(query) {
    this.others = filterBy(this.form, query);
    this.#load();
  }

  stop() { this.asked = null; }

  async #load(cursor = null) {
    const asked = this.asked = {};
    const query = queryOf(this.form, { ...this.others, limit: PAGE, cursor });
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
    this.form.hidden = error.status !== 400;  // a filter's fault is mended in the form
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

function rowOf(decision) {
  const tag = h("button", { type: "button", class: `tag ${kind(decision)}`, "aria-haspopup": "dialog", onclick: () => showDecision(decision, tag) }, actionLabel(decision));
  return [
    h("time", { datetime: decision.time }, `${day(decision.time)}, ${clock(decision.time)}`),
    tag,
    decision.hook ? h("span", { title: decision.hook }, shortName(decision.hook)) : "–",
    h("span", { class: "wide" }, decision.reason ?? "–"),
    decision.tenant === "default" ? decision.key : `${decision.key} (${decision.tenant})`,
    decision.policy,
    decision.num_withheld ? number(decision.num_withheld) : "–",
    decision.held_seconds ? seconds(decision.held_seconds) : "–",
  ];
}
