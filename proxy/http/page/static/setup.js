// The panel beside the chat: models, guards, system prompt; and the tab with the raw stream.

import { explain, getJson, refuseDecisions, seesDecisions } from "./api.js";
import { kept } from "./conversation.js";
import { byId, h, replace } from "./dom.js";
import { keys } from "./session.js";

const BOXES = ["system", "temperature", "max-tokens"];
// The fields that can have a fault, and the sentence for it.
const FAULTS = {
  temperature: "A number from 0 to 2.",
  "max-tokens": "A whole number, at least 1. Empty: no limit.",
};

export class Setup {
  constructor({ openKeys }) {
    this.openKeys = openKeys;
    this.listeners = [];
    const { model, second, hooks, ...boxes } = kept().setup;  // as it was before a reload
    this.wanted = { model, second };  // the visitor's choices, which the server may not list now
    this.chosen = new Set(hooks);
    this.hasModels = true;  // the operator's own port has none
    this.select = byId("model");
    this.second = byId("second");
    this.secondKey = byId("second-key");
    this.policy = this.secondPolicy = null;
    this.panel = byId("panel");
    this.#fill(boxes);
    this.select.addEventListener("change", () => { this.wanted.model = this.model; this.#changed(); this.loadGuards(); });
    byId("second-key-field").addEventListener("submit", (event) => event.preventDefault());
    this.second.addEventListener("change", () => { this.wanted.second = this.second.value; this.loadSecond(); });
    this.secondKey.addEventListener("change", () => { keys.second = this.secondKey.value.trim(); this.loadSecond(); });
    for (const id of Object.keys(FAULTS)) byId(id).addEventListener("input", () => { if (this.#showFault(id)) reveal(id); });
    for (const name of ["setup", "raw"]) byId(`tab-${name}`).addEventListener("click", () => this.show(name));
    byId("tabs").addEventListener("keydown", (event) => this.#arrow(event));
    byId("open-panel").addEventListener("click", () => this.open());
    byId("close-panel").addEventListener("click", () => this.close());
    this.panel.addEventListener("keydown", (event) => { if (event.key === "Escape" && this.isOver) { event.stopPropagation(); this.close(); } });
  }

  get model() { return this.select.value; }
  get system() { return byId("system").value.trim(); }
  get isOver() { return this.panel.classList.contains("open"); }

  // What a reload keeps. Keys are kept elsewhere.
  get json() {
    const boxes = Object.fromEntries(BOXES.map((id) => [id, byId(id).value]));
    return { ...this.wanted, hooks: [...this.chosen], ...boxes };
  }

  onChange(listener) { this.listeners.push(listener); }

  #fill(boxes) {
    for (const id of BOXES) byId(id).value = boxes[id] ?? byId(id).defaultValue;
    this.secondKey.value = keys.second;
    for (const id of Object.keys(FAULTS)) this.#showFault(id);
  }

  // Whether a message can be sent. If a field has a fault, it is shown.
  check() {
    const [wrong] = Object.keys(FAULTS).filter((id) => this.#showFault(id));
    if (!wrong) return true;
    this.show("setup");
    byId(wrong).focus();
    reveal(wrong);
    return false;
  }

  #showFault(id) {
    const box = byId(id);
    const fault = isWrong(box) ? FAULTS[id] : "";
    if (byId(`${id}-fault`).textContent !== fault) byId(`${id}-fault`).textContent = fault;
    if (fault) box.setAttribute("aria-invalid", "true");
    else box.removeAttribute("aria-invalid");
    return fault;
  }

  // Who answers a message: {name, fields, system, client}. `client`: the key, if it is another than the visitor's.
  lanes() {
    const fields = { model: this.model, temperature: byId("temperature").valueAsNumber };
    const most = byId("max-tokens").valueAsNumber;
    if (most > 0) fields.max_tokens = most;
    const hooks = this.chosen.size ? { hooks: [...this.chosen] } : {};
    const { system } = this;
    const isAlone = !this.second.value;
    const first = { name: isAlone ? this.model : nameOf(this.model, this.policy, [...this.chosen]), fields: { ...fields, ...hooks }, system };
    if (isAlone) return [first];
    const model = this.second.value;
    return [first, { name: nameOf(model, this.secondPolicy, []), fields: { ...fields, model }, system, client: this.secondKey.value.trim() || undefined }];
  }

  async load() {
    try {
      const { data } = await getJson("v1/models");
      this.hasModels = true;
      const { model, second } = this.wanted;
      replace(this.select, data.map(({ id }) => h("option", { value: id }, id)));
      if (data.some(({ id }) => id === model)) this.select.value = model;
      replace(this.second, h("option", { value: "" }, "Nothing"), data.map(({ id }) => h("option", { value: id }, id)));
      if (data.some(({ id }) => id === second)) this.second.value = second;
      byId("model-note").textContent = data.length ? "" : "This server lists no model.";
    } catch (error) {
      this.hasModels = error.status !== 404;
      const { title, text, needsKey } = explain(error);
      replace(this.select);
      replace(byId("model-note"), `${title}. ${text} `, needsKey && h("button", { type: "button", class: "link", onclick: this.openKeys }, "Enter a key"));
    }
    this.#changed();
    await Promise.all([this.loadGuards(), this.loadSecond()]);
  }

  // Which policy the second answer is under.
  async loadSecond() {
    const note = byId("second-note");
    const model = this.second.value;
    byId("second-key-field").hidden = !model;
    this.secondPolicy = null;
    note.textContent = "";
    const asked = this.secondAsked = {};
    if (!model) return;
    try {
      const { hooks, policy } = await getJson(`admin/explain?${new URLSearchParams({ model })}`, { client: this.secondKey.value.trim() || undefined });
      if (asked !== this.secondAsked) return;
      this.secondPolicy = policy;
      note.textContent = `Policy ${policy}: ${hooks.map(({ name }) => name).join(", ") || "no guard"}.`;
    } catch (error) {
      if (asked === this.secondAsked) note.textContent = whyUnknown(error);
    }
  }

  async loadGuards() {
    const list = byId("guards");
    const note = byId("guards-note");
    this.policy = null;
    replace(list);
    const asked = this.asked = {};
    try {
      const { hooks, allowed_hooks: allowed, policy } = await getJson(`admin/explain?${new URLSearchParams(this.model && { model: this.model })}`);
      if (asked !== this.asked) return;  // another model or key was chosen meanwhile
      this.policy = policy;
      this.chosen = new Set(allowed.map(({ name }) => name).filter((name) => this.chosen.has(name)));
      replace(list, hooks.map(fixed), allowed.map((hook) => this.#switch(hook)));
      const isGuarded = hooks.length + allowed.length > 0;
      note.textContent = isGuarded ? `Policy ${policy}. A guard without a switch always runs.` : "No guard runs. Start the server with one, such as weir serve --hook pii";
    } catch (error) {
      if (asked !== this.asked) return;
      this.chosen.clear();  // there is no switch to turn them off
      if (error.status === 401 || error.status === 403) refuseDecisions();
      note.textContent = whyUnknown(error);
    }
    this.tellRole();
  }

  // Whether this visitor sees decisions. An answer shows it.
  tellRole() {
    const chip = byId("role");
    chip.textContent = seesDecisions() ? "Decisions shown" : "Without decisions";
    chip.dataset.operator = String(seesDecisions());
    byId("role-note").hidden = seesDecisions();
  }

  show(name) {
    for (const one of ["setup", "raw"]) {
      const isShown = one === name;
      byId(`tab-${one}`).setAttribute("aria-selected", String(isShown));
      byId(`tab-${one}`).tabIndex = isShown ? 0 : -1;
      byId(`panel-${one}`).hidden = !isShown;
    }
    if (getComputedStyle(byId("open-panel")).display !== "none") this.open();
  }

  open() {
    this.panel.classList.add("open");
    this.returnTo = document.activeElement;
    byId("close-panel").focus();
  }

  close() {
    this.panel.classList.remove("open");
    (this.returnTo ?? byId("open-panel")).focus();
  }

  #arrow(event) {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const other = byId("tab-setup").getAttribute("aria-selected") === "true" ? "raw" : "setup";
    this.show(other);
    byId(`tab-${other}`).focus();
  }

  #switch({ name }) {
    const change = ({ target }) => { if (target.checked) this.chosen.add(name); else this.chosen.delete(name); };
    return h("li", {}, h("label", { class: "switch" }, h("span", { class: "guard-name" }, name), h("input", { type: "checkbox", role: "switch", checked: this.chosen.has(name), onchange: change })));
  }

  #changed() {
    for (const listener of this.listeners) listener();
  }
}

// The fault stands below its field, which may be the last one in view.
function reveal(id) {
  byId(`${id}-fault`).scrollIntoView({ block: "nearest" });
}

// A temperature may have more digits than its arrows give it.
function isWrong({ id, validity }) {
  return !validity.valid && !(id === "temperature" && validity.stepMismatch);
}

// The name of one of two answers that stand side by side.
function nameOf(model, policy, chosen) {
  return [model, policy && `policy ${policy}`, ...chosen].filter(Boolean).join(", ");
}

// Why the guards are not shown.
function whyUnknown({ status, param }) {
  if (param === "key") return "Which guards run depends on the client’s key. Enter one under Keys.";
  if (status === 404 && !param) return "Which guards run is shown on the operator’s port (--admin-port).";
  if (status === 401 || status === 403) return "Which guards run is shown to operators.";
  return "Which guards run is not known now.";
}

function fixed({ name, mode }) {
  return h("li", {}, h("span", { class: "guard-name" }, name), h("span", { class: "guard-mode" }, mode === "shadow" ? "shadow" : "always"));
}
